//! The topology manager: which nodes a container's resources should come from.
//!
//! The managers of pCPUs and of memory each have wishes; devices have none here.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/topologymanager/policy.go` and
//! `generateCPUTopologyHints` in `pkg/kubelet/cm/cpumanager/policy_static.go`.

use std::collections::{BTreeMap, BTreeSet};

use topology::PcpuSet;

use super::node_mask::NodeMask;
use super::options::{PolicyOptions, TopologyOptions, TopologyPolicy};
use crate::predict::machine::KubeletHost;

/// A wish of a manager, or what came of all wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hint {
    /// `None`: any.
    pub(super) nodes: Option<NodeMask>,
    pub(super) preferred: bool,
}

impl Hint {
    /// Of a manager that does not mind.
    pub(super) const ANY: Self = Self { nodes: None, preferred: true };

    /// Both wishes in one; preferred if both are, and mean the same nodes.
    fn and(self, other: Self) -> Self {
        let both = self.nodes.zip(other.nodes);
        let nodes = both.map(|(one, other)| one.and(other)).or(self.nodes).or(other.nodes);
        let agree = both.is_none_or(|(one, other)| one == other);
        Self { nodes, preferred: self.preferred && other.preferred && agree }
    }
}

pub(super) struct Advisor<'a> {
    pub(super) machine: &'a KubeletHost,
    pub(super) options: PolicyOptions,
    pub(super) policy: TopologyPolicy,
    pub(super) topology_options: TopologyOptions,
}

impl Advisor<'_> {
    /// What comes of all managers' wishes, a list for each resource; `None`: the pod is
    /// rejected.
    pub(super) fn advise(&self, mut wishes: Vec<Vec<Hint>>) -> Option<Hint> {
        let is_single = self.policy == TopologyPolicy::SingleNumaNode;
        if is_single {
            let is_one = |hint: &Hint| hint.nodes.is_none_or(|nodes| nodes.count() == 1);
            wishes.iter_mut().for_each(|list| list.retain(|hint| hint.preferred && is_one(hint)));
        }
        let fewest =
            |list: &Vec<Hint>| list.iter().filter_map(|hint| Some(hint.nodes?.count())).min();
        let narrowest = wishes.iter().filter_map(fewest).max().unwrap_or(0);
        // The best of all combinations depends neither on their order nor on how often
        // each is there, so they are formed list by list.
        let mut merged = BTreeSet::from([Hint::ANY]);
        for list in wishes {
            merged = merged.iter().flat_map(|one| list.iter().map(|hint| one.and(*hint))).collect();
        }
        let everywhere = NodeMask::of(self.machine.nodes());
        let best = merged
            .into_iter()
            .map(|hint| (hint.nodes.unwrap_or(everywhere).and(everywhere), hint.preferred))
            .filter(|(nodes, _)| nodes.count() > 0)
            .reduce(|best, candidate| self.better(best, candidate, narrowest));
        let (nodes, preferred) = best.unwrap_or((everywhere, false));
        let insists = is_single || self.policy == TopologyPolicy::Restricted;
        let nodes = Some(nodes).filter(|nodes| !(is_single && *nodes == everywhere));
        (preferred || !insists).then_some(Hint { nodes, preferred })
    }

    /// The manager's of pCPUs: every set of nodes with enough free ones, small sets first.
    pub(super) fn of_pcpus(&self, available: &PcpuSet, count: u32) -> Vec<Hint> {
        if count == 0 {
            return vec![Hint::ANY];
        }
        let mut all: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for seat in self.machine.seats() {
            let (there, free) = all.entry(seat.node).or_default();
            *there += 1;
            *free += u32::from(available.contains(seat.pcpu));
        }
        let sum = |mask: NodeMask, of: fn(&(u32, u32)) -> u32| -> u32 {
            mask.nodes().filter_map(|node| all.get(&node)).map(of).sum()
        };
        let masks = NodeMask::subsets(&self.machine.nodes());
        let minimum = masks.iter().find(|mask| sum(**mask, |node| node.0) >= count);
        let minimum = minimum.or(masks.last()).map_or(0, |mask| mask.count());
        let hints: Vec<Hint> = masks
            .into_iter()
            .filter(|mask| sum(*mask, |node| node.1) >= count)
            .map(|mask| {
                let aligned = self.options.align_by_socket && self.fills_sockets(mask, minimum);
                Hint { nodes: Some(mask), preferred: aligned || mask.count() == minimum }
            })
            .collect();
        // Nothing fits anywhere: the wish stands unfulfilled.
        if hints.is_empty() { vec![Hint { nodes: None, preferred: false }] } else { hints }
    }

    /// Whether a hint's nodes lie in as few sockets as the request ever needs.
    fn fills_sockets(&self, hint: NodeMask, minimum: u32) -> bool {
        let counts = self.machine.counts();
        let per_socket = counts.nodes.checked_div(counts.sockets).unwrap_or(0);
        if per_socket == 0 {
            return false;
        }
        let mut sockets: Vec<u32> = self
            .machine
            .seats()
            .filter(|seat| hint.contains(seat.node))
            .map(|seat| seat.socket)
            .collect();
        sockets.sort_unstable();
        sockets.dedup();
        u32::try_from(sockets.len()) == Ok(minimum.div_ceil(per_socket))
    }

    fn better(
        &self,
        best: (NodeMask, bool),
        candidate: (NodeMask, bool),
        narrowest: u32,
    ) -> (NodeMask, bool) {
        let candidate_wins = match (best.1, candidate.1) {
            (false, true) => true,
            (true, false) => false,
            (true, true) => self.is_fitter(candidate.0, best.0),
            // Neither is preferred: as near as possible to what the one with the widest
            // narrowest hint needs, from below.
            (false, false) => {
                let (ours, theirs) = (best.0.count(), candidate.0.count());
                if ours > narrowest || ours == theirs {
                    self.is_fitter(candidate.0, best.0)
                } else {
                    (ours + 1..=narrowest).contains(&theirs)
                }
            }
        };
        if candidate_wins { candidate } else { best }
    }

    fn is_fitter(&self, candidate: NodeMask, best: NodeMask) -> bool {
        let closest = self.topology_options.prefer_closest
            && self.policy != TopologyPolicy::SingleNumaNode
            && best.count() == candidate.count();
        let (ours, theirs) = (self.mean_distance(best), self.mean_distance(candidate));
        if closest && ours != theirs { theirs < ours } else { candidate.is_narrower_than(best) }
    }

    fn mean_distance(&self, mask: NodeMask) -> f64 {
        let pairs = mask.nodes().flat_map(|from| mask.nodes().map(move |to| (from, to)));
        let cost = |(from, to)| f64::from(self.machine.distance(from, to).unwrap_or(0));
        pairs.map(cost).sum::<f64>() / f64::from(mask.count()).powi(2)
    }
}
