//! What `numactl -H` prints.
//!
//! Source: numactl(8), `--hardware`.

use std::collections::BTreeMap;

use super::sets::{number, pcpu};
use super::{Defect, Description, Facet};
use crate::{Node, Pcpu};

/// numactl prints memory in MB and means MiB.
const MIB: u64 = 1 << 20;

pub(super) fn read(text: &str) -> Result<Description, Defect> {
    let mut nodes: BTreeMap<u32, Node> = BTreeMap::new();
    let mut pcpus: BTreeMap<u32, u32> = BTreeMap::new();
    // The nodes that the columns of the matrix stand for.
    let mut columns: Vec<u32> = Vec::new();
    let mut found = Description::default();
    for (at, text) in text.lines().enumerate() {
        let fault = |why: &str| Defect::new(at + 1, text, why);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["node", id, "cpus:", members @ ..] => {
                let id = number(id).ok_or_else(|| fault("Not the number of a node"))?;
                let node = nodes.entry(id).or_default();
                node.id = id;
                for member in members {
                    let member = pcpu(member).ok_or_else(|| fault("Not a list of pCPUs"))?;
                    node.pcpus.insert(member);
                    if pcpus.insert(member, id).is_some_and(|before| before != id) {
                        return Err(fault("A pCPU of this node is in another one, too"));
                    }
                }
                found.knows(&[Facet::Nodes, Facet::NodePcpus, Facet::MemoryOnlyNodes]);
            }
            ["node", id, what @ ("size:" | "free:"), amount @ ..] => {
                let id = number(id).ok_or_else(|| fault("Not the number of a node"))?;
                // "<not available>" stands where the kernel does not tell.
                if amount.first().is_some_and(|word| word.starts_with(['<', '-'])) {
                    continue;
                }
                let [mib, "MB"] = amount else {
                    return Err(fault("Not an amount of memory in MB"));
                };
                let mib = number(mib).ok_or_else(|| fault("Not an amount of memory in MB"))?;
                let node = nodes.entry(id).or_default();
                node.id = id;
                let bytes = Some(u64::from(mib) * MIB);
                if *what == "size:" {
                    node.memory_bytes = bytes;
                    found.knows(&[Facet::NodeMemory]);
                } else {
                    node.free_bytes = bytes;
                    found.knows(&[Facet::FreeMemory]);
                }
            }
            ["node", "distances:"] | [] => {}
            ["node", ids @ ..] => {
                let ids: Option<Vec<u32>> = ids.iter().map(|id| number(id)).collect();
                columns = ids.ok_or_else(|| fault("Not the numbers of nodes"))?;
            }
            [id, costs @ ..] if id.ends_with(':') && number(id.trim_end_matches(':')).is_some() => {
                let id = number(id.trim_end_matches(':')).unwrap_or_default();
                let costs: Option<Vec<u32>> = costs.iter().map(|cost| number(cost)).collect();
                let costs = costs
                    .filter(|costs| costs.len() == columns.len())
                    .ok_or_else(|| fault("Not one distance for each node"))?;
                let node = nodes.get_mut(&id).ok_or_else(|| fault("No such node is listed"))?;
                node.distances = columns.iter().copied().zip(costs).collect();
                found.knows(&[Facet::Distances]);
            }
            // "available: 2 nodes (0-1)", and what newer versions may add.
            _ => {}
        }
    }
    if pcpus.is_empty() {
        let (line, text) = super::first_line(text);
        return Err(Defect::new(line, text, "No node with pCPUs is listed"));
    }
    found.host.pcpus = pcpus
        .into_iter()
        .map(|(id, node)| Pcpu { id, online: true, node: Some(node), ..Pcpu::default() })
        .collect();
    found.host.nodes = nodes.into_values().collect();
    found.host.memory_bytes = super::sum_of_nodes(&found.host.nodes);
    Ok(found)
}
