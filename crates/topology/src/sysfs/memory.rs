//! Nodes, memory, huge page pools.

use std::collections::BTreeMap;

use super::reader::SysfsReader;
use crate::{Host, HugePagePool, Node, PcpuSet};

const NODES: &str = "sys/devices/system/node";

pub(super) fn read_nodes(reader: &mut SysfsReader, host: &mut Host) {
    let mut ids = reader.numbered(NODES, "node");
    if let Some(online) = reader.set(&format!("{NODES}/online"))
        && !online.is_empty()
    {
        ids.retain(|&id| online.contains(id));
    }
    if ids.is_empty() {
        reader.warn(
            "The kernel shows no memory nodes (it was built without NUMA, or a container hides them)",
        );
        return;
    }
    for &id in &ids {
        let node = read_node(reader, id, &ids);
        host.nodes.push(node);
    }
}

fn read_node(reader: &mut SysfsReader, id: u32, ids: &[u32]) -> Node {
    let folder = format!("{NODES}/node{id}");
    let pcpus = match reader.set(&format!("{folder}/cpulist")) {
        Some(pcpus) => pcpus,
        None => {
            reader.warn(format!("Node {id} does not list its pCPUs (/{folder}/cpulist)"));
            PcpuSet::new()
        }
    };
    let mut node = Node {
        id,
        pcpus,
        distances: read_distances(reader, &folder, ids),
        huge_pages: read_pools(reader, &format!("{folder}/hugepages")),
        ..Node::default()
    };
    match reader.raw(&format!("{folder}/meminfo")) {
        Some(text) => {
            // Lines read "Node 0 MemTotal:  65536 kB".
            node.memory_bytes = kib_line(&text, "MemTotal:");
            node.free_bytes = kib_line(&text, "MemFree:");
        }
        None => reader.warn("Nodes do not tell their memory (meminfo is hidden)"),
    }
    node
}

/// The kernel writes one distance for each online node, by ascending id.
fn read_distances(reader: &mut SysfsReader, folder: &str, ids: &[u32]) -> BTreeMap<u32, u32> {
    let Some(text) = reader.text(&format!("{folder}/distance")) else {
        return BTreeMap::new();
    };
    let distances: Option<Vec<u32>> =
        text.split_whitespace().map(|word| word.parse().ok()).collect();
    match distances {
        Some(distances) if distances.len() == ids.len() => {
            ids.iter().copied().zip(distances).collect()
        }
        _ => {
            reader.warn(format!(
                "/{folder}/distance does not hold one number for each of {} nodes: {text:?}",
                ids.len()
            ));
            BTreeMap::new()
        }
    }
}

/// Huge page pools below a `hugepages` folder, by page size.
fn read_pools(reader: &mut SysfsReader, folder: &str) -> Vec<HugePagePool> {
    let mut pools = Vec::new();
    for name in reader.list(folder) {
        let Some(kib) = name
            .strip_prefix("hugepages-")
            .and_then(|size| size.strip_suffix("kB"))
            .and_then(|kib| kib.parse::<u64>().ok())
        else {
            continue;
        };
        let Some(total) = reader.count(&format!("{folder}/{name}/nr_hugepages")) else {
            continue;
        };
        let free = reader.count(&format!("{folder}/{name}/free_hugepages"));
        pools.push(HugePagePool {
            page_bytes: kib.saturating_mul(1024),
            total,
            free: free.unwrap_or(0),
        });
    }
    pools.sort_by_key(|pool| pool.page_bytes);
    pools
}

pub(super) fn read_memory(reader: &mut SysfsReader, host: &mut Host) {
    match reader.raw("proc/meminfo") {
        Some(text) => {
            host.memory_bytes = kib_line(&text, "MemTotal:");
            host.available_bytes = kib_line(&text, "MemAvailable:");
        }
        None => reader.warn("Memory is unknown: /proc/meminfo cannot be read"),
    }
    host.huge_pages = read_pools(reader, "sys/kernel/mm/hugepages");
}

/// The bytes in the line of `/proc/meminfo` or a node's that holds this word.
#[must_use]
pub fn kib_line(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|&word| word != label);
        words.next()?;
        let kib: u64 = words.next()?.parse().ok()?;
        Some(kib.saturating_mul(1024))
    })
}
