//! What vmlab creates in a cluster, and how it is found again.

use crate::resource::{INSTANCES, JOBS, ResourceKind};

/// The label by which a Job's pods are found, with its name.
pub(crate) const JOB_LABEL: &str = "vmlab/job";

/// What vmlab creates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MadeKind {
    pub(crate) read: ResourceKind,
    /// What it is, in a sentence.
    pub(crate) what: &'static str,
    /// What a cluster lacks that does not serve it.
    pub(crate) lacks: &'static str,
    /// The option of `vmlab k8s rbac` for those who make it.
    pub(crate) role: &'static str,
    /// How its pods are found.
    pub(crate) pods: PodLookup,
}

/// How the pods of an object are found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodLookup {
    /// By a label with its uid.
    Uid(&'static str),
    /// By a label with its name.
    Name(&'static str),
}

/// A VM of KubeVirt's.
pub(crate) const INSTANCE: MadeKind = MadeKind {
    read: INSTANCES,
    what: "instance",
    lacks: "KubeVirt",
    role: "--run",
    pods: PodLookup::Uid("kubevirt.io/created-by"),
};

/// A node's part of a study.
pub(crate) const JOB: MadeKind = MadeKind {
    read: JOBS,
    what: "Job",
    lacks: "Jobs",
    role: "--jobs",
    pods: PodLookup::Name(JOB_LABEL),
};
