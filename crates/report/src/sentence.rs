//! Verdicts in words. Every sentence carries its interval and its blocks; the
//! environment's sentence stands beside it wherever it is shown.

use record::{BetterDirection, Environment, Metric, MetricKind};

use crate::quantity::{
    UnitScale, change, counted, event_count, own_prefix, percent, ratio_estimate,
};
use crate::verdict::{self, Label, Terms};
use crate::{
    CountScope, CounterMove, CounterRow, Report, ReportVariant, ResultGroup, ShownVerdict,
    VariantJudgement, VariantRole, WorkloadLatencies,
};

/// A verdict of one variant in one group.
pub(crate) struct VariantVerdict<'a> {
    pub(crate) group: &'a ResultGroup,
    pub(crate) variant: &'a ReportVariant,
    pub(crate) judgement: &'a VariantJudgement,
    /// What is said, without a full stop.
    pub(crate) claim: String,
    /// What it rests on: `time ×0.53 [0.49, 0.58] (95 %, 4 blocks)`.
    pub(crate) evidence: String,
}

impl VariantVerdict<'_> {
    /// Claim, evidence, environment and notes as one paragraph.
    pub(crate) fn sentence(&self, environment: Environment) -> String {
        let mut text = format!("{}: {}, {environment}.", self.claim, self.evidence);
        for note in self.notes() {
            text.push(' ');
            text.push_str(&note);
        }
        text
    }

    /// The notes as sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.judgement.notes.iter().map(|note| as_sentence(note)).collect()
    }

    pub(crate) fn label(&self) -> Label {
        label(self.judgement.verdict, self.variant.role, &self.group.metric)
    }
}

/// All verdicts of the primary metrics, in the study's order; the A/A arm,
/// which nobody asked about, comes last.
pub(crate) fn headline(report: &Report) -> Vec<VariantVerdict<'_>> {
    let primary = report.groups.iter().filter(|group| group.primary);
    let mut all: Vec<VariantVerdict<'_>> =
        primary.flat_map(|group| findings(report, group)).collect();
    all.sort_by_key(|finding| finding.variant.role == VariantRole::AaArm);
    all
}

/// All verdicts of `group`.
pub(crate) fn findings<'a>(report: &'a Report, group: &'a ResultGroup) -> Vec<VariantVerdict<'a>> {
    let Some(baseline) = report.baseline() else { return Vec::new() };
    let finding = |variant: &'a ReportVariant| {
        let judgement = group.cell(&variant.name)?.judgement.as_ref()?;
        let claim = claim(group, baseline, variant, judgement);
        let evidence = evidence(report, &group.metric, judgement);
        Some(VariantVerdict { group, variant, judgement, claim, evidence })
    };
    report.variants.iter().filter_map(finding).collect()
}

/// The label of `verdict` about a variant of `role`.
pub(crate) fn label(verdict: ShownVerdict, role: VariantRole, metric: &Metric) -> Label {
    verdict::label(verdict, role == VariantRole::AaArm, Terms::of(metric.kind, metric.better))
}

/// The word for better (or worse) in the metric's own terms.
fn comparative(better: bool, metric: &Metric) -> &'static str {
    Terms::of(metric.kind, metric.better).comparative(better)
}

/// What stands on the left (ratio below 1) and the right of a ratio's axis.
pub(crate) fn directions(metric: &Metric) -> (&'static str, &'static str) {
    let (better, worse) = (comparative(true, metric), comparative(false, metric));
    match metric.better {
        BetterDirection::Lower => (better, worse),
        BetterDirection::Higher => (worse, better),
    }
}

/// `with no load added`, `under host load half`. It does not say that the host was idle: what
/// others did there is told of each trial.
pub(crate) fn under_load(load: &str) -> String {
    if load == "idle" { format!("with {NO_LOAD}") } else { format!("under host load {load}") }
}

/// The same as a part of a heading.
pub(crate) fn load_heading(load: &str) -> String {
    if load == "idle" { NO_LOAD.to_owned() } else { under_load(load) }
}

const NO_LOAD: &str = "no load added";

/// What is said of a variant, wherever it was measured.
pub(crate) struct VariantClaim<'a> {
    pub(crate) workload: &'a str,
    pub(crate) load: &'a str,
    pub(crate) metric: &'a Metric,
    pub(crate) margin: Option<f64>,
    pub(crate) baseline: &'a str,
    pub(crate) variant: &'a str,
    pub(crate) role: VariantRole,
    pub(crate) verdict: ShownVerdict,
}

impl VariantClaim<'_> {
    /// A sentence without its full stop.
    pub(crate) fn text(&self) -> String {
        let (a, b, metric) = (self.baseline, self.variant, self.metric);
        let at = format!("at {} {}", self.workload, under_load(self.load));
        let is_better = matches!(self.verdict, ShownVerdict::Better | ShownVerdict::SlightlyBetter);
        let word = comparative(is_better, metric);
        let margin = self.margin.map(percent).unwrap_or_default();
        let differs = match metric.kind {
            MetricKind::Time | MetricKind::Rate => format!("{b} is {word} than {a} {at}"),
            MetricKind::Quantile | MetricKind::Count => {
                format!("{b} has a {word} {} than {a} {at}", metric.name)
            }
        };
        match (self.verdict, self.role) {
            (ShownVerdict::NotDecided | ShownVerdict::Equivalent, VariantRole::AaArm) => {
                format!("A/A check passed: {b}, the same as {a}, shows no difference {at}")
            }
            (ShownVerdict::Invalid, _) => format!("Not valid: {b} against {a} {at}"),
            (_, VariantRole::AaArm) => {
                format!("A/A check failed: {b}, the same as {a}, seems {word} {at}")
            }
            (ShownVerdict::Better | ShownVerdict::Worse, _) => differs,
            (ShownVerdict::SlightlyBetter | ShownVerdict::SlightlyWorse, _) => {
                format!("{differs}, but by less than {margin}")
            }
            (ShownVerdict::Equivalent, _) => {
                format!("{b} and {a} differ by no more than {margin} {at}")
            }
            (ShownVerdict::NotDecided, _) => {
                format!("Not decided whether {b} differs from {a} {at}")
            }
        }
    }
}

fn claim(
    group: &ResultGroup,
    baseline: &ReportVariant,
    variant: &ReportVariant,
    judgement: &VariantJudgement,
) -> String {
    let claim = VariantClaim {
        workload: &group.workload,
        load: &group.load,
        metric: &group.metric,
        margin: group.margin,
        baseline: &baseline.name,
        variant: &variant.name,
        role: variant.role,
        verdict: judgement.verdict,
    };
    claim.text()
}

/// `time ×0.53 [0.49, 0.58] (95 %, 4 blocks)`.
fn evidence(report: &Report, metric: &Metric, judgement: &VariantJudgement) -> String {
    let blocks = counted(judgement.blocks as usize, "block");
    match &judgement.ratio {
        Some(ratio) if ratio.interval.is_some() => format!(
            "{} {} ({}, {blocks})",
            metric.name,
            ratio_estimate(ratio),
            percent(report.method.level)
        ),
        Some(ratio) => format!("{} {} ({blocks}, no interval)", metric.name, ratio_estimate(ratio)),
        None if judgement.blocks == 0 => "no complete block yet".to_owned(),
        None => format!("no ratio ({blocks})"),
    }
}

/// What to say at the top where nothing is compared.
pub(crate) fn without_verdict(report: &Report) -> Vec<String> {
    if report.groups.iter().all(|g| g.cells.iter().all(|cell| cell.boots.is_empty())) {
        return vec![match report.failures.len() {
            0 => "No trial has ended yet: there is nothing to show.".to_owned(),
            n => format!("No trial brought a value: {} failed.", counted(n, "trial")),
        }];
    }
    let mut lines: Vec<String> = report
        .groups
        .iter()
        .filter(|group| group.primary)
        .flat_map(|group| {
            let scale = UnitScale::of(group);
            group.cells.iter().filter_map(move |cell| {
                let estimate = cell.estimate.as_ref()?;
                Some(format!(
                    "{} at {} {}: {} {} ({}).",
                    cell.variant,
                    group.workload,
                    under_load(&group.load),
                    group.metric.name,
                    scale.show_estimate(estimate),
                    counted(cell.boots.iter().filter(|boot| boot.counted).count(), "boot")
                ))
            })
        })
        .collect();
    lines.push(match report.variants.len() {
        1 => "There is one variant: nothing to compare it with.".to_owned(),
        _ => "No comparison was made.".to_owned(),
    });
    lines
}

/// Why quantiles of a distribution are missing, or their bands, a sentence for
/// all variants of which the same is true.
pub(crate) fn what_is_missing(found: &WorkloadLatencies) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for curve in &found.curves {
        let mut why = curve.missing.clone();
        if curve.overflows > 0 {
            why.push(format!(
                "{} of {} samples lie beyond the histogram, and what reaches them is not shown",
                curve.overflows, curve.samples
            ));
        }
        if why.is_empty() {
            continue;
        }
        let why = why.join("; ");
        match notes.iter_mut().find(|(known, _)| *known == why) {
            Some((_, variants)) => variants.push(&curve.variant),
            None => notes.push((why, vec![&curve.variant])),
        }
    }
    notes.iter().map(|(why, variants)| format!("{}: {why}.", variants.join(", "))).collect()
}

/// How the samples of a boot become the boot's number.
pub(crate) fn boot_statistic(report: &Report, group: &ResultGroup) -> &'static str {
    let counted = |(name, share): (&str, f64)| {
        let here = |found: &WorkloadLatencies| {
            (&*found.workload, &*found.load, &*found.name) == (&*group.workload, &*group.load, name)
        };
        share < 1.0 && report.distributions.iter().any(here)
    };
    match group.metric.kind {
        MetricKind::Quantile if group.metric.quantile().is_some_and(counted) => {
            "the quantile of all that a boot counted"
        }
        MetricKind::Time => "the median of a boot's samples",
        MetricKind::Rate => "a boot's total work by its total time",
        MetricKind::Quantile => "the median of a boot's quantiles",
        MetricKind::Count => "the median of a boot's counts",
    }
}

/// How a counter moved, e.g. `×3.04`.
pub(crate) fn counter_change(moved: &CounterMove) -> String {
    change(moved.baseline_value, moved.variant_value)
}

/// How much of a counter comes to each operation, before and after:
/// `12.3 → 0.04`; empty where operations are not counted.
pub(crate) fn each_operation(moved: &CounterMove) -> String {
    let show = |value: f64| match moved.unit.0.as_str() {
        // No thousandths of an event with a prefix.
        "count" => event_count(value),
        _ => own_prefix(&moved.unit, value),
    };
    moved.per_operation.map_or(String::new(), |(from, to)| format!("{} → {}", show(from), show(to)))
}

/// What a counter's values are of, as a column of a table says it.
pub(crate) fn count_of(of: CountScope) -> &'static str {
    match of {
        CountScope::Operation => "operation",
        CountScope::Run => "run",
        CountScope::End => "end of a run",
    }
}

/// A counter's value, or that it was not counted.
pub(crate) fn count_value(count: &CounterRow, value: Option<f64>) -> String {
    match (value, count.unit.0.as_str(), count.of) {
        (None, _, _) => "none".to_owned(),
        (Some(value), "count", CountScope::Operation) => event_count(value),
        (Some(value), "count", _) if value < 100_000.0 => event_count(value),
        (Some(value), _, _) => own_prefix(&count.unit, value),
    }
}

/// A counter's value to the last digit, with its difference from the `baseline`'s.
pub(crate) fn exact_count(count: &CounterRow, value: Option<f64>, baseline: Option<f64>) -> String {
    let (Some(value), "count") = (value, count.unit.0.as_str()) else {
        return count_value(count, value);
    };
    // Means over runs are fractions; differences of floats end in dust.
    let exact = |value: f64| {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match baseline.map(|baseline| value - baseline) {
        Some(more) if more > 0.0 => format!("{} (+{})", exact(value), exact(more)),
        Some(more) if more < 0.0 => format!("{} ({})", exact(value), exact(more)),
        _ => exact(value),
    }
}

/// What a row of counts says of each variant: to the last digit where that is
/// the same in every run.
pub(crate) fn count_values(report: &Report, count: &CounterRow) -> Vec<String> {
    if !report.environment.is_deterministic() {
        return count.values.iter().map(|value| count_value(count, *value)).collect();
    }
    let baseline = report.variants.iter().position(|variant| variant.role == VariantRole::Baseline);
    let of_baseline = baseline.and_then(|index| *count.values.get(index)?);
    let shown = |(index, value): (usize, &Option<f64>)| {
        exact_count(count, *value, of_baseline.filter(|_| baseline != Some(index)))
    };
    count.values.iter().enumerate().map(shown).collect()
}

/// What the counts are called.
pub(crate) fn counts_title(report: &Report) -> &'static str {
    if report.environment.is_deterministic() {
        "What was counted: exact, means over the boots, in brackets the difference from the baseline"
    } else {
        "What was counted, means over the boots"
    }
}

/// `text` with a capital and a full stop, as it may already have them.
pub(crate) fn as_sentence(text: &str) -> String {
    let mut characters = text.trim().chars();
    let Some(first) = characters.next() else { return String::new() };
    let stop = if text.trim_end().ends_with(['.', '?', '!', ':']) { "" } else { "." };
    format!("{}{}{stop}", first.to_uppercase(), characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_counts_keep_every_digit() {
        let count = |unit: &str| CounterRow {
            counter: "x".to_owned(),
            unit: record::Unit::from(unit),
            meaning: String::new(),
            of: CountScope::Run,
            values: Vec::new(),
        };
        let check = |unit: &str, value, baseline, expected: &str| {
            assert_eq!(exact_count(&count(unit), value, baseline), expected);
        };
        check("count", Some(14_334_191.0), None, "14334191");
        check("count", Some(14_334_191.25), Some(14_334_190.0), "14334191.25 (+1.25)");
        check("count", Some(20.0), Some(38.0), "20 (-18)");
        check("count", Some(20.0), Some(20.0), "20");
        check("count", Some(0.0), Some(100.0), "0 (-100)");
        check("count", None, Some(1.0), "none");
        check("s", Some(0.25), Some(0.5), "250.0 ms");
    }

    #[test]
    fn counters_are_told_by_operation() {
        let check = |unit: &str, per_operation, expected: &str| {
            let moved = CounterMove {
                counter: "kvm.exits.hlt".to_owned(),
                unit: record::Unit::from(unit),
                meaning: String::new(),
                variant: "v".to_owned(),
                baseline_value: 1.0,
                variant_value: 2.0,
                per_operation,
            };
            assert_eq!(each_operation(&moved), expected);
        };
        check("count", Some((12.34, 0.041)), "12.3 → 0.04");
        check("count", Some((0.0, 1_234.6)), "0 → 1235");
        check("count", Some((0.000_2, 2.0)), "0.0002 → 2");
        check("s", Some((1.5e-6, 2e-6)), "1.500 µs → 2.000 µs");
        check("count", None, "");
    }

    #[test]
    fn a_note_becomes_a_sentence_once() {
        let check = |text: &str, expected: &str| assert_eq!(as_sentence(text), expected);
        check("no variance: is the metric exact?", "No variance: is the metric exact?");
        check("few blocks", "Few blocks.");
        check("Few blocks.", "Few blocks.");
        check("", "");
    }
}
