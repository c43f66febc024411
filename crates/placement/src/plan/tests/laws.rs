//! What holds for every plan.

use std::collections::BTreeMap;

use proptest::prelude::*;
use topology::{Host, PcpuSet};
use vmconfig::{Accel, Arch, BootSource, DiskFormat, PatchContext};

use super::hosts::{Shape, add_pool, switch_off};
use crate::plan::{
    NamedHost, Packing, Placement, PlanRules, Size, ThreadsPerCore, VmWish, plan_fleet, plan_host,
};

fn shape() -> impl Strategy<Value = Shape> {
    (1u32..4, 1u32..4, 1u32..6, 1u32..3, 4u64..40).prop_map(
        |(nodes, caches, cores, threads, node_gib)| Shape {
            nodes,
            caches,
            cores,
            threads,
            node_gib,
        },
    )
}

fn host() -> impl Strategy<Value = Host> {
    (shape(), proptest::collection::vec(0u32..60, 0..4), 0u64..6).prop_map(|(shape, off, pool)| {
        let mut host = shape.host();
        // A pool is part of its node's memory.
        add_pool(&mut host, 0, 1 << 30, pool.min(shape.node_gib));
        // The last stays, as on real machines.
        let last = host.pcpus.len() as u32 - 1;
        let off: PcpuSet = off.into_iter().filter(|pcpu| *pcpu < last).collect();
        switch_off(&mut host, &off.to_string());
        host
    })
}

fn wish() -> impl Strategy<Value = VmWish> {
    let threads = proptest::sample::select(vec![
        ThreadsPerCore::Auto,
        ThreadsPerCore::Auto,
        ThreadsPerCore::Exactly(1),
        ThreadsPerCore::Exactly(2),
    ]);
    let pages = proptest::sample::select(vec![None, Some(Size::mib(2)), Some(Size::gib(1))]);
    (1u32..24, 1u64..30_000, threads, pages, 0u32..3, 0u32..2).prop_map(
        |(vcpus, mib, threads_per_core, huge_pages, iothreads, io_cores)| VmWish {
            threads_per_core,
            huge_pages,
            iothreads,
            io_cores,
            ..VmWish::new("vm", vcpus, Size::mib(mib))
        },
    )
}

fn core_of(host: &Host, pcpu: u32) -> (Option<u32>, Option<u32>) {
    let pcpu = host.pcpu(pcpu).expect("a pCPU of the host");
    (pcpu.socket, pcpu.core)
}

/// Every promise of one placement.
fn check_placement(host: &Host, wish: &VmWish, placement: &Placement) -> Result<(), TestCaseError> {
    let topology = placement.topology;
    prop_assert_eq!(topology.vcpus(), wish.vcpus);
    prop_assert_eq!(placement.vcpu_pins.len() as u32, wish.vcpus);
    let pins: Vec<u32> = placement.pcpus().collect();
    for pcpus in placement.vcpu_pins.values() {
        prop_assert_eq!(pcpus.len(), 1);
    }
    // Threads of a guest core are threads of one host core, and guest cores
    // have cores of their own.
    let mut seen = Vec::new();
    for guest_core in pins.chunks(topology.threads as usize) {
        let core = core_of(host, guest_core[0]);
        prop_assert!(guest_core.iter().all(|pcpu| core_of(host, *pcpu) == core));
        prop_assert!(!seen.contains(&core));
        seen.push(core);
    }
    // Cells: every vCPU once, on the node's pCPUs.
    let mut cells = Vec::new();
    for cell in &placement.cells {
        let vcpus: PcpuSet = cell.vcpus.parse().expect("a list");
        for vcpu in &vcpus {
            let pcpu = host.pcpu(pins[vcpu as usize]).expect("a pCPU of the host");
            prop_assert_eq!(pcpu.node, Some(cell.host_node));
        }
        cells.extend(vcpus.iter());
        prop_assert!(cell.memory.0 > 0);
    }
    prop_assert_eq!(cells, (0..wish.vcpus).collect::<Vec<_>>());
    // A socket lies in one cell.
    let in_socket = wish.vcpus / topology.sockets;
    for cell in placement.cells.iter().filter(|_| placement.cells.len() > 1) {
        let vcpus: PcpuSet = cell.vcpus.parse().expect("a list");
        prop_assert_eq!(vcpus.len() as u32 % in_socket, 0);
    }
    // Memory sums up and is what the nodes have.
    let memory: u64 = placement.memory_by_node.values().map(|size| size.0).sum();
    let of_cells: u64 = placement.cells.iter().map(|cell| cell.memory.0).sum();
    prop_assert_eq!((memory, of_cells), (placement.memory.0, placement.memory.0));
    prop_assert!(memory >= wish.memory.0);
    if let Some(page) = wish.huge_pages {
        prop_assert!(memory < wish.memory.0 + page.0);
        let pages: u64 = placement.huge_pages.iter().map(|need| need.pages * need.page.0).sum();
        prop_assert_eq!(pages, memory);
    }
    // It is a VM that can be.
    let boot = BootSource::Disk { image: "disk".into(), format: DiskFormat::Raw };
    let with = PatchContext { name: "vm", arch: Arch::X86_64, auto_accel: Accel::Kvm, boot };
    let resolved = placement.patch().resolve(&with);
    prop_assert!(resolved.is_ok(), "{:?}", resolved);
    // Other threads stay away from vCPUs.
    let all: PcpuSet = pins.iter().copied().collect();
    for other in placement.iothreads.iter().chain(&placement.vhost).chain([&placement.emulator]) {
        prop_assert!(other.is_disjoint(&all));
    }
    prop_assert_eq!(placement.iothreads.len() as u32, wish.iothreads);
    prop_assert!(placement.leave_to_host.is_disjoint(&all));
    prop_assert!(all.is_subset(&host.online()));
    Ok(())
}

/// Nobody gets what another has.
fn check_together(host: &Host, placements: &[&Placement]) -> Result<(), TestCaseError> {
    let mut owners = BTreeMap::new();
    let mut memory: BTreeMap<u32, u64> = BTreeMap::new();
    let mut reserve: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
    for (vm, placement) in placements.iter().enumerate() {
        for pcpu in placement.pcpus() {
            let owner = *owners.entry(core_of(host, pcpu)).or_insert(vm);
            prop_assert_eq!(owner, vm);
        }
        for (node, size) in &placement.memory_by_node {
            *memory.entry(*node).or_default() += size.0;
        }
        for need in &placement.huge_pages {
            let entry = reserve.entry((need.node, need.page.0)).or_default();
            entry.0 += need.pages;
            entry.1 += need.to_reserve;
        }
    }
    for (node, bytes) in memory {
        prop_assert!(bytes <= host.node(node).and_then(|node| node.memory_bytes).unwrap_or(0));
    }
    for ((node, page), (pages, to_reserve)) in reserve {
        let node = host.node(node).expect("a node of the host");
        let pools = node.huge_pages.iter().filter(|pool| pool.page_bytes == page);
        let free: u64 = pools.map(|pool| pool.free).sum();
        prop_assert_eq!(to_reserve, pages.saturating_sub(free));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_keep_their_promises(host in host(), wishes in proptest::collection::vec(wish(), 1..5)) {
        let wishes: Vec<VmWish> = wishes
            .into_iter()
            .enumerate()
            .map(|(at, wish)| VmWish { name: at.to_string(), ..wish })
            .collect();
        let plan = plan_host(&host, &wishes, &PlanRules::default());
        prop_assert_eq!(plan.placements.len() + plan.refused.len(), wishes.len());
        let mut all = PcpuSet::new();
        for placement in &plan.placements {
            let wish = &wishes[placement.name.parse::<usize>().expect("own name")];
            check_placement(&host, wish, placement)?;
            all.extend(placement.pcpus());
        }
        check_together(&host, &plan.placements.iter().collect::<Vec<_>>())?;
        prop_assert!(plan.free.is_disjoint(&all) && plan.free.is_disjoint(&plan.leave_to_host));
        prop_assert_eq!(&plan, &plan_host(&host, &wishes, &PlanRules::default()));
    }

    #[test]
    fn what_others_have_is_nobodys(
        host in host(), wishes in proptest::collection::vec(wish(), 1..4),
        held in proptest::collection::vec(0u32..60, 3), overcommit in proptest::bool::ANY,
    ) {
        let known = |pcpu: u32| host.pcpu(pcpu).is_some_and(|pcpu| pcpu.online).then_some(pcpu);
        let set = |at: usize| known(held[at]).into_iter().collect::<PcpuSet>();
        let rules = PlanRules {
            leave: Some(set(0)),
            irq_heavy: set(1),
            taken: set(2),
            overcommit: overcommit.then_some(1.5),
        };
        let plan = plan_host(&host, &wishes, &rules);
        for placement in &plan.placements {
            for pcpus in placement.vcpu_pins.values() {
                for pcpu in held.iter().filter_map(|pcpu| known(*pcpu)) {
                    let core = core_of(&host, pcpu);
                    prop_assert!(pcpus.iter().all(|mine| core_of(&host, mine) != core));
                }
            }
        }
    }

    #[test]
    fn what_is_near_really_fits(host in host(), wish in wish()) {
        let plan = plan_host(&host, std::slice::from_ref(&wish), &PlanRules::default());
        for refusal in &plan.refused {
            prop_assert!(!refusal.why.is_empty());
            for hint in &refusal.nearest {
                let (mut wish, mut rules) = (wish.clone(), PlanRules::default());
                let (option, value) = hint.split_once(' ').expect("option and value");
                match option {
                    "--vcpus" => wish.vcpus = value.parse().expect("a number"),
                    "--memory" => wish.memory = value.parse().expect("a size"),
                    "--threads-per-core" => wish.threads_per_core = value.parse().expect("threads"),
                    "--io-cores" => wish.io_cores = value.parse().expect("a number"),
                    "--overcommit" => rules.overcommit = Some(value.parse().expect("a ratio")),
                    "--leave" => rules.leave = Some(PcpuSet::new()),
                    _ => prop_assert!(false, "{}", hint),
                }
                prop_assert_eq!(plan_host(&host, &[wish], &rules).refused, vec![], "{}", hint);
            }
        }
    }

    #[test]
    fn a_larger_host_takes_what_a_smaller_took(
        small in shape(), more in (0u32..2, 0u32..2, 0u32..3, 0u64..10), wish in wish(),
    ) {
        let large = Shape {
            nodes: small.nodes + more.0,
            caches: small.caches + more.1,
            cores: small.cores + more.2,
            node_gib: small.node_gib + more.3,
            ..small
        };
        let fits = |shape: Shape| {
            plan_host(&shape.host(), std::slice::from_ref(&wish), &PlanRules::default()).refused.is_empty()
        };
        prop_assert!(fits(large) || !fits(small));
    }

    #[test]
    fn fleets_keep_the_same_promises(
        shapes in proptest::collection::vec(shape(), 1..4),
        wishes in proptest::collection::vec(wish(), 1..12),
    ) {
        let made: Vec<Host> = shapes.iter().map(|shape| shape.host()).collect();
        let hosts: Vec<NamedHost> =
            made.iter().map(|host| NamedHost { name: "h", host }).collect();
        for packing in [Packing::BestFit, Packing::FirstFit] {
            let wishes: Vec<VmWish> = wishes
                .iter()
                .enumerate()
                .map(|(at, wish)| VmWish { name: at.to_string(), ..wish.clone() })
                .collect();
            let plan = plan_fleet(&hosts, &wishes, &PlanRules::default(), packing);
            prop_assert_eq!(plan.vms.len() + plan.refused.len(), wishes.len());
            for (at, host) in made.iter().enumerate() {
                let here: Vec<&Placement> = plan
                    .vms
                    .iter()
                    .filter(|vm| vm.host == at)
                    .map(|vm| &vm.placement)
                    .collect();
                for placement in &here {
                    let wish = &wishes[placement.name.parse::<usize>().expect("own name")];
                    check_placement(host, wish, placement)?;
                }
                check_together(host, &here)?;
            }
            prop_assert_eq!(&plan, &plan_fleet(&hosts, &wishes, &PlanRules::default(), packing));
        }
    }

    #[test]
    fn sharing_keeps_to_the_ratio(
        host in host(), wishes in proptest::collection::vec(wish(), 1..6), tenths in 10u32..30,
    ) {
        let ratio = f64::from(tenths) / 10.0;
        let rules = PlanRules { overcommit: Some(ratio), ..PlanRules::default() };
        let plan = plan_host(&host, &wishes, &rules);
        let mut load: BTreeMap<PcpuSet, u32> = BTreeMap::new();
        for placement in plan.placements.iter().filter(|placement| placement.floating) {
            for pcpus in placement.vcpu_pins.values() {
                *load.entry(pcpus.clone()).or_default() += 1;
            }
        }
        for (pool, vcpus) in load {
            prop_assert!(f64::from(vcpus) <= pool.len() as f64 * ratio);
            prop_assert!(pool.is_disjoint(&plan.leave_to_host));
        }
    }
}
