//! What the host did beside each trial, for [`stats`] to judge, and which
//! blocks are done again for it. The limits are fixed in the plan, before
//! anything is measured, and know nothing of what the benchmark said.
//!
//! A block in which a trial is out of line is repeated whole: repeating that
//! one trial would keep the quiet boots of one variant and not those of another.
//! A host on which many are out of line is a busy one; there all blocks count,
//! and the intervals tell how busy it was.

use record::journal::{JournalEvent, TrialResult};
use record::{HostSign, HostWatch, UnsteadyCause};
use stats::{Disturbance, lost};

pub use crate::limits::StabilityLimits;
use crate::plan::{Block, StudyPlan};
use crate::study::HostLoad;

/// True if another block may be done again, after `unsteady` of the `finished`
/// ones were out of line: one always may.
#[must_use]
pub fn may_repeat(rules: &StabilityLimits, unsteady: u32, finished: u32) -> bool {
    let most = (f64::from(finished + 1) * rules.unsteady_blocks_percent / 100.0).max(1.0);
    rules.repeat && f64::from(unsteady + 1) <= most
}

/// What was unsteady in `block`, whose trials brought `results`; `events` are
/// the journal's before it. Empty if it was steady.
#[must_use]
pub fn of_block(
    plan: &StudyPlan,
    block: &Block,
    results: &[TrialResult],
    events: &[JournalEvent],
) -> Vec<UnsteadyCause> {
    if plan.environment().is_deterministic() {
        // Whatever disturbs does so in every run, at the same instruction.
        return Vec::new();
    }
    let load = &plan.loads[block.load];
    let earlier = events.iter().filter_map(|event| match event {
        JournalEvent::TrialEnded(result) if result.trial.load == load.name => Some(&**result),
        _ => None,
    });
    let earlier: Vec<&TrialResult> = earlier.collect();
    let limits = plan.stability.by_sign();
    let mut unsteady = Vec::new();
    for workload in &plan.workloads {
        let here = |result: &&TrialResult| result.trial.workload == workload.label;
        let seen = |result: &TrialResult| {
            let of = &result.trial.variant;
            let place = plan.variants.iter().position(|variant| variant.name == *of)?;
            Some((place, disturbance(load, result)))
        };
        let block: Vec<_> = results.iter().filter(here).filter_map(seen).collect();
        let before: Vec<_> = earlier.iter().copied().filter(here).filter_map(seen).collect();
        let found = stats::out_of_line(&limits, &block, &before);
        unsteady.extend(found.into_iter().map(|found| UnsteadyCause::Trial {
            workload: workload.label.clone(),
            variant: plan.variants[block[found.trial].0].name.clone(),
            sign: found.sign,
            excess: found.excess,
        }));
    }
    unsteady
}

/// What the host did beside `trial`, as far as it was watched and the load
/// level is not there to do it.
#[must_use]
pub fn disturbance(load: &HostLoad, trial: &TrialResult) -> Disturbance {
    let Some(watch) = &trial.watch else { return Disturbance::default() };
    let quiet = |sign: Option<f64>| sign.filter(|_| load.is_quiet());
    let signs = [
        (HostSign::Others, quiet(others(watch)).map(lost)),
        (HostSign::Steal, steal(watch).map(lost)),
        (HostSign::Memory, memory(watch).map(lost)),
        (HostSign::Clock, clock_hz(watch).map(|hz| -hz.ln())),
        (HostSign::Canary, watch.canary_s().map(f64::ln)),
        (HostSign::RunDelay, quiet(run_delay(trial)).map(lost)),
        (HostSign::Throttles, watch.throttles),
    ];
    let read = signs.into_iter().filter_map(|(sign, log)| Some((sign, log?)));
    Disturbance {
        signs: read.filter(|(_, log)| log.is_finite()).collect(),
        own: watch.own_s.map(|seconds| lost(watch.part_of_pcpus(seconds))),
    }
}

/// The part of its pCPUs' time that others used, 0 to 1.
pub(crate) fn others(watch: &HostWatch) -> Option<f64> {
    watch.foreign_s.map(|seconds| watch.part_of_pcpus(seconds))
}

/// The part of its pCPUs' time that the host's own hypervisor took, 0 to 1.
pub(crate) fn steal(watch: &HostWatch) -> Option<f64> {
    watch.steal_s.map(|seconds| watch.part_of_pcpus(seconds))
}

/// The part of the time in which something waited for memory, 0 to 1.
pub(crate) fn memory(watch: &HostWatch) -> Option<f64> {
    watch.pressure_memory_s.filter(|_| watch.wall_s > 0.0).map(|seconds| seconds / watch.wall_s)
}

/// The mean of its pCPUs' clock before and after, Hz.
pub(crate) fn clock_hz(watch: &HostWatch) -> Option<f64> {
    Some(f64::midpoint(watch.clock_before_hz?, watch.clock_after_hz?))
}

/// The part of the time that vCPUs wanted to run in which they could not.
pub(crate) fn run_delay(trial: &TrialResult) -> Option<f64> {
    let sum = |name: &str| trial.runs.iter().map(|run| run.counters.get(name)).sum::<Option<f64>>();
    let (run_s, wait_s) = (sum("vcpu.run_s")?, sum("vcpu.wait_s")?);
    (run_s + wait_s > 0.0).then(|| wait_s / (run_s + wait_s))
}
