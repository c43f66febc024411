//! How much memory each node can give, in ordinary and huge pages.

use schemars::JsonSchema;
use serde::Serialize;
use topology::Host;

use super::wish::{MemoryUnit, Size};

/// Of each node's memory, one part in so many is left to the host: its kernel,
/// page tables, and what QEMU takes beside the guest's memory.
pub(crate) const HOST_SHARE: u64 = 32;

/// What a node whose size is not known counts as having: more than any VM
/// wants, and little enough to be added up.
const UNKNOWN: u64 = 1 << 56;

/// Huge pages of one host node for one VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HugePages {
    /// The host node.
    pub node: u32,
    /// Size of one page.
    pub page: Size,
    /// How many the VM needs.
    pub pages: u64,
    /// How many of them have to be added to the node's pool first.
    pub to_reserve: u64,
}

/// Memory of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeMemory {
    /// Linux's number; 0 where the kernel shows no nodes.
    pub(crate) id: u32,
    /// Bytes outside of the huge page pools that VMs may have.
    pub(crate) plain: u64,
    /// Bytes that are free now, if the host says.
    pub(crate) free_now: Option<u64>,
    /// Huge page pools: page size and free pages.
    pub(crate) pools: Vec<(u64, u64)>,
}

impl NodeMemory {
    /// Free pages of this size that are reserved.
    pub(crate) fn reserved(&self, unit: MemoryUnit) -> u64 {
        let pools = self.pools.iter().filter(|(size, _)| unit.is_huge && *size == unit.bytes);
        pools.map(|(_, free)| *free).sum()
    }

    /// How many units it can give; huge pages reserved or reservable.
    pub(crate) fn units(&self, unit: MemoryUnit) -> u64 {
        self.plain / unit.bytes + self.reserved(unit)
    }

    /// The bytes of those units or a little more.
    pub(crate) fn bytes(&self, unit: MemoryUnit) -> u64 {
        self.plain + self.reserved(unit) * unit.bytes
    }

    /// Takes units, reserved ones first; returns how many were not.
    pub(crate) fn take(&mut self, unit: MemoryUnit, units: u64) -> u64 {
        let mut left = units;
        for (_, free) in
            self.pools.iter_mut().filter(|(size, _)| unit.is_huge && *size == unit.bytes)
        {
            let part = left.min(*free);
            *free -= part;
            left -= part;
        }
        self.plain = self.plain.saturating_sub(left * unit.bytes);
        left
    }
}

/// The memories of a host, and for each node with pCPUs which of them is its
/// own or, where it has none, the nearest.
pub(crate) fn memories(
    host: &Host,
    node_ids: &[u32],
    warnings: &mut Vec<String>,
) -> (Vec<NodeMemory>, Vec<usize>) {
    let describe = |id, total: Option<u64>, free_now, pools: &[topology::HugePagePool]| {
        let pooled: u64 = pools.iter().map(|pool| pool.total.saturating_mul(pool.page_bytes)).sum();
        let plain = total.map(|total| (total - total / HOST_SHARE).saturating_sub(pooled));
        NodeMemory {
            id,
            plain: plain.unwrap_or(UNKNOWN),
            free_now,
            pools: pools.iter().map(|pool| (pool.page_bytes, pool.free)).collect(),
        }
    };
    if host.nodes.is_empty() {
        if host.memory_bytes.is_none() {
            warnings.push("The host's memory is not known: it was not checked".to_owned());
        }
        let all = describe(0, host.memory_bytes, host.available_bytes, &host.huge_pages);
        return (vec![all], vec![0; node_ids.len()]);
    }
    let mut memories = Vec::new();
    for node in host.nodes.iter().filter(|node| node.memory_bytes != Some(0)) {
        if node.memory_bytes.is_none() && node_ids.contains(&node.id) {
            warnings
                .push(format!("The memory of node {} is not known: it was not checked", node.id));
        }
        memories.push(describe(node.id, node.memory_bytes, node.free_bytes, &node.huge_pages));
    }
    if memories.is_empty() {
        memories.push(describe(0, Some(0), None, &[]));
    }
    let nearest = |id: &u32| {
        let far = |memory: &NodeMemory| {
            if memory.id == *id {
                return 0;
            }
            let known = host.node(*id).and_then(|node| node.distances.get(&memory.id));
            known.copied().unwrap_or(u32::MAX)
        };
        let all = memories.iter().enumerate();
        let (at, memory) = all.min_by_key(|(_, memory)| far(memory)).expect("at least one");
        if memory.id != *id {
            warnings.push(format!(
                "Node {id} has no memory: VMs there get theirs from node {}",
                memory.id
            ));
        }
        at
    };
    let memory_of = node_ids.iter().map(nearest).collect();
    (memories, memory_of)
}
