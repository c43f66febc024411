//! Variants that a study names in one word.
//!
//! The first four are the configurations that SUSE and NAIST compared (Dario
//! Faggioli, Vasily Ulyanov, "KubeVirt @ SUSE"); the others each turn one knob.

use std::collections::BTreeMap;

use topology::bounded::near;
use topology::{Host, PcpuSet};

use crate::{
    CacheMode, CpuCache, DiskBus, DiskFormat, DiskIo, EveryDisk, GuestClock, GuestNode, Hints,
    HostWishes, Irqchip, MemoryBacking, MemoryPolicy, MemorySource, NicBackend, NicModel, NicPatch,
    PageSize, Scheduler, SchedulerPatch, Thp, TickPolicy, TopologyPatch, VcpuPins, VmPatch,
};

/// A variant by name.
pub struct Builtin {
    /// How a study names it.
    pub name: &'static str,
    /// What it does, as a sentence without its end.
    pub help: &'static str,
    patch: fn(&Host, u32) -> Result<VmPatch, BuiltinError>,
}

/// Why a name gives no variant on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuiltinError {
    /// No variant has that name.
    #[error("No variant is called {name:?}{}", near.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The most alike that there is.
        near: Option<String>,
    },
    /// No pCPU for every vCPU.
    #[error("{vcpus} vCPUs can't have a pCPU each: the host has {pcpus} that can be used")]
    TooFewPcpus {
        /// The vCPUs.
        vcpus: u32,
        /// pCPUs that are online and allowed.
        pcpus: usize,
    },
    /// The VM has no vCPU.
    #[error("vcpus is 0: a VM has at least 1")]
    NoVcpus,
}

/// The patch that a variant is, for a VM of so many vCPUs on this host.
///
/// # Errors
/// [`BuiltinError`] if no variant has that name or the host is too small.
pub fn variant(name: &str, host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    if vcpus == 0 {
        return Err(BuiltinError::NoVcpus);
    }
    match VARIANTS.iter().find(|one| one.name == name) {
        Some(found) => (found.patch)(host, vcpus),
        None => {
            let near = near(name, VARIANTS.iter().map(|one| one.name));
            Err(BuiltinError::Unknown { name: name.to_owned(), near })
        }
    }
}

/// Every pCPU that can be used, core by core in the order of nodes, sockets and
/// numbers; the core of pCPU 0, which the host keeps busy, comes last.
fn cores(host: &Host) -> Vec<Vec<u32>> {
    let allowed = |id: u32| host.allowed.as_ref().is_none_or(|all| all.contains(id));
    let mut cores: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.online && allowed(pcpu.id)) {
        let alone = pcpu.core.is_none().then_some(pcpu.id);
        let place = (pcpu.node, pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core, alone);
        cores.entry(place).or_default().push(pcpu.id);
    }
    let mut cores: Vec<_> = cores
        .into_iter()
        .map(|(place, mut threads)| {
            threads.sort_unstable();
            ((threads.contains(&0), place.0, place.1, threads.first().copied()), threads)
        })
        .collect();
    cores.sort();
    cores.into_iter().map(|(_, threads)| threads).collect()
}

/// Each vCPU on a pCPU of its own, filling core after core.
fn compact(host: &Host, vcpus: u32) -> Result<Vec<u32>, BuiltinError> {
    pins_of(cores(host).concat(), vcpus)
}

fn pins_of(pcpus: Vec<u32>, vcpus: u32) -> Result<Vec<u32>, BuiltinError> {
    if pcpus.len() < vcpus as usize {
        return Err(BuiltinError::TooFewPcpus { vcpus, pcpus: pcpus.len() });
    }
    Ok(pcpus.into_iter().take(vcpus as usize).collect())
}

fn pinned(pcpus: &[u32]) -> Option<VcpuPins> {
    Some((0..).zip(pcpus).map(|(vcpu, pcpu)| (vcpu, PcpuSet::from_iter([*pcpu]))).collect())
}

/// libvirt's own topology: a socket for each vCPU.
fn sockets(vcpus: u32) -> Option<TopologyPatch> {
    let (sockets, one) = (Some(vcpus), Some(1));
    Some(TopologyPatch { sockets, dies: one, clusters: one, cores: one, threads: one })
}

fn passthrough() -> Option<String> {
    Some("host-passthrough".to_owned())
}

/// The guest sees the cores and threads on which its vCPUs are.
fn vtune(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let cores = cores(host);
    let width = cores.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let whole = u32::try_from(width).unwrap_or(1);
    // Threads only if every core that is used is used wholly.
    let by_threads = vcpus.is_multiple_of(whole) && whole > 1;
    let used: Vec<Vec<u32>> = if by_threads {
        cores.iter().filter(|core| core.len() == width).cloned().collect()
    } else {
        cores.iter().filter_map(|core| core.first()).map(|first| vec![*first]).collect()
    };
    let (pcpus, threads) = match pins_of(used.concat(), vcpus) {
        Ok(pcpus) => (pcpus, if by_threads { whole } else { 1 }),
        // Cores don't suffice: some threads have a core's other thread beside
        // them, which the guest can't be told.
        Err(_) => (compact(host, vcpus)?, 1),
    };
    let socket = |pcpu: &u32| host.pcpu(*pcpu).and_then(|pcpu| pcpu.socket);
    let mut in_socket: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    for pcpu in &pcpus {
        *in_socket.entry(socket(pcpu)).or_default() += 1;
    }
    // Sockets only if the vCPUs are shared evenly among the host's.
    let first = in_socket.values().next().copied().unwrap_or(vcpus);
    let even = in_socket.values().all(|count| *count == first) && first.is_multiple_of(threads);
    let sockets = if even { u32::try_from(in_socket.len()).unwrap_or(1) } else { 1 };
    let topology = TopologyPatch {
        sockets: Some(sockets),
        dies: Some(1),
        clusters: Some(1),
        cores: Some(vcpus / threads / sockets),
        threads: Some(threads),
    };
    Ok(VmPatch {
        vcpus: Some(vcpus),
        topology: Some(topology),
        pins: pinned(&pcpus),
        cpu_model: passthrough(),
        ..VmPatch::default()
    })
}

fn def(_: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    Ok(VmPatch {
        vcpus: Some(vcpus),
        topology: sockets(vcpus),
        pins: Some(VcpuPins::default()),
        cpu_model: Some("host-model".to_owned()),
        ..VmPatch::default()
    })
}

fn pin_def(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    Ok(VmPatch {
        vcpus: Some(vcpus),
        topology: sockets(vcpus),
        pins: pinned(&compact(host, vcpus)?),
        cpu_model: passthrough(),
        ..VmPatch::default()
    })
}

fn pin(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let topology =
        TopologyPatch { sockets: Some(1), cores: Some(vcpus), ..sockets(1).unwrap_or_default() };
    Ok(VmPatch { topology: Some(topology), ..pin_def(host, vcpus)? })
}

/// A guest node for each host node, on which it lies.
fn numa(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let nodes = host
        .nodes
        .iter()
        .filter(|node| !node.pcpus.is_empty() && node.memory_bytes.is_none_or(|bytes| bytes > 0));
    let nodes: Vec<GuestNode> = nodes
        .take(vcpus as usize)
        .map(|node| GuestNode {
            host_nodes: Some(PcpuSet::from_iter([node.id])),
            ..GuestNode::default()
        })
        .collect();
    Ok(VmPatch { numa: Some(nodes), ..VmPatch::default() })
}

/// The threads of the core that is left to the host, if any other can be used.
fn of_host(host: &Host) -> Option<PcpuSet> {
    cores(host).pop().map(|threads| threads.into_iter().collect())
}

fn pin_emulator(host: &Host, _: u32) -> Result<VmPatch, BuiltinError> {
    Ok(VmPatch { emulator_pin: of_host(host), ..VmPatch::default() })
}

fn pin_iothread(host: &Host, _: u32) -> Result<VmPatch, BuiltinError> {
    let pins = of_host(host).map(|pcpus| [(1, pcpus)].into_iter().collect());
    Ok(VmPatch { iothreads: Some(1), iothread_pins: pins, ..VmPatch::default() })
}

fn pin_vhost(host: &Host, _: u32) -> Result<VmPatch, BuiltinError> {
    Ok(VmPatch { vhost_pin: of_host(host), ..VmPatch::default() })
}

fn shaped(vcpus: u32, topology: TopologyPatch) -> Result<VmPatch, BuiltinError> {
    Ok(VmPatch { vcpus: Some(vcpus), topology: Some(topology), ..VmPatch::default() })
}

/// What shares a cache in a socket, in the host's architecture: QEMU's x86
/// machines have no clusters and Arm's no dies.
fn dies(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let two = Some(2);
    let topology = match host.arch.as_deref() {
        Some("aarch64") => TopologyPatch { clusters: two, ..TopologyPatch::default() },
        _ => TopologyPatch { dies: two, ..TopologyPatch::default() },
    };
    shaped(vcpus, topology)
}

fn hotplug(_: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let max_vcpus = Some(vcpus.saturating_mul(2));
    Ok(VmPatch { vcpus: Some(vcpus), max_vcpus, ..VmPatch::default() })
}

/// As [`numa`], and the guest is told how far the nodes are from each other.
fn numa_distances(host: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let mut patch = numa(host, vcpus)?;
    let nodes = patch.numa.iter_mut().flatten();
    let ids: Vec<Option<u32>> =
        nodes.map(|node| node.host_nodes.as_ref().and_then(PcpuSet::first)).collect();
    for (number, node) in patch.numa.iter_mut().flatten().enumerate() {
        let from = ids[number].and_then(|id| host.node(id));
        for (other, id) in (0..).zip(&ids).filter(|(other, _)| *other as usize != number) {
            let known = from.zip(*id).and_then(|(node, id)| node.distances.get(&id));
            // Firmware that calls everything local is not believed.
            let distance = known.copied().unwrap_or(20).clamp(11, 255);
            node.distances.insert(other, distance);
        }
    }
    Ok(patch)
}

/// The host nodes that have memory.
fn nodes(host: &Host) -> PcpuSet {
    let has = |node: &&topology::Node| node.memory_bytes.is_none_or(|bytes| bytes > 0);
    host.nodes.iter().filter(has).map(|node| node.id).collect()
}

/// All memory on host nodes, by a policy; nothing where the host shows none.
fn memory_on(nodes: PcpuSet, policy: MemoryPolicy) -> VmPatch {
    let known = !nodes.is_empty();
    let memory = memory(|all| {
        all.host_nodes = known.then_some(nodes);
        all.policy = known.then_some(policy);
    });
    VmPatch { numa: Some(Vec::new()), memory, ..VmPatch::default() }
}

fn memory_near(host: &Host, _: u32) -> Result<VmPatch, BuiltinError> {
    Ok(memory_on(nodes(host).first().into_iter().collect(), MemoryPolicy::Bind))
}

fn memory_interleave(host: &Host, _: u32) -> Result<VmPatch, BuiltinError> {
    Ok(memory_on(nodes(host), MemoryPolicy::Interleave))
}

fn disk_queues(_: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let each_disk = EveryDisk { queues: Some(vcpus), ..EveryDisk::default() };
    Ok(VmPatch { each_disk, ..VmPatch::default() })
}

fn nic_queues(_: &Host, vcpus: u32) -> Result<VmPatch, BuiltinError> {
    let each_nic = NicPatch { queues: Some(vcpus), ..NicPatch::default() };
    Ok(VmPatch { each_nic, ..VmPatch::default() })
}

macro_rules! switches {
    ($($name:literal, $help:literal, { $($field:ident: $value:expr),* };)*) => {
        /// Every variant, the four configurations first.
        pub const VARIANTS: &[Builtin] = &[
            Builtin { name: "def", help: "No pins, a socket for each vCPU, libvirt's host-model", patch: def },
            Builtin { name: "pin_def", help: "Each vCPU pinned to a pCPU, core after core; a socket for each vCPU", patch: pin_def },
            Builtin { name: "pin", help: "The same pins; all vCPUs are cores of one socket", patch: pin },
            Builtin { name: "vtune", help: "The same pins; the guest sees the cores and threads that it runs on", patch: vtune },
            Builtin { name: "sockets", help: "Every vCPU is a socket", patch: |_, vcpus| shaped(vcpus, sockets(vcpus).unwrap_or_default()) },
            Builtin { name: "cores", help: "Every vCPU is a core of one socket", patch: |_, vcpus| shaped(vcpus, TopologyPatch { threads: Some(1), ..TopologyPatch::default() }) },
            Builtin { name: "threads", help: "Every two vCPUs are threads of a core", patch: |_, vcpus| shaped(vcpus, TopologyPatch { threads: Some(2), ..TopologyPatch::default() }) },
            Builtin { name: "dies", help: "Two dies in a socket, on Arm two clusters", patch: dies },
            Builtin { name: "hotplug", help: "Room for as many vCPUs again", patch: hotplug },
            Builtin { name: "pin-emulator", help: "QEMU's other threads run on the host's own core", patch: pin_emulator },
            Builtin { name: "pin-iothread", help: "One iothread, on the host's own core", patch: pin_iothread },
            Builtin { name: "pin-vhost", help: "vhost threads run on the host's own core", patch: pin_vhost },
            Builtin { name: "numa", help: "A guest node for each host node, and bound to it", patch: numa },
            Builtin { name: "numa-distances", help: "The same, and the guest is told how far they are", patch: numa_distances },
            Builtin { name: "memory-near", help: "All memory on the host's first node", patch: memory_near },
            Builtin { name: "memory-interleave", help: "Memory page by page in turns on all host nodes", patch: memory_interleave },
            Builtin { name: "disk-queues", help: "Every disk has a queue for each vCPU", patch: disk_queues },
            Builtin { name: "nic-queues", help: "Every network interface has a pair of queues for each vCPU", patch: nic_queues },
            $(Builtin {
                name: $name,
                help: $help,
                patch: |_, _| Ok(VmPatch { $($field: $value,)* ..VmPatch::default() }),
            },)*
        ];
    };
}

fn hints(change: impl FnOnce(&mut Hints)) -> Hints {
    let mut hints = Hints::default();
    change(&mut hints);
    hints
}

fn memory(change: impl FnOnce(&mut MemoryBacking)) -> MemoryBacking {
    let mut memory = MemoryBacking::default();
    change(&mut memory);
    memory
}

fn clock(change: impl FnOnce(&mut GuestClock)) -> GuestClock {
    let mut clock = GuestClock::default();
    change(&mut clock);
    clock
}

fn host(change: impl FnOnce(&mut HostWishes)) -> HostWishes {
    let mut host = HostWishes::default();
    change(&mut host);
    host
}

fn each_disk(change: impl FnOnce(&mut EveryDisk)) -> EveryDisk {
    let mut each_disk = EveryDisk::default();
    change(&mut each_disk);
    each_disk
}

fn each_nic(change: impl FnOnce(&mut NicPatch)) -> NicPatch {
    let mut each_nic = NicPatch::default();
    change(&mut each_nic);
    each_nic
}

fn features(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

fn cmdline(text: &str) -> Option<String> {
    Some(text.to_owned())
}

switches! {
    "unpinned", "No thread is pinned", { pins: Some(VcpuPins::default()), emulator_pin: Some(PcpuSet::new()), iothread_pins: Some(VcpuPins::default()), vhost_pin: Some(PcpuSet::new()) };
    "vcpu-fifo", "vCPUs are real-time threads of priority 1", { scheduler: SchedulerPatch { vcpus: Some(Scheduler::Fifo(1)), ..SchedulerPatch::default() } };
    "emulator-fifo", "QEMU's other threads are real-time threads of priority 1", { scheduler: SchedulerPatch { emulator: Some(Scheduler::Fifo(1)), ..SchedulerPatch::default() } };
    "iothread-fifo", "One iothread, a real-time thread of priority 1", { iothreads: Some(1), scheduler: SchedulerPatch { iothreads: Some(Scheduler::Fifo(1)), ..SchedulerPatch::default() } };
    "host-passthrough", "The CPU model is all that the accelerator gives", { cpu_model: passthrough() };
    "host-model", "The CPU model is libvirt's named likeness of the host", { cpu_model: cmdline("host-model") };
    "cpu-qemu64", "The CPU model is QEMU's own, with little that processors have", { cpu_model: cmdline("qemu64") };
    "no-migratable", "The CPU model has what can't be migrated too", { cpu_model: cmdline("host-passthrough,-migratable") };
    "cache-passthrough", "The guest sees the host's caches", { cpu_cache: Some(CpuCache::Passthrough) };
    "cache-emulate", "The guest sees a third-level cache that QEMU makes up", { cpu_cache: Some(CpuCache::Emulate) };
    "cpu-pm", "The guest halts without leaving its pCPU", { hints: hints(|all| all.cpu_pm = Some(true)) };
    "hint-dedicated", "The guest is told that its vCPUs are never preempted", { hints: hints(|all| all.kvm_hint_dedicated = Some(true)) };
    "poll-control", "The guest may tell KVM not to poll when it halts", { hints: hints(|all| all.poll_control = Some(true)) };
    "pv-eoi", "Ends of interrupts go through shared memory", { hints: hints(|all| all.pv_eoi = Some(true)) };
    "no-pv-eoi", "Ends of interrupts leave the guest", { hints: hints(|all| all.pv_eoi = Some(false)) };
    "pv-spinlocks", "Waiters for a spinlock halt", { hints: hints(|all| all.pv_spinlocks = Some(true)) };
    "no-pv-spinlocks", "Waiters for a spinlock spin", { hints: hints(|all| all.pv_spinlocks = Some(false)) };
    "no-pv-ipi", "Interprocessor interrupts as hardware sends them", { hints: hints(|all| all.pv_ipi = Some(false)) };
    "kvm-hidden", "The guest does not see KVM", { hints: hints(|all| all.kvm_hidden = Some(true)) };
    "no-pmu", "No performance counters in the guest", { hints: hints(|all| all.pmu = Some(false)) };
    "irqchip-split", "QEMU emulates the I/O interrupt controller", { hints: hints(|all| all.irqchip = Some(Irqchip::Split)) };
    "hyperv-off", "No enlightenments of Hyper-V", { hints: hints(|all| all.hyperv = Some(std::collections::BTreeSet::new())) };
    "x2apic", "The guest's interrupt controller is an x2APIC", { cpu_features: features(&["+x2apic"]) };
    "no-x2apic", "The guest's interrupt controller is memory-mapped", { cpu_features: features(&["-x2apic"]) };
    "kvmclock", "The guest has KVM's clock", { clock: clock(|all| all.kvmclock = Some(true)) };
    "no-kvmclock", "The guest has no clock of KVM's", { clock: clock(|all| all.kvmclock = Some(false)) };
    "clocksource-tsc", "The guest tells time by the time stamp counter", { kernel_cmdline: cmdline("clocksource=tsc tsc=reliable") };
    "clocksource-kvm", "The guest tells time by KVM's clock", { clock: clock(|all| all.kvmclock = Some(true)), kernel_cmdline: cmdline("clocksource=kvm-clock") };
    "invtsc", "The guest may trust the time stamp counter", { cpu_features: features(&["+invtsc"]) };
    "no-hpet", "No High Precision Event Timer", { clock: clock(|all| all.hpet = Some(false)) };
    "rtc-catchup", "Late ticks of the real-time clock are caught up", { clock: clock(|all| all.rtc = Some(TickPolicy::Catchup)) };
    "idle-poll", "The idle guest polls", { kernel_cmdline: cmdline("idle=poll") };
    "haltpoll", "The guest polls a little before it halts", { kernel_cmdline: cmdline("cpuidle_haltpoll.force=1 cpuidle.governor=haltpoll") };
    "huge-2m", "Memory of huge pages of 2 MiB", { memory: memory(|all| all.huge_pages = Some(PageSize::M2)) };
    "huge-1g", "Memory of huge pages of 1 GiB", { memory: memory(|all| all.huge_pages = Some(PageSize::G1)) };
    "prealloc", "All memory is allocated before the guest starts", { memory: memory(|all| all.prealloc = Some(true)) };
    "locked", "Memory is never swapped", { memory: memory(|all| all.locked = Some(true)) };
    "shared", "Memory is shared, as vhost-user needs it", { memory: memory(|all| { all.shared = Some(true); all.source = Some(MemorySource::Memfd); }) };
    "memfd", "Memory is a file without a name", { memory: memory(|all| all.source = Some(MemorySource::Memfd)) };
    "memory-4g", "4 GiB of memory", { memory_mib: Some(4096) };
    "nosharepages", "KSM may not merge the guest's pages", { memory: memory(|all| all.nosharepages = Some(true)) };
    "iothread", "One thread for disks", { iothreads: Some(1) };
    "disk-virtio-blk", "Every disk is virtio-blk", { each_disk: each_disk(|all| all.bus = Some(DiskBus::VirtioBlk)) };
    "disk-virtio-scsi", "Every disk is behind a virtio-scsi controller of its own", { each_disk: each_disk(|all| all.bus = Some(DiskBus::VirtioScsi)) };
    "disk-sata", "Every disk is SATA, emulated", { each_disk: each_disk(|all| all.bus = Some(DiskBus::Sata)) };
    "disk-native", "Disks by Linux AIO, past the host's page cache", { each_disk: each_disk(|all| { all.io = Some(DiskIo::Native); all.cache = Some(CacheMode::None); }) };
    "disk-threads", "Disks by a pool of threads", { each_disk: each_disk(|all| all.io = Some(DiskIo::Threads)) };
    "disk-io-uring", "Disks by io_uring", { each_disk: each_disk(|all| all.io = Some(DiskIo::IoUring)) };
    "disk-cache-none", "Disks past the host's page cache", { each_disk: each_disk(|all| all.cache = Some(CacheMode::None)) };
    "disk-cache-writeback", "Disks through the host's page cache", { each_disk: each_disk(|all| all.cache = Some(CacheMode::Writeback)) };
    "disk-cache-writethrough", "Disks read through the host's page cache, each write flushed", { each_disk: each_disk(|all| all.cache = Some(CacheMode::Writethrough)) };
    "disk-cache-directsync", "Disks past the host's page cache, each write flushed", { each_disk: each_disk(|all| all.cache = Some(CacheMode::Directsync)) };
    "disk-cache-unsafe", "Disks through the host's page cache, flushes ignored", { each_disk: each_disk(|all| all.cache = Some(CacheMode::Unsafe)) };
    "disk-iothread", "One iothread for all disks", { iothreads: Some(1), each_disk: each_disk(|all| all.iothread = Some(1)) };
    "disk-raw", "Disks' images are raw", { each_disk: each_disk(|all| all.format = Some(DiskFormat::Raw)) };
    "disk-qcow2", "Disks' images are qcow2", { each_disk: each_disk(|all| all.format = Some(DiskFormat::Qcow2)) };
    "vhost", "The host's kernel moves packets", { each_nic: each_nic(|all| all.vhost = Some(true)) };
    "no-vhost", "QEMU moves packets", { each_nic: each_nic(|all| all.vhost = Some(false)) };
    "nic-user", "Network interfaces are QEMU's own network", { each_nic: each_nic(|all| all.backend = Some(NicBackend::User)) };
    "nic-e1000e", "Network interfaces are Intel's, emulated", { each_nic: each_nic(|all| all.model = Some(NicModel::E1000e)) };
    "thp-always", "The host makes huge pages everywhere", { host: host(|all| all.thp = Some(Thp::Always)) };
    "thp-madvise", "The host makes huge pages where QEMU asks", { host: host(|all| all.thp = Some(Thp::Madvise)) };
    "thp-never", "The host makes no huge pages by itself", { host: host(|all| all.thp = Some(Thp::Never)) };
    "ksm", "The host merges equal pages", { host: host(|all| all.ksm = Some(true)) };
    "no-ksm", "The host merges no pages", { host: host(|all| all.ksm = Some(false)) };
    "no-halt-poll", "KVM gives the pCPU away as soon as a vCPU halts", { host: host(|all| all.halt_poll_ns = Some(0)) };
    "halt-poll-200us", "KVM polls for up to 200 µs when a vCPU halts", { host: host(|all| all.halt_poll_ns = Some(200_000)) };
    "no-ple", "Spinning never leaves the guest", { host: host(|all| all.ple_gap = Some(0)) };
    "no-numa-balancing", "The host does not move memory after its users", { host: host(|all| all.numa_balancing = Some(false)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{a_disk_and_a_nic, direct, with, xeon_4208};
    use crate::{Accel, PatchContext};

    fn check(name: &str, vcpus: u32, pins: &[u32], topology: [u32; 5], cpu_model: &str) {
        let kvm = PatchContext { auto_accel: Accel::Kvm, ..with(direct()) };
        let spec = variant(name, &xeon_4208(), vcpus).unwrap().resolve(&kvm).unwrap();
        let found: Vec<u32> =
            spec.pins.vcpus.values().flat_map(|set| set.iter().collect::<Vec<_>>()).collect();
        assert_eq!((found.as_slice(), spec.cpu_model.as_str()), (pins, cpu_model), "{name}");
        assert_eq!(spec.topology.levels().map(|level| level.1), topology, "{name}");
    }

    #[test]
    fn the_four_are_those_that_were_published() {
        check("def", 4, &[], [4, 1, 1, 1, 1], "host-model");
        check("pin_def", 4, &[1, 17, 2, 18], [4, 1, 1, 1, 1], "host");
        check("pin", 4, &[1, 17, 2, 18], [1, 1, 1, 4, 1], "host");
        check("vtune", 4, &[1, 17, 2, 18], [1, 1, 1, 2, 2], "host");
        check("vtune", 1, &[1], [1, 1, 1, 1, 1], "host");
        // An odd number leaves a thread without its sibling.
        check("vtune", 3, &[1, 2, 3], [1, 1, 1, 3, 1], "host");
    }

    #[test]
    fn a_vm_of_the_whole_host_sees_its_sockets() {
        let patch = variant("vtune", &xeon_4208(), 32).unwrap();
        let spec = patch.resolve(&with(direct())).unwrap();
        assert_eq!(spec.topology.levels().map(|level| level.1), [2, 1, 1, 8, 2]);
        assert_eq!(
            variant("pin", &xeon_4208(), 33).unwrap_err().to_string(),
            "33 vCPUs can't have a pCPU each: the host has 32 that can be used"
        );
    }

    #[test]
    fn every_variant_makes_a_vm() {
        let mut names = std::collections::BTreeSet::new();
        for one in VARIANTS {
            assert!(names.insert(one.name) && !one.help.ends_with('.'), "{}", one.name);
            let patch = variant(one.name, &xeon_4208(), 4).unwrap();
            assert_ne!(patch, VmPatch::default(), "{}", one.name);
            let patch = a_disk_and_a_nic().overlay(&patch);
            patch.resolve(&with(direct())).unwrap_or_else(|error| panic!("{}: {error}", one.name));
        }
        assert_eq!(
            variant("pindef", &xeon_4208(), 4).unwrap_err().to_string(),
            "No variant is called \"pindef\"; did you mean \"pin_def\"?"
        );
    }
}
