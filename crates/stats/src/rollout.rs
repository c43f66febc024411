//! A change that some hosts of a fleet got and others did not: differences in differences
//! by hour of the week, looked at every day.
//!
//! What the hosts without the change have in common at an hour is taken from all; what a
//! host had at that hour of the week before the change is taken from what it has after it.
//! The mean of what is left over all hours since the change is *one number a host*, and the
//! two cohorts are compared by Welch's t over hosts. So nothing is assumed of how a host's
//! hours and days hang together, which is where differences in differences usually go wrong:
//! a host with a mind of its own counts as one host, however many days it is watched.
//!
//! The interval may be looked at every day for ever: each day has a share of the rate of
//! false claims ([`look_share`]), and the shares add up to all of it. A sum over looks holds
//! whatever the looks have to do with each other.
//!
//! Sources: M. Bertrand, E. Duflo, S. Mullainathan, "How Much Should We Trust
//! Differences-in-Differences Estimates?", Quarterly Journal of Economics 119 (2004), section
//! IV.C (before and after as one number each); S. Donald, K. Lang, "Inference with
//! Difference-in-Differences and Other Panel Data", Review of Economics and Statistics 89
//! (2007) (t over groups); D. Darling, H. Robbins, "Confidence Sequences for Mean, Variance,
//! and Median", PNAS 58 (1967), and S. Howard, A. Ramdas, J. McAuliffe, J. Sekhon,
//! "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49
//! (2021), section 3.1 (an interval at every time from a sum over epochs, whose shares
//! `1 / (k (k + 1))` are those here).

use std::collections::BTreeSet;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::student::{moments, student_critical_df};
use crate::{BetterDirection, Interval, welch};

/// Hours of a week.
const WEEK: i64 = 168;

/// Hours of a day.
const DAY: i64 = 24;

/// A host counts in a look when it has at least this part of the hours since the change.
const LEAST_PART: f64 = 0.25;

/// Hosts that a cohort needs to be compared at all.
pub const LEAST_HOSTS: u32 = 2;

/// What one host's metric was, hour by hour.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetHost {
    /// Whether it gets the change.
    pub changed: bool,
    /// The hour, counted from any beginning, and the logarithm of the metric in it. In any
    /// order; an hour that is there twice counts as its mean, one that is missing is missing.
    pub hours: Vec<(i64, f64)>,
}

/// When is before the change, and when after it, in hours as [`FleetHost`] counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutTimes {
    /// With which hours afterwards are compared.
    pub before: Range<i64>,
    /// Since when the change is there, and how far its hours are known.
    pub after: Range<i64>,
}

impl RolloutTimes {
    /// Whole days since the change.
    #[must_use]
    pub fn days(&self) -> u32 {
        u32::try_from((self.after.end.saturating_sub(self.after.start)) / DAY).unwrap_or(0)
    }
}

/// What is asked of a roll-out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RolloutRule {
    /// The rate of false claims over all looks together.
    pub alpha: f64,
    /// The harm that must be excluded before the change goes further, as the logarithm of a
    /// ratio; above 0.
    pub margin: f64,
    /// Which way the metric is better.
    pub better: BetterDirection,
}

/// What to do with a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutStep {
    /// Give it to more hosts: a harm as large as the margin is excluded.
    Widen,
    /// Neither is shown yet.
    Wait,
    /// Take it back: it does harm, and that may be larger than the margin.
    Stop,
}

/// What one day's look says.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutLook {
    /// Days since the change, from 1.
    pub day: u32,
    /// Its share of the rate of false claims.
    pub alpha: f64,
    /// Hosts that count, without and with the change.
    pub hosts: [u32; 2],
    /// Logarithm of the ratio with by without the change; absent with too few hosts.
    pub effect: Option<f64>,
    /// The interval of `effect`, at a level of 1 less this look's share: it holds the truth
    /// at all looks together as often as the rule asks for.
    pub interval: Option<Interval>,
    /// What to do.
    pub step: RolloutStep,
}

/// The part of all false claims that the look at `day`, from 1, may make. Week `k` has
/// `1 / (k (k + 1))`; most of it has its last day, for whole weeks say most. All of them add
/// up to 1.
#[must_use]
pub fn look_share(day: u32) -> f64 {
    if day == 0 {
        return 0.0;
    }
    let week = f64::from((day - 1) / 7 + 1);
    let of_week = if day.is_multiple_of(7) { 0.7 } else { 0.05 };
    of_week / (week * (week + 1.0))
}

impl RolloutRule {
    /// What to do where the effect lies in `interval`.
    #[must_use]
    pub fn step(&self, interval: Option<&Interval>) -> RolloutStep {
        let Some(interval) = interval else { return RolloutStep::Wait };
        // As harm: more is worse.
        let (lo, hi) = match self.better {
            BetterDirection::Lower => (interval.lo, interval.hi),
            BetterDirection::Higher => (-interval.hi, -interval.lo),
        };
        if hi < self.margin {
            RolloutStep::Widen
        } else if lo > 0.0 {
            RolloutStep::Stop
        } else {
            RolloutStep::Wait
        }
    }
}

/// What is left of each host's hours after the change, added up by day.
struct Remainders {
    changed: bool,
    /// Up to the end of each day: the sum, and of how many hours.
    by_day: Vec<(f64, u32)>,
}

impl Remainders {
    /// The host's number at the look of `day`, if enough of its hours are known.
    fn at(&self, day: u32) -> Option<f64> {
        let (sum, hours) = *self.by_day.get(day.checked_sub(1)? as usize)?;
        let enough = f64::from(hours) >= LEAST_PART * f64::from(day) * DAY as f64;
        (hours > 0 && enough).then(|| sum / f64::from(hours))
    }
}

/// A host's hours in order, each once; what is no finite number is left out.
fn in_order(host: &FleetHost) -> Vec<(i64, f64)> {
    let mut hours: Vec<(i64, f64)> =
        host.hours.iter().copied().filter(|(_, value)| value.is_finite()).collect();
    hours.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let groups = hours.chunk_by(|a, b| a.0 == b.0);
    let mean = |group: &[(i64, f64)]| {
        let sum: f64 = group.iter().map(|(_, value)| value).sum();
        (group[0].0, sum / group.len() as f64)
    };
    groups.map(mean).collect()
}

/// Means by place, of values that are added one after the other.
struct Means {
    sums: Vec<(f64, u32)>,
}

impl Means {
    fn new(places: usize) -> Self {
        Self { sums: vec![(0.0, 0); places] }
    }

    fn add(&mut self, place: usize, value: f64) {
        self.sums[place].0 += value;
        self.sums[place].1 += 1;
    }

    fn of(&self, place: usize) -> Option<f64> {
        let (sum, count) = self.sums[place];
        (count > 0).then(|| sum / f64::from(count))
    }
}

/// Rounds in which hosts' levels and hours' levels are told apart; where nothing is missing,
/// the first one does.
const ROUNDS: u32 = 50;

/// Takes from each host what all have in common and what it had before.
fn remainders(hosts: &[FleetHost], times: &RolloutTimes) -> Vec<Remainders> {
    let series: Vec<Vec<(i64, f64)>> = hosts.iter().map(in_order).collect();
    let within = |hour: i64| times.before.contains(&hour) || times.after.contains(&hour);
    let known: BTreeSet<i64> =
        series.iter().flatten().map(|(hour, _)| *hour).filter(|hour| within(*hour)).collect();
    let known: Vec<i64> = known.into_iter().collect();
    // Each value with the place of its hour among those that are known at all.
    let placed: Vec<Vec<(usize, f64)>> = series
        .iter()
        .map(|hours| {
            let mut place = 0;
            let inside = hours.iter().filter(|(hour, _)| within(*hour));
            inside
                .map(|&(hour, value)| {
                    while known[place] < hour {
                        place += 1;
                    }
                    (place, value)
                })
                .collect()
        })
        .collect();
    let first_after = known.partition_point(|hour| *hour < times.after.start);
    let unchanged = || hosts.iter().zip(&placed).filter(|(host, _)| !host.changed);

    // Before: levels of hosts and levels of hours, one after the other until they stay.
    let mut levels: Vec<f64> = Vec::new();
    let mut common = vec![None; first_after];
    for round in 0..ROUNDS {
        let mut hours = Means::new(first_after);
        for (index, (_, values)) in unchanged().enumerate() {
            let level = levels.get(index).copied().unwrap_or(0.0);
            for &(place, value) in values.iter().take_while(|(place, _)| *place < first_after) {
                hours.add(place, value - level);
            }
        }
        let mut moved = 0.0_f64;
        for (place, common) in common.iter_mut().enumerate() {
            let new = hours.of(place);
            moved = moved.max((new.unwrap_or(0.0) - common.unwrap_or(0.0)).abs());
            *common = new;
        }
        if round > 0 && moved < 1e-12 {
            break;
        }
        levels = unchanged()
            .map(|(_, values)| {
                let mut mean = Means::new(1);
                for &(place, value) in values.iter().take_while(|(place, _)| *place < first_after) {
                    if let Some(common) = common[place] {
                        mean.add(0, value - common);
                    }
                }
                mean.of(0).unwrap_or(0.0)
            })
            .collect();
    }

    // After: what a host has less what it had at that hour of the week.
    let slot = |place: usize| known[place].rem_euclid(WEEK) as usize;
    let changes: Vec<Vec<(usize, f64)>> = placed
        .iter()
        .map(|values| {
            let mut usual = Means::new(WEEK as usize);
            let split = values.partition_point(|(place, _)| *place < first_after);
            for &(place, value) in &values[..split] {
                if let Some(common) = common[place] {
                    usual.add(slot(place), value - common);
                }
            }
            let change = |&(place, value): &(usize, f64)| {
                usual.of(slot(place)).map(|usual| (place, value - usual))
            };
            values[split..].iter().filter_map(change).collect()
        })
        .collect();
    let mut shared = Means::new(known.len());
    for (_, changes) in hosts.iter().zip(&changes).filter(|(host, _)| !host.changed) {
        changes.iter().for_each(|&(place, change)| shared.add(place, change));
    }
    let days = times.days() as usize;
    hosts
        .iter()
        .zip(&changes)
        .map(|(host, changes)| {
            let mut by_day = vec![(0.0, 0_u32); days];
            for &(place, change) in changes {
                let day = ((known[place] - times.after.start) / DAY) as usize;
                if let (Some(shared), Some(cell)) = (shared.of(place), by_day.get_mut(day)) {
                    cell.0 += change - shared;
                    cell.1 += 1;
                }
            }
            let mut total = (0.0, 0);
            for cell in &mut by_day {
                total = (total.0 + cell.0, total.1 + cell.1);
                *cell = total;
            }
            Remainders { changed: host.changed, by_day }
        })
        .collect()
}

/// The most degrees of freedom that two cohorts of such sizes have: all of them where they are
/// as large as each other, those of the smaller one where the other is far larger. By Welch
/// and Satterthwaite alone, a few hosts whose numbers happen to lie close together would lend
/// themselves the freedom of many, which at rates as small as a look's share is too bold: with
/// four changed hosts among sixteen and three times their noise, 7 % false claims for 5.
fn most_freedom(hosts: [usize; 2]) -> f64 {
    let [small, large] = [hosts[0].min(hosts[1]) as f64, hosts[0].max(hosts[1]) as f64];
    (small - 1.0) * (1.0 + small / large)
}

/// What each day's look says, from the first day after the change to the last whole one.
/// The order of hosts and of their hours does not matter.
///
/// Costs a sort of all hours and a few passes over them.
#[must_use]
pub fn rollout_looks(
    hosts: &[FleetHost],
    times: &RolloutTimes,
    rule: &RolloutRule,
) -> Vec<RolloutLook> {
    let remainders = remainders(hosts, times);
    let look = |day: u32| {
        let of = |changed: bool| -> Vec<f64> {
            let cohort = remainders.iter().filter(|host| host.changed == changed);
            cohort.filter_map(|host| host.at(day)).collect()
        };
        let (without, with) = (of(false), of(true));
        let alpha = rule.alpha * look_share(day);
        let found = welch(&without, &with, 1.0 - alpha).ok();
        let interval = found.map(|found| {
            let freedom = found.freedom.min(most_freedom([without.len(), with.len()]));
            let half_width = student_critical_df(freedom, alpha) * found.standard_error;
            let (lo, hi) = (found.difference - half_width, found.difference + half_width);
            Interval { lo, hi, level: 1.0 - alpha }
        });
        RolloutLook {
            day,
            alpha,
            hosts: [without.len() as u32, with.len() as u32],
            effect: found.map(|found| found.difference),
            interval,
            step: rule.step(interval.as_ref()),
        }
    };
    (1..=times.days()).map(look).collect()
}

/// Hosts, by their place among `hosts`, of whose hours too few are known at the look of the
/// last whole day, so that they do not count.
#[must_use]
pub fn missing_hosts(hosts: &[FleetHost], times: &RolloutTimes) -> Vec<usize> {
    let days = times.days();
    let remainders = remainders(hosts, times);
    let missing = remainders.iter().enumerate().filter(|(_, host)| host.at(days).is_none());
    missing.map(|(place, _)| place).collect()
}

/// How much hosts differ from themselves without any change: standard deviations of the
/// logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetNoise {
    /// What stays however many days are watched: hosts go ways of their own.
    pub host_sd: f64,
    /// What a day has of its own, which more days average out.
    pub day_sd: f64,
}

impl FleetNoise {
    /// Variance of a host's number after so many days, compared with so many before.
    fn variance(&self, before_days: f64, days: f64) -> f64 {
        self.host_sd.powi(2) + self.day_sd.powi(2) * (1.0 / days + 1.0 / before_days)
    }
}

/// The noise of hosts of which none was changed in the hours `before`: pretends changes in
/// them, and looks at how far hosts then differ. None for fewer than three hosts or less
/// than eight days.
#[must_use]
pub fn fleet_noise(hosts: &[FleetHost], before: &Range<i64>) -> Option<FleetNoise> {
    let unchanged: Vec<FleetHost> =
        hosts.iter().map(|host| FleetHost { changed: false, hours: host.hours.clone() }).collect();
    let days = before.end.saturating_sub(before.start) / DAY;
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for window in [1, 2, 3, 5, 7, 10, 14, 21, 28] {
        let earlier = days - window;
        if earlier < 7 {
            break;
        }
        let at = before.end - window * DAY;
        let times = RolloutTimes { before: before.start..at, after: at..before.end };
        let numbers: Vec<f64> = remainders(&unchanged, &times)
            .iter()
            .filter_map(|host| host.at(window as u32))
            .collect();
        if numbers.len() >= 3 {
            let (_, sd) = moments(&numbers);
            rows.push((1.0 / window as f64 + 1.0 / earlier as f64, sd * sd));
        }
    }
    let n = rows.len() as f64;
    let sum = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>();
    let (x, y) = (sum(|row| row.0), sum(|row| row.1));
    let (xx, xy) = (sum(|row| row.0 * row.0), sum(|row| row.0 * row.1));
    let (host, day) = match rows.len() {
        0 => return None,
        // Nobody knows how it falls with days: as if it did not.
        1 => (y, 0.0),
        _ => {
            let day = (n * xy - x * y) / (n * xx - x * x);
            let host = (y - day * x) / n;
            match (host < 0.0, day < 0.0) {
                (true, _) => (0.0, xy / xx),
                (_, true) => (y / n, 0.0),
                _ => (host, day),
            }
        }
    };
    Some(FleetNoise { host_sd: host.max(0.0).sqrt(), day_sd: day.max(0.0).sqrt() })
}

/// What is asked of the size of cohorts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeQuestion {
    /// How much hosts differ from themselves.
    pub noise: FleetNoise,
    /// Days before the change that are compared with.
    pub before_days: u32,
    /// The harm that must be seen, and below which harm must be excluded where there is
    /// none, as the logarithm of a ratio.
    pub effect: f64,
    /// The rate of false claims over all looks.
    pub alpha: f64,
}

impl SizeQuestion {
    /// The part of roll-outs that have an answer by the look of `days`, at least: "stop"
    /// where the harm is `effect`, "widen" where there is none. The best look alone is
    /// counted, not what earlier ones add.
    ///
    /// Source: the normal approximation of the noncentral t, N. Johnson, B. Welch,
    /// "Applications of the non-central t-distribution", Biometrika 31 (1940).
    #[must_use]
    pub fn power(&self, hosts: [u32; 2], days: u32) -> f64 {
        if hosts.iter().any(|hosts| *hosts < LEAST_HOSTS) || self.before_days == 0 {
            return 0.0;
        }
        let [a, b] = hosts.map(f64::from);
        let freedom = most_freedom(hosts.map(|hosts| hosts as usize));
        let at = |day: u32| {
            let variance = self.noise.variance(f64::from(self.before_days), f64::from(day));
            let error = (variance * (1.0 / a + 1.0 / b)).sqrt();
            let critical = student_critical_df(freedom, self.alpha * look_share(day));
            let beyond = self.effect / error - critical * (1.0 - 0.25 / freedom);
            Normal::standard().cdf(beyond / (1.0 + critical * critical / (2.0 * freedom)).sqrt())
        };
        (1..=days).map(at).fold(0.0, f64::max)
    }

    /// The fewest hosts in each cohort with which at least `power` of all roll-outs have an
    /// answer by the look of `days`; none where a thousand are too few.
    #[must_use]
    pub fn hosts_each(&self, days: u32, power: f64) -> Option<u32> {
        let enough = |hosts: u32| self.power([hosts, hosts], days) >= power;
        let (mut few, mut many) = (LEAST_HOSTS - 1, 1000);
        if !enough(many) {
            return None;
        }
        while many - few > 1 {
            let middle = u32::midpoint(few, many);
            if enough(middle) { many = middle } else { few = middle }
        }
        Some(many)
    }

    /// The first day whose look has an answer in at least `power` of all roll-outs, up to
    /// `most` days.
    #[must_use]
    pub fn days(&self, hosts: [u32; 2], power: f64, most: u32) -> Option<u32> {
        (1..=most).find(|days| self.power(hosts, *days) >= power)
    }
}

#[cfg(test)]
mod tests;
