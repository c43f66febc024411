//! From which CPU another takes tasks, how many, and when it looks.
//!
//! `find_busiest_group` and `find_busiest_queue` (`sched_balance_find_src_group` and
//! `..._rq` since 6.10) of a CPU that is busy, idle, or becomes idle. Who asks them is in
//! [`super::rebalance`].

use super::{NICE_0_WEIGHT, SchedKernel};
use crate::machine::SimMachine;

const MS: u64 = 1_000_000;
/// `sysctl_sched_migration_cost`: who ran less long ago is cache-hot.
pub(crate) const MIGRATION_COST_NS: u64 = 500_000;
/// `sched_nr_migrate_break`, `sysctl_sched_nr_migrate`: tasks of one balance at most.
pub(crate) const MOST_MOVED: usize = 32;
/// What a CPU can bear (`SCHED_CAPACITY_SCALE`).
const CAPACITY: u64 = 1024;

/// What placing a task, and balance, need to know of the run queues.
pub(crate) trait RunqueueView {
    /// Whether nothing runs or waits there.
    fn idle(&self, cpu: u32) -> bool;
    /// How many run or wait there.
    fn load(&self, cpu: u32) -> usize;
}

/// What balance asks beside the number of tasks on a queue.
pub(crate) trait LoadView: RunqueueView {
    /// The weights of what is queued there, each by the share of the time in which it
    /// could run (`cpu_load`; `weighted_cpuload` before 5.4).
    fn weight(&self, cpu: u32) -> u64;
    /// The share of its time in which the CPU has something to run, in 1024ths
    /// (`cpu_util_cfs`; here of what is queued now).
    fn utilization(&self, cpu: u32) -> u64;
}

/// What the CPU that balances does (`enum cpu_idle_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BalancerIdleness {
    /// It runs something.
    Busy,
    /// It has been idle.
    Idle,
    /// schedule() has found nothing for it.
    NewlyIdle,
}

/// What is to be moved (`enum migration_type`), and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Imbalance {
    /// Load. The only kind before 5.5.
    Load(u64),
    /// Utilization.
    Utilization(u64),
    /// So many tasks.
    Tasks(u64),
}

impl Imbalance {
    /// That much, unless it is nothing.
    fn some(self) -> Option<Self> {
        let (Self::Load(much) | Self::Utilization(much) | Self::Tasks(much)) = self;
        (much > 0).then_some(self)
    }
}

/// What the CPUs of a domain share (`struct sched_domain`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    pub(crate) fn imbalance_percent(self, kernel: SchedKernel) -> u64 {
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

    /// When a level is next due for a CPU of a machine of `cpus`; `None` where it has no
    /// domain (`get_sd_balance_interval`).
    fn next_of(
        &self,
        level: DomainLevel,
        kernel: SchedKernel,
        cpus: usize,
        idleness: BalancerIdleness,
    ) -> Option<u64> {
        let clock = &self.domains[level as usize];
        let is_busy = idleness == BalancerIdleness::Busy;
        let (.., factor) = level.intervals(kernel, clock.cpus);
        let busy = if is_busy { factor } else { 1 };
        // One less, so that busy CPUs do not fall into step (5.10).
        let less = u64::from(is_busy && kernel >= SchedKernel::V5);
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
        idleness: BalancerIdleness,
        now: u64,
    ) -> bool {
        let due = self.next_of(level, kernel, cpus, idleness).is_some_and(|next| now >= next);
        if due {
            self.domains[level as usize].last_ns = now;
        }
        due
    }

    /// All levels that were due were looked at.
    pub(crate) fn looked(&mut self, kernel: SchedKernel, cpus: usize) {
        self.next_ns = self.next(kernel, cpus, BalancerIdleness::Busy);
    }

    /// When any level is next due.
    pub(crate) fn next(&self, kernel: SchedKernel, cpus: usize, idleness: BalancerIdleness) -> u64 {
        let next = DomainLevel::ALL
            .iter()
            .filter_map(|level| self.next_of(*level, kernel, cpus, idleness));
        next.min().unwrap_or(u64::MAX)
    }

    /// Whether the CPU has a domain of this level.
    pub(crate) fn has(&self, level: DomainLevel) -> bool {
        self.domains[level as usize].cpus > 0
    }

    /// CPUs of its domain of this level.
    pub(crate) fn cpus(&self, level: DomainLevel) -> u64 {
        self.domains[level as usize].cpus
    }

    /// `nr_balance_failed` of a level.
    pub(crate) fn failed(&self, level: DomainLevel) -> u32 {
        self.domains[level as usize].failed
    }

    /// Writes down how a balance ended. True if the running task of the busiest queue is
    /// to be moved, for waiting ones could not be often enough (`need_active_balance`;
    /// since 5.12 only where so many tasks are to be moved). Who is newly idle counts no
    /// failures, and asks as often as it comes to that.
    pub(crate) fn ended(
        &mut self,
        level: DomainLevel,
        kernel: SchedKernel,
        end: BalanceEnd,
        idleness: BalancerIdleness,
        imbalance: Option<Imbalance>,
    ) -> bool {
        if idleness == BalancerIdleness::NewlyIdle && end != BalanceEnd::Moved {
            return false;
        }
        let may_push = kernel < SchedKernel::V6_6 || matches!(imbalance, Some(Imbalance::Tasks(_)));
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
                if may_push && clock.failed > level.cache_nice_tries() + 2 {
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
    cores: u64,
    /// CPUs on which something runs.
    busy: u64,
    running: u64,
    load: u64,
    utilization: u64,
    first_cpu: u32,
    first_idle: Option<u32>,
}

/// How full a group is (`enum group_type`, of 5.5).
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

    fn idle_cpus(&self) -> u64 {
        self.cpus - self.busy
    }

    /// The tasks for which there is room before 5.5 (`group_capacity`): threads of a core
    /// have together `smt_gain`, 1178 of 1024; since 3.13 a core is one.
    fn room(&self, kernel: SchedKernel) -> u64 {
        const SMT_GAIN: u64 = 1178;
        if self.cores == self.cpus {
            self.cpus
        } else if kernel < SchedKernel::V3_13 {
            ((self.cores * SMT_GAIN + CAPACITY / 2) / CAPACITY).max(1)
        } else {
            self.cores.max(1)
        }
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

    /// By what the busiest is chosen (`update_sd_pick_busiest`).
    fn rank(&self, percent: u64) -> (GroupFullness, u64, u64) {
        match self.fullness(percent) {
            GroupFullness::HasSpare => {
                (GroupFullness::HasSpare, u64::MAX - self.idle_cpus(), self.running)
            }
            fullness => (fullness, self.average(), 0),
        }
    }
}

/// Who looks for the busiest, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BalanceSearch {
    pub(crate) kernel: SchedKernel,
    /// The CPU that balances.
    pub(crate) cpu: u32,
    pub(crate) level: DomainLevel,
    pub(crate) idleness: BalancerIdleness,
}

impl BalanceSearch {
    /// From which CPU is to be taken what: `should_we_balance`, `find_busiest_group`,
    /// `calculate_imbalance` and `find_busiest_queue`. `passed` are CPUs from which nobody
    /// may come.
    pub(crate) fn find_busiest(
        self,
        machine: &SimMachine,
        view: &impl LoadView,
        passed: &[u32],
    ) -> Option<(u32, Imbalance)> {
        let Self { kernel, cpu, level, idleness } = self;
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
            // The first thread of a core stands for it.
            let is_first = machine.siblings(member).iter().all(|sibling| *sibling > member);
            stats.cores += u64::from(is_first || level == DomainLevel::Core);
            stats.running += running;
            stats.busy += u64::from(running > 0);
            stats.load += view.weight(member);
            stats.utilization += view.utilization(member);
            if running == 0 {
                stats.first_idle.get_or_insert(member);
            }
        }
        // Groups are a ring that each CPU begins with its own; of equal ones the first
        // counts.
        let own = level.group(machine, cpu);
        let at = groups.iter().position(|stats| stats.group == own)?;
        groups.rotate_left(at);
        let local = groups[0];
        // should_we_balance
        let first = local.first_idle.unwrap_or(local.first_cpu);
        if idleness != BalancerIdleness::NewlyIdle && first != cpu {
            return None;
        }
        let (load, cpus) =
            groups.iter().fold((0, 0), |(load, cpus), it| (load + it.load, cpus + it.cpus));
        let all = load / cpus;
        let others = groups[1..].iter().rev();
        let (busiest, imbalance) = if kernel >= SchedKernel::V5 {
            self.of_types(local, others, all)?
        } else {
            self.of_averages(local, others, all)?
        };
        // find_busiest_queue: one task alone that is more than what is to be moved stays.
        let queues = members().filter(|member| level.group(machine, *member) == busiest.group);
        let queues = queues.filter(|queue| match (imbalance, view.load(*queue)) {
            (_, 0) | (Imbalance::Utilization(_), 1) => false,
            (Imbalance::Load(load), 1) => view.weight(*queue) <= load,
            _ => true,
        });
        let queue = queues.max_by_key(|queue| {
            let most = match imbalance {
                Imbalance::Load(_) => view.weight(*queue),
                Imbalance::Utilization(_) => view.utilization(*queue),
                Imbalance::Tasks(_) => view.load(*queue) as u64,
            };
            (most, u32::MAX - *queue)
        })?;
        Some((queue, imbalance))
    }

    /// The rules since 5.5: by how full groups are.
    fn of_types<'g>(
        self,
        local: GroupStats,
        others: impl Iterator<Item = &'g GroupStats>,
        all: u64,
    ) -> Option<(GroupStats, Imbalance)> {
        let percent = self.level.imbalance_percent(self.kernel);
        let busiest = *others.max_by_key(|it| it.rank(percent))?;
        let (mine, theirs) = (local.fullness(percent), busiest.fullness(percent));
        if busiest.running == 0 || mine > theirs {
            return None;
        }
        if mine == GroupFullness::Overloaded {
            let is_near = 100 * busiest.average() <= percent * local.average();
            if local.average() >= busiest.average() || local.average() >= all || is_near {
                return None;
            }
        }
        // SD_PREFER_SIBLING of the domain below, which has more than one CPU where there
        // is one.
        let prefers_siblings = local.cpus > 1;
        let has_spare = mine == GroupFullness::HasSpare;
        let spreads = prefers_siblings && has_spare && busiest.running > local.running + 1;
        if !spreads && theirs != GroupFullness::Overloaded {
            // A busy CPU takes nothing of a group that has a CPU for each.
            if self.idleness == BalancerIdleness::Busy
                || (busiest.cpus > 1 && local.idle_cpus() <= busiest.idle_cpus() + 1)
                || busiest.running == 1
            {
                return None;
            }
        }
        // calculate_imbalance
        if !has_spare {
            let less = local.average() < busiest.average();
            let load = Imbalance::Load(to_the_mean(&local, &busiest, all));
            return less.then_some((busiest, load.some()?));
        }
        if theirs == GroupFullness::Overloaded && self.level > DomainLevel::Cache {
            // Spare capacity is filled.
            let spare = (local.cpus * CAPACITY).saturating_sub(local.utilization);
            let one = Imbalance::Tasks(u64::from(self.idleness != BalancerIdleness::Busy));
            return Some((busiest, Imbalance::Utilization(spare).some().or(one.some())?));
        }
        let apart = if busiest.cpus == 1 || prefers_siblings {
            busiest.running.saturating_sub(local.running)
        } else {
            local.idle_cpus().saturating_sub(busiest.idle_cpus())
        };
        Some((busiest, Imbalance::Tasks(self.adjusted(apart, local, busiest) / 2).some()?))
    }

    /// `adjust_numa_imbalance`: a pair of tasks may stay in one node; since 5.18 so long as
    /// an eighth of the node's CPUs are busy, before whatever runs elsewhere.
    fn adjusted(self, apart: u64, local: GroupStats, busiest: GroupStats) -> u64 {
        const LEAST: u64 = 2;
        let is_small = if self.kernel >= SchedKernel::V6_6 {
            local.running < (local.cpus / 8).max(1) && apart <= LEAST
        } else {
            busiest.running <= LEAST
        };
        if self.level == DomainLevel::Machine && is_small { 0 } else { apart }
    }

    /// The rules before 5.5: by loads alone; where less than a task would have to move,
    /// `fix_small_imbalance` decides whether one does.
    fn of_averages<'g>(
        self,
        local: GroupStats,
        others: impl Iterator<Item = &'g GroupStats>,
        all: u64,
    ) -> Option<(GroupStats, Imbalance)> {
        let kernel = self.kernel;
        let percent = self.level.imbalance_percent(kernel);
        // SD_PREFER_SIBLING of a node: one task in each is enough while here is room.
        let has_room = local.running < local.room(kernel);
        let spreads = self.level == DomainLevel::Machine && has_room;
        let room = |stats: &GroupStats| if spreads { 1 } else { stats.room(kernel) };
        let crowded = others.filter(|stats| stats.running > room(stats));
        let busiest = *crowded.max_by_key(|stats| stats.average())?;
        let is_forced = self.idleness == BalancerIdleness::NewlyIdle && has_room;
        if !is_forced {
            if local.average() >= busiest.average() || local.average() >= all {
                return None;
            }
            let (idle, theirs) = (local.idle_cpus(), busiest.idle_cpus());
            let is_even = match self.idleness {
                BalancerIdleness::Idle => {
                    let no_more = if kernel < SchedKernel::V3_13 {
                        idle <= theirs + 1
                    } else {
                        idle < theirs
                    };
                    no_more && busiest.running <= busiest.cpus
                }
                _ => 100 * busiest.average() <= percent * local.average(),
            };
            if is_even {
                return None;
            }
        }
        // Not so much that a group would become idle.
        let above = busiest.running - room(&busiest);
        let spare = above * u64::from(NICE_0_WEIGHT) / busiest.cpus;
        let pulled = to_the_mean(&local, &busiest, all).min(spare * busiest.cpus);
        let each = |stats: &GroupStats| stats.load / stats.running.max(1);
        let task = each(&busiest);
        let load = |load| Some((busiest, Imbalance::Load(load).some()?));
        if pulled >= task {
            return load(pulled);
        }
        let times = if task > each(&local) { 1 } else { 2 };
        let share = task / busiest.cpus;
        if busiest.average() + share >= local.average() + share * times {
            return load(task);
        }
        // Whether capacity is used better with the task over there.
        let used = |stats: &GroupStats, average: u64| stats.cpus * each(stats).min(average);
        let now = used(&busiest, busiest.average()) + used(&local, local.average());
        let after = used(&busiest, busiest.average().saturating_sub(share))
            + used(&local, local.average() + task / local.cpus);
        load(if after > now { task } else { pulled })
    }
}

/// What is to be moved so that neither is beyond the mean of all.
fn to_the_mean(local: &GroupStats, busiest: &GroupStats, all: u64) -> u64 {
    let above = busiest.average().saturating_sub(all) * busiest.cpus;
    above.min(all.saturating_sub(local.average()) * local.cpus)
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

/// How long a CPU has been idle at a time (`avg_idle`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleHistory {
    /// Since when it is idle (`idle_stamp`).
    since: Option<u64>,
    average_ns: u64,
    /// How long the last time was, as the cpuidle governor sees it.
    pub(crate) last_ns: u64,
}

impl IdleHistory {
    const MOST_NS: u64 = 2 * MIGRATION_COST_NS;

    pub(crate) fn new() -> Self {
        Self { since: None, average_ns: Self::MOST_NS, last_ns: u64::MAX }
    }

    /// How long it is idle at a time.
    pub(crate) fn average_ns(&self) -> u64 {
        self.average_ns
    }

    /// True while it is idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.since.is_some()
    }

    pub(crate) fn begins(&mut self, now: u64) {
        self.since = Some(now);
    }

    /// `update_avg`, at the wake-up that ends it.
    pub(crate) fn ends(&mut self, now: u64) {
        let Some(since) = self.since.take() else { return };
        self.last_ns = now - since;
        let (last, before) = (self.last_ns as i64, self.average_ns as i64);
        let average =
            if self.last_ns > Self::MOST_NS { last } else { before + (last - before) / 8 };
        self.average_ns = (average.max(0) as u64).min(Self::MOST_NS);
    }

    /// Whether it is worth while to take something from others at all: idle times are
    /// longer than what that costs (`sysctl_sched_migration_cost`, until 5.15).
    pub(crate) fn is_worth_a_look(&self, kernel: SchedKernel) -> bool {
        kernel >= SchedKernel::V6_6 || self.average_ns >= MIGRATION_COST_NS
    }

    /// Whether a look that costs so much pays (`max_newidle_lb_cost`, since 3.13).
    pub(crate) fn pays(&self, kernel: SchedKernel, cost_ns: u64) -> bool {
        kernel < SchedKernel::V3_13 || self.average_ns >= cost_ns
    }
}
