//! Where a task that wakes or is new goes.
//!
//! `select_task_rq_fair`: `wake_affine` chooses between where the task ran and where it is
//! woken, `select_idle_sibling` looks for an idle CPU below the same last-level cache, by
//! version. Domains of CPUs of different speed are not known.

use super::SchedKernel;
use super::balance::{DomainLevel, IdleHistory, LoadView, RunqueueView};
use crate::machine::SimMachine;

fn core_idle(machine: &SimMachine, view: &impl RunqueueView, cpu: u32) -> bool {
    view.idle(cpu) && machine.siblings(cpu).iter().all(|sibling| view.idle(*sibling))
}

/// How often a task wakes another one than before (`wakee_flips`), halved each second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WakeeFlips {
    last: Option<u32>,
    flips: u32,
    decayed_ns: u64,
}

impl WakeeFlips {
    /// `record_wakee`.
    pub(crate) fn record(&mut self, wakee: u32, now: u64) {
        const SECOND_NS: u64 = 1_000_000_000;
        if now > self.decayed_ns + SECOND_NS {
            self.flips /= 2;
            self.decayed_ns = now;
        }
        if self.last != Some(wakee) {
            self.last = Some(wakee);
            self.flips = self.flips.saturating_add(1);
        }
    }

    /// `wake_wide`, since 3.12: one wakes so many that they are not pulled to it. `near` is
    /// how many CPUs share its cache.
    pub(crate) fn is_wide(self, wakee: Self, kernel: SchedKernel, near: u32) -> bool {
        let (less, more) = (self.flips.min(wakee.flips), self.flips.max(wakee.flips));
        kernel >= SchedKernel::V3_13 && less >= near && more >= less.saturating_mul(near)
    }
}

/// The CPU that wakes a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WakingCpu {
    pub(crate) cpu: u32,
    /// The load of the task that runs there.
    pub(crate) current_load: u64,
    pub(crate) is_wide: bool,
    /// It is about to sleep itself (`WF_SYNC`).
    pub(crate) sync: bool,
}

/// A task wakes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskWakeup {
    pub(crate) kernel: SchedKernel,
    /// Where it ran.
    pub(crate) before: u32,
    /// None where a timer wakes it there.
    pub(crate) waker: Option<WakingCpu>,
    /// Its load.
    pub(crate) load: u64,
    /// How long the CPU that wakes it is idle at a time.
    pub(crate) idle: IdleHistory,
    /// What a look at a queue costs.
    pub(crate) look_ns: u64,
}

impl TaskWakeup {
    /// The CPU for it (`select_task_rq_fair`).
    pub(crate) fn place(
        self,
        machine: &SimMachine,
        view: &impl LoadView,
        allowed: impl Fn(u32) -> bool,
    ) -> u32 {
        let count = machine.len() as u32;
        let mut wakeup = self;
        if !allowed(self.before) {
            let others = (0..count).map(|step| (self.before + step) % count);
            wakeup.before = { others }.find(|cpu| allowed(*cpu)).unwrap_or(self.before);
        }
        let target = match wakeup.waker {
            Some(waker) if waker.cpu != wakeup.before && !waker.is_wide && allowed(waker.cpu) => {
                wakeup.affine(waker, machine, view)
            }
            _ => wakeup.before,
        };
        wakeup.idle_sibling(target, machine, view, allowed)
    }

    /// `wake_affine`: where it is woken, or where it ran.
    fn affine(self, waker: WakingCpu, machine: &SimMachine, view: &impl LoadView) -> u32 {
        let (here, there) = (waker.cpu, self.before);
        let share_cache = machine.place(here).cache == machine.place(there).cache;
        // Half of imbalance_pct.
        let percent = 50 + DomainLevel::Cache.imbalance_percent(self.kernel) / 2;
        let mine =
            view.weight(here).saturating_sub(if waker.sync { waker.current_load } else { 0 });
        let theirs = view.weight(there);
        if self.kernel < SchedKernel::V5 {
            let balanced = mine == 0 || 100 * (mine + self.load) <= percent * theirs;
            let each = view.weight(here) / view.load(here).max(1) as u64;
            let is_light = mine <= theirs && mine + theirs <= each;
            return if balanced || is_light { here } else { there };
        }
        // wake_affine_idle
        if view.idle(here) && share_cache {
            return if view.idle(there) { there } else { here };
        }
        if waker.sync && view.load(here) == 1 {
            return here;
        }
        if view.idle(there) {
            return there;
        }
        // wake_affine_weight
        let bias = u64::from(waker.sync);
        if 100 * (mine + self.load) < percent * theirs + bias { here } else { there }
    }

    /// `select_idle_sibling`.
    fn idle_sibling(
        self,
        target: u32,
        machine: &SimMachine,
        view: &impl LoadView,
        allowed: impl Fn(u32) -> bool,
    ) -> u32 {
        let (kernel, count) = (self.kernel, machine.len() as u32);
        let cache = machine.place(target).cache;
        if view.idle(target) {
            return target;
        }
        // Not in 3.6, which looks at where it goes alone.
        let is_near = machine.place(self.before).cache == cache;
        if kernel > SchedKernel::V3_6 && is_near && view.idle(self.before) {
            return self.before;
        }
        // for_each_cpu_wrap
        let near = || {
            (1..count)
                .map(|step| (target + step) % count)
                .filter(|cpu| machine.place(*cpu).cache == cache && allowed(*cpu))
        };
        let idle_core = near().find(|cpu| core_idle(machine, view, *cpu));
        let idle_thread = |of: u32| {
            let threads = machine.siblings(of).iter().copied();
            { threads }.find(|cpu| allowed(*cpu) && view.idle(*cpu))
        };
        if kernel < SchedKernel::V5 {
            // Groups of the cache's domain, then of the core's.
            return idle_core.or_else(|| idle_thread(target)).unwrap_or(target);
        }
        // select_idle_smt before all else since 5.13, where no core is idle.
        if kernel >= SchedKernel::V6_6
            && idle_core.is_none()
            && is_near
            && let Some(cpu) = idle_thread(self.before)
        {
            return cpu;
        }
        // select_idle_cpu; with SIS_UTIL nobody looks where all CPUs are used.
        let limit = self.search_limit(machine, view, cache);
        let has_threads = !machine.siblings(target).is_empty();
        if let Some(cpu) = idle_core.filter(|_| has_threads && limit > 0) {
            return cpu;
        }
        if let Some(cpu) = near().take(limit).find(|cpu| view.idle(*cpu)) {
            return cpu;
        }
        let last = if kernel < SchedKernel::V6_6 { idle_thread(target) } else { None };
        last.unwrap_or(target)
    }

    /// At how many CPUs `select_idle_cpu` looks: until 5.19 (`SIS_PROP`) as many as a 512th of
    /// the CPU's idle times is worth, at least 4; since (`SIS_UTIL`) the fewer the more is used of the
    /// cache's CPUs, 1 - (1.17 u)^2 of them.
    fn search_limit(self, machine: &SimMachine, view: &impl LoadView, cache: u32) -> usize {
        const FULL: u64 = 1024;
        if self.kernel < SchedKernel::V6_6 {
            // It begins with the target, which is busy, and ends before the last.
            return ((self.idle.average_ns() / 512 / self.look_ns.max(1)) as usize).max(4) - 2;
        }
        let near = (0..machine.len() as u32).filter(|cpu| machine.place(*cpu).cache == cache);
        let (used, cpus) =
            near.fold((0, 0), |(used, cpus), cpu| (used + view.utilization(cpu), cpus + 1));
        let percent = DomainLevel::Cache.imbalance_percent(self.kernel);
        let mean = used / cpus;
        let squared = (mean * mean * percent * percent / (10_000 * FULL)).min(FULL);
        ((FULL - squared) * cpus / FULL) as usize
    }
}

/// The CPU for a task that is new (`sched_balance_find_dst_cpu`): the idlest
/// core of the idlest cache, counted by what runs there; `start` breaks ties.
pub(crate) fn on_fork(
    machine: &SimMachine,
    view: &impl RunqueueView,
    start: u32,
    allowed: impl Fn(u32) -> bool,
) -> u32 {
    let count = machine.len() as u32;
    let mut by_cache = std::collections::BTreeMap::<u32, (usize, usize)>::new();
    for cpu in 0..count {
        let entry = by_cache.entry(machine.place(cpu).cache).or_default();
        entry.0 += view.load(cpu);
        entry.1 += 1;
    }
    let candidates = (0..count).map(|step| (start + step) % count).filter(|cpu| allowed(*cpu));
    candidates
        .min_by_key(|cpu| {
            let (load, size) = by_cache[&machine.place(*cpu).cache];
            let core: usize =
                machine.siblings(*cpu).iter().map(|sibling| view.load(*sibling)).sum();
            (view.load(*cpu), core, load * 1024 / size)
        })
        .unwrap_or(start % count)
}
