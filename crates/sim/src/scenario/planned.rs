//! What `vmlab plan --toml` prints of a VM beside its vCPUs, topology and pins: where its
//! memory is has meaning here, all else is read and left out.

use topology::PcpuSet;

use super::host::{self, HostPart};
use super::node::{ScenarioNode, ScenarioValue, TableReader};

/// Of `memory` and of guest nodes: how it is backed.
const BACKING: [&str; 10] = [
    "huge_pages",
    "source",
    "shared",
    "prealloc",
    "prealloc_threads",
    "locked",
    "nosharepages",
    "policy",
    "vcpus",
    "distances",
];

/// The nodes of the host that hold the VM's memory, if a plan says so; what of it has no
/// meaning here is added to `left_out`.
pub(super) fn memory_nodes(
    table: &TableReader<'_>,
    host: &HostPart,
    left_out: &mut Vec<&'static str>,
) -> Option<Vec<u32>> {
    let machine = host.known.then_some(&host.machine);
    if table.get("memory_mib").is_some() {
        table.whole("memory_mib", 1, 1, 1 << 40);
        left_out.push("memory_mib");
    }
    if table.get("iothreads").is_some() {
        table.whole("iothreads", 0, 0, 1_000);
        left_out.push("iothreads");
    }
    for key in ["emulator_pin", "vhost_pin"] {
        if let Some((text, line)) = table.text(key) {
            host::pcpus(table, key, text, line, machine);
            left_out.push(key);
        }
    }
    if let Some(node) = table.get("iothread_pins") {
        match &node.value {
            ScenarioValue::Table(_) | ScenarioValue::List(_) => left_out.push("iothread_pins"),
            _ => table.wrong("iothread_pins", node, "must be a table by iothread, or a list"),
        }
    }
    let mut nodes = None;
    let guest_nodes = table.tables("numa");
    let memory = table.get("memory").map(|_| table.table("memory"));
    let (numa, backing) = (!guest_nodes.is_empty(), memory.is_some());
    for part in guest_nodes.into_iter().chain(memory) {
        if let Some(node) = part.get("host_nodes") {
            nodes.get_or_insert_with(Vec::new).extend(of_host(&part, host, node));
        }
        let told: Vec<_> = BACKING.iter().filter(|key| part.get(key).is_some()).collect();
        if part.get("memory_mib").is_some() {
            part.whole("memory_mib", 0, 0, 1 << 40);
        }
        if backing && !told.is_empty() {
            left_out.push("how memory is backed");
        }
        part.finish();
    }
    if numa {
        left_out.push("the guest's nodes");
    }
    left_out.dedup();
    if let Some(nodes) = &mut nodes {
        nodes.sort_unstable();
        nodes.dedup();
    }
    nodes
}

fn of_host(part: &TableReader<'_>, host: &HostPart, node: &ScenarioNode) -> Vec<u32> {
    let set = match &node.value {
        ScenarioValue::Text(text) => text.parse::<PcpuSet>().ok(),
        _ => None,
    };
    let Some(set) = set.filter(|set| !set.is_empty()) else {
        part.wrong("host_nodes", node, "must be nodes, as \"0\" or \"0-1\"");
        return Vec::new();
    };
    let most = host.machine.nodes();
    if host.known && set.iter().any(|number| number >= most) {
        let must = format!("the host has the nodes 0 to {}", most.saturating_sub(1));
        part.wrong("host_nodes", node, &must);
        return Vec::new();
    }
    set.iter().collect()
}
