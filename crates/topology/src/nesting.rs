//! How the pCPUs of a host lie inside each other.

use std::collections::BTreeMap;

use crate::{Cache, CacheKind, Host, Pcpu, PcpuSet};

/// One level of nesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyLevel {
    /// Socket (package).
    Socket,
    /// Memory node.
    Node,
    /// Die.
    Die,
    /// The pCPUs below one last-level cache; holds the cache's level.
    Cache(u32),
    /// Cluster.
    Cluster,
    /// Core; its pCPUs are its threads.
    Core,
}

/// pCPUs that belong together, and how they fall apart further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcpuGroup {
    /// What it is.
    pub level: TopologyLevel,
    /// The kernel's number for it; `None` where it has none.
    pub id: Option<u32>,
    /// Its online pCPUs.
    pub pcpus: PcpuSet,
    /// What lies inside; empty for a core.
    pub children: Vec<PcpuGroup>,
}

impl PcpuGroup {
    /// The cores inside, in order.
    pub fn cores(&self) -> Vec<&PcpuGroup> {
        if self.level == TopologyLevel::Core {
            return vec![self];
        }
        self.children.iter().flat_map(PcpuGroup::cores).collect()
    }
}

impl Host {
    /// The online pCPUs as sockets, in them nodes, dies, last-level caches and
    /// clusters, in them cores.
    ///
    /// Levels that say nothing are left out: nodes where the kernel shows
    /// none, dies and clusters that do not divide their parent, clusters of one
    /// core each, a last-level cache of one core. A node that reaches into
    /// several sockets appears in each. Sockets and nodes are ordered by id,
    /// the rest by lowest pCPU.
    pub fn nesting(&self) -> Vec<PcpuGroup> {
        let online: Vec<&Pcpu> = self.pcpus.iter().filter(|pcpu| pcpu.online).collect();
        let last_level = self.last_level();
        split(&online, |pcpu| pcpu.socket)
            .into_iter()
            .map(|(socket, members)| PcpuGroup {
                level: TopologyLevel::Socket,
                id: socket,
                pcpus: set(&members),
                children: self.nodes_in(&members, last_level),
            })
            .collect()
    }

    /// The cache of the level at which caches are shared widest, around a pCPU.
    pub fn last_level_cache(&self, pcpu: u32) -> Option<&Cache> {
        let level = self.last_level()?;
        self.caches.iter().find(|cache| {
            cache.level == level
                && cache.kind != CacheKind::Instruction
                && cache.pcpus.contains(pcpu)
        })
    }

    /// The highest cache level.
    fn last_level(&self) -> Option<u32> {
        self.caches.iter().map(|cache| cache.level).max()
    }

    fn nodes_in(&self, members: &[&Pcpu], last_level: Option<u32>) -> Vec<PcpuGroup> {
        if self.nodes.is_empty() {
            return self.dies_in(members, last_level);
        }
        split(members, |pcpu| pcpu.node)
            .into_iter()
            .map(|(node, members)| PcpuGroup {
                level: TopologyLevel::Node,
                id: node,
                pcpus: set(&members),
                children: self.dies_in(&members, last_level),
            })
            .collect()
    }

    fn dies_in(&self, members: &[&Pcpu], last_level: Option<u32>) -> Vec<PcpuGroup> {
        let dies = by_lowest(split(members, |pcpu| pcpu.die));
        if dies.len() < 2 {
            return self.caches_in(members, last_level);
        }
        dies.into_iter()
            .map(|(die, members)| PcpuGroup {
                level: TopologyLevel::Die,
                id: die,
                pcpus: set(&members),
                children: self.caches_in(&members, last_level),
            })
            .collect()
    }

    fn caches_in(&self, members: &[&Pcpu], last_level: Option<u32>) -> Vec<PcpuGroup> {
        let Some(level) = last_level else {
            return clusters_in(members);
        };
        // A cache is named by its lowest pCPU.
        let mut around: BTreeMap<u32, u32> = BTreeMap::new();
        for cache in &self.caches {
            if cache.level == level && cache.kind != CacheKind::Instruction {
                let first = cache.pcpus.first().unwrap_or_default();
                around.extend(cache.pcpus.iter().map(|pcpu| (pcpu, first)));
            }
        }
        let groups = by_lowest(split(members, |pcpu| around.get(&pcpu.id).copied()));
        let shared =
            groups.iter().any(|(cache, members)| cache.is_some() && cores_in(members).len() > 1);
        if !shared && level < 3 {
            return clusters_in(members);
        }
        let mut children = Vec::new();
        for (cache, members) in groups {
            let inside = clusters_in(&members);
            if cache.is_none() {
                // Cores without that cache stand beside it.
                children.extend(inside);
            } else {
                children.push(PcpuGroup {
                    level: TopologyLevel::Cache(level),
                    id: None,
                    pcpus: set(&members),
                    children: inside,
                });
            }
        }
        children
    }
}

fn clusters_in(members: &[&Pcpu]) -> Vec<PcpuGroup> {
    let clusters = by_lowest(split(members, |pcpu| pcpu.cluster));
    let says_something =
        clusters.len() > 1 && clusters.iter().any(|(_, members)| cores_in(members).len() > 1);
    if !says_something {
        return cores_in(members);
    }
    let mut children = Vec::new();
    for (cluster, members) in clusters {
        let cores = cores_in(&members);
        // Intel gives every big core a cluster of its own.
        if cluster.is_none() || cores.len() == 1 {
            children.extend(cores);
        } else {
            children.push(PcpuGroup {
                level: TopologyLevel::Cluster,
                id: cluster,
                pcpus: set(&members),
                children: cores,
            });
        }
    }
    children
}

/// The cores; a pCPU whose core is unknown stands for itself.
fn cores_in(members: &[&Pcpu]) -> Vec<PcpuGroup> {
    let mut cores: BTreeMap<_, Vec<&Pcpu>> = BTreeMap::new();
    for pcpu in members {
        let alone = pcpu.core.is_none().then_some(pcpu.id);
        cores.entry((pcpu.die, pcpu.cluster, pcpu.core, alone)).or_default().push(pcpu);
    }
    let mut cores: Vec<PcpuGroup> = cores
        .into_iter()
        .map(|((_, _, core, _), members)| PcpuGroup {
            level: TopologyLevel::Core,
            id: core,
            pcpus: set(&members),
            children: Vec::new(),
        })
        .collect();
    cores.sort_by_key(|core| core.pcpus.first());
    cores
}

type Members<'a> = Vec<(Option<u32>, Vec<&'a Pcpu>)>;

/// Falls apart by a key; those without one come last.
fn split<'a>(members: &[&'a Pcpu], key: impl Fn(&Pcpu) -> Option<u32>) -> Members<'a> {
    let mut groups: BTreeMap<(bool, Option<u32>), Vec<&Pcpu>> = BTreeMap::new();
    for pcpu in members {
        let key = key(pcpu);
        groups.entry((key.is_none(), key)).or_default().push(pcpu);
    }
    groups.into_iter().map(|((_, key), members)| (key, members)).collect()
}

fn by_lowest(mut groups: Members) -> Members {
    groups.sort_by_key(|(_, members)| members.first().map(|pcpu| pcpu.id));
    groups
}

fn set(members: &[&Pcpu]) -> PcpuSet {
    members.iter().map(|pcpu| pcpu.id).collect()
}
