//! libvirt's capabilities: `virsh capabilities`.
//!
//! Source: libvirt, "Driver capabilities XML format".

use std::collections::BTreeMap;

use roxmltree::Node as Element;

use super::cores::name_cores;
use super::sets::{Sets, pcpu};
use super::{Defect, Description, Facet, sum_of_nodes, sum_of_pools, xml};
use crate::{Cache, CacheKind, HugePagePool, Node, Pcpu, PcpuSet, bytes};

pub(super) fn read(text: &str, sets: &mut Sets) -> Result<Description, Defect> {
    let document = xml::parse(text)?;
    let root = document.root_element();
    let host = child(root, "host")
        .ok_or_else(|| Defect::new(xml::line(root), "", "There is no <host> inside"))?;
    let mut found = Description::default();
    if let Some(processor) = child(host, "cpu") {
        let text = |name| child(processor, name)?.text().map(|text| text.trim().to_owned());
        found.host.arch = text("arch");
        if let Some(model) = text("model") {
            // libvirt names the nearest of its own models: a guess.
            found.host.warnings.push(format!(
                "The processor's name is not told; libvirt's nearest model is {model}"
            ));
        }
    }
    let cells = child(host, "topology").and_then(|topology| child(topology, "cells"));
    let cells: Vec<Element> =
        cells.iter().flat_map(|cells| xml::children(*cells, "cell")).collect();
    let mut siblings: BTreeMap<u32, u32> = BTreeMap::new();
    for cell in &cells {
        read_cell(*cell, &mut found, &mut siblings, sets)?;
    }
    if found.host.pcpus.is_empty() {
        let why = "libvirt shows no pCPUs here (it reads none on a machine without NUMA)";
        return Err(Defect::new(xml::line(host), "<cells>", why));
    }
    found.host.pcpus.sort_by_key(|pcpu| pcpu.id);
    if let Some(pair) = found.host.pcpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Defect::new(None, &pair[0].id.to_string(), "This pCPU is there twice"));
    }
    found.host.nodes.sort_by_key(|node| node.id);
    if let Some(pair) = found.host.nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Defect::new(None, &pair[0].id.to_string(), "This cell is there twice"));
    }
    found.host.memory_bytes = sum_of_nodes(&found.host.nodes);
    found.host.huge_pages = sum_of_pools(&found.host.nodes);
    if !siblings.is_empty() {
        found.knows(&[Facet::Cores]);
        name_cores(&mut found.host, &siblings);
    }
    let online = found.host.online();
    for bank in child(host, "cache").iter().flat_map(|cache| xml::children(*cache, "bank")) {
        read_bank(bank, &online, &mut found, sets)?;
    }
    read_guests(root, &mut found);
    found.knows(&[Facet::Nodes, Facet::NodePcpus, Facet::MemoryOnlyNodes]);
    Ok(found)
}

fn child<'a, 'input: 'a>(
    element: Element<'a, 'input>,
    name: &'static str,
) -> Option<Element<'a, 'input>> {
    xml::children(element, name).next()
}

fn read_cell(
    cell: Element,
    found: &mut Description,
    siblings: &mut BTreeMap<u32, u32>,
    sets: &mut Sets,
) -> Result<(), Defect> {
    let id: u32 = xml::number(cell, "id")?
        .ok_or_else(|| xml::fault(cell, "id", "A cell without a number"))?;
    let mut node = Node { id, ..Node::default() };
    if let Some(memory) = child(cell, "memory") {
        node.memory_bytes = Some(amount(memory)?);
        found.knows(&[Facet::NodeMemory]);
    }
    for pages in xml::children(cell, "pages") {
        let unit = unit(pages)?;
        let size: Option<u64> = xml::number(pages, "size")?;
        let page_bytes = size.and_then(|size| size.checked_mul(unit));
        let page_bytes = page_bytes.ok_or_else(|| xml::fault(pages, "size", "Not a size"))?;
        let total = count(pages)?;
        node.huge_pages.push(HugePagePool { page_bytes, total, free: total });
    }
    if !node.huge_pages.is_empty() {
        // The smallest are ordinary pages.
        node.huge_pages.sort_by_key(|pool| pool.page_bytes);
        node.huge_pages.remove(0);
        found.knows(&[Facet::HugePages]);
    }
    for sibling in child(cell, "distances").iter().flat_map(|all| xml::children(*all, "sibling")) {
        if let (Some(to), Some(cost)) =
            (xml::number(sibling, "id")?, xml::number(sibling, "value")?)
        {
            node.distances.insert(to, cost);
            found.knows(&[Facet::Distances]);
        }
    }
    for element in child(cell, "cpus").iter().flat_map(|all| xml::children(*all, "cpu")) {
        let id = element
            .attribute("id")
            .and_then(pcpu)
            .ok_or_else(|| xml::fault(element, "id", "Not the number of a pCPU"))?;
        let place = Pcpu {
            id,
            online: true,
            socket: xml::number(element, "socket_id")?,
            die: xml::number(element, "die_id")?,
            cluster: xml::number(element, "cluster_id")?,
            core: xml::number(element, "core_id")?,
            node: Some(node.id),
            ..Pcpu::default()
        };
        for (told, facet) in [
            (place.socket.is_some(), Facet::Sockets),
            (place.die.is_some(), Facet::Dies),
            (place.cluster.is_some(), Facet::Clusters),
        ] {
            if told {
                found.knows(&[facet]);
            }
        }
        if let Some(list) = element.attribute("siblings") {
            let list: PcpuSet =
                sets.list(list).map_err(|why| xml::fault(element, "siblings", why))?;
            siblings.insert(id, list.first().unwrap_or(id));
        }
        node.pcpus.insert(id);
        found.host.pcpus.push(place);
    }
    found.host.nodes.push(node);
    Ok(())
}

fn read_bank(
    bank: Element,
    online: &PcpuSet,
    found: &mut Description,
    sets: &mut Sets,
) -> Result<(), Defect> {
    let level = xml::number(bank, "level")?;
    let pcpus = bank.attribute("cpus").unwrap_or_default();
    let pcpus = sets.list(pcpus).map_err(|why| xml::fault(bank, "cpus", why))?;
    let pcpus = pcpus.intersection(online);
    let Some(level) = level.filter(|_| !pcpus.is_empty()) else {
        return Ok(());
    };
    let kind = match bank.attribute("type") {
        Some("both") => CacheKind::Unified,
        Some("data") => CacheKind::Data,
        Some("code") => CacheKind::Instruction,
        _ => return Err(xml::fault(bank, "type", "Neither both, data nor code")),
    };
    let unit = unit(bank)?;
    let size: Option<u64> = xml::number(bank, "size")?;
    let size_bytes = size.and_then(|size| size.checked_mul(unit)).filter(|size| *size > 0);
    found.knows(&[Facet::Caches]);
    if size_bytes.is_some() {
        found.knows(&[Facet::CacheSizes]);
    }
    found.host.caches.push(Cache { level, kind, size_bytes, pcpus });
    Ok(())
}

/// A guest of type `kvm` is offered where libvirt found `/dev/kvm`.
fn read_guests(root: Element, found: &mut Description) {
    let offers_kvm = xml::children(root, "guest")
        .flat_map(|guest| xml::children(guest, "arch"))
        .flat_map(|arch| xml::children(arch, "domain"))
        .any(|domain| domain.attribute("type") == Some("kvm"));
    if offers_kvm {
        found.host.kvm.device = Some(true);
    }
}

/// An amount of memory with its unit; KiB without one.
fn amount(element: Element) -> Result<u64, Defect> {
    let unit = unit(element)?;
    count(element)?.checked_mul(unit).ok_or_else(|| {
        Defect::new(xml::line(element), element.text().unwrap_or_default(), "Too much")
    })
}

fn count(element: Element) -> Result<u64, Defect> {
    let text = element.text().unwrap_or_default();
    text.trim().parse().map_err(|_| Defect::new(xml::line(element), text, "Not a number"))
}

fn unit(element: Element) -> Result<u64, Defect> {
    bytes::libvirt_unit(element.attribute("unit").unwrap_or("KiB"))
        .ok_or_else(|| xml::fault(element, "unit", "Not a unit like KiB"))
}
