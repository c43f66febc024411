//! One change that a setting makes.

use super::target::SettingTarget;

/// One thing that is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingStep {
    pub(super) target: SettingTarget,
    pub(super) old: String,
    pub(super) new: String,
    /// It is no failure when the kernel refuses this one among many.
    pub(super) may_refuse: bool,
}

impl SettingStep {
    pub(super) fn new(target: SettingTarget, old: String, new: String) -> Self {
        Self { target, old, new, may_refuse: false }
    }
}
