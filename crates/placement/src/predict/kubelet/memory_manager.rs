//! The kubelet's static memory manager policy: from which memory nodes a container of a
//! Guaranteed pod gets its memory.
//!
//! A node whose memory went to a container that has several nodes is given to others with
//! just these nodes alone, and not to those with one node, until all of them have left.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/memorymanager/policy_static.go`.

use std::collections::{BTreeMap, BTreeSet};

use super::hints::Hint;
use super::node_mask::NodeMask;
use super::options::OptionsError;
use crate::predict::machine::KubeletHost;
use crate::predict::memory::{MemoryAmounts, MemoryKind};

/// Every combination of nodes is looked at, for each of the managers: beyond this many
/// nodes the kubelet's own search does not end in time.
const MAX_NODES: usize = 10;

/// Memory that a container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAllocation {
    /// The nodes that it may come from.
    pub nodes: BTreeSet<u32>,
    /// How much.
    pub amounts: MemoryAmounts,
}

/// Error type for allocations of memory. All texts are the kubelet's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No nodes have enough.
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NotEnough,
    /// More nodes than it would need on an empty machine.
    #[error("[memorymanager] failed to find the default preferred hint")]
    NotPreferred,
    /// Those that the topology manager chose have too little, also with others.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NotExtended,
    /// Together with others they are more than it would need.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    ExtendedNotPreferred,
    /// Other containers have some of the nodes with others or by themselves.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violates,
}

/// The manager on a machine.
#[derive(Clone, Debug)]
pub(super) struct MemoryManager {
    /// What pods can get of each node.
    allocatable: BTreeMap<u32, MemoryAmounts>,
}

/// A node's memory in the manager's books.
struct NodeAccount<'a> {
    allocatable: &'a MemoryAmounts,
    free: MemoryAmounts,
    /// With which nodes, itself among them, it is given away.
    group: NodeMask,
    is_used: bool,
}

/// The books, by node.
type Accounts<'a> = BTreeMap<u32, NodeAccount<'a>>;

impl MemoryManager {
    /// `None`: the host does not say how much memory its nodes have.
    pub(super) fn new(
        machine: &KubeletHost,
        reserved: &BTreeMap<u32, MemoryAmounts>,
    ) -> Result<Option<Self>, OptionsError> {
        let nodes = machine.nodes();
        if nodes.len() > MAX_NODES {
            return Err(OptionsError::TooManyNodes { nodes: nodes.len(), max: MAX_NODES as u32 });
        }
        if let Some(node) = reserved.keys().find(|node| !nodes.contains(node)) {
            return Err(OptionsError::ReservedNodeMissing(*node));
        }
        let ordinary = |amounts: &MemoryAmounts| amounts.get(&MemoryKind::Ordinary).copied();
        if reserved.values().filter_map(ordinary).all(|bytes| bytes == 0) {
            return Err(OptionsError::NoMemoryReserved);
        }
        let of_node = |node: u32| {
            let mut amounts = machine.memory(node)?.clone();
            let huge = |(kind, bytes): (&MemoryKind, &u64)| {
                (*kind != MemoryKind::Ordinary).then_some(*bytes)
            };
            let huge: u64 = amounts.iter().filter_map(huge).sum();
            for (kind, bytes) in &mut amounts {
                let kept = reserved.get(&node).and_then(|amounts| amounts.get(kind));
                let kept = kept.copied().unwrap_or(0);
                // The pools are part of what the node says that it has.
                let pools = if *kind == MemoryKind::Ordinary { huge } else { 0 };
                *bytes = bytes.saturating_sub(kept).saturating_sub(pools);
            }
            Some((node, amounts))
        };
        let allocatable: Option<BTreeMap<_, _>> = nodes.into_iter().map(of_node).collect();
        Ok(allocatable.map(|allocatable| Self { allocatable }))
    }

    fn accounts(&self, given: &[MemoryAllocation]) -> Accounts<'_> {
        let blank = |(&node, allocatable)| {
            let free = MemoryAmounts::clone(allocatable);
            let group = NodeMask::of([node]);
            (node, NodeAccount { allocatable, free, group, is_used: false })
        };
        let mut accounts: Accounts = self.allocatable.iter().map(blank).collect();
        for MemoryAllocation { nodes, amounts } in given {
            let mut rest = amounts.clone();
            for node in nodes {
                let Some(account) = accounts.get_mut(node) else { continue };
                account.group = NodeMask::of(nodes.iter().copied());
                account.is_used = true;
                for (kind, wanted) in &mut rest {
                    let Some(free) = account.free.get_mut(kind) else { continue };
                    let taken = (*free).min(*wanted);
                    *free -= taken;
                    *wanted -= taken;
                }
            }
        }
        accounts
    }

    /// Its wishes for each kind of memory.
    pub(super) fn hints(
        &self,
        given: &[MemoryAllocation],
        request: &MemoryAmounts,
    ) -> Vec<Vec<Hint>> {
        let hints = hints(&self.accounts(given), request);
        // Where nothing fits the kubelet takes it for no wish, and fails later.
        if hints.is_empty() { vec![vec![Hint::ANY]] } else { vec![hints; request.len()] }
    }

    /// From which nodes the memory comes, after what the topology manager said.
    pub(super) fn allocate(
        &self,
        given: &[MemoryAllocation],
        request: &MemoryAmounts,
        advice: Hint,
    ) -> Result<MemoryAllocation, MemoryError> {
        let accounts = self.accounts(given);
        let fitting = hints(&accounts, request);
        let mut preferred = advice.preferred;
        let mut nodes = match advice.nodes {
            Some(nodes) => nodes,
            None => {
                let hint = best(fitting.iter().copied()).ok_or(MemoryError::NotEnough)?;
                if advice.preferred && !hint.1 {
                    return Err(MemoryError::NotPreferred);
                }
                preferred = hint.1;
                hint.0
            }
        };
        if !has(&accounts, nodes, request, |account| &account.free) {
            let wider = fitting.into_iter();
            let wider = wider.filter(|hint| hint.nodes.is_some_and(|all| all.contains_all(nodes)));
            let hint = best(wider).ok_or(MemoryError::NotExtended)?;
            if preferred && !hint.1 {
                return Err(MemoryError::ExtendedNotPreferred);
            }
            nodes = hint.0;
        }
        if nodes.count() > 1 && !is_open(&accounts, nodes) {
            return Err(MemoryError::Violates);
        }
        Ok(MemoryAllocation { nodes: nodes.nodes().collect(), amounts: request.clone() })
    }
}

/// Every set of nodes that the memory can come from, small ones first.
fn hints(accounts: &Accounts<'_>, request: &MemoryAmounts) -> Vec<Hint> {
    let masks = NodeMask::subsets(&accounts.keys().copied().collect());
    let large = |mask: &NodeMask| has(accounts, *mask, request, |account| account.allocatable);
    let masks: Vec<NodeMask> = masks.into_iter().filter(large).collect();
    let Some(minimum) = masks.first().map(|mask| mask.count()) else { return Vec::new() };
    masks
        .into_iter()
        .filter(|mask| is_open(accounts, *mask))
        .filter(|mask| has(accounts, *mask, request, |account| &account.free))
        .map(|mask| Hint { nodes: Some(mask), preferred: mask.count() == minimum })
        .collect()
}

/// Whether the nodes have as much together.
fn has(
    accounts: &Accounts<'_>,
    nodes: NodeMask,
    request: &MemoryAmounts,
    of: for<'a> fn(&'a NodeAccount<'_>) -> &'a MemoryAmounts,
) -> bool {
    request.iter().all(|(kind, wanted)| {
        let of_node = |node| of(accounts.get(&node)?).get(kind).copied();
        nodes.nodes().filter_map(of_node).sum::<u64>() >= *wanted
    })
}

/// Whether the nodes are given away together, or not at all.
fn is_open(accounts: &Accounts<'_>, nodes: NodeMask) -> bool {
    let is_single = nodes.count() == 1;
    nodes.nodes().filter_map(|node| accounts.get(&node)).all(|account| match is_single {
        true => account.group.count() == 1,
        false => !account.is_used || account.group == nodes,
    })
}

/// The nodes of the best of some hints, and whether it is preferred.
fn best(hints: impl Iterator<Item = Hint>) -> Option<(NodeMask, bool)> {
    hints.filter_map(|hint| Some((hint.nodes?, hint.preferred))).reduce(|best, hint| {
        let is_better = match (best.1, hint.1) {
            (false, true) => true,
            (true, false) => false,
            _ => hint.0.is_narrower_than(best.0),
        };
        if is_better { hint } else { best }
    })
}
