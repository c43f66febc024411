//! Studies on hosts that nobody here has: the same plan, its trials played by the
//! simulator instead of booted.
//!
//! [`plan`] freezes a study for a described host and says which workloads have no
//! model; [`SimulatedLab`] is the laboratory. What a trial played is kept with it as
//! a scenario that `vmlab sim` takes.

pub mod constants;
mod lab;
mod models;
mod scenario;
mod unmodelled;

use std::path::Path;

use record::Metric;
use topology::Host;
use topology::bounded::LineProblem;

use crate::freeze::{FrozenPlan, freeze};
use crate::limits::GroundRules;
use crate::machine;
use crate::plan::{SIMULATION_VERSION, StudyPlan};
use crate::study::{Study, metrics_over_vms};

pub use lab::SimulatedLab;
pub use scenario::{DESCRIBED_HOST, placed};

/// Draws of the costs, where a study limits only its minutes: a simulated block is
/// one draw.
const BLOCKS: u32 = 64;

/// The plan of `study` on `host`, simulated. Workloads without a model, and variants that
/// differ from the baseline in nothing that the model has, are in
/// [`StudyPlan::later`] and [`StudyPlan::variants_left_out`], with the reason.
///
/// # Errors
/// Every problem, by line of the study file; that no workload has a model is one, and that
/// no variant would differ from the baseline another.
pub fn plan(
    study: &Study,
    folder: &Path,
    host: Host,
    seed: u64,
    now_unix_s: f64,
) -> Result<FrozenPlan, Vec<LineProblem>> {
    let mut study = study.clone();
    let mut unmodelled = Vec::new();
    study.workloads.retain(|workload| match models::of_study(workload) {
        Ok(_) => true,
        Err(why) => {
            unmodelled
                .push((workload.label.clone(), format!("the simulator can't play it: {why}")));
            false
        }
    });
    if study.workloads.is_empty() {
        let why: Vec<String> =
            unmodelled.iter().map(|(label, why)| format!("{label}: {why}")).collect();
        let message = format!(
            "No workload of the study has a model in the simulator. {}. It has models of: {}",
            why.join("; "),
            models::NAMES.join(", ")
        );
        return Err(vec![LineProblem { line: 1, message }]);
    }
    study.later.extend(unmodelled);
    if study.budget.blocks.is_none() {
        study.budget.blocks = Some(BLOCKS);
    }
    let no_ground = (study.ground != GroundRules::default()).then(|| LineProblem {
        line: study.line_of_ground(""),
        message: "[ground]: the simulator has no memory that could be cleared or held against it"
            .to_owned(),
    });
    study.ground = GroundRules::default();
    let machine = machine::described(&study, folder, host)
        .map_err(|error| vec![LineProblem { line: 1, message: error.to_string() }])?;
    let frozen = freeze(&study, &machine, seed, now_unix_s)?;
    let same = unmodelled::variants(&frozen.plan, &machine.host);
    let FrozenPlan { mut plan, mut warnings } = if same.is_empty() {
        frozen
    } else {
        study.variants.retain(|variant| !same.iter().any(|(name, _)| *name == variant.name));
        if !study.variants.iter().any(|it| it.name != study.baseline && it.aa_of.is_none()) {
            let problem = |(name, why): &(String, String)| LineProblem {
                line: study.line_of_variant(name),
                message: format!("{name}: the simulator can't tell it from the baseline: {why}"),
            };
            return Err(same.iter().map(problem).collect());
        }
        freeze(&study, &machine, seed, now_unix_s)?
    };
    warnings.extend(no_ground);
    plan.variants_left_out = same;
    plan.measurement_version = SIMULATION_VERSION;
    for workload in &mut plan.workloads {
        // One run tells all of a boot that knows no noise but its own.
        (workload.invocations, workload.adapt) = (1, false);
        let models = plan.variants.iter().filter_map(|it| models::of_plan(workload, it).ok());
        let known: Vec<_> = models.flat_map(|model| model.metrics).collect();
        let is_known = |metric: &Metric| known.iter().any(|(name, _)| *name == metric.name);
        if workload.of_several_vms.is_empty() {
            workload.metrics.retain(is_known);
        } else {
            workload.of_several_vms.retain(is_known);
            workload.metrics = metrics_over_vms(&workload.of_several_vms);
        }
    }
    plan.frozen = None;
    Ok(FrozenPlan { plan: plan.freeze(), warnings })
}

/// True if the plan's trials are simulated.
#[must_use]
pub fn is_simulated(plan: &StudyPlan) -> bool {
    plan.environment() == record::Environment::Simulated
}

#[cfg(test)]
mod tests;
