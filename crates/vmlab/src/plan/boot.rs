//! What a node's kernel is told at its boot, beside what its kubelet does with the pCPUs.

use ::cluster::ClusterNode;
use placement::predict::MemoryKind;
use schemars::JsonSchema;
use serde::Serialize;
use topology::{PcpuSet, bytes};

/// A kernel's parameters, as a MachineConfig has them.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BootForecast {
    /// `MachineConfig NAME`.
    pub(super) source: String,
    /// All that it adds to the kernel's command line.
    pub(super) parameters: Vec<String>,
    /// pCPUs among which the scheduler balances nothing (`isolcpus=`).
    isolated: PcpuSet,
    /// pCPUs without the scheduler's tick while one task runs (`nohz_full=`).
    nohz_full: PcpuSet,
}

impl BootForecast {
    /// Of a node, where somebody told.
    pub(super) fn of(node: &ClusterNode) -> Option<Self> {
        let boot = node.boot.as_ref()?;
        let parameters = &boot.parameters;
        Some(Self {
            source: format!("MachineConfig {}", boot.source),
            parameters: parameters.words.clone(),
            isolated: parameters.isolated.clone(),
            nohz_full: parameters.nohz_full.clone(),
        })
    }
}

/// What in a node's parameters is wrong, or does not go with its kubelet, which keeps
/// `reserved` for the system.
pub(super) fn findings(node: &ClusterNode, reserved: Option<&PcpuSet>) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(state) = node.machine_config.as_ref().filter(|state| state.current != state.desired)
    {
        let how = if state.state.is_empty() { "not told how far" } else { &*state.state };
        found.push(format!(
            "it is to have MachineConfig {}, and has {} ({how}): it may boot anew",
            state.desired, state.current
        ));
    }
    let Some(boot) = &node.boot else { return found };
    let told = &boot.parameters;
    found.extend(told.wrong.iter().map(|wrong| format!("its kernel is told {wrong}")));
    let shared = |set: &PcpuSet| {
        format!(
            "the kernel isolates pCPUs {set} (isolcpus=), which pods without pCPUs of their own \
             share: nothing balances there, so their threads stay on one"
        )
    };
    let is_static = node.kubelet.as_ref().map(|kubelet| kubelet.is_static);
    match (is_static, reserved) {
        (Some(true), Some(reserved)) => {
            let kept = told.isolated.intersection(reserved);
            if !kept.is_empty() {
                found.push(format!(
                    "the kernel isolates pCPUs {kept} (isolcpus=), which the kubelet keeps for \
                     the system: nothing balances there"
                ));
            }
            let given = told.isolated.difference(reserved);
            if !given.is_empty() {
                found.push(shared(&given));
            }
            let noisy = node_pcpus(node).difference(reserved).difference(&told.nohz_full);
            if !told.nohz_full.is_empty() && !noisy.is_empty() {
                found.push(format!(
                    "pods may get pCPUs {noisy} for themselves, where the kernel's tick goes on: \
                     nohz_full= names {}",
                    told.nohz_full
                ));
            }
        }
        (Some(false), _) if !told.isolated.is_empty() => found.push(shared(&told.isolated)),
        _ => {}
    }
    for (page, wanted) in &told.huge_page_bytes {
        let offered = node.offer.huge_page_bytes.get(page).copied().unwrap_or(0);
        if offered < *wanted {
            found.push(format!(
                "the kernel is to set {} of {} aside (hugepages=), and pods get {}",
                bytes::rounded(*wanted),
                MemoryKind::HugePages(*page),
                bytes::rounded(offered)
            ));
        }
    }
    found
}

/// pCPUs as they are numbered where none is offline.
fn node_pcpus(node: &ClusterNode) -> PcpuSet {
    (0..node.cpus).collect()
}
