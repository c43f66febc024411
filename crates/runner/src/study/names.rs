//! What a published result may name.

use super::{HostLoad, StudyVariant, StudyWorkload};

/// What a published result may name.
pub(super) struct PublishableNames<'a> {
    pub(super) variants: &'a [StudyVariant],
    pub(super) loads: &'a [HostLoad],
    pub(super) workloads: &'a [StudyWorkload],
    pub(super) later: &'a [(String, String)],
}
