//! Well-known hosts, by name.

use std::collections::BTreeMap;

use topology::{Cache, CacheKind, Host, Node, Pcpu, PcpuSet};

/// A host in a few numbers. Nodes, caches and sockets divide the cores evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHost {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    arch: &'static str,
    model: &'static str,
    sockets: u32,
    nodes_per_socket: u32,
    cores_per_node: u32,
    threads: u32,
    /// Linux numbers the second threads of all cores behind the first ones.
    threads_last: bool,
    /// Distances to another node of the same socket, and to another socket's.
    near: u32,
    far: u32,
    memory_gib: u64,
    l2_kib: u64,
    l3_mib: u64,
    cores_per_l3: u32,
}

/// The hosts that have names.
///
/// Source: for the Xeon 4208, Intel's product page (11 MiB of L3, 1 MiB of L2 a
/// core); for the EPYC 7443P, AMD's (four chiplets of six cores with 32 MiB
/// each); for Neoverse N1, Ampere's Altra (1 MiB of L2 a core, 32 MiB of system
/// cache).
pub const KNOWN: [KnownHost; 8] = [
    KnownHost {
        name: "xeon-4208",
        about: "two sockets of 8 cores with 2 threads, 2 nodes: 32 pCPUs",
        arch: "x86_64",
        model: "Intel(R) Xeon(R) Silver 4208 CPU @ 2.10GHz",
        sockets: 2,
        nodes_per_socket: 1,
        cores_per_node: 8,
        threads: 2,
        threads_last: true,
        near: 10,
        far: 21,
        memory_gib: 192,
        l2_kib: 1024,
        l3_mib: 11,
        cores_per_l3: 8,
    },
    EPYC,
    KnownHost {
        name: "epyc-7443p-nps4",
        about: "the same with a node for each chiplet (NPS4): 48 pCPUs, 4 nodes",
        nodes_per_socket: 4,
        cores_per_node: 6,
        near: 12,
        ..EPYC
    },
    KnownHost {
        name: "laptop",
        about: "one socket of 4 cores with 2 threads: 8 pCPUs",
        arch: "x86_64",
        model: "Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz",
        sockets: 1,
        nodes_per_socket: 1,
        cores_per_node: 4,
        threads: 2,
        threads_last: true,
        near: 10,
        far: 10,
        memory_gib: 16,
        l2_kib: 256,
        l3_mib: 8,
        cores_per_l3: 4,
    },
    TWO_NODES,
    KnownHost {
        name: "two-nodes-smt",
        about: "the smallest with threads, too: 2 sockets of a core with 2 threads, 4 pCPUs",
        cores_per_node: 1,
        threads: 2,
        cores_per_l3: 1,
        ..TWO_NODES
    },
    KnownHost {
        name: "altra",
        about: "an arm64 server: one socket of 32 cores (Neoverse N1), 1 node",
        arch: "aarch64",
        model: "Neoverse-N1",
        sockets: 1,
        nodes_per_socket: 1,
        cores_per_node: 32,
        threads: 1,
        threads_last: true,
        near: 10,
        far: 20,
        memory_gib: 128,
        l2_kib: 1024,
        l3_mib: 32,
        cores_per_l3: 32,
    },
    KnownHost {
        name: "arm64-smt",
        about: "an arm64 server with threads: 2 sockets of 2 cores with 2 threads, 2 nodes",
        arch: "aarch64",
        model: "an arm64 host with threads",
        sockets: 2,
        nodes_per_socket: 1,
        cores_per_node: 2,
        threads: 2,
        threads_last: false,
        near: 10,
        far: 20,
        memory_gib: 32,
        l2_kib: 512,
        l3_mib: 16,
        cores_per_l3: 2,
    },
];

const TWO_NODES: KnownHost = KnownHost {
    name: "two-nodes",
    about: "the smallest host with two nodes: 2 sockets of 2 cores, 4 pCPUs",
    arch: "x86_64",
    model: "a host with two nodes",
    sockets: 2,
    nodes_per_socket: 1,
    cores_per_node: 2,
    threads: 1,
    threads_last: true,
    near: 10,
    far: 20,
    memory_gib: 16,
    l2_kib: 1024,
    l3_mib: 16,
    cores_per_l3: 2,
};

const EPYC: KnownHost = KnownHost {
    name: "epyc-7443p",
    about: "one socket of 24 cores with 2 threads in 4 chiplets, 1 node: 48 pCPUs",
    arch: "x86_64",
    model: "AMD EPYC 7443P 24-Core Processor",
    sockets: 1,
    nodes_per_socket: 1,
    cores_per_node: 24,
    threads: 2,
    threads_last: true,
    near: 10,
    far: 32,
    memory_gib: 256,
    l2_kib: 512,
    l3_mib: 32,
    cores_per_l3: 6,
};

/// Error type for [`like`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No host is known as {name:?}; there are {}", KNOWN.map(|known| known.name).join(", "))]
pub struct UnknownHost {
    /// What was asked for.
    pub name: String,
}

/// The description of a well-known host.
///
/// # Errors
/// [`UnknownHost`] names those that there are.
pub fn like(name: &str) -> Result<Host, UnknownHost> {
    let known = KNOWN.iter().find(|known| known.name == name);
    known.map(KnownHost::host).ok_or_else(|| UnknownHost { name: name.to_owned() })
}

impl KnownHost {
    fn host(&self) -> Host {
        let nodes = self.sockets * self.nodes_per_socket;
        let cores = nodes * self.cores_per_node;
        let place = |id: u32| match self.threads_last {
            true => (id % cores, id / cores),
            false => (id / self.threads, id % self.threads),
        };
        let node_of_core = |core: u32| core / self.cores_per_node;
        let socket_of = |node: u32| node / self.nodes_per_socket;
        let pcpus: Vec<Pcpu> = (0..cores * self.threads)
            .map(|id| {
                let (core, thread) = place(id);
                let node = node_of_core(core);
                Pcpu {
                    id,
                    online: true,
                    socket: Some(socket_of(node)),
                    core: Some(core),
                    thread: Some(thread),
                    node: Some(node),
                    ..Pcpu::default()
                }
            })
            .collect();
        let with = |holds: &dyn Fn(u32) -> bool| -> PcpuSet {
            pcpus.iter().map(|pcpu| pcpu.id).filter(|id| holds(place(*id).0)).collect()
        };
        let memory_bytes = self.memory_gib << 30;
        let distance = |from: u32, to: u32| match (from == to, socket_of(from) == socket_of(to)) {
            (true, _) => 10,
            (false, true) => self.near,
            (false, false) => self.far,
        };
        let described_nodes = (0..nodes)
            .map(|id| Node {
                id,
                pcpus: with(&|core| node_of_core(core) == id),
                memory_bytes: Some(memory_bytes / u64::from(nodes)),
                distances: (0..nodes).map(|to| (to, distance(id, to))).collect::<BTreeMap<_, _>>(),
                ..Node::default()
            })
            .collect();
        let cache = |level, bytes, pcpus| Cache {
            level,
            kind: CacheKind::Unified,
            size_bytes: Some(bytes),
            pcpus,
        };
        let l2 = (0..cores).map(|core| cache(2, self.l2_kib << 10, with(&|other| other == core)));
        let groups = 0..cores.div_ceil(self.cores_per_l3);
        let l3 = groups.map(|group| {
            cache(3, self.l3_mib << 20, with(&|core| core / self.cores_per_l3 == group))
        });
        Host {
            hostname: Some(self.name.to_owned()),
            arch: Some(self.arch.to_owned()),
            cpu_model: Some(self.model.to_owned()),
            memory_bytes: Some(memory_bytes),
            caches: l2.chain(l3).collect(),
            nodes: described_nodes,
            pcpus,
            ..Host::default()
        }
    }
}
