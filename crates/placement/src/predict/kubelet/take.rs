//! Taking pCPUs by topology: whole nodes and sockets, shared caches, cores,
//! then single threads.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/cpumanager/cpu_assignment.go`.

use std::collections::{BTreeMap, BTreeSet};

use topology::PcpuSet;

use super::TakeError;
use crate::predict::machine::{KubeletHost, PcpuPosition};

/// In which order single threads are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Core by core, partly used cores first (the default).
    Packed,
    /// By number inside each socket (`distribute-cpus-across-cores`).
    Spread,
}

/// What pCPUs are grouped by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Node,
    Socket,
    Uncore,
    Core,
}

impl Level {
    fn of(self, seat: &PcpuPosition) -> u32 {
        match self {
            Self::Node => seat.node,
            Self::Socket => seat.socket,
            Self::Uncore => seat.uncore,
            Self::Core => seat.core,
        }
    }
}

/// pCPUs that are still free, and those taken so far.
pub(super) struct Accumulator<'a> {
    machine: &'a KubeletHost,
    free: BTreeMap<u32, PcpuPosition>,
    taken: BTreeSet<u32>,
    /// Signed: a unit that is listed twice is also counted twice.
    needed: i64,
    order: Order,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(
        machine: &'a KubeletHost,
        available: &PcpuSet,
        count: u32,
        order: Order,
    ) -> Self {
        let free = available.iter().filter_map(|pcpu| Some((pcpu, *machine.seat(pcpu)?))).collect();
        Self { machine, free, taken: BTreeSet::new(), needed: i64::from(count), order }
    }

    pub(super) fn needed(&self) -> i64 {
        self.needed
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.needed < 1
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.needed > as_i64(self.free.len())
    }

    pub(super) fn into_taken(self) -> PcpuSet {
        self.taken.into_iter().collect()
    }

    pub(super) fn take(&mut self, pcpus: &[u32]) {
        for pcpu in pcpus {
            self.free.remove(pcpu);
            self.taken.insert(*pcpu);
        }
        self.needed -= as_i64(pcpus.len());
    }

    /// Free pCPUs of a node.
    pub(super) fn free_in_node(&self, node: u32) -> PcpuSet {
        self.free_in(Level::Node, node).into_iter().collect()
    }

    /// Nodes with free pCPUs.
    pub(super) fn free_nodes(&self) -> BTreeSet<u32> {
        self.free.values().map(|seat| seat.node).collect()
    }

    fn free_in(&self, level: Level, unit: u32) -> Vec<u32> {
        self.free.values().filter(|seat| level.of(seat) == unit).map(|seat| seat.pcpu).collect()
    }

    fn all_in(&self, level: Level, unit: u32) -> Vec<u32> {
        self.machine.seats().filter(|seat| level.of(seat) == unit).map(|seat| seat.pcpu).collect()
    }

    /// Nodes stand above sockets unless there are more nodes than sockets.
    fn nodes_first(&self) -> bool {
        let counts = self.machine.counts();
        counts.sockets >= counts.nodes
    }

    /// Units with free pCPUs (of `inside` only, if given), those with the
    /// fewest free pCPUs first, then by number. Free pCPUs are counted over the
    /// whole machine, also where a unit reaches out of `inside`.
    fn ranked(&self, level: Level, inside: Option<(Level, u32)>) -> Vec<u32> {
        let mut free: BTreeMap<u32, u32> = BTreeMap::new();
        for seat in self.free.values() {
            *free.entry(level.of(seat)).or_default() += 1;
        }
        let members: BTreeSet<u32> = self
            .free
            .values()
            .filter(|seat| inside.is_none_or(|(outer, unit)| outer.of(seat) == unit))
            .map(|seat| level.of(seat))
            .collect();
        let mut units: Vec<u32> = members.into_iter().collect();
        units.sort_by_key(|unit| (free[unit], *unit));
        units
    }

    fn ranked_inside(&self, level: Level, outer: Level, units: &[u32]) -> Vec<u32> {
        units.iter().flat_map(|&unit| self.ranked(level, Some((outer, unit)))).collect()
    }

    pub(super) fn ranked_nodes(&self) -> Vec<u32> {
        if self.nodes_first() {
            self.ranked(Level::Node, None)
        } else {
            self.ranked_inside(Level::Node, Level::Socket, &self.ranked_sockets())
        }
    }

    fn ranked_sockets(&self) -> Vec<u32> {
        if self.nodes_first() {
            self.ranked_inside(Level::Socket, Level::Node, &self.ranked_nodes())
        } else {
            self.ranked(Level::Socket, None)
        }
    }

    fn ranked_cores(&self) -> Vec<u32> {
        if self.nodes_first() {
            self.ranked_inside(Level::Core, Level::Socket, &self.ranked_sockets())
        } else {
            self.ranked_inside(Level::Core, Level::Node, &self.ranked_nodes())
        }
    }

    fn ranked_uncores(&self) -> Vec<u32> {
        self.ranked_inside(Level::Uncore, Level::Node, &self.ranked_nodes())
    }

    fn ranked_pcpus(&self) -> Vec<u32> {
        let (level, units) = match self.order {
            Order::Packed => (Level::Core, self.ranked_cores()),
            Order::Spread => (Level::Socket, self.ranked_sockets()),
        };
        units.into_iter().flat_map(|unit| self.free_in(level, unit)).collect()
    }

    /// Whether all pCPUs of a unit are free. Sockets and cores are held against
    /// the machine's average.
    fn is_free(&self, level: Level, unit: u32) -> bool {
        let counts = self.machine.counts();
        let size = match level {
            Level::Node | Level::Uncore => self.all_in(level, unit).len(),
            Level::Socket => as_usize(counts.pcpus.checked_div(counts.sockets).unwrap_or(0)),
            Level::Core => as_usize(self.machine.threads_per_core()),
        };
        self.free_in(level, unit).len() == size
    }

    /// Takes whole units as long as one is not more than what is needed.
    fn take_whole(&mut self, level: Level) {
        let ranked = match level {
            Level::Node => self.ranked_nodes(),
            Level::Socket => self.ranked_sockets(),
            Level::Uncore => self.ranked_uncores(),
            Level::Core => self.ranked_cores(),
        };
        let free: Vec<u32> = ranked.into_iter().filter(|&unit| self.is_free(level, unit)).collect();
        for unit in free {
            let pcpus = self.all_in(level, unit);
            if self.needed >= as_i64(pcpus.len()) {
                self.take(&pcpus);
            }
        }
    }

    fn take_uncores(&mut self) {
        let counts = self.machine.counts();
        let average = i64::from(counts.pcpus.checked_div(counts.uncores).unwrap_or(0));
        for uncore in self.ranked_uncores() {
            if self.needed >= average {
                self.take_whole(Level::Uncore);
            }
            if self.is_satisfied() {
                return;
            }
            self.take_part_of_uncore(uncore);
            if self.is_satisfied() {
                return;
            }
        }
    }

    /// Takes all that is still needed from one shared cache, or nothing.
    fn take_part_of_uncore(&mut self, uncore: u32) {
        let threads = i64::from(self.machine.threads_per_core()).max(1);
        let cores_needed = usize::try_from((self.needed + threads - 1) / threads).unwrap_or(0);
        let cores: BTreeSet<u32> = self
            .free
            .values()
            .filter(|seat| seat.uncore == uncore)
            .map(|seat| seat.core)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(cores_needed)
            .collect();
        let mut pcpus: Vec<u32> = self
            .free
            .values()
            .filter(|seat| cores.contains(&seat.core))
            .map(|seat| seat.pcpu)
            .collect();
        if self.needed % 2 != 0 && threads > 1 && as_i64(pcpus.len()) > self.needed {
            pcpus.pop();
        }
        if as_i64(pcpus.len()) == self.needed {
            self.take(&pcpus);
        }
    }

    fn take_single(&mut self) {
        for pcpu in self.ranked_pcpus() {
            self.take(&[pcpu]);
            if self.is_satisfied() {
                return;
            }
        }
    }
}

/// Packs: whole nodes or sockets, then shared caches if asked for, then cores,
/// then threads.
///
/// # Errors
/// [`TakeError::NotEnough`]: fewer are available than asked for.
pub fn take_packed(
    machine: &KubeletHost,
    available: &PcpuSet,
    count: u32,
    order: Order,
    prefer_uncore: bool,
) -> Result<PcpuSet, TakeError> {
    let mut taking = Accumulator::new(machine, available, count, order);
    if taking.is_hopeless() {
        return Err(TakeError::NotEnough { requested: count, available: available.len() });
    }
    let (first, second) = if taking.nodes_first() {
        (Level::Node, Level::Socket)
    } else {
        (Level::Socket, Level::Node)
    };
    let steps: [&dyn Fn(&mut Accumulator<'_>); 5] = [
        &|taking| taking.take_whole(first),
        &|taking| taking.take_whole(second),
        &|taking| {
            if prefer_uncore {
                taking.take_uncores();
            }
        },
        &|taking| {
            if order == Order::Packed {
                taking.take_whole(Level::Core);
            }
        },
        &|taking| taking.take_single(),
    ];
    for step in steps {
        if taking.is_satisfied() {
            break;
        }
        step(&mut taking);
    }
    if taking.is_satisfied() { Ok(taking.into_taken()) } else { Err(TakeError::Failed) }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn as_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
