//! KubeVirt's VirtualMachineInstance and VirtualMachine, as YAML.
//!
//! KubeVirt chooses pCPUs, host nodes and much else by itself, so a VM loses
//! more here than elsewhere: pins become `dedicatedCpuPlacement`, guest nodes
//! become `guestMappingPassthrough`.
//!
//! Source: the schemas of KubeVirt 1.9.0 and its admission webhook
//! (`vmi-create-admitter.go`).

mod emit;
mod parse;
mod tree;

use serde::{Deserialize, Serialize};

pub use emit::emit;
pub use parse::{NotKubevirt, parse};

/// Which of KubeVirt's two objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A VM that runs until it ends: `VirtualMachineInstance`.
    #[default]
    Instance,
    /// One that is kept and can be started again: `VirtualMachine`.
    Machine,
}

/// Most queues that KubeVirt gives a network interface.
const MAX_NIC_QUEUES: u32 = 256;

/// Which iothread serves each disk under KubeVirt's policy `shared` or none:
/// disks with a thread of their own come after the one that serves the rest.
///
/// `dedicated` has an entry for each disk: none for one that no iothread can
/// serve.
///
/// Source: KubeVirt `converter/iothreads`, `GetIOThreadsCountType`.
fn assign_iothreads(shared: bool, dedicated: &[Option<bool>]) -> (u32, Vec<Option<u32>>) {
    let any = shared || dedicated.contains(&Some(true));
    if !any {
        return (0, vec![None; dedicated.len()]);
    }
    let rest = u32::from(shared || dedicated.contains(&Some(false)));
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
