//! From a plan and its journal to numbers: boots, comparisons, rows.
//!
//! Everything is computed anew from plan and journal, so a verdict can be
//! had again, bit for bit, from the results folder alone.

use std::collections::BTreeMap;

use record::journal::{RunResult, TrialResult};
use record::{HostSign, Metric, RecordSource, SampleRow};
use report::sample_kind;
use stats::{
    BootStatistic, Comparison, ControlledRatios, Disturbance, Engine, FixedBlocks,
    LatencyDistribution, NoQuantile, PairedBlocks, SequentialTest, boot_statistic,
};
use topology::PcpuSet;

use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::state::JournalState;
use crate::study::{DEFAULT_MARGIN_PERCENT, EndCondition, HostLoad};
pub use crate::trials::{JournalTrial, trials};
use crate::{pilot, stability};

/// The rate of false claims that verdicts are made at.
pub const ALPHA: f64 = 0.05;

pub(crate) const NS_PER_S: f64 = 1e9;

/// One boot's number for one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct BootValue {
    /// Number of the block.
    pub block: u32,
    /// Position in the study's order.
    pub order: u32,
    /// The number that is compared.
    pub statistic: BootStatistic,
    /// The samples behind it, in the order in which they were printed.
    pub samples: Vec<f64>,
    /// False where it takes no part in a comparison.
    pub counted: bool,
    /// What the host did beside it.
    pub host: Disturbance,
    /// Where its vCPUs were allowed to run; empty if that was not read.
    pub pcpus: PcpuSet,
}

/// One metric of one workload under one load, by variant.
#[derive(Debug, Clone)]
pub struct MetricGroup<'a> {
    /// The load level.
    pub load: &'a HostLoad,
    /// The workload.
    pub workload: &'a PlanWorkload,
    /// The metric.
    pub metric: &'a Metric,
    /// The boots of each variant, in the plan's order of variants.
    pub boots: Vec<Vec<BootValue>>,
    /// Boots that would count but whose samples give no number, and why: variant,
    /// block, reason.
    pub unusable: Vec<(String, u32, String)>,
}

/// The groups of a plan, in its order, filled from the journal.
#[must_use]
pub fn groups<'a>(plan: &'a StudyPlan, trials: &[JournalTrial<'_>]) -> Vec<MetricGroup<'a>> {
    let mut groups = Vec::new();
    for load in &plan.loads {
        for workload in &plan.workloads {
            let here = |trial: &&JournalTrial<'_>| {
                let key = &trial.result.trial;
                key.load == load.name && key.workload == workload.label
            };
            let here: Vec<_> = trials.iter().filter(here).copied().collect();
            let discarded = pilot::repeats(plan, trials, workload).discarded;
            groups.extend(
                workload
                    .metrics
                    .iter()
                    .map(|metric| group(load, workload, metric, &plan.variants, &here, discarded)),
            );
        }
    }
    groups
}

fn group<'a>(
    load: &'a HostLoad,
    workload: &'a PlanWorkload,
    metric: &'a Metric,
    variants: &[PlanVariant],
    trials: &[JournalTrial<'_>],
    discarded: u32,
) -> MetricGroup<'a> {
    let mut unusable = Vec::new();
    let boots = variants
        .iter()
        .map(|variant| {
            let mut boots = Vec::new();
            for trial in trials.iter().filter(|trial| trial.result.trial.variant == variant.name) {
                let samples: Vec<f64> = samples(trial.result, &metric.name, discarded).collect();
                let counted = quantile(trial.result, metric, discarded);
                // A metric may be absent from a run that ended well, e.g. a
                // latency of reads where there were none.
                let is_absent = samples.is_empty() && counted.is_none();
                if is_absent || !trial.result.outcome.is_completed() {
                    continue;
                }
                let key = &trial.result.trial;
                let statistic = match counted {
                    Some(Ok(value)) => number(metric, &[value]),
                    Some(Err(error)) => Err(error.to_string()),
                    None => number(metric, &samples),
                };
                match statistic {
                    Ok(statistic) => boots.push(BootValue {
                        block: key.block,
                        order: key.order,
                        statistic,
                        samples,
                        counted: trial.counted,
                        host: stability::disturbance(load, trial.result),
                        pcpus: pcpus(trial.result),
                    }),
                    Err(reason) if trial.counted => {
                        unusable.push((variant.name.clone(), key.block, reason));
                    }
                    // It would take no part anyway.
                    Err(_) => {}
                }
            }
            boots
        })
        .collect();
    MetricGroup { load, workload, metric, boots, unusable }
}

/// The boot's number from values of `metric`.
fn number(metric: &Metric, values: &[f64]) -> Result<BootStatistic, String> {
    boot_statistic(sample_kind(metric.kind, &metric.unit.0), values)
        .map_err(|error| error.to_string())
}

/// What the runs of a boot counted into the histogram `name`, all of them
/// together (ns), without those that warm up. None where one of them has no
/// such histogram.
#[must_use]
pub fn distribution(
    result: &TrialResult,
    name: &str,
    discarded: u32,
) -> Option<LatencyDistribution> {
    let of_run = |run: &RunResult| {
        let histogram = run.histograms.iter().find(|histogram| histogram.name == name)?;
        Some(LatencyDistribution::new(histogram.buckets_ns.iter().copied(), histogram.overflows))
    };
    let counted = result.runs.iter().filter(|run| run.run >= discarded);
    let parts: Vec<LatencyDistribution> = counted.map(of_run).collect::<Option<_>>()?;
    (!parts.is_empty()).then(|| LatencyDistribution::merged(&parts))
}

/// The quantile that `metric` is, s, from all that the boot counted; none where
/// the benchmark prints nothing but the quantile itself.
fn quantile(
    result: &TrialResult,
    metric: &Metric,
    discarded: u32,
) -> Option<Result<f64, NoQuantile>> {
    let (name, share) = metric.quantile().filter(|(_, share)| *share < 1.0)?;
    let distribution = distribution(result, name, discarded)?;
    Some(distribution.quantile(share).map(|ns| ns as f64 / NS_PER_S))
}

fn pcpus(result: &TrialResult) -> PcpuSet {
    let mut all = PcpuSet::new();
    for set in result.vcpu_affinity.iter().filter_map(|list| list.parse::<PcpuSet>().ok()) {
        all.extend(&set);
    }
    all
}

/// What the runs of a boot printed of a metric, without those that warm up.
fn samples<'a>(
    result: &'a TrialResult,
    metric: &'a str,
    discarded: u32,
) -> impl Iterator<Item = f64> + 'a {
    let counted = result.runs.iter().filter(move |run| run.run >= discarded);
    let all = counted.flat_map(|run| &run.samples);
    all.filter(move |sample| sample.metric == metric).map(|sample| sample.value)
}

impl MetricGroup<'_> {
    /// True for the metric that decides whether its workload goes on.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.workload.metrics.first() == Some(self.metric)
    }

    /// What is taken out of [`Self::comparison`] for what the host did beside
    /// the trials, where that helps.
    #[must_use]
    pub fn controlled(
        &self,
        plan: &StudyPlan,
        baseline: usize,
        variant: usize,
    ) -> Option<ControlledRatios> {
        let (a, b) = (&self.boots[baseline], &self.boots[variant]);
        let blocks = PairedBlocks::from_boots(pairs(a, b, |boot| boot.statistic));
        stats::control(&blocks.log_ratios, &host(plan, a, b), PILOT)
    }

    /// The comparison of variant number `variant` with the baseline.
    #[must_use]
    pub fn comparison(&self, plan: &StudyPlan, baseline: usize, variant: usize) -> Comparison {
        let (a, b) = (&self.boots[baseline], &self.boots[variant]);
        let mut blocks = PairedBlocks::from_boots(pairs(a, b, |boot| boot.statistic));
        let host = host(plan, a, b);
        if let Some(controlled) = stats::control(&blocks.log_ratios, &host, PILOT) {
            blocks.log_ratios = controlled.log_ratios;
        }
        let margin = self.workload.margin_percent.get(&self.metric.name);
        Comparison {
            blocks,
            better: self.metric.better,
            margin: margin.copied().unwrap_or(DEFAULT_MARGIN_PERCENT) / 100.0,
            aa: plan.variants[variant].aa_of.is_some(),
            host,
        }
    }
}

/// Blocks that teach how much of the host's disturbance is in the ratios.
const PILOT: usize = 6;

/// What the host did beside both in the blocks that both counted in. How fast
/// pCPUs are is a disturbance only where both ran on the same ones.
fn host(plan: &StudyPlan, a: &[BootValue], b: &[BootValue]) -> Vec<[Disturbance; 2]> {
    if plan.environment().is_deterministic() {
        // Whatever disturbs does so in every run, at the same instruction.
        return Vec::new();
    }
    let both = pairs(a, b, |boot| (boot.host.clone(), boot.pcpus.clone()));
    let mut host = Vec::with_capacity(both.len());
    for ((mut a, on_a), (mut b, on_b)) in both {
        if on_a != on_b {
            for seen in [&mut a, &mut b] {
                seen.signs.retain(|(sign, _)| !matches!(sign, HostSign::Clock | HostSign::Canary));
            }
        }
        host.push([a, b]);
    }
    host
}

/// What both have to say about the blocks that both counted in.
fn pairs<T>(a: &[BootValue], b: &[BootValue], value: impl Fn(&BootValue) -> T) -> Vec<(T, T)> {
    let by_block: BTreeMap<u32, &BootValue> =
        a.iter().filter(|boot| boot.counted).map(|boot| (boot.block, boot)).collect();
    b.iter()
        .filter(|boot| boot.counted)
        .filter_map(|b| by_block.get(&b.block).map(|a| (value(a), value(b))))
        .collect()
}

/// The baseline's place among the plan's variants.
#[must_use]
pub fn baseline_index(plan: &StudyPlan) -> Option<usize> {
    plan.variants.iter().position(|variant| variant.name == plan.baseline)
}

/// The engine that the plan asks for.
///
/// A study that was extended beyond its plan is judged by the bounds that hold
/// for any number of blocks, whatever the plan had.
#[must_use]
pub fn engine(plan: &StudyPlan, state: &JournalState) -> Box<dyn Engine> {
    const SOUND: &str = "at least one block, and 0.05 is a probability";
    let blocks = plan.budget.blocks.map(|blocks| blocks.max(1));
    match (blocks, plan.budget.until, state.extended_to) {
        (Some(blocks), EndCondition::Decided, _)
        | (Some(blocks), EndCondition::Budget, Some(_)) => {
            Box::new(SequentialTest::within(blocks, ALPHA).expect(SOUND))
        }
        (None, EndCondition::Decided, _) | (None, EndCondition::Budget, Some(_)) => {
            Box::new(SequentialTest::open_ended(ALPHA).expect(SOUND))
        }
        (blocks, EndCondition::Budget, None) => {
            Box::new(FixedBlocks::new(blocks.unwrap_or(u32::MAX), ALPHA).expect(SOUND))
        }
    }
}

/// Every sample with its settings: the rows of the exports.
#[must_use]
pub fn records(plan: &StudyPlan, trials: &[JournalTrial<'_>]) -> Vec<SampleRow> {
    let mut records = Vec::new();
    for trial in trials {
        let key = &trial.result.trial;
        let workload = plan.workloads.iter().find(|workload| workload.label == key.workload);
        let variant = plan.variants.iter().find(|variant| variant.name == key.variant);
        let (Some(workload), Some(variant)) = (workload, variant) else { continue };
        for run in &trial.result.runs {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            for sample in &run.samples {
                let metric = workload.metrics.iter().find(|metric| metric.name == sample.metric);
                let Some(metric) = metric else { continue };
                let number = counts.entry(sample.metric.as_str()).or_default();
                records.push(SampleRow {
                    study: plan.study.clone(),
                    load: key.load.clone(),
                    workload: key.workload.clone(),
                    variant: key.variant.clone(),
                    block: key.block,
                    attempt: key.attempt,
                    counted: trial.counted && trial.result.outcome.is_completed(),
                    trial: key.id.clone(),
                    order: key.order,
                    run: run.run,
                    sample: *number,
                    metric: metric.clone(),
                    value: sample.value,
                    environment: variant.environment,
                    source: RecordSource {
                        tool: workload.workload.clone(),
                        version: run.tool_version.clone(),
                    },
                    started_unix_s: run.started_unix_s,
                });
                *number += 1;
            }
        }
    }
    records
}
