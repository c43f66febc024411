//! Host descriptions that other tools wrote.
//!
//! [`read_description`] recognises the format by its content. No tool tells
//! all that `/sys` does: what a description leaves open is absent in the
//! [`Host`] and named by [`DescribedMachine::unknown`]. Several descriptions of one
//! machine complete each other ([`DescribedMachine::merge`]).
//!
//! A reader may get any bytes. It answers with an error that names the line,
//! never with a panic, and never works much longer than its input is long.

mod cores;
mod hwloc;
mod libvirt;
mod lscpu;
mod merge;
mod numactl;
mod sets;
#[cfg(test)]
mod tests;
mod xml;

use std::collections::{BTreeMap, BTreeSet};

use crate::{CacheKind, Host, HugePagePool};
pub use merge::MergeError;
use sets::Sets;

/// The longest description that is read. `lstopo` writes some 4 MB for a
/// machine with 4096 pCPUs.
const MAX_BYTES: usize = 16 << 20;

/// Characters of an offending text that a message shows.
const SHOWN_CHARS: usize = 80;

const FORMATS: &str = "a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: \
LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H";

/// Error type for [`read_description`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadDescriptionError {
    /// Longer than any machine's description.
    #[error("{name}: too long for a host description: {bytes} bytes, at most {MAX_BYTES} are read")]
    TooLong {
        /// The description's name.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// No known format.
    #[error("{name}:{line}: not a host description: {text:?}. Understood are {FORMATS}")]
    Unrecognised {
        /// The description's name.
        name: String,
        /// The first line that says something, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// A known format with something wrong in it.
    #[error("{name}{}: {why}{} (read as {format})", at(*.line), quoted(.text))]
    Damaged {
        /// The description's name.
        name: String,
        /// The line, from 1; `None` where the fault is not in one line.
        line: Option<usize>,
        /// What stands there; empty where something is missing.
        text: String,
        /// What is wrong with it.
        why: String,
        /// The format that was recognised.
        format: &'static str,
    },
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(":{line}")).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text:?}") }
}

/// A machine as a description shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedMachine {
    /// The machine. Its warnings say what looks wrong in the description.
    pub host: Host,
    name: String,
    formats: Vec<&'static str>,
    known: BTreeSet<Facet>,
    cache_sizes: CacheSizes,
}

impl DescribedMachine {
    /// What the description could not know, in plain words; empty for a saved
    /// host file, whose own warnings say it.
    pub fn unknown(&self) -> Vec<String> {
        let open = |facet: &Facet| {
            !self.known.contains(facet)
                && facet.part_of().is_none_or(|whole| self.known.contains(&whole))
        };
        Facet::ALL.iter().filter(|facet| open(facet)).map(|facet| facet.words().into()).collect()
    }

    /// The machine, with what is unknown among its warnings.
    pub fn into_host(self) -> Host {
        let unknown = self.unknown();
        let mut host = self.host;
        if !unknown.is_empty() {
            host.warnings.push(format!(
                "Not told by {}: {}",
                self.formats.join(", "),
                unknown.join("; ")
            ));
        }
        host
    }
}

/// Size of each cache of a level and kind, told without saying who shares it.
type CacheSizes = BTreeMap<(u32, CacheKind), u64>;

/// A part of a machine that a description tells or leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Facet {
    Offline,
    Sockets,
    Dies,
    Clusters,
    Cores,
    Kinds,
    MaxFrequency,
    Caches,
    InnerCaches,
    CacheSizes,
    Nodes,
    NodePcpus,
    MemoryOnlyNodes,
    NodeMemory,
    Distances,
    FreeMemory,
    HugePages,
    FreeHugePages,
    Model,
    Kernel,
    Isolation,
    Settings,
    Kvm,
}

impl Facet {
    const ALL: [Facet; 23] = [
        Facet::Offline,
        Facet::Sockets,
        Facet::Dies,
        Facet::Clusters,
        Facet::Cores,
        Facet::Kinds,
        Facet::MaxFrequency,
        Facet::Caches,
        Facet::InnerCaches,
        Facet::CacheSizes,
        Facet::Nodes,
        Facet::NodePcpus,
        Facet::MemoryOnlyNodes,
        Facet::NodeMemory,
        Facet::Distances,
        Facet::FreeMemory,
        Facet::HugePages,
        Facet::FreeHugePages,
        Facet::Model,
        Facet::Kernel,
        Facet::Isolation,
        Facet::Settings,
        Facet::Kvm,
    ];

    fn words(self) -> &'static str {
        match self {
            Facet::Offline => "whether more pCPUs are there, switched off",
            Facet::Sockets => "which socket each pCPU is in",
            Facet::Dies => "dies",
            Facet::Clusters => "clusters",
            Facet::Cores => "which pCPUs are threads of one core",
            Facet::Kinds => "whether cores are of different kinds",
            Facet::MaxFrequency => "frequencies",
            Facet::Caches => "which pCPUs share a cache",
            Facet::InnerCaches => "caches below the last level",
            Facet::CacheSizes => "sizes of caches",
            Facet::Nodes => "memory nodes",
            Facet::NodePcpus => "which pCPUs belong to nodes that lie together",
            Facet::MemoryOnlyNodes => "nodes without pCPUs",
            Facet::NodeMemory => "how much memory each node has",
            Facet::Distances => "distances between nodes",
            Facet::FreeMemory => "how much memory is free",
            Facet::HugePages => "huge pages",
            Facet::FreeHugePages => "how many huge pages are free (all of them count as free)",
            Facet::Model => "the processor's name",
            Facet::Kernel => "the kernel's command line",
            Facet::Isolation => "isolated pCPUs",
            Facet::Settings => {
                "kernel settings (transparent huge pages, same-page merging, NUMA balancing, \
                 frequency scaling, idle states)"
            }
            Facet::Kvm => "KVM, vhost and their parameters",
        }
    }

    /// The facet without which this one is not worth a word.
    fn part_of(self) -> Option<Facet> {
        match self {
            Facet::CacheSizes | Facet::InnerCaches => Some(Facet::Caches),
            Facet::NodePcpus | Facet::MemoryOnlyNodes | Facet::NodeMemory | Facet::Distances => {
                Some(Facet::Nodes)
            }
            Facet::FreeHugePages => Some(Facet::HugePages),
            _ => None,
        }
    }
}

/// What a reader of one format found.
#[derive(Default)]
struct Description {
    host: Host,
    known: BTreeSet<Facet>,
    cache_sizes: CacheSizes,
}

impl Description {
    fn knows(&mut self, facets: &[Facet]) {
        self.known.extend(facets);
    }
}

/// What is wrong in a description.
#[derive(Debug)]
struct Defect {
    line: Option<usize>,
    text: String,
    why: String,
}

impl Defect {
    fn new(line: impl Into<Option<usize>>, text: &str, why: impl Into<String>) -> Defect {
        Defect { line: line.into(), text: shown(text), why: why.into() }
    }
}

fn shown(text: &str) -> String {
    let mut shown: String = text.trim().chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.trim().len() {
        shown.push('…');
    }
    shown
}

/// Reads a description of a machine; `name` is what messages call it, usually
/// the file's path.
///
/// # Errors
/// [`ReadDescriptionError`] names the line and what stands there.
///
/// Source: lscpu(1), numactl(8), hwloc's `hwloc.dtd` and `hwloc2.dtd`, libvirt's
/// "Driver capabilities XML format".
pub fn read_description(
    name: &str,
    bytes: &[u8],
) -> Result<DescribedMachine, ReadDescriptionError> {
    if bytes.len() > MAX_BYTES {
        return Err(ReadDescriptionError::TooLong { name: name.into(), bytes: bytes.len() });
    }
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let Some(format) = DescriptionFormat::of(text) else {
        let (line, text) = first_line(text);
        return Err(ReadDescriptionError::Unrecognised {
            name: name.into(),
            line,
            text: shown(text),
        });
    };
    let mut sets = Sets::new();
    let found = match format {
        DescriptionFormat::HostFile => host_file(text, &mut sets),
        DescriptionFormat::LscpuTable => lscpu::table(text),
        DescriptionFormat::LscpuParsable => lscpu::parsable(text),
        DescriptionFormat::LscpuSummary => lscpu::summary(text, &mut sets),
        DescriptionFormat::LscpuJson => lscpu::json(text, &mut sets),
        DescriptionFormat::Hwloc => hwloc::read(text, &mut sets),
        DescriptionFormat::Libvirt => libvirt::read(text, &mut sets),
        DescriptionFormat::Numactl => numactl::read(text),
    };
    match found {
        Ok(Description { mut host, known, cache_sizes }) => {
            crate::sysfs::number_threads(&mut host);
            if host.pcpus.iter().all(|pcpu| pcpu.kind.is_none()) {
                let kinds = crate::sysfs::kinds_by_frequency(&host);
                crate::sysfs::set_kinds(&mut host, &kinds);
                if host.pcpus.iter().any(|pcpu| pcpu.kind.is_some()) {
                    host.warnings.push(
                        "Cores end at different frequencies, and nothing says of what kind they \
                         are: those more than a tenth below the fastest are taken for efficiency \
                         cores"
                            .into(),
                    );
                }
            }
            host.caches.sort_by_key(|cache| (cache.level, cache.kind, cache.pcpus.first()));
            host.caches.dedup();
            let formats = vec![format.name()];
            Ok(DescribedMachine { host, name: name.into(), formats, known, cache_sizes })
        }
        Err(Defect { line, text, why }) => Err(ReadDescriptionError::Damaged {
            name: name.into(),
            line,
            text,
            why,
            format: format.name(),
        }),
    }
}

#[derive(Clone, Copy)]
enum DescriptionFormat {
    HostFile,
    LscpuTable,
    LscpuParsable,
    LscpuSummary,
    LscpuJson,
    Hwloc,
    Libvirt,
    Numactl,
}

impl DescriptionFormat {
    fn name(self) -> &'static str {
        match self {
            DescriptionFormat::HostFile => "a saved host file",
            DescriptionFormat::LscpuTable => "lscpu -e",
            DescriptionFormat::LscpuParsable => "lscpu -p",
            DescriptionFormat::LscpuSummary => "lscpu",
            DescriptionFormat::LscpuJson => "lscpu -J",
            DescriptionFormat::Hwloc => "hwloc XML",
            DescriptionFormat::Libvirt => "virsh capabilities",
            DescriptionFormat::Numactl => "numactl -H",
        }
    }

    fn of(text: &str) -> Option<DescriptionFormat> {
        let (_, first) = first_line(text);
        if first.starts_with('{') {
            let of_lscpu =
                ["\"lscpu\"", "\"cpus\"", "\"caches\""].iter().any(|key| text.contains(key));
            return Some(if of_lscpu && !text.contains(crate::HOST_FORMAT) {
                DescriptionFormat::LscpuJson
            } else if text.contains("\"format\"") {
                DescriptionFormat::HostFile
            } else {
                return None;
            });
        }
        if first.starts_with('<') {
            return match xml::root_name(text)? {
                "topology" => Some(DescriptionFormat::Hwloc),
                "capabilities" => Some(DescriptionFormat::Libvirt),
                _ => None,
            };
        }
        if first.starts_with("available:") || first.starts_with("No NUMA") {
            Some(DescriptionFormat::Numactl)
        } else if lscpu::is_parsable(text) {
            Some(DescriptionFormat::LscpuParsable)
        } else if lscpu::is_table_header(first) {
            Some(DescriptionFormat::LscpuTable)
        } else if text.lines().any(|line| line.trim_start().starts_with("CPU(s):")) {
            Some(DescriptionFormat::LscpuSummary)
        } else {
            None
        }
    }
}

/// The first line with something on it, and its number from 1.
fn first_line(text: &str) -> (usize, &str) {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .find(|(_, line)| !line.is_empty())
        .unwrap_or((1, ""))
}

fn host_file(text: &str, sets: &mut Sets) -> Result<Description, Defect> {
    // A short list can name many pCPUs: what lists cost is known beforehand.
    for (at, line) in text.lines().enumerate() {
        for list in line.split('"').filter(|text| text.contains('-')) {
            sets.charge_list(list).map_err(|why| Defect::new(at + 1, list, why))?;
        }
    }
    let host = Host::from_json(text).map_err(|error| {
        let line = error.line();
        let text = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Defect::new(line, text, error.reason())
    })?;
    if let Some(pair) = host.pcpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Defect::new(None, &pair[0].id.to_string(), "A pCPU is there twice"));
    }
    Ok(Description { host, known: Facet::ALL.into(), ..Description::default() })
}

/// The memory of all nodes, if each tells its own.
fn sum_of_nodes(nodes: &[crate::Node]) -> Option<u64> {
    let sizes: Option<Vec<u64>> = nodes.iter().map(|node| node.memory_bytes).collect();
    sizes?.into_iter().try_fold(0u64, u64::checked_add).filter(|sum| *sum > 0)
}

/// The huge page pools of all nodes together.
fn sum_of_pools(nodes: &[crate::Node]) -> Vec<HugePagePool> {
    let mut sums: BTreeMap<u64, HugePagePool> = BTreeMap::new();
    for pool in nodes.iter().flat_map(|node| &node.huge_pages) {
        let page_bytes = pool.page_bytes;
        let sum = sums.entry(page_bytes).or_insert(HugePagePool { page_bytes, total: 0, free: 0 });
        sum.total = sum.total.saturating_add(pool.total);
        sum.free = sum.free.saturating_add(pool.free);
    }
    sums.into_values().collect()
}
