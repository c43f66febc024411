//! Balances that were worked out by hand from the kernel's rules.

use crate::machine::{PcpuNumbering, SimMachine, UniformMachine};
use crate::sched::SchedKernel;
use crate::sched::balance::*;
use crate::sched::place::RunqueueView;

const MS: u64 = 1_000_000;

/// The weights of what is on each CPU's queue.
struct Queues<'a>(&'a [&'a [u64]]);

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
}

fn machine(sockets: u32, cores: u32) -> SimMachine {
    let numbering = PcpuNumbering::CoreByCore;
    SimMachine::of_shape(UniformMachine { sockets, dies: 1, cores, threads: 1, numbering })
}

const NEW: [SchedKernel; 3] = [SchedKernel::V5, SchedKernel::V6_6, SchedKernel::V6_12];
const OLD: [SchedKernel; 2] = [SchedKernel::V3_6, SchedKernel::V3_13];

/// CPUs of one cache: from which one CPU 1 takes load, and how much.
fn at_cpu_1(kernel: SchedKernel, queues: &[&[u64]]) -> Option<(u32, u64)> {
    let machine = machine(1, queues.len() as u32);
    find_busiest(&machine, kernel, &Queues(queues), 1, DomainLevel::Cache, &[])
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
    let all =
        |kernel| find_busiest(&machine(1, 2), kernel, &Queues(&queues), 0, DomainLevel::Cache, &[]);
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
        let kernel = SchedKernel::V6_12;
        find_busiest(&machine, kernel, &Queues(queues), cpu, DomainLevel::Machine, &[])
    };
    // 6 and 2 are 2 off their mean.
    let full = [three, three, one, one];
    assert_eq!(asks(&full, 2), Some((0, 2048)));
    assert_eq!(asks(&full, 3), None);
    assert_eq!(asks(&[three, three, one, &[]], 2), None);
    // find_busiest_queue: the busiest CPU of the busiest group; one from which nobody may
    // come is left out (LBF_ALL_PINNED).
    let uneven = [one, three, one, one];
    assert_eq!(asks(&uneven, 2).map(|(cpu, _)| cpu), Some(1));
    let passed =
        find_busiest(&machine, SchedKernel::V6_12, &Queues(&uneven), 2, DomainLevel::Machine, &[1]);
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
            assert!(!clock.is_due(DomainLevel::Cache, kernel, 2, next - 1));
            assert!(clock.is_due(DomainLevel::Cache, kernel, 2, next));
            assert!(!clock.is_due(DomainLevel::Core, kernel, 2, next), "a core of one thread");
            clock.ended(DomainLevel::Cache, kernel, end);
            now = next;
        }
    }
}

/// `need_active_balance`: the fourth failure in a cache's domain moves who runs, and the
/// next one does again.
#[test]
fn who_runs_moves_when_nobody_else_can() {
    let kernel = SchedKernel::V6_6;
    let mut clock = BalanceClock::new(&machine(1, 2), kernel, 0, |_| 0);
    let mut fails = || clock.ended(DomainLevel::Cache, kernel, BalanceEnd::Failed);
    assert_eq!([fails(), fails(), fails(), fails()], [false, false, false, true]);
    assert_eq!([fails(), fails()], [false, true]);
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
