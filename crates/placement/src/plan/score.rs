//! What makes one placement better than another.

use std::ops::Add;

use schemars::JsonSchema;
use serde::Serialize;

/// How good a placement is; less is better, the first difference decides.
///
/// The order says what costs a VM most: memory of another node (the fewer
/// nodes and the nearer they are the better), then data that moves between
/// last-level caches. Guest cells of one size come before fewer caches, since
/// the guest's own balancing takes its cells for equal. Huge pages that are
/// there come before those that must be found. What remains is the
/// good of the VMs to come: whole nodes and whole caches are kept whole, and
/// the gaps that stay are small.
///
/// Shared cores are not in it: cores are shared on request only, and a plan
/// that shares is never compared with one that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Score {
    /// Worse kind of cores: how many better kinds were passed over.
    pub tier: u32,
    /// Nodes beyond the first.
    pub extra_nodes: u32,
    /// Distances between its nodes, each pair once (ACPI SLIT, 10 is local).
    pub distance: u32,
    /// Cores of its biggest cell less those of its smallest.
    pub node_unevenness: u32,
    /// 1 if its memory is not shared among the nodes as its cores are.
    pub memory_uneven: u32,
    /// Last-level caches beyond the first.
    pub extra_caches: u32,
    /// Cores in its biggest share of a cache less those in its smallest,
    /// summed over its nodes.
    pub cache_unevenness: u32,
    /// Huge pages that have to be reserved first.
    pub pages_to_reserve: u64,
    /// Nodes that were wholly free and now are neither free nor full.
    pub nodes_broken: u32,
    /// Last-level caches that were wholly free and now are neither free nor
    /// full.
    pub caches_broken: u32,
    /// Free cores that stay around the last-level caches it uses.
    pub cache_leftover: u32,
    /// Free cores that stay in its nodes.
    pub node_leftover: u32,
}

/// The score of several VMs together.
impl Add for Score {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tier: self.tier + other.tier,
            extra_nodes: self.extra_nodes + other.extra_nodes,
            distance: self.distance + other.distance,
            node_unevenness: self.node_unevenness + other.node_unevenness,
            memory_uneven: self.memory_uneven + other.memory_uneven,
            extra_caches: self.extra_caches + other.extra_caches,
            cache_unevenness: self.cache_unevenness + other.cache_unevenness,
            pages_to_reserve: self.pages_to_reserve + other.pages_to_reserve,
            nodes_broken: self.nodes_broken + other.nodes_broken,
            caches_broken: self.caches_broken + other.caches_broken,
            cache_leftover: self.cache_leftover + other.cache_leftover,
            node_leftover: self.node_leftover + other.node_leftover,
        }
    }
}
