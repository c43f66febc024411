//! Several VMs on one host.

use schemars::JsonSchema;
use serde::Serialize;
use topology::{Host, PcpuSet};

use super::choose::{choose, choose_floating};
use super::free::FreeResources;
use super::layout::Layout;
use super::packed::pack;
use super::place::{Placement, settle};
use super::refuse::{UnplacedVm, nonsense, refusals, refuse};
use super::together::improve;
use super::wish::{PlanRules, VmWish};

/// What becomes of VMs on one host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostPlan {
    /// The VMs that have a place, in the order of the wishes.
    pub placements: Vec<Placement>,
    /// Those that have none.
    pub refused: Vec<UnplacedVm>,
    /// pCPUs that no VM gets: Linux's own work, interrupts, and QEMU's threads
    /// that are no vCPUs.
    pub leave_to_host: PcpuSet,
    /// pCPUs of whole cores that are still free for VMs.
    pub free: PcpuSet,
    /// What could not be known or looks wrong.
    pub warnings: Vec<String>,
}

/// Up to so many VMs are tried in every order: 5040 plans.
const MOST_TO_PERMUTE: usize = 7;

/// Places VMs on a host, as many as possible. Wishes with a `count` are as
/// many VMs.
#[must_use]
pub fn plan_host(host: &Host, wishes: &[VmWish], rules: &PlanRules) -> HostPlan {
    let layout = Layout::new(host, rules);
    let wishes = VmWish::each(wishes);
    let mut nonsensical = Vec::new();
    let mut sound = Vec::new();
    for (at, wish) in wishes.iter().enumerate() {
        match nonsense(wish) {
            Some(refusal) => nonsensical.push((at, refusal)),
            None => sound.push(at),
        }
    }
    let mut packed = orders(&wishes, &sound)
        .into_iter()
        .map(|order| pack(&layout, &wishes, &order, &choose))
        // Of equals the first: `min_by` keeps it.
        .min_by(|a, b| a.rank().cmp(&b.rank()))
        .unwrap_or_else(|| pack(&layout, &wishes, &[], &choose));
    if let Some(better) = improve(&layout, &wishes, &by_size(&wishes, &sound), &packed) {
        packed = better;
    }
    let mut shares = false;
    if let Some(ratio) = rules.overcommit.filter(|_| !packed.refused.is_empty()) {
        let floating = |layout: &Layout, free: &FreeResources, wish: &VmWish| {
            choose_floating(layout, free, wish, ratio)
        };
        let order = by_size(&wishes, &sound);
        let with_sharing = pack(&layout, &wishes, &order, &floating);
        if with_sharing.refused.len() < packed.refused.len() {
            packed = with_sharing;
            shares = true;
        }
    }
    let mut free = FreeResources::new(&layout);
    let mut placements = Vec::new();
    packed.placed.sort_by_key(|(at, _)| *at);
    for (at, choice) in &packed.placed {
        placements.push(settle(&layout, &mut free, &wishes[*at], choice));
    }
    let said = if shares || packed.placed.is_empty() {
        rules.clone()
    } else {
        PlanRules { overcommit: None, ..rules.clone() }
    };
    let without_host =
        Layout::new(host, &PlanRules { leave: Some(PcpuSet::new()), ..rules.clone() });
    let explain = |wish: &VmWish| {
        let mut refusal = refuse(&layout, &free, wish, &said);
        if rules.leave.is_none() && !shares {
            let mut more = FreeResources::new(&without_host);
            for core in layout.usable.iter().filter(|core| !free.cores.contains(*core)) {
                more.cores.remove(core);
            }
            more.memories.clone_from(&free.memories);
            if choose(&without_host, &more, wish).is_some() {
                refusal.nearest.push("--leave none".to_owned());
            }
        }
        refusal
    };
    packed.refused.sort_unstable();
    let mut refused = nonsensical;
    refused.extend(refusals(&wishes, &packed.refused, explain));
    refused.sort_by_key(|(at, _)| *at);
    let mut warnings = layout.warnings.clone();
    if rules.overcommit.is_some() && !shares && packed.refused.is_empty() {
        warnings
            .push("Overcommit was allowed but is not needed: every VM has its own cores".into());
    }
    let free = if shares { PcpuSet::new() } else { layout.pcpus(&free.cores).collect() };
    HostPlan {
        placements,
        refused: refused.into_iter().map(|(_, refusal)| refusal).collect(),
        leave_to_host: layout.left_to_host.clone(),
        free,
        warnings,
    }
}

/// The orders to try: all of few VMs, else the biggest first by several
/// measures, and as they come.
fn orders(wishes: &[VmWish], sound: &[usize]) -> Vec<Vec<usize>> {
    if sound.len() <= MOST_TO_PERMUTE {
        return permutations(wishes, &by_size(wishes, sound));
    }
    let mut by_memory = sound.to_vec();
    by_memory.sort_by_key(|at| (std::cmp::Reverse(wishes[*at].memory), *at));
    vec![by_size(wishes, sound), by_memory, sound.to_vec()]
}

fn by_size(wishes: &[VmWish], sound: &[usize]) -> Vec<usize> {
    let mut order = sound.to_vec();
    order.sort_by_key(|at| {
        let wish = &wishes[*at];
        (std::cmp::Reverse((wish.vcpus, wish.memory)), *at)
    });
    order
}

/// Every order that differs: VMs that are alike keep theirs.
fn permutations(wishes: &[VmWish], items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let alike = |other: &usize| wishes[*other].is_like(&wishes[*first]);
        if items[..at].iter().any(alike) {
            continue;
        }
        let mut rest = items.to_vec();
        rest.remove(at);
        for mut order in permutations(wishes, &rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}
