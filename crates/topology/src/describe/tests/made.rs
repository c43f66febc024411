//! Machines of any shape, written as each tool would write them.

use std::fmt::Write as _;

use super::*;
use crate::{Node, Pcpu};

/// The shape of a machine; every level divides the one above evenly.
#[derive(Clone, Copy, Debug)]
struct Shape {
    sockets: u32,
    nodes_in_socket: u32,
    cores_in_node: u32,
    threads: u32,
    /// Threads of a core are neighbours in number; otherwise they lie half
    /// the machine apart.
    neighbours: bool,
    /// Numbers of cores and nodes go up by this much.
    stride: u32,
    offline: Option<u32>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let counts = (1..4u32, 1..3u32, 1..5u32, 1..5u32);
    (counts, any::<bool>(), 1..9u32, proptest::option::of(1..60u32)).prop_map(
        |((sockets, nodes_in_socket, cores_in_node, threads), neighbours, stride, offline)| Shape {
            sockets,
            nodes_in_socket,
            cores_in_node,
            threads,
            neighbours,
            stride,
            offline,
        },
    )
}

impl Shape {
    fn host(self) -> Host {
        let cores_in_socket = self.nodes_in_socket * self.cores_in_node;
        let cores = self.sockets * cores_in_socket;
        let mut host = Host::default();
        for id in 0..cores * self.threads {
            if self.offline == Some(id) {
                host.pcpus.push(Pcpu { id, ..Pcpu::default() });
                continue;
            }
            let core = if self.neighbours { id / self.threads } else { id % cores };
            host.pcpus.push(Pcpu {
                id,
                online: true,
                socket: Some(core / cores_in_socket),
                die: Some(0),
                core: Some(core % cores_in_socket * self.stride),
                node: Some(core / self.cores_in_node * self.stride),
                ..Pcpu::default()
            });
        }
        let nodes = self.sockets * self.nodes_in_socket;
        for at in 0..nodes {
            let id = at * self.stride;
            let pcpus = host.select(|pcpu| pcpu.node == Some(id));
            let distances = (0..nodes)
                .map(|to| (to * self.stride, if to == at { 10 } else { 11 + at + to }))
                .collect();
            let memory_bytes = Some(u64::from(at + 1) << 30);
            host.nodes.push(Node { id, pcpus, memory_bytes, distances, ..Node::default() });
        }
        // A node without online pCPUs is another case.
        host.nodes.retain(|node| !node.pcpus.is_empty());
        let ids: Vec<u32> = host.nodes.iter().map(|node| node.id).collect();
        for node in &mut host.nodes {
            node.distances.retain(|to, _| ids.contains(to));
        }
        for (level, kind) in
            [(1, CacheKind::Data), (1, CacheKind::Instruction), (2, CacheKind::Unified)]
        {
            for pcpus in together(&host, |pcpu| (pcpu.socket, pcpu.core)) {
                host.caches.push(Cache { level, kind, size_bytes: Some(1 << 15), pcpus });
            }
        }
        for node in &host.nodes {
            let (size_bytes, pcpus) = (Some(1 << 24), node.pcpus.clone());
            host.caches.push(Cache { level: 3, kind: CacheKind::Unified, size_bytes, pcpus });
        }
        host.caches.sort_by_key(|cache| (cache.level, cache.kind, cache.pcpus.first()));
        crate::sysfs::number_threads(&mut host);
        host
    }
}

/// The position of the cache around a pCPU among those of its level and kind.
fn cache_id(host: &Host, level: u32, kind: CacheKind, pcpu: u32) -> usize {
    let alike = host.caches.iter().filter(|cache| (cache.level, cache.kind) == (level, kind));
    alike.into_iter().position(|cache| cache.pcpus.contains(pcpu)).expect("a cache")
}

fn lscpu_rows(host: &Host, separator: &str, caches: &str) -> String {
    let mut text = String::new();
    for pcpu in &host.pcpus {
        let Some((socket, (core, node))) = pcpu.socket.zip(pcpu.core.zip(pcpu.node)) else {
            continue;
        };
        let ids = [
            (1, CacheKind::Data),
            (1, CacheKind::Instruction),
            (2, CacheKind::Unified),
            (3, CacheKind::Unified),
        ]
        .map(|(level, kind)| cache_id(host, level, kind, pcpu.id).to_string());
        let cells = [pcpu.id, node, socket, core].map(|cell| cell.to_string());
        let _ = writeln!(text, "{}{separator}{}", cells.join(separator), ids.join(caches));
    }
    text
}

fn lscpu_e(host: &Host) -> String {
    let mut text = format!("CPU NODE SOCKET CORE L1d:L1i:L2:L3\n{}", lscpu_rows(host, " ", ":"));
    for id in host.offline().iter() {
        let _ = writeln!(text, "{id} - - - -");
    }
    text
}

fn lscpu_p(host: &Host) -> String {
    format!("# CPU,Node,Socket,Core,L1d,L1i,L2,L3\n{}", lscpu_rows(host, ",", ","))
}

fn numactl(host: &Host) -> String {
    let mut text = format!("available: {} nodes (0)\n", host.nodes.len());
    for node in &host.nodes {
        let pcpus: Vec<String> = node.pcpus.iter().map(|id| id.to_string()).collect();
        let _ = writeln!(text, "node {} cpus: {}", node.id, pcpus.join(" "));
        let mib = node.memory_bytes.expect("told") >> 20;
        let _ = writeln!(text, "node {} size: {mib} MB", node.id);
    }
    text.push_str("node distances:\nnode ");
    for node in &host.nodes {
        let _ = write!(text, "{:>4}", node.id);
    }
    for node in &host.nodes {
        let _ = write!(text, "\n{:>3}: ", node.id);
        for cost in node.distances.values() {
            let _ = write!(text, "{cost:>4}");
        }
    }
    text
}

fn libvirt(host: &Host) -> String {
    let mut cells = String::new();
    for node in &host.nodes {
        let kib = node.memory_bytes.expect("told") >> 10;
        let _ =
            write!(cells, "<cell id='{}'><memory unit='KiB'>{kib}</memory><distances>", node.id);
        for (to, cost) in &node.distances {
            let _ = write!(cells, "<sibling id='{to}' value='{cost}'/>");
        }
        cells.push_str("</distances><cpus>");
        for pcpu in node.pcpus.iter().filter_map(|id| host.pcpu(id)) {
            let (socket, core) = pcpu.socket.zip(pcpu.core).expect("online");
            let siblings =
                host.select(|other| (other.socket, other.core) == (pcpu.socket, pcpu.core));
            let _ = write!(
                cells,
                "<cpu id='{}' socket_id='{socket}' die_id='0' core_id='{core}' siblings='{siblings}'/>",
                pcpu.id
            );
        }
        cells.push_str("</cpus></cell>");
    }
    let mut banks = String::new();
    for cache in host.caches.iter().filter(|cache| cache.level == 3) {
        let pcpus = &cache.pcpus;
        let _ = write!(banks, "<bank level='3' type='both' size='16' unit='MiB' cpus='{pcpus}'/>");
    }
    format!(
        "<capabilities><host><topology><cells>{cells}</cells></topology><cache>{banks}</cache></host></capabilities>"
    )
}

fn mask(pcpus: &PcpuSet) -> String {
    let groups = pcpus.last().unwrap_or(0) / 32 + 1;
    let group = |at: u32| -> u32 {
        (0..32).filter(|bit| pcpus.contains(at * 32 + bit)).map(|bit| 1 << bit).sum()
    };
    let groups: Vec<String> = (0..groups).rev().map(|at| format!("0x{:08x}", group(at))).collect();
    groups.join(",")
}

fn hwloc(host: &Host) -> String {
    let all = host.select(|_| true);
    let mut text = format!(
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"{}\" complete_cpuset=\"{}\">",
        mask(&host.online()),
        mask(&all)
    );
    for socket in host.nesting() {
        let _ = write!(text, "<object type=\"Package\" os_index=\"{}\">", socket.id.expect("told"));
        for node in host.nodes.iter().filter(|node| node.pcpus.is_subset(&socket.pcpus)) {
            let cpuset = mask(&node.pcpus);
            let _ = write!(
                text,
                "<object type=\"NUMANode\" os_index=\"{}\" cpuset=\"{cpuset}\" local_memory=\"{}\"/><object type=\"L3Cache\" cpuset=\"{cpuset}\" depth=\"3\" cache_size=\"16777216\" cache_type=\"0\">",
                node.id,
                node.memory_bytes.expect("told")
            );
            for core in together(host, |pcpu| (pcpu.socket, pcpu.core)) {
                if !core.is_subset(&node.pcpus) {
                    continue;
                }
                for (depth, kind) in [(1, 1), (1, 2), (2, 0)] {
                    let _ = write!(
                        text,
                        "<object type=\"L{depth}Cache\" cpuset=\"{}\" depth=\"{depth}\" cache_size=\"32768\" cache_type=\"{kind}\"/>",
                        mask(&core)
                    );
                }
                let first = core.first().and_then(|id| host.pcpu(id)).expect("online");
                let _ = write!(
                    text,
                    "<object type=\"Core\" os_index=\"{}\">",
                    first.core.expect("told")
                );
                for id in core.iter() {
                    let _ = write!(text, "<object type=\"PU\" os_index=\"{id}\"/>");
                }
                text.push_str("</object>");
            }
            text.push_str("</object>");
        }
        text.push_str("</object>");
    }
    text.push_str("</object></topology>");
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each tool's text for a machine says of it what it is, alone and with
    /// any other.
    #[test]
    fn any_machine_is_read_back(shape in shapes()) {
        let truth = shape.host();
        // The only pCPU may be the one that is switched off.
        prop_assume!(!truth.online().is_empty());
        let texts = [
            ("lscpu -e", lscpu_e(&truth)),
            ("lscpu -p", lscpu_p(&truth)),
            ("numactl", numactl(&truth)),
            ("libvirt", libvirt(&truth)),
            ("hwloc", hwloc(&truth)),
        ];
        for (name, text) in &texts {
            agrees(name, &described(name, text), &truth);
            for (other, more) in &texts {
                let both = described(name, text).merge(described(other, more));
                let both = both.unwrap_or_else(|error| panic!("{error}"));
                agrees(&format!("{name} + {other}"), &both, &truth);
            }
        }
        let knows = |text: &str, facet| described("text", text).known.contains(&facet);
        prop_assert!(knows(&texts[0].1, Facet::Cores) && knows(&texts[4].1, Facet::CacheSizes));
    }
}
