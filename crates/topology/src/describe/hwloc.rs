//! hwloc XML, versions 1 and 2: `lstopo --of xml`.
//!
//! Objects lie inside each other as they do in the machine. Version 1 nests
//! nodes too; version 2 hangs them beside the object whose pCPUs they serve,
//! so a node without pCPUs looks like one with its neighbour's.
//!
//! Source: hwloc, `hwloc.dtd`, `hwloc2.dtd` and "Importing and exporting
//! topologies from/to XML files".

use std::collections::BTreeMap;

use roxmltree::Node as Element;

use super::cores::name_cores;
use super::sets::{Sets, number, pcpu};
use super::{Defect, Description, Facet, sum_of_nodes, xml};
use crate::{Cache, CacheKind, CoreKind, HugePagePool, Node, Pcpu, PcpuSet, sysfs};

/// `HWLOC_DISTANCES_KIND_MEANS_LATENCY`.
const MEANS_LATENCY: u32 = 4;

pub(super) fn read(text: &str, sets: &mut Sets) -> Result<Description, Defect> {
    let document = xml::parse(text)?;
    let root = document.root_element();
    let machine = xml::children(root, "object")
        .next()
        .ok_or_else(|| Defect::new(xml::line(root), "", "This topology has no objects"))?;
    let mut walk = HwlocWalk {
        online: set(sets, machine, "online_cpuset")?,
        sets,
        found: Description::default(),
        cores: BTreeMap::new(),
        sockets: 0,
    };
    walk.object(machine, ObjectLocation::default())?;
    let HwlocWalk { mut found, cores, .. } = walk;
    if !found.host.pcpus.iter().any(|pcpu| pcpu.online) {
        return Err(Defect::new(xml::line(machine), "", "No object of type PU has a number"));
    }
    found.host.pcpus.sort_by_key(|pcpu| pcpu.id);
    if let Some(pair) = found.host.pcpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Defect::new(
            None,
            &pair[0].id.to_string(),
            "A PU with this number is there twice",
        ));
    }
    read_offline(machine, &mut found, sets)?;
    if !cores.is_empty() {
        found.knows(&[Facet::Cores]);
        name_cores(&mut found.host, &cores);
    }
    found.host.nodes.sort_by_key(|node| node.id);
    if let Some(pair) = found.host.nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Defect::new(
            None,
            &pair[0].id.to_string(),
            "A node with this number is there twice",
        ));
    }
    assign_nodes(&mut found);
    read_distances(root, machine, &mut found)?;
    read_kinds(root, &mut found, sets)?;
    if root.attribute("version").is_some_and(|version| !version.starts_with('1')) {
        found.knows(&[Facet::Dies]);
    }
    let online = found.host.online();
    for cache in &mut found.host.caches {
        cache.pcpus = cache.pcpus.intersection(&online);
    }
    found.host.caches.retain(|cache| !cache.pcpus.is_empty());
    Ok(found)
}

/// Where an object lies.
#[derive(Clone, Copy, Default)]
struct ObjectLocation {
    socket: Option<u32>,
    die: Option<u32>,
    cluster: Option<u32>,
    core: Option<u32>,
    /// The line and column of the core's element: one for each core.
    core_at: Option<usize>,
}

struct HwlocWalk<'a> {
    sets: &'a mut Sets,
    /// Version 1 lists pCPUs that are switched off and says so here.
    online: Option<PcpuSet>,
    found: Description,
    /// The core's element around each pCPU.
    cores: BTreeMap<u32, usize>,
    sockets: u32,
}

impl HwlocWalk<'_> {
    fn object(&mut self, element: Element, mut place: ObjectLocation) -> Result<(), Defect> {
        let kind = element.attribute("type").unwrap_or_default();
        let id: Option<u32> = match element.attribute("os_index") {
            // "Unknown" is written as the highest number.
            Some(text) => {
                Some(number(text).ok_or_else(|| xml::fault(element, "os_index", "Not a number"))?)
            }
            None => None,
        }
        .filter(|id| *id != u32::MAX);
        match kind {
            "Machine" => self.infos(element),
            "Package" | "Socket" => {
                place.socket = Some(id.unwrap_or(self.sockets));
                self.sockets += 1;
                self.found.knows(&[Facet::Sockets]);
                self.infos(element);
            }
            "Die" => self.die(&mut place, id),
            "Group" => match element.attribute("subtype").or_else(|| info(element, "Type")) {
                Some("Die") => self.die(&mut place, id),
                Some("Cluster") => {
                    place.cluster = id;
                    self.found.knows(&[Facet::Clusters]);
                }
                _ => {}
            },
            "Core" => {
                place.core = id;
                place.core_at = Some(element.range().start);
            }
            "PU" => self.pcpu(element, place)?,
            "NUMANode" => self.node(element, id)?,
            _ if kind.ends_with("Cache") => self.cache(element)?,
            // Devices have no pCPUs.
            "Bridge" | "PCIDev" | "OSDev" | "Misc" => return Ok(()),
            _ => {}
        }
        for child in xml::children(element, "object") {
            self.object(child, place)?;
        }
        Ok(())
    }

    fn die(&mut self, place: &mut ObjectLocation, id: Option<u32>) {
        place.die = id;
        self.found.knows(&[Facet::Dies]);
    }

    fn infos(&mut self, element: Element) {
        let host = &mut self.found.host;
        for (field, name) in [
            (&mut host.hostname, "HostName"),
            (&mut host.kernel, "OSRelease"),
            (&mut host.arch, "Architecture"),
            (&mut host.cpu_model, "CPUModel"),
        ] {
            if field.is_none() {
                *field = info(element, name).map(|text| text.trim().to_owned());
            }
        }
        if host.cpu_model.is_some() {
            self.found.knows(&[Facet::Model]);
        }
    }

    fn pcpu(&mut self, element: Element, place: ObjectLocation) -> Result<(), Defect> {
        let id = element
            .attribute("os_index")
            .and_then(pcpu)
            .ok_or_else(|| xml::fault(element, "os_index", "A PU without the number of a pCPU"))?;
        if self.online.as_ref().is_some_and(|online| !online.contains(id)) {
            self.found.host.pcpus.push(Pcpu { id, ..Pcpu::default() });
            return Ok(());
        }
        if let Some(core) = place.core_at {
            self.cores.insert(id, core);
        }
        self.found.host.pcpus.push(Pcpu {
            id,
            online: true,
            socket: place.socket,
            die: place.die,
            cluster: place.cluster,
            // Numbered by position if the core has no number of its own.
            core: place.core.or(place.core_at.map(|_| 0)),
            ..Pcpu::default()
        });
        Ok(())
    }

    fn node(&mut self, element: Element, id: Option<u32>) -> Result<(), Defect> {
        let id = id.ok_or_else(|| xml::fault(element, "os_index", "A node without a number"))?;
        let pcpus = set(self.sets, element, "cpuset")?.unwrap_or_default();
        let memory_bytes = xml::number(element, "local_memory")?;
        let mut pools = Vec::new();
        for pages in xml::children(element, "page_type") {
            let size: Option<u64> = xml::number(pages, "size")?;
            let count: Option<u64> = xml::number(pages, "count")?;
            if let (Some(page_bytes), Some(total)) = (size, count) {
                pools.push(HugePagePool { page_bytes, total, free: total });
            }
        }
        pools.sort_by_key(|pool| pool.page_bytes);
        self.found.knows(&[Facet::Nodes, Facet::MemoryOnlyNodes]);
        if memory_bytes.is_some() {
            self.found.knows(&[Facet::NodeMemory]);
        }
        if !pools.is_empty() {
            // The smallest are ordinary pages.
            pools.remove(0);
            self.found.knows(&[Facet::HugePages]);
        }
        let node = Node { id, pcpus, memory_bytes, huge_pages: pools, ..Node::default() };
        self.found.host.nodes.push(node);
        Ok(())
    }

    fn cache(&mut self, element: Element) -> Result<(), Defect> {
        // A cache in front of memory has no level among the pCPUs' caches.
        if element.attribute("type") == Some("MemCache") {
            return Ok(());
        }
        let pcpus = set(self.sets, element, "cpuset")?;
        let (Some(level), Some(pcpus)) = (xml::number(element, "depth")?, pcpus) else {
            return Ok(());
        };
        let kind = match element.attribute("cache_type") {
            None | Some("0" | "-1") => CacheKind::Unified,
            Some("1") => CacheKind::Data,
            Some("2") => CacheKind::Instruction,
            Some(_) => return Err(xml::fault(element, "cache_type", "Neither 0, 1 nor 2")),
        };
        let size_bytes = xml::number(element, "cache_size")?.filter(|size| *size > 0);
        self.found.knows(&[Facet::Caches, Facet::InnerCaches]);
        if size_bytes.is_some() {
            self.found.knows(&[Facet::CacheSizes]);
        }
        self.found.host.caches.push(Cache { level, kind, size_bytes, pcpus });
        Ok(())
    }
}

fn info<'a>(element: Element<'a, '_>, name: &str) -> Option<&'a str> {
    xml::children(element, "info")
        .find(|info| info.attribute("name") == Some(name))?
        .attribute("value")
}

/// A mask; `None` where there is none or where it has no end (`0xf...f`).
fn set(sets: &mut Sets, element: Element, attribute: &str) -> Result<Option<PcpuSet>, Defect> {
    element
        .attribute(attribute)
        .filter(|text| !text.contains("..."))
        .map(|text| sets.mask(text).map_err(|why| xml::fault(element, attribute, why)))
        .transpose()
}

/// The complete set of pCPUs names more than the tree does.
fn read_offline(machine: Element, found: &mut Description, sets: &mut Sets) -> Result<(), Defect> {
    let complete = set(sets, machine, "complete_cpuset")?;
    if complete.is_some() {
        found.knows(&[Facet::Offline]);
    }
    let complete = complete.unwrap_or_default();
    let host = &mut found.host;
    let listed = host.select(|_| true);
    let hidden = complete.difference(&listed);
    if !hidden.is_empty() {
        host.warnings.push(format!(
            "pCPUs {hidden} are switched off, or lstopo was not allowed to use them: they count as switched off"
        ));
        host.pcpus.extend(hidden.iter().map(|id| Pcpu { id, ..Pcpu::default() }));
        host.pcpus.sort_by_key(|pcpu| pcpu.id);
    }
    if let Some(allowed) = set(sets, machine, "allowed_cpuset")? {
        host.allowed = Some(allowed.intersection(&host.online()));
    }
    Ok(())
}

/// Gives each pCPU its node. Where several claim it, the one with the fewest
/// pCPUs is its own, the lowest number among those.
fn assign_nodes(found: &mut Description) {
    let mut owner: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    let mut shared = PcpuSet::new();
    for node in &found.host.nodes {
        let claim = (node.pcpus.len(), node.id);
        for id in node.pcpus.iter() {
            owner
                .entry(id)
                .and_modify(|known| {
                    shared.insert(id);
                    *known = claim.min(*known);
                })
                .or_insert(claim);
        }
    }
    for pcpu in found.host.pcpus.iter_mut().filter(|pcpu| pcpu.online) {
        pcpu.node = owner.get(&pcpu.id).map(|(_, node)| *node);
    }
    let mut members: BTreeMap<u32, PcpuSet> = BTreeMap::new();
    for pcpu in &found.host.pcpus {
        if let Some(node) = pcpu.node {
            members.entry(node).or_default().insert(pcpu.id);
        }
    }
    for node in &mut found.host.nodes {
        node.pcpus = members.remove(&node.id).unwrap_or_default();
    }
    if shared.is_empty() {
        found.knows(&[Facet::NodePcpus]);
    } else {
        let without: PcpuSet = found
            .host
            .nodes
            .iter()
            .filter(|node| node.pcpus.is_empty())
            .map(|node| node.id)
            .collect();
        found.host.warnings.push(format!(
            "Several nodes serve pCPUs {shared}; taken for memory without pCPUs: node {without}"
        ));
    }
    found.host.memory_bytes = sum_of_nodes(&found.host.nodes);
    found.host.huge_pages = super::sum_of_pools(&found.host.nodes);
}

fn read_distances(root: Element, machine: Element, found: &mut Description) -> Result<(), Defect> {
    for matrix in xml::children(root, "distances2") {
        let kind: u32 = xml::number(matrix, "kind")?.unwrap_or(MEANS_LATENCY);
        if matrix.attribute("type") != Some("NUMANode")
            || kind & MEANS_LATENCY == 0
            || matrix.attribute("indexing").is_some_and(|indexing| indexing != "os")
        {
            continue;
        }
        let ids = numbers(matrix, "indexes")?;
        let costs = numbers(matrix, "u64values")?;
        set_distances(matrix, &ids, &costs, found)?;
    }
    // Version 1 orders the nodes as they stand in the document.
    let nodes = machine
        .descendants()
        .filter(|element| element.attribute("type") == Some("NUMANode"))
        .filter_map(|element| element.attribute("os_index").and_then(number));
    let ids: Vec<u32> = nodes.collect();
    for matrix in xml::children(machine, "distances") {
        let base: f64 = xml::number(matrix, "latency_base")?.unwrap_or(1.0);
        if xml::number::<usize>(matrix, "nbobjs")? != Some(ids.len()) {
            continue;
        }
        let mut costs = Vec::new();
        for latency in xml::children(matrix, "latency") {
            let cost: f64 = xml::number(latency, "value")?.unwrap_or(0.0);
            costs.push((cost * base).round() as u32);
        }
        set_distances(matrix, &ids, &costs, found)?;
    }
    Ok(())
}

/// The numbers in all elements of this name together.
fn numbers(matrix: Element, name: &'static str) -> Result<Vec<u32>, Defect> {
    let mut numbers = Vec::new();
    for element in xml::children(matrix, name) {
        for word in element.text().unwrap_or_default().split_whitespace() {
            let number = number(word);
            numbers
                .push(number.ok_or_else(|| Defect::new(xml::line(element), word, "Not a number"))?);
        }
    }
    Ok(numbers)
}

fn set_distances(
    matrix: Element,
    ids: &[u32],
    costs: &[u32],
    found: &mut Description,
) -> Result<(), Defect> {
    if ids.is_empty() || ids.len().checked_mul(ids.len()) != Some(costs.len()) {
        let why = format!("{} distances between {} nodes", costs.len(), ids.len());
        return Err(Defect::new(xml::line(matrix), "<distances>", why));
    }
    for (id, row) in ids.iter().zip(costs.chunks(ids.len())) {
        if let Some(node) = found.host.nodes.iter_mut().find(|node| node.id == *id) {
            node.distances = ids.iter().copied().zip(row.iter().copied()).collect();
        }
    }
    found.knows(&[Facet::Distances]);
    Ok(())
}

/// Kinds of cores, frequencies and capacities.
fn read_kinds(root: Element, found: &mut Description, sets: &mut Sets) -> Result<(), Defect> {
    let mut kinds: BTreeMap<u32, CoreKind> = BTreeMap::new();
    let mut groups = 0usize;
    let mut told = 0usize;
    for element in xml::children(root, "cpukind") {
        let Some(pcpus) = set(sets, element, "cpuset")? else {
            continue;
        };
        groups += 1;
        let kind = match info(element, "CoreType") {
            Some("IntelCore") => Some(CoreKind::Performance),
            Some("IntelAtom") => Some(CoreKind::Efficiency),
            _ => None,
        };
        let mhz: Option<u64> = info(element, "FrequencyMaxMHz").and_then(|text| text.parse().ok());
        let capacity = info(element, "LinuxCapacity").and_then(number);
        told += usize::from(kind.is_some() || capacity.is_some());
        let host = &mut found.host;
        for id in pcpus.iter() {
            let at = host.pcpus.binary_search_by_key(&id, |pcpu| pcpu.id).ok();
            let Some(pcpu) = at.map(|at| &mut host.pcpus[at]).filter(|pcpu| pcpu.online) else {
                continue;
            };
            pcpu.max_khz = mhz.map(|mhz| mhz.saturating_mul(1000));
            pcpu.capacity = capacity;
            kinds.extend(kind.map(|kind| (pcpu.id, kind)));
        }
        if mhz.is_some() {
            found.knows(&[Facet::MaxFrequency]);
        }
    }
    if kinds.is_empty() {
        kinds = sysfs::kinds_by_capacity(&found.host);
    }
    sysfs::set_kinds(&mut found.host, &kinds);
    // Groups may also differ by frequency alone.
    if groups == 1 || groups > 0 && told == groups {
        found.knows(&[Facet::Kinds]);
    }
    Ok(())
}
