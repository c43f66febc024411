//! From chosen cores to what a VM is told: pins, topology, cells, pages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use topology::PcpuSet;
use vmconfig::{
    GuestNode, GuestTopology, MemoryBacking, PageSize, TopologyPatch, VcpuPins, VmPatch,
};

use super::choose::Choice;
use super::free::FreeResources;
use super::guest_topology::guest_topology;
use super::layout::Layout;
use super::memory::HugePages;
use super::other_threads::OtherThreads;
use super::reasons::reasons;
use super::score::Score;
use super::wish::{Size, VmWish};

/// Where one VM goes, and what it shall look like there.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Placement {
    /// The VM's name.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory: what was asked for, in whole pages.
    pub memory: Size,
    /// Whether its vCPUs share pCPUs with other VMs'. Then each may run on all
    /// of its node's; otherwise each has one pCPU, and no other VM has its core.
    pub floating: bool,
    /// Where each vCPU runs.
    pub vcpu_pins: VcpuPins,
    /// Where QEMU's other threads run; empty if there is no place for them.
    pub emulator: PcpuSet,
    /// Where each iothread runs.
    pub iothreads: Vec<PcpuSet>,
    /// Where each vhost thread runs.
    pub vhost: Vec<PcpuSet>,
    /// How the guest sees its vCPUs.
    pub topology: GuestTopology,
    /// Its NUMA cells, at least one.
    pub cells: Vec<GuestCell>,
    /// Whether the host shows nodes; otherwise all is on node 0.
    pub host_has_nodes: bool,
    /// How much memory comes from which host node.
    pub memory_by_node: BTreeMap<u32, Size>,
    /// Huge pages by host node; empty if it has none.
    pub huge_pages: Vec<HugePages>,
    /// pCPUs that no VM gets on this host.
    pub leave_to_host: PcpuSet,
    /// Why, a line each.
    pub reasons: Vec<String>,
    /// How good it is.
    pub score: Score,
}

/// One NUMA cell of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GuestCell {
    /// Its number.
    pub id: u32,
    /// Its vCPUs, as a list.
    pub vcpus: String,
    /// Its memory.
    pub memory: Size,
    /// The host node on whose pCPUs its vCPUs run. 0 where the host shows no
    /// nodes.
    pub host_node: u32,
    /// The host node that its memory comes from; another one only if
    /// `host_node` has no memory.
    pub memory_node: u32,
    /// Distances to all cells, as the host has them (10 is local).
    pub distances: Vec<u32>,
}

impl Placement {
    /// The first pCPU of every vCPU, by vCPU; where they float, of their set.
    pub fn pcpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.vcpu_pins.values().filter_map(PcpuSet::first)
    }

    /// The host nodes whose pCPUs it uses.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.cells.iter().map(|cell| cell.host_node)
    }

    /// What a study writes to get this VM. It has one word for all vhost
    /// threads, since nothing tells which of them serves which queue.
    #[must_use]
    pub fn patch(&self) -> VmPatch {
        let topology = self.topology;
        let level = |count: u32| (count > 1).then_some(count);
        VmPatch {
            vcpus: Some(self.vcpus),
            topology: Some(TopologyPatch {
                sockets: Some(topology.sockets),
                dies: level(topology.dies),
                clusters: level(topology.clusters),
                cores: Some(topology.cores),
                threads: Some(topology.threads),
            }),
            pins: Some(self.vcpu_pins.clone()),
            emulator_pin: (!self.emulator.is_empty()).then(|| self.emulator.clone()),
            iothreads: (!self.iothreads.is_empty()).then_some(self.iothreads.len() as u32),
            // iothreads count from 1.
            iothread_pins: (!self.iothreads.is_empty() && !self.iothreads[0].is_empty())
                .then(|| VcpuPins((1..).zip(self.iothreads.iter().cloned()).collect())),
            vhost_pin: self
                .vhost
                .iter()
                .cloned()
                .reduce(|all, pcpus| all.union(&pcpus))
                .filter(|pcpus| !pcpus.is_empty()),
            memory_mib: Some(self.memory.in_mib()),
            memory: MemoryBacking {
                huge_pages: self
                    .huge_pages
                    .first()
                    .and_then(|need| PageSize::from_kib(need.page.0 >> 10)),
                host_nodes: match self.cells.as_slice() {
                    [cell] if self.host_has_nodes => Some(PcpuSet::from_iter([cell.memory_node])),
                    _ => None,
                },
                ..MemoryBacking::default()
            },
            numa: (self.cells.len() > 1).then(|| self.cells.iter().map(GuestCell::node).collect()),
            ..VmPatch::default()
        }
    }
}

impl GuestCell {
    /// The cell in a study's words.
    fn node(&self) -> GuestNode {
        let others = (0..).zip(&self.distances).filter(|(other, _)| *other != self.id);
        GuestNode {
            vcpus: self.vcpus.parse().unwrap_or_default(),
            memory_mib: self.memory.in_mib(),
            host_nodes: Some(PcpuSet::from_iter([self.memory_node])),
            policy: None,
            // Firmware that calls everything local is not believed.
            distances: others
                .map(|(other, distance)| (other, (*distance).clamp(11, 255)))
                .collect(),
            ..GuestNode::default()
        }
    }
}

/// Takes the chosen cores and memory and writes down what that means.
pub(crate) fn settle(
    layout: &Layout,
    free: &mut FreeResources,
    wish: &VmWish,
    choice: &Choice,
) -> Placement {
    let floating = choice.shares.iter().all(|share| share.cores.is_empty());
    let before = free.clone();
    let unit = wish.unit();
    let mut cells: Vec<GuestCell> = Vec::new();
    let mut pins = BTreeMap::new();
    let mut memory_by_node: BTreeMap<u32, Size> = BTreeMap::new();
    let mut huge_pages: Vec<HugePages> = Vec::new();
    let mut vcpu = 0;
    for share in &choice.shares {
        let first = vcpu;
        if floating {
            let pool = layout.pool(share.node);
            pins.extend((0..share.vcpus).map(|at| (first + at, pool.clone())));
            vcpu += share.vcpus;
            free.floating[share.node] += share.vcpus;
        }
        for core in share.cores.iter().flatten() {
            free.cores.remove(*core);
            for thread in layout.cores[*core].threads.iter().take(choice.threads as usize) {
                pins.insert(vcpu, PcpuSet::from_iter([*thread]));
                vcpu += 1;
            }
        }
        let to_reserve = free.take_memory(layout, share.node, unit, share.units);
        let memory_node = layout.memory_id(share.node);
        let memory = Size(share.units * unit.bytes);
        memory_by_node.entry(memory_node).or_default().0 += memory.0;
        if unit.is_huge {
            match huge_pages.iter_mut().find(|known| known.node == memory_node) {
                Some(known) => {
                    known.pages += share.units;
                    known.to_reserve += to_reserve;
                }
                None => huge_pages.push(HugePages {
                    node: memory_node,
                    page: Size(unit.bytes),
                    pages: share.units,
                    to_reserve,
                }),
            }
        }
        cells.push(GuestCell {
            id: cells.len() as u32,
            vcpus: PcpuSet::from_iter(first..vcpu).to_string(),
            memory,
            host_node: layout.nodes[share.node].id,
            memory_node,
            distances: choice
                .shares
                .iter()
                .map(|other| layout.distances[share.node][other.node])
                .collect(),
        });
    }
    for core in &choice.io {
        free.cores.remove(*core);
    }
    let others = OtherThreads::new(layout, wish, choice);
    let reasons = reasons(layout, &before, wish, choice, &huge_pages, &others);
    Placement {
        name: wish.name.clone(),
        vcpus: wish.vcpus,
        memory: Size(wish.units() * unit.bytes),
        floating,
        vcpu_pins: VcpuPins(pins),
        topology: guest_topology(layout, choice),
        emulator: others.emulator,
        iothreads: others.iothreads,
        vhost: others.vhost,
        cells,
        host_has_nodes: layout.has_nodes,
        memory_by_node,
        huge_pages,
        leave_to_host: layout.left_to_host.clone(),
        reasons,
        score: choice.score,
    }
}
