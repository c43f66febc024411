//! What goes beyond one metric's ratio: all workloads as one number, and
//! whether a variant is steadier.

use record::BetterDirection;
use report::{ReportFact, Suite, VariantJudgement};
use stats::{Comparison, Engine, PairedBlocks, SpreadVerdict};

use crate::plan::StudyPlan;
use crate::results::{self, ALPHA, BootValue, MetricGroup};

/// The smallest difference of steadiness that matters: a fifth.
const STEADINESS_MARGIN: f64 = 0.2;

/// Each variant over all workloads of a load level, by the geometric mean of
/// the primary metrics' ratios; none where there is but one workload.
pub(super) fn suites(
    plan: &StudyPlan,
    engine: &dyn Engine,
    groups: &[MetricGroup<'_>],
) -> Vec<Suite> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let mut suites = Vec::new();
    for load in &plan.loads {
        let primary: Vec<&MetricGroup<'_>> = groups
            .iter()
            .filter(|group| group.is_primary() && group.load.name == load.name)
            .collect();
        if primary.len() < 2 {
            continue;
        }
        for (index, variant) in plan.comparisons() {
            let comparisons: Vec<Comparison> =
                primary.iter().map(|group| group.comparison(plan, baseline, index)).collect();
            let Some(mut whole) = stats::suite(&comparisons) else { continue };
            // Times count as they are and rates upside down: less is better.
            if whole.better == BetterDirection::Higher {
                whole.better = BetterDirection::Lower;
                whole.blocks.log_ratios.iter_mut().for_each(|log| *log = -*log);
            }
            suites.push(Suite {
                load: load.name.clone(),
                variant: variant.name.clone(),
                workloads: u32::try_from(primary.len()).unwrap_or(u32::MAX),
                judgement: VariantJudgement::of(engine, &whole),
            });
        }
    }
    suites
}

/// Whether each variant is steadier than the baseline, inside a boot and from
/// boot to boot: two questions that have nothing to do with each other.
pub(super) fn steadiness(
    plan: &StudyPlan,
    engine: &dyn Engine,
    group: &MetricGroup<'_>,
) -> Vec<ReportFact> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let of = |(index, variant): (usize, &crate::plan::PlanVariant)| {
        let (a, b) = (counted(&group.boots[baseline]), counted(&group.boots[index]));
        let value = format!(
            "inside a boot {}; from boot to boot {}",
            inside(engine, &a, &b),
            between(&a, &b)
        );
        (!a.is_empty() && !b.is_empty()).then(|| ReportFact { name: variant.name.clone(), value })
    };
    plan.comparisons().filter_map(of).collect()
}

fn counted(boots: &[BootValue]) -> Vec<&BootValue> {
    boots.iter().filter(|boot| boot.counted).collect()
}

/// The boots of A and B that share a block.
fn in_blocks<'b>(
    a: &[&'b BootValue],
    b: &[&'b BootValue],
) -> impl Iterator<Item = (&'b BootValue, &'b BootValue)> {
    b.iter().filter_map(|b| Some((*a.iter().find(|a| a.block == b.block)?, *b)))
}

fn inside(engine: &dyn Engine, a: &[&BootValue], b: &[&BootValue]) -> String {
    let spread = |boot: &BootValue| stats::unsteadiness(&boot.samples);
    let ratio = |(a, b): (&BootValue, &BootValue)| Some(spread(b)? - spread(a)?);
    let log_ratios: Vec<f64> = in_blocks(a, b).filter_map(ratio).collect();
    if log_ratios.is_empty() {
        return "nothing can be told (it takes five samples in a boot)".to_owned();
    }
    let comparison = Comparison {
        blocks: PairedBlocks { log_ratios },
        better: BetterDirection::Lower,
        margin: STEADINESS_MARGIN,
        aa: false,
        host: Vec::new(),
    };
    let judged = engine.judge(&comparison);
    let word = report::steadiness((&judged.verdict).into());
    match judged.interval.filter(|span| report::is_bound(1.0, span.lo, span.hi)) {
        Some(span) => format!("{word} (spread ×{:.2} to ×{:.2})", span.lo, span.hi),
        None => word,
    }
}

fn between(a: &[&BootValue], b: &[&BootValue]) -> String {
    let logs: Vec<(f64, f64)> =
        in_blocks(a, b).map(|(a, b)| (a.statistic.log, b.statistic.log)).collect();
    let verdict = stats::compare_spread_in_blocks(&logs, ALPHA);
    let word = report::steadiness((&verdict).into());
    let ratio = match verdict {
        SpreadVerdict::BSteadier { ratio } | SpreadVerdict::BLessSteady { ratio } => Some(ratio),
        SpreadVerdict::CannotTell { ratio } => ratio,
    };
    let few = logs.len() < stats::LEAST_BOOTS;
    let need = if few { format!("; it takes {} boots", stats::LEAST_BOOTS) } else { String::new() };
    match ratio.filter(|span| span.lo > 1e-3 && span.hi < 1e3) {
        Some(span) => format!("{word} (spread ×{:.2} to ×{:.2}{need})", span.lo, span.hi),
        None => format!("{word}{}", if few { " (it takes 20 boots)" } else { "" }),
    }
}
