//! What a run cost the guest: counters of `/proc` before and after it.
//!
//! They cover the whole guest, so a busy neighbour counts too. Sources:
//! `proc_stat(5)`, `proc_interrupts`, `proc_softirqs`, `proc_pid_schedstat`
//! and Linux `Documentation/scheduler/sched-stats.rst`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde::Serialize;

/// What a run cost the whole guest.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct GuestCosts {
    /// How long the run took, in seconds.
    pub wall_s: f64,
    /// Time of all vCPUs by what they did, in seconds: `user`, `system`, `steal`...
    pub vcpu_time_s: BTreeMap<&'static str, f64>,
    /// Context switches; absent if `/proc/stat` is.
    pub context_switches: Option<u64>,
    /// Processes and threads that were started.
    pub forks: Option<u64>,
    /// Interrupts of all kinds.
    pub interrupts: Option<u64>,
    /// Interprocessor interrupts by kind: `reschedule`, `call`, `tlb`...
    pub ipis: BTreeMap<&'static str, VcpuCounter>,
    /// Softirqs by kind: `NET_RX`, `SCHED`, `RCU`...
    pub softirqs: BTreeMap<String, u64>,
    /// Wake-ups of threads, local and remote; absent unless the guest counts
    /// them (`sysctl kernel.sched_schedstats=1`).
    pub wakeups: Option<u64>,
}

/// A counter that the kernel keeps for each vCPU.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct VcpuCounter {
    /// The sum.
    pub total: u64,
    /// The vCPUs in the order of the kernel's table.
    pub per_vcpu: Vec<u64>,
}

/// The counters at one moment.
#[derive(Debug)]
pub(crate) struct CounterSnapshot {
    at: Instant,
    counters: GuestCounters,
}

#[derive(Debug, Default, PartialEq)]
struct GuestCounters {
    vcpu_ticks: Vec<u64>,
    context_switches: Option<u64>,
    forks: Option<u64>,
    interrupts: Option<u64>,
    ipis: BTreeMap<&'static str, Vec<u64>>,
    softirqs: BTreeMap<String, u64>,
    wakeups: Option<u64>,
}

/// The columns of the line `cpu` of `/proc/stat`.
const TICKS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// Linux's `USER_HZ`, fixed at 100 on all machines that this program runs on.
const TICKS_PER_S: f64 = 100.0;

/// Rows of `/proc/interrupts` that count IPIs: what the row starts with on
/// x86, or holds on arm64, where the rows are numbered.
const IPIS: [(&str, &str, &str); 3] = [
    ("reschedule", "RES:", "Rescheduling interrupts"),
    ("call", "CAL:", "Function call interrupts"),
    ("tlb", "TLB:", "TLB shootdowns"),
];

impl CounterSnapshot {
    pub(crate) fn now() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let mut counters = GuestCounters::default();
        counters.read_stat(&read("stat"));
        counters.read_interrupts(&read("interrupts"));
        counters.read_softirqs(&read("softirqs"));
        if read("sys/kernel/sched_schedstats").trim() == "1" {
            counters.read_schedstat(&read("schedstat"));
        }
        Self { at: Instant::now(), counters }
    }

    /// What happened since this moment.
    pub(crate) fn costs(&self) -> GuestCosts {
        let now = Self::now();
        now.counters.since(&self.counters, (now.at - self.at).as_secs_f64())
    }
}

impl GuestCounters {
    fn read_stat(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let key = words.next();
            let mut number = || words.next().and_then(|word| word.parse().ok());
            match key {
                Some("cpu") => {
                    self.vcpu_ticks = TICKS.iter().map(|_| number().unwrap_or(0)).collect();
                }
                Some("ctxt") => self.context_switches = number(),
                Some("processes") => self.forks = number(),
                Some("intr") => self.interrupts = number(),
                _ => {}
            }
        }
    }

    fn read_interrupts(&mut self, text: &str) {
        let vcpus = text.lines().next().map_or(0, |line| line.split_whitespace().count());
        for line in text.lines().skip(1) {
            let found = IPIS.iter().find(|(_, row, title)| {
                line.trim_start().starts_with(row)
                    || (line.trim_start().starts_with("IPI") && line.trim_end().ends_with(title))
            });
            if let Some((name, _, _)) = found {
                let counts = line.split_whitespace().skip(1).take(vcpus);
                self.ipis.insert(name, counts.map_while(|word| word.parse().ok()).collect());
            }
        }
    }

    fn read_softirqs(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, counts)) = line.split_once(':') {
                let counts = counts.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
                self.softirqs.insert(name.trim().to_owned(), counts.sum());
            }
        }
    }

    /// The fifth number of each line `cpuN` counts calls of `try_to_wake_up`.
    fn read_schedstat(&mut self, text: &str) {
        self.wakeups = Some(
            text.lines()
                .filter(|line| line.starts_with("cpu"))
                .filter_map(|line| line.split_whitespace().nth(5)?.parse::<u64>().ok())
                .sum(),
        );
    }

    fn since(&self, before: &Self, wall_s: f64) -> GuestCosts {
        let minus = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let ticks = self.vcpu_ticks.iter().zip(&before.vcpu_ticks);
        GuestCosts {
            wall_s,
            vcpu_time_s: TICKS
                .into_iter()
                .zip(ticks.map(|(now, before)| now.saturating_sub(*before) as f64 / TICKS_PER_S))
                .collect(),
            context_switches: minus(self.context_switches, before.context_switches),
            forks: minus(self.forks, before.forks),
            interrupts: minus(self.interrupts, before.interrupts),
            ipis: self
                .ipis
                .iter()
                .filter_map(|(name, now)| {
                    let before = before.ipis.get(name)?;
                    let per_vcpu: Vec<u64> = now
                        .iter()
                        .zip(before)
                        .map(|(now, before)| now.saturating_sub(*before))
                        .collect();
                    Some((*name, VcpuCounter { total: per_vcpu.iter().sum(), per_vcpu }))
                })
                .collect(),
            softirqs: self
                .softirqs
                .iter()
                .filter_map(|(name, now)| {
                    let before = before.softirqs.get(name)?;
                    Some((name.clone(), now.saturating_sub(*before)))
                })
                .collect(),
            wakeups: minus(self.wakeups, before.wakeups),
        }
    }
}

impl GuestCosts {
    /// Interprocessor interrupts of one kind; 0 if the kernel counts none.
    pub(crate) fn ipi(&self, name: &str) -> u64 {
        self.ipis.get(name).map_or(0, |ipi| ipi.total)
    }
}

/// Voluntary and involuntary context switches of the calling thread so far.
pub(crate) fn own_switches() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/status").ok()?;
    let find = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
    };
    Some((find("voluntary_ctxt_switches:")?, find("nonvoluntary_ctxt_switches:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipis_are_found_on_both_machines() {
        for (text, expected) in [
            (
                "           CPU0       CPU1\n  0:  5  0  IO-APIC  2-edge  timer\n\
                 RES:  12  34  Rescheduling interrupts\nCAL:  5  6  Function call interrupts\n\
                 TLB:  7  8  TLB shootdowns\nERR:  0\n",
                vec![("call", vec![5, 6]), ("reschedule", vec![12, 34]), ("tlb", vec![7, 8])],
            ),
            (
                "      CPU0  CPU1\n 11:  9  9  GICv3  27 Level  arch_timer\n\
                 IPI0:   3  4   Rescheduling interrupts\nIPI1:  1  2  Function call interrupts\n\
                 IPI2:  0  0  CPU stop interrupts\n",
                vec![("call", vec![1, 2]), ("reschedule", vec![3, 4])],
            ),
        ] {
            let mut counters = GuestCounters::default();
            counters.read_interrupts(text);
            assert_eq!(counters.ipis.into_iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn differences_are_per_counter() {
        let (mut before, mut after) = (GuestCounters::default(), GuestCounters::default());
        before.read_stat("cpu  10 0 20 30 0 0 0 1 0 0\nintr 100 1 2\nctxt 7\nprocesses 3\n");
        after.read_stat("cpu  15 0 20 40 0 0 0 3 0 0\nintr 150 1 2\nctxt 9\nprocesses 3\n");
        before.read_softirqs("   CPU0 CPU1\n  NET_RX:  1  2\n");
        after.read_softirqs("   CPU0 CPU1\n  NET_RX:  4  9\n");
        after.read_schedstat("version 15\ncpu0 0 0 1 2 42 6\ndomain0 3 0\ncpu1 0 0 1 2 8 6\n");
        let costs = after.since(&before, 1.5);
        assert_eq!(costs.vcpu_time_s["user"], 0.05);
        assert_eq!(costs.vcpu_time_s["steal"], 0.02);
        assert_eq!(costs.context_switches, Some(2));
        assert_eq!(costs.interrupts, Some(50));
        assert_eq!(costs.softirqs["NET_RX"], 10);
        assert_eq!(costs.wakeups, None, "not counted before");
        assert_eq!(after.wakeups, Some(50));
    }
}
