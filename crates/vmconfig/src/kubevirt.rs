//! KubeVirt's VirtualMachineInstance and VirtualMachine, as YAML.
//!
//! KubeVirt chooses pCPUs, host nodes and much else by itself, so a VM loses
//! more here than elsewhere: pins become `dedicatedCpuPlacement`, guest nodes
//! become `guestMappingPassthrough`.
//!
//! Source: the schemas of KubeVirt 1.9.0 and its admission webhook
//! (`vmi-create-admitter.go`).

pub mod defaults;
mod emit;
mod instancetype;
mod kinds;
mod launched;
mod parse;
mod quantity;
mod tree;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use emit::{emit, emit_launched};
pub use instancetype::{Catalogue, ExpandedVm, Shortfall};
pub use kinds::{is_list, template_of};
pub use launched::LaunchedInstance;
pub use parse::{KubevirtMismatch, parse, parse_documents};
pub use quantity::{ParseQuantityError, Quantity};

/// The label of a node whose instructions an emulator executes, `tcg` for QEMU's: what is
/// measured under KVM there is emulated time, and nothing else of Kubernetes' says so.
pub const EMULATOR_LABEL: &str = "vmlab/emulator";

/// Which of KubeVirt's two kinds of VM object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KubevirtKind {
    /// A VM that runs until it ends: `VirtualMachineInstance`.
    #[default]
    Instance,
    /// One that is kept and can be started again: `VirtualMachine`.
    Machine,
}

/// Most queues that KubeVirt gives a network interface.
const MAX_NIC_QUEUES: u32 = 256;

/// How many iothreads there are under KubeVirt's policy `shared` or none, and
/// which of them serves each disk: one serves all that want none of their own,
/// and is there too if several want one.
///
/// `dedicated` has an entry for each disk: none for one that no iothread can
/// serve, which is any but virtio-blk.
///
/// Source: KubeVirt `converter/iothreads`, `GetIOThreadsCountType`.
fn assign_iothreads(shared: bool, dedicated: &[Option<bool>]) -> (u32, Vec<Option<u32>>) {
    if !shared && !dedicated.contains(&Some(true)) {
        return (0, vec![None; dedicated.len()]);
    }
    let rest = match dedicated {
        [] => 0,
        [only] => u32::from(*only != Some(true)),
        _ => 1,
    };
    let mut next = rest;
    let threads = dedicated
        .iter()
        .map(|own| match own {
            None => None,
            Some(false) => Some(1),
            Some(true) => {
                next += 1;
                Some(next)
            }
        })
        .collect();
    (next, threads)
}

#[cfg(test)]
mod tests;
