//! What a published result may name.

use super::{HostLoad, StudyVariant, StudyWorkload};

/// What a published result may name.
pub(super) struct PublishableNames<'a> {
    pub(super) variants: &'a [StudyVariant],
    pub(super) loads: &'a [HostLoad],
    pub(super) workloads: &'a [StudyWorkload],
    pub(super) later: &'a [(String, String)],
}

impl PublishableNames<'_> {
    /// Whether a workload is named by the study and not run.
    pub(super) fn is_later(&self, workload: &str) -> bool {
        self.later.iter().any(|(label, _)| label == workload)
    }
}
