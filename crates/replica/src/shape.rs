//! From a machine's description to the machine that the emulator shows.
//!
//! pCPU numbers are kept, since pins name them, and so are nodes and their
//! distances. QEMU numbers pCPUs socket by socket, and shows the threads of an x86-64
//! host's cores only where it is the one of `scripts/build-qemu`. Whatever can't be
//! shown for one of these reasons is declared: the host inside gets a description that
//! vmlab believes in place of what the kernel says.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Host, HostVirtualisation, Node, PcpuSet};
use vmconfig::Arch;

/// Most pCPUs of an emulated x86-64 host: xAPIC has ids of 8 bits.
const MAX_APIC_ID: u32 = 254;

/// Most pCPUs of an emulated arm64 host (QEMU's machine `virt`, GICv3).
const MAX_VIRT_PCPUS: u32 = 512;

/// Memory a pCPU, where none is asked for, within the limits below.
const MIB_PER_PCPU: u64 = 192;
const LEAST_MIB: u64 = 2048;
const MOST_MIB: u64 = 8192;

/// Linux hands memory to nodes in sections of this size.
const SECTION_MIB: u64 = 128;

/// The least that a node can have, so that guests fit into it.
const LEAST_NODE_MIB: u64 = 256;

/// The machine that the emulator shows, and what is declared beside.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaMachine {
    /// Its architecture.
    pub arch: Arch,
    /// Sockets that the emulator shows.
    pub sockets: u32,
    /// Cores of a socket that the emulator shows.
    pub cores: u32,
    /// Threads of a core that the emulator shows.
    pub threads: u32,
    /// Nodes by id, at least one; ids count from 0.
    pub nodes: Vec<ShapeNode>,
    /// Distance from the first node of each pair to the second.
    pub distances: BTreeMap<(u32, u32), u32>,
    /// What the vmlab inside shall believe of sockets, cores, threads, caches.
    pub declared: Host,
    /// What is only declared or differs from the description, in plain words.
    pub not_shown: Vec<String>,
    /// How many times the described machine's memory is as large, where it is
    /// known.
    pub memory_factor: Option<f64>,
}

/// A node of the emulated machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeNode {
    /// Its pCPUs.
    pub pcpus: PcpuSet,
    /// Its memory.
    pub memory_mib: u64,
}

/// Error type for [`ReplicaMachine::of`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The description names no pCPUs.
    #[error("The description has no pCPU that is online: it can't be emulated")]
    NoPcpus,
    /// Another architecture.
    #[error("The described host is {0}: x86_64 and aarch64 hosts can be emulated")]
    Arch(String),
    /// Too many.
    #[error(
        "The described host has {pcpus} pCPUs; an emulated {arch} host of this shape can have {limit}"
    )]
    TooMany {
        /// pCPUs of the description.
        pcpus: u32,
        /// The architecture.
        arch: Arch,
        /// What fits.
        limit: u32,
    },
    /// Not enough memory for its nodes.
    #[error("{memory_mib} MiB are too little for {nodes} nodes: give it {least_mib} MiB or more")]
    Memory {
        /// What was asked for.
        memory_mib: u64,
        /// The nodes.
        nodes: usize,
        /// What would do.
        least_mib: u64,
    },
}

impl ReplicaMachine {
    /// The emulated machine for `host`, with `memory_mib` in all if given, under a QEMU
    /// that is [mended](guest::qemu::Qemu::is_mended) or not.
    ///
    /// # Errors
    /// [`ShapeError`] for what can't be emulated.
    pub fn of(host: &Host, memory_mib: Option<u64>, is_mended: bool) -> Result<Self, ShapeError> {
        let name = host.arch.clone().unwrap_or_else(|| "x86_64".to_owned());
        let arch = Arch::from_name(&name).ok_or(ShapeError::Arch(name))?;
        let mut not_shown = Vec::new();
        let host = renumbered(host, &mut not_shown);
        let pcpus = u32::try_from(host.pcpus.len()).unwrap_or(u32::MAX);
        if pcpus == 0 {
            return Err(ShapeError::NoPcpus);
        }
        let threads = shown_threads(&host, arch, is_mended);
        // Where second threads are numbered behind all first ones, these tell the rest.
        let (numbered, step) = match arch {
            Arch::X86_64 => (pcpus / threads, 1),
            Arch::Aarch64 => (pcpus, threads),
        };
        let sockets = numbered / block(&host, numbered, step);
        let cores = pcpus / sockets / threads;
        let too_many = |limit| ShapeError::TooMany { pcpus, arch, limit };
        // An APIC id has fields for core and thread, which are powers of two wide.
        let (core_ids, thread_ids) = (cores.next_power_of_two(), threads.next_power_of_two());
        let last_apic_id = ((sockets - 1) * core_ids + cores - 1) * thread_ids + threads - 1;
        match arch {
            Arch::X86_64 if last_apic_id > MAX_APIC_ID => {
                return Err(too_many(MAX_APIC_ID / (core_ids * thread_ids) * cores * threads));
            }
            Arch::Aarch64 if pcpus > MAX_VIRT_PCPUS => return Err(too_many(MAX_VIRT_PCPUS)),
            _ => {}
        }
        let (nodes, memory_factor) = nodes(&host, memory_mib)?;
        let distances = distances(&host.nodes);
        let mut shape = Self {
            arch,
            sockets,
            cores,
            threads,
            nodes,
            distances,
            declared: Host::default(),
            not_shown,
            memory_factor,
        };
        shape.declare(&host);
        Ok(shape)
    }

    /// Its pCPUs.
    #[must_use]
    pub fn pcpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// Its memory.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }

    /// QEMU's numbers of these pCPUs: it counts the threads of a core one after the other.
    #[must_use]
    pub fn qemu_numbers(&self, pcpus: &PcpuSet) -> PcpuSet {
        let cores = self.sockets * self.cores;
        let number = |pcpu: u32| match self.arch {
            Arch::X86_64 => pcpu % cores * self.threads + pcpu / cores,
            Arch::Aarch64 => pcpu,
        };
        pcpus.iter().map(number).collect()
    }

    fn declare(&mut self, host: &Host) {
        let sockets: BTreeSet<_> = host.pcpus.iter().map(|pcpu| pcpu.socket).collect();
        let sockets = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        if cores(host).len() * (self.threads as usize) < host.pcpus.len() {
            self.not_shown.push(
                "threads of a core: each is shown as a core of its own, and the vmlab inside is \
                 told which belong together"
                    .to_owned(),
            );
        }
        if sockets != self.sockets {
            self.not_shown.push(format!(
                "{} as described: the emulator shows {}, so that pCPUs keep their numbers, nodes \
                 and caches; the vmlab inside is told",
                plural(sockets, "socket"),
                plural(self.sockets, "socket")
            ));
        }
        if !host.caches.is_empty() {
            self.not_shown.push("caches: sizes and sharing are declared, not emulated".to_owned());
        }
        if host.pcpus.iter().any(|pcpu| pcpu.kind.is_some()) {
            self.not_shown.push("kinds of cores: all are emulated alike".to_owned());
        }
        self.not_shown.push(
            "speed: times are emulated time; no cache, thread or node is faster than another"
                .to_owned(),
        );
        self.declared = Host {
            hostname: host.hostname.clone(),
            arch: host.arch.clone(),
            cpu_model: host.cpu_model.clone(),
            pcpus: host.pcpus.clone(),
            caches: host.caches.clone(),
            virtualised: HostVirtualisation {
                is_vm: Some(true),
                emulator: Some("QEMU (TCG)".to_owned()),
                ..HostVirtualisation::default()
            },
            ..Host::default()
        };
    }
}

fn plural(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The machine with online pCPUs alone, numbered from 0, and with nodes from 0.
fn renumbered(host: &Host, said: &mut Vec<String>) -> Host {
    let mut host = host.clone();
    let offline = host.offline();
    if !offline.is_empty() {
        said.push(format!("pCPUs {offline}, which are offline there, are left out"));
    }
    host.pcpus.retain(|pcpu| pcpu.online);
    let new: BTreeMap<u32, u32> = host.pcpus.iter().map(|pcpu| pcpu.id).zip(0..).collect();
    if new.iter().any(|(old, new)| old != new) {
        let old: PcpuSet = new.keys().copied().collect();
        said.push(format!("pCPUs {old} there are 0 to {} here", new.len().saturating_sub(1)));
    }
    let mapped = |set: &PcpuSet| set.iter().filter_map(|id| new.get(&id).copied()).collect();
    for pcpu in &mut host.pcpus {
        pcpu.id = new[&pcpu.id];
    }
    for cache in &mut host.caches {
        cache.pcpus = mapped(&cache.pcpus);
    }
    host.caches.retain(|cache| !cache.pcpus.is_empty());
    let ids: BTreeMap<u32, u32> = host.nodes.iter().map(|node| node.id).zip(0..).collect();
    if ids.iter().any(|(old, new)| old != new) {
        said.push(format!("the nodes' ids count from 0 to {} here", ids.len() - 1));
    }
    for node in &mut host.nodes {
        node.id = ids[&node.id];
        node.pcpus = mapped(&node.pcpus);
        let distances = std::mem::take(&mut node.distances);
        node.distances =
            distances.iter().filter_map(|(to, far)| Some((*ids.get(to)?, *far))).collect();
    }
    for pcpu in &mut host.pcpus {
        pcpu.node = pcpu.node.and_then(|node| ids.get(&node).copied());
    }
    host
}

/// The pCPUs of each core; one whose core is not known is a core of its own.
fn cores(host: &Host) -> Vec<PcpuSet> {
    let mut cores: BTreeMap<_, PcpuSet> = BTreeMap::new();
    for pcpu in &host.pcpus {
        let alone = pcpu.core.is_none().then_some(pcpu.id);
        let place = (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core, alone);
        cores.entry(place).or_default().insert(pcpu.id);
    }
    cores.into_values().collect()
}

/// How many threads of a core can be shown, the same number of each: on arm64 where their
/// numbers follow each other, on x86-64 under a mended QEMU where those of the second
/// threads follow those of all first ones.
fn shown_threads(host: &Host, arch: Arch, is_mended: bool) -> u32 {
    let cores = cores(host);
    let size = cores.first().map_or(1, PcpuSet::len).max(1);
    let step = match arch {
        Arch::Aarch64 => 1,
        Arch::X86_64 if is_mended => cores.len(),
        Arch::X86_64 => return 1,
    };
    let node_of = |id: u32| host.nodes.iter().position(|node| node.pcpus.contains(id));
    let is_shown = |core: &PcpuSet| {
        let first = core.first().unwrap_or(0);
        let begins = match arch {
            Arch::Aarch64 => (first as usize).is_multiple_of(size),
            Arch::X86_64 => (first as usize) < cores.len(),
        };
        let numbers = (first..).step_by(step);
        begins
            && core.len() == size
            && core.iter().zip(numbers).all(|(id, number)| id == number)
            && core.iter().all(|id| node_of(id) == node_of(first))
    };
    if cores.iter().all(is_shown) { u32::try_from(size).unwrap_or(1) } else { 1 }
}

/// The largest number of pCPUs, a multiple of `step`, that divides the first `numbered`
/// ones into runs which lie in one node, one socket and under one last-level cache each.
fn block(host: &Host, numbered: u32, step: u32) -> u32 {
    let last_level = host.caches.iter().map(|cache| cache.level).max();
    let cache_of = |id: u32| {
        host.caches
            .iter()
            .position(|cache| Some(cache.level) == last_level && cache.pcpus.contains(id))
    };
    let node_of = |id: u32| host.nodes.iter().find(|node| node.pcpus.contains(id)).map(|n| n.id);
    let pcpus = host.pcpus.iter().take(numbered as usize);
    let places: Vec<_> =
        pcpus.map(|pcpu| (node_of(pcpu.id), pcpu.socket, cache_of(pcpu.id))).collect();
    let fits = |size: usize| {
        places.len().is_multiple_of(size)
            && places.chunks(size).all(|run| run.iter().all(|place| *place == run[0]))
    };
    let sizes = (1..=places.len()).rev().filter(|size| size.is_multiple_of(step as usize));
    sizes.into_iter().find(|size| fits(*size)).map_or(step, |size| size as u32)
}

/// The nodes with their share of the memory, and how much it was scaled down.
fn nodes(host: &Host, asked_mib: Option<u64>) -> Result<(Vec<ShapeNode>, Option<f64>), ShapeError> {
    let all: PcpuSet = host.pcpus.iter().map(|pcpu| pcpu.id).collect();
    let mut nodes: Vec<(PcpuSet, Option<u64>)> =
        host.nodes.iter().map(|node| (node.pcpus.clone(), node.memory_bytes)).collect();
    if nodes.is_empty() {
        nodes.push((all.clone(), host.memory_bytes));
    }
    let placed: PcpuSet = nodes.iter().flat_map(|(pcpus, _)| pcpus.iter()).collect();
    let left = all.iter().filter(|id| !placed.contains(*id));
    nodes[0].0 = nodes[0].0.iter().chain(left).collect();
    let described: Option<u64> = nodes.iter().map(|(_, bytes)| *bytes).sum();
    let described = described.filter(|bytes| *bytes > 0);
    let default_mib = (all.len() as u64 * MIB_PER_PCPU).clamp(LEAST_MIB, MOST_MIB);
    let total_mib = asked_mib.unwrap_or(default_mib);
    let least_mib = LEAST_NODE_MIB * nodes.len() as u64;
    if total_mib < least_mib {
        let nodes = nodes.len();
        return Err(ShapeError::Memory { memory_mib: total_mib, nodes, least_mib });
    }
    let count = nodes.len() as f64;
    let shared: Vec<ShapeNode> = nodes
        .into_iter()
        .map(|(pcpus, bytes)| {
            let share = match (described, bytes) {
                (Some(all), Some(bytes)) => bytes as f64 / all as f64,
                _ => 1.0 / count,
            };
            let sections = (total_mib as f64 * share / SECTION_MIB as f64).round() as u64;
            ShapeNode { pcpus, memory_mib: (sections * SECTION_MIB).max(LEAST_NODE_MIB) }
        })
        .collect();
    let given: u64 = shared.iter().map(|node| node.memory_mib << 20).sum();
    Ok((shared, described.map(|bytes| bytes as f64 / given as f64)))
}

/// Every distance between two nodes; QEMU wants all of them or none.
fn distances(nodes: &[Node]) -> BTreeMap<(u32, u32), u32> {
    let mut all = BTreeMap::new();
    for from in nodes {
        for to in nodes {
            let Some(far) = from.distances.get(&to.id) else { return BTreeMap::new() };
            all.insert((from.id, to.id), *far);
        }
    }
    all
}
