//! `distribute-cpus-across-numa`: as many pCPUs from each of several nodes.
//!
//! Up to Kubernetes 1.36 the winning combination of four or more nodes is not
//! what it was when it won: it shares memory with combinations that are tried
//! later (kubernetes#141237). [`GrowingList`] imitates that sharing, so that the
//! prediction agrees with the kubelet and not with its intent.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/cpumanager/cpu_assignment.go`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use topology::PcpuSet;

use super::TakeError;
use super::take::{Accumulator, Order, take_packed};
use crate::predict::machine::KubeletHost;

/// Combinations that are looked at before giving up. The kubelet itself would
/// be busy for hours; machines with 8 nodes need a few thousand.
const MAX_COMBINATIONS: u64 = 5_000_000;

/// A growing list with the memory behaviour of a Go slice: appending writes
/// into spare memory that an older list may share, and moves only when full.
#[derive(Clone)]
struct GrowingList {
    memory: Rc<RefCell<Vec<u32>>>,
    len: usize,
    capacity: usize,
}

impl GrowingList {
    fn new() -> Self {
        Self { memory: Rc::new(RefCell::new(Vec::new())), len: 0, capacity: 0 }
    }

    fn append(&self, node: u32) -> Self {
        if self.len < self.capacity {
            let mut memory = self.memory.borrow_mut();
            match memory.get_mut(self.len) {
                Some(place) => *place = node,
                None => memory.push(node),
            }
            return Self { memory: Rc::clone(&self.memory), len: self.len + 1, ..*self };
        }
        // Lists of nodes are short enough that capacity always doubles.
        let capacity = (self.capacity * 2).max(1);
        let mut memory = self.now();
        memory.push(node);
        Self { memory: Rc::new(RefCell::new(memory)), len: self.len + 1, capacity }
    }

    /// What the list holds at this moment.
    fn now(&self) -> Vec<u32> {
        self.memory.borrow()[..self.len].to_vec()
    }
}

/// Calls `visit` with every combination of `size` of the `nodes`, in
/// lexicographic order of their places.
fn combinations<B>(
    nodes: &[u32],
    size: usize,
    visit: &mut dyn FnMut(&GrowingList) -> ControlFlow<B>,
) -> ControlFlow<B> {
    fn go<B>(
        nodes: &[u32],
        size: usize,
        start: usize,
        chosen: &GrowingList,
        visit: &mut dyn FnMut(&GrowingList) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if size == 0 {
            return visit(chosen);
        }
        for at in start..(nodes.len() + 1).saturating_sub(size) {
            go(nodes, size - 1, at + 1, &chosen.append(nodes[at]), visit)?;
        }
        ControlFlow::Continue(())
    }
    if size == 0 {
        return ControlFlow::Continue(());
    }
    go(nodes, size, 0, &GrowingList::new(), visit)
}

/// Population standard deviation, rounded to three decimals (the mean too).
fn imbalance(free: impl Iterator<Item = i64> + Clone) -> f64 {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = free.clone().count() as f64;
    let mean = round(free.clone().map(|free| free as f64).sum::<f64>() / count);
    let squares: f64 = free.map(|free| (free as f64 - mean).powi(2)).sum();
    round((squares / count).sqrt())
}

/// The combination with the best balance so far.
struct BestCombination {
    balance: f64,
    nodes: GrowingList,
    /// Who gets the pCPUs that do not divide evenly.
    remainder: Option<GrowingList>,
}

/// Why a search ended early.
enum Stop {
    /// A perfect balance was found.
    Perfect,
    Failed(TakeError),
}

/// One request, and what is free on each node.
struct Request<'a> {
    /// Nodes with free pCPUs, ranked.
    nodes: &'a [u32],
    free: &'a BTreeMap<u32, i64>,
    count: i64,
    group: i64,
}

impl Request<'_> {
    /// What every one of so many nodes gives.
    fn share(&self, nodes: usize) -> i64 {
        self.count / as_i64(nodes) / self.group * self.group
    }

    fn best_of(&self, size: usize, budget: &mut u64) -> Result<Option<BestCombination>, TakeError> {
        let mut best: Option<BestCombination> = None;
        let end = combinations(self.nodes, size, &mut |combination| {
            if best.as_ref().is_some_and(|best| best.balance == 0.0) {
                return ControlFlow::Break(Stop::Perfect);
            }
            match self.judge(combination, budget) {
                Err(error) => return ControlFlow::Break(Stop::Failed(error)),
                Ok(None) => {}
                Ok(Some(candidate)) => {
                    if best.as_ref().is_none_or(|best| candidate.balance < best.balance) {
                        best = Some(candidate);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        match end {
            ControlFlow::Break(Stop::Failed(error)) => Err(error),
            _ => Ok(best),
        }
    }

    /// How well a combination would leave the machine balanced; `None` where it
    /// can't hold the request.
    fn judge(
        &self,
        combination: &GrowingList,
        budget: &mut u64,
    ) -> Result<Option<BestCombination>, TakeError> {
        spend(budget)?;
        let nodes = combination.now();
        let share = self.share(nodes.len());
        let groups: i64 = nodes.iter().map(|node| self.free[node] / self.group).sum();
        let too_small = nodes.iter().any(|node| self.free[node] < share);
        if groups * self.group < self.count || too_small {
            return Ok(None);
        }
        let mut left = self.free.clone();
        for node in &nodes {
            *left.entry(*node).or_default() -= share;
        }
        let remainder = self.count - share * as_i64(nodes.len());
        if remainder == 0 {
            let balance = imbalance(left.values().copied());
            return Ok(Some(BestCombination {
                balance,
                nodes: combination.clone(),
                remainder: None,
            }));
        }
        let roomy: Vec<u32> = nodes.into_iter().filter(|node| left[node] >= self.group).collect();
        let mut best: Option<(f64, GrowingList)> = None;
        for size in (1..=roomy.len()).rev() {
            let end = combinations(&roomy, size, &mut |subset| {
                match self.balance_after(&subset.now(), &left, remainder, budget) {
                    Err(error) => return ControlFlow::Break(error),
                    Ok(None) => {}
                    Ok(Some(balance)) => {
                        if best.as_ref().is_none_or(|(best, _)| balance < *best) {
                            best = Some((balance, subset.clone()));
                        }
                    }
                }
                ControlFlow::Continue(())
            });
            if let ControlFlow::Break(error) = end {
                return Err(error);
            }
        }
        // Without nodes for the rest the combination never wins.
        Ok(best.map(|(balance, remainder)| BestCombination {
            balance,
            nodes: combination.clone(),
            remainder: Some(remainder),
        }))
    }

    /// The balance once the remainder is dealt round robin over `nodes`; `None`
    /// where they hold too little.
    fn balance_after(
        &self,
        nodes: &[u32],
        left: &BTreeMap<u32, i64>,
        mut remainder: i64,
        budget: &mut u64,
    ) -> Result<Option<f64>, TakeError> {
        spend(budget)?;
        let mut left = left.clone();
        if nodes.iter().map(|node| left[node]).sum::<i64>() < remainder {
            return Ok(None);
        }
        while remainder > 0 {
            let before = remainder;
            for node in nodes {
                let left = left.entry(*node).or_default();
                if remainder > 0 && *left >= self.group {
                    *left -= self.group;
                    remainder -= self.group;
                }
            }
            if remainder == before {
                return Err(TakeError::Endless);
            }
        }
        Ok(Some(imbalance(left.values().copied())))
    }
}

fn spend(budget: &mut u64) -> Result<(), TakeError> {
    *budget = budget.checked_sub(1).ok_or(TakeError::TooManyCombinations)?;
    Ok(())
}

/// Takes pCPUs in groups of `group` (1, or a whole core) evenly from as few
/// nodes as can share them; packs where that is impossible.
///
/// # Errors
/// [`TakeError`]: too few pCPUs, or one of the kubelet's own accounting errors.
pub fn take_distributed(
    machine: &KubeletHost,
    available: &PcpuSet,
    count: u32,
    group: u32,
    order: Order,
) -> Result<PcpuSet, TakeError> {
    let group = group.max(1);
    if !count.is_multiple_of(group) {
        return take_packed(machine, available, count, order, false);
    }
    let mut taking = Accumulator::new(machine, available, count, order);
    if taking.is_satisfied() {
        return Ok(PcpuSet::new());
    }
    if taking.is_hopeless() {
        return Err(TakeError::NotEnough { requested: count, available: available.len() });
    }
    let ranked = taking.ranked_nodes();
    let free: BTreeMap<u32, i64> =
        ranked.iter().map(|&node| (node, as_i64(taking.free_in_node(node).len()))).collect();
    let request =
        Request { nodes: &ranked, free: &free, count: i64::from(count), group: i64::from(group) };
    let mut budget = MAX_COMBINATIONS;
    for size in node_counts(machine, &taking, group) {
        let Some(best) = request.best_of(size, &mut budget)? else { continue };
        let remainder = best.remainder.map(|nodes| nodes.now()).unwrap_or_default();
        take_from(machine, &mut taking, &request, &best.nodes.now(), &remainder, order)?;
        return match taking.needed() {
            0 => Ok(taking.into_taken()),
            1.. => Err(TakeError::TooFewTaken { remaining: taking.needed() }),
            _ => Err(TakeError::TooManyTaken { remaining: taking.needed() }),
        };
    }
    take_packed(machine, available, count, order, false)
}

/// From the fewest nodes that could hold the request on an empty machine to all
/// that have something free.
fn node_counts(
    machine: &KubeletHost,
    taking: &Accumulator<'_>,
    group: u32,
) -> std::ops::RangeInclusive<usize> {
    let group = usize::try_from(group).unwrap_or(1);
    let per_node = machine.seats().count().div_ceil(group).div_ceil(machine.nodes().len());
    let needed = usize::try_from(taking.needed()).unwrap_or(0).div_ceil(group);
    needed.div_ceil(per_node)..=needed.min(taking.free_nodes().len())
}

fn take_from(
    machine: &KubeletHost,
    taking: &mut Accumulator<'_>,
    request: &Request<'_>,
    nodes: &[u32],
    remainder_nodes: &[u32],
    order: Order,
) -> Result<(), TakeError> {
    let take = |taking: &mut Accumulator<'_>, node: u32, count: i64| {
        let count = u32::try_from(count).unwrap_or(0);
        // A node that holds too little gives nothing.
        let pcpus = take_packed(machine, &taking.free_in_node(node), count, order, false);
        taking.take(&pcpus.unwrap_or_default().iter().collect::<Vec<_>>());
    };
    let share = request.share(nodes.len());
    for &node in nodes {
        take(taking, node, share);
    }
    let mut remainder = request.count - share * as_i64(nodes.len());
    while remainder > 0 {
        let before = remainder;
        for &node in remainder_nodes {
            let roomy = as_i64(taking.free_in_node(node).len()) >= request.group;
            if remainder > 0 && roomy {
                take(taking, node, request.group);
                remainder -= request.group;
            }
        }
        if remainder == before {
            return Err(TakeError::Endless);
        }
    }
    Ok(())
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
