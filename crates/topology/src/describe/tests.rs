//! Tests of the readers of other tools' descriptions.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::sysfs::{Tree, read_host};
use crate::{Cache, PcpuSet};

/// A tree saved as one JSON object: path and text.
struct Saved(BTreeMap<String, String>);

impl Tree for Saved {
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let folder = format!("{path}/");
        let names: BTreeSet<&str> = self
            .0
            .range(folder.clone()..)
            .take_while(|(path, _)| path.starts_with(&folder))
            .filter_map(|(path, _)| path[folder.len()..].split('/').next())
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

const TWO_SOCKETS: &str = include_str!("../../testdata/trees/two-sockets.json");
const CLUSTERS: &str = include_str!("../../testdata/trees/clusters.json");
const THREE_NODES: &str = include_str!("../../testdata/linux-6.1.0/three-nodes-one-offline.json");

fn tree(text: &str) -> Host {
    read_host(&Saved(serde_json::from_str(text).expect("a map of texts")))
}

macro_rules! golden {
    ($path:literal) => {
        ($path, include_str!(concat!("../../testdata/", $path)))
    };
}

/// Real output of each tool for one machine, under the tool's name.
type Outputs = [(&'static str, &'static str)];

const OF_TWO_SOCKETS: &Outputs = &[
    golden!("util-linux-2.38.1/two-sockets.summary.txt"),
    golden!("util-linux-2.38.1/two-sockets.summary.json"),
    golden!("util-linux-2.38.1/two-sockets.extended.txt"),
    golden!("util-linux-2.38.1/two-sockets.extended.json"),
    golden!("util-linux-2.38.1/two-sockets.physical.txt"),
    golden!("util-linux-2.38.1/two-sockets.parse.txt"),
    golden!("util-linux-2.38.1/two-sockets.columns.txt"),
    golden!("hwloc-2.9.0/two-sockets.v1.xml"),
    golden!("hwloc-2.9.0/two-sockets.v2.xml"),
    golden!("libvirt-9.0.0/two-sockets.xml"),
    golden!("numactl-2.0.16/two-sockets.txt"),
];

const OF_THREE_NODES: &Outputs = &[
    golden!("util-linux-2.38.1/three-nodes.summary.txt"),
    golden!("util-linux-2.38.1/three-nodes.summary.json"),
    golden!("util-linux-2.38.1/three-nodes.extended.txt"),
    golden!("util-linux-2.38.1/three-nodes.extended.json"),
    golden!("util-linux-2.38.1/three-nodes.physical.txt"),
    golden!("util-linux-2.38.1/three-nodes.parse.txt"),
    golden!("util-linux-2.38.1/three-nodes.columns.txt"),
    golden!("hwloc-2.9.0/three-nodes.v1.xml"),
    golden!("hwloc-2.9.0/three-nodes.v2.xml"),
    golden!("libvirt-9.0.0/three-nodes.xml"),
    golden!("numactl-2.0.16/three-nodes.txt"),
];

const OF_CLUSTERS: &Outputs = &[
    golden!("util-linux-2.38.1/clusters.summary.txt"),
    golden!("util-linux-2.38.1/clusters.summary.json"),
    golden!("util-linux-2.38.1/clusters.extended.txt"),
    golden!("util-linux-2.38.1/clusters.extended.json"),
    golden!("util-linux-2.38.1/clusters.physical.txt"),
    golden!("util-linux-2.38.1/clusters.parse.txt"),
    golden!("util-linux-2.38.1/clusters.columns.txt"),
    golden!("hwloc-2.9.0/clusters.v1.xml"),
    golden!("hwloc-2.9.0/clusters.v2.xml"),
];

#[track_caller]
fn described(name: &str, text: &str) -> Described {
    read_description(name, text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// Which pCPUs are together by a key; numbers may differ between tools.
fn together<K: Ord>(host: &Host, key: impl Fn(&crate::Pcpu) -> K) -> BTreeSet<PcpuSet> {
    let mut groups: BTreeMap<K, PcpuSet> = BTreeMap::new();
    for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.online) {
        groups.entry(key(pcpu)).or_default().insert(pcpu.id);
    }
    groups.into_values().collect()
}

/// Fails where a description and the machine's own files tell different things.
#[track_caller]
fn agrees(name: &str, read: &Described, truth: &Host) {
    let host = &read.host;
    let knows = |facet| read.known.contains(&facet);
    assert_eq!(host.online(), truth.online(), "{name}");
    if knows(Facet::Offline) || !host.offline().is_empty() {
        assert_eq!(host.offline(), truth.offline(), "{name}");
    }
    if knows(Facet::Sockets) {
        assert_eq!(
            together(host, |pcpu| pcpu.socket),
            together(truth, |pcpu| pcpu.socket),
            "{name}"
        );
    }
    if knows(Facet::Dies) {
        let die = |pcpu: &crate::Pcpu| (pcpu.socket, pcpu.die);
        assert_eq!(together(host, die), together(truth, die), "{name}");
    }
    if knows(Facet::Cores) {
        let core = |pcpu: &crate::Pcpu| (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core);
        assert_eq!(together(host, core), together(truth, core), "{name}");
        for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.online) {
            let thread = truth.pcpu(pcpu.id).and_then(|pcpu| pcpu.thread);
            assert_eq!(pcpu.thread, thread, "{name}: pCPU {}", pcpu.id);
        }
    }
    if knows(Facet::Kinds) {
        for pcpu in &host.pcpus {
            let there = truth.pcpu(pcpu.id).expect("the same pCPUs");
            assert_eq!((pcpu.kind, pcpu.capacity), (there.kind, there.capacity), "{name}");
        }
    }
    if knows(Facet::MaxFrequency) {
        for pcpu in &host.pcpus {
            let there = truth.pcpu(pcpu.id).expect("the same pCPUs");
            assert_eq!(pcpu.max_khz, there.max_khz, "{name}: pCPU {}", pcpu.id);
        }
    }
    caches_agree(name, read, truth);
    nodes_agree(name, read, truth);
    if knows(Facet::Model) {
        assert_eq!(host.cpu_model, truth.cpu_model, "{name}");
    }
    if host.hostname.is_some() && truth.hostname.is_some() && !name.contains("three-nodes") {
        assert_eq!(host.hostname, truth.hostname, "{name}");
    }
}

#[track_caller]
fn caches_agree(name: &str, read: &Described, truth: &Host) {
    if read.known.contains(&Facet::Caches) {
        let sized = read.known.contains(&Facet::CacheSizes);
        let inner = read.known.contains(&Facet::InnerCaches);
        let last = truth.caches.iter().map(|cache| cache.level).max();
        let expected = truth.caches.iter().filter(|cache| inner || Some(cache.level) == last);
        let expected: Vec<&Cache> = expected.collect();
        assert_eq!(read.host.caches.len(), expected.len(), "{name}");
        for (cache, expected) in read.host.caches.iter().zip(expected) {
            let size_bytes = match cache.size_bytes {
                None if !sized => None,
                _ => expected.size_bytes,
            };
            assert_eq!(*cache, Cache { size_bytes, ..expected.clone() }, "{name}");
        }
    }
    for ((level, kind), size) in &read.cache_sizes {
        for cache in
            truth.caches.iter().filter(|cache| (cache.level, cache.kind) == (*level, *kind))
        {
            assert_eq!(cache.size_bytes, Some(*size), "{name}: L{level}");
        }
    }
}

#[track_caller]
fn nodes_agree(name: &str, read: &Described, truth: &Host) {
    let knows = |facet| read.known.contains(&facet);
    // hwloc and libvirt call a machine without nodes one node.
    if knows(Facet::Nodes) && !truth.nodes.is_empty() {
        let ids = |host: &Host| host.nodes.iter().map(|node| node.id).collect::<Vec<u32>>();
        if knows(Facet::MemoryOnlyNodes) {
            assert_eq!(ids(&read.host), ids(truth), "{name}");
        }
        for node in &read.host.nodes {
            let there = truth.node(node.id).expect("such a node");
            assert_eq!(node.pcpus, there.pcpus, "{name}");
            for id in node.pcpus.iter() {
                assert_eq!(read.host.pcpu(id).and_then(|pcpu| pcpu.node), Some(node.id), "{name}");
            }
            if knows(Facet::NodeMemory) {
                // numactl cuts off what is less than a MiB.
                let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes >> 20);
                assert_eq!(mib(node.memory_bytes), mib(there.memory_bytes), "{name}");
            }
            if knows(Facet::FreeMemory) {
                let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes >> 20);
                assert_eq!(mib(node.free_bytes), mib(there.free_bytes), "{name}");
            }
            if knows(Facet::Distances) {
                assert_eq!(node.distances, there.distances, "{name}");
            }
            if knows(Facet::HugePages) {
                let pools = |node: &crate::Node| -> Vec<(u64, u64)> {
                    node.huge_pages.iter().map(|pool| (pool.page_bytes, pool.total)).collect()
                };
                assert_eq!(pools(node), pools(there), "{name}");
            }
        }
    }
}

#[test]
fn every_tool_agrees_with_the_machines_files() {
    for (truth, outputs) in
        [(TWO_SOCKETS, OF_TWO_SOCKETS), (THREE_NODES, OF_THREE_NODES), (CLUSTERS, OF_CLUSTERS)]
    {
        let truth = tree(truth);
        for (name, text) in outputs {
            agrees(name, &described(name, text), &truth);
        }
    }
}

/// Whatever two outputs for one machine are put together agrees, too, and
/// knows what either knew.
#[test]
fn any_two_tools_complete_each_other() {
    for (truth, outputs) in
        [(TWO_SOCKETS, OF_TWO_SOCKETS), (THREE_NODES, OF_THREE_NODES), (CLUSTERS, OF_CLUSTERS)]
    {
        let truth = tree(truth);
        for (one, of_one) in outputs {
            for (other, of_other) in outputs {
                let (first, second) = (described(one, of_one), described(other, of_other));
                let mut both: BTreeSet<Facet> = first.known.union(&second.known).copied().collect();
                // Known of the last level alone, of all levels not any more.
                both.remove(&Facet::CacheSizes);
                let name = format!("{one} + {other}");
                let merged = first.merge(second).unwrap_or_else(|error| panic!("{error}"));
                assert!(both.is_subset(&merged.known), "{name}");
                agrees(&name, &merged, &truth);
            }
        }
    }
}

#[track_caller]
fn check(name: &str, text: &str, unknown: Expect, warnings: Expect) -> Host {
    let read = described(name, text);
    unknown.assert_eq(&read.unknown().join("\n"));
    warnings.assert_eq(&read.host.warnings.join("\n"));
    read.into_host()
}

#[track_caller]
fn output(path: &str) -> &'static str {
    let all = [OF_TWO_SOCKETS, OF_THREE_NODES, OF_CLUSTERS];
    let mut outputs = all.into_iter().flatten();
    outputs.find(|(name, _)| *name == path).unwrap_or_else(|| panic!("no {path}")).1
}
