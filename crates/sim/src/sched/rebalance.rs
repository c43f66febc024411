//! Balance of the CPUs of a machine, the host's or a guest's: when each looks at its
//! domains, and which tasks then move.
//!
//! `rebalance_domains` (`sched_balance_domains` since 6.10), `newidle_balance` (before 5.5
//! `idle_balance`), `load_balance` and `detach_tasks`.

use super::SchedKernel;
use super::balance::{
    BalanceClock, BalanceEnd, BalanceSearch, BalancerIdleness, DomainLevel, Imbalance, LoadView,
    MIGRATION_COST_NS, MOST_MOVED, RunqueueView, is_too_much,
};
use crate::machine::SimMachine;

/// A task on a queue, as far as balance asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MovableTask {
    pub(crate) id: u32,
    /// `task_h_load`.
    pub(crate) load: u64,
    /// `task_util`.
    pub(crate) utilization: u64,
    /// It waits: it does not run, nor does anything else hold it.
    pub(crate) waits: bool,
    /// It is the next buddy.
    pub(crate) favoured: bool,
    /// How long ago it ran.
    pub(crate) ran_ago_ns: u64,
    /// Since when it waits.
    pub(crate) since_ns: u64,
}

/// Run queues between which tasks move.
pub(crate) trait BalancedQueues: LoadView {
    /// The tasks on one CPU's queue that may run on another.
    fn movable(&mut self, from: u32, to: u32) -> Vec<MovableTask>;
    /// A CPU's clock.
    fn clock(&mut self, cpu: u32) -> &mut BalanceClock;
    /// Moves a task that waits (`attach_task`).
    fn move_waiting(&mut self, task: u32, from: u32, to: u32);
    /// Moves the task that runs on a CPU (`active_load_balance_cpu_stop`).
    fn push_running(&mut self, from: u32, to: u32);
}

/// A CPU looks at those of its domains whose time has come.
pub(crate) fn rebalance_domains(
    queues: &mut impl BalancedQueues,
    machine: &SimMachine,
    kernel: SchedKernel,
    cpu: u32,
    idleness: BalancerIdleness,
    now: u64,
) {
    for level in DomainLevel::ALL {
        if queues.clock(cpu).is_due(level, kernel, machine.len(), idleness, now) {
            load_balance(queues, machine, BalanceSearch { kernel, cpu, level, idleness });
        }
    }
    queues.clock(cpu).looked(kernel, machine.len());
}

/// A CPU that schedule() has nothing for takes something, near before far. `pays` tells
/// whether its idle times are worth so much ns; a look at a queue costs `look_ns`.
pub(crate) fn newidle_balance(
    queues: &mut impl BalancedQueues,
    machine: &SimMachine,
    kernel: SchedKernel,
    cpu: u32,
    look_ns: u64,
    pays: impl Fn(u64) -> bool,
) {
    let idleness = BalancerIdleness::NewlyIdle;
    let mut spent_ns = 0;
    for level in DomainLevel::ALL {
        if !queues.clock(cpu).has(level) {
            continue;
        }
        let cost_ns = look_ns * queues.clock(cpu).cpus(level);
        spent_ns += cost_ns;
        if !pays(spent_ns) {
            return;
        }
        load_balance(queues, machine, BalanceSearch { kernel, cpu, level, idleness });
        if !queues.idle(cpu) {
            return;
        }
    }
}

/// Whether somebody who is busy wakes an idle CPU for all that are idle
/// (`nohz_balancer_kick`): tasks wait, or several CPUs of one cache are busy.
pub(crate) fn kicks_idle(machine: &SimMachine, view: &impl RunqueueView, cpu: u32) -> bool {
    let cache = machine.place(cpu).cache;
    let near = (0..machine.len() as u32).filter(|other| machine.place(*other).cache == cache);
    view.load(cpu) > 1 || near.filter(|other| !view.idle(*other)).nth(1).is_some()
}

fn load_balance(queues: &mut impl BalancedQueues, machine: &SimMachine, search: BalanceSearch) {
    let BalanceSearch { kernel, cpu, level, idleness } = search;
    let mut passed = Vec::new();
    let (end, busiest) = loop {
        let Some((from, imbalance)) = search.find_busiest(machine, queues, &passed) else {
            break (BalanceEnd::Balanced, None);
        };
        match detach_tasks(queues, from, search, imbalance) {
            // LBF_ALL_PINNED: the same without it.
            BalanceEnd::Balanced => passed.push(from),
            end => break (end, Some((from, imbalance))),
        }
    };
    let imbalance = busiest.map(|(_, imbalance)| imbalance);
    if queues.clock(cpu).ended(level, kernel, end, idleness, imbalance)
        && let Some((from, _)) = busiest
    {
        queues.push_running(from, cpu);
    }
}

/// Moves waiting tasks until the imbalance is used up. Balanced if nobody who is there may
/// come.
fn detach_tasks(
    queues: &mut impl BalancedQueues,
    from: u32,
    search: BalanceSearch,
    imbalance: Imbalance,
) -> BalanceEnd {
    let BalanceSearch { kernel, cpu, level, idleness } = search;
    let mut tasks = queues.movable(from, cpu);
    if tasks.is_empty() {
        return BalanceEnd::Balanced;
    }
    let failed = queues.clock(cpu).failed(level);
    // can_migrate_task, task_hot
    tasks.retain(|task| {
        let is_warm = task.favoured || task.ran_ago_ns < MIGRATION_COST_NS;
        let is_hot = level != DomainLevel::Core && is_warm;
        task.waits && (!is_hot || failed > level.cache_nice_tries())
    });
    if kernel >= SchedKernel::V5 {
        // From the tail of cfs_tasks, to whose head go those that are chosen.
        tasks.sort_by_key(|task| task.since_ns);
    } else {
        // From its head, where those are who came last.
        tasks.reverse();
    }
    let mut left = imbalance;
    let mut moved = BalanceEnd::Failed;
    for task in tasks.into_iter().take(MOST_MOVED) {
        // Who is idle does not take all: it might be treated likewise.
        if idleness != BalancerIdleness::Busy && queues.load(from) < 2 {
            break;
        }
        let is_beyond = match left {
            Imbalance::Load(much) => is_too_much(kernel, task.load, much, failed),
            Imbalance::Utilization(much) => {
                // Failures count since 6.5.
                let halves = if kernel >= SchedKernel::V6_6 { failed } else { 0 };
                task.utilization.checked_shr(halves).unwrap_or(0) > much
            }
            Imbalance::Tasks(_) => false,
        };
        if is_beyond {
            continue;
        }
        queues.move_waiting(task.id, from, cpu);
        moved = BalanceEnd::Moved;
        let rest = match &mut left {
            Imbalance::Load(much) => {
                *much = much.saturating_sub(task.load);
                *much
            }
            Imbalance::Utilization(much) => {
                *much = much.saturating_sub(task.utilization);
                *much
            }
            Imbalance::Tasks(much) => {
                *much -= 1;
                *much
            }
        };
        // Kernels that can be preempted, as all are since 5.12 (PREEMPT_DYNAMIC), stop with
        // the first where they are about to idle.
        let stops = kernel >= SchedKernel::V6_6 && idleness == BalancerIdleness::NewlyIdle;
        if rest == 0 || stops {
            break;
        }
    }
    moved
}
