//! What the host did beside the trials that count.

use record::HostWatch;
use record::journal::TrialResult;
use report::{HostActivity, TimeShare, VariantDisturbance};

use crate::plan::StudyPlan;
use crate::results::JournalTrial;
use crate::stability;

/// One for each load and workload that was watched.
pub(super) fn host_beside(plan: &StudyPlan, trials: &[JournalTrial<'_>]) -> Vec<HostActivity> {
    if plan.environment().is_deterministic() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for load in &plan.loads {
        for workload in &plan.workloads {
            let of = |variant: &str| -> Vec<&TrialResult> {
                let is_here = |trial: &&JournalTrial<'_>| {
                    let key = &trial.result.trial;
                    trial.counted
                        && key.load == load.name
                        && key.workload == workload.label
                        && key.variant == variant
                };
                trials.iter().filter(is_here).map(|trial| trial.result).collect()
            };
            let variants = plan.variants.iter();
            let variants: Vec<VariantDisturbance> =
                variants.filter_map(|variant| beside(&variant.name, &of(&variant.name))).collect();
            if !variants.is_empty() {
                all.push(HostActivity {
                    load: load.name.clone(),
                    workload: workload.label.clone(),
                    is_quiet: load.is_quiet(),
                    variants,
                });
            }
        }
    }
    all
}

fn beside(variant: &str, trials: &[&TrialResult]) -> Option<VariantDisturbance> {
    let watched: Vec<&HostWatch> = trials.iter().filter_map(|trial| trial.watch.as_ref()).collect();
    let of = |read: fn(&HostWatch) -> Option<f64>| -> Vec<f64> {
        watched.iter().filter_map(|watch| read(watch)).collect()
    };
    (!watched.is_empty()).then(|| VariantDisturbance {
        variant: variant.to_owned(),
        trials: u32::try_from(watched.len()).unwrap_or(u32::MAX),
        others: share(&of(stability::others)),
        steal: share(&of(stability::steal)),
        memory: share(&of(stability::memory)),
        run_delay: share(
            &trials.iter().filter_map(|trial| stability::run_delay(trial)).collect::<Vec<_>>(),
        ),
        canary_s: mean(&of(HostWatch::canary_s)),
        clock_hz: mean(&of(stability::clock_hz)),
        throttles: Some(of(|watch| watch.throttles))
            .filter(|events| !events.is_empty())
            .map(|events| events.iter().sum()),
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn share(values: &[f64]) -> Option<TimeShare> {
    let most = values.iter().copied().fold(0.0, f64::max);
    mean(values).map(|mean| TimeShare { mean, most })
}
