//! What the first blocks teach: how often a benchmark is worth repeating in a
//! boot, and how many of the first repetitions are still warming up.
//!
//! Both come from the variance inside and between boots and from the shape of
//! the boots, never from the comparison, and hold for all variants alike. They
//! are computed from the journal's first blocks and frozen with them, so a
//! study that is resumed goes on as it would have.
//!
//! Source: T. Kalibera, R. Jones, "Rigorous Benchmarking in Reasonable Time",
//! ISMM 2013.

use std::collections::BTreeMap;

use record::journal::TrialResult;
use stats::{
    Allocation, Components, RepetitionCosts, SampleKind, allocate, boot_statistic, components,
    warm_up,
};

use crate::plan::{PlanWorkload, StudyPlan};
use crate::study::DEFAULT_MARGIN_PERCENT;
use crate::trials::JournalTrial;

/// Blocks of each load level that teach.
const BLOCKS: u32 = 4;

/// Most invocations in a boot, those that warm up included.
const MOST: u32 = 30;

/// A departure from the steady state that is smaller than this part of the
/// margin does no harm.
const HARMLESS: f64 = 1.0 / 6.0;

/// How a workload is repeated inside a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// Invocations in each boot to come.
    pub invocations: u32,
    /// The first invocations of every boot that don't count.
    pub discarded: u32,
    /// False if the benchmark was still warming up at its last invocation.
    pub is_steady: bool,
}

/// How `workload` is repeated after `trials`. A study that says how often is
/// obeyed, and nothing is discarded then.
#[must_use]
pub fn repeats(plan: &StudyPlan, trials: &[JournalTrial<'_>], workload: &PlanWorkload) -> Repeats {
    let asked = Repeats { invocations: workload.invocations, discarded: 0, is_steady: true };
    if !workload.adapt {
        return asked;
    }
    let last = BLOCKS.saturating_mul(plan.levels());
    let taught: Vec<&TrialResult> = trials
        .iter()
        .filter(|trial| trial.counted && trial.result.outcome.is_completed())
        .map(|trial| trial.result)
        .filter(|result| result.trial.workload == workload.label && result.trial.block < last)
        .collect();
    // Until the last of them, nothing is known for sure.
    let complete: std::collections::BTreeSet<u32> =
        taught.iter().map(|result| result.trial.block).collect();
    if complete.len() < last as usize {
        return asked;
    }
    let cells = cells(workload, &taught);
    let discarded = discarded(workload, cells.values());
    if discarded >= workload.invocations {
        // Not one of the pilot's invocations was steady.
        let invocations = (workload.invocations * 2).min(MOST);
        return Repeats { invocations, discarded: workload.invocations - 1, is_steady: false };
    }
    let steady: Vec<Vec<Vec<f64>>> = cells
        .values()
        .map(|boots| boots.iter().map(|boot| boot[discarded as usize..].to_vec()).collect())
        .collect();
    let Some(components) = pooled(&steady) else { return Repeats { discarded, ..asked } };
    let least = Allocation { invocations: 1, iterations: 1 };
    let most = Allocation { invocations: 1, iterations: MOST - discarded };
    let wanted = allocate(components, costs(&taught), least, most);
    Repeats { invocations: wanted.iterations + discarded, discarded, is_steady: true }
}

/// The logarithms of each boot's invocations, by load level and variant.
fn cells(
    workload: &PlanWorkload,
    results: &[&TrialResult],
) -> BTreeMap<(String, String), Vec<Vec<f64>>> {
    let mut cells: BTreeMap<_, Vec<Vec<f64>>> = BTreeMap::new();
    let Some(metric) = workload.metrics.first() else { return cells };
    let kind: SampleKind = report::sample_kind(metric.kind, &metric.unit.0);
    for result in results {
        let invocation = |run: &record::journal::RunResult| {
            let samples = run.samples.iter().filter(|sample| sample.metric == metric.name);
            let samples: Vec<f64> = samples.map(|sample| sample.value).collect();
            boot_statistic(kind, &samples).ok().map(|statistic| statistic.log)
        };
        let boot: Option<Vec<f64>> = result.runs.iter().map(invocation).collect();
        // A boot with a hole says nothing about its shape.
        if let Some(boot) = boot.filter(|boot| boot.len() == workload.invocations as usize) {
            let cell = (result.trial.load.clone(), result.trial.variant.clone());
            cells.entry(cell).or_default().push(boot);
        }
    }
    cells
}

/// How many invocations warm up, in the variant that takes longest.
fn discarded<'a>(workload: &PlanWorkload, cells: impl Iterator<Item = &'a Vec<Vec<f64>>>) -> u32 {
    let metric = workload.metrics.first().map_or("", |metric| metric.name.as_str());
    let margin = workload.margin_percent.get(metric).copied().unwrap_or(DEFAULT_MARGIN_PERCENT);
    let harmless = (margin / 100.0).ln_1p() * HARMLESS;
    let of_cell = |boots: &Vec<Vec<f64>>| {
        let runs: Vec<&[f64]> = boots.iter().map(Vec::as_slice).collect();
        let Some(found) = warm_up(&runs) else { return 0 };
        let steady = (0..workload.invocations)
            .find(|invocation| found.at(f64::from(*invocation)).abs() <= harmless);
        steady.unwrap_or(workload.invocations)
    };
    cells.map(of_cell).max().unwrap_or(0)
}

/// The mean of the cells' components, boots as they are and their invocations
/// as iterations.
fn pooled(cells: &[Vec<Vec<f64>>]) -> Option<Components> {
    let one = |boots: &Vec<Vec<f64>>| {
        components(&boots.iter().map(|boot| vec![boot.clone()]).collect::<Vec<_>>())
    };
    let all: Vec<Components> = cells.iter().filter_map(one).collect();
    if all.is_empty() {
        return None;
    }
    let mean = |pick: fn(&Components) -> f64| all.iter().map(pick).sum::<f64>() / all.len() as f64;
    Some(Components {
        boot: mean(|part| part.boot),
        invocation: 0.0,
        iteration: mean(|part| part.iteration),
    })
}

/// What a boot and an invocation take, s.
fn costs(results: &[&TrialResult]) -> RepetitionCosts {
    let runs = || results.iter().flat_map(|result| &result.runs).map(|run| run.wall_s);
    let (count, runs_s) = (runs().count().max(1) as f64, runs().sum::<f64>());
    let whole_s: f64 = results.iter().map(|result| result.wall_s).sum();
    RepetitionCosts {
        boot: (whole_s - runs_s).max(0.0) / results.len().max(1) as f64,
        invocation: 0.0,
        iteration: (runs_s / count).max(f64::MIN_POSITIVE),
    }
}
