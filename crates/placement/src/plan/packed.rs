//! VMs that are placed on a host one after the other.

use super::choose::Choice;
use super::free::FreeResources;
use super::layout::{CoreSet, Layout};
use super::score::Score;
use super::wish::VmWish;

/// VMs placed one after the other.
#[derive(Clone, Debug)]
pub(crate) struct PackedVms {
    pub(crate) placed: Vec<(usize, Choice)>,
    pub(crate) refused: Vec<usize>,
    refused_vcpus: u32,
    pub(crate) score: Score,
}

impl PackedVms {
    pub(crate) fn rank(&self) -> (usize, u32, Score) {
        (self.refused.len(), self.refused_vcpus, self.score)
    }
}

/// Places VMs in this order, each where `choose` says.
pub(crate) fn pack(
    layout: &Layout,
    wishes: &[VmWish],
    order: &[usize],
    choose: &dyn Fn(&Layout, &FreeResources, &VmWish) -> Option<Choice>,
) -> PackedVms {
    let mut free = FreeResources::new(layout);
    let mut packed = PackedVms {
        placed: Vec::new(),
        refused: Vec::new(),
        refused_vcpus: 0,
        score: Score::default(),
    };
    for at in order {
        let wish = &wishes[*at];
        match choose(layout, &free, wish) {
            Some(choice) => {
                take(layout, &mut free, wish, &choice);
                packed.score = packed.score + choice.score;
                packed.placed.push((*at, choice));
            }
            None => {
                packed.refused.push(*at);
                packed.refused_vcpus += wish.vcpus;
            }
        }
    }
    packed.score = left_behind(layout, &free, packed.score);
    packed
}

/// A sum of scores with the gaps that are left at the end in place of those
/// that each VM left when it came.
pub(crate) fn left_behind(layout: &Layout, free: &FreeResources, score: Score) -> Score {
    let gap = |cores: &CoreSet| {
        let have = free.cores.common(&layout.usable, cores);
        let all = layout.usable.common(&layout.usable, cores);
        if have < all { have } else { 0 }
    };
    let nodes: Vec<u32> = layout.nodes.iter().map(|node| gap(&node.cores)).collect();
    let caches: Vec<u32> = layout.caches.iter().map(gap).collect();
    let broken = |gaps: &[u32]| gaps.iter().filter(|gap| **gap > 0).count() as u32;
    Score {
        nodes_broken: broken(&nodes),
        caches_broken: broken(&caches),
        cache_leftover: caches.iter().sum(),
        node_leftover: nodes.iter().sum(),
        ..score
    }
}

/// Takes what a choice names, without writing anything down.
pub(crate) fn take(layout: &Layout, free: &mut FreeResources, wish: &VmWish, choice: &Choice) {
    let unit = wish.unit();
    for share in &choice.shares {
        for core in share.cores.iter().flatten() {
            free.cores.remove(*core);
        }
        if share.cores.is_empty() {
            free.floating[share.node] += share.vcpus;
        }
        free.take_memory(layout, share.node, unit, share.units);
    }
    for core in &choice.io {
        free.cores.remove(*core);
    }
}
