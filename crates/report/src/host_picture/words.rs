//! The words that both drawings use.

use topology::{CoreKind, Host, PcpuGroup, PcpuSet, TopologyLevel};

pub(super) use crate::quantity::counted;
pub(super) use topology::bytes::rounded as bytes;

/// The heading of a group's box.
pub(super) fn title(host: &Host, group: &PcpuGroup) -> String {
    let numbered = |what: &str| match group.id {
        Some(id) => format!("{what} {id}"),
        None => format!("{what} unknown"),
    };
    match group.level {
        TopologyLevel::Socket => numbered("socket"),
        TopologyLevel::Node => match group.id.and_then(|id| host.node(id)?.memory_bytes) {
            Some(size) => format!("{} · {}", numbered("node"), bytes(size)),
            None => numbered("node"),
        },
        TopologyLevel::Die => numbered("die"),
        TopologyLevel::Cache(level) => {
            let cache = group.pcpus.first().and_then(|pcpu| host.last_level_cache(pcpu));
            let size = cache.and_then(|cache| cache.size_bytes);
            let size = size.map_or(String::new(), |size| format!(" {}", bytes(size)));
            let beyond = cache.map(|cache| cache.pcpus.difference(&group.pcpus));
            let beyond = match beyond {
                Some(beyond) if !beyond.is_empty() => format!(", also of {beyond}"),
                _ => String::new(),
            };
            format!("L{level}{size}{beyond}")
        }
        TopologyLevel::Cluster => numbered("cluster"),
        TopologyLevel::Core => numbered("core"),
    }
}

/// What a core is, if the host's cores differ.
pub(super) fn kind(host: &Host, core: &PcpuGroup) -> Option<CoreKind> {
    host.pcpu(core.pcpus.first()?)?.kind
}

/// Whether a core is smaller than the host's big ones.
pub(super) fn is_small(host: &Host, core: &PcpuGroup) -> bool {
    matches!(kind(host, core), Some(CoreKind::Efficiency | CoreKind::LowPower))
}

/// Nodes that hold no online pCPU: `node 2: 64 GiB, no pCPUs`.
pub(super) fn nodes_without_pcpus(host: &Host) -> Vec<String> {
    host.nodes
        .iter()
        .filter(|node| node.pcpus.is_empty())
        .map(|node| {
            let memory = match node.memory_bytes {
                Some(0) => "no memory".to_owned(),
                Some(size) => bytes(size),
                None => "memory unknown".to_owned(),
            };
            format!("node {}: {memory}, no pCPUs", node.id)
        })
        .collect()
}

/// pCPUs of the group that the kernel keeps out of general scheduling.
pub(super) fn isolated(host: &Host, pcpus: &PcpuSet) -> PcpuSet {
    host.isolated.as_ref().map_or_else(PcpuSet::new, |isolated| isolated.intersection(pcpus))
}

/// Name, architecture, kernel, processor.
pub(super) fn headline(host: &Host) -> String {
    let kernel = host.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    let parts: Vec<&str> = [
        host.hostname.as_deref(),
        host.cpu_model.as_deref(),
        host.arch.as_deref(),
        kernel.as_deref(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { "A host".to_owned() } else { parts.join(" · ") }
}

/// How many of each thing: `32 pCPUs in 16 cores, 2 sockets, 2 nodes`.
pub(super) fn summary(host: &Host) -> String {
    let sockets = host.nesting();
    let cores: usize = sockets.iter().map(|socket| socket.cores().len()).sum();
    let offline = match host.offline().len() {
        0 => String::new(),
        count => format!(" ({count} more offline)"),
    };
    let mut text = format!(
        "{}{offline} in {}, {}",
        counted(host.online().len(), "pCPU"),
        counted(cores, "core"),
        counted(sockets.len(), "socket"),
    );
    if !host.nodes.is_empty() {
        text.push_str(&format!(", {}", counted(host.nodes.len(), "node")));
    }
    if let Some(size) = host.memory_bytes {
        text.push_str(&format!(", {} of memory", bytes(size)));
    }
    if host.virtualised.is_vm == Some(true) {
        text.push_str(match host.virtualised.emulator {
            Some(_) => "; emulated",
            None => "; itself a virtual machine",
        });
    }
    text
}
