//! What a published result may name.

use std::collections::BTreeMap;

use super::{HostLoad, StudyVariant, StudyWorkload};

/// What a published result may name.
pub(super) struct PublishableNames<'a> {
    pub(super) variants: &'a [StudyVariant],
    pub(super) loads: &'a [HostLoad],
    pub(super) workloads: &'a [StudyWorkload],
    pub(super) later: &'a [(String, String)],
    /// What else was published of workloads that are not run, by label.
    pub(super) published_of: BTreeMap<String, &'a [String]>,
}

impl PublishableNames<'_> {
    /// Whether a workload is named by the study and not run.
    pub(super) fn is_later(&self, workload: &str) -> bool {
        self.later.iter().any(|(label, _)| label == workload)
    }

    /// The variants, and what no variant can be made to where `workload` is not run.
    pub(super) fn configurations(&self, workload: &str) -> impl Iterator<Item = &str> + Clone {
        let elsewhere = self.published_of.get(workload).into_iter().copied().flatten();
        self.variants.iter().map(|variant| &variant.name).chain(elsewhere).map(String::as_str)
    }
}
