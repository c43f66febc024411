//! What comes out on hosts and wishes that mean something.

use expect_test::{Expect, expect};
use topology::{CoreKind, Host};

use super::hosts::{Shape, TWO_BY_EIGHT, add_pool, switch_off};
use crate::plan::{
    HostMap, HostPlan, NamedHost, Packing, PlanRules, Size, ThreadsPerCore, VmWish, plan_fleet,
    plan_host, svg, text,
};

fn wish(vcpus: u32, gib: u64) -> VmWish {
    VmWish::new("vm", vcpus, Size::gib(gib))
}

fn pins(plan: &HostPlan) -> String {
    let of_vm = |placement: &crate::plan::Placement| {
        let pins = placement.vcpu_pins.values().map(ToString::to_string);
        pins.collect::<Vec<_>>().join(" ")
    };
    plan.placements.iter().map(of_vm).collect::<Vec<_>>().join(" | ")
}

#[track_caller]
fn check(host: &Host, wishes: &[VmWish], rules: &PlanRules, expected: Expect) {
    let plan = plan_host(host, wishes, rules);
    let mut shown = String::new();
    for placement in &plan.placements {
        shown.push_str(&format!(
            "{}: {}\n  emulator {}; memory {}\n",
            placement.name,
            placement.topology,
            placement.emulator,
            placement
                .memory_by_node
                .iter()
                .map(|(node, size)| format!("{size} on {node}"))
                .collect::<Vec<_>>()
                .join(", "),
        ));
        let pins = placement.vcpu_pins.values().map(ToString::to_string);
        shown.push_str(&format!("  pins {}\n", pins.collect::<Vec<_>>().join(" ")));
        for cell in placement.cells.iter().filter(|_| placement.cells.len() > 1) {
            shown.push_str(&format!(
                "  cell {}: vCPUs {}, {} of node {}, distances {:?}\n",
                cell.id, cell.vcpus, cell.memory, cell.memory_node, cell.distances
            ));
        }
        for reason in &placement.reasons {
            shown.push_str(&format!("  - {reason}\n"));
        }
    }
    for refusal in &plan.refused {
        shown.push_str(&format!(
            "{} refused: {} [{}]\n",
            refusal.name,
            refusal.why,
            refusal.nearest.join("; ")
        ));
    }
    for warning in &plan.warnings {
        shown.push_str(&format!("warning: {warning}\n"));
    }
    expected.assert_eq(&shown);
}

#[test]
fn two_whole_cores_of_one_socket() {
    // The pins of the fully tuned VM of the classic measurement.
    let plan = plan_host(&TWO_BY_EIGHT.host(), &[wish(4, 8)], &PlanRules::default());
    assert_eq!(pins(&plan), "1 17 2 18");
    let topology = plan.placements[0].topology;
    assert_eq!((topology.sockets, topology.cores, topology.threads), (1, 2, 2));
    check(
        &TWO_BY_EIGHT.host(),
        &[wish(4, 8)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
          emulator 0,16; memory 8 GiB on 0
          pins 1 17 2 18
          - 2 whole cores of node 0: each guest core is a host core that no other VM shares, its threads on that core's threads
          - one node and its last-level cache hold it; node 0 leaves the smallest gap (5 cores)
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
}

#[test]
fn threads_as_asked() {
    let host = TWO_BY_EIGHT.host();
    for (vcpus, threads, expected) in [
        (3, ThreadsPerCore::Auto, "1 2 3"),
        (4, ThreadsPerCore::Exactly(1), "1 2 3 4"),
        (4, ThreadsPerCore::Exactly(2), "1 17 2 18"),
        (1, ThreadsPerCore::Auto, "1"),
    ] {
        let wish = VmWish { threads_per_core: threads, ..wish(vcpus, 1) };
        assert_eq!(pins(&plan_host(&host, &[wish], &PlanRules::default())), expected, "{vcpus}");
    }
}

#[test]
fn refusals_say_what_would_fit() {
    let host = Shape { nodes: 1, cores: 10, ..TWO_BY_EIGHT }.host();
    check(
        &host,
        &[wish(20, 8)],
        &PlanRules::default(),
        expect![[r#"
        vm refused: 9 cores are free, 10 are asked [--vcpus 18; --overcommit 1.2; --leave none]
    "#]],
    );
    check(
        &host,
        &[wish(8, 200)],
        &PlanRules::default(),
        expect![[r#"
            vm refused: 93 GiB of memory is free, 200 GiB are asked [--memory 93GiB]
        "#]],
    );
    let threads = VmWish { threads_per_core: ThreadsPerCore::Exactly(2), ..wish(7, 8) };
    check(
        &host,
        &[threads],
        &PlanRules::default(),
        expect![[r#"
            vm refused: 7 vCPUs can't be 2 a core [--threads-per-core 1; --vcpus 6]
        "#]],
    );
    let lone = VmWish { threads_per_core: ThreadsPerCore::Exactly(1), ..wish(12, 8) };
    check(
        &host,
        &[lone],
        &PlanRules::default(),
        expect![[r#"
        vm refused: 9 cores are free, 12 are asked, 1 for each vCPU [--threads-per-core 2; --vcpus 9; --overcommit 1]
    "#]],
    );
    let pages = VmWish { huge_pages: Some(Size::gib(1)), ..wish(4, 128) };
    check(
        &host,
        &[pages],
        &PlanRules::default(),
        expect![[r#"
        vm refused: 93 huge pages of 1 GiB are reserved or reservable, 128 are asked [--memory 93GiB]
    "#]],
    );
    let tiny = Shape { nodes: 1, cores: 1, ..TWO_BY_EIGHT }.host();
    check(
        &tiny,
        &[wish(1, 1)],
        &PlanRules::default(),
        expect![[r#"
        vm refused: no core is free for VMs: all are left to the host or taken [--leave none]
    "#]],
    );
    check(
        &tiny,
        &[wish(0, 1)],
        &PlanRules::default(),
        expect![[r#"
        vm refused: vcpus is 0: a VM has at least 1 []
    "#]],
    );
}

#[test]
fn a_vm_bigger_than_a_node_gets_matching_cells() {
    // 80 vCPUs on 4 nodes of 10 cores of 2 threads: the whole machine.
    let host = Shape { nodes: 4, cores: 10, node_gib: 64, ..TWO_BY_EIGHT }.host();
    let all = PlanRules { leave: Some("".parse().expect("empty")), ..PlanRules::default() };
    let big = VmWish { huge_pages: Some(Size::mib(2)), ..wish(80, 200) };
    check(
        &host,
        &[big],
        &all,
        expect![[r#"
        vm: sockets=4,dies=1,clusters=1,cores=10,threads=2
          emulator ; memory 50 GiB on 0, 50 GiB on 1, 50 GiB on 2, 50 GiB on 3
          pins 0 40 1 41 2 42 3 43 4 44 5 45 6 46 7 47 8 48 9 49 10 50 11 51 12 52 13 53 14 54 15 55 16 56 17 57 18 58 19 59 20 60 21 61 22 62 23 63 24 64 25 65 26 66 27 67 28 68 29 69 30 70 31 71 32 72 33 73 34 74 35 75 36 76 37 77 38 78 39 79
          cell 0: vCPUs 0-19, 50 GiB of node 0, distances [10, 21, 21, 21]
          cell 1: vCPUs 20-39, 50 GiB of node 1, distances [21, 10, 21, 21]
          cell 2: vCPUs 40-59, 50 GiB of node 2, distances [21, 21, 10, 21]
          cell 3: vCPUs 60-79, 50 GiB of node 3, distances [21, 21, 21, 10]
          - 40 whole cores of node 0 and node 1 and node 2 and node 3: each guest core is a host core that no other VM shares, its threads on that core's threads
          - bigger than what one node has free: over 4 nodes, the fewest that hold it, alike
          - 4 guest cells, one a node, so that the guest keeps data beside the vCPUs: cell 0 on node 0, cell 1 on node 1, cell 2 on node 2, cell 3 on node 3
          - guest topology mirrors that: no socket reaches into two cells
          - emulator: not pinned, since no pCPU is left to the host
          - 25600 huge pages of 2 MiB on node 0: 25600 not yet reserved; add them to /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
          - 25600 huge pages of 2 MiB on node 1: 25600 not yet reserved; add them to /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
          - 25600 huge pages of 2 MiB on node 2: 25600 not yet reserved; add them to /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages
          - 25600 huge pages of 2 MiB on node 3: 25600 not yet reserved; add them to /sys/devices/system/node/node3/hugepages/hugepages-2048kB/nr_hugepages
    "#]],
    );
    // With pCPU 0's core left to the host, cells differ by little.
    check(
        &host,
        &[wish(30, 70)],
        &PlanRules::default(),
        expect![[r#"
            vm: sockets=15,dies=1,clusters=1,cores=1,threads=2
              emulator 0,40; memory 38272 MiB on 0, 33408 MiB on 1
              pins 1 41 2 42 3 43 4 44 5 45 6 46 7 47 8 48 10 50 11 51 12 52 13 53 14 54 15 55 16 56
              cell 0: vCPUs 0-15, 38272 MiB of node 0, distances [10, 21]
              cell 1: vCPUs 16-29, 33408 MiB of node 1, distances [21, 10]
              - 15 whole cores of node 0 and node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
              - bigger than what one node has free: over 2 nodes, the fewest that hold it, as evenly as free cores allow
              - 2 guest cells, one a node, so that the guest keeps data beside the vCPUs: cell 0 on node 0, cell 1 on node 1
              - guest topology mirrors that: no socket reaches into two cells (and none is bigger than a core, as 15 cores can't be shared alike: --vcpus 28 can)
              - emulator: on what is left to the host, never on a vCPU's pCPU
        "#]],
    );
}

#[test]
fn caches_become_dies() {
    let host = Shape { nodes: 1, caches: 4, cores: 4, ..TWO_BY_EIGHT }.host();
    check(
        &host,
        &[wish(16, 8)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=2,clusters=1,cores=4,threads=2
          emulator 0,16; memory 8 GiB on 0
          pins 4 20 5 21 6 22 7 23 8 24 9 25 10 26 11 27
          - 8 whole cores of node 0: each guest core is a host core that no other VM shares, its threads on that core's threads
          - no last-level cache has 8 free cores: over 2, the fewest
          - guest topology mirrors that: vCPUs of one die share a last-level cache
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
    let mut arm =
        Shape { threads: 1, ..Shape { nodes: 1, caches: 4, cores: 4, ..TWO_BY_EIGHT } }.host();
    arm.arch = Some("aarch64".into());
    check(
        &arm,
        &[wish(8, 8)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=2,cores=4,threads=1
          emulator 0; memory 8 GiB on 0
          pins 4 5 6 7 8 9 10 11
          - 8 whole cores of node 0: each guest core is a host core that no other VM shares
          - no last-level cache has 8 free cores: over 2, the fewest
          - guest topology mirrors that: vCPUs of one cluster share a last-level cache
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
}

#[test]
fn kinds_of_cores_are_not_mixed() {
    // 4 performance cores of 2 threads, then 8 efficiency cores of 1.
    let mut host = Shape { nodes: 1, cores: 12, ..TWO_BY_EIGHT }.host();
    host.nodes.clear();
    host.pcpus.retain(|pcpu| pcpu.id < 16);
    for cache in &mut host.caches {
        cache.pcpus = (0..16).collect();
    }
    for pcpu in &mut host.pcpus {
        pcpu.kind =
            Some(if pcpu.core < Some(4) { CoreKind::Performance } else { CoreKind::Efficiency });
    }
    check(
        &host,
        &[wish(6, 4)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=3,threads=2
          emulator 0,12; memory 4 GiB on 0
          pins 1 13 2 14 3 15
          - 3 whole cores of the host: each guest core is a host core that no other VM shares, its threads on that core's threads
          - one node and its last-level cache hold it
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
    check(
        &host,
        &[wish(8, 4)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=8,threads=1
          emulator 0,12; memory 4 GiB on 0
          pins 4 5 6 7 8 9 10 11
          - 8 whole cores of the host: each guest core is a host core that no other VM shares
          - one node and its last-level cache hold it
          - efficiency cores: the performance cores are too few
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
    check(
        &host,
        &[wish(11, 4)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=11,threads=1
          emulator 0,12; memory 4 GiB on 0
          pins 1 2 3 4 5 6 7 8 9 10 11
          - 11 whole cores of the host: each guest core is a host core that no other VM shares; 1 thread a core (11 vCPUs can't be 2 a core), the siblings stay idle
          - one node and its last-level cache hold it
          - mixes kinds of cores: no kind alone has enough; the guest's scheduler takes them for equal
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
}

#[test]
fn isolated_cores_come_first() {
    let mut host = TWO_BY_EIGHT.host();
    host.isolated = Some("12-15,28-31".parse().expect("a list"));
    check(
        &host,
        &[wish(4, 4)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
          emulator 0,16; memory 4 GiB on 1
          pins 12 28 13 29
          - 2 whole cores of node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
          - one node and its last-level cache hold it; node 1 leaves the smallest gap (6 cores)
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU; that is another node: --leave 0,8,16,24 or --io-cores 1 mends it
    "#]],
    );
    check(
        &host,
        &[wish(10, 4)],
        &PlanRules::default(),
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=5,threads=2
          emulator 0,16; memory 4 GiB on 0
          pins 1 17 2 18 3 19 4 20 5 21
          - 5 whole cores of node 0: each guest core is a host core that no other VM shares, its threads on that core's threads
          - one node and its last-level cache hold it; node 0 leaves the smallest gap (2 cores)
          - also cores that are not isolated: the isolated are too few
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
    "#]],
    );
}

#[test]
fn offline_and_taken_and_busy_pcpus_are_avoided() {
    let mut host = TWO_BY_EIGHT.host();
    switch_off(&mut host, "17,2,18");
    let rules = PlanRules {
        irq_heavy: "3".parse().expect("a list"),
        taken: "20".parse().expect("a list"),
        ..PlanRules::default()
    };
    check(
        &host,
        &[wish(4, 4), wish(4, 4)],
        &rules,
        expect![[r#"
            vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
              emulator 0,3,16,19; memory 4 GiB on 1
              pins 8 24 9 25
              - 2 whole cores of node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
              - one node and its last-level cache hold it; there all VMs together leave the smallest gaps
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU; that is another node: --leave 0,3,8,16,19,24 or --io-cores 1 mends it
            vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
              emulator 0,3,16,19; memory 4 GiB on 1
              pins 10 26 11 27
              - 2 whole cores of node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
              - one node and its last-level cache hold it; node 1 is in use already, so whole nodes stay whole
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU; that is another node: --leave 0,3,8,16,19,24 or --io-cores 1 mends it
        "#]],
    );
    // A core that lost a thread still serves a VM of one.
    let plan = plan_host(&host, &[wish(1, 1)], &rules);
    assert_eq!(pins(&plan), "1");
}

#[test]
fn memory_decides_too() {
    let mut host = TWO_BY_EIGHT.host();
    add_pool(&mut host, 0, 1 << 30, 8);
    add_pool(&mut host, 1, 1 << 30, 80);
    let pages = VmWish { huge_pages: Some(Size::gib(1)), ..wish(4, 80) };
    check(
        &host,
        &[pages],
        &PlanRules::default(),
        expect![[r#"
            vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
              emulator 0,16; memory 80 GiB on 1
              pins 8 24 9 25
              - 2 whole cores of node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
              - one node and its last-level cache hold it; node 1 leaves the smallest gap (6 cores)
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU; that is another node: --leave 0,8,16,24 or --io-cores 1 mends it
              - 80 huge pages of 1 GiB on node 1: free in the pool
        "#]],
    );
    // Two of these fit one node's cores, but not its memory.
    check(
        &host,
        &[wish(4, 60), wish(4, 60)],
        &PlanRules::default(),
        expect![[r#"
            vm: sockets=1,dies=1,clusters=1,cores=2,threads=2
              emulator 0,16; memory 60 GiB on 0
              pins 1 17 2 18
              - 2 whole cores of node 0: each guest core is a host core that no other VM shares, its threads on that core's threads
              - one node and its last-level cache hold it; no other node than node 0 has room
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU
            vm refused: 38 GiB of memory is free (node 0 25 GiB, node 1 13 GiB), 60 GiB are asked [--memory 38GiB]
        "#]],
    );
    // The memory of a node without any comes from its neighbour.
    let mut half = TWO_BY_EIGHT.host();
    half.nodes[1].memory_bytes = Some(0);
    check(
        &half,
        &[wish(16, 40)],
        &PlanRules::default(),
        expect![[r#"
            vm: sockets=1,dies=1,clusters=1,cores=8,threads=2
              emulator 0,16; memory 40 GiB on 0
              pins 8 24 9 25 10 26 11 27 12 28 13 29 14 30 15 31
              - 8 whole cores of node 1: each guest core is a host core that no other VM shares, its threads on that core's threads
              - one node and its last-level cache hold it; no other node than node 1 has room
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU; that is another node: --leave 0,8,16,24 or --io-cores 1 mends it
            warning: Node 1 has no memory: VMs there get theirs from node 0
        "#]],
    );
}

#[test]
fn other_threads_have_cores_if_asked() {
    let io = VmWish { iothreads: 2, vhost_threads: 1, io_cores: 1, ..wish(4, 4) };
    let plan = plan_host(&TWO_BY_EIGHT.host(), &[io], &PlanRules::default());
    let placement = &plan.placements[0];
    let shown = format!(
        "{} | {} | {:?} | {:?}",
        pins(&plan),
        placement.emulator,
        placement.iothreads.iter().map(ToString::to_string).collect::<Vec<_>>(),
        placement.vhost.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
    expect![[r#"1 17 2 18 | 3 | ["19", "3"] | ["19"]"#]].assert_eq(&shown);
    assert_eq!(placement.patch().vhost_pin, Some("19".parse().expect("a list")));
    let none = plan_host(&TWO_BY_EIGHT.host(), &[wish(4, 4)], &PlanRules::default());
    assert_eq!(none.placements[0].patch().vhost_pin, None);
}

#[test]
fn overcommit_is_said_plainly() {
    let host = Shape { nodes: 1, cores: 10, ..TWO_BY_EIGHT }.host();
    let rules = PlanRules { overcommit: Some(1.2), ..PlanRules::default() };
    check(
        &host,
        &[wish(20, 8)],
        &rules,
        expect![[r#"
            vm: sockets=1,dies=1,clusters=1,cores=20,threads=1
              emulator 0,10; memory 8 GiB on 0
              pins 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19 1-9,11-19
              - overcommitted as asked: so far node 0 20 vCPUs on 18 pCPUs (1.11 a pCPU)
              - no vCPU has a pCPU to itself: each may run on all of its node's, and waits when others run
              - guest topology mirrors that
              - emulator: on what is left to the host, never on a vCPU's pCPU
        "#]],
    );
    check(
        &host,
        &[wish(18, 8)],
        &rules,
        expect![[r#"
        vm: sockets=1,dies=1,clusters=1,cores=9,threads=2
          emulator 0,10; memory 8 GiB on 0
          pins 1 11 2 12 3 13 4 14 5 15 6 16 7 17 8 18 9 19
          - 9 whole cores of node 0: each guest core is a host core that no other VM shares, its threads on that core's threads
          - one node and its last-level cache hold it
          - guest topology mirrors that
          - emulator: on what is left to the host, never on a vCPU's pCPU
        warning: Overcommit was allowed but is not needed: every VM has its own cores
    "#]],
    );
    check(
        &host,
        &[wish(22, 8)],
        &rules,
        expect![[r#"
            vm refused: 18 pCPUs hold 21 vCPUs at 1.2; 0 are placed, 22 more are asked [--vcpus 21; --overcommit 1.3]
        "#]],
    );
}

#[test]
fn the_map_shows_who_is_where() {
    let host = Shape { nodes: 2, caches: 2, cores: 3, ..TWO_BY_EIGHT }.host();
    let rules = PlanRules { taken: "6".parse().expect("a list"), ..PlanRules::default() };
    let io = VmWish { io_cores: 1, ..VmWish::new("db", 3, Size::gib(4)) };
    let plan = plan_host(&host, &[VmWish::new("web", 4, Size::gib(4)), io], &rules);
    let placements: Vec<_> = plan.placements.iter().collect();
    let map = HostMap::new(&host, &rules, &placements);
    expect![[r#"
        node 0, cache 0
          pCPU     0     1     2
                host    A0    A2
                  12    13    14
                host    A1    A3
          cache 1
          pCPU     3     4     5
                   .     .     .
                  15    16    17
                   .     .     .
        node 1, cache 0
          pCPU     6     7     8
                   x    B+     .
                  18    19    20
                   x    B+     .
          cache 1
          pCPU     9    10    11
                  B0    B1    B2
                  21    22    23
                  B-    B-    B-

        A web   B db   host left to the host   x taken by others
        A- kept idle beside A's vCPU   A+ A's emulator and iothreads   . free
    "#]]
    .assert_eq(&text(&map, 80));
    for width in [1, 20, 40, 200] {
        let widest = text(&map, width).lines().map(str::len).max().unwrap_or(0);
        assert!(widest <= width.max(32), "{width}: {widest}");
    }
    let figure = svg(&map);
    for part in ["<svg ", ">A0<", ">host<", "</svg>"] {
        assert!(figure.contains(part), "{part}");
    }
}

#[test]
fn a_fleet_fills_hosts_in_use_first() {
    let host = TWO_BY_EIGHT.host();
    let hosts: Vec<NamedHost> =
        ["a", "b", "c"].map(|name| NamedHost { name, host: &host }).to_vec();
    let wishes = [VmWish { count: 5, ..wish(8, 20) }, VmWish::new("big", 26, Size::gib(100))];
    let plan = plan_fleet(&hosts, &wishes, &PlanRules::default(), Packing::BestFit);
    let on: Vec<(String, usize)> =
        plan.vms.iter().map(|vm| (vm.placement.name.clone(), vm.host)).collect();
    expect![[r#"[("vm-1", 1), ("vm-2", 1), ("vm-3", 1), ("vm-4", 2), ("vm-5", 2), ("big", 0)] Totals { hosts_used: 3, free_cores: 12, fragmentation: 0.06666666666666667, over_nodes: 1, over_caches: 1 }"#]].assert_eq(&format!("{on:?} {:?}", plan.totals));
    assert_eq!(plan.refused, []);
    let huge = plan_fleet(&hosts, &[wish(64, 20)], &PlanRules::default(), Packing::BestFit);
    expect![[r#"[UnplacedVm { name: "vm", why: "on a: 15 cores are free, 32 are asked", nearest: ["--vcpus 30", "--overcommit 2.2"] }]"#]].assert_eq(&format!("{:?}", huge.refused));
}
