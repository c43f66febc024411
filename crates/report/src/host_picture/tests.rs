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
    check(&two_sockets(), 80, expect![[""]]);
}

#[test]
fn two_sockets_on_a_narrow_terminal() {
    check(&two_sockets(), 50, expect![[""]]);
}

#[test]
fn hybrid_with_marks() {
    check(&hybrid(), 80, expect![[""]]);
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
    check(&machine.host(), 80, expect![[""]]);
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
    check(&host, 100, expect![[""]]);
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
    check(&host, 80, expect![[""]]);
}

#[test]
fn an_empty_host() {
    check(&Host::default(), 80, expect![[""]]);
    assert!(svg(&Host::default()).ends_with("</svg>\n"));
}

#[test]
fn svg_escapes_what_the_machine_says() {
    let host = Host { hostname: Some("<a>&\"\u{7}".into()), ..Host::default() };
    let drawn = svg(&host);
    assert!(drawn.contains("&lt;a&gt;&amp;&quot; "), "{drawn}");
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
