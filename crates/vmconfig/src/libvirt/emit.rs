//! A VM as domain XML.

use std::collections::BTreeMap;

use crate::{
    Accel, Arch, BootSource, ClockBase, CpuCache, CpuProperty, Disk, DiskBus, DiskSource,
    EmittedText, Enlightenment, HostDevice, Irqchip, Loss, Nic, NicBackend, NicModel, NumberSet,
    PciAddress, PcpuSet, RtcTrack, Scheduler, TickPolicy, VmSpec, cpu, split_cpu_model,
};

use super::backing;
use super::launched::LaunchedDomain;
use super::xml::Element;
use super::{QEMU_NAMESPACE, ROOT_SERIAL, is_qemus_own};

/// The VM as domain XML, and what that can't say.
#[must_use]
pub fn emit(spec: &VmSpec) -> EmittedText {
    write(spec, None)
}

/// The VM as domain XML for a domain that vmlab starts and talks to.
#[must_use]
pub fn emit_launched(spec: &VmSpec, launched: &LaunchedDomain<'_>) -> EmittedText {
    write(spec, Some(launched))
}

fn write(spec: &VmSpec, launched: Option<&LaunchedDomain<'_>>) -> EmittedText {
    let mut losses = Vec::new();
    let mut arguments: Vec<String> = Vec::new();
    let processor = processor(spec, &mut arguments, &mut losses);
    if let Some((_, properties)) = spec.machine.split_once(',') {
        arguments.extend(["-machine".to_owned(), properties.to_owned()]);
    }
    if spec.hints.cpu_pm == Some(true) {
        arguments.extend(["-overcommit".to_owned(), "cpu-pm=on".to_owned()]);
    }
    arguments.extend(spec.extra_args.iter().cloned());

    let kind = match spec.accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "qemu",
    };
    let mut domain = Element::new("domain").attr("type", kind);
    if !arguments.is_empty() {
        domain = domain.attr("xmlns:qemu", QEMU_NAMESPACE);
    }
    match launched {
        Some(launched) => {
            domain.push(Element::new("name").text(launched.name));
            domain.push(launched.metadata());
        }
        None => domain.push(Element::new("name").text(name(spec, &mut losses))),
    }
    domain.push(Element::new("memory").attr("unit", "MiB").text(spec.memory_mib));
    domain.push_some(backing::memory_backing(spec, &mut losses));
    let vcpu = Element::new("vcpu").attr("placement", "static");
    domain.push(vcpu.maybe_attr("current", spec.present_vcpus).text(spec.max_vcpus()));
    if spec.iothreads > 0 {
        domain.push(Element::new("iothreads").text(spec.iothreads));
        if let Some(ns) = spec.iothread_poll_max_ns {
            let poll = || Element::new("poll").attr("max", ns);
            let ids = (1..=spec.iothreads)
                .map(|id| Element::new("iothread").attr("id", id).child(poll()));
            domain.push(ids.fold(Element::new("iothreadids"), Element::child));
        }
    }
    domain.push_some(cputune(spec));
    if let Some(pcpus) = &spec.pins.vhost {
        let why = "libvirt has no word for it: they run where emulatorpin says";
        losses.push(Loss::new("pins.vhost", format!("vhost threads on pCPU {pcpus}"), why));
    }
    domain.push_some(numatune(spec));
    domain.push(os(spec));
    domain.push_some(features(spec));
    domain.push(processor);
    domain.push(clock(spec));
    if launched.is_some() {
        LaunchedDomain::ends().into_iter().for_each(|end| domain.push(end));
    }
    domain.push(devices(spec, launched, &mut losses));
    domain.push_some(launched.map_or_else(|| Element::new("seclabel"), LaunchedDomain::security));
    if !arguments.is_empty() {
        let mut commandline = Element::new("qemu:commandline");
        for argument in arguments {
            commandline.push(Element::new("qemu:arg").attr("value", argument));
        }
        domain.push(commandline);
    }
    losses.extend(crate::formats::wish_losses(spec));
    let mut text = String::new();
    domain.write(0, &mut text);
    EmittedText { text, losses }
}

/// One NIC of a VM with KVM as `<interface>`, indented by two spaces. What libvirt has no
/// word for is left out.
#[must_use]
pub fn emit_interface(nic: &Nic) -> String {
    let element = interface(0, nic, true, &mut Vec::new());
    let mut text = String::new();
    element.write(1, &mut text);
    text
}

fn name(spec: &VmSpec, losses: &mut Vec<Loss>) -> String {
    if spec.name.contains('/') {
        let why = "libvirt takes no slash in a name; it is a dash";
        losses.push(Loss::new("name", format!("name {:?}", spec.name), why));
    }
    spec.name.replace('/', "-")
}

fn cputune(spec: &VmSpec) -> Element {
    let mut tune = Element::new("cputune");
    for (vcpu, pcpus) in spec.pins.vcpus.iter() {
        tune.push(Element::new("vcpupin").attr("vcpu", vcpu).attr("cpuset", pcpus));
    }
    if let Some(pcpus) = &spec.pins.emulator {
        tune.push(Element::new("emulatorpin").attr("cpuset", pcpus));
    }
    for (number, pcpus) in spec.pins.iothreads.iter() {
        tune.push(Element::new("iothreadpin").attr("iothread", number).attr("cpuset", pcpus));
    }
    let scheduled = |element: Element, scheduler: Scheduler| {
        let (name, priority) = scheduler.parts();
        element.attr("scheduler", name).maybe_attr("priority", priority)
    };
    let groups = |threads: &BTreeMap<u32, Scheduler>| {
        let mut groups: BTreeMap<Scheduler, PcpuSet> = BTreeMap::new();
        for (thread, scheduler) in threads {
            let group = groups.entry(*scheduler).or_default();
            *group = group.union(&PcpuSet::from_iter([*thread]));
        }
        groups
    };
    for (scheduler, vcpus) in groups(&spec.scheduler.vcpus) {
        tune.push(scheduled(Element::new("vcpusched").attr("vcpus", vcpus), scheduler));
    }
    for (scheduler, numbers) in groups(&spec.scheduler.iothreads) {
        let element = Element::new("iothreadsched").attr("iothreads", numbers);
        tune.push(scheduled(element, scheduler));
    }
    if let Some(scheduler) = spec.scheduler.emulator {
        tune.push(scheduled(Element::new("emulatorsched"), scheduler));
    }
    tune
}

fn numatune(spec: &VmSpec) -> Element {
    let mut tune = Element::new("numatune");
    let place = |element: Element, nodes: &NumberSet, policy: Option<crate::MemoryPolicy>| {
        let mode = policy.map_or("strict", crate::MemoryPolicy::libvirt);
        element.attr("mode", mode).attr("nodeset", nodes)
    };
    if let Some(nodes) = &spec.memory.host_nodes {
        tune.push(place(Element::new("memory"), nodes, spec.memory.policy));
    }
    for (number, node) in spec.numa.iter().enumerate() {
        if let Some(nodes) = &node.host_nodes {
            let element = Element::new("memnode").attr("cellid", number);
            tune.push(place(element, nodes, node.policy));
        }
    }
    tune
}

fn os(spec: &VmSpec) -> Element {
    let kind = Element::new("type").attr("arch", spec.arch).attr("machine", spec.machine_type());
    let mut os = Element::new("os").child(kind.text("hvm"));
    let (kernel, initrd) = match &spec.boot {
        BootSource::Direct { kernel, initrd, .. } => (kernel, Some(initrd)),
        BootSource::Kernel { kernel, initrd } => (kernel, initrd.as_ref()),
        BootSource::Disk { .. } | BootSource::Firmware => return os,
    };
    os.push(Element::new("kernel").text(kernel.to_string_lossy()));
    if let Some(initrd) = initrd {
        os.push(Element::new("initrd").text(initrd.to_string_lossy()));
    }
    let parameters = spec.kernel_parameters();
    if !parameters.is_empty() {
        os.push(Element::new("cmdline").text(parameters.join(" ")));
    }
    os
}

fn state(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn features(spec: &VmSpec) -> Element {
    let hints = &spec.hints;
    let mut features = Element::new("features");
    if spec.arch == Arch::X86_64 {
        // Without it libvirt switches ACPI off.
        features.push(Element::new("acpi"));
        features.push(Element::new("apic").maybe_attr("eoi", hints.pv_eoi.map(state)));
    }
    let mut hyperv = Element::new("hyperv").attr("mode", "custom");
    for one in hints.hyperv.iter().flatten() {
        if let Some(row) = Enlightenment::NAMES.iter().find(|row| row.0 == *one) {
            hyperv.push(Element::new(row.2).attr("state", "on"));
        }
    }
    if let Some(attempts) = hints.hyperv_spinlocks {
        let element = Element::new("spinlocks").attr("state", "on");
        hyperv.push(element.attr("retries", attempts));
    }
    if hints.hyperv.is_some() || hints.hyperv_spinlocks.is_some() {
        features.push(hyperv);
    }
    let mut kvm = Element::new("kvm");
    for (name, on) in [
        ("hidden", hints.kvm_hidden),
        ("hint-dedicated", hints.kvm_hint_dedicated),
        ("poll-control", hints.poll_control),
        ("pv-ipi", hints.pv_ipi),
    ] {
        if let Some(on) = on {
            kvm.push(Element::new(name).attr("state", state(on)));
        }
    }
    features.push_some(kvm);
    if let Some(on) = hints.pv_spinlocks {
        features.push(Element::new("pvspinlock").attr("state", state(on)));
    }
    if let Some(on) = hints.pmu {
        features.push(Element::new("pmu").attr("state", state(on)));
    }
    if let Some(irqchip) = hints.irqchip {
        let driver = match irqchip {
            Irqchip::Kernel => "kvm",
            Irqchip::Split => "qemu",
        };
        features.push(Element::new("ioapic").attr("driver", driver));
    }
    features
}

/// `<cpu>`; what libvirt has no word for becomes arguments.
fn processor(spec: &VmSpec, arguments: &mut Vec<String>, losses: &mut Vec<Loss>) -> Element {
    let (model, properties) = split_cpu_model(&spec.cpu_model);
    let mode = match model {
        "host" => "host-passthrough",
        "max" => "maximum",
        "host-model" => "host-model",
        _ => "custom",
    };
    let mut cpu = Element::new("cpu").attr("mode", mode);
    let mut again = vec![model.to_owned()];
    let is_migratable = |property: &&CpuProperty| {
        property.name == "migratable" && ["host-passthrough", "maximum"].contains(&mode)
    };
    if mode == "custom" {
        cpu = cpu.attr("match", "exact");
    }
    cpu = cpu.attr("check", if mode == "host-model" { "partial" } else { "none" });
    if let Some(property) = properties.iter().find(is_migratable)
        && let Some(on) = property.switch()
    {
        cpu = cpu.attr("migratable", state(on));
        again.push(property.text());
    }
    if mode == "custom" {
        cpu.push(Element::new("model").attr("fallback", "forbid").text(model));
    }
    let topology = spec.topology;
    let mut levels =
        Element::new("topology").attr("sockets", topology.sockets).attr("dies", topology.dies);
    if topology.clusters > 1 {
        levels = levels.attr("clusters", topology.clusters);
    }
    cpu.push(levels.attr("cores", topology.cores).attr("threads", topology.threads));
    match spec.cpu_cache {
        // libvirt takes it for models without a name only.
        Some(CpuCache::Passthrough) if !["host-passthrough", "maximum"].contains(&mode) => {
            for switch in ["host-cache-info=on", "l3-cache=off"] {
                arguments
                    .extend(["-global".to_owned(), format!("{}{switch}", cpu_class(spec.arch))]);
            }
        }
        Some(CpuCache::Passthrough) => cpu.push(Element::new("cache").attr("mode", "passthrough")),
        Some(CpuCache::Emulate) => {
            cpu.push(Element::new("cache").attr("level", 3).attr("mode", "emulate"));
        }
        Some(CpuCache::Off) => cpu.push(Element::new("cache").attr("mode", "disable")),
        None => {}
    }
    let mut others = Vec::new();
    for property in properties.iter().filter(|property| !is_migratable(property)) {
        match property.switch() {
            Some(on) if !is_qemus_own(&property.name) => {
                let policy = if on { "require" } else { "disable" };
                let feature = Element::new("feature").attr("policy", policy);
                cpu.push(feature.attr("name", &property.name));
                again.push(property.text());
            }
            _ => others.push(property),
        }
    }
    for property in others {
        let class = cpu_class(spec.arch);
        let CpuProperty { name, value } = property;
        arguments.extend(["-global".to_owned(), format!("{class}{name}={value}")]);
        again.push(property.text());
    }
    if again.join(",") != spec.cpu_model {
        let what = format!("spelling of cpu_model {:?}", spec.cpu_model);
        let why =
            format!("libvirt has elements for features; read again it is {:?}", again.join(","));
        losses.push(Loss::new("cpu_model", what, why));
    }
    if !spec.numa.is_empty() {
        cpu.push(numa(spec));
    }
    cpu
}

/// What `-global` calls all CPU models.
fn cpu_class(arch: Arch) -> &'static str {
    cpu::CLASSES.iter().find(|row| row.0 == arch).map_or("", |row| row.1)
}

fn numa(spec: &VmSpec) -> Element {
    let mut numa = Element::new("numa");
    for (number, node) in spec.numa.iter().enumerate() {
        let mut cell = Element::new("cell").attr("id", number);
        if !node.vcpus.is_empty() {
            cell = cell.attr("cpus", &node.vcpus);
        }
        cell = cell.attr("memory", node.memory_mib).attr("unit", "MiB");
        cell = cell.maybe_attr("memAccess", backing::cell_access(spec, number));
        let mut distances = Element::new("distances");
        for (other, distance) in &node.distances {
            distances.push(Element::new("sibling").attr("id", other).attr("value", distance));
        }
        cell.push_some(distances);
        numa.push(cell);
    }
    numa
}

fn clock(spec: &VmSpec) -> Element {
    let given = &spec.clock;
    let offset = match given.base {
        Some(ClockBase::Localtime) => "localtime",
        _ => "utc",
    };
    let mut clock = Element::new("clock").attr("offset", offset);
    let timer = |name: &'static str| Element::new("timer").attr("name", name);
    let present = |on: bool| if on { "yes" } else { "no" };
    for (name, on) in
        [("kvmclock", given.kvmclock), ("hypervclock", given.hypervclock), ("hpet", given.hpet)]
    {
        if let Some(on) = on {
            clock.push(timer(name).attr("present", present(on)));
        }
    }
    if let Some(hz) = given.tsc_frequency_hz {
        clock.push(timer("tsc").attr("frequency", hz));
    }
    for (name, policy, track) in [("pit", given.pit, None), ("rtc", given.rtc, given.rtc_track)] {
        if policy.is_some() || track.is_some() {
            let policy = policy.map(TickPolicy::name);
            let track = track.map(RtcTrack::name);
            clock.push(timer(name).maybe_attr("tickpolicy", policy).maybe_attr("track", track));
        }
    }
    clock
}

/// Names of disks by bus: `vda`, `sda`... `sdz`, `sdaa`.
#[derive(Default)]
struct DiskNames {
    virtio: u32,
    ide: u32,
    other: u32,
}

impl DiskNames {
    fn next(&mut self, bus: DiskBus) -> String {
        let (prefix, counter) = match bus {
            DiskBus::VirtioBlk => ("vd", &mut self.virtio),
            DiskBus::Ide => ("hd", &mut self.ide),
            DiskBus::VirtioScsi | DiskBus::Sata => ("sd", &mut self.other),
        };
        let mut number = *counter;
        *counter += 1;
        let mut letters = Vec::new();
        loop {
            letters.push(char::from(b'a' + u8::try_from(number % 26).unwrap_or(0)));
            if number < 26 {
                break;
            }
            number = number / 26 - 1;
        }
        letters.push(' ');
        format!("{prefix}{}", letters.iter().rev().collect::<String>().trim())
    }
}

fn devices(
    spec: &VmSpec,
    launched: Option<&LaunchedDomain<'_>>,
    losses: &mut Vec<Loss>,
) -> Element {
    let mut devices = Element::new("devices");
    if let Some(launched) = launched {
        devices.push(launched.emulator());
    }
    let mut names = DiskNames::default();
    match &spec.boot {
        BootSource::Direct { root_image, .. } => {
            let disk = Disk {
                readonly: true,
                cache: Some(crate::CacheMode::Writeback),
                io: Some(crate::DiskIo::Threads),
                serial: Some(ROOT_SERIAL.to_owned()),
                ..Disk::new(DiskSource::File(root_image.clone()))
            };
            devices.push(disk_element(&disk, 0, &mut names));
        }
        BootSource::Disk { image, format } => {
            let disk = Disk {
                format: *format,
                transient: true,
                cache: Some(crate::CacheMode::Unsafe),
                boot_order: Some(1),
                ..Disk::new(DiskSource::File(image.clone()))
            };
            devices.push(disk_element(&disk, 0, &mut names));
        }
        BootSource::Kernel { .. } | BootSource::Firmware => {}
    }
    let mut controllers = 0;
    for (number, disk) in spec.disks.iter().enumerate() {
        match &disk.source {
            DiskSource::VhostScsi(target) => {
                let source = Element::new("source").attr("protocol", "vhost").attr("wwpn", target);
                let mut host = Element::new("hostdev")
                    .attr("mode", "subsystem")
                    .attr("type", "scsi_host")
                    .child(source);
                if let Some(order) = disk.boot_order {
                    host.push(Element::new("boot").attr("order", order));
                }
                devices.push(host);
                if disk.queues.is_some() {
                    let why = "libvirt has no attribute for queues of vhost-scsi";
                    let path = format!("disks.{number}.queues");
                    losses.push(Loss::new(&path, format!("queues of disk {number}"), why));
                }
            }
            DiskSource::Claim(name) | DiskSource::Container(name) => {
                let what = format!("disk {number} from {name:?}");
                let why = "only Kubernetes knows where it is; give the image's path";
                losses.push(Loss::new("disks", what, why));
            }
            DiskSource::File(_) | DiskSource::Block(_) | DiskSource::VhostUser(_) => {
                if let Some(serial) = disk.serial.as_ref().filter(|text| !takes_serial(text)) {
                    let what = format!("serial {serial:?} of disk {number}");
                    let why = "libvirt takes letters, digits, blanks and _.+- in it";
                    losses.push(Loss::new(&format!("disks.{number}.serial"), what, why));
                }
                if disk.transient && !is_transient(disk) {
                    let what = format!("transient of disk {number}, whose writes stay");
                    let why = "libvirt forgets writes to image files only: put a qcow2 overlay on \
                               the device";
                    losses.push(Loss::new(&format!("disks.{number}.transient"), what, why));
                }
                if disk.bus == DiskBus::VirtioScsi {
                    let driver = Element::new("driver")
                        .maybe_attr("queues", disk.queues)
                        .maybe_attr("iothread", disk.iothread);
                    let driver = with_iothreads(driver, disk);
                    let mut controller = Element::new("controller")
                        .attr("type", "scsi")
                        .attr("index", controllers)
                        .attr("model", "virtio-scsi");
                    controller.push_some(driver);
                    devices.push(controller);
                }
                devices.push(disk_element(disk, controllers, &mut names));
                controllers += u32::from(disk.bus == DiskBus::VirtioScsi);
            }
        }
    }
    for address in spec.host_devices.iter().filter_map(HostDevice::pci) {
        let PciAddress { domain, bus, slot, function } = address;
        let place = Element::new("address")
            .attr("domain", format!("{domain:#06x}"))
            .attr("bus", format!("{bus:#04x}"))
            .attr("slot", format!("{slot:#04x}"))
            .attr("function", format!("{function:#x}"));
        let host = Element::new("hostdev")
            .attr("mode", "subsystem")
            .attr("type", "pci")
            .attr("managed", "yes")
            .child(Element::new("source").child(place));
        devices.push(host);
    }
    losses.extend(crate::formats::resource_losses(spec));
    if let Some(iommu) = &spec.iommu {
        let mut driver = Element::new("driver");
        for (name, switch) in iommu.switches() {
            driver = driver.maybe_attr(name, switch);
        }
        let mut element = Element::new("iommu").attr("model", "intel");
        element.push_some(driver);
        devices.push(element);
    }
    // None of the devices that libvirt adds by itself.
    devices.push(Element::new("controller").attr("type", "usb").attr("model", "none"));
    for (number, nic) in spec.nics.iter().enumerate() {
        devices.push(interface(number, nic, spec.accel == Accel::Kvm, losses));
    }
    match launched {
        Some(launched) => {
            launched.ports(spec.arch).into_iter().for_each(|port| devices.push(port));
        }
        None => devices.push(Element::new("serial").attr("type", "pty")),
    }
    devices.push(Element::new("memballoon").attr("model", "none"));
    devices
}

/// The letters that libvirt's schema takes in a disk's serial number.
fn takes_serial(serial: &str) -> bool {
    serial.chars().all(|c| c.is_ascii_alphanumeric() || "_.+- ".contains(c))
}

/// Whether libvirt can forget what the guest writes.
fn is_transient(disk: &Disk) -> bool {
    disk.transient && matches!(disk.source, DiskSource::File(_))
}

/// The driver with the iothreads that share the disk's queues.
fn with_iothreads(driver: Element, disk: &Disk) -> Element {
    let mut all = Element::new("iothreads");
    for one in &disk.queue_iothreads {
        let queues = one.queues.iter().map(|queue| Element::new("queue").attr("id", queue));
        all.push(queues.fold(Element::new("iothread").attr("id", one.iothread), Element::child));
    }
    if disk.queue_iothreads.is_empty() { driver } else { driver.child(all) }
}

fn disk_element(disk: &Disk, controller: u32, names: &mut DiskNames) -> Element {
    let scsi = disk.bus == DiskBus::VirtioScsi;
    let (kind, source) = match &disk.source {
        DiskSource::Block(path) => {
            ("block", Element::new("source").attr("dev", path.to_string_lossy()))
        }
        DiskSource::File(path) => {
            ("file", Element::new("source").attr("file", path.to_string_lossy()))
        }
        DiskSource::VhostUser(path) => {
            let source = Element::new("source").attr("type", "unix");
            ("vhostuser", source.attr("path", path.to_string_lossy()))
        }
        // Those have elements of their own, or none.
        _ => ("file", Element::new("source")),
    };
    let driver = Element::new("driver")
        .attr("name", "qemu")
        .attr("type", disk.format.name())
        .maybe_attr("cache", disk.cache.map(crate::CacheMode::name))
        .maybe_attr("io", disk.io.map(crate::DiskIo::name))
        .maybe_attr("discard", disk.discard.map(crate::Discard::name))
        .maybe_attr("detect_zeroes", disk.detect_zeroes.map(crate::ZeroDetection::name))
        .maybe_attr("iothread", disk.iothread.filter(|_| !scsi))
        .maybe_attr("queues", disk.queues.filter(|_| !scsi));
    let driver = if scsi { driver } else { with_iothreads(driver, disk) };
    let bus = match disk.bus {
        DiskBus::VirtioBlk => "virtio",
        DiskBus::VirtioScsi => "scsi",
        DiskBus::Sata => "sata",
        DiskBus::Ide => "ide",
    };
    let target = Element::new("target").attr("dev", names.next(disk.bus)).attr("bus", bus);
    let mut element = Element::new("disk").attr("type", kind).attr("device", "disk");
    element = element.child(driver).child(source).child(target);
    if disk.readonly {
        element.push(Element::new("readonly"));
    }
    if is_transient(disk) {
        element.push(Element::new("transient"));
    }
    if let Some(serial) = disk.serial.as_ref().filter(|serial| takes_serial(serial)) {
        element.push(Element::new("serial").text(serial));
    }
    if let Some(order) = disk.boot_order {
        element.push(Element::new("boot").attr("order", order));
    }
    if scsi {
        let address = Element::new("address").attr("type", "drive");
        element.push(address.attr("controller", controller).attr("bus", 0).attr("unit", 0));
    }
    element
}

fn interface(number: usize, nic: &Nic, kvm: bool, losses: &mut Vec<Loss>) -> Element {
    let source = || Element::new("source");
    let (kind, source) = match &nic.backend {
        NicBackend::User => ("user", None),
        NicBackend::Tap { ifname } => {
            let target = Element::new("target").attr("dev", ifname).attr("managed", "no");
            ("ethernet", Some(target))
        }
        NicBackend::Bridge { name } => ("bridge", Some(source().attr("bridge", name))),
        NicBackend::VhostUser { socket, server, reconnect_s } => {
            let mode = if *server { "server" } else { "client" };
            let path = socket.to_string_lossy();
            let mut source = source().attr("type", "unix").attr("path", path).attr("mode", mode);
            if let Some(seconds) = reconnect_s {
                let again = Element::new("reconnect").attr("enabled", "yes");
                source.push(again.attr("timeout", seconds));
            }
            ("vhostuser", Some(source))
        }
        NicBackend::Macvtap { device, mode } => {
            ("direct", Some(source().attr("dev", device).attr("mode", mode.name())))
        }
        NicBackend::Libvirt { network } => ("network", Some(source().attr("network", network))),
        NicBackend::Pod { .. } | NicBackend::Multus { .. } => {
            let why = "it is a network of Kubernetes; the domain has a user network";
            losses.push(Loss::new(&format!("nics.{number}"), format!("nic {number}"), why));
            return Element::new("interface")
                .attr("type", "user")
                .child(Element::new("model").attr("type", nic.model.name()));
        }
    };
    let mut element = Element::new("interface").attr("type", kind);
    if let Some(mac) = &nic.mac {
        element.push(Element::new("mac").attr("address", mac));
    }
    if let Some(source) = source {
        element.push(source);
    }
    element.push(Element::new("model").attr("type", nic.model.name()));
    // libvirt would ask for vhost by itself.
    let tap = nic.backend.is_tap() && nic.model == NicModel::Virtio;
    let name = match nic.vhost {
        Some(true) if kvm => Some("vhost"),
        Some(true) => {
            let why = "libvirt asks for vhost with KVM alone";
            let path = format!("nics.{number}.vhost");
            losses.push(Loss::new(&path, format!("vhost of nic {number}"), why));
            None
        }
        _ => (tap && kvm).then_some("qemu"),
    };
    element.push_some(
        Element::new("driver")
            .maybe_attr("name", name)
            .maybe_attr("queues", nic.queues)
            .maybe_attr("rx_queue_size", nic.rx_queue_size)
            .maybe_attr("tx_queue_size", nic.tx_queue_size)
            .maybe_attr("packed", nic.packed.filter(|on| *on).map(|_| "on")),
    );
    if let Some(bytes) = nic.mtu {
        // Source: libvirt `qemuDomainNetSupportsMTU`.
        if matches!(nic.backend, NicBackend::User | NicBackend::Macvtap { .. }) {
            let why = "libvirt has no MTU for this kind of network";
            let path = format!("nics.{number}.mtu");
            losses.push(Loss::new(&path, format!("mtu of nic {number}"), why));
        } else {
            element.push(Element::new("mtu").attr("size", bytes));
        }
    }
    element
}
