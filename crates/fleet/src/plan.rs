//! What a roll-out asks, as TOML: which hosts got a change, when, and which counters must not
//! suffer.

use std::fmt;

use record::BetterDirection;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;
use topology::bounded::{self, FileProblems, LineProblem};

/// The version of the format, which a plan begins with: `vmlab = 1`.
pub const PLAN_FORMAT_VERSION: u32 = 1;

/// Hours after the change that count for neither side, unless a plan says otherwise: hosts
/// are changed one after the other, and caches are cold after a boot.
pub const DEFAULT_SETTLE_HOURS: u32 = 1;

/// Hours after the change that may be left out at most.
const LONGEST_SETTLE_HOURS: u32 = 24 * 366;

/// Days before the change that are compared with, unless a plan says otherwise: each hour of
/// the week four times.
pub const DEFAULT_BEFORE_DAYS: u32 = 28;

/// The rate of false claims over all looks and metrics, unless a plan says otherwise.
pub const DEFAULT_ALPHA: f64 = 0.05;

/// The part of roll-outs that are to have an answer, unless a plan says otherwise.
pub const DEFAULT_POWER: f64 = 0.8;

/// The smallest difference that matters, percent, unless a metric says otherwise.
pub const DEFAULT_MARGIN_PERCENT: f64 = 3.0;

/// Metrics of a plan at most: each has its part of the rate of false claims.
const MOST_METRICS: usize = 20;

/// A plan as it is written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutFile {
    /// Version of the format: 1.
    #[schemars(with = "u32")]
    vmlab: Spanned<u32>,
    /// One line for people.
    #[serde(default)]
    title: Option<String>,
    /// When the hosts were changed, with an offset (`2026-03-02T06:00:00Z`). Without it
    /// nothing is changed yet, and sizes are told.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    changed_at: Option<Spanned<Datetime>>,
    /// Hours after the change that do not count: 1 unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    settle_hours: Option<Spanned<u32>>,
    /// Days before the change that are compared with, at least 7: 28 unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    before_days: Option<Spanned<u32>>,
    /// The rate of false claims over all looks and metrics: 0.05 unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    alpha: Option<Spanned<f64>>,
    /// The part of roll-outs that are to have an answer, which sizes are told for: 0.8
    /// unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    power: Option<Spanned<f64>>,
    /// What must not suffer.
    #[serde(default)]
    metric: Vec<MetricFile>,
    /// The hosts' stores, of `vmlab watch`: files, or folders with files `*.sqlite`; relative
    /// to the plan.
    #[serde(default)]
    hosts: HostsFile,
    /// How much hosts differ from themselves, where no store tells yet.
    #[serde(default)]
    assume: Option<AssumeFile>,
}

/// A metric as it is written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MetricFile {
    /// A counter (docs/counters.md).
    #[schemars(with = "String")]
    counter: Spanned<String>,
    /// The counter that it is divided by; a second of a vCPU unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    per: Option<Spanned<String>>,
    /// Which way it is better.
    better: BetterDirection,
    /// The harm that must be excluded before the change goes further, percent: 3 unless said
    /// otherwise.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    margin_percent: Option<Spanned<f64>>,
}

/// The cohorts as they are written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    /// Those that got the change, or are to get it.
    #[serde(default)]
    changed: Vec<String>,
    /// Those that stay as they were.
    #[serde(default)]
    unchanged: Vec<String>,
}

/// Noise as it is written: standard deviations, percent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AssumeFile {
    /// Of a host, however long it is watched.
    #[schemars(with = "f64")]
    host_sd_percent: Spanned<f64>,
    /// Of a day of a host.
    #[schemars(with = "f64")]
    day_sd_percent: Spanned<f64>,
}

/// A metric that must not suffer.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutMetric {
    /// The counter.
    pub counter: String,
    /// The counter that it is divided by; vCPU seconds without one.
    pub per: Option<String>,
    /// Which way it is better.
    pub better: BetterDirection,
    /// The harm that must be excluded, as a part of 1.
    pub margin: f64,
}

impl RolloutMetric {
    /// What counts as something, where nothing was counted in an hour: a millisecond of a
    /// time, one of a count.
    #[must_use]
    pub fn least(&self) -> f64 {
        let is_time = record::counter(&self.counter).is_some_and(|counter| counter.unit == "s");
        if is_time { 1e-3 } else { 1.0 }
    }
}

impl fmt::Display for RolloutMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = self.per.as_deref().unwrap_or("vCPU second");
        write!(f, "{} by {per}", self.counter)
    }
}

/// A plan that was read and found to be sound.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPlan {
    /// One line for people; the file's name without one.
    pub title: String,
    /// When the hosts were changed, seconds since 1970.
    pub changed_unix_s: Option<i64>,
    /// Hours after it that do not count.
    pub settle_hours: u32,
    /// Days before it that are compared with.
    pub before_days: u32,
    /// The rate of false claims over all looks and metrics.
    pub alpha: f64,
    /// The part of roll-outs that are to have an answer.
    pub power: f64,
    /// What must not suffer; at least one.
    pub metrics: Vec<RolloutMetric>,
    /// Stores of hosts that got the change, as they are written.
    pub changed: Vec<String>,
    /// Those of hosts that did not.
    pub unchanged: Vec<String>,
    /// How much hosts differ from themselves, where the plan says it.
    pub assume: Option<stats::FleetNoise>,
}

impl RolloutPlan {
    /// Reads the plan `text` of a file that is called `file`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileProblems> {
        let line_of =
            |at: usize| text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        let error = |at: usize, message: String| FileProblems {
            file: file.to_owned(),
            problems: vec![LineProblem { line: line_of(at), message }],
        };
        let parsed: RolloutFile = bounded::toml(file, text)?;
        let version = *parsed.vmlab.get_ref();
        if version != PLAN_FORMAT_VERSION {
            let message = format!(
                "Format {version} of roll-outs is not known: this vmlab reads version {PLAN_FORMAT_VERSION}: use a newer vmlab"
            );
            return Err(error(parsed.vmlab.span().start, message));
        }
        let within = |value: Option<&Spanned<f64>>, default: f64, name: &str, range: (f64, f64)| {
            let Some(value) = value else { return Ok(default) };
            let found = *value.get_ref();
            if found > range.0 && found < range.1 {
                return Ok(found);
            }
            let (low, high) = range;
            let message = format!("{name} is {found}: it must be above {low} and below {high}");
            Err(error(value.span().start, message))
        };
        let alpha = within(parsed.alpha.as_ref(), DEFAULT_ALPHA, "alpha", (0.0, 0.5))?;
        let power = within(parsed.power.as_ref(), DEFAULT_POWER, "power", (0.0, 1.0))?;
        let before_days = parsed.before_days.as_ref().map_or(DEFAULT_BEFORE_DAYS, |d| *d.get_ref());
        if !(7..=366).contains(&before_days) {
            let at = parsed.before_days.as_ref().map_or(0, |days| days.span().start);
            let message = format!(
                "before_days is {before_days}: it must be from 7, each hour of the week once, to 366"
            );
            return Err(error(at, message));
        }
        let settle = parsed.settle_hours.as_ref();
        let settle_hours = settle.map_or(DEFAULT_SETTLE_HOURS, |hours| *hours.get_ref());
        if settle_hours > LONGEST_SETTLE_HOURS {
            let at = settle.map_or(0, |hours| hours.span().start);
            let message = format!(
                "settle_hours is {settle_hours}: it must be {LONGEST_SETTLE_HOURS}, a year, at most"
            );
            return Err(error(at, message));
        }
        if !(1..=MOST_METRICS).contains(&parsed.metric.len()) {
            let message = format!(
                "{} metrics: name 1 to {MOST_METRICS} with [[metric]]",
                parsed.metric.len()
            );
            return Err(error(0, message));
        }
        let mut metrics: Vec<RolloutMetric> = Vec::new();
        for metric in &parsed.metric {
            for name in [Some(&metric.counter), metric.per.as_ref()].into_iter().flatten() {
                check_counter(name.get_ref()).map_err(|why| error(name.span().start, why))?;
            }
            let margin = metric.margin_percent.as_ref();
            let margin =
                within(margin, DEFAULT_MARGIN_PERCENT, "margin_percent", (0.0, 1000.0))? / 100.0;
            let new = RolloutMetric {
                counter: metric.counter.get_ref().clone(),
                per: metric.per.as_ref().map(|per| per.get_ref().clone()),
                better: metric.better,
                margin,
            };
            if metrics.iter().any(|one| (&one.counter, &one.per) == (&new.counter, &new.per)) {
                let message = format!("{new} is there twice: a metric is judged once");
                return Err(error(metric.counter.span().start, message));
            }
            metrics.push(new);
        }
        let changed_unix_s = match &parsed.changed_at {
            None => None,
            Some(at) => {
                let text = at.get_ref().to_string();
                let time: Result<jiff::Timestamp, _> = text.parse();
                Some(time.map(jiff::Timestamp::as_second).map_err(|_| {
                    let message = format!(
                        "changed_at is {text}: a date, a time and an offset are needed, as in 2026-03-02T06:00:00Z"
                    );
                    error(at.span().start, message)
                })?)
            }
        };
        let assume = match &parsed.assume {
            None => None,
            Some(assume) => {
                let part = |value: &Spanned<f64>, name: &str| {
                    within(Some(value), 0.0, name, (-f64::MIN_POSITIVE, 1000.0))
                        .map(|percent| percent / 100.0)
                };
                Some(stats::FleetNoise {
                    host_sd: part(&assume.host_sd_percent, "host_sd_percent")?,
                    day_sd: part(&assume.day_sd_percent, "day_sd_percent")?,
                })
            }
        };
        Ok(Self {
            title: parsed.title.unwrap_or_else(|| file.to_owned()),
            changed_unix_s,
            settle_hours,
            before_days,
            alpha,
            power,
            metrics,
            changed: parsed.hosts.changed,
            unchanged: parsed.hosts.unchanged,
            assume,
        })
    }
}

fn check_counter(name: &str) -> Result<(), String> {
    if record::is_level(name) {
        return Err(format!("{name} is a level, not a count: a roll-out compares what is counted"));
    }
    // KVM has counters that are not known here.
    if record::counter(name).is_none() && !name.starts_with("kvm.") {
        return Err(format!("There is no counter {name}: docs/counters.md lists them"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "vmlab = 1\n[[metric]]\ncounter = 'kvm.exits'\nbetter = 'lower'\n";

    #[test]
    fn what_is_not_said_has_defaults() {
        let plan = RolloutPlan::parse("a.toml", SMALL).unwrap();
        let metric = RolloutMetric {
            counter: "kvm.exits".to_owned(),
            per: None,
            better: BetterDirection::Lower,
            margin: 0.03,
        };
        assert_eq!(metric.to_string(), "kvm.exits by vCPU second");
        assert_eq!((metric.least(), plan.changed_unix_s), (1.0, None));
        assert_eq!(plan.metrics, [metric]);
        assert_eq!(
            (plan.before_days, plan.settle_hours, plan.alpha, plan.power),
            (28, 1, 0.05, 0.8)
        );
        assert_eq!(plan.title, "a.toml");
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        let check = |text: &str, line: usize, words: &str| {
            let error = RolloutPlan::parse("a.toml", text).unwrap_err();
            let [problem] = &error.problems[..] else { panic!("{error}") };
            assert!(problem.line == line && problem.message.contains(words), "{error}");
        };
        check("", 1, "begin the file with `vmlab = 1`");
        check("vmlab = 1\ntitel = 'a'\n", 2, "Unknown key `titel`");
        check("vmlab = 1\ntitel = 'a'\n", 2, "did you mean `title`?");
        check("vmlab = 2\n[[metric]]\ncounter = 'kvm.exits'\nbetter = 'lower'", 1, "not known");
        check("vmlab = 1\n", 1, "0 metrics");
        check("vmlab = 1\nalpha = 0.7\n", 2, "alpha is 0.7");
        check("vmlab = 1\npower = 1\n", 2, "power is 1");
        check("vmlab = 1\nbefore_days = 3\n", 2, "before_days is 3");
        check("vmlab = 1\nsettle_hours = 8785\n", 2, "settle_hours is 8785");
        check("vmlab = 1\ncolour = 3\n", 2, "Unknown key `colour`");
        let metric = |rest: &str| format!("vmlab = 1\n[[metric]]\nbetter = 'lower'\n{rest}\n");
        check(&metric("counter = 'kvm.mapped_4k_bytes'"), 4, "is a level");
        check(&metric("counter = 'vcpu.nothing'"), 4, "no counter vcpu.nothing");
        check(&metric("counter = 'vcpu.wait_s'\nper = 'x'"), 5, "no counter x");
        check(&metric("counter = 'vcpu.wait_s'\nmargin_percent = nan"), 5, "margin_percent is NaN");
        check(&format!("{SMALL}{}", &SMALL[10..]), 6, "is there twice");
        check(&SMALL.replacen('\n', "\nchanged_at = 2026-03-02\n", 1), 2, "an offset");
        let assume = format!("{SMALL}[assume]\nhost_sd_percent = -1\nday_sd_percent = 4.0");
        check(&assume, 6, "host_sd_percent is -1");
        let none = assume.replace("-1", "0.0");
        assert_eq!(RolloutPlan::parse("a", &none).unwrap().assume.unwrap().day_sd, 0.04);
        let at = SMALL.replacen('\n', "\nchanged_at = 2026-03-02T06:00:00+01:00\n", 1);
        let plan = RolloutPlan::parse("a", &at).unwrap();
        assert_eq!(plan.changed_unix_s, Some(1_772_427_600));
    }
}
