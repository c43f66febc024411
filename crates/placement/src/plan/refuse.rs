//! Why a VM has no place, and what would have.

use report::counted;
use schemars::JsonSchema;
use serde::Serialize;

use super::choose::{choose, choose_floating, thread_counts};
use super::free::FreeResources;
use super::layout::Layout;
use super::wish::{PlanRules, Size, ThreadsPerCore, VmWish};

/// A VM that was not placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnplacedVm {
    /// The VM's name.
    pub name: String,
    /// Why not.
    pub why: String,
    /// Changes of the wish or the rules that would fit, nearest first; each
    /// was tried.
    pub nearest: Vec<String>,
}

/// What is wrong with a wish by itself.
pub(crate) fn nonsense(wish: &VmWish) -> Option<UnplacedVm> {
    let why = if wish.vcpus == 0 {
        "vcpus is 0: a VM has at least 1".to_owned()
    } else if wish.memory.0 == 0 {
        "memory is 0".to_owned()
    } else if let Some(page) =
        wish.huge_pages.filter(|page| page.0 < 1 << 20 || !page.0.is_power_of_two())
    {
        format!("huge_pages is {page}: write 2MiB, 1GiB or another power of two")
    } else if wish.vcpus > MAX_VCPUS {
        format!("vcpus is {}: QEMU ends at {MAX_VCPUS}", wish.vcpus)
    } else {
        return None;
    };
    Some(UnplacedVm { name: wish.name.clone(), why, nearest: Vec::new() })
}

/// The most vCPUs of any QEMU machine (q35).
///
/// Source: QEMU `hw/i386/pc_q35.c`, `max_cpus`.
const MAX_VCPUS: u32 = 4096;

/// Explains each of these VMs, copies of one only once, because finding what
/// would fit takes many tries.
pub(crate) fn refusals(
    wishes: &[VmWish],
    which: &[usize],
    explain: impl Fn(&VmWish) -> UnplacedVm,
) -> Vec<(usize, UnplacedVm)> {
    let mut all: Vec<(usize, UnplacedVm)> = Vec::new();
    for at in which {
        let wish = &wishes[*at];
        let refusal = match all.last() {
            Some((last, refusal)) if wishes[*last].is_like(wish) => {
                UnplacedVm { name: wish.name.clone(), ..refusal.clone() }
            }
            _ => explain(wish),
        };
        all.push((*at, refusal));
    }
    all
}

/// Explains why a VM doesn't fit what is free.
pub(crate) fn refuse(
    layout: &Layout,
    free: &FreeResources,
    wish: &VmWish,
    rules: &PlanRules,
) -> UnplacedVm {
    let mut refusal =
        UnplacedVm { name: wish.name.clone(), why: String::new(), nearest: Vec::new() };
    let tried = RefusedLayout { layout, free, wish };
    if let Some(ratio) = rules.overcommit {
        refusal.why = why_not_floating(layout, free, wish, ratio);
        refusal.nearest.extend(tried.fewer_vcpus_floating(ratio));
        refusal.nearest.extend(tried.more_overcommit(Some(ratio)));
        refusal.nearest.extend(tried.less_memory(Some(ratio)));
        return refusal;
    }
    let threads = thread_counts(layout.most_threads, wish).next();
    refusal.why = match threads {
        None => why_no_threads(layout, wish),
        Some(threads) => why_not(layout, free, wish, threads),
    };
    refusal.nearest.extend(tried.other_threads());
    refusal.nearest.extend(tried.fewer_vcpus(threads));
    refusal.nearest.extend(tried.less_memory(None));
    refusal.nearest.extend(tried.no_io_cores());
    if threads.is_some() {
        refusal.nearest.extend(tried.more_overcommit(None));
    }
    refusal
}

fn why_no_threads(layout: &Layout, wish: &VmWish) -> String {
    let most = layout.most_threads;
    match wish.threads_per_core {
        _ if most == 0 => "no core is free for VMs: all are left to the host or taken".to_owned(),
        ThreadsPerCore::Exactly(threads) if threads > most => {
            format!("{threads} threads a core are asked, the cores have {most}")
        }
        ThreadsPerCore::Exactly(threads) => {
            format!("{} vCPUs can't be {threads} a core", wish.vcpus)
        }
        ThreadsPerCore::Auto => format!("{} vCPUs have no cores", wish.vcpus),
    }
}

fn why_not(layout: &Layout, free: &FreeResources, wish: &VmWish, threads: u32) -> String {
    let most = |tier: &super::layout::CoreTier| {
        tier.by_threads
            .get(threads as usize - 1)
            .map_or(0, |eligible| free.cores.intersection(eligible).len() as u32)
    };
    let have = layout.tiers.iter().map(most).max().unwrap_or(0);
    let need = wish.vcpus / threads + wish.io_cores;
    if have < need {
        let verb = if have == 1 { "is" } else { "are" };
        let io = match wish.io_cores {
            0 => String::new(),
            io => format!(" ({io} of them for iothreads and emulator)"),
        };
        let mut why = format!("{} {verb} free, {need} are asked{io}", counted(have, "core"));
        if threads == 1 && layout.most_threads > 1 && wish.vcpus > 1 {
            why.push_str(", 1 for each vCPU");
        }
        why.push_str(&other_kinds(layout, free, have, threads));
        if let Some(memory) = why_memory(layout, free, wish) {
            why.push_str(&format!("; {memory}"));
        }
        return why;
    }
    why_memory(layout, free, wish).unwrap_or_else(|| {
        "cores and memory are free, but not in the same nodes, and a VM of few cores can't be \
         spread over many"
            .to_owned()
    })
}

/// Free cores that have too few threads for what is asked: they must not be hidden
/// behind the others.
fn other_kinds(layout: &Layout, free: &FreeResources, have: u32, threads: u32) -> String {
    let all = free.cores.intersection(&layout.usable).len() as u32;
    match all.saturating_sub(have) {
        0 => String::new(),
        more => {
            let verb = if more == 1 { "has" } else { "have" };
            format!("; {} {verb} fewer than {threads} threads", counted(more, "other core"))
        }
    }
}

fn why_not_floating(layout: &Layout, free: &FreeResources, wish: &VmWish, ratio: f64) -> String {
    let pcpus: usize = (0..layout.nodes.len()).map(|node| layout.pool(node).len()).sum();
    if pcpus == 0 {
        return "no pCPU is free for vCPUs that float: isolated pCPUs are not balanced".to_owned();
    }
    let taken: u32 = free.floating.iter().sum();
    let room = (pcpus as f64 * ratio) as u32;
    if taken + wish.vcpus > room {
        return format!(
            "{pcpus} pCPUs hold {room} vCPUs at {ratio}; {taken} are placed, {} more are asked",
            wish.vcpus
        );
    }
    why_memory(layout, free, wish)
        .unwrap_or_else(|| "vCPUs and memory are free, but not in the same nodes".to_owned())
}

fn why_memory(layout: &Layout, free: &FreeResources, wish: &VmWish) -> Option<String> {
    let unit = wish.unit();
    // Memory of nodes without pCPUs is not for VMs.
    let mut used: Vec<usize> = layout.nodes.iter().map(|node| node.memory).collect();
    used.sort_unstable();
    used.dedup();
    let total: u64 = used.iter().map(|at| free.memories[*at].units(unit)).sum();
    let of_nodes: Vec<String> = layout
        .nodes
        .iter()
        .map(|node| {
            let units = free.memories[node.memory].units(unit);
            let id = node.id;
            if wish.huge_pages.is_some() {
                format!("node {id} {units}")
            } else {
                format!("node {id} {}", Size(units * unit.bytes))
            }
        })
        .collect();
    let detail =
        if layout.nodes.len() > 1 { format!(" ({})", of_nodes.join(", ")) } else { String::new() };
    let (have, need) = match wish.huge_pages {
        Some(size) => (
            format!("{total} huge pages of {size} are reserved or reservable"),
            format!("{}", wish.units()),
        ),
        None => {
            (format!("{} of memory is free", Size(total * unit.bytes)), wish.memory.to_string())
        }
    };
    (total < wish.units()).then(|| {
        format!("{have}{detail}, {need} are asked{}", without_pcpus(layout, free, wish, &used))
    })
}

/// The nodes that have memory and no pCPU (CXL, HBM): what is there is not counted,
/// and whoever asks should know.
fn without_pcpus(layout: &Layout, free: &FreeResources, wish: &VmWish, used: &[usize]) -> String {
    let unit = wish.unit();
    let others = (0..free.memories.len()).filter(|at| !used.contains(at));
    let shown: Vec<String> = others
        .filter_map(|at| {
            let units = free.memories[at].units(unit);
            let size = Size(units.saturating_mul(unit.bytes));
            (units > 0).then(|| format!("node {} has {size}", layout.memories[at].id))
        })
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    format!("; {} and no pCPU, which is far from every vCPU and not counted", shown.join(", "))
}

/// Tries what else would fit.
struct RefusedLayout<'a> {
    layout: &'a Layout,
    free: &'a FreeResources,
    wish: &'a VmWish,
}

impl RefusedLayout<'_> {
    fn fits(&self, change: impl FnOnce(&mut VmWish)) -> bool {
        let mut wish = self.wish.clone();
        change(&mut wish);
        wish.vcpus > 0 && choose(self.layout, self.free, &wish).is_some()
    }

    fn floats(&self, ratio: f64, change: impl FnOnce(&mut VmWish)) -> bool {
        let mut wish = self.wish.clone();
        change(&mut wish);
        wish.vcpus > 0 && choose_floating(self.layout, self.free, &wish, ratio).is_some()
    }

    fn other_threads(&self) -> Option<String> {
        let ThreadsPerCore::Exactly(asked) = self.wish.threads_per_core else {
            return None;
        };
        let others = [1, 2, 4, 8].into_iter().filter(|threads| *threads != asked);
        let fitting = others.rev().find(|threads| {
            self.fits(|wish| wish.threads_per_core = ThreadsPerCore::Exactly(*threads))
        })?;
        Some(format!("--threads-per-core {fitting}"))
    }

    /// The most vCPUs that fit. Not every smaller number does: a VM of few
    /// cores can't be spread over nodes that have little memory.
    fn fewer_vcpus(&self, threads: Option<u32>) -> Option<String> {
        let step = match (self.wish.threads_per_core, threads) {
            (ThreadsPerCore::Exactly(threads), _) | (_, Some(threads)) => threads,
            _ => 1,
        };
        let most = (self.wish.vcpus - 1) / step;
        let mut counts = (1..=most).rev().map(|count| count * step);
        let vcpus = counts.find(|vcpus| self.fits(|wish| wish.vcpus = *vcpus))?;
        Some(format!("--vcpus {vcpus}"))
    }

    fn fewer_vcpus_floating(&self, ratio: f64) -> Option<String> {
        let mut counts = (1..self.wish.vcpus).rev();
        let vcpus = counts.find(|vcpus| self.floats(ratio, |wish| wish.vcpus = *vcpus))?;
        Some(format!("--vcpus {vcpus}"))
    }

    fn less_memory(&self, ratio: Option<f64>) -> Option<String> {
        let page = self.wish.unit().bytes;
        // Fewer pages than nodes can't be on all of them.
        let least = self.layout.nodes.len() as u64;
        let pages = largest(least, self.wish.units() - 1, |pages| {
            let change = |wish: &mut VmWish| wish.memory = Size(pages * page);
            ratio.map_or_else(|| self.fits(change), |ratio| self.floats(ratio, change))
        })?;
        let size = Size(pages * page).to_string();
        // A number with a point is not what the option takes.
        let text = if size.contains('.') {
            format!("{}MiB", (pages * page) >> 20)
        } else {
            size.replace(' ', "")
        };
        Some(format!("--memory {text}"))
    }

    fn no_io_cores(&self) -> Option<String> {
        let asked = self.wish.io_cores > 0 && self.fits(|wish| wish.io_cores = 0);
        asked.then(|| "--io-cores 0".to_owned())
    }

    /// The smallest ratio in tenths that has room. VMs that were placed keep
    /// their cores in the question, as they would not in a plan that shares.
    fn more_overcommit(&self, beyond: Option<f64>) -> Option<String> {
        let tenths = (10..=100u32).map(|tenths| f64::from(tenths) / 10.0);
        let mut tenths = tenths.filter(|ratio| beyond.is_none_or(|beyond| *ratio > beyond));
        let fitting = tenths.find(|ratio| {
            let mut free = self.free.clone();
            for node in 0..self.layout.nodes.len() {
                let own = &self.layout.nodes[node].cores;
                let taken = self.layout.balanced.intersection(own);
                let used = taken.iter().filter(|core| !free.cores.contains(*core));
                let threads: usize = used.map(|core| self.layout.cores[core].threads.len()).sum();
                free.floating[node] += threads as u32;
            }
            choose_floating(self.layout, &free, self.wish, *ratio).is_some()
        })?;
        Some(format!("--overcommit {fitting}"))
    }
}

/// The largest number in a range for which it holds, if it holds for all below.
fn largest(least: u64, most: u64, mut holds: impl FnMut(u64) -> bool) -> Option<u64> {
    if least > most || !holds(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}
