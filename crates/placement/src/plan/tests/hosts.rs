//! Hosts made by number of parts.

use topology::{Cache, CacheKind, Host, HugePagePool, Node, Pcpu, PcpuSet};

/// A regular host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) nodes: u32,
    /// Last-level caches in a node.
    pub(super) caches: u32,
    /// Cores around a cache.
    pub(super) cores: u32,
    pub(super) threads: u32,
    /// Memory of a node.
    pub(super) node_gib: u64,
}

/// The host of the classic measurement of pinning: 2 sockets of 8 cores of 2
/// threads.
pub(super) const TWO_BY_EIGHT: Shape =
    Shape { nodes: 2, caches: 1, cores: 8, threads: 2, node_gib: 96 };

impl Shape {
    /// One socket a node; siblings are numbered `i` and `i` plus the cores.
    pub(super) fn host(self) -> Host {
        let Shape { nodes, caches, cores, threads, node_gib } = self;
        let all = nodes * caches * cores;
        let mut host = Host { arch: Some("x86_64".into()), ..Host::default() };
        for id in 0..all * threads {
            let core = id % all;
            let node = core / (caches * cores);
            host.pcpus.push(Pcpu {
                id,
                online: true,
                socket: Some(node),
                die: Some(0),
                core: Some(core),
                thread: Some(id / all),
                node: Some(node),
                ..Pcpu::default()
            });
        }
        let around = |first: u32, count: u32| -> PcpuSet {
            (0..threads)
                .flat_map(|thread| (0..count).map(move |at| thread * all + first + at))
                .collect()
        };
        for cache in 0..nodes * caches {
            host.caches.push(Cache {
                level: 3,
                kind: CacheKind::Unified,
                size_bytes: Some(32 << 20),
                pcpus: around(cache * cores, cores),
            });
        }
        for id in 0..nodes {
            let distances =
                (0..nodes).map(|other| (other, if id == other { 10 } else { 21 })).collect();
            host.nodes.push(Node {
                id,
                pcpus: around(id * caches * cores, caches * cores),
                memory_bytes: Some(node_gib << 30),
                distances,
                ..Node::default()
            });
        }
        host.memory_bytes = Some((u64::from(nodes) * node_gib) << 30);
        host
    }
}

/// Adds a pool of huge pages to a node.
pub(super) fn add_pool(host: &mut Host, node: usize, page_bytes: u64, pages: u64) {
    let pool = HugePagePool { page_bytes, total: pages, free: pages };
    host.nodes[node].huge_pages.push(pool);
}

/// Switches pCPUs off.
pub(super) fn switch_off(host: &mut Host, off: &str) {
    let off: PcpuSet = off.parse().expect("a list");
    for pcpu in host.pcpus.iter_mut().filter(|pcpu| off.contains(pcpu.id)) {
        *pcpu = Pcpu { id: pcpu.id, online: false, ..Pcpu::default() };
    }
    for cache in &mut host.caches {
        cache.pcpus = cache.pcpus.difference(&off);
    }
    for node in &mut host.nodes {
        node.pcpus = node.pcpus.difference(&off);
    }
}
