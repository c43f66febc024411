//! What a published result may name.

use super::{Load, StudyWorkload, Variant};

/// What a published result may name.
pub(super) struct Named<'a> {
    pub(super) variants: &'a [Variant],
    pub(super) loads: &'a [Load],
    pub(super) workloads: &'a [StudyWorkload],
    pub(super) later: &'a [(String, String)],
}
