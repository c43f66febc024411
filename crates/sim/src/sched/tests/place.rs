//! Placements that were worked out by hand from the kernel's rules.

use super::balance::{NEW, OLD, Queues};
use crate::machine::{PcpuNumbering, SimMachine, UniformMachine};
use crate::sched::SchedKernel;
use crate::sched::balance::IdleHistory;
use crate::sched::place::*;

const NONE: &[u64] = &[];
const ONE: &[u64] = &[1024];
const TWO: &[u64] = &[1024, 1024];

fn machine(sockets: u32, cores: u32, threads: u32) -> SimMachine {
    let numbering = PcpuNumbering::CoreByCore;
    SimMachine::of_shape(UniformMachine { sockets, dies: 1, cores, threads, numbering })
}

/// A task of 1024 that ran on CPU `before` and is woken by the one that runs on another.
fn wakeup(kernel: SchedKernel, before: u32, waker: Option<u32>, sync: bool) -> TaskWakeup {
    let waker = waker.map(|cpu| WakingCpu { cpu, current_load: 1024, is_wide: false, sync });
    TaskWakeup { kernel, before, waker, load: 1024, idle: IdleHistory::new(), look_ns: 60 }
}

fn placed(wakeup: TaskWakeup, machine: &SimMachine, queues: &[&[u64]]) -> u32 {
    wakeup.place(machine, &Queues(queues), |_| true)
}

/// `select_idle_sibling`: an idle CPU where it ran is taken although its core is busy; else a
/// core that is idle; else an idle thread of its own core, from 4.x on of others too.
#[test]
fn where_it_ran_comes_first() {
    let machine = machine(1, 3, 2);
    for kernel in NEW.into_iter().chain(OLD) {
        let at = |queues: &[&[u64]]| placed(wakeup(kernel, 0, None, false), &machine, queues);
        assert_eq!(at(&[NONE, ONE, NONE, NONE, ONE, ONE]), 0, "{kernel:?}");
        assert_eq!(at(&[ONE, NONE, ONE, ONE, NONE, NONE]), 4, "{kernel:?}");
        assert_eq!(at(&[ONE, NONE, ONE, ONE, ONE, ONE]), 1, "{kernel:?}");
        let other = at(&[ONE, ONE, ONE, NONE, ONE, ONE]);
        // SIS_UTIL does not look where five of six are used.
        assert_eq!(other, if kernel == SchedKernel::V5 { 3 } else { 0 }, "{kernel:?}");
        assert_eq!(at(&[ONE; 6]), 0, "{kernel:?}");
    }
}

/// `wake_affine`: vCPUs without a topology share no cache. A sync wake-up by one that is
/// alone brings the task to it, else it stays where it ran if that is idle (`wake_affine_idle`,
/// since 4.15) or where less would run (`wake_affine_weight`): before, all loads were weighed.
#[test]
fn tasks_are_pulled_to_who_wakes_them() {
    let flat = SimMachine::flat(3);
    for kernel in NEW.into_iter().chain(OLD) {
        let at = |sync, queues: &[&[u64]]| placed(wakeup(kernel, 0, Some(2), sync), &flat, queues);
        assert_eq!(at(true, &[NONE, NONE, ONE]), 2, "{kernel:?}");
        assert_eq!(at(false, &[NONE, NONE, ONE]), 0, "{kernel:?}");
        // One here and the task are 2048 beside 2048 there, 8 % (before 12 %) in its favour.
        assert_eq!(at(false, &[TWO, NONE, ONE]), 2, "{kernel:?}");
        assert_eq!(at(false, &[TWO, NONE, TWO]), 0, "{kernel:?}");
        // The waker goes: 2048 with the task here.
        assert_eq!(at(true, &[TWO, NONE, TWO]), 2, "{kernel:?}");
        // Nothing there, and two here of which one goes.
        assert_eq!(at(true, &[NONE, NONE, TWO]), 0, "{kernel:?}");
    }
}

/// `wake_affine_idle`: an idle CPU that shares the cache and wakes it (an interrupt) has it,
/// unless where it ran is idle too.
#[test]
fn an_idle_waker_of_the_same_cache_has_it() {
    let machine = machine(2, 2, 1);
    for kernel in NEW {
        let at = |waker, queues: &[&[u64]]| {
            placed(wakeup(kernel, 0, Some(waker), false), &machine, queues)
        };
        assert_eq!(at(1, &[TWO, NONE, NONE, NONE]), 1);
        assert_eq!(at(1, &[NONE, NONE, NONE, NONE]), 0);
        // Across caches the loads decide, and the search is below the one that is chosen.
        assert_eq!(at(2, &[TWO, TWO, ONE, NONE]), 3);
    }
}

/// `wake_wide`, since 3.12: who wakes many, and oftener than CPUs share its cache, pulls
/// nobody.
#[test]
fn who_wakes_many_pulls_nobody() {
    let (mut waker, mut wakee) = (WakeeFlips::default(), WakeeFlips::default());
    for round in 0..8 {
        waker.record(100 + round, 0);
    }
    wakee.record(7, 0);
    wakee.record(7, 0);
    // 8 and 1 flips: wide for one CPU, not for two.
    assert!(waker.is_wide(wakee, SchedKernel::V3_13, 1));
    assert!(!waker.is_wide(wakee, SchedKernel::V3_13, 2));
    assert!(!waker.is_wide(wakee, SchedKernel::V3_6, 1));
    wakee.record(8, 0);
    assert!(waker.is_wide(wakee, SchedKernel::V6_12, 2), "8 >= 2 * 2");
    // Each second halves: 4, and 1 of 2 and one more.
    waker.record(107, 2_000_000_000);
    assert!(!waker.is_wide(wakee, SchedKernel::V6_12, 3));
    let flat = SimMachine::flat(3);
    let mut wide = wakeup(SchedKernel::V5, 0, Some(2), true);
    assert_eq!(placed(wide, &flat, &[NONE, NONE, ONE]), 2);
    wide.waker.as_mut().unwrap().is_wide = true;
    assert_eq!(placed(wide, &flat, &[NONE, NONE, ONE]), 0);
}

/// `select_idle_cpu`: until 5.19 (`SIS_PROP`) a CPU whose idle times are short looks at two others;
/// since (`SIS_UTIL`) 1 - (1.17 u)^2 of the CPUs are looked at: of 32 that are used to 26/32
/// 3, to 28/32 none.
#[test]
fn the_search_is_bounded() {
    let machine = machine(1, 32, 1);
    let busy = |idle_from: usize, idle: usize| {
        let mut queues = vec![ONE; 32];
        queues[idle_from..idle_from + idle].fill(NONE);
        queues
    };
    let short = {
        let mut idle = IdleHistory::new();
        for now in 0..100 {
            idle.begins(now * 10_000);
            idle.ends(now * 10_000 + 5_000);
        }
        idle
    };
    let mut task = wakeup(SchedKernel::V5, 0, None, false);
    assert_eq!(placed(task, &machine, &busy(26, 6)), 26, "a 512th of 1 ms is 32 looks");
    task.idle = short;
    assert_eq!(placed(task, &machine, &busy(26, 6)), 0);
    assert_eq!(placed(task, &machine, &busy(2, 6)), 2);
    assert_eq!(placed(task, &machine, &busy(3, 6)), 0);
    for kernel in [SchedKernel::V6_6, SchedKernel::V6_12] {
        let task = wakeup(kernel, 0, None, false);
        // (26/32 * 1.17)^2 = 0.904: 3.08 of 32.
        assert_eq!(placed(task, &machine, &busy(3, 6)), 3, "{kernel:?}");
        assert_eq!(placed(task, &machine, &busy(4, 6)), 0, "{kernel:?}");
        assert_eq!(placed(task, &machine, &busy(1, 4)), 0, "{kernel:?}");
    }
}
