//! The answer to a roll-out: what the hours of its hosts say of each metric, what to do, and
//! which cohorts would have had an answer when.

use std::collections::{BTreeMap, BTreeSet};

use record::{BetterDirection, Environment};
use report::ShownVerdict;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{
    FleetHost, FleetNoise, Interval, LogRatio, RolloutLook, RolloutRule, RolloutStep, RolloutTimes,
    SizeQuestion,
};

use crate::hours::HostHours;
use crate::plan::{RolloutMetric, RolloutPlan};

/// What `--json` prints is of this format.
pub const FORMAT: &str = "vmlab-rollout";

/// Its version.
pub const VERSION: u32 = 1;

/// No roll-out is looked at longer, days.
const MOST_DAYS: i64 = 366;

/// How much hosts differ from themselves is told by so many days at most, or as many as are
/// compared with.
const NOISE_DAYS: u32 = 56;

/// For how many days sizes are told.
const TOLD_DAYS: [u32; 6] = [1, 3, 7, 14, 21, 28];

/// A host of a roll-out with its hours, one for each metric of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutHost {
    /// The store, as it was found.
    pub store: String,
    /// Whether it got the change.
    pub is_changed: bool,
    /// What its hours had, in the order of the plan's metrics.
    pub metrics: Vec<HostHours>,
}

/// What a roll-out says.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RolloutAnswer {
    format: &'static str,
    version: u32,
    /// The plan's title.
    pub title: String,
    /// What to do: "stop" if any metric says so, "widen" if all do, else "wait".
    pub step: RolloutStep,
    /// The rate of false claims over all looks and metrics.
    pub alpha: f64,
    /// Whole days since the change; 0 where nothing is changed yet.
    pub days: u32,
    /// In what the counters were read.
    pub environments: BTreeSet<Environment>,
    /// True where a time says nothing about the speed of real hardware.
    pub is_emulated_time: bool,
    /// Each metric's answer.
    pub metrics: Vec<MetricAnswer>,
    /// What stands in the way of a better answer.
    pub notes: Vec<String>,
}

/// What a roll-out says of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricAnswer {
    /// The counter.
    pub counter: String,
    /// What it is divided by: a counter, or `vCPU second`.
    pub per: String,
    /// Which way it is better.
    pub better: BetterDirection,
    /// The harm that must be excluded, as a part of 1.
    pub margin: f64,
    /// What to do for this metric's sake, by the first look that had an answer.
    pub step: RolloutStep,
    /// Days since the change at that look.
    pub decided_day: Option<u32>,
    /// What that look says of the difference, or the last one where none had an answer.
    pub verdict: ShownVerdict,
    /// Every look.
    pub looks: Vec<Look>,
    /// How much hosts differ from themselves without any change, by their hours before it
    /// or as the plan assumes; absent where neither tells.
    pub noise: Option<FleetNoise>,
    /// Hosts that a cohort needs, told from that noise.
    pub sizes: Vec<CohortSize>,
    /// The first day by which the plan's own cohorts have an answer as often as the plan
    /// asks; absent where they are too small.
    pub enough_days: Option<u32>,
}

/// A day's look.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Look {
    /// Days since the change.
    pub day: u32,
    /// Hosts that count, without the change.
    pub unchanged_hosts: u32,
    /// The same with the change.
    pub changed_hosts: u32,
    /// Ratio of changed to unchanged hosts, compared with before.
    pub ratio: Option<f64>,
    /// Its interval. All looks' intervals together leave out the truth in at most the
    /// metric's part of `alpha` of all roll-outs.
    pub interval: Option<Interval>,
    /// What to do by this look alone.
    pub step: RolloutStep,
}

/// How many hosts a cohort needs for an answer by a day.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CohortSize {
    /// Days since the change.
    pub days: u32,
    /// Hosts with the change, and as many without; absent where a thousand are too few.
    pub hosts_each: Option<u32>,
}

/// Answers `plan` by the hours of its `hosts`, in any order.
#[must_use]
pub fn answer(plan: &RolloutPlan, hosts: &[RolloutHost]) -> RolloutAnswer {
    let mut notes = Vec::new();
    let metrics: Vec<MetricAnswer> = plan
        .metrics
        .iter()
        .enumerate()
        .map(|(at, metric)| of_metric(plan, metric, at, hosts, &mut notes))
        .collect();
    let all = |step: RolloutStep| metrics.iter().all(|metric| metric.step == step);
    let any = |step: RolloutStep| metrics.iter().any(|metric| metric.step == step);
    let step = match (any(RolloutStep::Stop), all(RolloutStep::Widen)) {
        (true, _) => RolloutStep::Stop,
        (_, true) => RolloutStep::Widen,
        _ => RolloutStep::Wait,
    };
    let environments: BTreeSet<Environment> = hosts
        .iter()
        .flat_map(|host| &host.metrics)
        .flat_map(|hours| hours.environments.clone())
        .collect();
    notes.extend(of_stores(hosts));
    RolloutAnswer {
        format: FORMAT,
        version: VERSION,
        title: plan.title.clone(),
        step,
        alpha: plan.alpha,
        days: metrics
            .iter()
            .flat_map(|metric| &metric.looks)
            .map(|look| look.day)
            .max()
            .unwrap_or(0),
        is_emulated_time: environments.iter().any(|one| one.is_emulated_time()),
        environments,
        metrics,
        notes,
    }
}

/// What stores have that must be known.
fn of_stores(hosts: &[RolloutHost]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for host in hosts {
        let Some(hours) = host.metrics.first() else { continue };
        if let Some(other) = names.insert(&hours.host, &host.store) {
            notes.push(format!(
                "{other} and {} are both of a host called {}: is it the same one?",
                host.store, hours.host
            ));
        }
        if hours.went_back > 0 {
            notes.push(format!(
                "{}: a counter went back {} times within a VM's life; those intervals are left out",
                host.store, hours.went_back
            ));
        }
    }
    notes
}

/// The hours since the change that at least two hosts of each cohort reached, so that one
/// host's clock that is ahead makes no days up; the last hour, which may not be over, is not
/// among them.
fn known_until(hosts: &[(bool, i64)]) -> Option<i64> {
    let of = |is_changed: bool| {
        reached_by_two(hosts.iter().filter(|host| host.0 == is_changed).map(|host| host.1))
    };
    Some(of(false)?.min(of(true)?))
}

/// The hour that two of those with such last hours reached.
fn reached_by_two(last: impl Iterator<Item = i64>) -> Option<i64> {
    let mut last: Vec<i64> = last.collect();
    last.sort_unstable_by(|a, b| b.cmp(a));
    last.get(1).copied()
}

fn of_metric(
    plan: &RolloutPlan,
    metric: &RolloutMetric,
    at: usize,
    hosts: &[RolloutHost],
    notes: &mut Vec<String>,
) -> MetricAnswer {
    let series: Vec<FleetHost> = hosts
        .iter()
        .map(|host| FleetHost {
            changed: host.is_changed,
            hours: host
                .metrics
                .get(at)
                .map(|hours| hours.logarithms(metric.least()))
                .unwrap_or_default(),
        })
        .collect();
    let last: Vec<(bool, i64)> = series
        .iter()
        .filter_map(|host| Some((host.changed, host.hours.iter().map(|hour| hour.0).max()?)))
        .collect();
    for (host, _) in hosts.iter().zip(&series).filter(|(_, series)| series.hours.is_empty()) {
        notes.push(format!("{}: nothing of {metric} is stored", host.store));
    }
    let rule = RolloutRule {
        alpha: plan.alpha / plan.metrics.len() as f64,
        margin: metric.margin.ln_1p(),
        better: metric.better,
    };
    let before_hours = i64::from(plan.before_days) * 24;
    let mut looks = Vec::new();
    // Where nothing is changed, all that is known is before.
    let mut before_end = reached_by_two(last.iter().map(|last| last.1)).unwrap_or(0);
    if let Some(changed_unix_s) = plan.changed_unix_s {
        before_end = changed_unix_s.div_euclid(3600);
        let begin =
            changed_unix_s.saturating_add(3599).div_euclid(3600) + i64::from(plan.settle_hours);
        let end = known_until(&last).unwrap_or(begin).clamp(begin, begin + MOST_DAYS * 24);
        let times =
            RolloutTimes { before: before_end - before_hours..before_end, after: begin..end };
        looks = stats::rollout_looks(&series, &times, &rule);
        if times.days() > 0 {
            for place in stats::missing_hosts(&series, &times) {
                let known = !series[place].hours.is_empty();
                let store = hosts.get(place).filter(|_| known).map(|host| &host.store);
                notes.extend(store.map(|store| {
                    format!("{store}: too little of {metric} is known to count: of the hours since the change, or of the same hours of the week before it")
                }));
            }
        }
    }
    let noise_days = NOISE_DAYS.max(plan.before_days);
    let before = before_end - i64::from(noise_days) * 24..before_end;
    let is_known = |hour: &&(i64, f64)| before.contains(&hour.0);
    let first =
        series.iter().flat_map(|host| &host.hours).filter(is_known).map(|hour| hour.0).min();
    let known_days = first.map_or(0, |first| (before_end - first + 23) / 24);
    let measured = stats::fleet_noise(&series, &(first.unwrap_or(before_end)..before_end));
    let noise = measured.or(plan.assume);
    let question = noise.map(|noise| SizeQuestion {
        noise,
        before_days: if measured.is_some() && plan.changed_unix_s.is_some() {
            u32::try_from(known_days).map_or(plan.before_days, |days| days.min(plan.before_days))
        } else {
            plan.before_days
        },
        effect: rule.margin,
        alpha: rule.alpha,
    });
    let sizes = question.map(|question| {
        let size =
            |days: u32| CohortSize { days, hosts_each: question.hosts_each(days, plan.power) };
        TOLD_DAYS.map(size).to_vec()
    });
    let count = |changed: bool| series.iter().filter(|host| host.changed == changed).count() as u32;
    let cohorts = [count(false), count(true)];
    let enough_days =
        question.and_then(|question| question.days(cohorts, plan.power, MOST_DAYS as u32));
    let decided = looks.iter().find(|look| look.step != RolloutStep::Wait);
    let telling = decided.or(looks.last());
    MetricAnswer {
        counter: metric.counter.clone(),
        per: metric.per.clone().unwrap_or_else(|| "vCPU second".to_owned()),
        better: metric.better,
        margin: metric.margin,
        step: decided.map_or(RolloutStep::Wait, |look| look.step),
        decided_day: decided.map(|look| look.day),
        verdict: verdict(telling.and_then(|look| look.interval.as_ref()), &rule),
        looks: looks.iter().map(shown).collect(),
        noise,
        sizes: sizes.unwrap_or_default(),
        enough_days,
    }
}

fn shown(look: &RolloutLook) -> Look {
    Look {
        day: look.day,
        unchanged_hosts: look.hosts[0],
        changed_hosts: look.hosts[1],
        ratio: look.effect.map(ratio),
        interval: look.interval.map(|interval| interval.map(ratio)),
        step: look.step,
    }
}

/// A ratio that is still a number in JSON.
fn ratio(log: f64) -> f64 {
    log.clamp(-700.0, 700.0).exp()
}

/// What an interval of the logarithm says of the difference, by the rule of all verdicts.
/// It holds at its level for both tests of equivalence, too.
fn verdict(interval: Option<&Interval>, rule: &RolloutRule) -> ShownVerdict {
    let Some(interval) = interval else { return ShownVerdict::NotDecided };
    let half_width = (interval.hi - interval.lo) / 2.0;
    let ratio = LogRatio {
        mean: (interval.lo + interval.hi) / 2.0,
        half_width,
        half_width_of_equivalence: half_width,
    };
    // A look is not made sharper by blocks.
    ShownVerdict::from(&ratio.verdict(rule.better, rule.margin.exp_m1(), |_| 0))
}

#[cfg(test)]
mod tests;
