//! The same study over time: where did its numbers change, and what changed
//! with them?

mod figure;
mod page;
mod text;

use std::collections::BTreeMap;

use record::{Environment, Metric};
use schemars::JsonSchema;
use serde::Serialize;
use stats::{ChangeRule, change_points};

use crate::{Label, Report, ReportFact, ShownEstimate, ShownVerdict, Terms, VariantRole, label};

pub use page::html;
pub use text::terminal;

/// What a series follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrendSubject {
    /// Each variant's own values.
    Value,
    /// Ratios to the baseline of the same result: the host's own changes
    /// cancel out.
    Ratio,
}

/// Every series of a study over its results.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trend {
    /// The study's name.
    pub study: String,
    /// What the series follow.
    pub of: TrendSubject,
    /// The results, the oldest first.
    pub results: Vec<ResultFacts>,
    /// One series for each load x workload x metric x variant.
    pub series: Vec<TrendSeries>,
    /// What a reader should know.
    pub warnings: Vec<String>,
}

/// One result of the study.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ResultFacts {
    /// Where it lies.
    pub name: String,
    /// When it was begun, ISO 8601 in UTC.
    pub started: String,
    /// Where its trials ran.
    pub environment: Environment,
    /// Kernel, QEMU, image, ...
    pub facts: Vec<ReportFact>,
}

/// One quantity over time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrendSeries {
    /// The host-load level.
    pub load: String,
    /// The workload.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// The variant.
    pub variant: String,
    /// Its values, the oldest first; results without one are left out.
    pub points: Vec<TrendPoint>,
    /// Where it changed.
    pub changes: Vec<SeriesChange>,
}

/// A value of a series.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrendPoint {
    /// Index of the result.
    pub result: usize,
    /// The value with its interval: in base units, or a ratio.
    pub value: ShownEstimate,
}

/// A change of a series.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SeriesChange {
    /// Index of the first point after it.
    pub point: usize,
    /// Geometric mean after it by that before it.
    pub ratio: f64,
    /// Two-sided p value of "nothing changed".
    pub p: f64,
    /// True if it was for the better.
    pub is_better: bool,
    /// What else changed from the result before to the result after.
    pub with: Vec<String>,
}

/// Facts that differ from result to result and explain nothing.
const TELLS_NOTHING: [&str; 1] = ["started"];

impl TrendSeries {
    /// How a change of it is shown.
    fn label(&self, change: &SeriesChange) -> Label {
        let verdict = if change.is_better { ShownVerdict::Better } else { ShownVerdict::Worse };
        label(verdict, false, Terms::of(self.metric.kind, self.metric.better))
    }
}

impl Trend {
    /// From reports of one study, each with the place where it lies; their
    /// order does not matter.
    #[must_use]
    pub fn new(mut reports: Vec<(String, Report)>, of: TrendSubject, rule: &ChangeRule) -> Self {
        reports.sort_by_cached_key(|(name, report)| (started(report), name.clone()));
        let results: Vec<_> = reports.iter().map(|(name, report)| facts(name, report)).collect();
        let mut series: Vec<TrendSeries> = Vec::new();
        let mut places: BTreeMap<[String; 4], usize> = BTreeMap::new();
        for (result, (_, report)) in reports.iter().enumerate() {
            for (key, metric, value) in values(report, of) {
                let [load, workload, _, variant] = key.clone();
                let place = *places.entry(key).or_insert_with(|| {
                    let (points, changes) = (Vec::new(), Vec::new());
                    series.push(TrendSeries { load, workload, metric, variant, points, changes });
                    series.len() - 1
                });
                series[place].points.push(TrendPoint { result, value });
            }
        }
        for series in &mut series {
            series.changes = changes(series, &results, rule);
        }
        let study = reports.last().map(|(_, report)| report.study.clone()).unwrap_or_default();
        Self { warnings: warnings(&reports), study, of, results, series }
    }

    /// True if the newest value of some series lies after a change for the
    /// worse that nothing has mended since.
    #[must_use]
    pub fn is_worse_now(&self) -> bool {
        let last =
            |series: &TrendSeries| series.changes.last().is_some_and(|change| !change.is_better);
        self.series.iter().any(last)
    }

    /// The text of `--json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("all keys of a trend are strings")
    }
}

fn started(report: &Report) -> String {
    let fact = report.about.iter().find(|fact| fact.name == "started");
    fact.map(|fact| fact.value.clone()).unwrap_or_default()
}

fn facts(name: &str, report: &Report) -> ResultFacts {
    ResultFacts {
        name: name.to_owned(),
        started: started(report),
        environment: report.environment,
        facts: report.about.clone(),
    }
}

/// Everything that a report says as a positive number, by load, workload,
/// metric and variant.
fn values(report: &Report, of: TrendSubject) -> Vec<([String; 4], Metric, ShownEstimate)> {
    let role = |name: &str| report.variants.iter().find(|v| v.name == name).map(|v| v.role);
    let mut values = Vec::new();
    for group in &report.groups {
        for cell in
            group.cells.iter().filter(|cell| role(&cell.variant) != Some(VariantRole::AaArm))
        {
            let value = match of {
                TrendSubject::Value => cell.estimate,
                TrendSubject::Ratio => {
                    cell.judgement.as_ref().and_then(|judgement| judgement.ratio)
                }
            };
            let Some(value) = value.filter(|value| value.centre > 0.0) else { continue };
            let key = [&group.load, &group.workload, &group.metric.name, &cell.variant];
            values.push((key.map(Clone::clone), group.metric.clone(), value));
        }
    }
    values
}

fn changes(series: &TrendSeries, results: &[ResultFacts], rule: &ChangeRule) -> Vec<SeriesChange> {
    let logs: Vec<f64> = series.points.iter().map(|point| point.value.centre.ln()).collect();
    let change = |found: stats::ChangePoint| {
        let result = |point: usize| &results[series.points[point].result];
        let verdict = ShownVerdict::from(&found.verdict(series.metric.better));
        SeriesChange {
            point: found.index,
            ratio: (found.after - found.before).exp(),
            p: found.p,
            is_better: verdict == ShownVerdict::Better,
            with: differences(result(found.index - 1), result(found.index)),
        }
    };
    change_points(&logs, rule).into_iter().map(change).collect()
}

/// What differs between two results: `QEMU: 7.2.17 -> 7.2.22`.
fn differences(before: &ResultFacts, after: &ResultFacts) -> Vec<String> {
    let telling = |fact: &&ReportFact| !TELLS_NOTHING.contains(&fact.name.as_str());
    let value = |facts: &[ReportFact], name: &str| {
        let all: Vec<_> =
            facts.iter().filter(|fact| fact.name == name).map(|fact| fact.value.as_str()).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    };
    let mut names: Vec<&str> = Vec::new();
    for fact in before.facts.iter().chain(&after.facts).filter(telling) {
        if !names.contains(&fact.name.as_str()) {
            names.push(&fact.name);
        }
    }
    names
        .into_iter()
        .map(|name| (name, value(&before.facts, name), value(&after.facts, name)))
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| format!("{name}: {before} -> {after}"))
        .collect()
}

fn warnings(reports: &[(String, Report)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut studies: Vec<&str> = reports.iter().map(|(_, report)| report.study.as_str()).collect();
    studies.sort_unstable();
    studies.dedup();
    if studies.len() > 1 {
        let studies = studies.join(", ");
        warnings.push(format!("These are results of different studies: {studies}."));
    }
    let mut environments: Vec<_> = reports.iter().map(|(_, report)| report.environment).collect();
    environments.sort_unstable();
    environments.dedup();
    if environments.len() > 1 {
        let names: Vec<_> = environments.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        warnings.push(format!("Results of different environments are mixed: {names}."));
    }
    for (name, report) in reports.iter().filter(|(_, report)| !report.damage.is_empty()) {
        let damage: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
        warnings.push(format!("The journal of {name} is damaged: {}.", damage.join("; ")));
    }
    for environment in environments.iter().filter(|environment| environment.is_emulated_time()) {
        warnings.push(environment.sentence().to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests;
