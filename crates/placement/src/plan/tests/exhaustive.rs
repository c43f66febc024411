//! The planner against every placement that there is, on small hosts.

use proptest::prelude::*;

use super::hosts::Shape;
use crate::plan::{Placement, PlanRules, Score, Size, ThreadsPerCore, VmWish, plan_host};

/// A host of at most 8 cores of 1 or 2 threads, some of them taken.
#[derive(Clone, Debug)]
struct SmallHost {
    shape: Shape,
    taken: Vec<bool>,
}

impl SmallHost {
    fn cores(&self) -> usize {
        self.taken.len()
    }

    fn cache_of(&self, core: usize) -> usize {
        core / self.shape.cores as usize
    }

    fn node_of(&self, core: usize) -> usize {
        self.cache_of(core) / self.shape.caches as usize
    }

    /// Cores that a VM needs: the guest sees whole host cores if its vCPUs fill
    /// them.
    fn cores_for(&self, wish: &VmWish) -> u32 {
        match wish.threads_per_core {
            ThreadsPerCore::Exactly(threads) => wish.vcpus / threads,
            ThreadsPerCore::Auto if wish.vcpus.is_multiple_of(self.shape.threads) => {
                wish.vcpus / self.shape.threads
            }
            ThreadsPerCore::Auto => wish.vcpus,
        }
    }

    /// The cores of a placement, each named by its first pCPU.
    fn cores_of(&self, placement: &Placement) -> u32 {
        placement
            .pcpus()
            .map(|pcpu| pcpu % self.cores() as u32)
            .fold(0, |all, core| all | 1 << core)
    }

    fn rules(&self) -> PlanRules {
        let taken = (0..self.cores()).filter(|core| self.taken[*core]).map(|core| core as u32);
        PlanRules {
            leave: Some(topology::PcpuSet::new()),
            taken: taken.collect(),
            ..PlanRules::default()
        }
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

    /// The whole score of VMs together: what they cost, and the gaps that stay
    /// behind all of them.
    fn total(&self, free: u32, vms: &[u32]) -> Score {
        let scores = vms.iter().map(|vm| self.score(u32::MAX, *vm));
        let sum = scores.fold(Score::default(), |a, b| a + b);
        let free = vms.iter().fold(free, |free, vm| free & !vm);
        let usable = mask(self.cores(), |core| !self.taken[core]);
        let gap = |group: u32| match (free & group, usable & group) {
            (have, all) if have == all => 0,
            (have, _) => have.count_ones(),
        };
        let caches = (self.shape.nodes * self.shape.caches) as usize;
        let nodes = self.shape.nodes as usize;
        let caches: Vec<u32> = (0..caches)
            .map(|cache| gap(mask(self.cores(), |core| self.cache_of(core) == cache)))
            .collect();
        let nodes: Vec<u32> = (0..nodes)
            .map(|node| gap(mask(self.cores(), |core| self.node_of(core) == node)))
            .collect();
        let broken = |gaps: &[u32]| gaps.iter().filter(|gap| **gap > 0).count() as u32;
        Score {
            nodes_broken: broken(&nodes),
            caches_broken: broken(&caches),
            cache_leftover: caches.iter().sum(),
            node_leftover: nodes.iter().sum(),
            ..sum
        }
    }
}

fn mask(cores: usize, holds: impl Fn(usize) -> bool) -> u32 {
    (0..cores).filter(|core| holds(*core)).map(|core| 1 << core).sum()
}

fn small() -> impl Strategy<Value = SmallHost> {
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
    (shapes, 1u32..3).prop_flat_map(|((nodes, caches, cores), threads)| {
        let shape = Shape { nodes, caches, cores, threads, node_gib: 64 };
        let all = (nodes * caches * cores) as usize;
        proptest::collection::vec(proptest::bool::weighted(0.25), all)
            .prop_map(move |taken| SmallHost { shape, taken })
    })
}

/// A VM of as many vCPUs, its threads left to the planner or one a core.
fn wish() -> impl Strategy<Value = VmWish> {
    let threads = prop_oneof![Just(ThreadsPerCore::Auto), Just(ThreadsPerCore::Exactly(1))];
    (1u32..9, threads).prop_map(|(vcpus, threads_per_core)| VmWish {
        threads_per_core,
        ..VmWish::new("vm", vcpus, Size::mib(64))
    })
}

/// The best way to give VMs of these sizes cores of their own.
fn best<K: Ord>(
    small: &SmallHost,
    free: u32,
    sizes: &[u32],
    key: &dyn Fn(&[u32]) -> K,
) -> Option<K> {
    fn go<K: Ord>(
        free: u32,
        cores: usize,
        sizes: &[u32],
        vms: &mut Vec<u32>,
        key: &dyn Fn(&[u32]) -> K,
        best: &mut Option<K>,
    ) {
        let Some(size) = sizes.get(vms.len()) else {
            let found = key(vms);
            if best.as_ref().is_none_or(|least| found < *least) {
                *best = Some(found);
            }
            return;
        };
        for vm in 1..1u32 << cores {
            if vm & !free == 0 && vm.count_ones() == *size {
                vms.push(vm);
                go(free & !vm, cores, sizes, vms, key, best);
                vms.pop();
            }
        }
    }
    let mut best = None;
    go(free, small.cores(), sizes, &mut Vec::new(), key, &mut best);
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_vm_is_placed_best(small in small(), wish in wish()) {
        let need = small.cores_for(&wish);
        let free = mask(small.cores(), |core| !small.taken[core]);
        let all = (1..1u32 << small.cores())
            .filter(|vm| vm & !free == 0 && vm.count_ones() == need)
            .map(|vm| small.score(free, vm));
        let best = all.min();
        let plan = plan_host(&small.shape.host(), &[wish], &small.rules());
        let got = plan.placements.first().map(|placement| {
            let vm = small.cores_of(placement);
            (placement.score, small.score(free, vm))
        });
        prop_assert_eq!(got.map(|(said, _)| said), best);
        prop_assert_eq!(got.map(|(_, is)| is), best);
    }

    #[test]
    fn a_few_vms_cost_least(
        small in small(), mut wishes in proptest::collection::vec(wish(), 2..4),
    ) {
        for wish in &mut wishes {
            wish.vcpus = wish.vcpus.min(4);
        }
        let free = mask(small.cores(), |core| !small.taken[core]);
        let sizes: Vec<u32> = wishes.iter().map(|wish| small.cores_for(wish)).collect();
        let least = best(&small, free, &sizes, &|vms| small.cost(vms));
        let plan = plan_host(&small.shape.host(), &wishes, &small.rules());
        prop_assert_eq!(plan.refused.is_empty(), least.is_some());
        if let Some(least) = least {
            let vms: Vec<u32> = plan.placements.iter().map(|one| small.cores_of(one)).collect();
            prop_assert_eq!(small.cost(&vms), least);
        }
    }

    #[test]
    fn a_few_vms_leave_the_best_behind(
        small in small(), mut wishes in proptest::collection::vec(wish(), 2..4),
    ) {
        for wish in &mut wishes {
            wish.vcpus = wish.vcpus.min(4);
        }
        let free = mask(small.cores(), |core| !small.taken[core]);
        let sizes: Vec<u32> = wishes.iter().map(|wish| small.cores_for(wish)).collect();
        let least = best(&small, free, &sizes, &|vms| small.total(free, vms));
        let plan = plan_host(&small.shape.host(), &wishes, &small.rules());
        if let Some(least) = least {
            let vms: Vec<u32> = plan.placements.iter().map(|one| small.cores_of(one)).collect();
            prop_assert_eq!(small.total(free, &vms), least);
        }
    }
}
