//! The cluster of a plan whose VMs KubeVirt runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster whose KubeVirt runs the VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubevirtFacts {
    /// URL of its API server.
    pub server: String,
    /// The namespace of the instances.
    pub namespace: String,
    /// KubeVirt's version.
    pub version: String,
    /// Whether it emulates VMs (`useEmulation`).
    pub is_emulated: bool,
    /// The nodes that take VMs.
    pub nodes: Vec<String>,
    /// The container images that guests boot from, by the images' names in the study.
    pub images: BTreeMap<String, String>,
}
