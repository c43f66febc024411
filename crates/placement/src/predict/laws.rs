//! Laws that hold for every host and guest, not just for known cases.

use proptest::prelude::*;
use topology::PcpuSet;

use super::kubelet::{
    ContainerAllocation, ContainerRequest, MemoryManagerPolicy, NodeAllocations, Order,
    PolicyOptions, Rejection, StaticPolicy, TakeError, TopologyOptions, TopologyPolicy,
    take_distributed, take_packed,
};
use super::kubevirt::{CpuPool, Crossing, GuestShape, Vmi};
use super::verify::{MachineShape, ThreadNumbering};
use super::{
    Ability, Admission, FindingKind, KubeletHost, KubevirtVersion, MemoryAmounts, MemoryKind,
    PcpuPosition, SiblingLists, findings, predict,
};

/// How siblings are numbered.
#[derive(Clone, Copy, Debug)]
enum Numbering {
    /// 0 and 1 are siblings.
    Neighbours,
    /// 0 and n are siblings.
    Split,
}

/// An even machine; node numbers follow the sockets.
fn machine(
    sockets: u32,
    nodes: u32,
    cores: u32,
    threads: u32,
    numbering: Numbering,
) -> KubeletHost {
    let all_cores = sockets * nodes * cores;
    let seats = (0..all_cores).flat_map(|core| {
        let pcpu = move |thread: u32| match numbering {
            Numbering::Neighbours => core * threads + thread,
            Numbering::Split => thread * all_cores + core,
        };
        (0..threads).map(move |thread| PcpuPosition {
            pcpu: pcpu(thread),
            core: pcpu(0),
            socket: core / (nodes * cores),
            node: core / cores,
            // Two cores a cache, none across nodes.
            uncore: core / cores * cores + core % cores / 2,
        })
    });
    KubeletHost::new(seats).expect("distinct pCPUs")
}

prop_compose! {
    fn any_machine()(
        sockets in 1u32..3, nodes in 1u32..4, cores in 1u32..5, threads in 1u32..3,
        split in any::<bool>(),
    ) -> KubeletHost {
        let numbering = if split { Numbering::Split } else { Numbering::Neighbours };
        machine(sockets, nodes, cores, threads, numbering)
    }
}

prop_compose! {
    fn any_shape()(sockets in 1u32..3, cores in 1u32..5, threads in 1u32..4) -> GuestShape {
        GuestShape { sockets, cores, threads }
    }
}

prop_compose! {
    fn any_options()(
        full in any::<bool>(), strict in any::<bool>(), other in 0..5,
    ) -> PolicyOptions {
        PolicyOptions {
            full_pcpus_only: full && other != 1,
            strict_reservation: strict,
            distribute_across_cores: other == 1,
            distribute_across_numa: other == 2,
            prefer_uncore: other == 3,
            align_by_socket: other == 4,
        }
    }
}

fn asks(pcpus: u32) -> ContainerRequest {
    ContainerRequest { pcpus, ..ContainerRequest::default() }
}

fn some_of(machine: &KubeletHost, kept: u64) -> PcpuSet {
    machine.pcpus().iter().filter(|pcpu| kept >> (pcpu % 64) & 1 == 1).collect()
}

fn vmi(shape: GuestShape, isolate: bool, extra: &str) -> Vmi {
    let text = format!(
        r#"{{"spec": {{"domain": {{"cpu": {{
            "sockets": {}, "cores": {}, "threads": {},
            "dedicatedCpuPlacement": true, "isolateEmulatorThread": {isolate}
        }} {extra} }}}}}}"#,
        shape.sockets, shape.cores, shape.threads,
    );
    Vmi::from_value(&serde_json::from_str(&text).expect("JSON")).expect("a VMI")
}

const OLD: KubevirtVersion = KubevirtVersion::new(0, 45, 0);
const NEW: KubevirtVersion = KubevirtVersion::new(1, 9, 0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn taken_pcpus_are_available_and_as_many_as_asked(
        machine in any_machine(), kept in any::<u64>(), count in 0u32..20,
        spread in any::<bool>(), uncore in any::<bool>(), group in 1u32..3,
    ) {
        let available = some_of(&machine, kept);
        let order = if spread { Order::Spread } else { Order::Packed };
        for taken in [
            take_packed(&machine, &available, count, order, uncore),
            take_distributed(&machine, &available, count, group, order),
        ] {
            match taken {
                Ok(taken) => {
                    prop_assert!(taken.is_subset(&available));
                    prop_assert_eq!(taken.len(), count as usize);
                }
                // The defect of `take_distributed` may send it to nodes that
                // are too small.
                Err(TakeError::TooFewTaken { .. } | TakeError::Endless) => {}
                Err(error) => prop_assert!(available.len() < count as usize, "{}", error),
            }
        }
    }

    #[test]
    fn full_pcpus_only_never_splits_a_core(
        machine in any_machine(), reserved in any::<u64>(), count in 1u32..20,
        options in any_options(),
    ) {
        let options = PolicyOptions { full_pcpus_only: true, distribute_across_cores: false, ..options };
        let mut reserved = some_of(&machine, reserved);
        if options.distribute_across_numa {
            // Here the kubelet does split cores of which a part is reserved.
            let is_reserved = |core| reserved.contains(core);
            reserved =
                machine.seats().filter(|seat| is_reserved(seat.core)).map(|seat| seat.pcpu).collect();
        }
        let Ok(policy) = StaticPolicy::new(&machine, options, reserved.clone()) else {
            return Ok(());
        };
        match policy.admit(&NodeAllocations::default(), &asks(count)) {
            Ok(ContainerAllocation { pcpus: taken, .. }) => {
                prop_assert_eq!(taken.len(), count as usize);
                prop_assert!(taken.is_disjoint(&reserved));
                for seat in machine.seats().filter(|seat| taken.contains(seat.pcpu)) {
                    let mut siblings = machine.seats().filter(|other| other.core == seat.core);
                    prop_assert!(siblings.all(|other| taken.contains(other.pcpu)));
                }
            }
            Err(rejection) => {
                let is_smt = matches!(rejection, Rejection::SmtAlignment(_));
                prop_assert!(is_smt || options.distribute_across_numa, "{}", rejection);
            }
        }
    }

    #[test]
    fn admission_is_deterministic_and_inside_the_pool(
        machine in any_machine(), reserved in any::<u64>(), taken in any::<u64>(),
        count in 1u32..20, options in any_options(), policy in 0usize..4,
    ) {
        let reserved = some_of(&machine, reserved & taken);
        let topology_policy = [
            TopologyPolicy::None, TopologyPolicy::BestEffort, TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ][policy];
        let Ok(policy) = StaticPolicy::new(&machine, options, reserved.clone()).and_then(|policy| {
            policy.with_topology_manager(topology_policy, TopologyOptions::default())
        }) else {
            return Ok(());
        };
        let given = some_of(&machine, taken).difference(&reserved);
        let pool = policy.shared_pool(&given);
        let given = given.into();
        let first = policy.admit(&given, &asks(count));
        prop_assert_eq!(&first, &policy.admit(&given, &asks(count)));
        if let Ok(ContainerAllocation { pcpus, .. }) = &first {
            prop_assert!(pcpus.is_subset(&pool) && pcpus.is_disjoint(&reserved));
            prop_assert_eq!(pcpus.len(), count as usize);
            if topology_policy == TopologyPolicy::SingleNumaNode && !options.align_by_socket {
                let nodes: std::collections::BTreeSet<u32> = machine
                    .seats()
                    .filter(|seat| pcpus.contains(seat.pcpu))
                    .map(|seat| seat.node)
                    .collect();
                prop_assert_eq!(nodes.len(), 1);
            }
        }
    }

    /// Memory is never given twice, and nodes that are given together are given to nobody else.
    #[test]
    fn memory_is_given_once(
        nodes in 1u32..5, policy in 0usize..4, pages in 0u64..300,
        wishes in prop::collection::vec((0u32..3, 1u64..2500, 0u64..200), 1..12),
    ) {
        const MIB: u64 = 1 << 20;
        let shape = MachineShape {
            sockets: nodes, nodes_per_socket: 1, cores_per_node: 8, caches_per_node: 1, threads: 1,
            thread_numbering: ThreadNumbering::Far,
            node_memory_bytes: 1024 * MIB, node_huge_pages: pages,
        };
        let machine = KubeletHost::from_host(&shape.host().expect("a host")).expect("a machine");
        let reserved = [(0, [(MemoryKind::Ordinary, 100 * MIB)].into())].into();
        let manager = MemoryManagerPolicy::Static { reserved: Some(reserved) };
        let topology_policy = [
            TopologyPolicy::None, TopologyPolicy::BestEffort, TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ][policy];
        let policy = StaticPolicy::new(&machine, PolicyOptions::default(), PcpuSet::new())
            .and_then(|it| it.with_topology_manager(topology_policy, TopologyOptions::default()))
            .and_then(|it| it.with_memory_manager(&manager))
            .expect("a kubelet");
        let huge = MemoryKind::HugePages(2 * MIB);
        let mut given = NodeAllocations::default();
        for (pcpus, mib, count) in wishes {
            let mut memory = MemoryAmounts::from([(MemoryKind::Ordinary, mib * MIB)]);
            if pages > 0 && count > 0 {
                memory.insert(huge, count * 2 * MIB);
            }
            if let Ok(allocation) = policy.admit(&given, &ContainerRequest { pcpus, memory }) {
                let memory = allocation.memory.as_ref().expect("a static manager");
                prop_assert!(!memory.nodes.is_empty());
                if topology_policy == TopologyPolicy::SingleNumaNode {
                    prop_assert_eq!(memory.nodes.len(), 1);
                }
                given.add(&allocation);
            }
        }
        for group in given.memory.iter().map(|one| &one.nodes) {
            let its = given.memory.iter().filter(|one| one.nodes.is_subset(group));
            let sum = |kind| -> u64 {
                its.clone().filter_map(|one| one.amounts.get(&kind)).sum()
            };
            let count = group.len() as u64;
            let kept = if group.contains(&0) { 100 * MIB } else { 0 };
            prop_assert!(sum(huge) <= count * pages * 2 * MIB);
            let ordinary = count * (1024 - pages * 2) * MIB - kept;
            prop_assert!(sum(MemoryKind::Ordinary) <= ordinary, "{:?}", given);
        }
    }

    #[test]
    fn the_pool_gives_each_thread_once(
        machine in any_machine(), kept in any::<u64>(), shape in any_shape(), strict in any::<bool>(),
        lost in any::<bool>(),
    ) {
        let cpuset: Vec<u32> = some_of(&machine, kept).iter().collect();
        let crossing = if strict { Crossing::Strict } else { Crossing::Relaxed };
        let lists = if lost { SiblingLists::RangesLost } else { SiblingLists::Whole };
        let mut pool = CpuPool::new(shape, &machine.cells(lists), &cpuset, crossing);
        let Ok(pins) = pool.fit_cores() else {
            let vcpus = shape.vcpus() as usize;
            prop_assert!(strict || cpuset.len() < vcpus);
            return Ok(());
        };
        let mut all = pins.clone();
        all.extend(std::iter::from_fn(|| pool.fit_thread()));
        all.sort_unstable();
        prop_assert_eq!(&all, &cpuset, "every thread of the pod, and each once");
        if cpuset.len() >= shape.vcpus() as usize {
            prop_assert_eq!(pins.len(), shape.vcpus() as usize);
        }
        if strict {
            for core in pins.chunks(shape.threads as usize) {
                let node = machine.seat(core[0]).map(|seat| seat.node);
                prop_assert!(core.iter().all(|pcpu| machine.seat(*pcpu).map(|seat| seat.node) == node));
            }
        }
    }

    #[test]
    fn pins_lie_in_the_pod(
        machine in any_machine(), taken in any::<u64>(), shape in any_shape(), isolate in any::<bool>(),
        auto in any::<bool>(), version in 0usize..6,
    ) {
        let version = [(0, 44, 0), (0, 44, 2), (0, 45, 0), (1, 4, 0), (1, 8, 0), (1, 9, 0)][version];
        let version = KubevirtVersion::new(version.0, version.1, version.2);
        let extra = if auto {
            r#", "ioThreadsPolicy": "auto", "devices": {"disks": [{}, {}, {}]}"#
        } else {
            ""
        };
        let policy = StaticPolicy::new(&machine, PolicyOptions::default(), PcpuSet::new())
            .expect("no options");
        let vmi = vmi(shape, isolate, extra);
        let prediction = predict(&machine, &policy, &some_of(&machine, taken).into(), &vmi, version)
            .expect("dedicated");
        match prediction.outcome {
            Admission::Pinned { cpuset, pins } => {
                prop_assert_eq!(cpuset.len(), prediction.pod_cpus as usize);
                prop_assert_eq!(pins.vcpus.len(), shape.vcpus() as usize);
                let mut own: Vec<u32> = pins.vcpus.iter().chain(&pins.emulator).copied().collect();
                prop_assert!(own.iter().all(|pcpu| cpuset.contains(*pcpu)));
                own.sort_unstable();
                own.dedup();
                prop_assert_eq!(own.len(), prediction.pod_cpus as usize, "each pCPU once");
                prop_assert!(pins.iothreads.values().flatten().all(|pcpu| cpuset.contains(*pcpu)));
                prop_assert_eq!(pins.emulator.is_empty(), !isolate);
            }
            Admission::Rejected(_) => {
                prop_assert!((machine.pcpus().len() as u32) < prediction.pod_cpus
                    || taken != 0);
            }
            Admission::NotPinned { error, .. } => prop_assert!(false, "{}", error),
        }
    }

    /// Old and new give a guest without threads the same pCPUs on a host
    /// without threads.
    #[test]
    fn without_threads_old_and_new_agree(
        sockets in 1u32..3, cores in 1u32..9, vcpus in 1u32..9, taken in any::<u64>(),
    ) {
        let machine = machine(sockets, 1, cores, 1, Numbering::Neighbours);
        let policy = StaticPolicy::new(&machine, PolicyOptions::default(), PcpuSet::new())
            .expect("no options");
        let vmi = vmi(GuestShape { sockets: 1, cores: vcpus, threads: 1 }, false, "");
        let of = |version| {
            predict(&machine, &policy, &some_of(&machine, taken).into(), &vmi, version).map(|it| it.outcome)
        };
        prop_assert_eq!(of(OLD), of(NEW));
    }

    /// The new algorithm keeps guest cores whole wherever the pod has whole
    /// cores only and sibling lists are read.
    #[test]
    fn whole_cores_stay_whole(
        sockets in 1u32..3, cores in 1u32..5, split in any::<bool>(),
        guest_cores in 1u32..9, kept in any::<u64>(),
    ) {
        let numbering = if split { Numbering::Split } else { Numbering::Neighbours };
        let machine = machine(sockets, 1, cores, 2, numbering);
        let options = PolicyOptions { full_pcpus_only: true, ..PolicyOptions::default() };
        let policy = StaticPolicy::new(&machine, options, PcpuSet::new()).expect("one option");
        let of_kept_core = |seat: &&PcpuPosition| kept >> (seat.core % 64) & 1 == 1;
        let taken: PcpuSet = machine.seats().filter(of_kept_core).map(|seat| seat.pcpu).collect();
        let vmi = vmi(GuestShape { sockets: 1, cores: guest_cores, threads: 2 }, false, "");
        // 1.3 reads the lists whole, on any numbering.
        let version = KubevirtVersion::new(1, 3, 0);
        prop_assert!(!version.can(Ability::LosesSiblingRanges));
        let prediction = predict(&machine, &policy, &taken.into(), &vmi, version).expect("dedicated");
        if let Admission::Pinned { cpuset, pins } = prediction.outcome {
            prop_assert_eq!(findings(&machine, &vmi, &cpuset, &pins)
                .into_iter()
                .filter(|finding| finding.kind != FindingKind::NodesHidden)
                .collect::<Vec<_>>(), vec![]);
        }
    }
}
