//! Balances that were worked out by hand from the kernel's rules.

use crate::machine::{PcpuNumbering, SimMachine, UniformMachine};
use crate::sched::SchedKernel;
use crate::sched::balance::*;

const MS: u64 = 1_000_000;

/// The weights of what is on each CPU's queue.
pub(super) struct Queues<'a>(pub(super) &'a [&'a [u64]]);

impl RunqueueView for Queues<'_> {
    fn idle(&self, cpu: u32) -> bool {
        self.0[cpu as usize].is_empty()
    }

    fn load(&self, cpu: u32) -> usize {
        self.0[cpu as usize].len()
    }
}

impl LoadView for Queues<'_> {
    fn weight(&self, cpu: u32) -> u64 {
        self.0[cpu as usize].iter().sum()
    }

    fn utilization(&self, cpu: u32) -> u64 {
        1024 * u64::from(!self.idle(cpu))
    }
}

fn machine(sockets: u32, cores: u32) -> SimMachine {
    let numbering = PcpuNumbering::CoreByCore;
    SimMachine::of_shape(UniformMachine { sockets, dies: 1, cores, threads: 1, numbering })
}

pub(super) const NEW: [SchedKernel; 3] = [SchedKernel::V5, SchedKernel::V6_6, SchedKernel::V6_12];
pub(super) const OLD: [SchedKernel; 2] = [SchedKernel::V3_6, SchedKernel::V3_13];

/// A busy CPU's search.
fn busy(kernel: SchedKernel, cpu: u32, level: DomainLevel) -> BalanceSearch {
    BalanceSearch { kernel, cpu, level, idleness: BalancerIdleness::Busy }
}

/// CPUs of one cache: from which one CPU 1 takes load, and how much.
fn at_cpu_1(kernel: SchedKernel, queues: &[&[u64]]) -> Option<(u32, u64)> {
    let machine = machine(1, queues.len() as u32);
    let found = busy(kernel, 1, DomainLevel::Cache).find_busiest(&machine, &Queues(queues), &[]);
    found.map(|(from, imbalance)| match imbalance {
        Imbalance::Load(load) => (from, load),
        other => panic!("{other:?}"),
    })
}

/// Two tasks beside one. `calculate_imbalance`: 2048 and 1024 are 512 off their mean. Since
/// 5.5 this is all that may move, and `detach_tasks` lets a task of 1024 go at the second
/// try, when it counts half. Before, `fix_small_imbalance` asks for a whole task, as two
/// tasks of 1024 there are no worse than here.
#[test]
fn one_task_too_many_moves() {
    let queues: [&[u64]; 2] = [&[1024, 1024], &[1024]];
    for kernel in NEW {
        assert_eq!(at_cpu_1(kernel, &queues), Some((0, 512)));
        assert!(is_too_much(kernel, 1024, 512, 0));
        assert!(!is_too_much(kernel, 1024, 512, 1));
    }
    for kernel in OLD {
        assert_eq!(at_cpu_1(kernel, &queues), Some((0, 1024)));
        assert!(!is_too_much(kernel, 1024, 1024, 0));
    }
    // Who has more takes nothing (find_busiest_group).
    let all = |kernel| {
        busy(kernel, 0, DomainLevel::Cache).find_busiest(&machine(1, 2), &Queues(&queues), &[])
    };
    assert!(NEW.into_iter().chain(OLD).all(|kernel| all(kernel).is_none()));
}

/// `group_classify`, `find_busiest_queue`: a task alone on its CPU is nobody's to take,
/// however heavy; within `imbalance_pct` both are even.
#[test]
fn weights_count() {
    for kernel in NEW.into_iter().chain(OLD) {
        assert_eq!(at_cpu_1(kernel, &[&[4096], &[1024, 1024]]), None);
        assert_eq!(at_cpu_1(kernel, &[&[1126, 1126], &[1024, 1024]]), None, "10 % are near");
    }
    // 3072 and 2048: 512 off the mean. Before 5.5 the mean task, of 1536, may move.
    let queues: [&[u64]; 2] = [&[2048, 1024], &[1024, 1024]];
    for kernel in NEW {
        assert_eq!(at_cpu_1(kernel, &queues), Some((0, 512)));
    }
    for kernel in OLD {
        assert_eq!(at_cpu_1(kernel, &queues), Some((0, 1536)));
    }
}

/// `should_we_balance`: a group's first idle CPU balances for it, else its first CPU; so a
/// busy one does nothing where an idle one would.
#[test]
fn one_cpu_of_a_group_balances() {
    let machine = machine(2, 2);
    let one: &[u64] = &[1024];
    let three: &[u64] = &[1024; 3];
    let asks = |queues: &[&[u64]], cpu| {
        let search = busy(SchedKernel::V6_12, cpu, DomainLevel::Machine);
        search.find_busiest(&machine, &Queues(queues), &[])
    };
    // 6 and 2 are 2 off their mean.
    let full = [three, three, one, one];
    assert_eq!(asks(&full, 2), Some((0, Imbalance::Load(2048))));
    assert_eq!(asks(&full, 3), None);
    assert_eq!(asks(&[three, three, one, &[]], 2), None);
    // find_busiest_queue: the busiest CPU of the busiest group; one from which nobody may
    // come is left out (LBF_ALL_PINNED).
    let uneven = [one, three, one, one];
    assert_eq!(asks(&uneven, 2).map(|(cpu, _)| cpu), Some(1));
    let search = busy(SchedKernel::V6_12, 2, DomainLevel::Machine);
    let passed = search.find_busiest(&machine, &Queues(&uneven), &[1]);
    assert_eq!(passed, None);
}

/// `sd_init`, `get_sd_balance_interval`: for two CPUs 2 ms, 16 times as long where busy, one
/// less; before 3.16 1 ms and 64 times. It doubles while all is even, up to twice as much (4
/// times before 3.16), at most 100 ms a CPU, and begins anew when tasks moved.
#[test]
fn even_domains_are_looked_at_less_often() {
    for (kernel, expected) in
        [(SchedKernel::V5, [31, 63, 63, 31]), (SchedKernel::V3_13, [64, 128, 200, 64])]
    {
        let mut clock = BalanceClock::new(&machine(1, 2), kernel, 0, |_| 0);
        let mut now = 0;
        let ends =
            [BalanceEnd::Balanced, BalanceEnd::Balanced, BalanceEnd::Moved, BalanceEnd::Moved];
        for (end, interval_ms) in ends.into_iter().zip(expected) {
            let next = now + interval_ms * MS;
            clock.looked(kernel, 2);
            assert_eq!(clock.next_ns, next, "{kernel:?}");
            let mut is_due =
                |level, now| clock.is_due(level, kernel, 2, BalancerIdleness::Busy, now);
            assert!(!is_due(DomainLevel::Cache, next - 1));
            assert!(is_due(DomainLevel::Cache, next));
            assert!(!is_due(DomainLevel::Core, next), "a core of one thread");
            clock.ended(DomainLevel::Cache, kernel, end, BalancerIdleness::Busy, None);
            now = next;
        }
    }
}

/// `need_active_balance`: the fourth failure in a cache's domain moves who runs, and the
/// next one does again; since 5.12 only where tasks are to be spread
/// (`imbalanced_active_balance`). Who is newly idle counts no failures.
#[test]
fn who_runs_moves_when_nobody_else_can() {
    let load = Imbalance::Load(512);
    for (kernel, imbalance, idleness, expected) in [
        (SchedKernel::V5, load, BalancerIdleness::Busy, [false, false, false, true, false, true]),
        (SchedKernel::V6_6, load, BalancerIdleness::Busy, [false; 6]),
        (
            SchedKernel::V6_6,
            Imbalance::Tasks(1),
            BalancerIdleness::Idle,
            [false, false, false, true, false, true],
        ),
        (SchedKernel::V5, load, BalancerIdleness::NewlyIdle, [false; 6]),
    ] {
        let mut clock = BalanceClock::new(&machine(1, 2), kernel, 0, |_| 0);
        let found = [(); 6].map(|()| {
            let end = BalanceEnd::Failed;
            clock.ended(DomainLevel::Cache, kernel, end, idleness, Some(imbalance))
        });
        assert_eq!(found, expected, "{kernel:?} {imbalance:?} {idleness:?}");
    }
}

/// A search by an idle CPU in a machine of cores with two threads each.
fn idle_at(
    kernel: SchedKernel,
    idleness: BalancerIdleness,
    cpu: u32,
    level: DomainLevel,
    queues: &[&[u64]],
) -> Option<(u32, Imbalance)> {
    let cores = queues.len() as u32 / 2;
    let numbering = PcpuNumbering::CoreByCore;
    let shape = UniformMachine { sockets: 1, dies: 1, cores, threads: 2, numbering };
    let machine = SimMachine::of_shape(shape);
    BalanceSearch { kernel, cpu, level, idleness }.find_busiest(&machine, &Queues(queues), &[])
}

/// `SD_PREFER_SIBLING`: an idle core takes one of two tasks that share another core, which
/// is one too many for it (before 5.5: `group_capacity` of `smt_gain`). A core with one
/// idle thread does not, nor does a busy CPU.
#[test]
fn an_idle_core_takes_one_of_two_that_share_a_core() {
    let (one, none): (&[u64], &[u64]) = (&[1024], &[]);
    for kernel in NEW {
        let ask = |queues: &[&[u64]], cpu, idleness| {
            idle_at(kernel, idleness, cpu, DomainLevel::Cache, queues)
        };
        let shared = [one, one, none, none];
        for idleness in [BalancerIdleness::Idle, BalancerIdleness::NewlyIdle] {
            assert_eq!(ask(&shared, 2, idleness), Some((0, Imbalance::Tasks(1))), "{kernel:?}");
            assert_eq!(ask(&[one, one, one, none], 3, idleness), None, "{kernel:?}");
        }
        // should_we_balance: the first idle CPU does; who is newly idle may always.
        assert_eq!(ask(&shared, 3, BalancerIdleness::Idle), None);
        assert!(ask(&shared, 3, BalancerIdleness::NewlyIdle).is_some());
    }
    for kernel in OLD {
        let shared = [one, one, none, none];
        let found = idle_at(kernel, BalancerIdleness::Idle, 2, DomainLevel::Cache, &shared);
        assert_eq!(found, Some((0, Imbalance::Load(1024))), "{kernel:?}");
    }
}

/// `calculate_imbalance`: within a cache so many tasks move that both have as many idle
/// CPUs; between caches the spare capacity is filled with utilization (`migrate_util`), from
/// a queue on which more than one runs.
#[test]
fn spare_capacity_is_filled() {
    let (two, one, none): (&[u64], &[u64], &[u64]) = (&[1024, 1024], &[1024], &[]);
    for kernel in NEW {
        // Threads of a core: three on one, none here: half of the difference is one.
        let three: &[u64] = &[1024; 3];
        let found = idle_at(kernel, BalancerIdleness::Idle, 1, DomainLevel::Core, &[three, none]);
        assert_eq!(found, Some((0, Imbalance::Tasks(1))), "{kernel:?}");
        // Four sockets of one CPU, as guests without a topology see them.
        let search = BalanceSearch {
            kernel,
            cpu: 3,
            level: DomainLevel::Node,
            idleness: BalancerIdleness::NewlyIdle,
        };
        let flat = SimMachine::flat(4);
        let found = search.find_busiest(&flat, &Queues(&[one, two, one, none]), &[]);
        assert_eq!(found, Some((1, Imbalance::Utilization(1024))), "{kernel:?}");
        assert_eq!(search.find_busiest(&flat, &Queues(&[one, one, one, none]), &[]), None);
    }
}

/// `adjust_numa_imbalance`: until 5.17 two tasks that run in one node stay there, since
/// while less than an eighth of it is busy; three do not.
#[test]
fn a_pair_may_stay_in_its_node() {
    let (one, none): (&[u64], &[u64]) = (&[1024], &[]);
    let machine = machine(2, 4);
    for kernel in NEW {
        let ask = |queues: &[&[u64]]| {
            let (level, idleness) = (DomainLevel::Machine, BalancerIdleness::Idle);
            let search = BalanceSearch { kernel, cpu: 4, level, idleness };
            search.find_busiest(&machine, &Queues(queues), &[])
        };
        assert_eq!(ask(&[one, one, none, none, none, none, none, none]), None, "{kernel:?}");
        let three = [one, one, one, none, none, none, none, none];
        assert_eq!(ask(&three), Some((0, Imbalance::Tasks(1))), "{kernel:?}");
    }
}

/// `newidle_balance`: until 5.15 a CPU whose idle times are shorter than 0.5 ms on average
/// takes nothing; since 3.13 it stops where the look costs more than they last.
#[test]
fn short_idle_times_are_not_worth_a_look() {
    let mut idle = IdleHistory::new();
    assert!(NEW.into_iter().chain(OLD).all(|kernel| idle.is_worth_a_look(kernel)));
    let mut now = 0;
    for _ in 0..40 {
        idle.begins(now);
        now += 20_000;
        idle.ends(now);
        now += 20_000;
    }
    // update_avg: 20 us and (7/8)^40 of 980 us, rounded up by the eighths that are cut.
    let worth: Vec<bool> =
        SchedKernel::ALL.iter().map(|(kernel, _)| idle.is_worth_a_look(*kernel)).collect();
    assert_eq!(worth, [false, false, false, true, true]);
    assert!(idle.pays(SchedKernel::V6_6, 20_000) && !idle.pays(SchedKernel::V6_6, 30_000));
    assert!(idle.pays(SchedKernel::V3_6, 30_000));
    assert_eq!(idle.last_ns, 20_000);
}

/// `___update_load_avg`: half after 32 ms.
#[test]
fn what_was_long_ago_counts_less() {
    let mut average = RunnableAverage::new();
    assert_eq!(average.at(32 * MS, true), 1024);
    assert_eq!(average.at(32 * MS, false), 512);
    assert_eq!(average.at(64 * MS, false), 256);
    average.changes(32 * MS, false);
    assert_eq!(average.at(64 * MS, true), 768);
    assert_eq!(average.at(u64::MAX, false), 0);
}
