//! The predictor against real kubelets: what they gave is kept in `testdata`, and the full
//! tier asks them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use placement::predict::verify::{
    Answer, Experiment, ExperimentRecord, MachineShape, RECORDED, Step, ThreadNumbering, verify,
    verify_on,
};
use serde_json::{Map, Value, json};
use suite::{SharedThing, Tier, needs};
use topology::sysfs::{Tree, read_host};
use topology::{Host, PcpuSet};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recorded() -> Vec<Experiment> {
    ExperimentRecord::from_json(RECORDED).expect("a record").experiments
}

/// Sockets, nodes of a socket, cores of a node, caches of a node, threads of a core.
const MACHINES: [([u32; 5], ThreadNumbering); 9] = [
    ([1, 1, 8, 1, 2], ThreadNumbering::Far),
    ([2, 1, 8, 1, 2], ThreadNumbering::Far),
    ([2, 1, 8, 1, 2], ThreadNumbering::Near),
    ([4, 1, 4, 1, 2], ThreadNumbering::Far),
    ([2, 2, 4, 1, 2], ThreadNumbering::Far),
    ([1, 4, 4, 1, 1], ThreadNumbering::Far),
    ([2, 1, 8, 1, 1], ThreadNumbering::Near),
    ([1, 1, 16, 4, 2], ThreadNumbering::Far),
    ([8, 1, 4, 1, 1], ThreadNumbering::Far),
];

/// A policy: its options, the topology manager's policy, more of the configuration.
fn policy(options: &[&str], topology: &str, more: Value) -> Map<String, Value> {
    let on: Map<String, Value> =
        options.iter().map(|name| ((*name).to_owned(), "true".into())).collect();
    let mut kubelet = json!({
        "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": on,
        "topologyManagerPolicy": topology,
    });
    let kubelet = kubelet.as_object_mut().expect("an object");
    kubelet.extend(more.as_object().expect("an object").clone());
    kubelet.clone()
}

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
/// What a node has where memory plays a part: all nodes together less than a small machine,
/// for the kubelet counts the memory of the real one as well.
const NODE_MEMORY: u64 = 1024 * MIB;

/// Which machine has which policy. Every policy is on machines where it matters.
fn experiments() -> Vec<Experiment> {
    let reserved = |set: &str| json!({ "reservedSystemCPUs": set });
    let alpha = |set: &str| {
        json!({ "reservedSystemCPUs": set,
                "featureGates": { "CPUManagerPolicyAlphaOptions": true } })
    };
    const FULL: &str = "full-pcpus-only";
    const NUMA: &str = "distribute-cpus-across-numa";
    let closest = json!({
        "reservedSystemCPUs": "0",
        "topologyManagerPolicyOptions": { "prefer-closest-numa-nodes": "true" },
    });
    let amounts = json!({ "kubeReserved": { "cpu": "700m" }, "systemReserved": { "cpu": "800m" } });
    let all = [
        (0, policy(&[], "none", reserved("0"))),
        (0, policy(&[FULL], "none", reserved("0,8"))),
        (0, policy(&["distribute-cpus-across-cores"], "none", alpha("0"))),
        (0, policy(&["strict-cpu-reservation"], "none", reserved("0,8"))),
        (1, policy(&[], "best-effort", reserved("0,16"))),
        (1, policy(&[FULL], "restricted", reserved("0,16"))),
        (1, policy(&[NUMA], "none", reserved("0"))),
        (1, policy(&[FULL, NUMA], "none", reserved("0,16"))),
        (1, policy(&[FULL], "single-numa-node", reserved("0,16"))),
        (1, policy(&[], "none", amounts.clone())),
        (2, policy(&[], "none", reserved("0"))),
        (2, policy(&[FULL], "single-numa-node", amounts)),
        (2, policy(&["align-by-socket"], "restricted", alpha("0-1"))),
        (3, policy(&[], "single-numa-node", reserved("0"))),
        (3, policy(&[FULL, NUMA], "best-effort", reserved("0,16"))),
        (3, policy(&[], "best-effort", closest.clone())),
        (4, policy(&[], "restricted", reserved("0"))),
        (4, policy(&["align-by-socket"], "best-effort", alpha("0"))),
        (4, policy(&[FULL], "best-effort", closest)),
        (5, policy(&[NUMA], "none", reserved("0"))),
        (5, policy(&[], "restricted", reserved("0,4"))),
        (6, policy(&[FULL], "best-effort", reserved("15"))),
        (7, policy(&["prefer-align-cpus-by-uncorecache"], "none", reserved("0"))),
        (7, policy(&[FULL, "prefer-align-cpus-by-uncorecache"], "best-effort", reserved("0,16"))),
        (8, policy(&[NUMA], "none", reserved("0"))),
        (8, policy(&[], "best-effort", reserved("31"))),
    ];
    let mut sizes = Sizes(7);
    let mut all: Vec<Experiment> = all
        .into_iter()
        .map(|(machine, kubelet)| experiment(machine, kubelet, &mut sizes))
        .collect();
    all.extend(of_memory().into_iter().map(|(machine, kubelet, memory)| {
        let experiment = experiment(machine, kubelet, &mut sizes);
        with_memory(experiment, &memory, &mut sizes)
    }));
    all
}

/// Pods that come and go.
fn experiment(machine: usize, kubelet: Map<String, Value>, sizes: &mut Sizes) -> Experiment {
    let ([sockets, nodes_per_socket, cores_per_node, caches_per_node, threads], thread_numbering) =
        MACHINES[machine];
    let machine = MachineShape {
        sockets,
        nodes_per_socket,
        cores_per_node,
        caches_per_node,
        threads,
        thread_numbering,
        node_memory_bytes: 0,
        node_huge_pages: 0,
    };
    let all = sockets * nodes_per_socket * cores_per_node * threads;
    let mut steps: Vec<Step> = Vec::new();
    for at in 0..7 {
        let (name, pcpus) = (format!("p{at}"), sizes.next(all / 3));
        steps.push(Step::Pod { name, pcpus, memory: BTreeMap::new() });
        // Holes, which later pods have to fill.
        if at == 3 {
            steps.push(Step::Gone { name: "p1".to_owned() });
        }
    }
    Experiment { machine, kubelet, steps, answers: Vec::new() }
}

/// Memory in an experiment.
struct MemoryShape {
    /// The most that a pod asks for, MiB.
    most_mib: u32,
    /// Huge pages of a node; pods ask for some of them, too.
    huge_pages: u64,
}

/// Where memory plays a part.
fn of_memory() -> Vec<(usize, Map<String, Value>, MemoryShape)> {
    let policy = |topology: &str, more: Value| {
        let mut kubelet = policy(&[], topology, more);
        kubelet.insert("memoryManagerPolicy".to_owned(), "Static".into());
        // As much as pods are evicted for, by default, all on the first node.
        let reserved = json!([{ "numaNode": 0, "limits": { "memory": "100Mi" } }]);
        kubelet.entry("reservedMemory").or_insert(reserved);
        kubelet.entry("reservedSystemCPUs").or_insert("0".into());
        kubelet
    };
    let plain = |most_mib| MemoryShape { most_mib, huge_pages: 0 };
    let with_pages = |most_mib| MemoryShape { most_mib, huge_pages: 128 };
    let full = json!({ "cpuManagerPolicyOptions": { "full-pcpus-only": "true" } });
    let closest =
        json!({ "topologyManagerPolicyOptions": { "prefer-closest-numa-nodes": "true" } });
    let spread = json!({
        "kubeReserved": { "memory": "200Mi" },
        "reservedMemory": [
            { "numaNode": 0, "limits": { "memory": "200Mi" } },
            { "numaNode": 1, "limits": { "memory": "100Mi" } },
        ],
    });
    vec![
        (0, policy("none", json!({})), plain(300)),
        (1, policy("none", json!({})), plain(600)),
        (1, policy("best-effort", json!({})), plain(700)),
        (1, policy("restricted", json!({})), plain(700)),
        (1, policy("single-numa-node", json!({})), plain(600)),
        (1, policy("restricted", full.clone()), plain(1500)),
        (1, policy("best-effort", spread), plain(600)),
        (3, policy("none", json!({})), plain(1400)),
        (3, policy("best-effort", json!({})), plain(1400)),
        (3, policy("best-effort", closest.clone()), plain(2000)),
        (3, policy("restricted", json!({})), plain(1400)),
        (3, policy("single-numa-node", full), plain(900)),
        (4, policy("restricted", closest), plain(1600)),
        (4, policy("none", json!({})), with_pages(900)),
        (4, policy("best-effort", json!({})), with_pages(900)),
        (5, policy("restricted", json!({})), with_pages(700)),
        (8, policy("best-effort", json!({})), plain(2500)),
        (8, policy("restricted", json!({})), with_pages(1500)),
    ]
}

/// The same pods, which ask for memory as well.
fn with_memory(mut experiment: Experiment, of: &MemoryShape, sizes: &mut Sizes) -> Experiment {
    experiment.machine.node_memory_bytes = NODE_MEMORY;
    experiment.machine.node_huge_pages = of.huge_pages;
    for step in &mut experiment.steps {
        let Step::Pod { memory, .. } = step else { continue };
        memory.insert("memory".to_owned(), u64::from(sizes.next(of.most_mib)) * MIB);
        if let Ok(pages) = u32::try_from(of.huge_pages)
            && pages > 0
        {
            let bytes = u64::from(sizes.next(pages)) * 2 * MIB;
            memory.insert("hugepages-2Mi".to_owned(), bytes);
        }
    }
    experiment
}

/// Sizes that are the same in every run (a linear congruential generator, by Knuth's
/// constants for 64 bits).
struct Sizes(u64);

impl Sizes {
    /// From 1 to `most`.
    fn next(&mut self, most: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + ((self.0 >> 33) % u64::from(most)) as u32
    }
}

/// What a kubelet reads of a host below `/sys/devices/system`.
fn tree(host: &Host) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut put = |path: String, text: String| files.insert(path, text + "\n");
    let all = host.online();
    for list in ["online", "possible", "present"] {
        put(format!("cpu/{list}"), all.to_string());
    }
    for pcpu in &host.pcpus {
        let (folder, number) = (format!("cpu/cpu{}", pcpu.id), |at: Option<u32>| at.unwrap_or(0));
        put(format!("{folder}/topology/core_id"), number(pcpu.core).to_string());
        put(format!("{folder}/topology/physical_package_id"), number(pcpu.socket).to_string());
        let of_core = |other: &topology::Pcpu| {
            (other.socket, other.node, other.core) == (pcpu.socket, pcpu.node, pcpu.core)
        };
        let siblings = host.select(of_core).to_string();
        put(format!("{folder}/topology/thread_siblings_list"), siblings);
        let cache = host.last_level_cache(pcpu.id).expect("a cache");
        let first = cache.pcpus.first().unwrap_or(0);
        for (name, text) in [
            ("id", first.to_string()),
            ("level", "3".to_owned()),
            ("size", "32768K".to_owned()),
            ("type", "Unified".to_owned()),
            ("shared_cpu_list", cache.pcpus.to_string()),
            ("shared_cpu_map", mask(&cache.pcpus)),
        ] {
            put(format!("{folder}/cache/index3/{name}"), text);
        }
    }
    for node in &host.nodes {
        let folder = format!("node/node{}", node.id);
        put(format!("{folder}/cpulist"), node.pcpus.to_string());
        let memory = node.memory_bytes.unwrap_or(16 << 30) >> 10;
        put(format!("{folder}/meminfo"), format!("Node {} MemTotal: {memory} kB", node.id));
        for pool in &node.huge_pages {
            let pool_folder = format!("{folder}/hugepages/hugepages-{}kB", pool.page_bytes >> 10);
            put(format!("{pool_folder}/nr_hugepages"), pool.total.to_string());
            put(format!("{pool_folder}/free_hugepages"), pool.free.to_string());
        }
        let row: Vec<String> = node.distances.values().map(u32::to_string).collect();
        put(format!("{folder}/distance"), row.join(" "));
    }
    let nodes: PcpuSet = host.nodes.iter().map(|node| node.id).collect();
    put("node/online".to_owned(), nodes.to_string());
    let pages: u64 =
        host.nodes.iter().flat_map(|node| &node.huge_pages).map(|pool| pool.total).sum();
    if pages > 0 {
        put("hugepages/hugepages-2048kB/nr_hugepages".to_owned(), pages.to_string());
    }
    files
}

/// A set as the kernel's masks say it: words of 32 bits in hexadecimal, the highest first.
fn mask(pcpus: &PcpuSet) -> String {
    let words = pcpus.iter().max().unwrap_or(0) / 32 + 1;
    let word = |at: u32| {
        (0..32).filter(|bit| pcpus.contains(at * 32 + bit)).fold(0_u32, |all, bit| all | 1 << bit)
    };
    (0..words).rev().map(|at| format!("{:08x}", word(at))).collect::<Vec<_>>().join(",")
}

/// Such files, as our own reader sees them.
struct Files(BTreeMap<String, String>);

impl Tree for Files {
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path.strip_prefix("sys/devices/system/")?).cloned()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Some(folder) = path.strip_prefix("sys/devices/system/") else { return Vec::new() };
        let names = self.0.keys().filter_map(|file| file.strip_prefix(folder)?.strip_prefix('/'));
        let names: BTreeSet<&str> = names.filter_map(|rest| rest.split('/').next()).collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn every_pod_got_what_is_predicted() {
    let recorded = recorded();
    let (mut pods, mut wrong) = (0, Vec::<String>::new());
    for experiment in &recorded {
        // Once on the machine as it is written down, once as our reader of sysfs sees it.
        let host = experiment.machine.host().expect("a machine");
        let seen = read_host(&Files(tree(&host)));
        for verified in [verify(experiment), verify_on(&seen, experiment)] {
            for pod in verified.expect("an experiment") {
                pods += 1;
                if !pod.is_right() {
                    let pod = serde_json::to_string(&pod).expect("JSON");
                    wrong.push(format!("{:?} {:?}: {pod}", experiment.machine, experiment.kubelet));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {pods}:\n{}", wrong.len(), wrong.join("\n"));
    let machines: Vec<_> = recorded.iter().map(|one| one.machine).collect();
    let different = machines.iter().enumerate().filter(|(at, one)| !machines[..*at].contains(one));
    assert!(different.count() >= 6 && pods >= 2 * 100, "{pods} answers");
    let rejected = |one: &&Answer| matches!(one, Answer::Rejected(_));
    let answers: Vec<&Answer> = recorded.iter().flat_map(|one| &one.answers).collect();
    assert!(answers.iter().copied().filter(|one| rejected(one)).count() > 10);
}

#[test]
fn an_experiment_that_is_none_is_an_error() {
    let good = recorded().into_iter().next().expect("an experiment");
    let shape = |sockets, caches_per_node| {
        let machine = MachineShape { sockets, caches_per_node, ..good.machine };
        Experiment { machine, ..good.clone() }
    };
    let steps = |steps: &[Step]| Experiment { steps: steps.to_vec(), ..good.clone() };
    let gone = Step::Gone { name: "nobody".to_owned() };
    for (bad, said) in [
        (shape(0, 1), "A machine of 0 pCPUs"),
        (shape(u32::MAX, 1), "give sockets, nodes, cores"),
        (shape(1, 3), "3 caches don't divide"),
        (steps(&[gone]), "\"nobody\" goes without being there"),
        (steps(&[]), "0 pods came and"),
    ] {
        let error = verify(&bad).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    for (text, said) in [
        ("", "Not a record"),
        ("[]", "Not a record"),
        ("{\"version\": 2, \"pods\": []}", "has version 2, and this vmlab reads version 1"),
        ("{\"version\": 1}", "Not a record"),
    ] {
        let error = ExperimentRecord::from_json(text).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// Asks real kubelets, and holds what is kept against their answers
/// (`UPDATE_EXPECT=1` keeps them).
#[test]
fn real_kubelets_give_what_is_kept() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut experiments = experiments();
    for (at, experiment) in experiments.iter().enumerate() {
        let case = folder.path().join(format!("{at:03}"));
        let host = experiment.machine.host().expect("a machine");
        for (path, text) in tree(&host) {
            let path = case.join("sys").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        for node in &host.nodes {
            for pcpu in node.pcpus.iter() {
                let link = case.join(format!("sys/node/node{}/cpu{pcpu}", node.id));
                std::os::unix::fs::symlink(format!("../../cpu/cpu{pcpu}"), link).expect("a link");
            }
        }
        // JSON is YAML, a key a line.
        let lines = experiment.kubelet.iter().map(|(key, value)| format!("{key}: {value}\n"));
        fs::write(case.join("kubelet.yaml"), lines.collect::<String>()).expect("a file");
        let steps = experiment.steps.iter().map(|step| match step {
            Step::Pod { name, pcpus, memory } => {
                let bytes = |kind: &str| memory.get(kind);
                let ordinary = bytes("memory").unwrap_or(&MIB);
                let pages = bytes("hugepages-2Mi").map(u64::to_string).unwrap_or_default();
                format!("pod {name} {pcpus} {ordinary} {pages}\n")
            }
            Step::Gone { name } => format!("gone {name}\n"),
        });
        fs::write(case.join("steps"), steps.collect::<String>()).expect("a file");
    }
    let mut command = Command::new(root().join("scripts/ask-kubelet"));
    let output = command.arg(folder.path()).output().expect("the script");
    if output.status.code() == Some(3) {
        return suite::skip("no namespaces can be made here");
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for (at, experiment) in experiments.iter_mut().enumerate() {
        let path = folder.path().join(format!("{at:03}/answers"));
        let text = fs::read_to_string(path).expect("answers");
        experiment.answers = text.lines().map(answer).collect();
    }
    let kept = root().join("crates/placement/testdata/kubelet-1.36.3/experiments.json");
    let (version, kubernetes) = (ExperimentRecord::VERSION, "1.36.3".to_owned());
    let record = ExperimentRecord { version, kubernetes, experiments };
    let text = serde_json::to_string_pretty(&record).expect("JSON") + "\n";
    expect_test::expect_file![kept].assert_eq(&text);
}

/// A line of the script's.
fn answer(line: &str) -> Answer {
    let mut words = line.splitn(3, ' ');
    let (_, what, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
    match what {
        Some("pcpus") => match rest.split_once(" nodes ") {
            None => Answer::Pcpus(rest.parse().expect("pCPUs")),
            Some((pcpus, nodes)) => Answer::Bound {
                pcpus: pcpus.parse().expect("pCPUs"),
                memory_nodes: nodes.parse().expect("nodes"),
            },
        },
        _ => Answer::Rejected(rest.to_owned()),
    }
}
