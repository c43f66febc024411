//! Where a task that wakes or is new goes.
//!
//! The search of `select_idle_sibling`, without its limits on how far it looks: a
//! whole idle core first, then an idle thread, near before far.

use crate::machine::SimMachine;

/// What placing a task needs to know of the run queues.
pub(crate) trait RunqueueView {
    /// Whether nothing runs or waits there.
    fn idle(&self, cpu: u32) -> bool;
    /// How many run or wait there.
    fn load(&self, cpu: u32) -> usize;
}

fn core_idle(machine: &SimMachine, view: &impl RunqueueView, cpu: u32) -> bool {
    view.idle(cpu) && machine.siblings(cpu).iter().all(|sibling| view.idle(*sibling))
}

/// The CPU for a task that wakes and last ran on `before` (`select_idle_sibling`):
/// there if its core is idle, else an idle core below the same last-level cache,
/// else there if it is idle, else an idle thread below that cache, else there.
/// `start` says where the search begins, as `for_each_cpu_wrap(target)` does.
pub(crate) fn on_wakeup(
    machine: &SimMachine,
    view: &impl RunqueueView,
    before: u32,
    allowed: impl Fn(u32) -> bool,
) -> u32 {
    let count = machine.len() as u32;
    let before = if allowed(before) {
        before
    } else {
        (0..count).map(|step| (before + step) % count).find(|cpu| allowed(*cpu)).unwrap_or(before)
    };
    if core_idle(machine, view, before) {
        return before;
    }
    let cache = machine.place(before).cache;
    let near = || {
        (1..count)
            .map(|step| (before + step) % count)
            .filter(|cpu| machine.place(*cpu).cache == cache && allowed(*cpu))
    };
    if let Some(cpu) = near().find(|cpu| core_idle(machine, view, *cpu)) {
        return cpu;
    }
    if view.idle(before) {
        return before;
    }
    near().find(|cpu| view.idle(*cpu)).unwrap_or(before)
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
