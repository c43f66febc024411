//! Arguments for memory, nodes, threads, disks and network interfaces.

use crate::cpu::HOST_MODEL;
use crate::{
    ClockBase, Disk, DiskBus, DiskSource, HostDevice, Irqchip, Loss, MemoryBacking, MemoryPolicy,
    MemorySource, NicBackend, NumberSet, PageSize, TickPolicy, VmSpec, cpu, split_cpu_model,
};

use super::{Capabilities, EmittedArguments, Interface, escape, escape_path};
use crate::command_line::Smp;

/// Name of the backend that holds all memory of a VM without guest nodes.
const WHOLE: &str = "mem";

/// The id of the memory backend of guest node `node`, or of all memory where
/// the guest has no nodes.
#[must_use]
pub fn memory_backend_id(node: Option<usize>) -> String {
    match node {
        Some(node) => format!("{WHOLE}{node}"),
        None => WHOLE.to_owned(),
    }
}

/// The id of iothread `number`, from 1.
#[must_use]
pub fn iothread_id(number: u32) -> String {
    format!("iothread{number}")
}

/// `-machine` with the properties that have a field of their own.
pub(super) fn machine(spec: &VmSpec) -> String {
    let mut text = spec.machine.clone();
    let switch = |on: bool| if on { "on" } else { "off" };
    if let Some(on) = spec.clock.hpet {
        text.push_str(&format!(",hpet={}", switch(on)));
    }
    if spec.memory.nosharepages == Some(true) {
        text.push_str(",mem-merge=off");
    }
    match spec.hints.irqchip {
        Some(Irqchip::Kernel) => text.push_str(",kernel-irqchip=on"),
        Some(Irqchip::Split) => text.push_str(",kernel-irqchip=split"),
        None => {}
    }
    if spec.numa.is_empty() && spec.memory.needs_backend() {
        text.push_str(&format!(",memory-backend={WHOLE}"));
    }
    text
}

/// `-cpu` with the properties that have a field of their own.
pub(super) fn cpu(spec: &VmSpec) -> String {
    let (model, _) = split_cpu_model(&spec.cpu_model);
    let rest = &spec.cpu_model[model.len()..];
    let model = if model == HOST_MODEL { crate::defaults::cpu_model(spec.accel) } else { model };
    let mut parts = vec![format!("{model}{rest}")];
    parts.extend(cpu::lowered(&spec.hints, &spec.clock, spec.cpu_cache));
    parts.join(",")
}

pub(super) fn smp(spec: &VmSpec, capabilities: &Capabilities) -> String {
    let takes = |level: &str| capabilities.takes_level(spec.arch, spec.machine_type(), level);
    Smp::write(spec.present_vcpus, &spec.topology, takes)
}

/// All that follows the size of memory, and is nothing for a plain VM.
pub(super) fn emit(spec: &VmSpec, emitted: &mut EmittedArguments) {
    memory(spec, emitted);
    clock(spec, emitted);
    for number in 1..=spec.iothreads {
        let poll =
            spec.iothread_poll_max_ns.map(|ns| format!(",poll-max-ns={ns}")).unwrap_or_default();
        emitted.option("-object", format!("iothread,id={}{poll}", iothread_id(number)));
    }
    // It has to be there before the devices that it serves.
    if let Some(iommu) = &spec.iommu {
        let mut device = "intel-iommu".to_owned();
        for (name, switch) in iommu.switches() {
            device.extend(switch.map(|switch| format!(",{name}={switch}")));
        }
        emitted.option("-device", device);
    }
}

fn memory(spec: &VmSpec, emitted: &mut EmittedArguments) {
    let MemoryBacking { locked, host_nodes, policy, .. } = &spec.memory;
    if spec.numa.is_empty() && spec.memory.needs_backend() {
        let place = place(host_nodes.as_ref(), *policy);
        let object = memory_backend(WHOLE, spec.memory_mib, &spec.memory) + &place;
        emitted.option("-object", object);
    }
    for (number, node) in spec.numa.iter().enumerate() {
        let id = memory_backend_id(Some(number));
        let place = place(node.host_nodes.as_ref(), node.policy);
        let memory = node.memory(&spec.memory);
        emitted.option("-object", memory_backend(&id, node.memory_mib, &memory) + &place);
        emitted.option("-numa", numa_node(number, &node.vcpus, &id));
    }
    for (number, node) in spec.numa.iter().enumerate() {
        for (other, distance) in &node.distances {
            emitted.option("-numa", numa_distance(number as u32, *other, *distance));
        }
    }
    if *locked == Some(true) {
        emitted.option("-overcommit", "mem-lock=on");
    }
    if spec.hints.cpu_pm == Some(true) {
        emitted.option("-overcommit", "cpu-pm=on");
    }
}

/// The value of `-numa` for guest node `number`: its vCPUs, and the memory backend that
/// is its memory.
#[must_use]
pub fn numa_node(number: usize, vcpus: &NumberSet, backend_id: &str) -> String {
    let vcpus = repeated("cpus", vcpus);
    format!("node,nodeid={number}{vcpus},memdev={backend_id}")
}

/// The value of `-numa` for the distance between two guest nodes, 10 to a node itself.
#[must_use]
pub fn numa_distance(from: u32, to: u32, distance: u32) -> String {
    format!("dist,src={from},dst={to},val={distance}")
}

/// The value of `-object` for the memory backend `id` of `size_mib` MiB, wherever the
/// host takes it from.
#[must_use]
pub fn memory_backend(id: &str, size_mib: u64, memory: &MemoryBacking) -> String {
    let kind = match memory.source {
        None | Some(MemorySource::Anonymous) => "ram",
        Some(MemorySource::Memfd) => "memfd",
        Some(MemorySource::File) => "file",
    };
    let mut text = format!("memory-backend-{kind},id={id},size={size_mib}M");
    match (memory.source, memory.huge_pages) {
        (Some(MemorySource::File), Some(size)) => {
            // Where systemd mounts hugetlbfs, and the custom for other sizes.
            text.push_str(",mem-path=/dev/hugepages");
            if size != PageSize::M2 {
                text.push_str(&format!("-{size}"));
            }
        }
        (Some(MemorySource::File), None) => text.push_str(",mem-path=/var/tmp"),
        (_, Some(size)) => text.push_str(&format!(",hugetlb=on,hugetlbsize={size}")),
        (_, None) => {}
    }
    let shared = memory.shared == Some(true);
    text.push_str(if shared { ",share=on" } else { ",share=off" });
    if memory.prealloc == Some(true) {
        text.push_str(",prealloc=on");
        if let Some(threads) = memory.prealloc_threads {
            text.push_str(&format!(",prealloc-threads={threads}"));
        }
    }
    text
}

fn place(nodes: Option<&NumberSet>, policy: Option<MemoryPolicy>) -> String {
    let nodes = nodes.map(|nodes| repeated("host-nodes", nodes)).unwrap_or_default();
    match policy {
        Some(policy) => format!("{nodes},policy={}", policy.qemu()),
        None => nodes,
    }
}

/// `,key=0-3,key=8`: QEMU takes one range a key.
fn repeated(key: &str, numbers: &NumberSet) -> String {
    let text = numbers.to_string();
    text.split(',').filter(|range| !range.is_empty()).map(|one| format!(",{key}={one}")).collect()
}

fn clock(spec: &VmSpec, emitted: &mut EmittedArguments) {
    let base = (spec.clock.base == Some(ClockBase::Localtime)).then_some("base=localtime");
    let fix = match spec.clock.rtc {
        Some(TickPolicy::Catchup) => Some("driftfix=slew"),
        Some(_) => Some("driftfix=none"),
        None => None,
    };
    let track = spec.clock.rtc_track.map(|track| format!("clock={}", track.qemu()));
    let rtc: Vec<&str> = base.into_iter().chain(fix).chain(track.as_deref()).collect();
    if !rtc.is_empty() {
        emitted.option("-rtc", rtc.join(","));
    }
    if let Some(policy) = spec.clock.pit {
        emitted.option("-global", format!("kvm-pit.lost_tick_policy={}", policy.name()));
    }
}

/// Disks and network interfaces.
pub(super) fn attach(spec: &VmSpec, capabilities: &Capabilities, emitted: &mut EmittedArguments) {
    for (number, disk) in spec.disks.iter().enumerate() {
        attach_disk(number, disk, emitted);
    }
    for (number, nic) in spec.nics.iter().enumerate() {
        let interface = Interface::of_nic(number, nic);
        for (option, value) in interface.options(spec.accel, capabilities) {
            emitted.option(option, value);
        }
    }
    for address in spec.host_devices.iter().filter_map(HostDevice::pci) {
        emitted.option("-device", format!("vfio-pci,host={address}"));
    }
}

fn attach_disk(number: usize, disk: &Disk, emitted: &mut EmittedArguments) {
    let id = format!("disk{number}");
    let boot = disk.boot_order.map(|turn| format!(",bootindex={turn}")).unwrap_or_default();
    let queues = |key: &str| disk.queues.map(|n| format!(",{key}={n}")).unwrap_or_default();
    let path = match &disk.source {
        DiskSource::File(path) | DiskSource::Block(path) => escape_path(path),
        DiskSource::VhostScsi(target) => {
            let (target, queues) = (escape(target), queues("num_queues"));
            emitted.option("-device", format!("vhost-scsi-pci,wwpn={target}{queues}{boot}"));
            return;
        }
        DiskSource::VhostUser(socket) => {
            let (socket, queues) = (escape_path(socket), queues("num-queues"));
            emitted.option("-chardev", format!("socket,id=chr-{id},path={socket}"));
            let device = format!("vhost-user-blk-pci,chardev=chr-{id}{queues}{boot}");
            emitted.option("-device", device);
            return;
        }
        // Said to be lost; an empty disk would be worse than none.
        DiskSource::Claim(_) | DiskSource::Container(_) => return,
    };
    let mut drive = format!("file={path},if=none,id={id},format={}", disk.format.name());
    if matches!(disk.source, DiskSource::Block(_)) {
        drive = format!("file.driver=host_device,file.filename={path},if=none,id={id}")
            + &format!(",format={}", disk.format.name());
    }
    for (key, value) in [
        ("cache", disk.cache.map(|cache| cache.name())),
        ("aio", disk.io.map(|io| io.name())),
        ("discard", disk.discard.map(|discard| discard.name())),
        ("detect-zeroes", disk.detect_zeroes.map(|detect| detect.name())),
        ("readonly", disk.readonly.then_some("on")),
        ("snapshot", disk.transient.then_some("on")),
    ] {
        drive.extend(value.map(|value| format!(",{key}={value}")));
    }
    emitted.option("-drive", drive);
    let iothread =
        disk.iothread.map(|n| format!(",iothread={}", iothread_id(n))).unwrap_or_default();
    let serial =
        disk.serial.as_ref().map(|text| format!(",serial={}", escape(text))).unwrap_or_default();
    match disk.bus {
        DiskBus::VirtioBlk if !disk.queue_iothreads.is_empty() => {
            let mut device = mapped("virtio-blk-pci", "num-queues", disk);
            device["drive"] = id.into();
            if let Some(serial) = &disk.serial {
                device["serial"] = serial.as_str().into();
            }
            if let Some(turn) = disk.boot_order {
                device["bootindex"] = turn.into();
            }
            emitted.option("-device", device.to_string());
        }
        DiskBus::VirtioBlk => {
            let queues = queues("num-queues");
            let device = format!("virtio-blk-pci,drive={id}{iothread}{queues}{serial}{boot}");
            emitted.option("-device", device);
        }
        DiskBus::VirtioScsi => {
            let controller = if disk.queue_iothreads.is_empty() {
                let queues = queues("num_queues");
                format!("virtio-scsi-pci,id=scsi{number}{iothread}{queues}")
            } else {
                let mut device = mapped("virtio-scsi-pci", "num_queues", disk);
                device["id"] = format!("scsi{number}").into();
                device.to_string()
            };
            emitted.option("-device", controller);
            let device = format!("scsi-hd,bus=scsi{number}.0,drive={id}{serial}{boot}");
            emitted.option("-device", device);
        }
        DiskBus::Sata => {
            emitted.option("-device", format!("ich9-ahci,id=ahci{number}"));
            let device = format!("ide-hd,bus=ahci{number}.0,drive={id}{serial}{boot}");
            emitted.option("-device", device);
        }
        // The next place that is free at the machine's own controller.
        DiskBus::Ide => emitted.option("-device", format!("ide-hd,drive={id}{serial}{boot}")),
    }
}

/// A device whose queues several iothreads share: a list, which only JSON can say.
fn mapped(driver: &str, queues_key: &str, disk: &Disk) -> serde_json::Value {
    let shares: Vec<serde_json::Value> = disk
        .queue_iothreads
        .iter()
        .map(|one| {
            let mut share = serde_json::json!({ "iothread": iothread_id(one.iothread) });
            if !one.queues.is_empty() {
                share["vqs"] = one.queues.iter().collect();
            }
            share
        })
        .collect();
    let mut device = serde_json::json!({ "driver": driver, "iothread-vq-mapping": shares });
    if let Some(queues) = disk.queues {
        device[queues_key] = queues.into();
    }
    device
}

/// What the command line can't say.
pub(super) fn losses(spec: &VmSpec) -> Vec<Loss> {
    let mut losses = Vec::new();
    let why = "QEMU's command line can't pin threads; vmlab sets their affinity when they run";
    for (vcpu, pcpus) in spec.pins.vcpus.iter() {
        let what = format!("vCPU {vcpu} on pCPU {pcpus}");
        losses.push(Loss::new(&format!("pins.vcpus.{vcpu}"), what, why));
    }
    if let Some(pcpus) = &spec.pins.emulator {
        losses.push(Loss::new("pins.emulator", format!("emulator thread on pCPU {pcpus}"), why));
    }
    for (number, pcpus) in spec.pins.iothreads.iter() {
        let what = format!("iothread {number} on pCPU {pcpus}");
        losses.push(Loss::new(&format!("pins.iothreads.{number}"), what, why));
    }
    if let Some(pcpus) = &spec.pins.vhost {
        losses.push(Loss::new("pins.vhost", format!("vhost threads on pCPU {pcpus}"), why));
    }
    if !spec.scheduler.is_empty() {
        let why = "QEMU's command line can't set scheduling policies; use chrt";
        losses.push(Loss::new("scheduler", "scheduler of QEMU's threads", why));
    }
    let (model, _) = split_cpu_model(&spec.cpu_model);
    if model == HOST_MODEL {
        let instead = crate::defaults::cpu_model(spec.accel);
        let why = format!("libvirt computes it; QEMU gets {instead:?}");
        losses.push(Loss::new("cpu_model", "cpu_model \"host-model\"", why));
    }
    for (number, disk) in spec.disks.iter().enumerate() {
        if let DiskSource::Claim(name) | DiskSource::Container(name) = &disk.source {
            let what = format!("disk {number} from {name:?}");
            let why = "only Kubernetes knows where it is; give the image's path";
            losses.push(Loss::new("disks", what, why));
        }
    }
    losses.extend(crate::formats::resource_losses(spec));
    for (number, nic) in spec.nics.iter().enumerate() {
        let what = match &nic.backend {
            NicBackend::User | NicBackend::Tap { .. } | NicBackend::VhostUser { .. } => continue,
            NicBackend::Bridge { .. } if nic.queues.is_none() => continue,
            NicBackend::Bridge { .. } => {
                let why = "a bridge's helper makes a tap device of one queue; make it yourself \
                           and write backend = { tap = ... }";
                let path = format!("nics.{number}.queues");
                losses.push(Loss::new(&path, format!("queues of nic {number}"), why));
                continue;
            }
            NicBackend::Macvtap { device, .. } => format!("macvtap on {device}"),
            NicBackend::Libvirt { network } => format!("libvirt's network {network}"),
            NicBackend::Pod { .. } => "the pod's network".to_owned(),
            NicBackend::Multus { network } => format!("Multus' network {network}"),
        };
        let why = "whoever starts QEMU has to open it; the command line has a user network";
        losses.push(Loss::new(&format!("nics.{number}"), format!("nic {number}: {what}"), why));
    }
    losses.extend(crate::formats::wish_losses(spec));
    losses
}
