//! A host as the kubelet and KubeVirt see it: less than [`topology::Host`]
//! holds, and with their own numbers.

use std::collections::{BTreeMap, BTreeSet};

use topology::{CacheKind, Host, PcpuSet};

use super::memory::{MemoryAmounts, MemoryKind};

/// More pCPUs than any machine has; guards against a mistyped file.
const MAX_PCPUS: usize = 65_536;

/// Where one pCPU sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpuPosition {
    /// Linux's number.
    pub pcpu: u32,
    /// Core: the lowest pCPU of the core, which makes it unique in the machine.
    pub core: u32,
    /// Socket.
    pub socket: u32,
    /// Memory node.
    pub node: u32,
    /// Last-level cache that only some cores of the node share; the socket's
    /// number where there is no such cache.
    pub uncore: u32,
}

/// How many of each the machine has. The kubelet divides by these instead of
/// counting a given socket, so they decide even where they are uneven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// pCPUs.
    pub pcpus: u32,
    /// Cores.
    pub cores: u32,
    /// Sockets.
    pub sockets: u32,
    /// Memory nodes.
    pub nodes: u32,
    /// Shared last-level caches.
    pub uncores: u32,
}

/// A host's pCPUs and where they sit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletHost {
    seats: BTreeMap<u32, PcpuPosition>,
    counts: Counts,
    /// Relative cost from node to node.
    distances: BTreeMap<(u32, u32), u32>,
    /// Memory of nodes that say it.
    memory: BTreeMap<u32, MemoryAmounts>,
}

/// Error type for [`KubeletHost::new`] and [`KubeletHost::from_host`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Nothing to place on.
    #[error("The host has no online pCPUs: describe its pCPUs")]
    NoPcpus,
    /// One number twice.
    #[error("pCPU {0} is described twice")]
    Twice(u32),
    /// More than any machine has.
    #[error("The host has {0} pCPUs, more than {MAX_PCPUS}")]
    TooMany(usize),
}

/// One memory cell of the host as libvirt's capabilities list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilitiesCell {
    /// The node's number.
    pub id: u32,
    /// Its pCPUs in the order of the capabilities.
    pub pcpus: Vec<CellPcpu>,
}

/// One pCPU of a [`CapabilitiesCell`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPcpu {
    /// Linux's number.
    pub id: u32,
    /// The threads of its core, itself included; empty: unknown.
    pub siblings: Vec<u32>,
}

/// How well virt-handler reads libvirt's sibling lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiblingLists {
    /// All siblings are read.
    Whole,
    /// Ranges are dropped: libvirt writes neighbours as `0-1`, and only the
    /// parts between commas that are plain numbers survive.
    RangesLost,
}

impl KubeletHost {
    /// A machine that is counted from its seats, as the kubelet does.
    ///
    /// # Errors
    /// [`MachineError`]: no pCPU, or one twice.
    pub fn new(seats: impl IntoIterator<Item = PcpuPosition>) -> Result<Self, MachineError> {
        let mut by_pcpu = BTreeMap::new();
        for seat in seats {
            if by_pcpu.insert(seat.pcpu, seat).is_some() {
                return Err(MachineError::Twice(seat.pcpu));
            }
        }
        if by_pcpu.is_empty() {
            return Err(MachineError::NoPcpus);
        }
        if by_pcpu.len() > MAX_PCPUS {
            return Err(MachineError::TooMany(by_pcpu.len()));
        }
        let count = |of: fn(&PcpuPosition) -> u32| {
            number(by_pcpu.values().map(of).collect::<BTreeSet<_>>().len())
        };
        let counts = Counts {
            pcpus: number(by_pcpu.len()),
            cores: count(|seat| seat.core),
            sockets: count(|seat| seat.socket),
            nodes: count(|seat| seat.node),
            uncores: count(|seat| seat.uncore),
        };
        Ok(Self { seats: by_pcpu, counts, distances: BTreeMap::new(), memory: BTreeMap::new() })
    }

    /// The same machine with other counts.
    pub fn with_counts(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    /// The online pCPUs of a host.
    ///
    /// Without known nodes or sockets all sit in node 0 and socket 0, as in
    /// cAdvisor and libvirt. A cache of level 3 or more counts as shared
    /// ("uncore") only where it does not span its whole node; caches are
    /// numbered by their first pCPU.
    ///
    /// # Errors
    /// [`MachineError`]: no pCPU is online.
    pub fn from_host(host: &Host) -> Result<Self, MachineError> {
        let online: Vec<_> = host.pcpus.iter().filter(|pcpu| pcpu.online).collect();
        let mut lowest = BTreeMap::new();
        for pcpu in &online {
            // Without a core number a pCPU is a core of its own.
            let own = pcpu.core.is_none().then_some(pcpu.id);
            let core = (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core, own);
            lowest.entry(core).or_insert(pcpu.id);
        }
        let caches = partial_caches(host);
        let seats = online.iter().map(|pcpu| {
            let own = pcpu.core.is_none().then_some(pcpu.id);
            let core = lowest[&(pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core, own)];
            let socket = pcpu.socket.unwrap_or(0);
            let uncore = caches.iter().position(|cache| cache.contains(pcpu.id));
            PcpuPosition {
                pcpu: pcpu.id,
                core,
                socket,
                node: pcpu.node.unwrap_or(0),
                uncore: uncore.map_or(socket, number),
            }
        });
        let mut machine = Self::new(seats.collect::<Vec<_>>())?;
        for node in &host.nodes {
            let row = node.distances.iter().map(|(&to, &cost)| ((node.id, to), cost));
            machine.distances.extend(row);
            if let Some(bytes) = node.memory_bytes {
                let pools = node.huge_pages.iter().map(|pool| {
                    let bytes = pool.page_bytes.saturating_mul(pool.total);
                    (MemoryKind::HugePages(pool.page_bytes), bytes)
                });
                let amounts = pools.chain([(MemoryKind::Ordinary, bytes)]).collect();
                machine.memory.insert(node.id, amounts);
            }
        }
        Ok(machine)
    }

    /// All pCPUs.
    pub fn pcpus(&self) -> PcpuSet {
        self.seats.keys().copied().collect()
    }

    /// Where a pCPU sits.
    pub fn seat(&self, pcpu: u32) -> Option<&PcpuPosition> {
        self.seats.get(&pcpu)
    }

    /// All seats by ascending pCPU.
    pub fn seats(&self) -> impl Iterator<Item = &PcpuPosition> {
        self.seats.values()
    }

    /// How many of each there are.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Threads per core, on average; 0 on a machine said to have no cores.
    pub fn threads_per_core(&self) -> u32 {
        self.counts.pcpus.checked_div(self.counts.cores).unwrap_or(0)
    }

    /// The nodes that hold pCPUs, ascending.
    pub fn nodes(&self) -> BTreeSet<u32> {
        self.seats.values().map(|seat| seat.node).collect()
    }

    /// Relative cost from one node to another; `None` where the host does not
    /// say.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        self.distances.get(&(from, to)).copied()
    }

    /// Memory of a node: all of it as ordinary memory, and what of that is in pools of huge
    /// pages; `None` where the host does not say.
    pub fn memory(&self, node: u32) -> Option<&MemoryAmounts> {
        self.memory.get(&node)
    }

    /// The host as KubeVirt knows it, from libvirt's capabilities.
    pub fn cells(&self, lists: SiblingLists) -> Vec<CapabilitiesCell> {
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for seat in self.seats.values() {
            cores.entry(seat.core).or_default().push(seat.pcpu);
        }
        if lists == SiblingLists::RangesLost {
            cores.values_mut().for_each(drop_ranges);
        }
        let mut cells: BTreeMap<u32, Vec<CellPcpu>> = BTreeMap::new();
        for seat in self.seats.values() {
            let pcpu = CellPcpu { id: seat.pcpu, siblings: cores[&seat.core].clone() };
            cells.entry(seat.node).or_default().push(pcpu);
        }
        cells.into_iter().map(|(id, pcpus)| CapabilitiesCell { id, pcpus }).collect()
    }
}

/// Takes out what libvirt would write as a range: every run of neighbours.
fn drop_ranges(siblings: &mut Vec<u32>) {
    let all: BTreeSet<u32> = siblings.iter().copied().collect();
    let has = |pcpu: Option<u32>| pcpu.is_some_and(|pcpu| all.contains(&pcpu));
    siblings.retain(|pcpu| !has(pcpu.checked_add(1)) && !has(pcpu.checked_sub(1)));
}

/// The widest caches (level 3 and up) that do not span their node.
fn partial_caches(host: &Host) -> Vec<PcpuSet> {
    let node_of = |pcpu: u32| host.pcpu(pcpu).and_then(|pcpu| pcpu.node);
    let mut caches: Vec<PcpuSet> = host
        .caches
        .iter()
        .filter(|cache| cache.level >= 3 && cache.kind != CacheKind::Instruction)
        .filter(|cache| {
            let node = cache.pcpus.first().and_then(node_of);
            let around = host.select(|pcpu| pcpu.online && pcpu.node == node);
            !around.is_subset(&cache.pcpus)
        })
        .map(|cache| cache.pcpus.clone())
        .collect();
    caches.sort_by_key(PcpuSet::first);
    caches
}

/// A count as `u32`: there are at most 65 536 pCPUs.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
