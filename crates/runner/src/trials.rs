//! The trials that a journal holds.

use record::journal::{JournalEvent, TrialResult};

use crate::state::JournalState;

/// A trial that the journal holds, and whether it counts.
#[derive(Debug, Clone, Copy)]
pub struct JournalTrial<'a> {
    /// What it brought.
    pub result: &'a TrialResult,
    /// True if its block was completed by this attempt.
    pub counted: bool,
}

/// All trials that ended, in the order in which they ended.
#[must_use]
pub fn trials<'a>(events: &'a [JournalEvent], state: &JournalState) -> Vec<JournalTrial<'a>> {
    let trial = |event: &'a JournalEvent| match event {
        JournalEvent::TrialEnded(result) => {
            let key = &result.trial;
            let counted = state.complete.get(&key.block) == Some(&key.attempt);
            Some(JournalTrial { result, counted })
        }
        _ => None,
    };
    events.iter().filter_map(trial).collect()
}
