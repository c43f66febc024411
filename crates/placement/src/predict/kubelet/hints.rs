//! The topology manager: which nodes the pCPUs should come from.
//!
//! The CPU manager is taken as the only one that has a wish: no devices, and no
//! static memory manager.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/topologymanager/policy.go` and
//! `generateCPUTopologyHints` in `pkg/kubelet/cm/cpumanager/policy_static.go`.

use topology::PcpuSet;

use super::options::{PolicyOptions, TopologyOptions, TopologyPolicy};
use crate::predict::machine::KubeletHost;

/// Nodes by number, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeMask(u64);

impl NodeMask {
    pub(super) fn of(nodes: impl IntoIterator<Item = u32>) -> Self {
        Self(nodes.into_iter().fold(0, |mask, node| mask | 1u64.checked_shl(node).unwrap_or(0)))
    }

    pub(super) fn contains(self, node: u32) -> bool {
        Self::of([node]).0 & self.0 != 0
    }

    fn count(self) -> u32 {
        self.0.count_ones()
    }

    fn nodes(self) -> impl Iterator<Item = u32> + Clone {
        (0..u64::BITS).filter(move |&node| self.contains(node))
    }

    fn is_narrower_than(self, other: Self) -> bool {
        (self.count(), self) < (other.count(), other)
    }
}

#[derive(Clone, Copy)]
struct Hint {
    nodes: NodeMask,
    preferred: bool,
}

/// What the topology manager says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Take from anywhere.
    Anywhere,
    /// Take from these nodes first.
    From(NodeMask),
    /// The pod is rejected.
    Reject,
}

pub(super) struct Advisor<'a> {
    pub(super) machine: &'a KubeletHost,
    pub(super) options: PolicyOptions,
    pub(super) policy: TopologyPolicy,
    pub(super) topology_options: TopologyOptions,
}

impl Advisor<'_> {
    pub(super) fn advise(&self, available: &PcpuSet, count: u32) -> Advice {
        let mut hints = match self.policy {
            TopologyPolicy::None => return Advice::Anywhere,
            _ => self.hints(available, count),
        };
        let everywhere = NodeMask::of(self.machine.nodes());
        if hints.is_empty() {
            // Nothing fits anywhere: the wish stands unfulfilled.
            hints.push(Hint { nodes: everywhere, preferred: false });
        }
        if self.policy == TopologyPolicy::SingleNumaNode {
            hints.retain(|hint| hint.preferred && hint.nodes.count() == 1);
        }
        let narrowest = hints.iter().map(|hint| hint.nodes.count()).min().unwrap_or(0);
        let best = hints
            .into_iter()
            .reduce(|best, candidate| self.better(best, candidate, narrowest))
            .unwrap_or(Hint { nodes: everywhere, preferred: false });
        match self.policy {
            TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode if !best.preferred => {
                Advice::Reject
            }
            TopologyPolicy::SingleNumaNode if best.nodes == everywhere => Advice::Anywhere,
            _ => Advice::From(best.nodes),
        }
    }

    /// Every set of nodes with enough free pCPUs, small sets first.
    fn hints(&self, available: &PcpuSet, count: u32) -> Vec<Hint> {
        let nodes: Vec<u32> = self.machine.nodes().into_iter().collect();
        let per_node = |of: &dyn Fn(u32) -> bool| -> Vec<u32> {
            let counted = |node: &u32| {
                self.machine.seats().filter(|seat| seat.node == *node && of(seat.pcpu)).count()
            };
            nodes.iter().map(|node| u32::try_from(counted(node)).unwrap_or(u32::MAX)).collect()
        };
        let (all, free) = (per_node(&|_| true), per_node(&|pcpu| available.contains(pcpu)));
        let sum = |mask: u64, counts: &[u32]| -> u32 {
            counts.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, n)| n).sum()
        };
        let mut masks: Vec<u64> = (1..1u64 << nodes.len()).collect();
        // Equal sizes in lexicographic order of the node lists.
        masks.sort_by_key(|mask| (mask.count_ones(), std::cmp::Reverse(mask.reverse_bits())));
        let minimum = masks
            .iter()
            .filter(|mask| sum(**mask, &all) >= count)
            .map(|mask| mask.count_ones())
            .min()
            .unwrap_or(u64::BITS)
            .min(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        masks
            .into_iter()
            .filter(|mask| sum(*mask, &free) >= count)
            .map(|mask| {
                let places = (0..nodes.len()).filter(|at| mask >> at & 1 == 1);
                let hint = NodeMask::of(places.map(|at| nodes[at]));
                let aligned = self.options.align_by_socket && self.fills_sockets(hint, minimum);
                Hint { nodes: hint, preferred: aligned || hint.count() == minimum }
            })
            .collect()
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

    fn better(&self, best: Hint, candidate: Hint, narrowest: u32) -> Hint {
        match (best.preferred, candidate.preferred) {
            (false, true) => candidate,
            (true, false) => best,
            (true, true) => self.fitter(best, candidate),
            // Neither is preferred: as near as possible to the narrowest hint
            // that there is, from below.
            (false, false) => {
                let (ours, theirs) = (best.nodes.count(), candidate.nodes.count());
                if ours > narrowest || (ours == narrowest && theirs == narrowest) {
                    self.fitter(best, candidate)
                } else if ours == narrowest || theirs > narrowest {
                    best
                } else if theirs == narrowest || theirs > ours {
                    candidate
                } else if theirs < ours {
                    best
                } else {
                    self.fitter(best, candidate)
                }
            }
        }
    }

    fn fitter(&self, best: Hint, candidate: Hint) -> Hint {
        let closest = self.topology_options.prefer_closest
            && self.policy != TopologyPolicy::SingleNumaNode
            && best.nodes.count() == candidate.nodes.count();
        let (ours, theirs) = (self.mean_distance(best.nodes), self.mean_distance(candidate.nodes));
        let candidate_wins = if closest && ours != theirs {
            theirs < ours
        } else {
            candidate.nodes.is_narrower_than(best.nodes)
        };
        if candidate_wins { candidate } else { best }
    }

    fn mean_distance(&self, mask: NodeMask) -> f64 {
        let pairs = mask.nodes().flat_map(|from| mask.nodes().map(move |to| (from, to)));
        let cost = |(from, to)| f64::from(self.machine.distance(from, to).unwrap_or(0));
        pairs.map(cost).sum::<f64>() / f64::from(mask.count()).powi(2)
    }
}
