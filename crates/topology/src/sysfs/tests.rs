//! Tests of the reader of sysfs trees.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::{CoreKind, PcpuGroup, PcpuSet, TopologyLevel};

/// A tree in memory.
#[derive(Clone, Default)]
struct MadeTree(BTreeMap<String, String>);

impl Tree for MadeTree {
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

const PCPUS: &str = "sys/devices/system/cpu";

impl MadeTree {
    /// What every machine shows, for this many online pCPUs.
    fn machine(pcpus: u32) -> Self {
        let last = pcpus - 1;
        MadeTree::default()
            .file(&format!("{PCPUS}/online"), &format!("0-{last}\n"))
            .file(&format!("{PCPUS}/present"), &format!("0-{last}\n"))
            .file("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n")
            .file("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu lm\n")
            .file("proc/sys/kernel/osrelease", "6.1.0\n")
            .file("sys/module/kvm/parameters/halt_poll_ns", "200000\n")
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.0.insert(path.to_owned(), text.to_owned());
        self
    }

    fn without(mut self, part: &str) -> Self {
        self.0.retain(|path, _| !path.contains(part));
        self
    }

    /// A pCPU with these topology files.
    fn pcpu(self, id: u32, files: &[(&str, &str)]) -> Self {
        files.iter().fold(self, |tree, (name, text)| {
            tree.file(&format!("{PCPUS}/cpu{id}/topology/{name}"), &format!("{text}\n"))
        })
    }

    /// A pCPU of a socket and core, with its threads.
    fn thread(self, id: u32, socket: &str, core: &str, siblings: &str) -> Self {
        self.pcpu(
            id,
            &[("physical_package_id", socket), ("core_id", core), ("core_cpus_list", siblings)],
        )
    }

    fn cache(self, index: u32, level: u32, kind: &str, size: &str, pcpus: &str) -> Self {
        let sharing: PcpuSet = pcpus.parse().expect("a list");
        sharing.iter().fold(self, |tree, id| {
            let folder = format!("{PCPUS}/cpu{id}/cache/index{index}");
            tree.file(&format!("{folder}/level"), &format!("{level}\n"))
                .file(&format!("{folder}/type"), &format!("{kind}\n"))
                .file(&format!("{folder}/size"), &format!("{size}\n"))
                .file(&format!("{folder}/shared_cpu_list"), &format!("{pcpus}\n"))
        })
    }

    fn node(self, id: u32, pcpus: &str, mib: u64, distance: &str) -> Self {
        let folder = format!("sys/devices/system/node/node{id}");
        let kib = mib * 1024;
        self.file(&format!("{folder}/cpulist"), &format!("{pcpus}\n"))
            .file(&format!("{folder}/distance"), &format!("{distance}\n"))
            .file(
                &format!("{folder}/meminfo"),
                &format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree:        0 kB\n"),
            )
    }

    fn host(&self) -> Host {
        let host = read_host(self);
        let back = Host::from_json(&host.to_json()).expect("own text");
        assert_eq!(back, host, "the host format loses nothing");
        host
    }
}

/// The nesting in one line: `s0(n0(L3(c0:0,16 c1:1,17)))`.
fn outline(groups: &[PcpuGroup]) -> String {
    let shown: Vec<String> = groups
        .iter()
        .map(|group| {
            let id = group.id.map_or("?".to_owned(), |id| id.to_string());
            let name = match group.level {
                TopologyLevel::Socket => format!("s{id}"),
                TopologyLevel::Node => format!("n{id}"),
                TopologyLevel::Die => format!("d{id}"),
                TopologyLevel::Cache(level) => format!("L{level}"),
                TopologyLevel::Cluster => format!("cl{id}"),
                TopologyLevel::Core => return format!("c{id}:{}", group.pcpus),
            };
            format!("{name}({})", outline(&group.children))
        })
        .collect();
    shown.join(" ")
}

#[track_caller]
fn check(tree: &MadeTree, nesting: Expect, warnings: Expect) -> Host {
    let host = tree.host();
    nesting.assert_eq(&outline(&host.nesting()));
    warnings.assert_eq(&host.warnings.join("\n"));
    let inside: usize = host.nesting().iter().map(|group| group.pcpus.len()).sum();
    assert_eq!(inside, host.online().len(), "every online pCPU has a place");
    host
}

/// 2 sockets x 8 cores x 2 threads, a node each, Linux's usual numbering.
fn xeon() -> MadeTree {
    let mut tree = MadeTree::machine(32).node(0, "0-7,16-23", 65536, "10 21").node(
        1,
        "8-15,24-31",
        65536,
        "21 10",
    );
    for core in 0..16 {
        let (socket, siblings) = (core / 8, format!("{core},{}", core + 16));
        for id in [core, core + 16] {
            tree = tree.thread(id, &socket.to_string(), &(core % 8).to_string(), &siblings);
        }
        tree = tree
            .cache(0, 1, "Data", "32K", &siblings)
            .cache(1, 1, "Instruction", "32K", &siblings)
            .cache(2, 2, "Unified", "1024K", &siblings);
    }
    tree.cache(3, 3, "Unified", "22528K", "0-7,16-23").cache(
        3,
        3,
        "Unified",
        "22528K",
        "8-15,24-31",
    )
}

#[test]
fn two_sockets() {
    let host = check(
        &xeon(),
        expect![
            "s0(n0(L3(c0:0,16 c1:1,17 c2:2,18 c3:3,19 c4:4,20 c5:5,21 c6:6,22 c7:7,23))) s1(n1(L3(c0:8,24 c1:9,25 c2:10,26 c3:11,27 c4:12,28 c5:13,29 c6:14,30 c7:15,31)))"
        ],
        expect![""],
    );
    assert_eq!(host.caches.len(), 16 * 3 + 2);
    assert_eq!(host.nodes[1].distances, BTreeMap::from([(0, 21), (1, 10)]));
    assert_eq!(host.nodes[0].memory_bytes, Some(64 << 30));
    assert_eq!(host.pcpu(24).and_then(|pcpu| pcpu.thread), Some(1));
    let l3 = host.last_level_cache(9).expect("an L3");
    assert_eq!(l3.size_bytes, Some(22 << 20));
}

#[test]
fn epyc_with_two_l3_caches_a_node() {
    // One socket in NPS2: two nodes, in each two L3 caches of two cores.
    let mut tree = MadeTree::machine(8).node(0, "0-3", 1024, "10 12").node(1, "4-7", 1024, "12 10");
    for id in 0..8 {
        tree = tree.thread(id, "0", &id.to_string(), &id.to_string());
        tree = tree.pcpu(id, &[("die_id", "0"), ("cluster_id", "65535")]);
    }
    for first in [0, 2, 4, 6] {
        tree = tree.cache(3, 3, "Unified", "32768K", &format!("{first}-{}", first + 1));
    }
    check(
        &tree,
        expect!["s0(n0(L3(c0:0 c1:1) L3(c2:2 c3:3)) n1(L3(c4:4 c5:5) L3(c6:6 c7:7)))"],
        expect![""],
    );
}

#[test]
fn dies_with_repeated_core_ids() {
    let mut tree = MadeTree::machine(4).node(0, "0-3", 1024, "10");
    for id in 0..4u32 {
        tree = tree
            .thread(id, "0", &(id % 2).to_string(), &id.to_string())
            .pcpu(id, &[("die_id", &(id / 2).to_string())]);
    }
    let tree = tree.cache(3, 3, "Unified", "1M", "0-1").cache(3, 3, "Unified", "1M", "2-3");
    check(&tree, expect!["s0(n0(d0(L3(c0:0 c1:1)) d1(L3(c0:2 c1:3))))"], expect![""]);
    // A kernel that does not show dies: the lists of threads decide.
    check(
        &tree.without("die_id"),
        expect!["s0(n0(L3(c0:0 c1:1) L3(c2:2 c3:3)))"],
        expect![
            "Core ids do not match the lists of threads: cores are numbered anew in each socket"
        ],
    );
}

#[test]
fn arm64_with_clusters() {
    let mut tree = MadeTree::machine(8)
        .file(
            "proc/cpuinfo",
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd03\n\nprocessor\t: 4\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd08\n",
        )
        .node(0, "0-7", 1024, "10");
    for id in 0..8u32 {
        tree = tree
            .thread(id, "0", &(id % 4).to_string(), &id.to_string())
            .pcpu(id, &[("cluster_id", if id < 4 { "0" } else { "1" }), ("die_id", "-1")])
            .file(
                &format!("{PCPUS}/cpu{id}/cpu_capacity"),
                if id < 4 { "485\n" } else { "1024\n" },
            );
    }
    let host = check(
        &tree.clone().cache(2, 2, "Unified", "512K", "0-3").cache(2, 2, "Unified", "2048K", "4-7"),
        expect!["s0(n0(L2(c0:0 c1:1 c2:2 c3:3) L2(c0:4 c1:5 c2:6 c3:7)))"],
        expect![""],
    );
    assert_eq!(host.arch.as_deref(), Some("aarch64"));
    assert_eq!(host.cpu_model.as_deref(), Some("Cortex-A53 + Cortex-A72"));
    assert_eq!(host.pcpus[0].kind, Some(CoreKind::Efficiency));
    assert_eq!(host.pcpus[7].kind, Some(CoreKind::Performance));
    assert_eq!(host.pcpus[7].capacity, Some(1024));
    // No cache is told: the clusters themselves divide the socket.
    check(
        &tree,
        expect!["s0(n0(cl0(c0:0 c1:1 c2:2 c3:3) cl1(c0:4 c1:5 c2:6 c3:7)))"],
        expect!["Caches are unknown: the kernel or a container hides them"],
    );
}

#[test]
fn firmware_without_socket_numbers() {
    let mut tree = MadeTree::machine(4).node(0, "0-3", 1024, "10");
    for id in 0..4u32 {
        tree = tree.thread(id, "-1", &id.to_string(), &id.to_string());
    }
    let tree = tree.cache(2, 2, "Unified", "1M", "0-3");
    check(&tree, expect!["s?(n0(L2(c0:0 c1:1 c2:2 c3:3)))"], expect![""]);
    let mut told = tree;
    for id in 0..4u32 {
        let name = if id < 2 { "package_cpus_list" } else { "core_siblings" };
        told = told.pcpu(id, &[(name, if id < 2 { "0-1" } else { "0000000c" })]);
    }
    check(&told, expect!["s0(n0(L2(c0:0 c1:1))) s1(n0(L2(c2:2 c3:3)))"], expect![""]);
}

#[test]
fn power_with_holes_everywhere() {
    // Nodes 0, 1, 16, 17; sockets 0 and 8; cores counted in eights; every
    // second thread offline.
    let mut tree = MadeTree::machine(1)
        .file(&format!("{PCPUS}/online"), "0,2,8,10,16,18,24,26\n")
        .file(&format!("{PCPUS}/present"), "0-3,8-11,16-19,24-27\n")
        .file("proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n")
        .file("sys/devices/system/node/online", "0-1,16-17\n")
        .file("sys/devices/system/node/possible", "0-255\n")
        .node(0, "0,2,8,10", 2048, "10 20 40 40")
        .node(1, "16,18,24,26", 2048, "20 10 40 40")
        .node(16, "", 4096, "40 40 10 40")
        .node(17, "", 0, "40 40 40 10");
    for first in [0, 8, 16, 24u32] {
        let (socket, siblings) = (first / 16 * 8, format!("{first},{}", first + 2));
        for id in [first, first + 2] {
            tree = tree.thread(id, &socket.to_string(), &first.to_string(), &siblings);
            tree = tree.cache(0, 1, "Data", "32K", &siblings);
        }
    }
    // The link to the node stays while a pCPU is offline.
    let tree = tree.file(&format!("{PCPUS}/cpu1/node0/x"), "");
    let host =
        check(&tree, expect!["s0(n0(c0:0,2 c8:8,10)) s8(n1(c16:16,18 c24:24,26))"], expect![""]);
    assert_eq!(host.arch.as_deref(), Some("ppc64le"));
    assert_eq!(host.offline().to_string(), "1,3,9,11,17,19,25,27");
    assert_eq!(host.pcpu(1).and_then(|pcpu| pcpu.node), Some(0));
    assert_eq!(host.pcpu(3).and_then(|pcpu| pcpu.node), None);
    let ids: Vec<u32> = host.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [0, 1, 16, 17]);
    assert_eq!(host.nodes[3].memory_bytes, Some(0));
    assert_eq!(host.nodes[2].distances.get(&16), Some(&10));
    assert!(host.nodes[2].pcpus.is_empty());
}

#[test]
fn one_pcpu() {
    let tree = MadeTree::machine(1)
        .file(&format!("{PCPUS}/online"), "0\n")
        .file(&format!("{PCPUS}/present"), "0\n")
        .thread(0, "0", "0", "0")
        .node(0, "0", 512, "10");
    check(
        &tree,
        expect!["s0(n0(c0:0))"],
        expect!["Caches are unknown: the kernel or a container hides them"],
    );
}

#[test]
fn hybrid_cores() {
    // Two big cores of two threads, each a cluster of its own; four small ones
    // in a cluster that shares an L2; two low-power ones without the L3.
    let mut tree = MadeTree::machine(10)
        .node(0, "0-9", 1024, "10")
        .file("sys/devices/cpu_core/cpus", "0-3\n")
        .file("sys/devices/cpu_atom/cpus", "4-7\n")
        .file("sys/devices/cpu_lowpower/cpus", "8-9\n");
    for id in 0..4u32 {
        let core = id / 2 * 4;
        tree = tree
            .thread(id, "0", &core.to_string(), if id < 2 { "0-1" } else { "2-3" })
            .pcpu(id, &[("cluster_id", &core.to_string())]);
    }
    for id in 4..10u32 {
        let cluster = if id < 8 { "8" } else { "16" };
        tree = tree
            .thread(id, "0", &(id + 4).to_string(), &id.to_string())
            .pcpu(id, &[("cluster_id", cluster)]);
    }
    let tree = tree
        .cache(2, 2, "Unified", "2048K", "4-7")
        .cache(2, 2, "Unified", "2048K", "8-9")
        .cache(3, 3, "Unified", "24M", "0-7");
    let host = check(
        &tree,
        expect!["s0(n0(L3(c0:0-1 c4:2-3 cl8(c8:4 c9:5 c10:6 c11:7)) c12:8 c13:9))"],
        expect![""],
    );
    assert_eq!(host.pcpus[0].kind, Some(CoreKind::Performance));
    assert_eq!(host.pcpus[4].kind, Some(CoreKind::Efficiency));
    assert_eq!(host.pcpus[8].kind, Some(CoreKind::LowPower));
}

#[test]
fn no_numa_and_old_names() {
    let mut tree = MadeTree::machine(4);
    for id in 0..4u32 {
        let first = id / 2 * 2;
        tree = tree.pcpu(
            id,
            &[
                ("physical_package_id", "0"),
                ("core_id", &(id / 2).to_string()),
                ("thread_siblings_list", &format!("{first}-{}", first + 1)),
                ("core_siblings_list", "0-3"),
            ],
        );
        tree = tree.cache(0, 1, "Data", "32K", &format!("{first}-{}", first + 1));
    }
    let host = check(
        &tree,
        expect!["s0(c0:0-1 c1:2-3)"],
        expect![
            "The kernel shows no memory nodes (it was built without NUMA, or a container hides them)"
        ],
    );
    assert!(host.nodes.is_empty());
    assert_eq!(host.pcpus[3].thread, Some(1));
}

#[test]
fn a_node_over_two_sockets() {
    let mut tree = MadeTree::machine(4).node(0, "0-3", 1024, "10");
    for id in 0..4u32 {
        tree = tree.thread(id, &(id / 2).to_string(), "0", &format!("{id}"));
        tree = tree.cache(0, 1, "Data", "32K", &format!("{id}"));
    }
    // Both pCPUs of a socket claim core 0 but are no siblings.
    check(
        &tree,
        expect!["s0(n0(c0:0 c1:1)) s1(n0(c0:2 c1:3))"],
        expect![
            "Core ids do not match the lists of threads: cores are numbered anew in each socket"
        ],
    );
}

#[test]
fn a_container_that_hides_parts() {
    let tree = MadeTree::default()
        .file(&format!("{PCPUS}/online"), "0-3\n")
        .file(&format!("{PCPUS}/cpu7/topology/core_id"), "3\n")
        .file(
            "proc/cpuinfo",
            "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 2\nphysical id\t: 1\ncore id\t\t: 5\n",
        )
        .file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-2,64-127\n")
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/cpu.max", "150000 100000\n")
        .file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    let host = check(
        &tree,
        expect!["s0(c0:0-1) s1(c5:2) s?(c?:3 c3:7)"],
        expect![[r#"
            The kernel shows no memory nodes (it was built without NUMA, or a container hides them)
            The list of online pCPUs leaves out 7, which are running: a container shortens it
            The topology of pCPUs 0-2 is hidden: sockets and cores are taken from /proc/cpuinfo
            The topology of pCPUs 3 is hidden: sockets, cores and threads are unknown
            Caches are unknown: the kernel or a container hides them
            This process may run on pCPUs 1-2 alone, of 0-3,7 online (a cpuset or an affinity mask holds it)
            Memory is unknown: /proc/meminfo cannot be read
            Kernel modules are unknown: /sys/module cannot be read
            A CPU quota holds this process to the time of 1.50 pCPUs (cpu.max of its control group)"#]],
    );
    assert_eq!(host.allowed.expect("told").to_string(), "1-2");
    assert_eq!(host.kvm.device, None);
}

/// What Linux 6.1.0 of Debian showed in QEMU 7.2 (`-cpu EPYC -smp
/// 8,sockets=2,cores=2,threads=2`, three nodes of which one has no pCPUs,
/// `isolcpus=domain,4-5 nohz_full=4-5`) after pCPU 3 was switched off.
#[test]
fn a_real_kernel() {
    let text = include_str!("../../testdata/linux-6.1.0/three-nodes-one-offline.json");
    let tree = MadeTree(serde_json::from_str(text).expect("a map of texts"));
    let host = check(
        &tree,
        expect!["s0(n0(L3(c0:0 c1:1 c2:2))) s1(n1(L3(c0:4 c1:5 c2:6 c3:7)))"],
        expect!["Kernel modules are unknown: /sys/module cannot be read"],
    );
    assert_eq!(host.offline().to_string(), "3");
    assert_eq!(host.isolated.expect("told").to_string(), "4-5");
    assert_eq!(host.allowed.expect("told").to_string(), "0-2,6-7");
    assert_eq!(host.nodes[2].distances, BTreeMap::from([(0, 17), (1, 28), (2, 10)]));
    assert!(host.nodes[2].pcpus.is_empty());
}

#[test]
fn nothing_at_all() {
    check(
        &MadeTree::default(),
        expect![""],
        expect![[r#"
            The processor is unknown: /proc/cpuinfo cannot be read
            The kernel shows no memory nodes (it was built without NUMA, or a container hides them)
            No list of online pCPUs can be read: all present ones count
            Memory is unknown: /proc/meminfo cannot be read
            Kernel modules are unknown: /sys/module cannot be read"#]],
    );
}

#[test]
fn nonsense_is_named_once() {
    let mut tree = xeon().file("sys/devices/system/node/node0/distance", "10 21 30\n");
    for id in 0..32 {
        tree = tree.file(&format!("{PCPUS}/cpu{id}/cpu_capacity"), "lots\n");
    }
    let host = tree.file(&format!("{PCPUS}/isolated"), "5-2\n").host();
    expect![[r#"
        /sys/devices/system/node/node0/distance does not hold one number for each of 2 nodes: "10 21 30"
        Cannot make sense of "lots" in /sys/devices/system/cpu/cpu0/cpu_capacity and in 31 more files of that name
        Cannot make sense of "5-2" in /sys/devices/system/cpu/isolated"#]]
    .assert_eq(&host.warnings.join("\n"));
}

#[test]
fn policies() {
    const MM: &str = "sys/kernel/mm";
    let mut tree = xeon()
        .file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=domain,4-7 quiet nohz_full=4-7 kvm-intel.nested=1 hugepagesz=1G hugepages=8\n")
        .file(&format!("{PCPUS}/isolated"), "4-7\n")
        .file(&format!("{PCPUS}/nohz_full"), "  (null)\n")
        .file(&format!("{PCPUS}/smt/control"), "on\n")
        .file(&format!("{PCPUS}/cpuidle/current_driver"), "intel_idle\n")
        .file(&format!("{PCPUS}/cpuidle/current_governor_ro"), "menu\n")
        .file(&format!("{PCPUS}/cpu0/cpuidle/state10/name"), "C10\n")
        .file(&format!("{PCPUS}/cpu0/cpuidle/state2/name"), "C1E\n")
        .file(&format!("{PCPUS}/cpu0/cpuidle/state2/latency"), "10\n")
        .file(&format!("{PCPUS}/cpu0/cpuidle/state2/disable"), "1\n")
        .file("sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n")
        .file(&format!("{MM}/transparent_hugepage/enabled"), "always [madvise] never\n")
        .file(&format!("{MM}/transparent_hugepage/defrag"), "always defer [defer+madvise] madvise never\n")
        .file(&format!("{MM}/ksm/run"), "1\n")
        .file(&format!("{MM}/ksm/merge_across_nodes"), "0\n")
        .file(&format!("{MM}/hugepages/hugepages-1048576kB/nr_hugepages"), "8\n")
        .file(&format!("{MM}/hugepages/hugepages-1048576kB/free_hugepages"), "6\n")
        .file(&format!("{MM}/hugepages/hugepages-2048kB/nr_hugepages"), "0\n")
        .file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
        .file("proc/sys/kernel/numa_balancing", "1\n")
        .file("proc/misc", "232 kvm\n238 vhost-net\n")
        .file("sys/module/kvm_intel/parameters/nested", "Y\n")
        .file("sys/module/kvmgt/parameters/x", "1\n")
        .file("sys/module/vhost/parameters/max_mem_regions", "64\n")
        .file("sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
    for id in 0..32 {
        let folder = format!("{PCPUS}/cpufreq/policy{id}");
        let governor = if id < 2 { "powersave\n" } else { "performance\n" };
        tree = tree
            .file(&format!("{folder}/scaling_driver"), "intel_pstate\n")
            .file(&format!("{folder}/scaling_governor"), governor)
            .file(&format!("{folder}/scaling_min_freq"), "800000\n")
            .file(&format!("{folder}/scaling_max_freq"), "3000000\n")
            .file(&format!("{folder}/cpuinfo_max_freq"), "3500000\n")
            .file(&format!("{folder}/affected_cpus"), &format!("{id}\n"));
    }
    let mut host = tree.host();
    assert_eq!(host.pcpus[31].max_khz, Some(3_500_000));
    assert_eq!(host.virtualised.is_vm, Some(false));
    host.pcpus.clear();
    host.caches.clear();
    expect![[r#"
        {
          "format": "vmlab-host",
          "version": 1,
          "kernel": "6.1.0",
          "cmdline": [
            "isolcpus=domain,4-7",
            "nohz_full=4-7",
            "kvm-intel.nested=1",
            "hugepagesz=1G",
            "hugepages=8"
          ],
          "arch": "x86_64",
          "cpu_model": "A Processor",
          "virtualised": {
            "is_vm": false
          },
          "memory_bytes": 16777216,
          "available_bytes": 8388608,
          "pcpus": [],
          "nodes": [
            {
              "id": 0,
              "pcpus": "0-7,16-23",
              "memory_bytes": 68719476736,
              "free_bytes": 0,
              "distances": {
                "0": 10,
                "1": 21
              }
            },
            {
              "id": 1,
              "pcpus": "8-15,24-31",
              "memory_bytes": 68719476736,
              "free_bytes": 0,
              "distances": {
                "0": 21,
                "1": 10
              },
              "huge_pages": [
                {
                  "page_bytes": 2097152,
                  "total": 512,
                  "free": 0
                }
              ]
            }
          ],
          "huge_pages": [
            {
              "page_bytes": 2097152,
              "total": 0,
              "free": 0
            },
            {
              "page_bytes": 1073741824,
              "total": 8,
              "free": 6
            }
          ],
          "isolated": "4-7",
          "nohz_full": "",
          "settings": {
            "thp_enabled": "madvise",
            "thp_defrag": "defer+madvise",
            "ksm_run": 1,
            "ksm_merge_across_nodes": false,
            "numa_balancing": 1,
            "smt": "on"
          },
          "frequency": [
            {
              "pcpus": "0-1",
              "driver": "intel_pstate",
              "governor": "powersave",
              "min_khz": 800000,
              "max_khz": 3000000
            },
            {
              "pcpus": "2-31",
              "driver": "intel_pstate",
              "governor": "performance",
              "min_khz": 800000,
              "max_khz": 3000000
            }
          ],
          "cpuidle": {
            "driver": "intel_idle",
            "governor": "menu",
            "states": [
              {
                "name": "C1E",
                "latency_us": 10,
                "disabled": true
              },
              {
                "name": "C10",
                "disabled": false
              }
            ],
            "haltpoll": {
              "guest_halt_poll_ns": "200000"
            }
          },
          "kvm": {
            "device": true,
            "modules": [
              {
                "name": "kvm",
                "parameters": {
                  "halt_poll_ns": "200000"
                }
              },
              {
                "name": "kvm_intel",
                "parameters": {
                  "nested": "Y"
                }
              }
            ]
          },
          "vhost": [
            {
              "name": "vhost",
              "parameters": {
                "max_mem_regions": "64"
              }
            },
            {
              "name": "vhost_net"
            }
          ]
        }
    "#]]
    .assert_eq(&host.to_json());
}

#[test]
fn a_virtual_machine_says_so() {
    let flagged = MadeTree::machine(1).file("proc/cpuinfo", "flags\t: fpu lm hypervisor\n");
    assert_eq!(flagged.host().virtualised.signs, ["the processor's hypervisor flag"]);
    let arm = MadeTree::machine(1)
        .file("proc/cpuinfo", "CPU architecture: 8\n")
        .file("sys/class/dmi/id/sys_vendor", "QEMU\n")
        .file("sys/class/dmi/id/product_name", "KVM Virtual Machine\n");
    assert_eq!(arm.host().virtualised.signs, ["DMI: QEMU KVM Virtual Machine"]);
    let silent = MadeTree::machine(1).file("proc/cpuinfo", "CPU architecture: 8\n");
    assert_eq!(silent.host().virtualised.is_vm, None);
}

proptest! {
    /// Whatever the files hold, the reader ends, the format loses nothing and
    /// every online pCPU has one place.
    #[test]
    fn any_tree_can_be_read(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), "[0-9,:a-f\\-\n ]{0,8}"), 0..20),
        missing in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut tree = xeon();
        let paths: Vec<String> = tree.0.keys().cloned().collect();
        for (at, text) in &damage {
            tree.0.insert(at.get(&paths).clone(), text.clone());
        }
        for at in &missing {
            tree.0.remove(at.get(&paths));
        }
        let host = tree.host();
        let mut placed = Vec::new();
        for group in host.nesting() {
            for core in group.cores() {
                placed.extend(core.pcpus.iter());
            }
        }
        placed.sort_unstable();
        prop_assert_eq!(placed, host.online().iter().collect::<Vec<_>>());
    }
}
