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
//! a VM's pod, hints of devices.

pub mod boot;
pub mod entry;
mod explain;
pub mod kubelet;
pub mod kubevirt;
mod machine;
mod memory;
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
pub use memory::{MemoryAmounts, MemoryKind, ParseMemoryKindError};
pub use version::{Ability, KubevirtRange, KubevirtVersion, NEWEST_KNOWN, ParseVersionError};

use kubelet::{ContainerRequest, MemoryAllocation, NodeAllocations, Rejection, StaticPolicy};
use kubevirt::{PinError, PredictedPins, Vmi, pin, pod_cpus};

/// What becomes of one VirtualMachineInstance under one version of KubeVirt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The version.
    pub version: KubevirtVersion,
    /// CPUs that the pod asks the kubelet for.
    pub pod_cpus: u32,
    /// Memory that is bound to nodes; none where the memory manager does not bind it, or
    /// nobody says how much memory nodes have.
    pub memory: Vec<MemoryAllocation>,
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

impl Prediction {
    /// Counts what the pod gets among what is given.
    pub fn add_to(&self, given: &mut NodeAllocations) {
        if let Some(cpuset) = self.outcome.cpuset() {
            given.pcpus = given.pcpus.union(cpuset);
            given.memory.extend(self.memory.iter().cloned());
        }
    }
}

/// What the container of the guest asks the kubelet for. `None` without
/// `dedicatedCpuPlacement`. The launcher's own memory, which comes on top, is not in it.
fn request(version: KubevirtVersion, vmi: &Vmi) -> Option<ContainerRequest> {
    let pcpus = pod_cpus(version, vmi)?;
    let kind = vmi.page_bytes().map_or(MemoryKind::Ordinary, MemoryKind::HugePages);
    let memory = vmi.memory_bytes().into_iter().map(|bytes| (kind, bytes)).collect();
    Some(ContainerRequest { pcpus, memory })
}

/// Predicts pCPUs and pins on a node where `given` is given away already.
///
/// `None` without `dedicatedCpuPlacement`: the guest then runs on the node's
/// shared pool, and nothing is pinned.
pub fn predict(
    machine: &KubeletHost,
    policy: &StaticPolicy<'_>,
    given: &NodeAllocations,
    vmi: &Vmi,
    version: KubevirtVersion,
) -> Option<Prediction> {
    let request = request(version, vmi)?;
    let mut memory = Vec::new();
    let outcome = match policy.admit(given, &request) {
        Err(rejection) => Admission::Rejected(rejection),
        Ok(allocation) => {
            memory.extend(allocation.memory);
            let cpuset = allocation.pcpus;
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
    Some(Prediction { version, pod_cpus: request.pcpus, memory, outcome })
}
