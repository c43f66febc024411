//! Why a variant differs: the counters that moved with the metric.

use std::collections::{BTreeMap, BTreeSet};

use record::journal::{RunResult, TrialResult};
use record::{Ground, Histogram, Metric, MetricKind, Unit};
use report::{CounterMove, ReportFact};

use crate::plan::StudyPlan;
use crate::results::{self, ALPHA, JournalTrial, MetricGroup};
use crate::study::is_sum_over_vms;

/// Counters shown for each group: more would bury the ones that explain.
const MOVERS_SHOWN: usize = 12;

/// A counter must change by this factor to be named (or its inverse).
const MOVER_MIN_RATIO: f64 = 1.1;

/// What was found of a variant's VMs and their host, whether it was asked for or
/// not; all that was found where trials differ.
pub(super) fn found(variant: &str, trials: &[JournalTrial<'_>]) -> Vec<ReportFact> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.result.trial.variant == variant) {
        for (name, value) in &trial.result.facts {
            all.entry(name).or_default().insert(value);
        }
    }
    let text = |values: BTreeSet<&str>| {
        let shown: Vec<&str> = values.iter().take(FACTS_SHOWN).copied().collect();
        match values.len().saturating_sub(FACTS_SHOWN) {
            0 => shown.join("; or "),
            more => format!("{}; and {more} more", shown.join("; or ")),
        }
    };
    all.into_iter()
        .map(|(name, values)| ReportFact { name: name.to_owned(), value: text(values) })
        .collect()
}

/// What the host had when the trials of a variant began, those that count: each
/// level from its least to its greatest.
pub(super) fn ground(variant: &str, trials: &[JournalTrial<'_>]) -> Option<ReportFact> {
    let own = trials.iter().filter(|trial| trial.counted && trial.result.trial.variant == variant);
    let mut levels: Vec<(&str, u64, u64)> = Vec::new();
    for (name, bytes) in
        own.filter_map(|trial| trial.result.ground.as_ref()).flat_map(Ground::levels)
    {
        match levels.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, least, most)) => (*least, *most) = (bytes.min(*least), bytes.max(*most)),
            None => levels.push((name, bytes, bytes)),
        }
    }
    let unit = Unit::from("B");
    let show = |bytes: u64| match bytes {
        0 => "0 B".to_owned(),
        bytes => unit.show(bytes as f64),
    };
    let told = |(name, least, most): &(&str, u64, u64)| match (*least, *most) {
        (least, most) if least == most => format!("{name} {}", show(most)),
        (least, most) => format!("{name} {} to {}", show(least), show(most)),
    };
    let value = levels.iter().map(told).collect::<Vec<_>>().join(", ");
    (!value.is_empty()).then(|| ReportFact { name: GROUND.to_owned(), value })
}

/// Name of the fact that tells of [`ground`].
const GROUND: &str = "host at the start of its trials";

/// Different values of a fact that are shown.
const FACTS_SHOWN: usize = 2;

/// The counters that differ between each variant and the baseline, block by
/// block, by at least [`MOVER_MIN_RATIO`]: a list of findings among all that
/// were counted, the clearest first.
pub(super) fn movers(
    plan: &StudyPlan,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
) -> Vec<CounterMove> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let mut tested: Vec<CounterTest> = Vec::new();
    for variant in &plan.variants {
        if variant.name == plan.baseline || variant.aa_of.is_some() {
            continue;
        }
        let pairs = counted_pairs(group, trials, &plan.variants[baseline].name, &variant.name);
        let Some((a, b)) = pairs.first() else { continue };
        for name in
            [counter_names(a), counter_names(b)].concat().into_iter().collect::<BTreeSet<_>>()
        {
            let both = |of: &dyn Fn(&TrialResult) -> Option<f64>| -> Vec<(f64, f64)> {
                pairs.iter().filter_map(|(a, b)| Some((of(a)?, of(b)?))).collect()
            };
            let values = both(&|trial| per_run(trial, name));
            let mut of_counter = test_counter(name, &variant.name, &values);
            if let Some(tested) = &mut of_counter {
                let each = both(&|trial| per_operation(group.metric, trial, name));
                let each = mean_of_pairs(&each).filter(|_| is_of_all_vms(group));
                tested.mover.per_operation = each;
            }
            tested.extend(of_counter);
        }
    }
    let p: Vec<f64> = tested.iter().map(|tested| tested.p).collect();
    let mut found: Vec<CounterTest> = tested
        .into_iter()
        .zip(stats::benjamini_hochberg(&p))
        .filter(|(tested, q)| *q <= ALPHA && tested.size >= MOVER_MIN_RATIO.ln())
        .map(|(tested, _)| tested)
        .collect();
    found.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
    found.into_iter().take(MOVERS_SHOWN).map(|tested| tested.mover).collect()
}

/// What the blocks say about a counter.
struct CounterTest {
    mover: CounterMove,
    /// Mean logarithm of the ratio, without its sign.
    size: f64,
    /// How many standard deviations that is.
    evidence: f64,
    /// p of "it did not move".
    p: f64,
}

/// The trials of `a` and `b` in the blocks that both counted in.
pub(super) fn counted_pairs<'t>(
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'t>],
    a: &str,
    b: &str,
) -> Vec<(&'t TrialResult, &'t TrialResult)> {
    let of = |variant: &str| {
        let variant = variant.to_owned();
        trials.iter().filter(move |trial| {
            let key = &trial.result.trial;
            trial.counted
                && trial.result.outcome.is_completed()
                && key.variant == variant
                && key.load == group.load.name
                && key.workload == group.workload.label
        })
    };
    of(a)
        .filter_map(|a| {
            let b = of(b).find(|b| b.result.trial.block == a.result.trial.block)?;
            Some((a.result, b.result))
        })
        .collect()
}

pub(super) fn counter_names(result: &TrialResult) -> Vec<&str> {
    let first = result.runs.first();
    first.map(|run| run.counters.0.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// The mean of a counter over the runs of a boot.
fn per_run(result: &TrialResult, name: &str) -> Option<f64> {
    let total = total(result, name)?;
    (!result.runs.is_empty()).then(|| total / result.runs.len() as f64)
}

/// The sum of a counter over the runs of a boot; none where one lacks it.
pub(super) fn total(result: &TrialResult, name: &str) -> Option<f64> {
    result.runs.iter().map(|run| run.counters.counted(name)).sum()
}

/// A counter by the operations of the runs of a boot, where the benchmark
/// counts operations. What the whole host did, and levels, are no one
/// operation's.
fn per_operation(metric: &Metric, result: &TrialResult, name: &str) -> Option<f64> {
    if record::is_level(name) || name.starts_with("host.") {
        return None;
    }
    Some(total(result, name)? / operations_of_runs(metric, result)?)
}

/// Operations of all runs of a boot, where each of them tells.
pub(super) fn operations_of(group: &MetricGroup<'_>, result: &TrialResult) -> Option<f64> {
    operations_of_runs(group.metric, result).filter(|_| is_of_all_vms(group))
}

/// Whether a metric tells of all that the counters count: one VM's value does not where
/// several are measured.
fn is_of_all_vms(group: &MetricGroup<'_>) -> bool {
    let one_vm = &group.workload.of_several_vms;
    one_vm.is_empty() || is_sum_over_vms(group.metric, one_vm)
}

fn operations_of_runs(metric: &Metric, result: &TrialResult) -> Option<f64> {
    let operations: Option<f64> = result.runs.iter().map(|run| operations(metric, run)).sum();
    operations.filter(|operations| *operations > 0.0)
}

/// Operations of a run: as many as were timed one by one, else those that the
/// metric's rate means for the run's wall time.
fn operations(metric: &Metric, run: &RunResult) -> Option<f64> {
    let family = metric.quantile().map_or(metric.name.as_str(), |(family, _)| family);
    let counted: u64 =
        run.histograms.iter().filter(|one| one.name == family).map(Histogram::count).sum();
    if counted > 0 {
        return Some(counted as f64);
    }
    if metric.kind != MetricKind::Rate || metric.unit.0 != "1/s" {
        return None;
    }
    let rates: Vec<f64> = run
        .samples
        .iter()
        .filter(|sample| sample.metric == metric.name)
        .map(|sample| sample.value)
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64 * run.wall_s)
}

fn mean_of_pairs(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = pairs.len() as f64;
    let sum = |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).sum::<f64>() / count;
    (!pairs.is_empty()).then(|| (sum(|pair| pair.0), sum(|pair| pair.1)))
}

/// Tests whether a counter moved. None where a single block can't tell, or
/// nothing was ever counted.
fn test_counter(name: &str, variant: &str, values: &[(f64, f64)]) -> Option<CounterTest> {
    let unit = record::counter(name).map_or("count", |counter| counter.unit);
    // Zeros have no logarithm. A floor far below what matters keeps them
    // comparable: one event, a millisecond, a page.
    let floor = match unit {
        "s" => 1e-3,
        "B" => 4096.0,
        _ => 1.0,
    };
    let (baseline_value, variant_value) = mean_of_pairs(values)?;
    let logs: Vec<f64> =
        values.iter().map(|(a, b)| ((b.max(0.0) + floor) / (a.max(0.0) + floor)).ln()).collect();
    let test =
        stats::t_test(&logs, 1.0 - ALPHA).filter(|test| test.sd > 0.0 || test.mean != 0.0)?;
    let meaning = record::counter(name).map_or("", |counter| counter.meaning).to_owned();
    let mover = CounterMove {
        counter: name.to_owned(),
        unit: Unit::from(unit),
        meaning,
        variant: variant.to_owned(),
        baseline_value,
        variant_value,
        per_operation: None,
    };
    // Equal differences in every block leave no noise: nothing is surer.
    let evidence = test.mean.abs() / test.sd;
    Some(CounterTest { mover, size: test.mean.abs(), evidence, p: test.p })
}

#[cfg(test)]
mod tests {
    use record::journal::TrialKey;
    use record::{BetterDirection, CounterSet, Failure, FailureKind, Outcome, Sample};

    use super::*;
    use crate::execute::TrialRecord;

    fn run(samples: &[f64], histograms: Vec<Histogram>, counters: &[(&str, f64)]) -> RunResult {
        RunResult {
            run: 0,
            outcome: Outcome::Completed,
            command: Vec::new(),
            wall_s: 2.0,
            started_unix_s: 0.0,
            tool_version: None,
            samples: samples
                .iter()
                .map(|value| Sample { metric: "ops-per-s".to_owned(), value: *value })
                .collect(),
            histograms,
            counters: CounterSet(
                counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ),
            blobs: BTreeMap::new(),
        }
    }

    fn metric(name: &str, unit: &str, kind: MetricKind) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: Unit::from(unit),
            better: BetterDirection::Higher,
            kind,
        }
    }

    #[test]
    fn operations_are_counted_or_follow_from_a_rate() {
        let latency = || vec![Histogram::new("latency", [(1000, 40), (2000, 9)], 1)];
        let rate = metric("ops-per-s", "1/s", MetricKind::Rate);
        let p99 = metric("latency-p99", "s", MetricKind::Quantile);
        let check = |metric: &Metric, run: &RunResult, expected: Option<f64>| {
            assert_eq!(operations(metric, run), expected, "{}", metric.name);
        };
        check(&p99, &run(&[], latency(), &[]), Some(50.0));
        check(&rate, &run(&[100.0, 300.0], latency(), &[]), Some(400.0));
        check(&rate, &run(&[], vec![], &[]), None);
        check(&p99, &run(&[], vec![], &[]), None);
        check(&metric("ops-per-s", "B/s", MetricKind::Rate), &run(&[5.0], vec![], &[]), None);
    }

    #[test]
    fn counters_are_divided_by_the_operations_of_all_runs() {
        let counters =
            [("kvm.exits.hlt", 200.0), ("host.interrupts", 1.0), ("memory.thp_bytes", 1.0)];
        let key = TrialKey {
            id: String::new(),
            block: 0,
            attempt: 0,
            load: String::new(),
            workload: String::new(),
            variant: "v".to_owned(),
            order: 0,
        };
        let failure = Failure::new(FailureKind::Aborted, String::new());
        let mut trial = TrialRecord::failed(key, failure).result;
        trial.runs = vec![run(&[50.0], vec![], &counters), run(&[150.0], vec![], &counters)];
        let rate = metric("ops-per-s", "1/s", MetricKind::Rate);
        let each = |name: &str| per_operation(&rate, &trial, name);
        assert_eq!(each("kvm.exits.hlt"), Some(1.0));
        // Exits were counted: that of this reason there was none is known.
        assert_eq!(each("kvm.exits.0x7e"), Some(0.0));
        for name in ["host.interrupts", "memory.thp_bytes", "kvm.unknown", "vcpu.run_s"] {
            assert_eq!(each(name), None, "{name}");
        }
        assert_eq!(per_run(&trial, "kvm.exits.hlt"), Some(200.0));
    }
}
