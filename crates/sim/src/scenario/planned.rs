//! What `vmlab plan --toml` prints of a VM beside its vCPUs, topology and pins: where its
//! memory is has meaning here, all else is read and left out.
//!
//! The keys and what they take are `vmconfig`'s; only where they have a meaning here, or
//! name what the host must have, are they looked at one by one.

use toml::{Table, Value};
use topology::PcpuSet;
use vmconfig::{GuestNode, InvalidVm, MemoryBacking, VmPatch, keys_of};

use super::host::{self, HostPart};
use super::node::{ScenarioNode, ScenarioValue, TableReader};

/// Keys of a VM that have a meaning of their own in a scenario.
const OWN: [&str; 5] = ["vcpus", "topology", "pins", "scheduler", "kernel"];

/// The nodes of the host that hold the VM's memory, if a plan says so; what of it has no
/// meaning here is added to `left_out`.
pub(super) fn memory_nodes(
    table: &TableReader<'_>,
    host: &HostPart,
    left_out: &mut Vec<&'static str>,
) -> Option<Vec<u32>> {
    let machine = host.known.then_some(&host.machine);
    let mut nodes = None;
    for key in keys_of::<VmPatch>().iter().copied().filter(|key| !OWN.contains(key)) {
        let Some(node) = table.get(key) else { continue };
        let before = table.problems().borrow().len();
        match key {
            "emulator_pin" | "vhost_pin" => {
                if let Some((text, line)) = table.text(key) {
                    host::pcpus(table, key, text, line, machine);
                }
            }
            "numa" => {
                for part in table.tables(key) {
                    take_nodes(part, keys_of::<GuestNode>(), host, &mut nodes);
                }
            }
            "memory" => {
                take_nodes(table.table(key), keys_of::<MemoryBacking>(), host, &mut nodes);
            }
            _ => {}
        }
        if table.problems().borrow().len() == before {
            check(table, key, node);
        }
        match key {
            "numa" => left_out.push("the guest's nodes"),
            "memory" if is_only(node, "host_nodes") => {}
            "memory" => left_out.push("how memory is backed"),
            key => left_out.push(key),
        }
    }
    if let Some(nodes) = &mut nodes {
        nodes.sort_unstable();
        nodes.dedup();
    }
    nodes
}

/// Whether a table has no other key.
fn is_only(node: &ScenarioNode, key: &str) -> bool {
    matches!(&node.value, ScenarioValue::Table(keys) if keys.keys().all(|one| one == key))
}

/// Takes the host's nodes of a table in which all of `keys` are known.
fn take_nodes(
    part: TableReader<'_>,
    keys: &'static [&'static str],
    host: &HostPart,
    nodes: &mut Option<Vec<u32>>,
) {
    for key in keys {
        let node = part.get(key);
        if let Some(node) = node.filter(|_| *key == "host_nodes") {
            nodes.get_or_insert_with(Vec::new).extend(of_host(&part, host, node));
        }
    }
    part.finish();
}

/// Tells what a VM's own reader finds wrong with a key.
fn check(table: &TableReader<'_>, key: &'static str, node: &ScenarioNode) {
    let alone = Table::from_iter([(key.to_owned(), value_of(node))]);
    match Value::Table(alone).try_into::<VmPatch>() {
        Err(error) => table.wrong(key, node, error.message().lines().next().unwrap_or_default()),
        Ok(VmPatch { memory_mib: Some(mib), .. }) => {
            if let Err(error) = InvalidVm::check_memory(mib) {
                table.problem(node.line, error.to_string());
            }
        }
        Ok(_) => {}
    }
}

fn value_of(node: &ScenarioNode) -> Value {
    match &node.value {
        ScenarioValue::Bool(value) => Value::Boolean(*value),
        ScenarioValue::Integer(value) => Value::Integer(*value),
        ScenarioValue::Float(value) => Value::Float(*value),
        ScenarioValue::Text(text) | ScenarioValue::Other(text) => Value::String(text.clone()),
        ScenarioValue::List(items) => Value::Array(items.iter().map(value_of).collect()),
        ScenarioValue::Table(keys) => {
            Value::Table(keys.iter().map(|(key, node)| (key.clone(), value_of(node))).collect())
        }
    }
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
