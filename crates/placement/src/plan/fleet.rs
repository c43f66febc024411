//! Many VMs on many hosts.
//!
//! Bin packing with two resources, cores and memory, where a bin has parts
//! (nodes, caches) that are better not crossed. VMs come by decreasing share
//! of a host. Each goes to the host where it crosses least; among those to one
//! in use, where it leaves least of the node it goes to. Hosts are compared by
//! a few counts; only the host that wins is searched for cores.

use schemars::JsonSchema;
use serde::Serialize;
use topology::Host;

use super::choose::{Choice, choose, choose_floating, thread_counts};
use super::free::FreeResources;
use super::layout::Layout;
use super::packed::take;
use super::place::{Placement, settle};
use super::refuse::{UnplacedVm, nonsense, refusals, refuse};
use super::wish::{PlanRules, VmWish};

/// A host of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct NamedHost<'a> {
    /// How people call it.
    pub name: &'a str,
    /// What it is.
    pub host: &'a Host,
}

/// How VMs are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// By decreasing size, each where it fits best.
    #[default]
    BestFit,
    /// As they come, each on the first host that takes it: what others are
    /// compared with.
    FirstFit,
}

/// What becomes of VMs on a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetPlan {
    /// The VMs that have a place, in the order of the wishes.
    pub vms: Vec<FleetVm>,
    /// Those that have none, explained on the host with most free cores.
    pub refused: Vec<UnplacedVm>,
    /// The fleet in numbers.
    pub totals: Totals,
    /// What could not be known or looks wrong, by host.
    pub warnings: Vec<String>,
}

/// One VM of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetVm {
    /// Its host, as an index into the fleet.
    pub host: usize,
    /// Where it goes there.
    pub placement: Placement,
}

/// A fleet's plan in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Totals {
    /// Hosts that have at least one VM.
    pub hosts_used: usize,
    /// Their cores that have none.
    pub free_cores: u32,
    /// The part of all their cores that is free, but not in the freest node of
    /// its host: 0 if all that is free on a host is in one node.
    pub fragmentation: f64,
    /// VMs that reach over several nodes.
    pub over_nodes: usize,
    /// VMs that reach over several last-level caches.
    pub over_caches: usize,
}

/// Places VMs on hosts, as many as possible.
///
/// Time grows with VMs times hosts, a few counts for each pair.
#[must_use]
pub fn plan_fleet(
    hosts: &[NamedHost<'_>],
    wishes: &[VmWish],
    rules: &PlanRules,
    packing: Packing,
) -> FleetPlan {
    let layouts: Vec<Layout> = hosts.iter().map(|named| Layout::new(named.host, rules)).collect();
    let wishes = VmWish::each(wishes);
    let mut refused: Vec<(usize, UnplacedVm)> = Vec::new();
    let mut sound = Vec::new();
    for (at, wish) in wishes.iter().enumerate() {
        match nonsense(wish) {
            Some(refusal) => refused.push((at, refusal)),
            None => sound.push(at),
        }
    }
    if packing == Packing::BestFit {
        by_size(&mut sound, &wishes, &layouts);
    }
    let mut fleet = Fleet::new(&layouts, None);
    let mut left = fleet.pack(&wishes, &sound, packing);
    let mut shares = false;
    if let Some(ratio) = rules.overcommit.filter(|_| !left.is_empty()) {
        let mut sharing = Fleet::new(&layouts, Some(ratio));
        let left_sharing = sharing.pack(&wishes, &sound, packing);
        if left_sharing.len() < left.len() {
            (fleet, left, shares) = (sharing, left_sharing, true);
        }
    }
    let said = if shares { rules.clone() } else { PlanRules { overcommit: None, ..rules.clone() } };
    let roomiest =
        (0..layouts.len()).max_by_key(|at| (fleet.states[*at].free.cores.len(), usize::MAX - at));
    left.sort_unstable();
    refused.extend(refusals(&wishes, &left, |wish| match roomiest {
        Some(host) => {
            let mut refusal = refuse(&layouts[host], &fleet.states[host].free, wish, &said);
            refusal.why = format!("on {}: {}", hosts[host].name, refusal.why);
            refusal
        }
        None => UnplacedVm {
            name: wish.name.clone(),
            why: "there is no host".to_owned(),
            nearest: Vec::new(),
        },
    }));
    refused.sort_by_key(|(at, _)| *at);
    let totals = fleet.totals();
    let vms = fleet.settle(&wishes);
    let warnings = layouts
        .iter()
        .zip(hosts)
        .flat_map(|(layout, named)| {
            layout.warnings.iter().map(|warning| format!("{}: {warning}", named.name))
        })
        .collect();
    FleetPlan {
        vms,
        refused: refused.into_iter().map(|(_, refusal)| refusal).collect(),
        totals,
        warnings,
    }
}

/// The biggest first: by the larger of its shares of a host's cores and
/// memory.
fn by_size(order: &mut [usize], wishes: &[VmWish], layouts: &[Layout]) {
    let pcpus: u64 = layouts.iter().map(|layout| layout.pcpus(&layout.usable).count() as u64).sum();
    let memory: u64 =
        layouts.iter().flat_map(|layout| &layout.memories).map(|memory| memory.plain >> 20).sum();
    // Shares of the fleet in comparable whole numbers.
    let share = |part: u64, of: u64| u128::from(part) * (1 << 64) / u128::from(of.max(1));
    order.sort_by_cached_key(|at| {
        let wish = &wishes[*at];
        let cores = share(u64::from(wish.vcpus), pcpus);
        let mib = share(wish.memory.in_mib(), memory);
        (std::cmp::Reverse(cores.max(mib)), std::cmp::Reverse(cores + mib), *at)
    });
}

/// One node of one host.
struct NodeCounts {
    /// Free cores.
    free: u32,
    /// The part of the node that one core is.
    per_core: f64,
    /// The part of its memory that one byte is.
    per_byte: f64,
}

struct State {
    free: FreeResources,
    nodes: Vec<NodeCounts>,
    /// Free cores around each cache.
    caches: Vec<u32>,
    /// Free cores of all.
    cores: u32,
    /// vCPUs that may still float here.
    room: u32,
    /// Cores that VMs may have.
    all_cores: u32,
    is_used: bool,
}

struct Fleet<'a> {
    layouts: &'a [Layout],
    states: Vec<State>,
    placed: Vec<(usize, usize, Choice)>,
    ratio: Option<f64>,
}

/// How little a VM would like a host; less is better.
type Dislike = (u32, bool, u64, u32);

impl<'a> Fleet<'a> {
    fn new(layouts: &'a [Layout], ratio: Option<f64>) -> Self {
        let states = layouts
            .iter()
            .map(|layout| {
                let pool: usize = (0..layout.nodes.len()).map(|node| layout.pool(node).len()).sum();
                let mut state = State {
                    free: FreeResources::new(layout),
                    nodes: layout
                        .nodes
                        .iter()
                        .map(|node| {
                            let cores = layout.usable.common(&layout.usable, &node.cores);
                            let bytes = layout.memories[node.memory].plain;
                            NodeCounts {
                                free: cores,
                                per_core: 1.0 / f64::from(cores.max(1)),
                                per_byte: 1.0 / bytes.max(1) as f64,
                            }
                        })
                        .collect(),
                    caches: Vec::new(),
                    cores: 0,
                    room: ratio.map_or(0, |ratio| (pool as f64 * ratio) as u32),
                    all_cores: layout.usable.len() as u32,
                    is_used: false,
                };
                state.count(layout);
                state
            })
            .collect();
        Self { layouts, states, placed: Vec::new(), ratio }
    }

    /// Places VMs in this order; returns those that have no place.
    fn pack(&mut self, wishes: &[VmWish], order: &[usize], packing: Packing) -> Vec<usize> {
        let no_place = |at: &&usize| !self.place(**at, &wishes[**at], packing);
        order.iter().filter(no_place).copied().collect()
    }

    fn place(&mut self, at: usize, wish: &VmWish, packing: Packing) -> bool {
        let hosts = 0..self.layouts.len();
        let mut dislikes = hosts.filter_map(|host| {
            let dislike = match self.ratio {
                Some(_) => self.dislike_sharing(host, wish),
                None => self.dislike(host, wish),
            };
            Some((dislike?, host))
        });
        // Counts overlook how cores and memory meet, so the best may fail.
        let found = match packing {
            Packing::FirstFit => {
                dislikes.find_map(|(_, host)| Some((host, self.choose(host, wish)?)))
            }
            Packing::BestFit => {
                let mut left: Vec<(Dislike, usize)> = dislikes.collect();
                std::iter::from_fn(|| {
                    let best = (0..left.len()).min_by_key(|at| left[*at])?;
                    Some(left.swap_remove(best))
                })
                .find_map(|(_, host)| Some((host, self.choose(host, wish)?)))
            }
        };
        let Some((host, choice)) = found else {
            return false;
        };
        let (layout, state) = (&self.layouts[host], &mut self.states[host]);
        take(layout, &mut state.free, wish, &choice);
        state.room = state.room.saturating_sub(wish.vcpus);
        state.is_used = true;
        state.count(layout);
        self.placed.push((at, host, choice));
        true
    }

    fn choose(&self, host: usize, wish: &VmWish) -> Option<Choice> {
        let (layout, free) = (&self.layouts[host], &self.states[host].free);
        match self.ratio {
            Some(ratio) => choose_floating(layout, free, wish, ratio),
            None => choose(layout, free, wish),
        }
    }

    /// By counts alone; `None` if it can't fit.
    fn dislike(&self, host: usize, wish: &VmWish) -> Option<Dislike> {
        let (layout, state) = (&self.layouts[host], &self.states[host]);
        // The numbers of vCPUs first: they rule out most hosts.
        if state.cores * layout.most_threads < wish.vcpus {
            return None;
        }
        let threads = thread_counts(layout.most_threads, wish).next()?;
        let need = wish.vcpus / threads + wish.io_cores;
        if state.cores < need {
            return None;
        }
        let unit = wish.unit();
        let wanted = wish.units() * unit.bytes;
        let mut all = 0;
        let mut best: Option<(u32, u64, u32)> = None;
        for (node, counts) in state.nodes.iter().enumerate() {
            let bytes = state.free.memory(layout, node).bytes(unit);
            all += bytes;
            if counts.free < need || bytes < wanted {
                continue;
            }
            let caches = layout.nodes[node].caches.iter();
            let gap = caches.filter_map(|cache| state.caches[*cache].checked_sub(need)).min();
            let left = counts.leftover(counts.free - need, bytes - wanted);
            let key = (u32::from(gap.is_none()), left, gap.unwrap_or(0));
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        let empty = !state.is_used;
        match best {
            Some((crosses, leftover, gap)) => Some((crosses, empty, leftover, gap)),
            // One core is in one node.
            None if all < wanted || need == 1 => None,
            None => Some((2, empty, u64::from(state.cores - need), 0)),
        }
    }

    fn dislike_sharing(&self, host: usize, wish: &VmWish) -> Option<Dislike> {
        let state = &self.states[host];
        let left = state.room.checked_sub(wish.vcpus)?;
        Some((0, !state.is_used, u64::from(left), 0))
    }

    fn totals(&self) -> Totals {
        let used: Vec<&State> = self.states.iter().filter(|state| state.is_used).collect();
        let free_cores: u32 = used.iter().map(|state| state.cores).sum();
        let together: u32 = used
            .iter()
            .map(|state| state.nodes.iter().map(|counts| counts.free).max().unwrap_or(0))
            .sum();
        let cores: u32 = used.iter().map(|state| state.all_cores).sum();
        let count = |holds: fn(&Choice) -> bool| {
            self.placed.iter().filter(|(_, _, choice)| holds(choice)).count()
        };
        Totals {
            hosts_used: used.len(),
            free_cores,
            fragmentation: f64::from(free_cores - together) / f64::from(cores.max(1)),
            over_nodes: count(|choice| choice.score.extra_nodes > 0),
            over_caches: count(|choice| choice.score.extra_caches > 0),
        }
    }

    /// Writes down what was chosen, in the order of the wishes.
    fn settle(self, wishes: &[VmWish]) -> Vec<FleetVm> {
        // In the order of choosing, so that each sees what was free then.
        let mut free: Vec<FreeResources> = self.layouts.iter().map(FreeResources::new).collect();
        let mut vms: Vec<(usize, FleetVm)> = self
            .placed
            .iter()
            .map(|(at, host, choice)| {
                let layout = &self.layouts[*host];
                let placement = settle(layout, &mut free[*host], &wishes[*at], choice);
                (*at, FleetVm { host: *host, placement })
            })
            .collect();
        vms.sort_by_key(|(at, _)| *at);
        vms.into_iter().map(|(_, vm)| vm).collect()
    }
}

/// How much worse it is to leave cores without memory, or the other way round,
/// than to leave both. Tried on mixed fleets: from 2 on nothing gets better.
const IMBALANCE: f64 = 2.0;

impl NodeCounts {
    /// How much of a node stays, cores and memory together. A node that has
    /// much of one and little of the other is of little use.
    fn leftover(&self, cores: u32, bytes: u64) -> u64 {
        let cores = f64::from(cores) * self.per_core;
        let memory = bytes as f64 * self.per_byte;
        // Sums of parts of one, kept to a millionth.
        ((cores + memory + IMBALANCE * (cores - memory).abs()) * 1e6) as u64
    }
}

impl State {
    fn count(&mut self, layout: &Layout) {
        let among = |cores| self.free.cores.common(&layout.usable, cores);
        for (counts, node) in self.nodes.iter_mut().zip(&layout.nodes) {
            counts.free = among(&node.cores);
        }
        self.caches = layout.caches.iter().map(among).collect();
        self.cores = self.nodes.iter().map(|counts| counts.free).sum();
    }
}
