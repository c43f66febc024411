//! What is still free of a host while VMs are placed on it.

use super::layout::{CoreSet, Layout};
use super::memory::NodeMemory;
use super::wish::MemoryUnit;

/// Free cores and memory.
#[derive(Clone, Debug)]
pub(crate) struct FreeResources {
    pub(crate) cores: CoreSet,
    pub(crate) memories: Vec<NodeMemory>,
    /// vCPUs that float in each node; used when cores are shared.
    pub(crate) floating: Vec<u32>,
}

impl FreeResources {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            cores: layout.usable.clone(),
            memories: layout.memories.clone(),
            floating: vec![0; layout.nodes.len()],
        }
    }

    /// The memory that a node's VMs get.
    pub(crate) fn memory(&self, layout: &Layout, node: usize) -> &NodeMemory {
        &self.memories[layout.nodes[node].memory]
    }

    /// Takes units of it; returns how many were not reserved.
    pub(crate) fn take_memory(
        &mut self,
        layout: &Layout,
        node: usize,
        unit: MemoryUnit,
        units: u64,
    ) -> u64 {
        self.memories[layout.nodes[node].memory].take(unit, units)
    }
}
