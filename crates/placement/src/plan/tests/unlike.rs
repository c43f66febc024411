//! Hosts whose cores or nodes are not alike, and VMs that are larger than others.

use topology::{CoreKind, Node, PcpuSet};

use super::hosts::{Shape, TWO_BY_EIGHT};
use crate::plan::{PlanRules, Size, VmWish, plan_host};

/// 8 performance cores of 2 threads, and 16 efficiency cores of 1.
fn hybrid() -> topology::Host {
    let mut host = Shape { nodes: 1, cores: 24, ..TWO_BY_EIGHT }.host();
    host.pcpus.retain(|pcpu| pcpu.id < 32);
    for pcpu in &mut host.pcpus {
        pcpu.kind =
            Some(if pcpu.core < Some(8) { CoreKind::Performance } else { CoreKind::Efficiency });
    }
    let pcpus: PcpuSet = (0..32).collect();
    host.nodes[0].pcpus = pcpus.clone();
    for cache in &mut host.caches {
        cache.pcpus = pcpus.clone();
    }
    host
}

#[track_caller]
fn refusal(host: &topology::Host, wish: VmWish) -> String {
    let plan = plan_host(host, &[wish], &PlanRules::default());
    plan.refused.first().map_or_else(String::new, |refusal| refusal.why.clone())
}

#[test]
fn cores_of_fewer_threads_are_not_hidden() {
    let threads = crate::plan::ThreadsPerCore::Exactly(2);
    let wish = VmWish { threads_per_core: threads, ..VmWish::new("vm", 24, Size::gib(4)) };
    assert_eq!(
        refusal(&hybrid(), wish),
        "7 cores are free, 12 are asked; 16 other cores have fewer than 2 threads"
    );
}

#[test]
fn memory_without_pcpus_is_named() {
    let mut host = TWO_BY_EIGHT.host();
    let far = Node {
        id: 2,
        pcpus: PcpuSet::new(),
        memory_bytes: Some(256 << 30),
        free_bytes: None,
        distances: [(0, 24), (1, 24), (2, 10)].into(),
        huge_pages: Vec::new(),
    };
    host.nodes.push(far);
    let why = refusal(&host, VmWish::new("vm", 4, Size::gib(250)));
    assert_eq!(
        why,
        "186 GiB of memory is free (node 0 93 GiB, node 1 93 GiB), 250 GiB are asked; node 2 has \
         248 GiB and no pCPU, which is far from every vCPU and not counted"
    );
    host.nodes.truncate(2);
    let why = refusal(&host, VmWish::new("vm", 4, Size::gib(250)));
    assert!(why.ends_with("250 GiB are asked"), "{why}");
}

#[test]
fn vcpus_beyond_8_bits_get_their_word() {
    let says = |arch: &str, vcpus: u32| {
        let shape = Shape { nodes: 2, caches: 1, cores: 160, threads: 1, node_gib: 96 };
        let host = topology::Host { arch: Some(arch.to_owned()), ..shape.host() };
        let plan =
            plan_host(&host, &[VmWish::new("vm", vcpus, Size::gib(16))], &PlanRules::default());
        plan.placements[0].reasons.iter().any(|reason| reason.contains("eim=on"))
    };
    assert!(says("x86_64", 256));
    assert!(!says("x86_64", 254));
    assert!(!says("aarch64", 256));
}
