//! From counters that only rise to what each hour had.
//!
//! Two readings of the same VM in the same boot make an interval: what was counted in it, and
//! how long its vCPUs were there. Its length is by the clock that is never set, its place by
//! the wall's clock at its end, so that a wall's clock that jumps moves intervals and makes
//! none up. An interval across hours falls to each by its part of the time.

use std::collections::{BTreeMap, BTreeSet};

use record::Environment;

/// Longer intervals are gaps: nobody knows when in them something was counted.
pub const LONGEST_INTERVAL_MS: i64 = 2 * HOUR_MS;

const HOUR_MS: i64 = 3_600_000;

/// A value of a metric's counters at one moment, of one VM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountedValue {
    /// Seconds since 1970 by the wall's clock.
    pub unix_s: i64,
    /// Time since the host's boot, ms.
    pub since_boot_ms: i64,
    /// The counter.
    pub value: f64,
    /// What it is divided by, where that is a counter.
    pub per: Option<f64>,
}

/// What an hour had, of all VMs of a host together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HourTotal {
    /// What was counted.
    pub counted: f64,
    /// What it is divided by: the other counter, or vCPU seconds.
    pub per: f64,
    /// vCPU seconds that were watched.
    pub watched_s: f64,
}

/// What the hours of one host had. Hours are counted from 1970, UTC.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostHours {
    /// The host's name.
    pub host: String,
    /// By hour.
    pub hours: BTreeMap<i64, HourTotal>,
    /// In what it was measured.
    pub environments: BTreeSet<Environment>,
    /// Intervals that are gaps.
    pub gaps: u64,
    /// Counters that went back without a new VM or boot.
    pub went_back: u64,
}

impl HostHours {
    /// Adds what was counted of one VM with `vcpus` between two readings in the same boot.
    pub fn add(&mut self, earlier: &CountedValue, later: &CountedValue, vcpus: u32) {
        let length_ms = later.since_boot_ms - earlier.since_boot_ms;
        if length_ms <= 0 {
            return;
        }
        if length_ms > LONGEST_INTERVAL_MS {
            self.gaps += 1;
            return;
        }
        let watched_s = length_ms as f64 / 1e3 * f64::from(vcpus);
        let counted = later.value - earlier.value;
        let per = match (earlier.per, later.per) {
            (Some(earlier), Some(later)) => later - earlier,
            (None, None) => watched_s,
            _ => return,
        };
        // Also what is not a number.
        if !(counted >= 0.0 && per >= 0.0) {
            self.went_back += 1;
            return;
        }
        let Some(end_ms) = later.unix_s.checked_mul(1000) else { return };
        let begin_ms = end_ms.saturating_sub(length_ms);
        let mut at_ms = begin_ms;
        while at_ms < end_ms {
            let hour = at_ms.div_euclid(HOUR_MS);
            let until_ms = end_ms.min((hour + 1).saturating_mul(HOUR_MS));
            let part = (until_ms - at_ms) as f64 / length_ms as f64;
            let total = self.hours.entry(hour).or_default();
            total.counted += counted * part;
            total.per += per * part;
            total.watched_s += watched_s * part;
            at_ms = until_ms;
        }
    }

    /// The logarithm of the metric in each hour that was watched. An hour with less than
    /// `least` counted counts as if `least` had been, for nothing has no logarithm.
    #[must_use]
    pub fn logarithms(&self, least: f64) -> Vec<(i64, f64)> {
        let hours = self.hours.iter().filter(|(_, total)| total.per > 0.0);
        hours.map(|(hour, total)| (*hour, (total.counted.max(least) / total.per).ln())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_counted_is_neither_lost_nor_made_up(
            steps in proptest::collection::vec(
                (any::<i32>(), -100_i64..20_000, -50.0..100_f64, 1..64_u32), 1..40)
        ) {
            let mut hours = HostHours::default();
            let (mut since_boot_s, mut value) = (0, 0.0);
            let (mut counted, mut watched_s) = (0.0, 0.0);
            // A wall's clock that jumps as it likes.
            for (unix_s, seconds, more, vcpus) in steps {
                let before = at(0, since_boot_s, value);
                let now = at(unix_s.into(), since_boot_s + seconds, value + more);
                hours.add(&before, &now, vcpus);
                if (1..=7200).contains(&seconds) && now.value >= before.value {
                    counted += now.value - before.value;
                    watched_s += seconds as f64 * f64::from(vcpus);
                }
                (since_boot_s, value) = (since_boot_s + seconds, value + more);
            }
            let total = |of: fn(&HourTotal) -> f64| hours.hours.values().map(of).sum::<f64>();
            prop_assert!((total(|hour| hour.counted) - counted).abs() < 1e-6);
            prop_assert!((total(|hour| hour.watched_s) - watched_s).abs() < 1e-6 * watched_s.max(1.0));
            prop_assert!(hours.logarithms(1.0).iter().all(|(_, value)| value.is_finite()));
        }
    }

    fn at(unix_s: i64, since_boot_s: i64, value: f64) -> CountedValue {
        CountedValue { unix_s, since_boot_ms: since_boot_s * 1000, value, per: None }
    }

    #[test]
    fn an_interval_falls_to_its_hours_by_time() {
        let mut hours = HostHours::default();
        // From 3000 s to 4200 s: 600 s in each of two hours.
        hours.add(&at(3000, 100, 10.0), &at(4200, 1300, 34.0), 2);
        let half = HourTotal { counted: 12.0, per: 1200.0, watched_s: 1200.0 };
        assert_eq!(hours.hours, [(0, half), (1, half)].into());
        let logs = hours.logarithms(1.0);
        assert!(logs.len() == 2 && (logs[0].1 - 0.01_f64.ln()).abs() < 1e-12, "{logs:?}");
    }

    #[test]
    fn clocks_gaps_and_counters_that_go_back_make_nothing_up() {
        let mut hours = HostHours::default();
        // The wall's clock was set back by a day: the length is still ten minutes.
        hours.add(&at(100_000, 1000, 0.0), &at(14_200, 1600, 6.0), 1);
        let total = HourTotal { counted: 6.0, per: 600.0, watched_s: 600.0 };
        assert_eq!(hours.hours, [(3, total)].into());
        // And far forward.
        hours.add(&at(14_200, 1600, 6.0), &at(i64::MAX, 2200, 7.0), 1);
        hours.add(&at(14_200, 1600, 6.0), &at(i64::MAX / 1000, 2200, 7.0), 1);
        assert_eq!(hours.hours.len(), 2);
        let before = hours.hours.clone();
        hours.add(&at(0, 100, 0.0), &at(7300, 7400, 1.0), 1);
        hours.add(&at(0, 100, 0.0), &at(0, 100, 1.0), 1);
        hours.add(&at(0, 200, 0.0), &at(0, 100, 1.0), 1);
        hours.add(&at(0, 100, 5.0), &at(60, 160, 1.0), 1);
        hours.add(&at(0, 100, 5.0), &at(60, 160, f64::NAN), 1);
        assert_eq!((hours.gaps, hours.went_back, hours.hours), (1, 2, before));
    }

    #[test]
    fn a_counter_by_another_needs_both() {
        let mut hours = HostHours::default();
        let of = |time, value, per| CountedValue { per, ..at(time, time, value) };
        hours.add(&of(0, 1.0, Some(10.0)), &of(60, 3.0, Some(14.0)), 8);
        hours.add(&of(60, 3.0, Some(14.0)), &of(120, 4.0, None), 8);
        let total = HourTotal { counted: 2.0, per: 4.0, watched_s: 480.0 };
        assert_eq!(hours.hours, [(0, total)].into());
        // Nothing counted is not nothing known.
        let mut idle = HostHours::default();
        idle.add(&at(0, 0, 5.0), &at(100, 100, 5.0), 1);
        assert_eq!(idle.logarithms(1.0), [(0, 0.01_f64.ln())]);
    }
}
