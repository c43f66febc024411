//! The best cores and memory for one VM on one host.
//!
//! The search is exact where hosts are as machines are: every set of as few
//! nodes as possible is tried, the cores are shared among its nodes as evenly
//! as their room allows, and in each node every set of as few last-level
//! caches as possible is tried. Cores of one cache are alike but for their
//! cluster. Beyond 20 000 sets of nodes or of caches (no machine of today) the
//! fullest are taken.

use super::free::FreeResources;
use super::layout::{CoreSet, Layout};
use super::score::Score;
use super::spread::{in_proportion, subsets, water_fill};
use super::wish::{ThreadsPerCore, VmWish};

/// What one VM gets of one node.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) node: usize,
    /// Its cores by last-level cache; empty where cores are shared.
    pub(crate) cores: Vec<Vec<usize>>,
    pub(crate) vcpus: u32,
    /// Units of memory.
    pub(crate) units: u64,
}

/// Where one VM goes.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Threads of each guest core.
    pub(crate) threads: u32,
    /// By ascending node.
    pub(crate) shares: Vec<Share>,
    /// Cores for its other threads.
    pub(crate) io: Vec<usize>,
    pub(crate) note: Option<&'static str>,
    /// Another place would be better for it alone, but not for all VMs.
    pub(crate) yields: bool,
    pub(crate) score: Score,
}

/// The numbers of threads a guest core may have where cores have `most`, best
/// first. Processors have 1, 2, 4 or 8 threads a core; so shall guests, unless
/// somebody asks for another number.
pub(crate) fn thread_counts(most: u32, wish: &VmWish) -> impl Iterator<Item = u32> {
    let tried = match wish.threads_per_core {
        ThreadsPerCore::Exactly(threads) => [threads, 0, 0, 0],
        ThreadsPerCore::Auto => [8, 4, 2, 1],
    };
    let vcpus = wish.vcpus;
    tried
        .into_iter()
        .filter(move |threads| *threads > 0 && *threads <= most && vcpus.is_multiple_of(*threads))
}

/// The best place for a VM that has its cores to itself; `None` if there is
/// none.
pub(crate) fn choose(layout: &Layout, free: &FreeResources, wish: &VmWish) -> Option<Choice> {
    for (rank, tier) in layout.tiers.iter().enumerate() {
        for threads in thread_counts(layout.most_threads, wish) {
            let Some(eligible) = tier.by_threads.get(threads as usize - 1) else {
                continue;
            };
            let search = CoreSearch { layout, free, wish, threads, eligible };
            if let Some((mut score, shares, io)) = search.best() {
                score.tier = rank as u32;
                return Some(Choice { threads, shares, io, note: tier.note, yields: false, score });
            }
        }
    }
    None
}

/// The best place for a VM that shares its cores with others: vCPUs float over
/// their node.
pub(crate) fn choose_floating(
    layout: &Layout,
    free: &FreeResources,
    wish: &VmWish,
    ratio: f64,
) -> Option<Choice> {
    let room: Vec<u32> = (0..layout.nodes.len())
        .map(|node| {
            let pcpus = layout.pool(node).len();
            ((pcpus as f64 * ratio) as u32).saturating_sub(free.floating[node])
        })
        .collect();
    let splits = Splits::new(layout, free, wish, &room, wish.vcpus, 0);
    let best = splits.all().into_iter().min_by_key(|split| {
        let left: u32 = split.parts.iter().map(|part| room[part.node] - part.amount).sum();
        (split.score, left)
    })?;
    let mut shares: Vec<Share> = best
        .parts
        .iter()
        .map(|part| Share {
            node: part.node,
            cores: Vec::new(),
            vcpus: part.amount,
            units: part.units,
        })
        .collect();
    shares.sort_by_key(|share| share.node);
    Some(Choice {
        threads: 1,
        shares,
        io: Vec::new(),
        note: None,
        yields: false,
        score: best.score,
    })
}

/// One way to share a VM among nodes.
struct Split {
    parts: Vec<Part>,
    /// Filled as far as nodes decide it.
    score: Score,
    /// The node that holds the cores for its other threads.
    io_node: Option<usize>,
}

struct Part {
    node: usize,
    /// Cores, or vCPUs where they float.
    amount: u32,
    units: u64,
}

/// Finds ways to share a VM among as few nodes as possible.
struct Splits<'a> {
    layout: &'a Layout,
    room: &'a [u32],
    /// Units of memory that each node can give, and how many of them are
    /// reserved huge pages.
    units: Vec<u64>,
    reserved: Vec<u64>,
    is_huge: bool,
    amount: u32,
    wanted: u64,
    /// Amount that has to be in one of the nodes besides.
    io: u32,
}

impl<'a> Splits<'a> {
    fn new(
        layout: &'a Layout,
        free: &FreeResources,
        wish: &VmWish,
        room: &'a [u32],
        amount: u32,
        io: u32,
    ) -> Self {
        let unit = wish.unit();
        let memories = || (0..layout.nodes.len()).map(|node| free.memory(layout, node));
        Self {
            layout,
            room,
            units: memories().map(|memory| memory.units(unit)).collect(),
            reserved: memories().map(|memory| memory.reserved(unit)).collect(),
            is_huge: unit.is_huge,
            amount,
            wanted: wish.units(),
            io,
        }
    }

    fn all(&self) -> Vec<Split> {
        let mut nodes: Vec<usize> = (0..self.room.len())
            .filter(|node| self.room[*node] > 0 && self.units[*node] > 0)
            .collect();
        // Should there be too many sets to try, the first is the best bet.
        if nodes.len() > 14 {
            nodes.sort_by_key(|node| (std::cmp::Reverse(self.room[*node]), *node));
        }
        let most = nodes.len().min(self.amount as usize);
        for count in 1..=most {
            let mut found = Vec::new();
            for set in subsets(&nodes, count) {
                self.among(&set, &mut found);
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn among(&self, nodes: &[usize], found: &mut Vec<Split>) {
        let room: Vec<u32> = nodes.iter().map(|node| self.room[*node]).collect();
        let total: u64 = room.iter().map(|room| u64::from(*room)).sum();
        if total < u64::from(self.amount + self.io) {
            return;
        }
        let units: Vec<u64> = nodes.iter().map(|node| self.units_among(*node, nodes)).collect();
        if units.iter().sum::<u64>() < self.wanted {
            return;
        }
        let mut distance = 0;
        for (at, node) in nodes.iter().enumerate() {
            distance += nodes[at + 1..]
                .iter()
                .map(|other| self.layout.distances[*node][*other])
                .sum::<u32>();
        }
        let with_io = if self.io == 0 { 1 } else { nodes.len() };
        for io_at in 0..with_io {
            let mut room = room.clone();
            if self.io > 0 {
                let Some(rest) = room[io_at].checked_sub(self.io) else {
                    continue;
                };
                room[io_at] = rest;
            }
            let Some(fill) = water_fill(&room, self.amount) else {
                continue;
            };
            for extra in subsets(&fill.open, fill.extra) {
                let mut amounts = fill.base.clone();
                for at in extra {
                    amounts[at] += 1;
                }
                if amounts.contains(&0) {
                    continue;
                }
                let Some((shares, moved)) = in_proportion(&units, &amounts, self.wanted) else {
                    continue;
                };
                let biggest = amounts.iter().max().copied().unwrap_or(0);
                let smallest = amounts.iter().min().copied().unwrap_or(0);
                let score = Score {
                    extra_nodes: nodes.len() as u32 - 1,
                    distance,
                    node_unevenness: biggest - smallest,
                    memory_uneven: u32::from(moved),
                    pages_to_reserve: if self.is_huge {
                        self.to_reserve(nodes, &shares)
                    } else {
                        0
                    },
                    ..Score::default()
                };
                let parts = nodes
                    .iter()
                    .zip(amounts.iter().zip(&shares))
                    .map(|(node, (amount, units))| Part {
                        node: *node,
                        amount: *amount,
                        units: *units,
                    })
                    .collect();
                let io_node = (self.io > 0).then(|| nodes[io_at]);
                found.push(Split { parts, score, io_node });
            }
        }
    }

    /// Units for one of these nodes: nodes may get theirs from one memory.
    fn units_among(&self, node: usize, nodes: &[usize]) -> u64 {
        let memory = |node: usize| self.layout.nodes[node].memory;
        let sharing = nodes.iter().filter(|other| memory(**other) == memory(node)).count();
        self.units[node] / sharing as u64
    }

    fn to_reserve(&self, nodes: &[usize], shares: &[u64]) -> u64 {
        let missing = nodes
            .iter()
            .zip(shares)
            .map(|(node, share)| share.saturating_sub(self.reserved[*node]));
        missing.sum()
    }
}

struct CoreSearch<'a> {
    layout: &'a Layout,
    free: &'a FreeResources,
    wish: &'a VmWish,
    threads: u32,
    eligible: &'a CoreSet,
}

/// How the cores of one node are shared among its caches.
#[derive(Clone, Debug)]
struct CacheDivision {
    /// Cache and number of cores.
    counts: Vec<(usize, u32)>,
    unevenness: u32,
    broken: u32,
    leftover: u32,
}

impl CoreSearch<'_> {
    fn best(&self) -> Option<(Score, Vec<Share>, Vec<usize>)> {
        let need = self.wish.vcpus / self.threads;
        let room: Vec<u32> = self
            .layout
            .nodes
            .iter()
            .map(|node| self.free.cores.common(self.eligible, &node.cores))
            .collect();
        let splits =
            Splits::new(self.layout, self.free, self.wish, &room, need, self.wish.io_cores);
        let mut best: Option<(Score, Split, Vec<CacheDivision>)> = None;
        for split in splits.all() {
            // What caches add can't make up for worse nodes.
            if best.as_ref().is_some_and(|(score, ..)| *score < split.score) {
                continue;
            }
            let Some((score, insides)) = self.score(&split) else {
                continue;
            };
            if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                best = Some((score, split, insides));
            }
        }
        let (score, split, insides) = best?;
        let mut shares = Vec::new();
        let mut left = self.free.cores.intersection(self.eligible);
        for (part, inside) in split.parts.iter().zip(&insides) {
            let mut cores = Vec::new();
            for (cache, count) in &inside.counts {
                let picked = self.pick(&left, *cache, *count);
                for core in &picked {
                    left.remove(*core);
                }
                cores.push(picked);
            }
            let vcpus = part.amount * self.threads;
            shares.push(Share { node: part.node, cores, vcpus, units: part.units });
        }
        shares.sort_by_key(|share| share.node);
        let io = split.io_node.map_or_else(Vec::new, |node| self.pick_io(&left, node, &shares));
        Some((score, shares, io))
    }

    fn score(&self, split: &Split) -> Option<(Score, Vec<CacheDivision>)> {
        let mut score = split.score;
        let mut caches = 0;
        let mut insides = Vec::new();
        for part in &split.parts {
            let node = &self.layout.nodes[part.node];
            let inside = self.fill(part.node, part.amount)?;
            caches += inside.counts.len() as u32;
            score.cache_unevenness += inside.unevenness;
            score.caches_broken += inside.broken;
            score.cache_leftover += inside.leftover;
            let (free, usable) = self.free_of(&node.cores);
            let left = free - part.amount;
            score.nodes_broken += u32::from(free == usable && left > 0);
            score.node_leftover += left;
            insides.push(inside);
        }
        score.extra_caches = caches - 1;
        Some((score, insides))
    }

    /// Free and usable cores among some.
    fn free_of(&self, cores: &CoreSet) -> (u32, u32) {
        let usable = &self.layout.usable;
        (self.free.cores.common(usable, cores), usable.common(usable, cores))
    }

    /// The fewest caches of a node for so many cores, and how many in each.
    fn fill(&self, node: usize, amount: u32) -> Option<CacheDivision> {
        let of_node = &self.layout.nodes[node];
        let mut room: Vec<(usize, u32)> = of_node
            .caches
            .iter()
            .map(|cache| {
                (*cache, self.free.cores.common(self.eligible, &self.layout.caches[*cache]))
            })
            .filter(|(_, room)| *room > 0)
            .collect();
        // The fullest first: the fewest caches, and the best bet if there are
        // too many sets to try.
        room.sort_by_key(|(cache, room)| (std::cmp::Reverse(*room), *cache));
        let mut held = 0;
        let fewest = 1 + room.iter().position(|(_, room)| {
            held += room;
            held >= amount
        })?;
        let places: Vec<usize> = (0..room.len()).collect();
        let mut best: Option<CacheDivision> = None;
        for set in subsets(&places, fewest) {
            let chosen: Vec<(usize, u32)> = set.iter().map(|at| room[*at]).collect();
            let Some(inside) = self.inside(&chosen, amount) else {
                continue;
            };
            let key = |inside: &CacheDivision| {
                let caches: Vec<usize> = inside.counts.iter().map(|(cache, _)| *cache).collect();
                (inside.unevenness, inside.broken, inside.leftover, caches)
            };
            if best.as_ref().is_none_or(|best| key(&inside) < key(best)) {
                best = Some(inside);
            }
        }
        best
    }

    /// Shares cores among these caches, all of them used.
    fn inside(&self, caches: &[(usize, u32)], amount: u32) -> Option<CacheDivision> {
        let room: Vec<u32> = caches.iter().map(|(_, room)| *room).collect();
        let fill = water_fill(&room, amount)?;
        let mut counts = fill.base;
        // One more where that leaves nothing over, to keep others whole.
        let mut open = fill.open;
        open.sort_by_key(|at| {
            let (free, usable) = self.free_of(&self.layout.caches[caches[*at].0]);
            (free != counts[*at] + 1 || free != usable, *at)
        });
        for at in open.into_iter().take(fill.extra) {
            counts[at] += 1;
        }
        let (mut broken, mut leftover) = (0, 0);
        for ((cache, _), count) in caches.iter().zip(&counts) {
            let (free, usable) = self.free_of(&self.layout.caches[*cache]);
            broken += u32::from(free == usable && free > *count);
            leftover += free - count;
        }
        let unevenness = counts.iter().max()? - counts.iter().min()?;
        let mut counts: Vec<(usize, u32)> =
            caches.iter().map(|(cache, _)| *cache).zip(counts).collect();
        counts.sort_unstable();
        Some(CacheDivision { counts, unevenness, broken, leftover })
    }

    /// So many cores of one cache, from as few clusters as that allows.
    fn pick(&self, left: &CoreSet, cache: usize, count: u32) -> Vec<usize> {
        let mut clusters: Vec<(usize, Vec<usize>)> = Vec::new();
        for core in left.intersection(&self.layout.caches[cache]).iter() {
            let cluster = self.layout.cores[core].cluster;
            match clusters.iter_mut().find(|(known, _)| *known == cluster) {
                Some((_, cores)) => cores.push(core),
                None => clusters.push((cluster, vec![core])),
            }
        }
        let mut picked: Vec<usize> = Vec::new();
        let count = count as usize;
        while picked.len() < count && !clusters.is_empty() {
            let missing = count - picked.len();
            // The smallest that suffices, else the biggest.
            let (at, _) = clusters
                .iter()
                .enumerate()
                .min_by_key(|(at, (_, cores))| {
                    let size = cores.len();
                    if size >= missing { (0, size, *at) } else { (1, usize::MAX - size, *at) }
                })
                .expect("not empty");
            let (_, cores) = clusters.remove(at);
            picked.extend(cores.into_iter().take(missing));
        }
        picked.sort_unstable();
        picked
    }

    /// Cores for a VM's other threads: near its vCPUs, else in the smallest
    /// gap of the node.
    fn pick_io(&self, left: &CoreSet, node: usize, shares: &[Share]) -> Vec<usize> {
        let of_node = &self.layout.nodes[node];
        let all = left.intersection(&of_node.cores);
        let used: Vec<usize> = shares
            .iter()
            .flat_map(|share| share.cores.iter().flatten())
            .map(|core| self.layout.cores[*core].cache)
            .collect();
        let mut cores: Vec<usize> = all.iter().collect();
        cores.sort_by_key(|core| {
            let cache = self.layout.cores[*core].cache;
            let gap = all.intersection(&self.layout.caches[cache]).len();
            (!used.contains(&cache), gap, *core)
        });
        cores.truncate(self.wish.io_cores as usize);
        cores
    }
}
