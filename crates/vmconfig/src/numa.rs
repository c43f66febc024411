//! The memory nodes that the guest sees.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;

use crate::memory::check_host_nodes;
use crate::{InvalidVm, MemoryBacking, MemoryPolicy, MemorySource, NumberSet, PageSize};

/// One memory node of the guest; its number is its place in the list. libvirt
/// `<numa><cell>` with `<numatune><memnode>`, QEMU `-numa node` with a memory
/// backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuestNode {
    /// Its vCPUs: `"0-3"`. If no node of a patch has any, they are shared out
    /// evenly, in order.
    #[serde(skip_serializing_if = "NumberSet::is_empty")]
    pub vcpus: NumberSet,
    /// Its memory; 0 in every node of a patch is an even share.
    #[serde(skip_serializing_if = "is_even_share")]
    pub memory_mib: u64,
    /// Host nodes that hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nodes: Option<PcpuSet>,
    /// How strictly; with `host_nodes` alone it is `bind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<MemoryPolicy>,
    /// Its huge pages, if they are not the VM's ([`MemoryBacking::huge_pages`]); `"4K"`
    /// is none. libvirt `<page nodeset=>`; in QEMU each backend says its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<PageSize>,
    /// What its memory is for the kernel, if not what the VM's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<MemorySource>,
    /// Whether other processes may map it, if it is not as the VM's. libvirt
    /// `<cell memAccess=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Whether it is allocated before the guest starts, if it is not as the VM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prealloc: Option<bool>,
    /// Relative cost to reach other guest nodes, by number; 10 is local
    /// (ACPI SLIT). Not said is 20.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", with = "distances")]
    #[schemars(with = "BTreeMap<String, u32>")]
    pub distances: BTreeMap<u32, u32>,
}

/// TOML and JSON have texts for keys.
mod distances {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<u32, u32>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(node, distance)| (node.to_string(), distance)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, u32>, D::Error> {
        let texts = BTreeMap::<String, u32>::deserialize(deserializer)?;
        texts
            .into_iter()
            .map(|(node, distance)| {
                let node = node.parse().map_err(|_| {
                    D::Error::custom(format_args!("not a guest node's number: {node:?}"))
                })?;
                Ok((node, distance))
            })
            .collect()
    }
}

/// Most guest nodes that QEMU takes (`MAX_NODES`).
const MAX_GUEST_NODES: usize = 128;

/// Shares vCPUs and memory out evenly where a patch leaves that open.
pub(crate) fn complete(nodes: &mut [GuestNode], vcpus: u32, memory_mib: u64) {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    if nodes.iter().all(|node| node.vcpus.is_empty()) {
        for (number, node) in (0..).zip(nodes.iter_mut()) {
            let share = |number: u64| number * u64::from(vcpus) / u64::from(count);
            let range = share(number)..share(number + 1);
            node.vcpus = range.filter_map(|vcpu| u32::try_from(vcpu).ok()).collect();
        }
    }
    if nodes.iter().all(|node| node.memory_mib == 0) {
        let (each, rest) = (memory_mib / u64::from(count), memory_mib % u64::from(count));
        for (number, node) in (0..).zip(nodes.iter_mut()) {
            node.memory_mib = each + u64::from(number < rest);
        }
    }
}

/// Whether a node's memory is its even share.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_even_share(memory_mib: &u64) -> bool {
    *memory_mib == 0
}

impl GuestNode {
    /// How its memory is backed, in a VM whose memory is backed so.
    #[must_use]
    pub fn memory(&self, of_vm: &MemoryBacking) -> MemoryBacking {
        let mut memory = MemoryBacking {
            huge_pages: self.huge_pages.or(of_vm.huge_pages),
            source: self.source.or(of_vm.source),
            shared: self.shared.or(of_vm.shared),
            prealloc: self.prealloc.or(of_vm.prealloc),
            ..of_vm.clone()
        };
        memory.normalise();
        memory
    }

    /// Says that its memory is this, whatever the VM's is.
    pub(crate) fn set_memory(&mut self, memory: &MemoryBacking) {
        self.huge_pages = Some(memory.huge_pages.unwrap_or(PageSize::ORDINARY));
        self.source = Some(memory.source.unwrap_or(MemorySource::Anonymous));
        self.shared = Some(memory.shared == Some(true));
        self.prealloc = Some(memory.prealloc == Some(true));
    }
}

/// One way to say whose memory is how: the first node's is the VM's, and others say
/// in what theirs is another.
fn share_memory(nodes: &mut [GuestNode], memory: &mut MemoryBacking) {
    let all: Vec<MemoryBacking> = nodes.iter().map(|node| node.memory(memory)).collect();
    let Some(first) = all.first() else { return };
    for (node, own) in nodes.iter_mut().zip(&all) {
        node.set_memory(own);
        node.huge_pages = node.huge_pages.filter(|_| own.huge_pages != first.huge_pages);
        node.source = node.source.filter(|_| own.source != first.source);
        node.shared = node.shared.filter(|_| own.shared != first.shared);
        node.prealloc = node.prealloc.filter(|_| own.prealloc != first.prealloc);
    }
    *memory = first.clone();
}

pub(crate) fn normalise(nodes: &mut [GuestNode], memory: &mut MemoryBacking) {
    share_memory(nodes, memory);
    for node in nodes.iter_mut() {
        if node.host_nodes.as_ref().is_some_and(PcpuSet::is_empty) {
            (node.host_nodes, node.policy) = (None, None);
        }
        if node.host_nodes.is_some() && node.policy.is_none() {
            node.policy = Some(MemoryPolicy::Bind);
        }
    }
    complete_distances(nodes);
}

/// Relative cost to reach another node where nobody says one.
const REMOTE: u32 = 20;

/// Once one distance is said, all are: the way back is as long as the way
/// there, and what nobody says is [`REMOTE`]. A node's own is never said.
///
/// Source: QEMU `complete_init_numa_distance`, which wants each pair once;
/// libvirt `virDomainNumaDefFormatXML`.
fn complete_distances(nodes: &mut [GuestNode]) {
    if nodes.len() > MAX_GUEST_NODES || nodes.iter().all(|node| node.distances.is_empty()) {
        return;
    }
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let said: Vec<BTreeMap<u32, u32>> = nodes.iter().map(|node| node.distances.clone()).collect();
    for (here, node) in (0..count).zip(nodes.iter_mut()) {
        if node.distances.get(&here) == Some(&10) {
            node.distances.remove(&here);
        }
        for (there, back) in (0..count).zip(&said).filter(|(there, _)| *there != here) {
            let value = back.get(&here).copied().unwrap_or(REMOTE);
            node.distances.entry(there).or_insert(value);
        }
    }
}

/// The nodes hold each of the machine's vCPUs once and all its memory.
pub(crate) fn check(
    nodes: &[GuestNode],
    max_vcpus: u32,
    memory_mib: u64,
    memory: &MemoryBacking,
) -> Result<(), InvalidVm> {
    let refuse = |message: String| Err(InvalidVm::Contradiction { field: "numa", message });
    if nodes.is_empty() {
        return Ok(());
    }
    if nodes.len() > MAX_GUEST_NODES {
        return refuse(format!("has {} nodes: QEMU takes {MAX_GUEST_NODES}", nodes.len()));
    }
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut sum: u64 = 0;
    for (number, node) in nodes.iter().enumerate() {
        for vcpu in &node.vcpus {
            if vcpu >= max_vcpus {
                return refuse(format!(
                    "node {number} has vCPU {vcpu}, but the machine has vCPUs 0-{}",
                    max_vcpus.saturating_sub(1)
                ));
            }
            if let Some(other) = seen.insert(vcpu, number) {
                return refuse(format!("has vCPU {vcpu} in node {other} and in node {number}"));
            }
        }
        sum = sum.saturating_add(node.memory_mib);
        if node.memory_mib == 0 {
            return refuse(format!("node {number} has no memory"));
        }
        if let Some(size) = node.memory(memory).huge_pages
            && !node.memory_mib.saturating_mul(1024).is_multiple_of(size.kib())
        {
            return refuse(format!(
                "node {number} has {} MiB, which is not made of whole huge pages of {size}",
                node.memory_mib
            ));
        }
        if node.policy.is_some() && node.host_nodes.is_none() {
            return refuse(format!("node {number} has a policy without host_nodes"));
        }
        check_host_nodes("numa", node.host_nodes.as_ref())?;
        for (&other, &distance) in &node.distances {
            if other as usize >= nodes.len() {
                return refuse(format!(
                    "node {number} has a distance to node {other}, which isn't there"
                ));
            }
            let local = other as usize == number;
            if !(10..=255).contains(&distance) || (local != (distance == 10)) {
                return refuse(format!(
                    "node {number} has distance {distance} to node {other}: 10 is local, 11 to 255 another"
                ));
            }
        }
    }
    if let Some(vcpu) = (0..max_vcpus).find(|vcpu| !seen.contains_key(vcpu)) {
        return refuse(format!("leaves vCPU {vcpu} out: every vCPU is in one node"));
    }
    if sum != memory_mib {
        return refuse(format!("has {sum} MiB in all, but memory_mib is {memory_mib}"));
    }
    Ok(())
}

/// Whether the memory of a VM with these nodes can be.
pub(crate) fn check_memory(
    memory: &MemoryBacking,
    memory_mib: u64,
    nodes: &[GuestNode],
) -> Result<(), InvalidVm> {
    let refuse = |message: String| Err(InvalidVm::Contradiction { field: "memory", message });
    // Guest nodes say it of themselves.
    if let Some(size) = memory.huge_pages.filter(|_| nodes.is_empty())
        && !(memory_mib * 1024).is_multiple_of(size.kib())
    {
        return refuse(format!(
            "has huge_pages \"{size}\", but memory_mib {memory_mib} is not made of whole ones"
        ));
    }
    if memory.policy.is_some() && memory.host_nodes.is_none() {
        return refuse("has a policy without host_nodes to apply it to".to_owned());
    }
    if memory.host_nodes.is_some() && !nodes.is_empty() {
        return refuse("has host_nodes, but there are guest nodes: write it in numa".to_owned());
    }
    let prealloc = memory.prealloc.is_some() || nodes.iter().any(|node| node.prealloc.is_some());
    if memory.prealloc_threads.is_some_and(|threads| threads == 0 || !prealloc) {
        return refuse("has prealloc_threads without prealloc, or 0 of them".to_owned());
    }
    check_host_nodes("memory", memory.host_nodes.as_ref())
}
