//! A host as the planner sees it: cores in caches in nodes, and who may use
//! them.

use topology::{CoreKind, Host, PcpuGroup, PcpuSet, TopologyLevel};

use super::PlanRules;
use super::memory::NodeMemory;

/// Cores by index, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreSet(Vec<u64>);

impl CoreSet {
    pub(crate) fn empty(cores: usize) -> Self {
        Self(vec![0; cores.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    pub(crate) fn remove(&mut self, core: usize) {
        self.0[core / 64] &= !(1 << (core % 64));
    }

    pub(crate) fn contains(&self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 == 1
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// How many cores are in all three sets.
    pub(crate) fn common(&self, b: &Self, c: &Self) -> u32 {
        let words = self.0.iter().zip(&b.0).zip(&c.0);
        words.map(|((a, b), c)| (a & b & c).count_ones()).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

/// Why a core carries no VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreReservation {
    /// Left to the host.
    Host,
    /// Somebody else's.
    Taken,
}

/// One core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    /// Its threads that may be used, ascending.
    pub(crate) threads: Vec<u32>,
    pub(crate) node: usize,
    pub(crate) cache: usize,
    /// Cores of one cluster have the same number.
    pub(crate) cluster: usize,
    pub(crate) kind: Option<CoreKind>,
    pub(crate) held: Option<CoreReservation>,
}

/// pCPUs around one memory node, or the whole host where it has no nodes.
#[derive(Clone, Debug)]
pub(crate) struct LayoutNode {
    /// Linux's number; 0 where the kernel shows no nodes.
    pub(crate) id: u32,
    pub(crate) cores: CoreSet,
    /// Its last-level caches, by index.
    pub(crate) caches: Vec<usize>,
    /// Where its memory is, as an index into the memories.
    pub(crate) memory: usize,
}

/// Cores that VMs are tried on together, best first.
#[derive(Clone, Debug)]
pub(crate) struct CoreTier {
    /// What to say when a VM lands here; `None` for the usual cores.
    pub(crate) note: Option<&'static str>,
    /// The cores that have at least 1, 2, 3... threads, by that number less 1.
    pub(crate) by_threads: Vec<CoreSet>,
}

/// A host prepared for planning. What changes while VMs are placed is
/// [`super::free::FreeResources`].
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) cores: Vec<Core>,
    pub(crate) nodes: Vec<LayoutNode>,
    pub(crate) caches: Vec<CoreSet>,
    /// Distances between nodes, by index.
    pub(crate) distances: Vec<Vec<u32>>,
    pub(crate) memories: Vec<NodeMemory>,
    pub(crate) tiers: Vec<CoreTier>,
    /// Cores that VMs may have.
    pub(crate) usable: CoreSet,
    /// Of those, the cores among which Linux moves threads.
    pub(crate) balanced: CoreSet,
    /// The most threads that a usable core has.
    pub(crate) most_threads: u32,
    /// Whether Linux numbers nodes here.
    pub(crate) has_nodes: bool,
    pub(crate) is_arm: bool,
    pub(crate) left_to_host: PcpuSet,
    pub(crate) offline: PcpuSet,
    pub(crate) warnings: Vec<String>,
}

/// Cost to reach another node where the kernel does not say.
const UNKNOWN_DISTANCE: u32 = 20;
const LOCAL_DISTANCE: u32 = 10;

impl Layout {
    pub(crate) fn new(host: &Host, rules: &PlanRules) -> Self {
        let mut layout = Self {
            cores: Vec::new(),
            nodes: Vec::new(),
            caches: Vec::new(),
            distances: Vec::new(),
            memories: Vec::new(),
            tiers: Vec::new(),
            most_threads: 0,
            usable: CoreSet::default(),
            balanced: CoreSet::default(),
            has_nodes: !host.nodes.is_empty(),
            is_arm: host.arch.as_deref() == Some("aarch64"),
            left_to_host: PcpuSet::new(),
            offline: host.offline(),
            warnings: Vec::new(),
        };
        let mut walk = Walk { host, node_ids: Vec::new(), caches: 0, clusters: 0, cores: vec![] };
        for socket in host.nesting() {
            walk.group(&socket, 0, None);
        }
        let Walk { node_ids, caches, cores, .. } = walk;
        layout.cores = cores;
        layout.hold(host, rules);
        layout.caches = vec![CoreSet::empty(layout.cores.len()); caches];
        layout.usable = CoreSet::empty(layout.cores.len());
        for (at, core) in layout.cores.iter().enumerate() {
            layout.caches[core.cache].insert(at);
            if core.held.is_none() {
                layout.usable.insert(at);
            }
        }
        let (memories, memory_of) = super::memory::memories(host, &node_ids, &mut layout.warnings);
        layout.memories = memories;
        for (at, id) in node_ids.iter().enumerate() {
            let mut cores = CoreSet::empty(layout.cores.len());
            let mut caches = Vec::new();
            for (index, core) in layout.cores.iter().enumerate().filter(|(_, core)| core.node == at)
            {
                cores.insert(index);
                if caches.last() != Some(&core.cache) {
                    caches.push(core.cache);
                }
            }
            caches.dedup();
            layout.nodes.push(LayoutNode { id: *id, cores, caches, memory: memory_of[at] });
            layout
                .distances
                .push(node_ids.iter().map(|other| distance(host, *id, *other)).collect());
        }
        let threads = layout.usable.iter().map(|core| layout.cores[core].threads.len());
        layout.most_threads = threads.max().unwrap_or(0) as u32;
        layout.tiers = layout.tiers(host);
        layout.balanced = CoreSet::empty(layout.cores.len());
        for core in layout.usable.iter() {
            let isolated = host.isolated.as_ref();
            let stays = |thread: &u32| isolated.is_some_and(|all| all.contains(*thread));
            if !layout.cores[core].threads.iter().any(stays) {
                layout.balanced.insert(core);
            }
        }
        layout
    }

    /// Decides which cores are not for VMs.
    fn hold(&mut self, host: &Host, rules: &PlanRules) {
        let first = self.cores.iter().flat_map(|core| core.threads.iter().copied()).min();
        let leave = match &rules.leave {
            Some(leave) => leave.clone(),
            None => first.into_iter().collect(),
        };
        let leave = leave.union(&rules.irq_heavy);
        for core in &mut self.cores {
            let is_in = |set: &PcpuSet| core.threads.iter().any(|thread| set.contains(*thread));
            if is_in(&leave) {
                core.held = Some(CoreReservation::Host);
                self.left_to_host.extend(core.threads.iter().copied());
            } else if is_in(&rules.taken) {
                core.held = Some(CoreReservation::Taken);
            }
        }
        let online = host.online();
        for (what, set) in [("left to the host", &leave), ("taken", &rules.taken)] {
            let missing = set.difference(&online);
            if !missing.is_empty() {
                self.warnings.push(format!(
                    "pCPUs {missing} shall be {what}, but are not online on this host"
                ));
            }
        }
    }

    /// The usable cores in the order in which VMs should get them: isolated
    /// ones before others, one kind of core before a mix.
    fn tiers(&self, host: &Host) -> Vec<CoreTier> {
        let isolated = host.isolated.clone().unwrap_or_default();
        let is_isolated =
            |core: &Core| core.threads.iter().all(|thread| isolated.contains(*thread));
        let any_isolated = self.usable.iter().any(|core| is_isolated(&self.cores[core]));
        let mut kinds: Vec<Option<CoreKind>> =
            self.usable.iter().map(|core| self.cores[core].kind).collect();
        // Performance cores first; cores of unknown kind last.
        kinds.sort_by_key(|kind| (kind.is_none(), *kind));
        kinds.dedup();
        let mut tiers: Vec<CoreTier> = Vec::new();
        for only_isolated in [true, false] {
            if only_isolated && !any_isolated {
                continue;
            }
            for kind in &kinds {
                let note = match (kind, any_isolated && !only_isolated) {
                    (_, true) => Some("also cores that are not isolated: the isolated are too few"),
                    (Some(CoreKind::Efficiency), _) if kinds.len() > 1 => {
                        Some("efficiency cores: the performance cores are too few")
                    }
                    (Some(CoreKind::LowPower), _) if kinds.len() > 1 => {
                        Some("low-power cores: the others are too few")
                    }
                    _ => None,
                };
                tiers.push(self.tier(note, |core| {
                    core.kind == *kind && (!only_isolated || is_isolated(core))
                }));
            }
        }
        if kinds.len() > 1 {
            let note = "mixes kinds of cores: no kind alone has enough; the guest's scheduler \
                        takes them for equal";
            tiers.push(self.tier(Some(note), |_| true));
        }
        tiers
    }

    fn tier(&self, note: Option<&'static str>, holds: impl Fn(&Core) -> bool) -> CoreTier {
        let most = self.cores.iter().map(|core| core.threads.len()).max().unwrap_or(0);
        let by_threads = (1..=most)
            .map(|threads| {
                let mut set = CoreSet::empty(self.cores.len());
                for core in self.usable.iter() {
                    if self.cores[core].threads.len() >= threads && holds(&self.cores[core]) {
                        set.insert(core);
                    }
                }
                set
            })
            .collect();
        CoreTier { note, by_threads }
    }

    /// pCPUs of cores.
    pub(crate) fn pcpus<'a>(&'a self, cores: &'a CoreSet) -> impl Iterator<Item = u32> + 'a {
        cores.iter().flat_map(|core| self.cores[core].threads.iter().copied())
    }

    /// The pCPUs of a node over which vCPUs may float.
    pub(crate) fn pool(&self, node: usize) -> PcpuSet {
        self.pcpus(&self.balanced.intersection(&self.nodes[node].cores)).collect()
    }

    /// The memory node that a node's memory comes from, under Linux's number.
    pub(crate) fn memory_id(&self, node: usize) -> u32 {
        self.memories[self.nodes[node].memory].id
    }
}

fn distance(host: &Host, from: u32, to: u32) -> u32 {
    if from == to {
        return LOCAL_DISTANCE;
    }
    let known = host.node(from).and_then(|node| node.distances.get(&to));
    known.copied().unwrap_or(UNKNOWN_DISTANCE)
}

/// Collects cores on the way through the nesting.
struct Walk<'a> {
    host: &'a Host,
    node_ids: Vec<u32>,
    caches: usize,
    clusters: usize,
    cores: Vec<Core>,
}

impl Walk<'_> {
    fn group(&mut self, group: &PcpuGroup, node: usize, cache: Option<usize>) {
        let (mut node, mut cache) = (node, cache);
        match group.level {
            // Nodes may reach into several sockets.
            TopologyLevel::Node => node = self.node(group.id.unwrap_or_default()),
            TopologyLevel::Cache(_) => cache = Some(self.new_cache()),
            TopologyLevel::Cluster => self.clusters += 1,
            TopologyLevel::Socket | TopologyLevel::Die => {}
            TopologyLevel::Core => {
                self.core(group, node, cache.unwrap_or_default());
                return;
            }
        }
        if self.host.nodes.is_empty() {
            node = self.node(0);
        }
        let has = |level| group.children.iter().any(|child| child.level == level);
        let clusters = has(TopologyLevel::Cluster);
        if cache.is_none() && (clusters || has(TopologyLevel::Core)) {
            // Cores that share no cache that is known count as near each other.
            cache = Some(self.new_cache());
        }
        for child in &group.children {
            if child.level == TopologyLevel::Core && clusters {
                self.clusters += 1;
            }
            self.group(child, node, cache);
        }
    }

    fn node(&mut self, id: u32) -> usize {
        self.node_ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.node_ids.push(id);
            self.node_ids.len() - 1
        })
    }

    fn new_cache(&mut self) -> usize {
        self.caches += 1;
        self.caches - 1
    }

    fn core(&mut self, group: &PcpuGroup, node: usize, cache: usize) {
        let allowed = |pcpu: &u32| self.host.allowed.as_ref().is_none_or(|all| all.contains(*pcpu));
        let threads: Vec<u32> = group.pcpus.iter().filter(allowed).collect();
        let Some(first) = threads.first() else {
            return;
        };
        let kind = self.host.pcpu(*first).and_then(|pcpu| pcpu.kind);
        let cluster = self.clusters;
        self.cores.push(Core { threads, node, cache, cluster, kind, held: None });
    }
}
