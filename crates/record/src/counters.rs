//! Counters tied to a run: what the hypervisor, the host and the guest did
//! between its start and its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A counter that vmlab knows: its name, unit and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Name, `<where>.<what>[-unit]`.
    pub name: &'static str,
    /// Base unit of the difference.
    pub unit: &'static str,
    /// What it counts, one sentence.
    pub meaning: &'static str,
    /// Where it is read.
    pub source: &'static str,
}

/// The counters with a fixed name. Beside them stand families that the
/// accelerator names itself: `kvm.<stat>` from QMP `query-stats`.
pub const COUNTERS: &[Counter] = &[
    Counter {
        name: "vcpu.run_s",
        unit: "s",
        meaning: "Time that the vCPU threads ran on a pCPU",
        source: "/proc/<pid>/task/<tid>/schedstat field 1",
    },
    Counter {
        name: "vcpu.wait_s",
        unit: "s",
        meaning: "Time that runnable vCPU threads waited for a pCPU (run delay)",
        source: "/proc/<pid>/task/<tid>/schedstat field 2",
    },
    Counter {
        name: "vcpu.timeslices",
        unit: "count",
        meaning: "Times that a vCPU thread was put on a pCPU",
        source: "/proc/<pid>/task/<tid>/schedstat field 3",
    },
    Counter {
        name: "vcpu.migrations",
        unit: "count",
        meaning: "Moves of vCPU threads between pCPUs",
        source: "/proc/<pid>/task/<tid>/sched se.nr_migrations",
    },
    Counter {
        name: "vcpu.switches_voluntary",
        unit: "count",
        meaning: "Times that a vCPU thread gave up its pCPU (halt, lock)",
        source: "/proc/<pid>/task/<tid>/status voluntary_ctxt_switches",
    },
    Counter {
        name: "vcpu.switches_involuntary",
        unit: "count",
        meaning: "Times that a vCPU thread was preempted",
        source: "/proc/<pid>/task/<tid>/status nonvoluntary_ctxt_switches",
    },
    Counter {
        name: "qemu.other_run_s",
        unit: "s",
        meaning: "Time that QEMU's other threads (emulator, I/O) ran, to about 20 ms",
        source: "/proc/<pid>/stat utime and stime, less vcpu.run_s",
    },
    Counter {
        name: "qemu.anon_huge_bytes",
        unit: "B",
        meaning: "Guest memory backed by transparent huge pages at the run's end",
        source: "/proc/<pid>/smaps_rollup AnonHugePages",
    },
    Counter {
        name: "host.steal_s",
        unit: "s",
        meaning: "Time that this host's own hypervisor took from it",
        source: "/proc/stat steal",
    },
    Counter {
        name: "host.busy_s",
        unit: "s",
        meaning: "pCPU time used by everything on the host",
        source: "/proc/stat",
    },
    Counter {
        name: "host.pressure_cpu_s",
        unit: "s",
        meaning: "Time in which some task waited for a pCPU",
        source: "/proc/pressure/cpu some total",
    },
    Counter {
        name: "host.pressure_memory_s",
        unit: "s",
        meaning: "Time in which some task waited for memory",
        source: "/proc/pressure/memory some total",
    },
    Counter {
        name: "host.pressure_io_s",
        unit: "s",
        meaning: "Time in which some task waited for I/O",
        source: "/proc/pressure/io some total",
    },
    Counter {
        name: "load.run_s",
        unit: "s",
        meaning: "Time that the generated host load ran on a pCPU",
        source: "/proc/<pid>/stat utime and stime of the load's processes",
    },
    Counter {
        name: "guest.steal_s",
        unit: "s",
        meaning: "Steal time as the guest sees it",
        source: "guest /proc/stat steal",
    },
    Counter {
        name: "guest.idle_s",
        unit: "s",
        meaning: "Idle time of the guest's vCPUs",
        source: "guest /proc/stat idle",
    },
    Counter {
        name: "guest.context_switches",
        unit: "count",
        meaning: "Context switches in the guest",
        source: "guest /proc/stat ctxt",
    },
    Counter {
        name: "guest.interrupts",
        unit: "count",
        meaning: "Interrupts that the guest served",
        source: "guest /proc/stat intr",
    },
    Counter {
        name: "guest.ipi_reschedule",
        unit: "count",
        meaning: "Rescheduling IPIs in the guest",
        source: "guest /proc/interrupts RES (x86), IPI Rescheduling (arm64)",
    },
    Counter {
        name: "guest.ipi_call_function",
        unit: "count",
        meaning: "Call-function IPIs in the guest",
        source: "guest /proc/interrupts CAL (x86), IPI Function call (arm64)",
    },
    Counter {
        name: "guest.tlb_shootdowns",
        unit: "count",
        meaning: "TLB shootdowns in the guest",
        source: "guest /proc/interrupts TLB (x86)",
    },
    Counter {
        name: "guest.timer_interrupts",
        unit: "count",
        meaning: "Local timer interrupts in the guest",
        source: "guest /proc/interrupts LOC (x86), arch_timer (arm64)",
    },
];

/// The table's row for `name`, if it has one.
#[must_use]
pub fn counter(name: &str) -> Option<&'static Counter> {
    COUNTERS.iter().find(|counter| counter.name == name)
}

/// Values of counters at one moment, or their differences over a run.
///
/// A counter that could not be read is absent; it is never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CounterSet(pub BTreeMap<String, f64>);

impl CounterSet {
    /// Sets `name` to `value`.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Adds `value` to `name`, which starts at zero.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        *self.0.entry(name.into()).or_insert(0.0) += value;
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Takes over all values of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The differences from `before` to `self`, for the counters that both
    /// have. Levels (names ending in `_bytes`) are kept as they are now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&String, &f64)| {
            if name.ends_with("_bytes") {
                return Some((name.clone(), *now));
            }
            before.get(name).map(|then| (name.clone(), now - then))
        };
        Self(self.0.iter().filter_map(difference).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_need_both_ends_and_levels_stay() {
        let mut before = CounterSet::default();
        before.set("vcpu.run_s", 1.0);
        let mut after = CounterSet::default();
        after.set("vcpu.run_s", 3.5);
        after.set("kvm.exits", 7.0);
        after.set("qemu.anon_huge_bytes", 4096.0);
        let moved = after.since(&before);
        assert_eq!(moved.get("vcpu.run_s"), Some(2.5));
        assert_eq!(moved.get("kvm.exits"), None);
        assert_eq!(moved.get("qemu.anon_huge_bytes"), Some(4096.0));
    }

    #[test]
    fn names_are_unique_and_say_their_unit() {
        for (i, a) in COUNTERS.iter().enumerate() {
            assert!(COUNTERS[i + 1..].iter().all(|b| b.name != a.name), "{} twice", a.name);
            assert_eq!(a.unit == "s", a.name.ends_with("_s"), "{}: unit and name disagree", a.name);
        }
    }
}
