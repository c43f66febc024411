//! The trials that a journal holds.

use record::MetricKind;
use record::journal::{Event, TrialResult};
use stats::Kind;

use crate::state::State;

/// A trial that the journal holds, and whether it counts.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// What it brought.
    pub result: &'a TrialResult,
    /// True if its block was completed by this attempt.
    pub counted: bool,
}

/// All trials that ended, in the order in which they ended.
#[must_use]
pub fn trials<'a>(events: &'a [Event], state: &State) -> Vec<Trial<'a>> {
    let trial = |event: &'a Event| match event {
        Event::TrialEnded(result) => {
            let key = &result.trial;
            let counted = state.complete.get(&key.block) == Some(&key.attempt);
            Some(Trial { result, counted })
        }
        _ => None,
    };
    events.iter().filter_map(trial).collect()
}

/// `stats` knows no records; its words are ours.
#[must_use]
pub fn kind(kind: MetricKind) -> Kind {
    match kind {
        MetricKind::Time => Kind::Time,
        MetricKind::Rate => Kind::Rate,
        MetricKind::Quantile => Kind::Quantile,
        MetricKind::Count => Kind::Count,
    }
}
