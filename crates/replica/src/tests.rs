//! Described hosts, and what is made of them.

use expect_test::{expect, expect_file};
use guest::image::{HOSTS, Recipe};
use proptest::prelude::*;
use topology::{Host, Node, Pcpu, PcpuSet};
use vmconfig::Arch;

use crate::{KNOWN, ReplicaMachine, ShapeError, like, preview};

/// QEMU's arguments, an option a line, and what is said beside.
fn golden(name: &str, nvme_disks: usize) -> String {
    let host = like(name).unwrap();
    let arch = Arch::from_name(host.arch.as_deref().unwrap()).unwrap();
    let recipe = Recipe::host(HOSTS[0].0, arch).unwrap();
    let (shape, args) = preview(name, &host, None, nvme_disks, &recipe, true).unwrap();
    let mut text = String::new();
    for arg in &args {
        if arg.starts_with('-') && !text.is_empty() {
            text.push('\n');
        }
        text += arg;
        text.push(' ');
    }
    text += "\n\n";
    if let Some(factor) = shape.memory_factor {
        text += &format!("memory / {factor:.2}\n");
    }
    for part in &shape.not_shown {
        text += &format!("not shown: {part}\n");
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn arguments_of_known_hosts() {
    for name in ["xeon-4208", "epyc-7443p-nps4", "two-nodes", "arm64-smt"] {
        expect_file![format!("../testdata/{name}.args")].assert_eq(&golden(name, 0));
    }
}

#[test]
fn disks_for_guests_come_with_an_iommu() {
    for name in ["two-nodes", "arm64-smt"] {
        let (without, with) = (golden(name, 0), golden(name, 2));
        let added: String = with
            .lines()
            .filter(|line| !without.contains(*line))
            .map(|line| format!("{line}\n"))
            .collect();
        expect_file![format!("../testdata/{name}-nvme.args")].assert_eq(&added);
    }
}

#[test]
fn every_known_host_can_be_emulated() {
    for known in &KNOWN {
        let host = like(known.name).unwrap();
        for is_mended in [false, true] {
            let shape = ReplicaMachine::of(&host, None, is_mended).unwrap();
            assert_eq!(shape.pcpus() as usize, host.pcpus.len(), "{}", known.name);
            assert_eq!(shape.nodes.len(), host.nodes.len(), "{}", known.name);
        }
        let again = Host::from_json(&host.to_json()).unwrap();
        assert_eq!(again, host, "{}", known.name);
    }
    let error = like("vax").unwrap_err().to_string();
    assert!(error.contains("xeon-4208, "), "{error}");
}

#[test]
fn numbers_nodes_and_caches_decide_what_is_a_socket() {
    let of = |name: &str, is_mended: bool| {
        let shape = ReplicaMachine::of(&like(name).unwrap(), None, is_mended).unwrap();
        (shape.sockets, shape.cores, shape.threads)
    };
    // Second threads are numbered behind all first ones: pCPUs 0-7 and 16-23 are
    // of one socket.
    assert_eq!(of("xeon-4208", false), (4, 8, 1));
    assert_eq!(of("xeon-4208", true), (2, 8, 2));
    assert_eq!(of("two-nodes-smt", false), (4, 1, 1));
    assert_eq!(of("two-nodes-smt", true), (2, 1, 2));
    // Four chiplets, each with two runs of numbers.
    assert_eq!(of("epyc-7443p", false), (8, 6, 1));
    assert_eq!(of("epyc-7443p", true), (4, 6, 2));
    for is_mended in [false, true] {
        assert_eq!(of("altra", is_mended), (1, 32, 1));
        assert_eq!(of("arm64-smt", is_mended), (2, 2, 2));
    }
}

#[test]
fn a_thread_beside_its_sibling_is_a_core_of_its_own_on_x86() {
    let mut host = like("laptop").unwrap();
    let shape = |host: &Host| {
        let shape = ReplicaMachine::of(host, None, true).unwrap();
        (shape.sockets, shape.cores, shape.threads, shape.not_shown.join("\n"))
    };
    assert_eq!((shape(&host).0, shape(&host).1, shape(&host).2), (1, 4, 2));
    let pcpus: PcpuSet = [0, 1, 4, 5].into_iter().collect();
    let numbers = ReplicaMachine::of(&host, None, true).unwrap().qemu_numbers(&pcpus);
    assert_eq!(numbers.to_string(), "0-3", "pCPUs 0 and 4 are one core, 1 and 5 another");
    for pcpu in &mut host.pcpus {
        (pcpu.core, pcpu.thread) = (Some(pcpu.id / 2), Some(pcpu.id % 2));
    }
    host.caches.clear();
    let (sockets, cores, threads, not_shown) = shape(&host);
    assert_eq!((sockets, cores, threads), (1, 8, 1));
    assert!(not_shown.contains("threads of a core"), "{not_shown}");
}

#[test]
fn memory_is_shared_as_described_and_scaled_down() {
    let mut host = like("two-nodes").unwrap();
    host.nodes[0].memory_bytes = Some(12 << 30);
    let of = |memory| ReplicaMachine::of(&host, memory, false);
    let mib =
        |shape: &ReplicaMachine| shape.nodes.iter().map(|node| node.memory_mib).collect::<Vec<_>>();
    let shape = of(Some(5120)).unwrap();
    assert_eq!((mib(&shape), shape.memory_factor), (vec![3072, 2048], Some(4.0)));
    assert_eq!(of(None).unwrap().memory_mib(), 2048);
    let error = of(Some(300)).unwrap_err();
    expect!["300 MiB are too little for 2 nodes: give it 512 MiB or more"]
        .assert_eq(&error.to_string());
    let mut bare = host.clone();
    bare.nodes.clear();
    bare.memory_bytes = None;
    let shape = ReplicaMachine::of(&bare, None, false).unwrap();
    assert_eq!((mib(&shape), shape.memory_factor), (vec![2048], None));
}

#[test]
fn what_cannot_be_emulated_is_said() {
    let many = |pcpus: u32, arch: &str| Host {
        arch: Some(arch.to_owned()),
        pcpus: (0..pcpus).map(|id| Pcpu { id, online: true, ..Pcpu::default() }).collect(),
        ..Host::default()
    };
    assert_eq!(ReplicaMachine::of(&Host::default(), None, false).unwrap_err(), ShapeError::NoPcpus);
    let error = ReplicaMachine::of(&many(4, "ppc64le"), None, false).unwrap_err().to_string();
    assert!(error.contains("ppc64le"), "{error}");
    assert!(ReplicaMachine::of(&many(255, "x86_64"), None, false).is_ok());
    let error = ReplicaMachine::of(&many(288, "x86_64"), None, false).unwrap_err();
    assert!(matches!(error, ShapeError::TooMany { pcpus: 288, .. }), "{error}");
    assert!(ReplicaMachine::of(&many(288, "aarch64"), None, false).is_ok());
}

#[test]
fn offline_pcpus_and_gaps_are_left_out_and_said() {
    let mut host = like("two-nodes").unwrap();
    host.pcpus[1].online = false;
    host.nodes[1].id = 4;
    host.nodes[0].distances = [(0, 10), (4, 20)].into();
    host.nodes[1].distances = [(0, 20), (4, 10)].into();
    for pcpu in &mut host.pcpus[2..] {
        pcpu.node = Some(4);
    }
    let shape = ReplicaMachine::of(&host, None, false).unwrap();
    assert_eq!(shape.pcpus(), 3);
    let sets: Vec<String> = shape.nodes.iter().map(|node| node.pcpus.to_string()).collect();
    assert_eq!(sets, ["0", "1-2"]);
    assert_eq!(shape.distances[&(1, 0)], 20);
    let said = shape.not_shown.join("\n");
    for part in ["pCPUs 1, which are offline", "pCPUs 0,2-3 there are 0 to 2 here", "nodes' ids"] {
        assert!(said.contains(part), "{said}");
    }
}

proptest! {
    /// Whatever the description, each pCPU is in one node, and the sockets
    /// hold them all.
    #[test]
    fn all_pcpus_have_one_place(
        sockets in prop::collection::vec(0_u32..3, 1..24),
        nodes in prop::collection::vec(0_u32..3, 24),
        offline in prop::collection::vec(prop::bool::weighted(0.2), 24),
        cores in prop::collection::vec(0_u32..6, 24),
        memory in prop::option::of(0_u64..20_000),
        arm in any::<bool>(),
        mended in any::<bool>(),
    ) {
        let pcpus: Vec<Pcpu> = sockets
            .iter()
            .zip(0_u32..)
            .map(|(socket, id)| Pcpu {
                id,
                online: !offline[id as usize],
                socket: Some(*socket),
                core: Some(cores[id as usize]),
                node: Some(nodes[id as usize]),
                ..Pcpu::default()
            })
            .collect();
        let of_node = |node: u32| -> PcpuSet {
            let here = |pcpu: &&Pcpu| pcpu.online && pcpu.node == Some(node);
            pcpus.iter().filter(here).map(|pcpu| pcpu.id).collect()
        };
        let host = Host {
            arch: Some(if arm { "aarch64" } else { "x86_64" }.to_owned()),
            nodes: (0..3).map(|id| Node { id, pcpus: of_node(id), ..Node::default() }).collect(),
            pcpus: pcpus.clone(),
            ..Host::default()
        };
        let online = host.online().len();
        match ReplicaMachine::of(&host, memory, mended) {
            Ok(shape) => {
                prop_assert_eq!(shape.pcpus() as usize, online);
                let placed: Vec<u32> = shape.nodes.iter().flat_map(|node| node.pcpus.iter()).collect();
                let all: PcpuSet = placed.iter().copied().collect();
                prop_assert_eq!(placed.len(), online);
                prop_assert_eq!(&all, &(0..shape.pcpus()).collect::<PcpuSet>());
                prop_assert_eq!(&shape.qemu_numbers(&all), &all);
                prop_assert!(shape.nodes.iter().all(|node| node.memory_mib >= 256));
            }
            Err(ShapeError::NoPcpus) => prop_assert_eq!(online, 0),
            Err(ShapeError::Memory { least_mib, .. }) => prop_assert!(memory.unwrap() < least_mib),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
