//! Periodic balance: a CPU that is busy takes tasks of one that is busier.
//!
//! `rebalance_domains` (`sched_balance_domains` since 6.10) asks each domain above a CPU in
//! its time, `load_balance` (`sched_balance_rq`) looks for the busiest group and queue of
//! it and says how much load to take. What idle CPUs take is in [`super::place`].

use super::place::RunqueueView;
use super::{NICE_0_WEIGHT, SchedKernel};
use crate::machine::SimMachine;

const MS: u64 = 1_000_000;
/// `sysctl_sched_migration_cost`: who ran less long ago is cache-hot.
pub(crate) const MIGRATION_COST_NS: u64 = 500_000;
/// `sched_nr_migrate_break`, `sysctl_sched_nr_migrate`: tasks of one balance at most.
pub(crate) const MOST_MOVED: usize = 32;
/// What a CPU can bear (`SCHED_CAPACITY_SCALE`).
const CAPACITY: u64 = 1024;

/// What balance asks beside the number of tasks on a queue.
pub(crate) trait LoadView: RunqueueView {
    /// The weights of what is queued there, each by the share of the time in which it
    /// could run (`cpu_load`; `weighted_cpuload` before 5.4).
    fn weight(&self, cpu: u32) -> u64;
}

/// What the CPUs of a domain share (`struct sched_domain`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DomainLevel {
    /// A core (`SMT`).
    Core,
    /// A last-level cache (`MC`).
    Cache,
    /// A memory node (`PKG`, `DIE`).
    Node,
    /// Nothing (`NUMA`).
    Machine,
}

impl DomainLevel {
    /// From the lowest, as `for_each_domain` goes.
    pub(crate) const ALL: [Self; 4] = [Self::Core, Self::Cache, Self::Node, Self::Machine];

    /// Which domain of this level a CPU is in.
    fn domain(self, machine: &SimMachine, cpu: u32) -> u32 {
        let place = machine.place(cpu);
        match self {
            Self::Core => place.core,
            Self::Cache => place.cache,
            Self::Node => place.node,
            Self::Machine => 0,
        }
    }

    /// Which group of its domain: the domain of the level below.
    fn group(self, machine: &SimMachine, cpu: u32) -> u32 {
        match self {
            Self::Core => cpu,
            Self::Cache => Self::Core.domain(machine, cpu),
            Self::Node => Self::Cache.domain(machine, cpu),
            Self::Machine => Self::Node.domain(machine, cpu),
        }
    }

    /// How much busier another group must be, percent (`imbalance_pct`).
    fn imbalance_percent(self, kernel: SchedKernel) -> u64 {
        match self {
            Self::Core => 110,
            _ if kernel < SchedKernel::V5 => 125,
            _ => 117,
        }
    }

    /// After how many failures cache-hot tasks move too (`cache_nice_tries`).
    pub(crate) fn cache_nice_tries(self) -> u32 {
        match self {
            Self::Core => 0,
            Self::Cache | Self::Node => 1,
            Self::Machine => 2,
        }
    }

    /// The least and the greatest time between two balances of an idle CPU, ms, and by how
    /// much it is longer for a busy one (`min_interval`, `max_interval`, `busy_factor`).
    /// The domain's number of CPUs counts since 3.16, before only above nodes.
    fn intervals(self, kernel: SchedKernel, cpus: u64) -> (u64, u64, u64) {
        match self {
            _ if kernel >= SchedKernel::V5 => (cpus, 2 * cpus, 16),
            Self::Core => (1, 2, 64),
            Self::Cache | Self::Node => (1, 4, 64),
            Self::Machine => (cpus, 2 * cpus, 32),
        }
    }
}

/// One CPU's clock of a domain.
#[derive(Debug, Clone, Copy, Default)]
struct DomainClock {
    /// CPUs of the domain; 0 where it would have but one group (`sd_degenerate`).
    cpus: u64,
    /// `last_balance`.
    last_ns: u64,
    /// `balance_interval`.
    interval_ms: u64,
    /// `nr_balance_failed`.
    failed: u32,
}

/// When a CPU looks at each of its domains.
#[derive(Debug, Clone, Default)]
pub(crate) struct BalanceClock {
    domains: [DomainClock; 4],
    /// Nothing is due before (`next_balance`).
    pub(crate) next_ns: u64,
}

/// How a balance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BalanceEnd {
    /// There was nothing to do, or nobody may come here.
    Balanced,
    /// Tasks were taken.
    Moved,
    /// Somebody should have been taken, and nobody could be.
    Failed,
}

impl BalanceClock {
    /// The clock of `cpu`, which has its first balance within one interval; `random` below
    /// its argument says when.
    pub(crate) fn new(
        machine: &SimMachine,
        kernel: SchedKernel,
        cpu: u32,
        mut random: impl FnMut(u64) -> u64,
    ) -> Self {
        let mut clock = Self::default();
        for level in DomainLevel::ALL {
            let domain = level.domain(machine, cpu);
            let members: Vec<u32> = (0..machine.len() as u32)
                .filter(|other| level.domain(machine, *other) == domain)
                .collect();
            let group = level.group(machine, cpu);
            if members.iter().all(|other| level.group(machine, *other) == group) {
                continue;
            }
            let cpus = members.len() as u64;
            let (interval_ms, _, busy) = level.intervals(kernel, cpus);
            let offset = random(interval_ms * busy * MS);
            clock.domains[level as usize] =
                DomainClock { cpus, last_ns: offset, interval_ms, failed: 0 };
        }
        clock
    }

    /// When a level is next due for a busy CPU of a machine of `cpus`; `None` where it has
    /// no domain (`get_sd_balance_interval`).
    fn next_of(&self, level: DomainLevel, kernel: SchedKernel, cpus: usize) -> Option<u64> {
        let clock = &self.domains[level as usize];
        let (.., busy) = level.intervals(kernel, clock.cpus);
        // One less, so that busy CPUs do not fall into step (5.10).
        let less = u64::from(kernel >= SchedKernel::V5);
        let most = 100 * cpus as u64;
        let interval_ms = (clock.interval_ms * busy).saturating_sub(less).clamp(1, most);
        (clock.cpus > 0).then(|| clock.last_ns + interval_ms * MS)
    }

    /// Whether a level's time has come; its next time counts from now on then.
    pub(crate) fn is_due(
        &mut self,
        level: DomainLevel,
        kernel: SchedKernel,
        cpus: usize,
        now: u64,
    ) -> bool {
        let due = self.next_of(level, kernel, cpus).is_some_and(|next| now >= next);
        if due {
            self.domains[level as usize].last_ns = now;
        }
        due
    }

    /// All levels that were due were looked at.
    pub(crate) fn looked(&mut self, kernel: SchedKernel, cpus: usize) {
        let next = DomainLevel::ALL.iter().filter_map(|level| self.next_of(*level, kernel, cpus));
        self.next_ns = next.min().unwrap_or(u64::MAX);
    }

    /// `nr_balance_failed` of a level.
    pub(crate) fn failed(&self, level: DomainLevel) -> u32 {
        self.domains[level as usize].failed
    }

    /// Writes down how a balance ended. True if the running task of the busiest queue is
    /// to be moved, for waiting ones could not be often enough (`need_active_balance`).
    pub(crate) fn ended(
        &mut self,
        level: DomainLevel,
        kernel: SchedKernel,
        end: BalanceEnd,
    ) -> bool {
        let clock = &mut self.domains[level as usize];
        let (least, most, _) = level.intervals(kernel, clock.cpus);
        match end {
            BalanceEnd::Moved => {
                (clock.failed, clock.interval_ms) = (0, least);
            }
            BalanceEnd::Balanced => {
                clock.failed = 0;
                if clock.interval_ms < most {
                    clock.interval_ms *= 2;
                }
            }
            BalanceEnd::Failed => {
                clock.failed += 1;
                if clock.failed > level.cache_nice_tries() + 2 {
                    clock.failed = level.cache_nice_tries() + 1;
                    return true;
                }
                clock.interval_ms = least;
            }
        }
        false
    }
}

/// What balance knows of a group (`struct sg_lb_stats`).
#[derive(Debug, Clone, Copy, Default)]
struct GroupStats {
    group: u32,
    cpus: u64,
    /// CPUs on which something runs.
    busy: u64,
    running: u64,
    load: u64,
    first_cpu: u32,
    first_idle: Option<u32>,
}

/// How full a group is (`enum group_type`, of 5.5), as far as a busy CPU asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GroupFullness {
    HasSpare,
    FullyBusy,
    Overloaded,
}

impl GroupStats {
    /// `avg_load`: the load for each unit of capacity.
    fn average(&self) -> u64 {
        self.load * CAPACITY / (self.cpus * CAPACITY).max(1)
    }

    /// `group_classify`: what wants to run stands for `runnable_avg`, busy CPUs for
    /// `util_avg`.
    fn fullness(&self, percent: u64) -> GroupFullness {
        let over = self.busy * percent > self.cpus * 100;
        let crowded = self.running * 100 > self.cpus * percent;
        if self.running > self.cpus && (over || crowded) {
            GroupFullness::Overloaded
        } else if self.running < self.cpus || (!crowded && !over) {
            GroupFullness::HasSpare
        } else {
            GroupFullness::FullyBusy
        }
    }
}

/// From which CPU `cpu`, which is busy, is to take load in its domain of `level`, and how
/// much: `should_we_balance`, `find_busiest_group`, `calculate_imbalance` and
/// `find_busiest_queue`. `passed` are CPUs from which nobody may come.
pub(crate) fn find_busiest(
    machine: &SimMachine,
    kernel: SchedKernel,
    view: &impl LoadView,
    cpu: u32,
    level: DomainLevel,
    passed: &[u32],
) -> Option<(u32, u64)> {
    let domain = level.domain(machine, cpu);
    let members = || {
        (0..machine.len() as u32)
            .filter(|other| level.domain(machine, *other) == domain && !passed.contains(other))
    };
    let mut groups: Vec<GroupStats> = Vec::new();
    for member in members() {
        let group = level.group(machine, member);
        let at = groups.iter().position(|stats| stats.group == group).unwrap_or_else(|| {
            groups.push(GroupStats { group, first_cpu: member, ..GroupStats::default() });
            groups.len() - 1
        });
        let (stats, running) = (&mut groups[at], view.load(member) as u64);
        stats.cpus += 1;
        stats.running += running;
        stats.busy += u64::from(running > 0);
        stats.load += view.weight(member);
        if running == 0 {
            stats.first_idle.get_or_insert(member);
        }
    }
    // Groups are a ring that each CPU begins with its own; of equal ones the first counts.
    let own = level.group(machine, cpu);
    let at = groups.iter().position(|stats| stats.group == own)?;
    groups.rotate_left(at);
    let local = groups[0];
    // should_we_balance
    if local.first_idle.unwrap_or(local.first_cpu) != cpu {
        return None;
    }
    let (load, cpus) =
        groups.iter().fold((0, 0), |(load, cpus), it| (load + it.load, cpus + it.cpus));
    let all = load / cpus;
    let others = groups[1..].iter().rev();
    let percent = level.imbalance_percent(kernel);
    let (busiest, imbalance) = if kernel >= SchedKernel::V5 {
        of_types(local, others, all, percent)?
    } else {
        of_averages(local, others, all, percent)?
    };
    // find_busiest_queue: one task alone that is more than what is to be moved stays.
    let queues = members().filter(|member| level.group(machine, *member) == busiest.group);
    let queues = queues.filter(|queue| match view.load(*queue) {
        0 => false,
        1 => view.weight(*queue) <= imbalance,
        _ => true,
    });
    let queue = queues.max_by_key(|queue| (view.weight(*queue), u32::MAX - *queue))?;
    Some((queue, imbalance))
}

/// What is to be moved so that neither is beyond the mean of all.
fn to_the_mean(local: &GroupStats, busiest: &GroupStats, all: u64) -> u64 {
    let above = busiest.average().saturating_sub(all) * busiest.cpus;
    above.min(all.saturating_sub(local.average()) * local.cpus)
}

/// The rules since 5.5: by how full groups are.
fn of_types<'g>(
    local: GroupStats,
    others: impl Iterator<Item = &'g GroupStats>,
    all: u64,
    percent: u64,
) -> Option<(GroupStats, u64)> {
    // update_sd_pick_busiest
    let busiest = *others.max_by_key(|it| (it.fullness(percent), it.average()))?;
    // A busy CPU takes nothing of a group that has a CPU for each.
    if busiest.fullness(percent) < GroupFullness::Overloaded {
        return None;
    }
    if local.average() >= busiest.average() || local.average() >= all {
        return None;
    }
    let is_near = 100 * busiest.average() <= percent * local.average();
    if local.fullness(percent) == GroupFullness::Overloaded && is_near {
        return None;
    }
    Some((busiest, to_the_mean(&local, &busiest, all)))
}

/// The rules before 5.5: by loads alone; where less than a task would have to move,
/// `fix_small_imbalance` decides whether one does.
fn of_averages<'g>(
    local: GroupStats,
    others: impl Iterator<Item = &'g GroupStats>,
    all: u64,
    percent: u64,
) -> Option<(GroupStats, u64)> {
    let crowded = others.filter(|stats| stats.running > stats.cpus);
    let busiest = *crowded.max_by_key(|stats| stats.average())?;
    if local.average() >= busiest.average() || local.average() >= all {
        return None;
    }
    if 100 * busiest.average() <= percent * local.average() {
        return None;
    }
    // Not so much that a group would become idle.
    let spare = (busiest.running - busiest.cpus) * u64::from(NICE_0_WEIGHT) / busiest.cpus;
    let pulled = to_the_mean(&local, &busiest, all).min(spare * busiest.cpus);
    let each = |stats: &GroupStats| stats.load / stats.running.max(1);
    let task = each(&busiest);
    if pulled >= task {
        return Some((busiest, pulled));
    }
    let times = if task > each(&local) { 1 } else { 2 };
    let share = task / busiest.cpus;
    if busiest.average() + share >= local.average() + share * times {
        return Some((busiest, task));
    }
    // Whether capacity is used better with the task over there.
    let used = |stats: &GroupStats, average: u64| stats.cpus * each(stats).min(average);
    let now = used(&busiest, busiest.average()) + used(&local, local.average());
    let after = used(&busiest, busiest.average().saturating_sub(share))
        + used(&local, local.average() + task / local.cpus);
    if after > now {
        return Some((busiest, task));
    }
    (pulled > 0).then_some((busiest, pulled))
}

/// Whether a task of `load` is too much for what is left to move (`detach_tasks`). Since
/// 5.10 each failure halves what it counts for.
pub(crate) fn is_too_much(kernel: SchedKernel, load: u64, imbalance: u64, failed: u32) -> bool {
    if kernel >= SchedKernel::V5 {
        load.checked_shr(failed).unwrap_or(0).max(1) > imbalance
    } else {
        load / 2 > imbalance
    }
}

/// The share of the time in which a task could run, in 1024ths, what was long ago
/// counting less: half as much after 32 ms (`___update_load_avg`, which halves in 32 steps;
/// here straight between halves).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunnableAverage {
    value: u64,
    at_ns: u64,
}

impl RunnableAverage {
    const HALF_NS: u64 = 32 * MS;
    const FULL: u64 = 1024;

    /// Of a task that is new (`init_entity_runnable_average`): heavy, until it is known.
    pub(crate) fn new() -> Self {
        Self { value: Self::FULL, at_ns: 0 }
    }

    /// What it is at `now`, the task having been able to run since, or not.
    pub(crate) fn at(&self, now: u64, could_run: bool) -> u64 {
        let passed = now.saturating_sub(self.at_ns);
        let decayed = |value: u64| {
            let halves = passed / Self::HALF_NS;
            let value = if halves < 32 { value >> halves } else { 0 };
            value - value * (passed % Self::HALF_NS) / (2 * Self::HALF_NS)
        };
        if could_run { Self::FULL - decayed(Self::FULL - self.value) } else { decayed(self.value) }
    }

    /// The task begins to want to run, or ends.
    pub(crate) fn changes(&mut self, now: u64, could_run: bool) {
        *self = Self { value: self.at(now, could_run), at_ns: now };
    }
}
