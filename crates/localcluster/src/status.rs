//! How a cluster is: what its keeper tells.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kubevirt::KubeVirtStatus;
use crate::state::ClusterState;

/// How a program of the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentState {
    /// It says that it is well.
    Well,
    /// It runs, and does not say that it is well.
    Unwell,
    /// It has ended.
    Ended,
}

impl ComponentState {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Unwell => "unwell",
            Self::Ended => "ended",
        }
    }
}

/// A program of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentStatus {
    /// `etcd`, `kubelet`...
    pub name: String,
    /// What it says of its version.
    pub version: Option<String>,
    /// How it is.
    pub state: ComponentState,
    /// Why it is not well, in its own words.
    pub reason: Option<String>,
}

/// A node of the cluster, as the API server tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Whether it takes pods.
    pub ready: bool,
    /// Why not, in the kubelet's words.
    pub reason: Option<String>,
    /// Its kubelet's version.
    pub kubelet: String,
    /// Its container runtime and that one's version.
    pub runtime: String,
    /// Pods that run there.
    pub running_pods: usize,
    /// Whether KubeVirt puts VMs there.
    #[serde(default)]
    pub takes_vms: bool,
    /// The replica that it is; absent: it is this machine.
    #[serde(default)]
    pub replica: Option<String>,
}

/// What the keeper is asked for: all that changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeeperReport {
    pub(crate) components: Vec<ComponentStatus>,
    pub(crate) nodes: Vec<NodeStatus>,
    pub(crate) kubevirt: Option<KubeVirtStatus>,
}

/// A cluster and how it is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Whether it can be used.
    pub state: ClusterState,
    /// Kubernetes' version.
    pub kubernetes: String,
    /// The API server.
    pub server: Option<String>,
    /// The administrator's kubeconfig.
    pub kubeconfig: Option<String>,
    /// Its folder, with the logs.
    pub folder: String,
    /// The cgroup of its servers and pods, in every hierarchy.
    pub cgroup: String,
    /// Seconds from its start until the node was ready.
    pub ready_s: Option<f64>,
    /// Its programs; none if the keeper does not answer.
    pub components: Vec<ComponentStatus>,
    /// Its nodes; none if the API server does not answer.
    pub nodes: Vec<NodeStatus>,
    /// KubeVirt, if the cluster was started with it.
    pub kubevirt: Option<KubeVirtStatus>,
    /// Why the keeper tells nothing.
    pub unanswered: Option<String>,
}

impl ClusterStatus {
    /// Whether all of it is well.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.state == ClusterState::Up
            && self.components.iter().all(|one| one.state == ComponentState::Well)
            && !self.nodes.is_empty()
            && self.nodes.iter().all(|node| node.ready)
            && self.kubevirt.as_ref().is_none_or(KubeVirtStatus::is_deployed)
    }
}
