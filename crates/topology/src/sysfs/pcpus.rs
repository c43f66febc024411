//! pCPUs and their caches.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::{SysfsReader, numbered_name};
use crate::{Cache, CacheKind, CoreKind, Host, Pcpu, PcpuSet};

const PCPUS: &str = "sys/devices/system/cpu";

/// What x86 kernels print for an id that the processor does not tell.
const UNKNOWN_X86_ID: u32 = 65_535;

/// A core below this share of the biggest core's capacity is an efficiency
/// core: mid-size cores stay above three quarters, the small ones below half.
const EFFICIENCY_SHARE: f64 = 0.75;

pub(super) fn read(reader: &mut SysfsReader, host: &mut Host) {
    let (present, online) = present_and_online(reader);
    let mut seen = PcpuNumbers::default();
    for id in present.iter() {
        let pcpu = if online.contains(id) {
            read_online(reader, id, host, &mut seen)
        } else {
            Pcpu { id, node: read_node_link(reader, id), ..Pcpu::default() }
        };
        host.pcpus.push(pcpu);
    }
    name_sockets(host, &seen);
    name_cores(reader, host, &seen);
    fill_from_cpuinfo(reader, host, &seen.without_topology);
    number_threads(host);
    name_kinds(reader, host);
    read_caches(reader, host, &online);
    host.isolated = reader.set(&format!("{PCPUS}/isolated"));
    host.nohz_full = reader.set(&format!("{PCPUS}/nohz_full"));
    read_allowed(reader, host, &online);
}

/// What was seen of each pCPU beside its ids.
#[derive(Default)]
struct PcpuNumbers {
    /// Threads of the same core, itself included.
    siblings: BTreeMap<u32, PcpuSet>,
    /// pCPUs of the same socket, itself included.
    package: BTreeMap<u32, PcpuSet>,
    without_topology: PcpuSet,
}

fn present_and_online(reader: &mut SysfsReader) -> (PcpuSet, PcpuSet) {
    let folders: PcpuSet = reader.numbered(PCPUS, "cpu").into_iter().collect();
    let present = match reader.set(&format!("{PCPUS}/present")) {
        Some(present) => present.union(&folders),
        None => folders,
    };
    let online = match reader.set(&format!("{PCPUS}/online")) {
        Some(online) if !online.is_empty() => online,
        _ => {
            let running = processors_of_cpuinfo(reader);
            if running.is_empty() {
                reader.warn("No list of online pCPUs can be read: all present ones count");
                present.clone()
            } else {
                reader.warn("The list of online pCPUs is hidden: taken from /proc/cpuinfo");
                running
            }
        }
    };
    // A container may shorten the list and leave the folders: a pCPU that has
    // a place is running.
    let hidden: PcpuSet = present
        .difference(&online)
        .iter()
        .filter(|id| reader.exists(&format!("{PCPUS}/cpu{id}/topology/core_id")))
        .collect();
    if !hidden.is_empty() {
        reader.warn(format!(
            "The list of online pCPUs leaves out {hidden}, which are running: a container shortens it"
        ));
    }
    let online = online.union(&hidden);
    (present.union(&online), online)
}

fn read_online(reader: &mut SysfsReader, id: u32, host: &Host, seen: &mut PcpuNumbers) -> Pcpu {
    let folder = format!("{PCPUS}/cpu{id}/topology");
    let known = |id: &u32| *id != UNKNOWN_X86_ID;
    let node = host
        .nodes
        .iter()
        .find(|node| node.pcpus.contains(id))
        .map(|node| node.id)
        .or_else(|| read_node_link(reader, id));
    let pcpu = Pcpu {
        id,
        online: true,
        socket: reader.id(&format!("{folder}/physical_package_id")).filter(known),
        die: reader.id(&format!("{folder}/die_id")).filter(known),
        cluster: reader.id(&format!("{folder}/cluster_id")).filter(known),
        core: reader.id(&format!("{folder}/core_id")),
        node,
        capacity: reader.id(&format!("{PCPUS}/cpu{id}/cpu_capacity")),
        ..Pcpu::default()
    };
    let siblings = reader.set_of_names(
        &folder,
        &["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"],
    );
    if let Some(siblings) = siblings.filter(|siblings| siblings.contains(id)) {
        seen.siblings.insert(id, siblings);
    } else if pcpu.core.is_none() {
        seen.without_topology.insert(id);
    }
    if pcpu.socket.is_none()
        && let Some(package) = reader.set_of_names(
            &folder,
            &["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"],
        )
    {
        seen.package.insert(id, package);
    }
    pcpu
}

/// The node that a pCPU's folder links to: also there while it is offline.
fn read_node_link(reader: &SysfsReader, id: u32) -> Option<u32> {
    reader.list(&format!("{PCPUS}/cpu{id}")).iter().find_map(|name| numbered_name(name, "node"))
}

/// Numbers the sockets where the kernel gives -1 but says which pCPUs share
/// one (some arm64 and POWER firmware).
fn name_sockets(host: &mut Host, seen: &PcpuNumbers) {
    let packages: BTreeSet<&PcpuSet> = seen.package.values().collect();
    let mut packages: Vec<&PcpuSet> = packages.into_iter().collect();
    packages.sort_by_key(|package| package.first());
    // A socket that ends at the core's own threads is no statement.
    if packages.iter().all(|package| seen.siblings.values().any(|threads| threads == *package)) {
        return;
    }
    for pcpu in &mut host.pcpus {
        if let Some(package) = seen.package.get(&pcpu.id) {
            pcpu.socket = packages
                .iter()
                .position(|known| *known == package)
                .and_then(|at| u32::try_from(at).ok());
        }
    }
}

/// Makes `(socket, die, cluster, core)` name one core. The lists of threads
/// decide; core ids repeat on kernels that do not show dies.
fn name_cores(reader: &mut SysfsReader, host: &mut Host, seen: &PcpuNumbers) {
    let mut by_ids: BTreeMap<_, PcpuSet> = BTreeMap::new();
    for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.online) {
        by_ids.entry(ids(pcpu)).or_default().insert(pcpu.id);
    }
    let agree = host.pcpus.iter().all(|pcpu| {
        let threads = seen.siblings.get(&pcpu.id);
        threads.is_none_or(|threads| pcpu.core.is_some() && by_ids.get(&ids(pcpu)) == Some(threads))
    });
    if agree {
        return;
    }
    let repeated =
        host.pcpus.iter().any(|pcpu| pcpu.core.is_some() && seen.siblings.contains_key(&pcpu.id));
    if repeated {
        reader.warn(
            "Core ids do not match the lists of threads: cores are numbered anew in each socket",
        );
    }
    let mut next: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let mut named: BTreeMap<u32, u32> = BTreeMap::new();
    for pcpu in host.pcpus.iter_mut().filter(|pcpu| pcpu.online) {
        let first = seen.siblings.get(&pcpu.id).and_then(PcpuSet::first).unwrap_or(pcpu.id);
        let core = *named.entry(first).or_insert_with(|| {
            let next = next.entry(pcpu.socket).or_default();
            *next += 1;
            *next - 1
        });
        pcpu.core = Some(core);
    }
}

type Ids = (Option<u32>, Option<u32>, Option<u32>, Option<u32>);

fn ids(pcpu: &Pcpu) -> Ids {
    (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core)
}

/// x86 tells sockets and cores in `/proc/cpuinfo` too, which containers that
/// hide the topology folders often leave.
fn fill_from_cpuinfo(reader: &mut SysfsReader, host: &mut Host, without: &PcpuSet) {
    if without.is_empty() {
        return;
    }
    let text = reader.raw("proc/cpuinfo").unwrap_or_default();
    let mut filled = PcpuSet::new();
    let mut current = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let Ok(value) = value.trim().parse::<u32>() else {
            continue;
        };
        let key = key.trim();
        if key == "processor" {
            current =
                host.pcpus.iter_mut().find(|pcpu| pcpu.id == value && without.contains(value));
        } else if let Some(pcpu) = current.as_deref_mut() {
            match key {
                "physical id" => pcpu.socket = Some(value),
                "core id" => {
                    pcpu.core = Some(value);
                    filled.insert(pcpu.id);
                }
                _ => {}
            }
        }
    }
    if !filled.is_empty() {
        reader.warn(format!(
            "The topology of pCPUs {filled} is hidden: sockets and cores are taken from /proc/cpuinfo"
        ));
    }
    let unknown = without.difference(&filled);
    if !unknown.is_empty() {
        reader.warn(format!(
            "The topology of pCPUs {unknown} is hidden: sockets, cores and threads are unknown"
        ));
    }
}

fn processors_of_cpuinfo(reader: &SysfsReader) -> PcpuSet {
    let text = reader.raw("proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.trim() == "processor")
        .filter_map(|(_, value)| value.trim().parse().ok())
        .collect()
}

/// Numbers the threads of each core by ascending pCPU.
pub(crate) fn number_threads(host: &mut Host) {
    let mut threads: BTreeMap<Ids, u32> = BTreeMap::new();
    for pcpu in &mut host.pcpus {
        if pcpu.online && pcpu.core.is_some() {
            let next = threads.entry(ids(pcpu)).or_default();
            pcpu.thread = Some(*next);
            *next += 1;
        }
    }
}

fn name_kinds(reader: &mut SysfsReader, host: &mut Host) {
    let mut kinds: BTreeMap<u32, CoreKind> = BTreeMap::new();
    for (name, kind) in [
        ("cpu_core", CoreKind::Performance),
        ("cpu_atom", CoreKind::Efficiency),
        ("cpu_lowpower", CoreKind::LowPower),
    ] {
        if let Some(pcpus) = reader.set(&format!("sys/devices/{name}/cpus")) {
            kinds.extend(pcpus.iter().map(|id| (id, kind)));
        }
    }
    if kinds.is_empty() {
        kinds = kinds_by_capacity(host);
    }
    set_kinds(host, &kinds);
}

/// Kinds from [`Pcpu::capacity`], where that is known.
pub(crate) fn kinds_by_capacity(host: &Host) -> BTreeMap<u32, CoreKind> {
    let biggest = host.pcpus.iter().filter_map(|pcpu| pcpu.capacity).max();
    let limit = f64::from(biggest.unwrap_or(0)) * EFFICIENCY_SHARE;
    let kind = |capacity| {
        if f64::from(capacity) < limit { CoreKind::Efficiency } else { CoreKind::Performance }
    };
    host.pcpus.iter().filter_map(|pcpu| Some((pcpu.id, kind(pcpu.capacity?)))).collect()
}

/// Kinds from [`Pcpu::max_khz`], where that is known of all: a core that ends more
/// than a tenth below the fastest is of another make. Cores of one make differ by
/// a few parts in a hundred, where some of them are favoured.
pub(crate) fn kinds_by_frequency(host: &Host) -> BTreeMap<u32, CoreKind> {
    let online = || host.pcpus.iter().filter(|pcpu| pcpu.online);
    let fastest = online().filter_map(|pcpu| pcpu.max_khz).max().unwrap_or(0);
    let kind = |khz: u64| {
        let slow = u128::from(khz) * 10 < u128::from(fastest) * 9;
        if slow { CoreKind::Efficiency } else { CoreKind::Performance }
    };
    let kinds = online().map(|pcpu| Some((pcpu.id, kind(pcpu.max_khz?))));
    kinds.collect::<Option<_>>().unwrap_or_default()
}

/// Names the kinds of the online pCPUs if there are several.
pub(crate) fn set_kinds(host: &mut Host, kinds: &BTreeMap<u32, CoreKind>) {
    let differ = kinds.values().collect::<BTreeSet<_>>().len() > 1;
    if differ {
        for pcpu in host.pcpus.iter_mut().filter(|pcpu| pcpu.online) {
            pcpu.kind = kinds.get(&pcpu.id).copied();
        }
    }
}

fn read_caches(reader: &mut SysfsReader, host: &mut Host, online: &PcpuSet) {
    let mut without = PcpuSet::new();
    // The same folder name with the same pCPUs is the same cache: three of
    // four reads are saved on a machine with a thousand pCPUs.
    let mut seen: BTreeSet<(u32, PcpuSet)> = BTreeSet::new();
    for id in online.iter() {
        let folder = format!("{PCPUS}/cpu{id}/cache");
        let indexes = reader.numbered(&folder, "index");
        if indexes.is_empty() {
            without.insert(id);
        }
        for index in indexes {
            let folder = format!("{folder}/index{index}");
            let Some(pcpus) = reader.set_of_names(&folder, &["shared_cpu_list", "shared_cpu_map"])
            else {
                continue;
            };
            // The kernel leaves pCPUs in the list when they go offline.
            let pcpus = pcpus.intersection(online);
            if !seen.insert((index, pcpus.clone())) {
                continue;
            }
            let kind = match reader.text(&format!("{folder}/type")).as_deref() {
                Some("Data") => CacheKind::Data,
                Some("Instruction") => CacheKind::Instruction,
                Some("Unified") => CacheKind::Unified,
                _ => continue,
            };
            let Some(level) = reader.id(&format!("{folder}/level")) else {
                continue;
            };
            let size_bytes =
                reader.text(&format!("{folder}/size")).and_then(|text| parse_size(&text));
            let cache = Cache { level, kind, size_bytes, pcpus };
            host.caches.push(cache);
        }
    }
    host.caches.sort_by_key(|cache| (cache.level, cache.kind, cache.pcpus.first()));
    host.caches.dedup();
    if !without.is_empty() {
        reader.warn(if &without == online {
            "Caches are unknown: the kernel or a container hides them".into()
        } else {
            format!("Caches of pCPUs {without} are unknown")
        });
    }
}

/// A cache size as the kernel writes it: `512K`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (size > 0).then_some(size)
}

fn read_allowed(reader: &mut SysfsReader, host: &mut Host, online: &PcpuSet) {
    let Some(text) = reader.raw("proc/self/status") else {
        return;
    };
    let Some(allowed) = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(|list| list.parse::<PcpuSet>().ok())
    else {
        return;
    };
    // Kernels list pCPUs here that the machine could have but has not.
    let allowed = allowed.intersection(online);
    // Isolated pCPUs are in no affinity mask but one that names them.
    let isolated = host.isolated.clone().unwrap_or_default();
    if !allowed.is_empty() && !online.is_subset(&allowed.union(&isolated)) {
        reader.warn(format!(
            "This process may run on pCPUs {allowed} alone, of {online} online (a cpuset or an affinity mask holds it)"
        ));
    }
    host.allowed = Some(allowed);
}
