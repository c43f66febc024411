//! Tests of the pictures of hosts.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use topology::{Cache, CacheKind, CoreKind, Host, HugePagePool, Node, Pcpu, PcpuSet};

use super::{svg, text};

/// A machine of equal sockets with Linux's usual numbering: all first threads,
/// then all second ones.
struct Machine {
    sockets: u32,
    nodes_per_socket: u32,
    caches_per_node: u32,
    cores_per_cache: u32,
    threads: u32,
}

impl Machine {
    fn host(&self) -> Host {
        let per_node = self.caches_per_node * self.cores_per_cache;
        let per_socket = self.nodes_per_socket * per_node;
        let cores = self.sockets * per_socket;
        let mut host = Host {
            hostname: Some("made".into()),
            cpu_model: Some("A Processor".into()),
            arch: Some("x86_64".into()),
            kernel: Some("6.1.0".into()),
            memory_bytes: Some(128 << 30),
            available_bytes: Some(100 << 30),
            ..Host::default()
        };
        for id in 0..cores * self.threads {
            let core = id % cores;
            host.pcpus.push(Pcpu {
                id,
                online: true,
                socket: Some(core / per_socket),
                core: Some(core % per_socket),
                thread: Some(id / cores),
                node: Some(core / per_node),
                ..Pcpu::default()
            });
        }
        let ids = |first: u32, count: u32| -> PcpuSet {
            (0..self.threads)
                .flat_map(|at| (first..first + count).map(move |id| id + at * cores))
                .collect()
        };
        for cache in 0..cores / self.cores_per_cache {
            host.caches.push(Cache {
                level: 3,
                kind: CacheKind::Unified,
                size_bytes: Some(32 << 20),
                pcpus: ids(cache * self.cores_per_cache, self.cores_per_cache),
            });
        }
        let nodes = cores / per_node;
        for id in 0..nodes {
            host.nodes.push(Node {
                id,
                pcpus: ids(id * per_node, per_node),
                memory_bytes: Some((128 << 30) / u64::from(nodes)),
                free_bytes: Some(1 << 30),
                distances: (0..nodes).map(|to| (to, if to == id { 10 } else { 21 })).collect(),
                huge_pages: Vec::new(),
            });
        }
        host
    }
}

fn two_sockets() -> Host {
    Machine { sockets: 2, nodes_per_socket: 1, caches_per_node: 1, cores_per_cache: 8, threads: 2 }
        .host()
}

fn hybrid() -> Host {
    let mut host = Host { hostname: Some("laptop".into()), ..Host::default() };
    for id in 0..12u32 {
        let big = id < 4;
        host.pcpus.push(Pcpu {
            id,
            online: id != 11,
            socket: (id != 11).then_some(0),
            core: (id != 11).then_some(if big { id / 2 } else { id }),
            cluster: (id != 11).then_some(if big { id / 2 } else { 8 + (id - 4) / 4 }),
            kind: Some(if big { CoreKind::Performance } else { CoreKind::Efficiency }),
            ..Pcpu::default()
        });
    }
    host.isolated = Some("2-3,7".parse().expect("a list"));
    host.caches.push(Cache {
        level: 3,
        kind: CacheKind::Unified,
        size_bytes: Some(24 << 20),
        pcpus: "0-10".parse().expect("a list"),
    });
    host.warnings.push(
        "The kernel shows no memory nodes (it was built without NUMA, or a container hides them)"
            .into(),
    );
    host
}

#[track_caller]
fn check(host: &Host, width: usize, expected: Expect) {
    let text = text(host, width);
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{line:?} is wider than {width}");
    }
    expected.assert_eq(&text);
}

#[test]
fn two_sockets_stand_beside_each_other() {
    check(
        &two_sockets(),
        80,
        expect![[r#"
        made · A Processor · x86_64 · Linux 6.1.0
        32 pCPUs in 16 cores, 2 sockets, 2 nodes, 128 GiB of memory

        ┌─ socket 0 ──────────────────────┐ ┌─ socket 1 ──────────────────────┐
        │ ┌─ node 0 · 64 GiB ───────────┐ │ │ ┌─ node 1 · 64 GiB ───────────┐ │
        │ │ ┌─ L3 32 MiB ─────────────┐ │ │ │ │ ┌─ L3 32 MiB ─────────────┐ │ │
        │ │ │ [ 0 16] [ 1 17] [ 2 18] │ │ │ │ │ │ [ 8 24] [ 9 25] [10 26] │ │ │
        │ │ │ [ 3 19] [ 4 20] [ 5 21] │ │ │ │ │ │ [11 27] [12 28] [13 29] │ │ │
        │ │ │ [ 6 22] [ 7 23]         │ │ │ │ │ │ [14 30] [15 31]         │ │ │
        │ │ └─────────────────────────┘ │ │ │ │ └─────────────────────────┘ │ │
        │ └─────────────────────────────┘ │ │ └─────────────────────────────┘ │
        └─────────────────────────────────┘ └─────────────────────────────────┘

        Memory     128 GiB, 100 GiB available
                   node 0: 64 GiB, 1 GiB free, distance 21 to node 1
                   node 1: 64 GiB, 1 GiB free, distance 21 to node 0
        Caches     L3 32 MiB × 2
        KVM        unknown
    "#]],
    );
}

#[test]
fn two_sockets_on_a_narrow_terminal() {
    check(
        &two_sockets(),
        50,
        expect![[r#"
        made · A Processor · x86_64 · Linux 6.1.0
        32 pCPUs in 16 cores, 2 sockets, 2 nodes, 128 GiB
          of memory

        ┌─ socket 0 ───────────┐ ┌─ socket 1 ───────────┐
        │ ┌─ node 0 · 64 GiB ┐ │ │ ┌─ node 1 · 64 GiB ┐ │
        │ │ ┌─ L3 32 MiB ┐   │ │ │ │ ┌─ L3 32 MiB ┐   │ │
        │ │ │ [ 0 16]    │   │ │ │ │ │ [ 8 24]    │   │ │
        │ │ │ [ 1 17]    │   │ │ │ │ │ [ 9 25]    │   │ │
        │ │ │ [ 2 18]    │   │ │ │ │ │ [10 26]    │   │ │
        │ │ │ [ 3 19]    │   │ │ │ │ │ [11 27]    │   │ │
        │ │ │ [ 4 20]    │   │ │ │ │ │ [12 28]    │   │ │
        │ │ │ [ 5 21]    │   │ │ │ │ │ [13 29]    │   │ │
        │ │ │ [ 6 22]    │   │ │ │ │ │ [14 30]    │   │ │
        │ │ │ [ 7 23]    │   │ │ │ │ │ [15 31]    │   │ │
        │ │ └────────────┘   │ │ │ │ └────────────┘   │ │
        │ └──────────────────┘ │ │ └──────────────────┘ │
        └──────────────────────┘ └──────────────────────┘

        Memory     128 GiB, 100 GiB available
                   node 0: 64 GiB, 1 GiB free, distance 21
                     to node 1
                   node 1: 64 GiB, 1 GiB free, distance 21
                     to node 0
        Caches     L3 32 MiB × 2
        KVM        unknown
    "#]],
    );
}

#[test]
fn hybrid_with_marks() {
    check(
        &hybrid(),
        80,
        expect![[r#"
            laptop
            11 pCPUs (1 more offline) in 9 cores, 1 socket

            ┌─ socket 0 ──────────────────────────────────────────┐
            │ ┌─ L3 24 MiB ─────────────────────────────────────┐ │
            │ │ [ 0  1] [2* 3*]                                 │ │
            │ │ ┌─ cluster 8 ─────────┐ ┌─ cluster 9 ─────────┐ │ │
            │ │ │ ( 4) ( 5) ( 6) (7*) │ │ ( 8) ( 9) (10)      │ │ │
            │ │ └─────────────────────┘ └─────────────────────┘ │ │
            │ └─────────────────────────────────────────────────┘ │
            └─────────────────────────────────────────────────────┘
            offline: 11
            [ ] core   ( ) efficiency core   * isolated

            Caches     L3 24 MiB
            KVM        unknown
            Isolation  isolated 2-3,7

            Warning: The kernel shows no memory nodes (it was built without NUMA, or a
                     container hides them)
        "#]],
    );
}

#[test]
fn four_l3_caches_a_node() {
    let machine = Machine {
        sockets: 1,
        nodes_per_socket: 2,
        caches_per_node: 4,
        cores_per_cache: 4,
        threads: 1,
    };
    check(
        &machine.host(),
        80,
        expect![[r#"
        made · A Processor · x86_64 · Linux 6.1.0
        32 pCPUs in 32 cores, 1 socket, 2 nodes, 128 GiB of memory

        ┌─ socket 0 ──────────────────────────────────────────────────────────┐
        │ ┌─ node 0 · 64 GiB ─────────────┐ ┌─ node 1 · 64 GiB ─────────────┐ │
        │ │ ┌─ L3 32 MiB ┐ ┌─ L3 32 MiB ┐ │ │ ┌─ L3 32 MiB ┐ ┌─ L3 32 MiB ┐ │ │
        │ │ │ [0] [1]    │ │ [4] [5]    │ │ │ │ [16] [17]  │ │ [20] [21]  │ │ │
        │ │ │ [2] [3]    │ │ [6] [7]    │ │ │ │ [18] [19]  │ │ [22] [23]  │ │ │
        │ │ └────────────┘ └────────────┘ │ │ └────────────┘ └────────────┘ │ │
        │ │ ┌─ L3 32 MiB ┐ ┌─ L3 32 MiB ┐ │ │ ┌─ L3 32 MiB ┐ ┌─ L3 32 MiB ┐ │ │
        │ │ │ [ 8] [ 9]  │ │ [12] [13]  │ │ │ │ [24] [25]  │ │ [28] [29]  │ │ │
        │ │ │ [10] [11]  │ │ [14] [15]  │ │ │ │ [26] [27]  │ │ [30] [31]  │ │ │
        │ │ └────────────┘ └────────────┘ │ │ └────────────┘ └────────────┘ │ │
        │ └───────────────────────────────┘ └───────────────────────────────┘ │
        └─────────────────────────────────────────────────────────────────────┘

        Memory     128 GiB, 100 GiB available
                   node 0: 64 GiB, 1 GiB free, distance 21 to node 1
                   node 1: 64 GiB, 1 GiB free, distance 21 to node 0
        Caches     L3 32 MiB × 8
        KVM        unknown
    "#]],
    );
}

#[test]
fn many_pcpus_are_ranges() {
    let machine = Machine {
        sockets: 2,
        nodes_per_socket: 2,
        caches_per_node: 4,
        cores_per_cache: 8,
        threads: 2,
    };
    let mut host = machine.host();
    host.isolated = Some("8-15,136-143".parse().expect("a list"));
    check(
        &host,
        100,
        expect![[r#"
            made · A Processor · x86_64 · Linux 6.1.0
            256 pCPUs in 128 cores, 2 sockets, 4 nodes, 128 GiB of memory

            ┌─ socket 0 ──────────────────────────────┐ ┌─ socket 1 ──────────────────────────────┐
            │ ┌─ node 0 · 32 GiB ───────────────────┐ │ │ ┌─ node 2 · 32 GiB ───────────┐         │
            │ │ L3 32 MiB: 0-7, 128-135             │ │ │ │ L3 32 MiB: 64-71, 192-199   │         │
            │ │ L3 32 MiB: 8-15, 136-143 (isolated) │ │ │ │ L3 32 MiB: 72-79, 200-207   │         │
            │ │ L3 32 MiB: 16-23, 144-151           │ │ │ │ L3 32 MiB: 80-87, 208-215   │         │
            │ │ L3 32 MiB: 24-31, 152-159           │ │ │ │ L3 32 MiB: 88-95, 216-223   │         │
            │ └─────────────────────────────────────┘ │ │ └─────────────────────────────┘         │
            │ ┌─ node 1 · 32 GiB ───────────────────┐ │ │ ┌─ node 3 · 32 GiB ───────────┐         │
            │ │ L3 32 MiB: 32-39, 160-167           │ │ │ │ L3 32 MiB: 96-103, 224-231  │         │
            │ │ L3 32 MiB: 40-47, 168-175           │ │ │ │ L3 32 MiB: 104-111, 232-239 │         │
            │ │ L3 32 MiB: 48-55, 176-183           │ │ │ │ L3 32 MiB: 112-119, 240-247 │         │
            │ │ L3 32 MiB: 56-63, 184-191           │ │ │ │ L3 32 MiB: 120-127, 248-255 │         │
            │ └─────────────────────────────────────┘ │ │ └─────────────────────────────┘         │
            └─────────────────────────────────────────┘ └─────────────────────────────────────────┘

            Memory     128 GiB, 100 GiB available
                       node 0: 32 GiB, 1 GiB free, distance 21 to nodes 1-3
                       node 1: 32 GiB, 1 GiB free, distance 21 to nodes 0,2-3
                       node 2: 32 GiB, 1 GiB free, distance 21 to nodes 0-1,3
                       node 3: 32 GiB, 1 GiB free, distance 21 to nodes 0-2
            Caches     L3 32 MiB × 16
            KVM        unknown
            Isolation  isolated 8-15,136-143
        "#]],
    );
}

#[test]
fn nodes_of_memory_alone() {
    let mut host = Machine {
        sockets: 1,
        nodes_per_socket: 1,
        caches_per_node: 1,
        cores_per_cache: 1,
        threads: 1,
    }
    .host();
    host.nodes.push(Node { id: 16, memory_bytes: Some(64 << 30), ..Node::default() });
    host.nodes.push(Node { id: 17, memory_bytes: Some(0), ..Node::default() });
    host.nodes[0].huge_pages.push(HugePagePool { page_bytes: 2 << 20, total: 512, free: 500 });
    check(
        &host,
        80,
        expect![[r#"
            made · A Processor · x86_64 · Linux 6.1.0
            1 pCPU in 1 core, 1 socket, 3 nodes, 128 GiB of memory

            ┌─ socket 0 ────────────┐
            │ ┌─ node 0 · 128 GiB ┐ │
            │ │ ┌─ L3 32 MiB ┐    │ │
            │ │ │ [0]        │    │ │
            │ │ └────────────┘    │ │
            │ └───────────────────┘ │
            └───────────────────────┘
            node 16: 64 GiB, no pCPUs
            node 17: no memory, no pCPUs

            Memory     128 GiB, 100 GiB available
                       node 0: 128 GiB, 1 GiB free, 512 pages of 2 MiB (500 free)
                       node 16: 64 GiB
                       node 17: no memory
            Caches     L3 32 MiB
            KVM        unknown
        "#]],
    );
}

#[test]
fn an_empty_host() {
    check(
        &Host::default(),
        80,
        expect![[r#"
        A host
        0 pCPUs in 0 cores, 0 sockets

        KVM        unknown
    "#]],
    );
    assert!(svg(&Host::default()).ends_with("</svg>\n"));
}

#[test]
fn svg_escapes_what_the_machine_says() {
    let host = Host { hostname: Some("<a>&\"'\u{7}\u{202e}".into()), ..Host::default() };
    let drawn = svg(&host);
    assert!(drawn.contains("&lt;a&gt;&amp;&quot;&#39;␇\u{fffd}"), "{drawn}");
}

#[test]
fn svg_shows_every_pcpu_once() {
    let machine = Machine {
        sockets: 4,
        nodes_per_socket: 2,
        caches_per_node: 8,
        cores_per_cache: 8,
        threads: 2,
    };
    let host = machine.host();
    let drawn = svg(&host);
    assert_eq!(host.pcpus.len(), 1024);
    for pcpu in &host.pcpus {
        assert_eq!(drawn.matches(&format!(">{}</text>", pcpu.id)).count(), 1);
    }
    assert_eq!(drawn.matches("hp-node\"").count(), 8);
    assert!(text(&host, 80).lines().count() < 200);
}

proptest! {
    #[test]
    fn every_drawing_fits(
        (sockets, nodes_per_socket, caches_per_node) in (1u32..4, 1u32..4, 1u32..5),
        (cores_per_cache, threads) in (1u32..10, 1u32..9),
        offline in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        width in 0usize..200,
    ) {
        let mut host =
            Machine { sockets, nodes_per_socket, caches_per_node, cores_per_cache, threads }.host();
        for at in offline {
            let at = at.index(host.pcpus.len());
            host.pcpus[at].online = false;
        }
        for line in text(&host, width).lines() {
            prop_assert!(line.chars().count() <= width.max(40), "{line:?}");
        }
        prop_assert!(svg(&host).ends_with("</svg>\n"));
    }
}
