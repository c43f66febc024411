//! How far a study is, by its journal alone.

use std::collections::{BTreeMap, BTreeSet};

use record::UnsteadyCause;
use record::journal::{JournalEvent, TrialResult};

use crate::plan::StudyPlan;
use crate::stability;

/// Failures of one cell, without a success, after which it is left out.
const HOPELESS_AFTER: u32 = 2;

/// What the journal says about how far a study is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JournalState {
    /// Complete blocks and the attempt that completed each.
    pub complete: BTreeMap<u32, u32>,
    /// Attempts that were begun, by block.
    pub begun: BTreeMap<u32, u32>,
    /// Blocks for each load level that the study was extended to.
    pub extended_to: Option<u32>,
    /// Blocks that were done but don't count: block, attempt, and what was
    /// unsteady.
    pub rejected: Vec<(u32, u32, Vec<UnsteadyCause>)>,
    /// What was unsteady in blocks that count all the same.
    pub unsteady: Vec<(u32, Vec<UnsteadyCause>)>,
    /// What of the host was not put back at the end of a block: block, and a
    /// sentence each.
    pub not_restored: Vec<(u32, Vec<String>)>,
    /// Wall time of all finished blocks, s.
    pub blocks_wall_s: f64,
    /// True once the study's end is recorded.
    pub ended: bool,
    failures: BTreeMap<CellKey, u32>,
    successes: BTreeSet<CellKey>,
}

/// Load, workload, variant.
type CellKey = (String, String, String);

impl JournalState {
    /// Reads the state from a journal's events.
    #[must_use]
    pub fn from_events(events: &[JournalEvent]) -> Self {
        let mut state = Self::default();
        let mut pending: Vec<&TrialResult> = Vec::new();
        let mut block_started_s = 0.0;
        for event in events {
            match event {
                JournalEvent::BlockStarted { block, attempt, unix_s, .. } => {
                    state.begun.insert(*block, *attempt);
                    pending.clear();
                    block_started_s = *unix_s;
                }
                JournalEvent::TrialEnded(result) => pending.push(result),
                JournalEvent::BlockEnded { block, attempt, unsteady, not_restored, unix_s } => {
                    state.leave(*block, not_restored);
                    for result in pending.drain(..) {
                        state.count(result);
                    }
                    state.complete(*block, *attempt, unsteady, unix_s - block_started_s);
                }
                JournalEvent::BlockRejected { block, attempt, reasons, not_restored, unix_s } => {
                    state.leave(*block, not_restored);
                    pending.clear();
                    state.reject(*block, *attempt, reasons.clone(), unix_s - block_started_s);
                }
                JournalEvent::Extended { blocks, .. } => {
                    state.extended_to = Some(*blocks);
                    state.ended = false;
                }
                JournalEvent::StudyEnded { .. } => state.ended = true,
                JournalEvent::SessionStarted { .. } => state.ended = false,
                JournalEvent::TrialStarted { .. } => {}
            }
        }
        state
    }

    pub(crate) fn leave(&mut self, block: u32, not_restored: &[String]) {
        if !not_restored.is_empty() {
            self.not_restored.push((block, not_restored.to_vec()));
        }
    }

    pub(crate) fn complete(
        &mut self,
        block: u32,
        attempt: u32,
        unsteady: &[UnsteadyCause],
        wall_s: f64,
    ) {
        self.complete.insert(block, attempt);
        if !unsteady.is_empty() {
            self.unsteady.push((block, unsteady.to_vec()));
        }
        self.blocks_wall_s += wall_s.max(0.0);
    }

    pub(crate) fn reject(
        &mut self,
        block: u32,
        attempt: u32,
        reasons: Vec<UnsteadyCause>,
        wall_s: f64,
    ) {
        self.rejected.push((block, attempt, reasons));
        self.blocks_wall_s += wall_s.max(0.0);
    }

    /// Complete blocks for each load level.
    #[must_use]
    pub fn rounds(&self, plan: &StudyPlan) -> u32 {
        u32::try_from(self.complete.len()).unwrap_or(u32::MAX) / plan.levels()
    }

    /// Blocks that were run to their end, counted or not.
    #[must_use]
    pub fn finished(&self) -> u32 {
        u32::try_from(self.complete.len() + self.rejected.len()).unwrap_or(u32::MAX)
    }

    /// What a block takes, s.
    pub(crate) fn block_s(&self) -> f64 {
        self.blocks_wall_s / f64::from(self.finished().max(1))
    }

    /// False if so many blocks were unsteady that doing one again is no use.
    pub(crate) fn may_repeat(&self, plan: &StudyPlan) -> bool {
        let unsteady = self.rejected.len() + self.unsteady.len();
        let unsteady = u32::try_from(unsteady).unwrap_or(u32::MAX);
        stability::may_repeat(&plan.stability, unsteady, self.finished())
    }

    pub(crate) fn count(&mut self, result: &TrialResult) {
        let key = &result.trial;
        let cell = (key.load.clone(), key.workload.clone(), key.variant.clone());
        if result.outcome.is_completed() {
            self.successes.insert(cell);
        } else {
            *self.failures.entry(cell).or_default() += 1;
        }
    }

    /// True for a cell that only ever failed, often enough to stop trying.
    #[must_use]
    pub fn is_hopeless(&self, load: &str, workload: &str, variant: &str) -> bool {
        let cell = (load.to_owned(), workload.to_owned(), variant.to_owned());
        !self.successes.contains(&cell)
            && self.failures.get(&cell).is_some_and(|failures| *failures >= HOPELESS_AFTER)
    }

    /// The first block that is not complete.
    #[must_use]
    pub fn next_block(&self) -> u32 {
        (0..).find(|block| !self.complete.contains_key(block)).unwrap_or(u32::MAX)
    }
}
