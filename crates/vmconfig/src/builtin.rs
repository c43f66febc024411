//! Variants that a study names in one word.
//!
//! The first four are the configurations that SUSE and NAIST compared (Dario
//! Faggioli, Vasily Ulyanov, "KubeVirt @ SUSE"); the others each turn one knob.

use std::collections::BTreeMap;

use topology::{Host, PcpuSet};

use crate::{
    Clock, CpuCache, GuestNode, Hints, HostWishes, Irqchip, Memory, MemorySource, PageSize,
    Scheduler, SchedulerPatch, Thp, TickPolicy, TopologyPatch, VcpuPins, VmPatch,
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
    #[error("No variant is called {name:?}{}", near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The most alike that there is.
        near: Option<&'static str>,
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
        None => Err(BuiltinError::Unknown { name: name.to_owned(), near: nearest(name) }),
    }
}

/// A name that begins or ends alike.
fn nearest(name: &str) -> Option<&'static str> {
    let alike = |one: &&Builtin| {
        let (ours, theirs) = (one.name.replace(['-', '_'], ""), name.replace(['-', '_'], ""));
        !theirs.is_empty() && (ours.contains(&theirs) || theirs.contains(&ours))
    };
    VARIANTS.iter().filter(alike).max_by_key(|one| one.name.len()).map(|one| one.name)
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

macro_rules! switches {
    ($($name:literal, $help:literal, { $($field:ident: $value:expr),* };)*) => {
        /// Every variant, the four configurations first.
        pub const VARIANTS: &[Builtin] = &[
            Builtin { name: "def", help: "No pins, a socket for each vCPU, libvirt's host-model", patch: def },
            Builtin { name: "pin_def", help: "Each vCPU pinned to a pCPU, core after core; a socket for each vCPU", patch: pin_def },
            Builtin { name: "pin", help: "The same pins; all vCPUs are cores of one socket", patch: pin },
            Builtin { name: "vtune", help: "The same pins; the guest sees the cores and threads that it runs on", patch: vtune },
            Builtin { name: "numa", help: "A guest node for each host node, and bound to it", patch: numa },
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

fn memory(change: impl FnOnce(&mut Memory)) -> Memory {
    let mut memory = Memory::default();
    change(&mut memory);
    memory
}

fn clock(change: impl FnOnce(&mut Clock)) -> Clock {
    let mut clock = Clock::default();
    change(&mut clock);
    clock
}

fn host(change: impl FnOnce(&mut HostWishes)) -> HostWishes {
    let mut host = HostWishes::default();
    change(&mut host);
    host
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
    "host-passthrough", "The CPU model is all that the accelerator gives", { cpu_model: passthrough() };
    "host-model", "The CPU model is libvirt's named likeness of the host", { cpu_model: cmdline("host-model") };
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
    "haltpoll", "The guest polls a little before it halts", { kernel_cmdline: cmdline("cpuidle_haltpoll.force=1") };
    "huge-2m", "Memory of huge pages of 2 MiB", { memory: memory(|all| all.huge_pages = Some(PageSize::M2)) };
    "huge-1g", "Memory of huge pages of 1 GiB", { memory: memory(|all| all.huge_pages = Some(PageSize::G1)) };
    "prealloc", "All memory is allocated before the guest starts", { memory: memory(|all| all.prealloc = Some(true)) };
    "locked", "Memory is never swapped", { memory: memory(|all| all.locked = Some(true)) };
    "shared", "Memory is shared, as vhost-user needs it", { memory: memory(|all| { all.shared = Some(true); all.source = Some(MemorySource::Memfd); }) };
    "nosharepages", "KSM may not merge the guest's pages", { memory: memory(|all| all.nosharepages = Some(true)) };
    "iothread", "One thread for disks", { iothreads: Some(1) };
    "thp-always", "The host makes huge pages everywhere", { host: host(|all| all.thp = Some(Thp::Always)) };
    "thp-madvise", "The host makes huge pages where QEMU asks", { host: host(|all| all.thp = Some(Thp::Madvise)) };
    "thp-never", "The host makes no huge pages by itself", { host: host(|all| all.thp = Some(Thp::Never)) };
    "ksm", "The host merges equal pages", { host: host(|all| all.ksm = Some(true)) };
    "no-ksm", "The host merges no pages", { host: host(|all| all.ksm = Some(false)) };
    "no-halt-poll", "KVM gives the pCPU away as soon as a vCPU halts", { host: host(|all| all.halt_poll_ns = Some(0)) };
    "halt-poll-200us", "KVM polls for 200 µs when a vCPU halts", { host: host(|all| all.halt_poll_ns = Some(200_000)) };
    "no-ple", "Spinning never leaves the guest", { host: host(|all| all.ple_window = Some(0)) };
    "no-numa-balancing", "The host does not move memory after its users", { host: host(|all| all.numa_balancing = Some(false)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{direct, with, xeon_4208};
    use crate::{Accel, Resolve};

    fn check(name: &str, vcpus: u32, pins: &[u32], topology: [u32; 5], cpu_model: &str) {
        let kvm = Resolve { auto_accel: Accel::Kvm, ..with(direct()) };
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
            patch.resolve(&with(direct())).unwrap_or_else(|error| panic!("{}: {error}", one.name));
        }
        assert_eq!(
            variant("pindef", &xeon_4208(), 4).unwrap_err().to_string(),
            "No variant is called \"pindef\"; did you mean \"pin_def\"?"
        );
    }
}
