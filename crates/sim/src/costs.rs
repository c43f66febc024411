//! What things cost: constants of the layer below the model, each with the range
//! in which it is known and where that comes from.
//!
//! None of them is fitted to a result that the simulator predicts.

use crate::random::Random;

/// What is known of one constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Its name, with its unit.
    pub name: &'static str,
    /// One in ten draws lies below.
    pub low: f64,
    /// Half of the draws lie below.
    pub median: f64,
    /// One in ten draws lies above.
    pub high: f64,
    /// What it is.
    pub what: &'static str,
    /// Where the range comes from.
    pub source: &'static str,
}

/// What was measured of one constant, in place of its prior.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredConstant {
    /// The constant's name.
    pub name: &'static str,
    /// One in ten measurements was below.
    pub low: f64,
    /// Half were.
    pub median: f64,
    /// One in ten was above.
    pub high: f64,
}

macro_rules! costs {
    ($($name:ident: ($low:expr, $median:expr, $high:expr), $what:literal, $source:literal;)*) => {
        /// One value of each constant: ns, or a factor where the name says so.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct CostModel {
            $(#[doc = $what] pub $name: f64,)*
        }

        /// What is known of each constant, in the order of the docs.
        pub const PRIORS: &[Prior] = &[$(Prior {
            name: stringify!($name), low: $low, median: $median, high: $high,
            what: $what, source: $source,
        },)*];

        impl CostModel {
            /// The constants whose values `of` gives.
            pub fn from_each(mut of: impl FnMut(&Prior) -> f64) -> Self {
                let mut priors = PRIORS.iter();
                Self { $($name: of(priors.next().expect("one prior a field")),)* }
            }

            /// The constant called `name`.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<f64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }
        }
    };
}

costs! {
    exit_ns: (600.0, 900.0, 1300.0), "From the guest to the beginning of the exit's handler.",
        "SplitX (HotOS 2011), table 1: 2000 cycles for exit and entry at 2.93 GHz, and KVM's own entry code beside it";
    entry_ns: (600.0, 900.0, 1300.0), "From the end of the handler to the guest.",
        "as exit_ns";
    check_ns: (40.0, 60.0, 90.0), "A cache line of what is looked at of a candidate for a directed yield, or of a queue to balance with.",
        "cache-to-cache transfer between cores of a socket";
    yield_hold_ns: (200.0, 300.0, 450.0), "Run-queue locks held by yield_to().",
        "assumed: two dozen cache lines, some remote";
    sched_hold_ns: (350.0, 500.0, 700.0), "Run-queue lock held by schedule().",
        "assumed: perf sched shows 0.5 to 1 us in __schedule";
    lock_transfer_ns: (40.0, 60.0, 90.0), "Handing a run-queue lock to the next waiter.",
        "cache-to-cache transfer";
    lock_waiter_ns: (15.0, 30.0, 60.0), "More for each further waiter: a ticket lock's line goes to all.",
        "Boyd-Wickizer et al., Non-scalable locks are dangerous (OLS 2012)";
    switch_ns: (1500.0, 2500.0, 4000.0), "Switching the thread on a pCPU, with the vCPU's state.",
        "lmbench lat_ctx with small working sets, and vcpu_load/vcpu_put";
    tick_work_ns: (1000.0, 2000.0, 4000.0), "A tick of the host or of a guest, beside the exits that it makes.",
        "assumed";
    resched_ipi_ns: (600.0, 1000.0, 1500.0), "From a resched IPI's sending to its effect on another pCPU.",
        "IPI latency on bare metal";
    ipi_exit_work_ns: (700.0, 1500.0, 3000.0), "The host's part of sending a guest IPI, beside exit and entry.",
        "assumed: APIC emulation and waking or kicking the target";
    ipi_send_ns: (100.0, 200.0, 400.0), "Sending an IPI without an exit.",
        "an uncached or MSR write";
    irq_ns: (500.0, 1000.0, 2000.0), "The guest's or host's handling of one interrupt.",
        "assumed";
    idle_wake_ns: (5000.0, 20000.0, 50000.0), "Leaving an idle pCPU's C-state after a wake-up.",
        "intel_idle's table: C1E 10 us, C3 20 to 60 us, C6 80 to 130 us";
    halt_work_ns: (1000.0, 2000.0, 4000.0), "kvm_vcpu_block: arming timers, leaving the run queue, beside schedule().",
        "assumed";
    guest_switch_ns: (800.0, 1500.0, 2500.0), "Switching tasks inside a guest, or on a host without guests.",
        "lmbench lat_ctx";
    guest_wake_ns: (700.0, 1500.0, 2500.0), "try_to_wake_up and the system call around it.",
        "perf bench sched messaging: a few us a message";
    handoff_ns: (60.0, 120.0, 250.0), "From one thread's release to another's seeing it.",
        "cache-to-cache transfer, twice";
    smt_compute_factor: (0.57, 0.62, 0.68), "Speed of a thread whose sibling computes too.",
        "cores gain 15 to 35 % by two threads";
    smt_stream_factor: (0.50, 0.55, 0.60), "The same where both stream from memory.",
        "cores gain 0 to 20 %";
    smt_spin_factor: (0.75, 0.85, 0.95), "Speed of a thread whose sibling spins with PAUSE.",
        "assumed: PAUSE frees most of the core";
    remote_memory_cost: (0.4, 0.6, 0.8), "Slow-down of memory-bound work if all of its memory is remote.",
        "remote latency over local, less what caches and prefetch hide";
    idle_wake_short_ns: (1000.0, 2000.0, 10000.0), "As idle_wake_ns, where the sleep was expected to be short.",
        "intel_idle's table: C1 2 us, C1E 10 us";
    idle_short_ns: (20000.0, 100000.0, 200000.0), "Shorter sleeps are expected to be short the next time, as the cpuidle governor does.",
        "intel_idle's table, target residencies: C1E 20 us, C3 100 (Haswell) to 211 us (Sandy Bridge)";
    idle_entry_ns: (1000.0, 2000.0, 3000.0), "From schedule(), which finds nothing, to the idle state, beside writing a timer's deadline.",
        "a traced guest: 2 us, in whole us, from sched_switch to stopping the tick (Gleixner, linux-kernel, 2026-02-24)";
    remote_line_factor: (2.1, 2.7, 2.8), "How much longer a cache line takes from another node.",
        "core-to-core-latency (Viennot): 51 and 108 ns between cores of Ice Lake within and across sockets, 44 and 118 of Broadwell, 48 and 136 of Cascade Lake";
}

impl CostModel {
    /// The medians.
    #[must_use]
    pub fn medians() -> Self {
        Self::from_each(|prior| prior.median)
    }

    /// One draw from the priors: lognormal to either side of the median, cut at
    /// two and a half standard deviations.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        Self::from_each(|prior| prior.draw(random))
    }
}

impl Prior {
    /// One value. Each prior takes as many numbers from the stream, whatever it
    /// is, so that a change of one leaves the others' draws alone.
    pub fn draw(&self, random: &mut Random) -> f64 {
        /// The 90th percentile of the standard normal.
        const TENTH: f64 = 1.281_551_565_544_6;
        let z = random.normal().clamp(-2.5, 2.5);
        let ratio = if z < 0.0 { self.median / self.low } else { self.high / self.median };
        if ratio.is_finite() && ratio > 0.0 {
            self.median * libm::pow(ratio, z / TENTH)
        } else {
            self.median
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_draws_lies_on_either_side() {
        for prior in PRIORS {
            assert!(prior.low < prior.median && prior.median < prior.high, "{}", prior.name);
            let mut random = Random::new(3, 0);
            let drawn: Vec<f64> = (0..20_000).map(|_| prior.draw(&mut random)).collect();
            let below = drawn.iter().filter(|value| **value < prior.low).count();
            let above = drawn.iter().filter(|value| **value > prior.high).count();
            for count in [below, above] {
                assert!((1_850..2_150).contains(&count), "{}: {below} {above}", prior.name);
            }
        }
        let costs = CostModel::medians();
        for prior in PRIORS {
            assert_eq!(costs.get(prior.name), Some(prior.median));
        }
    }

    #[test]
    fn the_docs_show_every_constant() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim-model.md");
        let page = std::fs::read_to_string(path).unwrap();
        for Prior { name, low, median, high, what, source } in PRIORS {
            let row = format!("| `{name}` | {low} | {median} | {high} | {what} | {source} |");
            assert!(page.contains(&row), "docs/sim-model.md lacks\n{row}");
        }
    }
}
