//! The answer as text, JSON and records.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use record::{BetterDirection, Environment, Metric, MetricKind, RecordSource, SampleRow, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use sim::answer::{CellAnswer, DrawEstimate, DrawResult, MeterAnswer};
use sim::costs::MeasuredConstant;
use sim::scenario::{CountScale, Scenario};

use super::draw::DrawPlan;

/// The version of what `--json` prints.
const ANSWER_VERSION: u32 = 1;

fn better(scenario: &Scenario) -> BetterDirection {
    match scenario.unit.scale {
        CountScale::SecondsFor(_) => BetterDirection::Lower,
        _ => BetterDirection::Higher,
    }
}

/// What `--check` says.
pub(super) fn plan(scenario: &Scenario, plan: &DrawPlan) -> String {
    let mut text = title(scenario);
    for cell in &scenario.cells {
        let model = &cell.model;
        let vcpus: usize = model.vms.iter().map(|vm| vm.machine.len()).sum();
        let _ = writeln!(
            text,
            "  {}: {} pCPUs, {}, {} VMs, {vcpus} vCPUs, {} tasks, {} ms",
            name(cell.variant.as_str(), &cell.point),
            model.machine.len(),
            model.policy.kernel.name(),
            model.vms.len(),
            model.vms.iter().map(|vm| vm.tasks.len()).sum::<usize>(),
            (model.warmup_ns + model.duration_ns) / 1_000_000,
        );
    }
    let _ = writeln!(text, "{} runs, {} draws of the costs", plan.jobs.len(), scenario.draws);
    text
}

fn title(scenario: &Scenario) -> String {
    let title = &scenario.title;
    if title.is_empty() { String::new() } else { format!("{title}\n") }
}

fn name(variant: &str, point: &str) -> String {
    if point.is_empty() { variant.to_owned() } else { format!("{variant}, {point}") }
}

/// Three or four digits of a number.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

pub(crate) fn interval(estimate: &DrawEstimate) -> String {
    let [low, median, high] = [estimate.low, estimate.median, estimate.high].map(digits);
    format!("{median} [{low} .. {high}]")
}

/// The answer for people.
pub(super) fn text(
    scenario: &Scenario,
    answers: &[CellAnswer],
    measured: &[MeasuredConstant],
    interrupted: bool,
) -> String {
    let mut text = title(scenario);
    let environment = Environment::Simulated.sentence();
    let _ = writeln!(text, "{environment} Medians, with four draws in five in brackets.");
    if !measured.is_empty() {
        let each = measured.iter().map(|of| {
            let [low, median, high] = [of.low, of.median, of.high].map(digits);
            format!("{} {median} [{low} .. {high}]", of.name)
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "Costs that were measured: {each}; all others as known.");
    }
    if interrupted {
        text.push_str("Interrupted: this is what is known so far.\n");
    }
    let unit = &scenario.unit.name;
    for cell in answers {
        let _ = writeln!(text, "\n{} ({} draws)", name(&cell.variant, &cell.point), cell.draws);
        for meter in &cell.meters {
            let _ = write!(text, "  {:<18} {} {unit}", meter.name, interval(&meter.value));
            if let Some(ratio) = &meter.ratio {
                let baseline = &scenario.baseline;
                let _ = write!(text, "; {} of {baseline}", interval(ratio));
            }
            if let Some(greater) = meter.greater {
                let _ = write!(text, "; P(greater) {greater:.2}");
            }
            text.push('\n');
            if let Some((median, p99)) = &meter.latency {
                let us = |of: &DrawEstimate| digits(of.median / 1e3);
                let _ = writeln!(
                    text,
                    "  {:<18} median {} us, 99th percentile {} us",
                    "latency",
                    us(median),
                    us(p99)
                );
            }
        }
        let time = cell.time.iter().filter(|(_, share)| *share >= 0.005);
        let time: Vec<String> =
            time.map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
        let _ = writeln!(text, "  {:<18} {}", "time", time.join(", "));
        let waited = cell.counters.iter().find(|(name, _)| *name == sim::EventCounts::WAITED);
        if let Some(at_a_time) = waited.map(|(_, ns)| ns / 1e9).filter(|count| *count >= 0.005) {
            let count = digits(at_a_time);
            let _ = writeln!(text, "  {:<18} {count} threads at a time wait for a pCPU", "waiting");
        }
        let counters = cell
            .counters
            .iter()
            .filter(|(name, rate)| *rate > 0.0 && *name != sim::EventCounts::WAITED);
        let counters: Vec<String> =
            counters.map(|(name, rate)| format!("{name} {}", digits(*rate))).collect();
        if !counters.is_empty() {
            let _ = writeln!(text, "  {:<18} {}", "a second", counters.join(", "));
        }
        if !cell.carried_by.is_empty() {
            let carried: Vec<String> = cell
                .carried_by
                .iter()
                .map(|(name, share)| format!("{name} {:.0} %", share * 100.0))
                .collect();
            let _ = writeln!(text, "  {:<18} {}", "carried by", carried.join(", "));
        } else if cell.nothing_to_carry {
            let _ = writeln!(
                text,
                "  {:<18} nothing: there is no difference from {} beyond its interval",
                "carried by", scenario.baseline
            );
        }
        if let Some((one, other)) = cell.bistable {
            let _ = writeln!(
                text,
                "  {:<18} bistable: {} from the scenario's start, {} from the other one; \
                 neither is the answer",
                "warning",
                digits(one),
                digits(other)
            );
        }
    }
    text
}

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AnswerJson<'a> {
    format: &'static str,
    version: u32,
    environment: Environment,
    title: &'a str,
    seed: u64,
    /// Draws of the costs that were asked for.
    draws: u32,
    /// The variant that ratios are to.
    baseline: &'a str,
    /// The unit of the meters' values.
    unit: &'a str,
    better: BetterDirection,
    /// True if draws are missing.
    interrupted: bool,
    /// Costs that were measured on this host instead of published ones.
    calibrated: Vec<MeasuredJson>,
    cells: Vec<CellJson<'a>>,
}

/// A measured cost, in the unit of its name.
#[derive(Serialize, JsonSchema)]
struct MeasuredJson {
    name: String,
    low: f64,
    median: f64,
    high: f64,
}

/// A variant at a point of the sweep.
#[derive(Serialize, JsonSchema)]
struct CellJson<'a> {
    variant: &'a str,
    point: &'a str,
    /// Draws that ended.
    draws: usize,
    meters: Vec<MeterJson<'a>>,
    /// Where the pCPUs' time went: shares of all.
    time: BTreeMap<&'a str, f64>,
    /// What happened, a second, by name.
    a_second: BTreeMap<&'a str, f64>,
    /// Two values between which the model can't choose.
    bistable: Option<(f64, f64)>,
    /// How much of the difference from the baseline goes away with each mechanism.
    carried_by: BTreeMap<&'a str, f64>,
}

/// What one meter says.
#[derive(Serialize, JsonSchema)]
struct MeterJson<'a> {
    name: &'a str,
    /// In the answer's unit.
    value: EstimateJson,
    /// To the baseline, draw by draw.
    ratio: Option<EstimateJson>,
    /// How often its value is greater than the baseline's.
    p_greater: Option<f64>,
    latency_median_ns: Option<EstimateJson>,
    latency_p99_ns: Option<EstimateJson>,
}

/// What the draws have in common: between low and high lie four in five.
#[derive(Serialize, JsonSchema)]
struct EstimateJson {
    low: f64,
    median: f64,
    high: f64,
    mean: f64,
}

fn estimate(of: &DrawEstimate) -> EstimateJson {
    EstimateJson { low: of.low, median: of.median, high: of.high, mean: of.mean }
}

/// The answer for programs.
pub(super) fn json(
    scenario: &Scenario,
    answers: &[CellAnswer],
    measured: &[MeasuredConstant],
    interrupted: bool,
) -> anyhow::Result<String> {
    let calibrated = |of: &MeasuredConstant| MeasuredJson {
        name: of.name.to_owned(),
        low: of.low,
        median: of.median,
        high: of.high,
    };
    let all = AnswerJson {
        format: "vmlab-sim",
        version: ANSWER_VERSION,
        environment: Environment::Simulated,
        title: &scenario.title,
        seed: scenario.seed,
        draws: scenario.draws,
        baseline: &scenario.baseline,
        unit: &scenario.unit.name,
        better: better(scenario),
        interrupted,
        calibrated: measured.iter().map(calibrated).collect(),
        cells: answers.iter().map(cell).collect(),
    };
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

fn cell(cell: &CellAnswer) -> CellJson<'_> {
    CellJson {
        variant: &cell.variant,
        point: &cell.point,
        draws: cell.draws,
        meters: cell.meters.iter().map(meter_json).collect(),
        time: cell.time.iter().copied().collect(),
        a_second: cell.counters.iter().copied().collect(),
        bistable: cell.bistable,
        carried_by: cell.carried_by.iter().copied().collect(),
    }
}

fn meter_json(meter: &MeterAnswer) -> MeterJson<'_> {
    let (median, p99) = meter.latency.as_ref().map(|(median, p99)| (median, p99)).unzip();
    MeterJson {
        name: &meter.name,
        value: estimate(&meter.value),
        ratio: meter.ratio.as_ref().map(estimate),
        p_greater: meter.greater,
        latency_median_ns: median.map(estimate),
        latency_p99_ns: p99.map(estimate),
    }
}

/// Each draw's values, as records of environment `simulated`.
pub(super) fn records(study: &str, scenario: &Scenario, drawn: &[DrawResult]) -> String {
    let mut records = Vec::new();
    for (cell, drawn) in scenario.cells.iter().zip(drawn) {
        for (draw, outcome) in drawn.outcomes.iter().enumerate() {
            for (name, meter) in
                cell.model.meters.iter().zip(outcome.iter().flat_map(|o| &o.meters))
            {
                records.push(SampleRow {
                    study: study.to_owned(),
                    load: if cell.point.is_empty() { "-".to_owned() } else { cell.point.clone() },
                    workload: name.clone(),
                    variant: cell.variant.clone(),
                    block: draw as u32,
                    attempt: 0,
                    counted: true,
                    trial: format!("{}/{}/{draw}", cell.variant, cell.point),
                    order: records.len() as u32,
                    run: 0,
                    sample: 0,
                    metric: Metric {
                        name: "rate".to_owned(),
                        unit: Unit("1/s".to_owned()),
                        better: BetterDirection::Higher,
                        kind: MetricKind::Rate,
                    },
                    value: meter.per_s,
                    environment: Environment::Simulated,
                    source: RecordSource {
                        tool: "vmlab sim".to_owned(),
                        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    },
                    started_unix_s: 0.0,
                });
            }
        }
    }
    report::json(&records)
}
