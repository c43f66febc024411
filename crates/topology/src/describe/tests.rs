//! Tests of the readers of other tools' descriptions.

mod made;

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::sysfs::{Tree, read_host};
use crate::{Cache, PcpuSet};

/// A tree saved as one JSON object: path and text.
struct SavedTree(BTreeMap<String, String>);

impl Tree for SavedTree {
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
    read_host(&SavedTree(serde_json::from_str(text).expect("a map of texts")))
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
fn described(name: &str, text: &str) -> DescribedMachine {
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
fn agrees(name: &str, read: &DescribedMachine, truth: &Host) {
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
fn caches_agree(name: &str, read: &DescribedMachine, truth: &Host) {
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
fn nodes_agree(name: &str, read: &DescribedMachine, truth: &Host) {
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

#[test]
fn lscpu_e_knows_places_alone() {
    let host = check(
        "lscpu",
        output("util-linux-2.38.1/two-sockets.extended.txt"),
        expect![[r#"
            dies
            clusters
            whether cores are of different kinds
            sizes of caches
            nodes without pCPUs
            how much memory each node has
            distances between nodes
            how much memory is free
            huge pages
            the processor's name
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect![""],
    );
    assert_eq!(host.offline().to_string(), "23");
}

#[test]
fn lscpu_without_the_column_online() {
    for text in ["CPU NODE SOCKET CORE\n0 0 0 0\n1 - - -\n", "# CPU,Socket\n0,0\n1,\n"] {
        assert_eq!(described("lscpu", text).host.offline().to_string(), "1", "{text}");
    }
    for text in ["CPU NODE\n0 0\n1 -\n", "# CPU\n0\n1\n"] {
        assert_eq!(described("lscpu", text).host.online().to_string(), "0-1", "{text}");
    }
}

#[test]
fn lscpu_numbers_repeat() {
    // Physical numbers are those of a die.
    let host = check(
        "lscpu",
        output("util-linux-2.38.1/two-sockets.physical.txt"),
        expect![[r#"
            dies
            clusters
            whether cores are of different kinds
            sizes of caches
            nodes without pCPUs
            how much memory each node has
            distances between nodes
            how much memory is free
            huge pages
            the processor's name
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect!["Core numbers repeat in a socket: the cores of each socket are numbered anew"],
    );
    assert_eq!(host.pcpu(15).and_then(|pcpu| pcpu.core), Some(3));
}

#[test]
fn plain_lscpu_counts() {
    let host = check(
        "lscpu",
        output("util-linux-2.38.1/two-sockets.summary.txt"),
        expect![[r#"
            which socket each pCPU is in
            dies
            clusters
            which pCPUs are threads of one core
            whether cores are of different kinds
            which pCPUs share a cache
            how much memory each node has
            distances between nodes
            how much memory is free
            huge pages
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect![""],
    );
    // Which of the threads share a core is not told: none are believed to.
    assert_eq!(host.pcpu(12).and_then(|pcpu| pcpu.core), None);
    let host = check(
        "lscpu",
        output("util-linux-2.38.1/three-nodes.summary.json"),
        expect![[r#"
            which socket each pCPU is in
            dies
            clusters
            whether cores are of different kinds
            frequencies
            which pCPUs share a cache
            how much memory each node has
            distances between nodes
            how much memory is free
            huge pages
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect![""],
    );
    assert_eq!(host.virtualised.is_vm, Some(true));
    assert_eq!(host.pcpu(7).and_then(|pcpu| pcpu.core), Some(7));
}

#[test]
fn hwloc_cannot_tell_nodes_that_lie_together() {
    check(
        "v1",
        output("hwloc-2.9.0/three-nodes.v1.xml"),
        expect![[r#"
            dies
            clusters
            whether cores are of different kinds
            frequencies
            how much memory is free
            how many huge pages are free (all of them count as free)
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect![
            "pCPUs 3 are switched off, or lstopo was not allowed to use them: they count as switched off"
        ],
    );
    let host = check(
        "v2",
        output("hwloc-2.9.0/three-nodes.v2.xml"),
        expect![[r#"
            clusters
            whether cores are of different kinds
            frequencies
            which pCPUs belong to nodes that lie together
            how much memory is free
            how many huge pages are free (all of them count as free)
            the kernel's command line
            isolated pCPUs
            kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
            KVM, vhost and their parameters"#]],
        expect![[r#"
            pCPUs 3 are switched off, or lstopo was not allowed to use them: they count as switched off
            Several nodes serve pCPUs 0-2; taken for memory without pCPUs: node 2"#]],
    );
    assert!(host.node(2).is_some_and(|node| node.pcpus.is_empty()));
}

#[test]
fn hwlocs_own_machines() {
    let (_, text) = golden!("hwloc-2.9.0/synthetic.v2.xml");
    let host = described("synthetic", text).host;
    assert_eq!(together(&host, |pcpu| (pcpu.socket, pcpu.core)).len(), 6);
    assert_eq!(host.last_level_cache(0).map(|cache| cache.pcpus.len()), Some(6));
    let (_, text) = golden!("hwloc-2.9.0/two-memories.v2.xml");
    let host = described("two memories", text).host;
    let pcpus: Vec<String> = host.nodes.iter().map(|node| node.pcpus.to_string()).collect();
    assert_eq!(pcpus, ["0-7", "", "8-15", ""]);
}

#[test]
fn libvirt_names_a_model_of_its_own() {
    let host = check(
        "virsh",
        output("libvirt-9.0.0/two-sockets.xml"),
        expect![[r#"
        whether more pCPUs are there, switched off
        clusters
        whether cores are of different kinds
        frequencies
        caches below the last level
        how much memory is free
        how many huge pages are free (all of them count as free)
        the processor's name
        the kernel's command line
        isolated pCPUs
        kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
        KVM, vhost and their parameters"#]],
        expect!["The processor's name is not told; libvirt's nearest model is Broadwell"],
    );
    assert_eq!(host.cpu_model, None);
    assert_eq!(host.huge_pages[0].total, 5120);
    let (_, text) = golden!("libvirt-9.0.0/test-driver.xml");
    let host = described("test driver", text).host;
    assert_eq!(host.nodes[1].pcpus.to_string(), "8-15");
}

#[test]
fn numactl_knows_nodes_alone() {
    check(
        "numactl",
        output("numactl-2.0.16/three-nodes.txt"),
        expect![[r#"
        whether more pCPUs are there, switched off
        which socket each pCPU is in
        dies
        clusters
        which pCPUs are threads of one core
        whether cores are of different kinds
        frequencies
        which pCPUs share a cache
        huge pages
        the processor's name
        the kernel's command line
        isolated pCPUs
        kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states)
        KVM, vhost and their parameters"#]],
        expect![""],
    );
}

#[test]
fn a_saved_host_file_is_itself() {
    let truth = tree(THREE_NODES);
    let read = described("host.json", &truth.to_json());
    assert_eq!(read.unknown(), Vec::<String>::new());
    assert_eq!(read.into_host(), truth);
}

#[test]
fn two_descriptions_are_nearly_all() {
    let summary = described("a", output("util-linux-2.38.1/two-sockets.summary.txt"));
    let table = described("b", output("util-linux-2.38.1/two-sockets.extended.txt"));
    let nodes = described("c", output("numactl-2.0.16/two-sockets.txt"));
    let merged = summary.merge(table).and_then(|both| both.merge(nodes)).expect("one machine");
    expect!["Not told by lscpu, lscpu -e, numactl -H: dies; clusters; whether cores are of different kinds; huge pages; the kernel's command line; isolated pCPUs; kernel settings (transparent huge pages, same-page merging, NUMA balancing, frequency scaling, idle states); KVM, vhost and their parameters"].assert_eq(&merged.into_host().warnings.join("\n"));
}

#[test]
fn descriptions_of_two_machines_are_refused() {
    let one = || described("one.txt", output("util-linux-2.38.1/two-sockets.extended.txt"));
    let refused =
        |text: &str| one().merge(described("other.txt", text)).expect_err("two").to_string();
    expect!["one.txt and other.txt describe different machines, or one at different times: pCPUs 0-22 are online in one, 0-2,4-7 in the other"].assert_eq(&refused(output("numactl-2.0.16/three-nodes.txt")));
    let other_nodes = output("numactl-2.0.16/two-sockets.txt")
        .replace("cpus: 0 1 2 ", "cpus: 3 1 2 ")
        .replace("cpus: 3 4 5 ", "cpus: 0 4 5 ");
    expect!["one.txt and other.txt describe different machines, or one at different times: their nodes hold other pCPUs"].assert_eq(&refused(&other_nodes));
    let other_cores = output("libvirt-9.0.0/two-sockets.xml").replace(
        "<cpu id='12' socket_id='0' die_id='0' core_id='0' siblings='0,12'/>",
        "<cpu id='12' socket_id='0' die_id='0' core_id='0' siblings='12'/>",
    );
    expect!["one.txt and other.txt describe different machines, or one at different times: other pCPUs are threads of one core"].assert_eq(&refused(&other_cores));
}

#[test]
fn faults_are_named_with_their_line() {
    let cases: &[(&str, Expect)] = &[
        (
            "",
            expect![[
                r#"file:1: not a host description: "". Understood are a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H"#
            ]],
        ),
        (
            "\n\nhello\n",
            expect![[
                r#"file:3: not a host description: "hello". Understood are a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H"#
            ]],
        ),
        (
            "# Notes\n",
            expect![[
                r##"file:1: not a host description: "# Notes". Understood are a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H"##
            ]],
        ),
        (
            "Architektur: x86_64\nCPU(s): 4\n",
            expect!["file: No line 'On-line CPU(s) list' names a pCPU (read as lscpu)"],
        ),
        (
            "{\"a\":1}",
            expect![[
                r#"file:1: not a host description: "{\"a\":1}". Understood are a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H"#
            ]],
        ),
        (
            "{\"cpus\": [",
            expect![[
                r#"file:1: Not JSON: EOF while parsing a list at line 1 column 10: "{\"cpus\": [" (read as lscpu -J)"#
            ]],
        ),
        ("{\"cpus\": []}", expect!["file: No online pCPU is listed (read as lscpu -J)"]),
        (
            "{\"caches\": []}",
            expect![[
                r#"file: No pCPU is described here: use 'lscpu -J -e' or 'lscpu -J', not 'lscpu -C': "{\"caches\": []}" (read as lscpu -J)"#
            ]],
        ),
        (
            "{\"format\":\"vmlab-host\",\n\"version\":7}",
            expect![[
                r#"file:2: version is 7, this vmlab reads version 1: use a newer vmlab at line 2 column 12: "\"version\":7}" (read as a saved host file)"#
            ]],
        ),
        (
            "CPU NODE CORE\n0 0\n",
            expect![[r#"file:2: 2 values stand under 3 headings: "0 0" (read as lscpu -e)"#]],
        ),
        ("CPU NODE CORE\n0 0 x\n", expect![[r#"file:2: Not a number: "x" (read as lscpu -e)"#]]),
        (
            "CPU CORE\n0 0\n0 1\n",
            expect![[r#"file:3: This pCPU is listed twice: "0" (read as lscpu -e)"#]],
        ),
        (
            "CPU ONLINE\n0 perhaps\n",
            expect![[r#"file:2: Neither yes nor no: "perhaps" (read as lscpu -e)"#]],
        ),
        (
            "0,0,0,0\n1,1,0,0\n",
            expect![[
                r#"file:1: The heading '# CPU,Core,...' is missing above the first row: keep lscpu's comments: "0,0,0,0" (read as lscpu -p)"#
            ]],
        ),
        (
            "# CPU,Core\n0,0\n70000,0\n",
            expect![[r#"file:3: Not the number of a pCPU: "70000" (read as lscpu -p)"#]],
        ),
        (
            "On-line CPU(s) list: 0-3,\nCPU(s): 4\n",
            expect![[r#"file:1: Not a list of pCPUs like 0-3,8: "0-3," (read as lscpu)"#]],
        ),
        ("<topology/>", expect!["file:1: This topology has no objects (read as hwloc XML)"]),
        (
            "<topology version=\"2.0\">\n<object type=\"Machine\">\n</topology>",
            expect![[
                r#"file:3: Not XML: expected 'object' tag, not 'topology' at 3:1: "</topology>" (read as hwloc XML)"#
            ]],
        ),
        (
            "<topology><object type=\"Machine\"><object type=\"PU\"/></object></topology>",
            expect![[
                r#"file:1: A PU without the number of a pCPU: "<object os_index=\"\">" (read as hwloc XML)"#
            ]],
        ),
        (
            "<topology>\n<object type=\"Machine\" complete_cpuset=\"0xfg\">\n<object type=\"PU\" os_index=\"0\"/></object></topology>",
            expect![[
                r#"file:2: Not a mask of pCPUs like 0x000000ff: "<object complete_cpuset=\"0xfg\">" (read as hwloc XML)"#
            ]],
        ),
        (
            "<!DOCTYPE topology [\n<!ENTITY a \"b\">]>\n<topology/>",
            expect![[
                r#"file:2: Entities are not read: "<!ENTITY a \"b\">]>" (read as hwloc XML)"#
            ]],
        ),
        (
            "<domain type='kvm'/>",
            expect![[
                r#"file:1: not a host description: "<domain type='kvm'/>". Understood are a saved host file (vmlab host --json), lscpu (plain, -e, -p, -J; in English: LC_ALL=C), hwloc XML (lstopo --of xml), virsh capabilities, numactl -H"#
            ]],
        ),
        (
            "<capabilities/>",
            expect!["file:1: There is no <host> inside (read as virsh capabilities)"],
        ),
        (
            "<capabilities>\n<host>\n<topology><cells num='0'/></topology></host></capabilities>",
            expect![[
                r#"file:2: libvirt shows no pCPUs here (it reads none on a machine without NUMA): "<cells>" (read as virsh capabilities)"#
            ]],
        ),
        (
            "available: 0 nodes ()\n",
            expect![[
                r#"file:1: No node with pCPUs is listed: "available: 0 nodes ()" (read as numactl -H)"#
            ]],
        ),
        (
            "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: many MB\n",
            expect![[
                r#"file:3: Not an amount of memory in MB: "node 0 size: many MB" (read as numactl -H)"#
            ]],
        ),
        (
            "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 1 cpus: 1\n",
            expect![[
                r#"file:3: A pCPU of this node is in another one, too: "node 1 cpus: 1" (read as numactl -H)"#
            ]],
        ),
        (
            "available: 1 nodes (0)\nnode 0 cpus: 0\nnode distances:\nnode 0\n 0: 10 20\n",
            expect![[r#"file:5: Not one distance for each node: "0: 10 20" (read as numactl -H)"#]],
        ),
    ];
    for (text, expected) in cases {
        let error = read_description("file", text.as_bytes()).expect_err(text);
        expected.assert_eq(&error.to_string());
    }
}

#[test]
fn hostile_input_is_refused_quickly() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!(
            "<topology><object type=\"Machine\">{}{}</object></topology>",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let bank = "<bank level='3' type='both' cpus='0-16383'/>";
    let cells =
        "<topology><cells><cell id='0'><cpus><cpu id='0'/></cpus></cell></cells></topology>";
    let caches = "{\"level\":1,\"kind\":\"data\",\"pcpus\":\"0-65535\"},".repeat(1000);
    for text in [
        nested("<object type=\"Group\">", "</object>", 200_000),
        format!("<topology {}/>", "a='1' ".repeat(200_000)),
        format!("{{\"lscpu\":{}", "[".repeat(200_000)),
        format!(
            "<capabilities><host>{cells}<cache>{}</cache></host></capabilities>",
            bank.repeat(1000)
        ),
        format!("{{\"format\":\"vmlab-host\",\"version\":1,\"caches\":[{caches}]}}"),
        format!("CPU(s): 4\nOn-line CPU(s) list: {}0", "0-65535,".repeat(100_000)),
        "x".repeat(MAX_BYTES + 1),
    ] {
        let error = read_description("file", text.as_bytes()).expect_err("refused").to_string();
        assert!(error.len() < 500, "{error}");
    }
}

proptest! {
    /// Cut, changed and mixed outputs end in a machine or an error; what is
    /// read is sound.
    #[test]
    fn damaged_outputs_never_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        swap in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..3),
        whole in any::<bool>(),
    ) {
        let outputs: Vec<&str> = [OF_TWO_SOCKETS, OF_THREE_NODES, OF_CLUSTERS]
            .into_iter()
            .flatten()
            .map(|(_, text)| *text)
            .collect();
        let text = which.get(&outputs);
        let mut lines: Vec<&str> = text.lines().collect();
        for (one, other) in &swap {
            let (one, other) = (one.index(lines.len()), other.index(lines.len()));
            lines.swap(one, other);
        }
        let mut bytes = lines.join("\n").into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(read) = read_description("damaged", &bytes) {
            let merged = read.clone().merge(read.clone());
            prop_assert!(merged.is_ok());
            let host = read.into_host();
            prop_assert_eq!(&Host::from_json(&host.to_json()).expect("own text"), &host);
            let placed: usize = host.nesting().iter().map(|group| group.pcpus.len()).sum();
            prop_assert_eq!(placed, host.online().len());
        }
    }
}

/// A hybrid processor as `lscpu -e` shows it: nothing but frequencies tells its
/// cores apart.
#[test]
fn kinds_follow_from_frequencies_where_nothing_else_says() {
    let table = |slow: u32| {
        let line = |cpu: u32, core: u32, mhz: u32| {
            format!("{cpu} 0 0 {core} {core}:{core}:0:0 yes {mhz}.0000 800.0000\n")
        };
        let fast: String = (0..4).map(|cpu| line(cpu, cpu / 2, 5100)).collect();
        let rest: String = (4..8).map(|cpu| line(cpu, cpu - 2, slow)).collect();
        format!("CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ MINMHZ\n{fast}{rest}")
    };
    let kinds = |slow: u32| {
        let host = read_description("lscpu", table(slow).as_bytes()).unwrap().host;
        let kinds: BTreeSet<_> = host.pcpus.iter().map(|pcpu| pcpu.kind).collect();
        let told = host.warnings.iter().any(|warning| warning.contains("efficiency"));
        assert_eq!(told, kinds.len() > 1, "{:?}", host.warnings);
        host.pcpus.iter().map(|pcpu| pcpu.kind).collect::<Vec<_>>()
    };
    let (fast, slow) = (crate::CoreKind::Performance, crate::CoreKind::Efficiency);
    let expected: Vec<_> = [[fast; 4], [slow; 4]].concat().into_iter().map(Some).collect();
    assert_eq!(kinds(3900), expected);
    // Favoured cores are of the same make.
    assert_eq!(kinds(5000), vec![None; 8]);
}
