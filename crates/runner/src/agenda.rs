//! What still has to be measured, as far as the journal says.
//!
//! A cell whose comparison is decided needs no more boots: it is left out of
//! the blocks to come, and so is the baseline where nobody is compared with it
//! any more. Bounds that account for a look after each block make that honest.

use record::journal::JournalEvent;
use stats::{Engine, Judgement, Verdict};

use crate::plan::{Block, PlanVariant, StudyPlan};
use crate::results::{self, MetricGroup};
use crate::state::JournalState;
use crate::study::EndCondition;

/// A comparison with the baseline, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparisonStatus {
    /// The host-load level.
    pub load: String,
    /// The workload's label.
    pub workload: String,
    /// The variant that is compared with the baseline.
    pub variant: String,
    /// What its blocks say so far.
    pub judgement: Judgement,
    /// Whether it needs more blocks.
    pub is_open: bool,
}

impl ComparisonStatus {
    /// The relative difference that is not excluded yet, e.g. 0.08.
    #[must_use]
    pub fn at_most(&self) -> Option<f64> {
        match self.judgement.verdict {
            Verdict::NotDecided { at_most, .. } => Some(at_most).filter(|part| part.is_finite()),
            _ => None,
        }
    }

    /// About how many more blocks decide it, where that can be said.
    #[must_use]
    pub fn more_blocks(&self) -> Option<u32> {
        match self.judgement.verdict {
            Verdict::NotDecided { more_blocks, .. } => Some(more_blocks),
            _ => None,
        }
    }
}

/// What still has to be measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Agenda {
    /// The comparisons of primary metrics, in the plan's order.
    pub comparisons: Vec<ComparisonStatus>,
    /// Whether cells without an open comparison are measured all the same.
    everything: bool,
}

impl Agenda {
    /// The agenda after what `events` tell.
    #[must_use]
    pub fn of(plan: &StudyPlan, state: &JournalState, events: &[JournalEvent]) -> Self {
        let trials = results::trials(events, state);
        let groups = results::groups(plan, &trials);
        let engine = results::engine(plan, state);
        let primary = groups.iter().filter(|group| group.is_primary());
        let comparisons = primary
            .flat_map(|group| comparison_statuses(plan, state, engine.as_ref(), group))
            .collect();
        // With a single variant there is nothing to decide, and `until = "budget"`
        // asks for every block.
        let everything =
            plan.budget.until == EndCondition::Budget || plan.comparisons().next().is_none();
        Self { comparisons, everything }
    }

    /// The comparisons that need more blocks.
    pub fn open(&self) -> impl Iterator<Item = &ComparisonStatus> {
        self.comparisons.iter().filter(|status| status.is_open)
    }

    /// True if every question is answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.everything && self.open().next().is_none()
    }

    /// Block `number` of `plan`, without the trials that nobody needs: what is
    /// decided, and what only ever failed.
    #[must_use]
    pub fn block(&self, plan: &StudyPlan, state: &JournalState, number: u32) -> Block {
        let mut block = plan.block(number);
        let load = &plan.loads[block.load].name;
        block.trials.retain(|(workload, variant)| {
            let (workload, variant) = (&plan.workloads[*workload].label, &plan.variants[*variant]);
            self.wants(plan, load, workload, variant)
                && !state.is_hopeless(load, workload, &variant.name)
        });
        block
    }

    /// Whether the next block boots `variant` for this load and workload.
    #[must_use]
    pub fn wants(
        &self,
        plan: &StudyPlan,
        load: &str,
        workload: &str,
        variant: &PlanVariant,
    ) -> bool {
        let mut here = self.open().filter(|open| open.load == load && open.workload == workload);
        // The baseline and its copy are what the others are compared with.
        let shared = variant.name == plan.baseline || variant.aa_of.is_some();
        self.everything || here.any(|open| shared || open.variant == variant.name)
    }

    /// About how many more blocks decide all that is open; none if that can't
    /// be said of one of them.
    #[must_use]
    pub fn more_blocks(&self) -> Option<u32> {
        let blocks: Option<Vec<u32>> = self.open().map(ComparisonStatus::more_blocks).collect();
        blocks?.into_iter().max()
    }
}

/// The comparisons of `group`, as they stand; those of variants that only ever
/// failed are left out.
fn comparison_statuses(
    plan: &StudyPlan,
    state: &JournalState,
    engine: &dyn Engine,
    group: &MetricGroup<'_>,
) -> Vec<ComparisonStatus> {
    let Some(baseline) = results::baseline_index(plan) else { return Vec::new() };
    let (load, workload) = (&group.load.name, &group.workload.label);
    let alive = |variant: &str| !state.is_hopeless(load, workload, variant);
    if !alive(&plan.baseline) {
        return Vec::new();
    }
    let status = |(index, variant): (usize, &PlanVariant)| {
        let judgement = engine.judge(&group.comparison(plan, baseline, index));
        let is_open = !judgement.verdict.is_decided();
        let (load, workload) = (load.clone(), workload.clone());
        ComparisonStatus { load, workload, variant: variant.name.clone(), judgement, is_open }
    };
    let living = plan.comparisons().filter(|(_, variant)| alive(&variant.name));
    let mut all: Vec<ComparisonStatus> = living.map(status).collect();
    if let Some(first) = all.first().filter(|_| plan.budget.race) {
        let Judgement { better, margin, .. } = first.judgement;
        let intervals: Vec<_> = all.iter().map(|status| status.judgement.interval).collect();
        let racing = stats::still_racing(&intervals, better, margin);
        for (status, races) in all.iter_mut().zip(racing) {
            status.is_open &= races;
        }
    }
    all
}
