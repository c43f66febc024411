//! What `lscpu` prints: the table (`-e`), the parsable table (`-p`), the
//! summary, and all of them as JSON (`-J`).
//!
//! Only the tables say where each pCPU lies. The summary counts; it places
//! pCPUs where the counts leave one way alone.
//!
//! Source: util-linux, lscpu(1).

use std::collections::BTreeMap;

use serde_json::Value;

use super::cores::name_cores;
use super::sets::{Sets, number};
use super::{CacheSizes, Defect, Description, Facet};
use crate::{Cache, CacheKind, Host, HostVirtualisation, Node, Pcpu, PcpuSet};

/// The columns of a row, and where it stands.
struct LscpuRow {
    line: Option<usize>,
    /// Whether it would say where an online pCPU lies.
    tells_places: bool,
    /// Column name and value; absent values are left out.
    cells: Vec<(Column, String)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Column {
    Pcpu,
    Node,
    Socket,
    Cluster,
    Core,
    Caches(Vec<(u32, CacheKind)>),
    Online,
    MaxMhz,
    Other,
}

impl Column {
    /// The column under this heading; upper or lower case.
    fn of(heading: &str) -> Column {
        match heading.to_ascii_lowercase().as_str() {
            "cpu" => Column::Pcpu,
            "node" => Column::Node,
            "socket" => Column::Socket,
            "cluster" => Column::Cluster,
            "core" => Column::Core,
            "online" => Column::Online,
            "maxmhz" => Column::MaxMhz,
            // "L1d" or "L1d:L1i:L2:L3".
            heading => match heading.split(':').map(cache_of).collect() {
                Some(caches) => Column::Caches(caches),
                None => Column::Other,
            },
        }
    }

    /// Whether every online pCPU has a value here. Nodes need not be there.
    fn is_place(&self) -> bool {
        matches!(self, Column::Socket | Column::Core)
    }
}

/// The cache called `l1d`, `l1i`, `l2`...
fn cache_of(name: &str) -> Option<(u32, CacheKind)> {
    let rest = name.strip_prefix('l')?;
    let digits = rest.trim_end_matches(['d', 'i']);
    let kind = match &rest[digits.len()..] {
        "" => CacheKind::Unified,
        "d" => CacheKind::Data,
        "i" => CacheKind::Instruction,
        _ => return None,
    };
    number(digits).filter(|level| (1..=9).contains(level)).map(|level| (level, kind))
}

/// Whether a text is `lscpu -p`'s output: a comment has the heading, or (where
/// the comments were removed) a row comes first.
pub(super) fn is_parsable(text: &str) -> bool {
    let mut comments = text.lines().map_while(|line| line.trim().strip_prefix('#'));
    comments.any(|comment| comment.trim().split(',').any(|name| name == "CPU"))
        || is_parsable_row(super::first_line(text).1)
}

fn is_parsable_row(line: &str) -> bool {
    line.split_once(',').is_some_and(|(first, _)| !first.is_empty() && number(first).is_some())
}

/// Whether a first line is the heading of `lscpu -e`.
pub(super) fn is_table_header(line: &str) -> bool {
    let columns: Vec<Column> = line.split_whitespace().map(Column::of).collect();
    columns.contains(&Column::Pcpu) && !line.contains(',')
}

/// Reads `lscpu -e`.
pub(super) fn table(text: &str) -> Result<Description, Defect> {
    let mut lines = lines(text);
    let (_, heading) = lines.next().unwrap_or_default();
    let columns: Vec<Column> = heading.split_whitespace().map(Column::of).collect();
    let mut rows = Vec::new();
    for (line, text) in lines {
        let cells: Vec<&str> = text.split_whitespace().collect();
        rows.push(row(line, text, &columns, &cells)?);
    }
    // All pCPUs are listed unless the user asks for less.
    let mut found = place(rows)?;
    found.knows(&[Facet::Offline]);
    Ok(found)
}

/// Reads `lscpu -p`: its last comment is the heading.
pub(super) fn parsable(text: &str) -> Result<Description, Defect> {
    // As they stand, and with one column for all caches: a pCPU that is
    // switched off has one blank for them.
    let mut columns: Option<[Vec<Column>; 2]> = None;
    let mut rows = Vec::new();
    for (line, text) in lines(text) {
        if let Some(comment) = text.strip_prefix('#') {
            let headings: Vec<Column> = comment.trim().split(',').map(Column::of).collect();
            if headings.contains(&Column::Pcpu) {
                let mut short = headings.clone();
                short.dedup_by(|one, other| {
                    matches!((one, other), (Column::Caches(_), Column::Caches(_)))
                });
                columns = Some([headings, short]);
            }
            continue;
        }
        let [long, short] = columns.as_ref().ok_or_else(|| {
            Defect::new(
                line,
                text,
                "The heading '# CPU,Core,...' is missing above the first row: keep lscpu's comments",
            )
        })?;
        let cells: Vec<&str> = text.split(',').collect();
        let columns = if cells.len() == short.len() { short } else { long };
        rows.push(row(line, text, columns, &cells)?);
    }
    place(rows)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
}

fn row(line: usize, text: &str, columns: &[Column], cells: &[&str]) -> Result<LscpuRow, Defect> {
    if cells.len() != columns.len() {
        let why = format!("{} values stand under {} headings", cells.len(), columns.len());
        return Err(Defect::new(line, text, why));
    }
    let cells = columns
        .iter()
        .zip(cells)
        .filter(|(_, cell)| !matches!(cell.trim(), "" | "-"))
        .map(|(column, cell)| (column.clone(), (*cell).trim().to_owned()))
        .collect();
    Ok(LscpuRow { line: Some(line), tells_places: columns.iter().any(Column::is_place), cells })
}

/// Reads any of the outputs of `lscpu -J`.
pub(super) fn json(text: &str, sets: &mut Sets) -> Result<Description, Defect> {
    // util-linux writes a bare dash for some absent values.
    let mended: Vec<&str> = text
        .lines()
        .map(|line| match line.trim_end().trim_end_matches(',').strip_suffix(": -") {
            Some(_) => line.trim_end().strip_suffix(',').map_or("\"\": null", |_| "\"\": null,"),
            None => line,
        })
        .collect();
    let value: Value = serde_json::from_str(&mended.join("\n")).map_err(|error| {
        let line = error.line().max(1);
        let at = text.lines().nth(line - 1).unwrap_or_default();
        Defect::new(line, at, format!("Not JSON: {error}"))
    })?;
    if let Some(entries) = value.get("cpus").and_then(Value::as_array) {
        let mut found = place(entries.iter().map(json_row).collect())?;
        found.knows(&[Facet::Offline]);
        return Ok(found);
    }
    if let Some(entries) = value.get("lscpu").and_then(Value::as_array) {
        let mut fields = Vec::new();
        flatten(entries, &mut fields);
        return describe(&fields, sets);
    }
    Err(Defect::new(
        None,
        text,
        "No pCPU is described here: use 'lscpu -J -e' or 'lscpu -J', not 'lscpu -C'",
    ))
}

fn json_row(entry: &Value) -> LscpuRow {
    let cells = entry.as_object().into_iter().flatten();
    let cells = cells.filter_map(|(name, value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            _ => return None,
        };
        let absent = matches!(text.trim(), "" | "-");
        (!absent).then(|| (Column::of(name), text))
    });
    let mut names = entry.as_object().into_iter().flat_map(|entry| entry.keys());
    let tells_places = names.any(|name| Column::of(name).is_place());
    LscpuRow { line: None, tells_places, cells: cells.collect() }
}

/// Newer versions nest the fields below headings.
fn flatten(entries: &[Value], fields: &mut Vec<SummaryField>) {
    for entry in entries {
        let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("field").trim_end_matches(':').to_owned();
        fields.push(SummaryField { line: None, name, value: text("data") });
        if let Some(children) = entry.get("children").and_then(Value::as_array) {
            flatten(children, fields);
        }
    }
}

/// What rows tell about one pCPU beside its ids.
struct CachedPcpu {
    pcpu: Pcpu,
    /// `(level, kind, id)` of the caches around it.
    caches: Vec<(u32, CacheKind, u32)>,
}

fn place(rows: Vec<LscpuRow>) -> Result<Description, Defect> {
    let mut found = Description::default();
    let mut placed: BTreeMap<u32, CachedPcpu> = BTreeMap::new();
    for row in &rows {
        let (id, one) = read_row(row)?;
        if one.pcpu.online {
            for (column, _) in &row.cells {
                match column {
                    Column::Node => found.knows(&[Facet::Nodes, Facet::NodePcpus]),
                    Column::Socket => found.knows(&[Facet::Sockets]),
                    Column::Cluster => found.knows(&[Facet::Clusters]),
                    Column::Core => found.knows(&[Facet::Cores]),
                    Column::Caches(_) => found.knows(&[Facet::Caches, Facet::InnerCaches]),
                    Column::MaxMhz => found.knows(&[Facet::MaxFrequency]),
                    _ => {}
                }
            }
        } else {
            found.knows(&[Facet::Offline]);
        }
        if placed.insert(id, one).is_some() {
            return Err(Defect::new(row.line, &id.to_string(), "This pCPU is listed twice"));
        }
    }
    if !placed.values().any(|one| one.pcpu.online) {
        return Err(Defect::new(None, "", "No online pCPU is listed"));
    }
    gather_caches(&placed, &mut found.host);
    let cores = cores(&placed);
    found.host.pcpus = placed.into_values().map(|one| one.pcpu).collect();
    name_cores(&mut found.host, &cores);
    gather_nodes(&mut found.host);
    Ok(found)
}

fn read_row(row: &LscpuRow) -> Result<(u32, CachedPcpu), Defect> {
    let mut pcpu = Pcpu::default();
    let mut caches = Vec::new();
    let mut id = None;
    let mut online = None;
    let mut lies_somewhere = false;
    for (column, text) in &row.cells {
        let not_a_number = || Defect::new(row.line, text, "Not a number");
        let mut place = |to: &mut Option<u32>| -> Result<(), Defect> {
            *to = Some(number(text).ok_or_else(not_a_number)?);
            lies_somewhere = true;
            Ok(())
        };
        match column {
            Column::Pcpu => {
                id = Some(
                    super::sets::pcpu(text)
                        .ok_or_else(|| Defect::new(row.line, text, "Not the number of a pCPU"))?,
                );
            }
            Column::Node => place(&mut pcpu.node)?,
            Column::Socket => place(&mut pcpu.socket)?,
            Column::Cluster => place(&mut pcpu.cluster)?,
            Column::Core => place(&mut pcpu.core)?,
            Column::Online => {
                online = Some(match text.to_ascii_lowercase().as_str() {
                    "yes" | "y" => true,
                    "no" | "n" => false,
                    _ => return Err(Defect::new(row.line, text, "Neither yes nor no")),
                });
            }
            Column::MaxMhz => {
                let khz = text.parse::<f64>().map_err(|_| not_a_number())? * 1000.0;
                // Zero stands where the kernel does not tell.
                if khz.is_finite() && khz >= 1.0 {
                    pcpu.max_khz = Some(khz.round() as u64);
                }
            }
            Column::Caches(names) => {
                let ids: Vec<&str> = text.split(':').collect();
                // One dash may stand for all of them.
                if ids.iter().all(|id| matches!(*id, "" | "-")) {
                    continue;
                }
                for ((level, kind), id) in names.iter().zip(ids) {
                    if !matches!(id, "" | "-") {
                        let id = number(id).ok_or_else(not_a_number)?;
                        caches.push((*level, *kind, id));
                    }
                }
            }
            Column::Other => {}
        }
    }
    let id = id.ok_or_else(|| Defect::new(row.line, "", "This row names no pCPU"))?;
    pcpu.id = id;
    pcpu.online = online.unwrap_or(lies_somewhere || !row.tells_places);
    if !pcpu.online {
        // What lscpu says of a switched-off pCPU is stale.
        return Ok((id, CachedPcpu { pcpu: Pcpu { id, ..Pcpu::default() }, caches: Vec::new() }));
    }
    Ok((id, CachedPcpu { pcpu, caches }))
}

/// The core of each pCPU: its numbers, and its L2 cache. Core numbers repeat
/// with `-y` on sockets of several dies, and (util-linux 2.38) on machines
/// whose cores are of different kinds. Threads of one core always share its
/// L2, so different ones tell cores apart. The L1 does not serve: the threads
/// of an AMD module of family 15h have one each.
fn cores(placed: &BTreeMap<u32, CachedPcpu>) -> BTreeMap<u32, [Option<u32>; 4]> {
    let mut cores = BTreeMap::new();
    for (id, CachedPcpu { pcpu, caches }) in placed {
        let l2 = caches.iter().find(|(level, kind, _)| (*level, *kind) == (2, CacheKind::Unified));
        if pcpu.core.is_some() {
            cores.insert(*id, [pcpu.socket, pcpu.cluster, pcpu.core, l2.map(|(_, _, id)| *id)]);
        }
    }
    cores
}

fn gather_caches(placed: &BTreeMap<u32, CachedPcpu>, host: &mut Host) {
    let mut shared: BTreeMap<(u32, CacheKind, u32), PcpuSet> = BTreeMap::new();
    for (id, one) in placed {
        for cache in &one.caches {
            shared.entry(*cache).or_default().insert(*id);
        }
    }
    host.caches = shared
        .into_iter()
        .map(|((level, kind, _), pcpus)| Cache { level, kind, size_bytes: None, pcpus })
        .collect();
}

fn gather_nodes(host: &mut Host) {
    let mut nodes: BTreeMap<u32, PcpuSet> = BTreeMap::new();
    for pcpu in &host.pcpus {
        if let Some(node) = pcpu.node {
            nodes.entry(node).or_default().insert(pcpu.id);
        }
    }
    host.nodes =
        nodes.into_iter().map(|(id, pcpus)| Node { id, pcpus, ..Node::default() }).collect();
}

/// One line of the summary.
struct SummaryField {
    line: Option<usize>,
    name: String,
    value: String,
}

/// Reads plain `lscpu`.
pub(super) fn summary(text: &str, sets: &mut Sets) -> Result<Description, Defect> {
    let fields: Vec<SummaryField> = lines(text)
        .filter_map(|(line, text)| {
            let (name, value) = text.split_once(':')?;
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            Some(SummaryField { line: Some(line), name, value })
        })
        .collect();
    describe(&fields, sets)
}

fn describe(fields: &[SummaryField], sets: &mut Sets) -> Result<Description, Defect> {
    let mut found = Description::default();
    let all = |name: &str| -> Vec<&str> {
        let named = fields.iter().filter(|field| field.name == name);
        named
            .map(|field| field.value.as_str())
            .filter(|value| !matches!(*value, "" | "-"))
            .collect()
    };
    let first = |name: &str| all(name).first().map(|value| (*value).to_owned());
    let mut read_set = |field: &SummaryField| -> Result<PcpuSet, Defect> {
        let pcpus = if field.value.starts_with("0x") {
            sets.mask(&field.value)
        } else {
            sets.list(&field.value)
        };
        pcpus.map_err(|why| Defect::new(field.line, &field.value, why))
    };
    let mut set = |list: &str, mask: &str| -> Result<Option<PcpuSet>, Defect> {
        let mut named = fields.iter().filter(|field| field.name == list || field.name == mask);
        named.next().map(&mut read_set).transpose()
    };
    let online = set("On-line CPU(s) list", "On-line CPU(s) mask")?.filter(|set| !set.is_empty());
    let Some(online) = online else {
        return Err(Defect::new(None, "", "No line 'On-line CPU(s) list' names a pCPU"));
    };
    let offline = set("Off-line CPU(s) list", "Off-line CPU(s) mask")?.unwrap_or_default();
    let mut nodes: BTreeMap<u32, PcpuSet> = BTreeMap::new();
    let mut node_of: BTreeMap<u32, u32> = BTreeMap::new();
    for field in fields {
        let id = field.name.strip_prefix("NUMA node").and_then(|rest| rest.strip_suffix(" CPU(s)"));
        if let Some(id) = id.filter(|id| !id.is_empty()).and_then(number) {
            let pcpus = read_set(field)?;
            node_of.extend(pcpus.iter().map(|pcpu| (pcpu, id)));
            nodes.insert(id, pcpus);
        }
    }

    let all_are_one = |name: &str| {
        let values = all(name);
        !values.is_empty() && values.iter().all(|value| *value == "1")
    };
    let models = all("Model name");
    let (one_socket, no_threads) = (all_are_one("Socket(s)"), all_are_one("Thread(s) per core"));
    let max_khz = all("CPU max MHz");
    let max_khz = match max_khz.as_slice() {
        [mhz] if models.len() < 2 => {
            mhz.parse::<f64>().ok().map(|mhz| (mhz * 1000.0).round() as u64)
        }
        _ => None,
    };
    for id in online.union(&offline).iter() {
        let node = node_of.get(&id).copied();
        found.host.pcpus.push(if online.contains(id) {
            Pcpu {
                id,
                online: true,
                socket: one_socket.then_some(0),
                core: no_threads.then_some(id),
                node,
                max_khz,
                ..Pcpu::default()
            }
        } else {
            Pcpu { id, ..Pcpu::default() }
        });
    }
    found.host.nodes =
        nodes.into_iter().map(|(id, pcpus)| Node { id, pcpus, ..Node::default() }).collect();
    found.host.arch = first("Architecture");
    if !models.is_empty() {
        found.host.cpu_model = Some(models.join(" + "));
        found.knows(&[Facet::Model]);
    }
    found.host.virtualised = virtualised(first("Hypervisor vendor"), first("Flags"));
    found.cache_sizes = cache_sizes(fields, models.len());
    found.knows(&[Facet::Offline]);
    for (known, facet) in [
        (one_socket, Facet::Sockets),
        (no_threads, Facet::Cores),
        (!found.host.nodes.is_empty(), Facet::Nodes),
        (!found.host.nodes.is_empty(), Facet::NodePcpus),
        (!found.host.nodes.is_empty(), Facet::MemoryOnlyNodes),
        (max_khz.is_some(), Facet::MaxFrequency),
    ] {
        if known {
            found.knows(&[facet]);
        }
    }
    Ok(found)
}

fn virtualised(hypervisor: Option<String>, flags: Option<String>) -> HostVirtualisation {
    let flag = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let (is_vm, signs) = match hypervisor {
        Some(vendor) => (Some(true), vec![format!("lscpu's hypervisor vendor: {vendor}")]),
        None if flag == Some(true) => {
            (Some(true), vec!["the processor's hypervisor flag".to_owned()])
        }
        None => (flag, Vec::new()),
    };
    HostVirtualisation { is_vm, signs, ..HostVirtualisation::default() }
}

/// Sizes from lines like `L2 cache: 6 MiB (12 instances)`, of all instances
/// together. Without the count the number may mean one or all, depending on
/// the version; on a machine with several kinds of core the sizes differ.
fn cache_sizes(fields: &[SummaryField], models: usize) -> CacheSizes {
    let mut sizes = CacheSizes::new();
    if models > 1 {
        return sizes;
    }
    for field in fields {
        let cache = field.name.strip_suffix(" cache");
        let Some(cache) = cache.and_then(|name| cache_of(&name.to_ascii_lowercase())) else {
            continue;
        };
        let Some(size) = one_instance(&field.value) else {
            continue;
        };
        sizes.insert(cache, size);
    }
    sizes
}

/// The size of one of several caches. lscpu rounds the sum to one decimal: a
/// size that is no whole number of KiB was rounded away.
fn one_instance(text: &str) -> Option<u64> {
    let (sum, count) = text.split_once('(')?;
    let count = u64::from(number(count.split_whitespace().next()?)?);
    let (number, unit) = sum.trim().split_once(' ').unwrap_or((sum.trim(), "B"));
    let factor: f64 = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    let unit = count.checked_mul(1024)?;
    if !bytes.is_finite() || bytes < 1.0 || unit == 0 || bytes % unit as f64 != 0.0 {
        return None;
    }
    Some(bytes as u64 / count)
}
