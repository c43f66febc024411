//! Where a variant's workloads run: in a VM, or on the host itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the workloads of a variant run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunsOn {
    /// In a VM.
    #[default]
    Vm,
    /// On the host itself, on as many pCPUs as the VM has vCPUs.
    Host,
}

impl RunsOn {
    /// True for a VM, the usual place.
    #[must_use]
    pub fn is_vm(&self) -> bool {
        *self == Self::Vm
    }
}
