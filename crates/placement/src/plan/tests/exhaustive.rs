//! The planner against every placement that there is, on small hosts.

use proptest::prelude::*;

use super::hosts::Shape;
use crate::plan::{Rules, Score, Size, ThreadsPerCore, Wish, plan_host};

/// A host of at most 8 cores of 1 thread, some of them taken.
#[derive(Clone, Debug)]
struct Small {
    shape: Shape,
    taken: Vec<bool>,
}

impl Small {
    fn cores(&self) -> usize {
        self.taken.len()
    }

    fn cache_of(&self, core: usize) -> usize {
        core / self.shape.cores as usize
    }

    fn node_of(&self, core: usize) -> usize {
        self.cache_of(core) / self.shape.caches as usize
    }

    fn rules(&self) -> Rules {
        let taken = (0..self.cores()).filter(|core| self.taken[*core]).map(|core| core as u32);
        Rules { leave: Some(topology::PcpuSet::new()), taken: taken.collect(), ..Rules::default() }
    }

    /// Score of one VM's cores, computed from the definition alone. The free
    /// cores are those before the VM came; memory plays no part.
    fn score(&self, free: u32, vm: u32) -> Score {
        let usable: u32 = mask(self.cores(), |core| !self.taken[core]);
        let caches = (self.shape.nodes * self.shape.caches) as usize;
        let of_cache = |cache| mask(self.cores(), |core| self.cache_of(core) == cache);
        let of_node = |node| mask(self.cores(), |core| self.node_of(core) == node);
        let nodes: Vec<usize> =
            (0..self.shape.nodes as usize).filter(|node| vm & of_node(*node) != 0).collect();
        let used: Vec<usize> = (0..caches).filter(|cache| vm & of_cache(*cache) != 0).collect();
        let in_node = |node: &usize| (vm & of_node(*node)).count_ones();
        let in_cache = |cache: &usize| (vm & of_cache(*cache)).count_ones();
        let spread = |counts: Vec<u32>| {
            counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0)
        };
        let broken = |group: u32| {
            let whole = free & group == usable & group;
            u32::from(whole && (free & !vm) & group != 0)
        };
        let left = |group: u32| (free & !vm & group).count_ones();
        let pairs = (nodes.len() * nodes.len().saturating_sub(1) / 2) as u32;
        Score {
            extra_nodes: nodes.len() as u32 - 1,
            distance: 21 * pairs,
            node_unevenness: spread(nodes.iter().map(in_node).collect()),
            extra_caches: used.len() as u32 - 1,
            cache_unevenness: nodes
                .iter()
                .map(|node| {
                    let here =
                        used.iter().filter(|cache| **cache / self.shape.caches as usize == *node);
                    spread(here.map(in_cache).collect())
                })
                .sum(),
            nodes_broken: nodes.iter().map(|node| broken(of_node(*node))).sum(),
            caches_broken: used.iter().map(|cache| broken(of_cache(*cache))).sum(),
            cache_leftover: used.iter().map(|cache| left(of_cache(*cache))).sum(),
            node_leftover: nodes.iter().map(|node| left(of_node(*node))).sum(),
            ..Score::default()
        }
    }

    /// What costs VMs themselves: the part of the score that is about them.
    fn cost(&self, vms: &[u32]) -> (u32, u32, u32, u32, u32) {
        let scores = vms.iter().map(|vm| self.score(u32::MAX, *vm));
        let sum = scores.fold(Score::default(), |a, b| a + b);
        (sum.extra_nodes, sum.distance, sum.node_unevenness, sum.extra_caches, sum.cache_unevenness)
    }
}

fn mask(cores: usize, holds: impl Fn(usize) -> bool) -> u32 {
    (0..cores).filter(|core| holds(*core)).map(|core| 1 << core).sum()
}

fn small() -> impl Strategy<Value = Small> {
    let shapes = proptest::sample::select(vec![
        (1, 1, 8),
        (1, 2, 4),
        (1, 4, 2),
        (2, 1, 4),
        (2, 2, 2),
        (4, 1, 2),
        (2, 1, 3),
        (1, 3, 2),
        (1, 2, 3),
    ]);
    shapes.prop_flat_map(|(nodes, caches, cores)| {
        let shape = Shape { nodes, caches, cores, threads: 1, node_gib: 64 };
        let all = (nodes * caches * cores) as usize;
        proptest::collection::vec(proptest::bool::weighted(0.25), all)
            .prop_map(move |taken| Small { shape, taken })
    })
}

fn wish(vcpus: u32) -> Wish {
    Wish { threads_per_core: ThreadsPerCore::Exactly(1), ..Wish::new("vm", vcpus, Size::mib(64)) }
}

/// The cheapest way to give VMs of these sizes cores of their own.
fn best_cost(small: &Small, free: u32, sizes: &[u32]) -> Option<(u32, u32, u32, u32, u32)> {
    fn go(
        small: &Small,
        free: u32,
        sizes: &[u32],
        vms: &mut Vec<u32>,
        best: &mut Option<(u32, u32, u32, u32, u32)>,
    ) {
        let Some(size) = sizes.get(vms.len()) else {
            let cost = small.cost(vms);
            if best.is_none_or(|least| cost < least) {
                *best = Some(cost);
            }
            return;
        };
        for vm in 1..1u32 << small.cores() {
            if vm & !free == 0 && vm.count_ones() == *size {
                vms.push(vm);
                go(small, free & !vm, sizes, vms, best);
                vms.pop();
            }
        }
    }
    let mut best = None;
    go(small, free, sizes, &mut Vec::new(), &mut best);
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_vm_is_placed_best(small in small(), vcpus in 1u32..9) {
        let free = mask(small.cores(), |core| !small.taken[core]);
        let all = (1..1u32 << small.cores())
            .filter(|vm| vm & !free == 0 && vm.count_ones() == vcpus)
            .map(|vm| small.score(free, vm));
        let best = all.min();
        let plan = plan_host(&small.shape.host(), &[wish(vcpus)], &small.rules());
        let got = plan.placements.first().map(|placement| {
            let vm = placement.pcpus().map(|pcpu| 1 << pcpu).sum();
            (placement.score, small.score(free, vm))
        });
        prop_assert_eq!(got.map(|(said, _)| said), best);
        prop_assert_eq!(got.map(|(_, is)| is), best);
    }

    #[test]
    fn a_few_vms_cost_least(small in small(), sizes in proptest::collection::vec(1u32..5, 2..4)) {
        let free = mask(small.cores(), |core| !small.taken[core]);
        let best = best_cost(&small, free, &sizes);
        let wishes: Vec<Wish> = sizes.iter().map(|vcpus| wish(*vcpus)).collect();
        let plan = plan_host(&small.shape.host(), &wishes, &small.rules());
        prop_assert_eq!(plan.refused.is_empty(), best.is_some());
        if let Some(best) = best {
            let vms: Vec<u32> = plan
                .placements
                .iter()
                .map(|placement| placement.pcpus().map(|pcpu| 1 << pcpu).sum())
                .collect();
            prop_assert_eq!(small.cost(&vms), best);
        }
    }
}
