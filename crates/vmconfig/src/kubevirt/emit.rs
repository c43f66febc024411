//! A VM as KubeVirt's YAML.

use std::path::Path;

use crate::{
    Accel, Arch, Binding, BootSource, ClockBase, Disk, DiskBus, DiskSource, EmittedText,
    Enlightenment, GuestClock, HostDevice, Loss, MemoryBacking, MemorySource, Nic, NicBackend,
    NicModel, NumberSet, RtcTrack, Scheduler, VmSpec, split_cpu_model,
};

use super::launched::{LaunchedInstance, leaves_model};
use super::tree::Yaml;
use super::{KubevirtKind, MAX_NIC_QUEUES, assign_iothreads};

/// Why KubeVirt has no word for a thing that it decides.
const ITS_OWN: &str = "KubeVirt decides it by itself";

/// The VM as an object of KubeVirt, and what that can't say.
#[must_use]
pub fn emit(spec: &VmSpec, kind: KubevirtKind) -> EmittedText {
    emit_as(spec, kind, None)
}

/// The VM as an instance that vmlab runs by itself, and what that can't say.
#[must_use]
pub fn emit_launched(spec: &VmSpec, launched: &LaunchedInstance<'_>) -> EmittedText {
    emit_as(spec, KubevirtKind::Instance, Some(launched))
}

fn emit_as(
    spec: &VmSpec,
    kind: KubevirtKind,
    launched: Option<&LaunchedInstance<'_>>,
) -> EmittedText {
    let mut losses = Vec::new();
    let metadata = match launched {
        Some(launched) => launched.metadata(),
        None => Yaml::map().with("name", Yaml::text(name(spec, &mut losses))),
    };
    let architecture = match spec.arch {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
    };
    let (disks, volumes) = disks(spec, launched, &mut losses);
    let (interfaces, networks) = nics(spec, &mut losses);
    let mut instance = Yaml::map()
        .with("architecture", Yaml::text(architecture))
        .with("domain", domain(spec, launched, disks, interfaces, &mut losses));
    if launched.is_some() {
        // What it wrote is nobody's: nothing is waited for.
        instance.put("terminationGracePeriodSeconds", Yaml::plain(0));
    }
    for (key, list) in [("networks", networks), ("volumes", volumes)] {
        if !list.is_empty() {
            instance.put(key, list);
        }
    }
    let version = Yaml::text("kubevirt.io/v1");
    let object = match kind {
        KubevirtKind::Instance => Yaml::map()
            .with("apiVersion", version)
            .with("kind", Yaml::text("VirtualMachineInstance"))
            .with("metadata", metadata)
            .with("spec", instance),
        KubevirtKind::Machine => Yaml::map()
            .with("apiVersion", version)
            .with("kind", Yaml::text("VirtualMachine"))
            .with("metadata", metadata)
            .with(
                "spec",
                Yaml::map()
                    .with("runStrategy", Yaml::text("Halted"))
                    .with("template", Yaml::map().with("spec", instance)),
            ),
    };
    other_losses(spec, launched.is_some(), &mut losses);
    let mut text = String::new();
    object.write(0, &mut text);
    EmittedText { text, losses }
}

/// A name that Kubernetes takes (RFC 1123): small letters, digits and dashes.
fn name(spec: &VmSpec, losses: &mut Vec<Loss>) -> String {
    let mut name: String = spec
        .name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(63)
        .collect();
    name = name.trim_matches('-').to_owned();
    if name.is_empty() {
        "vm".clone_into(&mut name);
    }
    if name != spec.name {
        let why = format!("Kubernetes takes small letters, digits and dashes: {name:?}");
        losses.push(Loss::new("name", format!("name {:?}", spec.name), why));
    }
    name
}

fn domain(
    spec: &VmSpec,
    launched: Option<&LaunchedInstance<'_>>,
    disks: Yaml,
    interfaces: Yaml,
    losses: &mut Vec<Loss>,
) -> Yaml {
    let dedicated = is_dedicated(spec);
    let mut domain = Yaml::map();
    let clock = clock(&spec.clock, losses);
    if !clock.is_empty() {
        domain.put("clock", clock);
    }
    domain.put("cpu", cpu(spec, dedicated, launched.is_some() && leaves_model(spec), losses));
    let mut devices = Yaml::map();
    // None of the devices that KubeVirt adds by itself.
    for key in ["autoattachGraphicsDevice", "autoattachMemBalloon"] {
        devices.put(key, Yaml::plain(false));
    }
    if spec.nics.is_empty() {
        devices.put("autoattachPodInterface", Yaml::plain(false));
    }
    if lost_disks(spec).is_none()
        && multiqueue(spec.disks.iter().map(|disk| (disk.bus.is_virtio(), disk.queues)))
    {
        devices.put("blockMultiQueue", Yaml::plain(true));
    }
    if !disks.is_empty() {
        devices.put("disks", disks);
    }
    let of_host = host_devices(spec, losses);
    if !of_host.is_empty() {
        devices.put("hostDevices", of_host);
    }
    if !interfaces.is_empty() {
        devices.put("interfaces", interfaces);
    }
    if multiqueue(nic_queues(spec)) {
        devices.put("networkInterfaceMultiqueue", Yaml::plain(true));
    }
    domain.put("devices", devices);
    let features = features(spec);
    if !features.is_empty() {
        domain.put("features", features);
    }
    if let Some(firmware) = launched.and_then(|launched| launched.firmware(spec)) {
        domain.put("firmware", firmware);
    }
    if let BootSource::Kernel { kernel, initrd } = &spec.boot {
        let kernel_boot = kernel_boot(spec, kernel, initrd.as_deref());
        domain.put("firmware", Yaml::map().with("kernelBoot", kernel_boot));
    }
    if let Some(policy) = io_policy(spec, losses) {
        domain.put("ioThreadsPolicy", Yaml::text(policy));
    }
    domain.put("machine", Yaml::map().with("type", Yaml::text(machine(spec))));
    domain.put("memory", memory(spec, losses));
    if dedicated {
        // The webhook wants it said with dedicated vCPUs.
        let mib = Yaml::text(format!("{}Mi", spec.memory_mib));
        let requests = Yaml::map().with("memory", mib);
        domain.put("resources", Yaml::map().with("requests", requests));
    }
    domain
}

/// A kernel from a container that bears the file's name and holds it.
fn kernel_boot(spec: &VmSpec, kernel: &Path, initrd: Option<&Path>) -> Yaml {
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut container = Yaml::map()
        .with("image", Yaml::text(name(kernel).to_lowercase()))
        .with("kernelPath", Yaml::text(format!("/boot/{}", name(kernel))));
    if let Some(initrd) = initrd {
        container.put("initrdPath", Yaml::text(format!("/boot/{}", name(initrd))));
    }
    let mut boot = Yaml::map().with("container", container);
    if !spec.kernel_cmdline.is_empty() {
        boot.put("kernelArgs", Yaml::text(spec.kernel_cmdline.join(" ")));
    }
    boot
}

/// Every vCPU has a pCPU for itself, whether somebody else chooses it or pins
/// say which.
fn is_dedicated(spec: &VmSpec) -> bool {
    wants_dedicated(spec) && spec.topology.threads <= MAX_DEDICATED_THREADS
}

fn wants_dedicated(spec: &VmSpec) -> bool {
    spec.delegated.dedicated_vcpus == Some(true) || !spec.pins.vcpus.0.is_empty()
}

/// Most threads of a core that the webhook takes with dedicated vCPUs.
const MAX_DEDICATED_THREADS: u32 = 2;

fn cpu(spec: &VmSpec, dedicated: bool, leaves_model: bool, losses: &mut Vec<Loss>) -> Yaml {
    let topology = spec.topology;
    let of_socket = topology.cores.saturating_mul(topology.threads);
    let mut sockets = topology.sockets;
    if topology.dies > 1 || topology.clusters > 1 {
        sockets = sockets.saturating_mul(topology.dies).saturating_mul(topology.clusters);
        let why = "KubeVirt has sockets, cores and threads only; dies become sockets";
        losses.push(Loss::new("topology", format!("topology {topology}"), why));
    }
    let (mut cores, mut threads) = (topology.cores, topology.threads);
    if spec.arch == Arch::Aarch64 && dedicated && threads > 1 {
        (cores, threads) = (cores.saturating_mul(threads), 1);
        let why = "KubeVirt takes one thread a core with dedicated vCPUs on arm64";
        losses.push(Loss::new("topology", format!("topology {topology}"), why));
    }
    let mut max_sockets = None;
    if let Some(present) = spec.present_vcpus {
        if present.is_multiple_of(of_socket) {
            max_sockets = Some(sockets);
            sockets = present / of_socket;
        } else {
            let why = "KubeVirt plugs whole sockets; all vCPUs are there from the start";
            losses.push(Loss::new("present_vcpus", format!("{present} vCPUs at the start"), why));
        }
    }
    let mut cpu = Yaml::map()
        .with("sockets", Yaml::plain(sockets))
        .with("cores", Yaml::plain(cores))
        .with("threads", Yaml::plain(threads))
        // Said always: room for vCPUs that are plugged is added else.
        .with("maxSockets", Yaml::plain(max_sockets.unwrap_or(sockets)));
    let (model, properties) = split_cpu_model(&spec.cpu_model);
    // The only one that KubeVirt takes on arm64.
    let whole = ["host", "max"].contains(&model) || spec.arch == Arch::Aarch64;
    let mut again = vec![if whole { "host" } else { model }.to_owned()];
    let word = if whole { "host-passthrough" } else { model };
    if !leaves_model {
        cpu.put("model", Yaml::text(word));
    }
    let mut features = Vec::new();
    for property in &properties {
        if let Some(on) = property.switch() {
            let policy = if on { "require" } else { "disable" };
            features.push(
                Yaml::map()
                    .with("name", Yaml::text(&property.name))
                    .with("policy", Yaml::text(policy)),
            );
            again.push(property.text());
        }
    }
    if !features.is_empty() {
        cpu.put("features", Yaml::List(features));
    }
    if again.join(",") != spec.cpu_model && !leaves_model {
        let why = format!(
            "KubeVirt takes no such model, or no such property; it is {:?}",
            again.join(",")
        );
        losses.push(Loss::new("cpu_model", format!("cpu_model {:?}", spec.cpu_model), why));
    }
    if dedicated {
        cpu.put("dedicatedCpuPlacement", Yaml::plain(true));
    } else if spec.delegated.dedicated_vcpus == Some(true) {
        let why = "KubeVirt takes at most two threads a core with dedicated vCPUs";
        losses.push(Loss::new("delegated.dedicated_vcpus", "dedicated_vcpus", why));
    }
    emulator(spec, dedicated, &mut cpu, losses);
    // The webhook wants both for it.
    let huge = spec.memory.huge_pages.is_some();
    let wants_numa = spec.delegated.mirror_numa == Some(true) || !spec.numa.is_empty();
    let mirror = wants_numa && dedicated && huge;
    if mirror {
        cpu.put("numa", Yaml::map().with("guestMappingPassthrough", Yaml::map()));
    }
    if wants_numa {
        let why = if mirror {
            "KubeVirt makes guest nodes of the host nodes that it was given"
        } else {
            "KubeVirt mirrors host nodes only with dedicated vCPUs and huge pages"
        };
        if !spec.numa.is_empty() {
            losses.push(Loss::new("numa", "guest nodes", why).also("delegated.mirror_numa"));
        } else if !mirror {
            losses.push(Loss::new("delegated.mirror_numa", "delegated.mirror_numa", why));
        }
    }
    if let Some(mask) = realtime(spec, mirror, losses) {
        let mut inner = Yaml::map();
        if mask.len() != spec.max_vcpus() as usize {
            inner.put("mask", Yaml::text(mask));
        }
        cpu.put("realtime", inner);
    }
    cpu
}

/// vCPUs at the start, as KubeVirt can have them: whole sockets, or all.
fn enabled_vcpus(spec: &VmSpec) -> u32 {
    let of_socket = spec.topology.cores.saturating_mul(spec.topology.threads);
    spec.present_vcpus
        .filter(|present| present.is_multiple_of(of_socket))
        .unwrap_or_else(|| spec.max_vcpus())
}

fn emulator(spec: &VmSpec, dedicated: bool, cpu: &mut Yaml, losses: &mut Vec<Loss>) {
    let wanted = spec.delegated.dedicated_emulator == Some(true) || spec.pins.emulator.is_some();
    if wanted && dedicated {
        cpu.put("isolateEmulatorThread", Yaml::plain(true));
    }
    if spec.delegated.dedicated_emulator == Some(true) && !dedicated {
        let why = "KubeVirt gives the emulator thread a pCPU only if vCPUs have theirs";
        losses.push(Loss::new("delegated.dedicated_emulator", "dedicated_emulator", why));
    }
    let why = "KubeVirt takes pCPUs that the kubelet gave it";
    if !spec.pins.vcpus.0.is_empty() {
        let loss = Loss::new("pins.vcpus", "pins of vCPUs", why);
        losses.push(loss.also("delegated.dedicated_vcpus"));
    }
    if spec.pins.emulator.is_some() {
        let loss = Loss::new("pins.emulator", "pin of the emulator thread", why);
        losses.push(loss.also("delegated.dedicated_emulator"));
    }
    if !spec.pins.iothreads.0.is_empty() {
        losses.push(Loss::new("pins.iothreads", "pins of iothreads", why));
    }
    if spec.pins.vhost.is_some() {
        losses.push(Loss::new("pins.vhost", "pin of vhost threads", why));
    }
}

/// The vCPUs that KubeVirt schedules as real-time, if that is all there is.
fn realtime(spec: &VmSpec, mirror: bool, losses: &mut Vec<Loss>) -> Option<NumberSet> {
    let schedulers = &spec.scheduler;
    if schedulers.is_empty() {
        return None;
    }
    let fifo = schedulers.vcpus.values().all(|one| *one == Scheduler::Fifo(1));
    if mirror && fifo && !schedulers.vcpus.is_empty() {
        if schedulers.emulator.is_some() || !schedulers.iothreads.is_empty() {
            let why = "KubeVirt schedules vCPUs only";
            losses.push(
                Loss::new("scheduler.emulator", "scheduler of other threads", why)
                    .also("scheduler.iothreads"),
            );
        }
        return Some(schedulers.vcpus.keys().copied().collect());
    }
    let why = "KubeVirt has FIFO of priority 1 for vCPUs, with dedicated vCPUs and mirrored nodes";
    losses.push(Loss::new("scheduler", "scheduler of QEMU's threads", why));
    None
}

fn memory(spec: &VmSpec, losses: &mut Vec<Loss>) -> Yaml {
    let MemoryBacking { huge_pages, source, .. } = spec.memory;
    let mut memory = Yaml::map();
    if let Some(size) = huge_pages {
        let page = Yaml::text(format!("{size}i"));
        memory.put("hugepages", Yaml::map().with("pageSize", page));
    }
    memory.put("guest", Yaml::text(format!("{}Mi", spec.memory_mib)));
    let given = &spec.memory;
    let own = if huge_pages.is_some() { Some(MemorySource::Memfd) } else { None };
    for (field, is_set) in [
        ("source", source != own),
        ("shared", given.shared.is_some()),
        ("prealloc", given.prealloc.is_some() || given.prealloc_threads.is_some()),
        ("locked", given.locked.is_some()),
        ("nosharepages", given.nosharepages.is_some()),
        ("host_nodes", given.host_nodes.is_some()),
    ] {
        if is_set {
            let mut loss =
                Loss::new(&format!("memory.{field}"), format!("memory.{field}"), ITS_OWN);
            if field == "prealloc" {
                loss = loss.also("memory.prealloc_threads");
            }
            if field == "host_nodes" {
                loss = loss.also("memory.policy");
            }
            losses.push(loss);
        }
    }
    memory
}

fn enabled(on: bool) -> Yaml {
    Yaml::map().with("enabled", Yaml::plain(on))
}

fn features(spec: &VmSpec) -> Yaml {
    let hints = &spec.hints;
    let mut features = Yaml::map();
    if let Some(on) = hints.pv_eoi {
        features.put("apic", Yaml::map().with("endOfInterrupt", Yaml::plain(on)));
    }
    let mut hyperv = Yaml::map();
    for one in hints.hyperv.iter().flatten() {
        let name = Enlightenment::NAMES.iter().find(|row| row.0 == *one).and_then(|row| row.3);
        if let Some(name) = name {
            hyperv.put(name, enabled(true));
        }
    }
    if let Some(attempts) = hints.hyperv_spinlocks {
        hyperv.put("spinlocks", enabled(true).with("spinlocks", Yaml::plain(attempts)));
    }
    if !hyperv.is_empty() {
        features.put("hyperv", hyperv);
    }
    if let Some(on) = hints.kvm_hidden {
        features.put("kvm", Yaml::map().with("hidden", Yaml::plain(on)));
    }
    if let Some(on) = hints.pv_spinlocks {
        features.put("pvspinlock", enabled(on));
    }
    features
}

fn clock(given: &GuestClock, losses: &mut Vec<Loss>) -> Yaml {
    let present = |on: bool| Yaml::map().with("present", Yaml::plain(on));
    let tick =
        |policy: crate::TickPolicy| Yaml::map().with("tickPolicy", Yaml::text(policy.name()));
    // KubeVirt knows two.
    let track = given.rtc_track.filter(|track| *track != RtcTrack::Realtime);
    if given.rtc_track != track {
        let why = "KubeVirt's clocks run by the wall clock or the guest's time";
        losses.push(Loss::new("clock.rtc_track", "clock.rtc_track realtime", why));
    }
    let rtc = (given.rtc.is_some() || track.is_some()).then(|| {
        given
            .rtc
            .map_or_else(Yaml::map, tick)
            .maybe("track", track.map(|track| Yaml::text(track.name())))
    });
    let timer = Yaml::map()
        .maybe("hpet", given.hpet.map(present))
        .maybe("kvm", given.kvmclock.map(present))
        .maybe("hyperv", given.hypervclock.map(present))
        .maybe("pit", given.pit.map(tick))
        .maybe("rtc", rtc);
    if given.tsc_frequency_hz.is_some() {
        losses.push(Loss::new("clock.tsc_frequency_hz", "clock.tsc_frequency_hz", ITS_OWN));
    }
    if given.base == Some(ClockBase::Localtime) {
        let why = "KubeVirt takes UTC or a named time zone";
        losses.push(Loss::new("clock.base", "clock.base localtime", why));
    }
    let mut clock = Yaml::map();
    if !timer.is_empty() {
        clock.put("timer", timer);
    }
    clock
}

/// Whether any of these that can have several queues does.
fn multiqueue(mut all: impl Iterator<Item = (bool, Option<u32>)>) -> bool {
    all.any(|(can, queues)| can && queues.is_some())
}

fn nic_queues(spec: &VmSpec) -> impl Iterator<Item = (bool, Option<u32>)> {
    spec.nics.iter().map(|nic| (nic.model == NicModel::Virtio, nic.queues))
}

/// What KubeVirt would give each if `blockMultiQueue` and the like were set.
fn lost_queues(
    field: &str,
    own: u32,
    all: impl Iterator<Item = (bool, Option<u32>)>,
    losses: &mut Vec<Loss>,
) {
    let all: Vec<(bool, Option<u32>)> = all.collect();
    let switched = all.iter().any(|(can, queues)| *can && queues.is_some());
    for (number, (can, queues)) in all.into_iter().enumerate() {
        if switched && can && queues != Some(own) {
            let why = format!("KubeVirt gives all of them one queue, or one a vCPU ({own})");
            let what = match queues {
                Some(queues) => format!("{queues} queues of {field} {number}"),
                None => format!("QEMU's own queues of {field} {number}"),
            };
            losses.push(Loss::new(&format!("{field}.{number}.queues"), what, why));
        }
    }
}

fn disks(
    spec: &VmSpec,
    launched: Option<&LaunchedInstance<'_>>,
    losses: &mut Vec<Loss>,
) -> (Yaml, Yaml) {
    let root = launched.map(|launched| launched.root(spec));
    let (mut disks, mut volumes): (Vec<_>, Vec<_>) = root.into_iter().unzip();
    if let Some(fields) = lost_disks(spec) {
        let why = "KubeVirt attaches files, claims and container images; say it in its own words";
        losses.push(Loss::new("disks", fields, why).also("iothreads"));
        return (Yaml::List(disks), Yaml::List(volumes));
    }
    lost_queues(
        "disks",
        enabled_vcpus(spec),
        spec.disks.iter().map(|disk| (disk.bus.is_virtio(), disk.queues)),
        losses,
    );
    let (_, dedicated) = io_shape(spec);
    for (number, disk) in spec.disks.iter().enumerate() {
        let name = format!("disk{number}");
        let bus = match disk.bus {
            DiskBus::VirtioBlk => "virtio",
            DiskBus::VirtioScsi => "scsi",
            DiskBus::Sata | DiskBus::Ide => "sata",
        };
        let mut target = Yaml::map().with("bus", Yaml::text(bus));
        if disk.readonly {
            target.put("readonly", Yaml::plain(true));
        }
        let own = dedicated[number] == Some(true);
        let serial = disk.serial.as_ref().filter(|serial| takes_serial(serial));
        if serial.is_none() && disk.serial.is_some() {
            let why = "KubeVirt takes letters, digits and _.+- in it";
            let path = format!("disks.{number}.serial");
            losses.push(Loss::new(&path, format!("serial of disk {number}"), why));
        }
        disks.push(
            Yaml::map()
                .with("name", Yaml::text(&name))
                .with("disk", target)
                .maybe("cache", disk.cache.map(|cache| Yaml::text(cache.name())))
                .maybe("io", disk.io.map(|io| Yaml::text(io.name())))
                .maybe("dedicatedIOThread", own.then(|| Yaml::plain(true)))
                .maybe("serial", serial.map(Yaml::text))
                .maybe("bootOrder", disk.boot_order.map(Yaml::plain)),
        );
        let volume = Yaml::map().with("name", Yaml::text(name));
        volumes.push(match &disk.source {
            DiskSource::Claim(claim) => {
                let inner = Yaml::map().with("claimName", Yaml::text(claim));
                volume.with("persistentVolumeClaim", inner)
            }
            DiskSource::Container(image) => {
                volume.with("containerDisk", Yaml::map().with("image", Yaml::text(image)))
            }
            DiskSource::File(path) | DiskSource::Block(path) => {
                let inner = Yaml::map()
                    .with("path", Yaml::text(path.to_string_lossy()))
                    .with("type", Yaml::text("Disk"));
                volume.with("hostDisk", inner)
            }
            DiskSource::VhostScsi(_) | DiskSource::VhostUser(_) => volume,
        });
        if disk.format != crate::DiskFormat::Raw {
            let why = "KubeVirt finds the format out by itself";
            let path = format!("disks.{number}.format");
            losses.push(Loss::new(&path, format!("format of disk {number}"), why));
        }
        if disk.discard != Some(crate::Discard::Unmap) {
            let why = "KubeVirt passes on what a guest discards, but to preallocated volumes";
            let path = format!("disks.{number}.discard");
            losses.push(Loss::new(&path, format!("discard of disk {number}"), why));
        }
        if !disk.queue_iothreads.is_empty() {
            let why = "KubeVirt spreads queues with ioThreadsPolicy supplementalPool alone";
            let path = format!("disks.{number}.queue_iothreads");
            losses.push(Loss::new(&path, format!("iothreads of disk {number}'s queues"), why));
        }
        if disk.detect_zeroes.is_some() {
            let path = format!("disks.{number}.detect_zeroes");
            losses.push(Loss::new(&path, format!("detect_zeroes of disk {number}"), ITS_OWN));
        }
        if disk.transient {
            let why = "KubeVirt keeps what is written, or takes an ephemeral volume";
            let path = format!("disks.{number}.transient");
            losses.push(Loss::new(&path, format!("disk {number} forgets"), why));
        }
    }
    (Yaml::List(disks), Yaml::List(volumes))
}

/// Devices by the names of resources, which is all that KubeVirt knows of them.
fn host_devices(spec: &VmSpec, losses: &mut Vec<Loss>) -> Yaml {
    let (mut devices, mut lost) = (Vec::new(), Vec::new());
    for device in &spec.host_devices {
        match device {
            HostDevice::Resource(resource) => devices.push(
                Yaml::map()
                    .with("deviceName", Yaml::text(resource))
                    .with("name", Yaml::text(format!("hostdevice{}", devices.len()))),
            ),
            HostDevice::Pci(address) => lost.push(address.to_string()),
        }
    }
    if !lost.is_empty() {
        let why = "KubeVirt gives one of those that a node offers by a name: permit them \
                   (permittedHostDevices) and write { resource = \"vendor.com/device\" }";
        let what = format!("host devices at {}", lost.join(", "));
        losses.push(Loss::new("host_devices", what, why));
    }
    Yaml::List(devices)
}

/// The disks that KubeVirt can't attach, if there are any.
fn lost_disks(spec: &VmSpec) -> Option<String> {
    let lost = |disk: &Disk| {
        matches!(disk.source, DiskSource::Block(_))
            || disk.is_served_elsewhere()
            || disk.io == Some(crate::DiskIo::IoUring)
            || (spec.arch == Arch::Aarch64 && disk.bus == DiskBus::Sata)
            || disk.bus == DiskBus::Ide
            || matches!(disk.cache, Some(crate::CacheMode::Directsync | crate::CacheMode::Unsafe))
    };
    let all: Vec<String> = spec
        .disks
        .iter()
        .enumerate()
        .filter(|(_, disk)| lost(disk))
        .map(|(number, _)| number.to_string())
        .collect();
    (!all.is_empty()).then(|| format!("disks, because of number {}", all.join(", ")))
}

/// Whether the policy is `shared`, and which disks have an iothread to
/// themselves; as near as KubeVirt comes to what was asked.
fn io_shape(spec: &VmSpec) -> (bool, Vec<Option<bool>>) {
    let users =
        |number: u32| spec.disks.iter().filter(|disk| disk.iothread == Some(number)).count();
    let dedicated: Vec<Option<bool>> = spec
        .disks
        .iter()
        .map(|disk| {
            let can = disk.bus == DiskBus::VirtioBlk;
            can.then(|| disk.iothread.is_some_and(|number| number > 1 && users(number) == 1))
        })
        .collect();
    let shared = spec.disks.iter().any(|disk| disk.iothread.is_some()) || spec.iothreads > 0;
    (shared, dedicated)
}

fn io_policy(spec: &VmSpec, losses: &mut Vec<Loss>) -> Option<&'static str> {
    if let Some(ns) = spec.iothread_poll_max_ns {
        let what = format!("iothreads that poll for up to {ns} ns");
        losses.push(Loss::new("iothread_poll_max_ns", what, ITS_OWN));
    }
    if lost_disks(spec).is_some() {
        return None;
    }
    let (shared, dedicated) = io_shape(spec);
    let (count, threads) = assign_iothreads(shared, &dedicated);
    let why = "KubeVirt has one iothread for all disks, and one each for those that want it";
    if count != spec.iothreads {
        losses.push(Loss::new("iothreads", format!("iothreads {}", spec.iothreads), why));
    }
    for (number, (given, disk)) in threads.iter().zip(&spec.disks).enumerate() {
        if *given != disk.iothread {
            let path = format!("disks.{number}.iothread");
            losses.push(Loss::new(&path, format!("iothread of disk {number}"), why));
        }
    }
    shared.then_some("shared")
}

fn nics(spec: &VmSpec, losses: &mut Vec<Loss>) -> (Yaml, Yaml) {
    let (mut interfaces, mut networks) = (Vec::new(), Vec::new());
    let own = enabled_vcpus(spec).min(MAX_NIC_QUEUES);
    lost_queues("nics", own, nic_queues(spec), losses);
    let is_pod = |nic: &Nic| matches!(nic.backend, NicBackend::Pod { .. });
    // A pod has one network: the first that asks for it, else the first that
    // Kubernetes doesn't know.
    let of_pod = spec.nics.iter().position(is_pod).or_else(|| {
        let is_known = |nic: &Nic| matches!(nic.backend, NicBackend::Multus { .. });
        spec.nics.iter().position(|nic| !is_known(nic))
    });
    for (number, nic) in spec.nics.iter().enumerate() {
        let name = format!("net{number}");
        let (network, binding) = match &nic.backend {
            NicBackend::Multus { network } => {
                let inner = Yaml::map().with("networkName", Yaml::text(network));
                (Yaml::map().with("multus", inner), Binding::Bridge)
            }
            other if of_pod != Some(number) => {
                let what = format!("nic {number}: {other:?}");
                let why = "a pod has one network; make a NetworkAttachmentDefinition";
                losses.push(Loss::new("nics", what, why));
                continue;
            }
            NicBackend::Pod { binding } => (Yaml::map().with("pod", Yaml::map()), *binding),
            other => {
                let why = match other {
                    NicBackend::VhostUser { .. } => {
                        "KubeVirt has no vhost-user; the VM has the pod's network"
                    }
                    _ => "it is no network of Kubernetes; the VM has the pod's network",
                };
                let what = format!("nic {number}: {other:?}");
                losses.push(Loss::new(&format!("nics.{number}"), what, why));
                (Yaml::map().with("pod", Yaml::map()), Binding::Masquerade)
            }
        };
        let Nic { model, mac, vhost, .. } = nic;
        let key = match binding {
            Binding::Masquerade => "masquerade",
            Binding::Bridge => "bridge",
        };
        interfaces.push(
            Yaml::map()
                .with("name", Yaml::text(&name))
                .with("model", Yaml::text(model.name()))
                .with(key, Yaml::map())
                .maybe("macAddress", mac.as_ref().map(Yaml::text)),
        );
        let Yaml::Map(mut network) = network else { continue };
        network.insert(0, ("name", Yaml::text(name)));
        networks.push(Yaml::Map(network));
        for (name, _) in [
            ("rx_queue_size", nic.rx_queue_size.is_some()),
            ("tx_queue_size", nic.tx_queue_size.is_some()),
            ("packed", nic.packed.is_some()),
            ("mtu", nic.mtu.is_some()),
            ("vhost", vhost.is_some()),
        ]
        .into_iter()
        .filter(|(_, is_said)| *is_said)
        {
            let path = format!("nics.{number}.{name}");
            losses.push(Loss::new(&path, format!("{name} of nic {number}"), ITS_OWN));
        }
    }
    (Yaml::List(interfaces), Yaml::List(networks))
}

/// The machine's type, of those that KubeVirt takes unless the cluster says
/// otherwise (`emulatedMachines`).
fn machine(spec: &VmSpec) -> &str {
    let asked = spec.machine_type();
    let (own, versioned) = match spec.arch {
        Arch::X86_64 => ("q35", "pc-q35"),
        Arch::Aarch64 => ("virt", "virt-"),
    };
    if asked == own || asked.starts_with(versioned) { asked } else { own }
}

/// The letters that the webhook takes in a disk's serial number.
fn takes_serial(serial: &str) -> bool {
    serial.len() <= 256 && serial.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
}

fn other_losses(spec: &VmSpec, launched: bool, losses: &mut Vec<Loss>) {
    // Whoever launches it has asked the cluster, and has an image.
    if spec.accel == Accel::Tcg && !launched {
        let why = "whether VMs are emulated is a setting of the whole cluster";
        losses.push(Loss::new("accel", "accel tcg", why));
    }
    if machine(spec) != spec.machine_type() {
        let why = format!("KubeVirt takes {:?}", machine(spec));
        losses.push(Loss::new("machine", format!("machine {:?}", spec.machine), why));
    } else if let Some((_, properties)) = spec.machine.split_once(',') {
        let why = "KubeVirt takes the machine's type only";
        losses.push(Loss::new("machine", format!("machine properties {properties:?}"), why));
    }
    let has_image = matches!(spec.boot, BootSource::Direct { .. } | BootSource::Disk { .. });
    if let BootSource::Kernel { .. } = spec.boot {
        let why = "KubeVirt takes a kernel from a container: make an image of that name with \
                   the file in /boot, and name your registry before it";
        losses.push(Loss::new("boot", "the kernel's file", why));
    } else if spec.boot != BootSource::Firmware && !(launched && has_image) {
        let why = "KubeVirt boots disks and kernels from containers: add a volume";
        losses.push(Loss::new("boot", "what it boots", why).also("kernel_cmdline"));
    }
    if spec.iommu.is_some() {
        losses.push(Loss::new("iommu", "iommu", ITS_OWN));
    }
    if spec.cpu_cache.is_some() {
        losses.push(Loss::new("cpu_cache", "cpu_cache", ITS_OWN));
    }
    let hints = &spec.hints;
    for (field, is_set) in [
        ("cpu_pm", hints.cpu_pm.is_some()),
        ("kvm_hint_dedicated", hints.kvm_hint_dedicated.is_some()),
        ("poll_control", hints.poll_control.is_some()),
        ("pv_ipi", hints.pv_ipi.is_some()),
        ("pmu", hints.pmu.is_some()),
        ("irqchip", hints.irqchip.is_some()),
    ] {
        if is_set {
            let why = "KubeVirt has no word for it; only a hook in a sidecar can set it";
            losses.push(Loss::new(&format!("hints.{field}"), format!("hints.{field}"), why));
        }
    }
    if hints.hyperv.iter().flatten().any(|one| *one == Enlightenment::Avic) {
        let why = "KubeVirt has no word for hv-avic";
        losses.push(Loss::new("hints.hyperv", "hints.hyperv avic", why));
    }
    if !spec.extra_args.is_empty() {
        let why = "KubeVirt passes nothing to QEMU; only a hook in a sidecar can";
        losses.push(Loss::new("extra_args", spec.extra_args.join(" "), why));
    }
    let not_of_the_host = crate::formats::wish_losses(spec);
    let host = |loss: &Loss| loss.fields.iter().any(|field| field.starts_with("host."));
    losses.extend(not_of_the_host.into_iter().filter(host));
}
