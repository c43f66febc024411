//! A few VMs on a small host, placed for each other.
//!
//! VMs that come one after the other each take the best place there is then,
//! which may leave worse gaps behind all of them than another place that costs
//! them nothing. So every VM is tried on every set of last-level caches, where
//! that can be afforded.

use super::choose::{Choice, choose};
use super::free::FreeResources;
use super::layout::{CoreSet, Layout};
use super::packed::{PackedVms, left_behind, take};
use super::score::Score;
use super::wish::VmWish;

/// The most VMs, and the most last-level caches with free cores: together they
/// are a few thousand plans.
const MOST_VMS: usize = 4;
const MOST_CACHES: usize = 6;
/// Choices that are tried at most; what is found until then is kept.
const MOST_TRIED: usize = 20_000;

/// The best plan for these VMs in this order, if that is better than `known`.
pub(crate) fn improve(
    layout: &Layout,
    wishes: &[VmWish],
    order: &[usize],
    known: &PackedVms,
) -> Option<PackedVms> {
    let free = FreeResources::new(layout);
    let caches: Vec<&CoreSet> =
        layout.caches.iter().filter(|cache| free.cores.common(&layout.usable, cache) > 0).collect();
    let few = (2..=MOST_VMS).contains(&order.len()) && caches.len() <= MOST_CACHES;
    if !few || !known.refused.is_empty() {
        return None;
    }
    let mut search =
        JointSearch { layout, wishes, order, caches, tried: 0, best: known.score, found: None };
    search.place(&free, &mut Vec::new(), Score::default());
    let (score, mut placed) = search.found?;
    rescore(layout, wishes, &mut placed);
    let mut better = known.clone();
    (better.placed, better.score) = (placed, score);
    Some(better)
}

struct JointSearch<'a> {
    layout: &'a Layout,
    wishes: &'a [VmWish],
    order: &'a [usize],
    caches: Vec<&'a CoreSet>,
    tried: usize,
    best: Score,
    found: Option<(Score, Vec<(usize, Choice)>)>,
}

impl JointSearch<'_> {
    /// Places the next VM in every way.
    fn place(&mut self, free: &FreeResources, placed: &mut Vec<(usize, Choice)>, cost: Score) {
        let Some(&at) = self.order.get(placed.len()) else {
            let score = left_behind(self.layout, free, cost);
            if score < self.best {
                self.best = score;
                self.found = Some((score, placed.clone()));
            }
            return;
        };
        let wish = &self.wishes[at];
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for set in 1..1u32 << self.caches.len() {
            if self.tried == MOST_TRIED {
                return;
            }
            self.tried += 1;
            let Some(choice) = choose(self.layout, &self.within(free, set), wish) else { continue };
            // What a VM costs itself never gets less.
            let cost = cost + without_gaps(choice.score);
            let cores = cores(&choice);
            if cost > self.best || seen.contains(&cores) {
                continue;
            }
            seen.push(cores);
            let mut left = free.clone();
            take(self.layout, &mut left, wish, &choice);
            placed.push((at, choice));
            self.place(&left, placed, cost);
            placed.pop();
        }
    }

    /// What is free around some of the caches.
    fn within(&self, free: &FreeResources, set: u32) -> FreeResources {
        let mut within = free.clone();
        for (number, cache) in self.caches.iter().enumerate() {
            if set & 1 << number == 0 {
                for core in free.cores.intersection(cache).iter() {
                    within.cores.remove(core);
                }
            }
        }
        within
    }
}

fn cores(choice: &Choice) -> Vec<usize> {
    let of_vcpus = choice.shares.iter().flat_map(|share| share.cores.iter().flatten());
    let mut cores: Vec<usize> = of_vcpus.chain(&choice.io).copied().collect();
    cores.sort_unstable();
    cores
}

/// The part of a score that is about the VM and not about those to come.
fn without_gaps(score: Score) -> Score {
    Score { nodes_broken: 0, caches_broken: 0, cache_leftover: 0, node_leftover: 0, ..score }
}

/// Says what each VM left behind when it came, and whether it left a better
/// place to others: while it was chosen, only a part of the host was looked at.
fn rescore(layout: &Layout, wishes: &[VmWish], placed: &mut [(usize, Choice)]) {
    let mut free = FreeResources::new(layout);
    for (at, choice) in placed {
        let before = free.clone();
        let alone = choose(layout, &before, &wishes[*at]);
        choice.yields = alone.is_none_or(|alone| cores(&alone) != cores(choice));
        take(layout, &mut free, &wishes[*at], choice);
        let mut vcpus = CoreSet::empty(layout.cores.len());
        for core in choice.shares.iter().flat_map(|share| share.cores.iter().flatten()) {
            vcpus.insert(*core);
        }
        let gap = |group: &CoreSet| {
            let had = before.cores.common(&layout.usable, group);
            let has = had - before.cores.common(&vcpus, group);
            let whole = had == layout.usable.common(&layout.usable, group);
            (u32::from(whole && has > 0), has)
        };
        let mut score = without_gaps(choice.score);
        for share in &choice.shares {
            let (broken, left) = gap(&layout.nodes[share.node].cores);
            score.nodes_broken += broken;
            score.node_leftover += left;
        }
        for cache in layout.caches.iter().filter(|cache| vcpus.common(&vcpus, cache) > 0) {
            let (broken, left) = gap(cache);
            score.caches_broken += broken;
            score.cache_leftover += left;
        }
        choice.score = score;
    }
}
