//! Which pCPUs Kubernetes and KubeVirt choose for a virtual machine.
//!
//! Two programs decide, one after the other. The kubelet's static CPU manager
//! policy ([`kubelet`]) picks the pod's pCPUs or rejects the pod. KubeVirt
//! ([`kubevirt`]) then pins vCPUs, the emulator thread and IOThreads to these,
//! differently from version to version ([`Ability`]). Both are imitated with
//! their errors and defects, because the question is what *will* happen.
//!
//! [`findings`] says what that means for the guest; [`entry`] is the form for
//! programs.
//!
//! [`node`] says which nodes a pod can go to at all, and what becomes of several VMs
//! that come to one node in turn.
//!
//! What is not here: which of the possible nodes the scheduler picks, other containers of
//! the pod, hints of devices and of the memory manager.

pub mod entry;
mod explain;
pub mod kubelet;
pub mod kubevirt;
mod machine;
pub mod node;
pub mod scheduling;
pub mod verify;
mod version;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

use topology::PcpuSet;

pub use explain::{FindingKind, PredictionFinding, findings};
pub use machine::{
    CapabilitiesCell, CellPcpu, Counts, KubeletHost, MachineError, PcpuPosition, SiblingLists,
};
pub use version::{Ability, KubevirtVersion, NEWEST_KNOWN, ParseVersionError};

use kubelet::{Rejection, StaticPolicy};
use kubevirt::{PinError, PredictedPins, Vmi, pin, pod_cpus};

/// What becomes of one VirtualMachineInstance under one version of KubeVirt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The version.
    pub version: KubevirtVersion,
    /// CPUs that the pod asks the kubelet for.
    pub pod_cpus: u32,
    /// What comes of it.
    pub outcome: Admission,
}

/// How far a guest gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The kubelet rejects the pod.
    Rejected(Rejection),
    /// The pod gets pCPUs, but virt-launcher does not start the guest.
    NotPinned {
        /// The pod's pCPUs.
        cpuset: PcpuSet,
        /// Why.
        error: PinError,
    },
    /// The guest runs.
    Pinned {
        /// The pod's pCPUs.
        cpuset: PcpuSet,
        /// The pins.
        pins: PredictedPins,
    },
}

impl Admission {
    /// The pod's pCPUs; `None`: it is rejected.
    pub fn cpuset(&self) -> Option<&PcpuSet> {
        match self {
            Self::Rejected(_) => None,
            Self::NotPinned { cpuset, .. } | Self::Pinned { cpuset, .. } => Some(cpuset),
        }
    }
}

/// Predicts pCPUs and pins on a node where `taken` is given away already.
///
/// `None` without `dedicatedCpuPlacement`: the guest then runs on the node's
/// shared pool, and nothing is pinned.
pub fn predict(
    machine: &KubeletHost,
    policy: &StaticPolicy<'_>,
    taken: &PcpuSet,
    vmi: &Vmi,
    version: KubevirtVersion,
) -> Option<Prediction> {
    let pod_cpus = pod_cpus(version, vmi)?;
    let outcome = match policy.admit(&policy.shared_pool(taken), pod_cpus) {
        Err(rejection) => Admission::Rejected(rejection),
        Ok(cpuset) => {
            let lists = if version.can(Ability::LosesSiblingRanges) {
                SiblingLists::RangesLost
            } else {
                SiblingLists::Whole
            };
            let pcpus: Vec<u32> = cpuset.iter().collect();
            match pin(version, vmi, &machine.cells(lists), &pcpus) {
                Err(error) => Admission::NotPinned { cpuset, error },
                Ok(pins) => Admission::Pinned { cpuset, pins },
            }
        }
    };
    Some(Prediction { version, pod_cpus, outcome })
}
