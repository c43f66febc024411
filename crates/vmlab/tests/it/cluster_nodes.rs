//! Clusters of several nodes, of which all but one are emulated hosts: what a real
//! scheduler and real kubelets make of pods, against the forecast.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use suite::until;
use topology::{Host, PcpuSet};

use crate::lab::{CommandOutput, has_ended};
use crate::local_clusters::{User, left, programs, send, start, up};
use crate::nodes::{THIN_STUDY, in_one_line, load_image};
use crate::running::assert_complete;
use crate::schemas;

const PODS: &str = "/api/v1/namespaces/default/pods";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const HOST_NAME: &str = "kubernetes.io/hostname";

/// A host of two sockets with two cores of two threads each, whose second threads are
/// numbered behind all first ones.
fn two_sockets_with_threads() -> Value {
    let pcpus: Vec<Value> = (0..8)
        .map(|id| {
            let core = id % 4;
            json!({
                "id": id, "online": true, "socket": core / 2, "core": core, "thread": id / 4,
                "node": core / 2,
            })
        })
        .collect();
    let node = |id: u32, pcpus: &str, distances: [u32; 2]| {
        json!({
            "id": id, "pcpus": pcpus, "memory_bytes": 8_u64 << 30,
            "distances": { "0": distances[0], "1": distances[1] },
        })
    };
    json!({
        "format": "vmlab-host", "version": 1, "hostname": "wide", "arch": "x86_64",
        "memory_bytes": 16_u64 << 30, "pcpus": pcpus,
        "nodes": [node(0, "0-1,4-5", [10, 20]), node(1, "2-3,6-7", [20, 10])],
    })
}

/// What a pod and the VM that the forecast is asked about have in common.
struct Case {
    name: &'static str,
    cpus: u32,
    /// Whether it tolerates the taint of the node `wide`.
    tolerant: bool,
    /// What its affinity requires of the node's host name: an operator, a name.
    affinity: Option<(&'static str, &'static str)>,
    memory: Memory,
    /// How much it asks for in huge pages of 2 MiB, MiB.
    huge_mib: u64,
    expected: PodOutcome,
}

/// How much memory one asks for.
enum Memory {
    Mebibytes(u64),
    /// More than pods can get of the first memory node of `wide`, less than the second has.
    MoreThanTheFirstNode,
    /// More than any memory node of `wide` has, less than all have.
    MoreThanEachNode,
}

/// What the kubelet of `wide` keeps of its first node.
const RESERVED_BYTES: u64 = 100 << 20;
/// What each of its two nodes sets aside in huge pages.
const HUGE_PAGES_OF_EACH: u64 = 64 << 20;

impl Memory {
    fn bytes(&self, wide: &Host) -> u64 {
        let of_node = |at: usize| wide.nodes[at].memory_bytes.expect("memory") - HUGE_PAGES_OF_EACH;
        let (first, second) = (of_node(0) - RESERVED_BYTES, of_node(1));
        match self {
            Self::Mebibytes(count) => count << 20,
            Self::MoreThanTheFirstNode => {
                assert!(second > first, "{wide:#?}");
                first.midpoint(second)
            }
            Self::MoreThanEachNode => first.max(second) + (64 << 20),
        }
    }
}

/// What the scheduler and the kubelet do, which the forecast must say by itself.
enum PodOutcome {
    /// It runs on this node.
    Runs(&'static str),
    /// A kubelet rejects it, with this reason.
    Rejected(&'static str),
    /// The scheduler finds no node.
    NoNode,
}

/// Before it another pod takes huge pages.
const FIRST_OF_HUGE_PAGES: &str = "f-wide-pages";

const CASES: [Case; 10] = [
    // Three pCPUs are free, but no node of the host has them.
    Case {
        name: "a-three",
        cpus: 3,
        tolerant: false,
        affinity: None,
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::Rejected("TopologyAffinityError"),
    },
    Case {
        name: "b-one",
        cpus: 1,
        tolerant: false,
        affinity: None,
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::Runs("small"),
    },
    Case {
        name: "c-two",
        cpus: 2,
        tolerant: false,
        affinity: None,
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::Runs("small"),
    },
    // The taint keeps it from the node that has pCPUs left.
    Case {
        name: "d-one",
        cpus: 4,
        tolerant: false,
        affinity: None,
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::NoNode,
    },
    Case {
        name: "e-half-core",
        cpus: 1,
        tolerant: true,
        affinity: Some(("In", "wide")),
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::Rejected("SMTAlignmentError"),
    },
    // pCPUs are free on each memory node, but memory only on both together, which `restricted`
    // does not take.
    Case {
        name: "f-wide-memory",
        cpus: 2,
        tolerant: true,
        affinity: Some(("In", "wide")),
        memory: Memory::MoreThanEachNode,
        huge_mib: 0,
        expected: PodOutcome::Rejected("TopologyAffinityError"),
    },
    // Huge pages are free on both together alone, too, as another pod has some of the first
    // node's; the topology manager takes the node with the pCPUs, and the memory manager can't
    // add the other one.
    Case {
        name: FIRST_OF_HUGE_PAGES,
        cpus: 2,
        tolerant: true,
        affinity: Some(("In", "wide")),
        memory: Memory::Mebibytes(16),
        huge_mib: 72,
        expected: PodOutcome::Rejected("UnexpectedAdmissionError"),
    },
    // Its memory draws it to the second node, though the first one has a free core.
    Case {
        name: "g-memory",
        cpus: 2,
        tolerant: true,
        affinity: Some(("In", "wide")),
        memory: Memory::MoreThanTheFirstNode,
        huge_mib: 0,
        expected: PodOutcome::Runs("wide"),
    },
    // So do huge pages.
    Case {
        name: "h-pages",
        cpus: 2,
        tolerant: true,
        affinity: Some(("NotIn", "small")),
        memory: Memory::Mebibytes(16),
        huge_mib: 48,
        expected: PodOutcome::Runs("wide"),
    },
    // A core is free, but the pod with the huge pages has asked for half of one of its CPUs.
    Case {
        name: "i-core",
        cpus: 2,
        tolerant: true,
        affinity: None,
        memory: Memory::Mebibytes(16),
        huge_mib: 0,
        expected: PodOutcome::NoNode,
    },
];

impl Case {
    /// The fields that a pod's spec and a VM's have in common.
    fn place(&self) -> Value {
        let mut selector = json!([
            { "key": "kubevirt.io/schedulable", "operator": "Exists" },
        ]);
        if let Some((operator, host)) = self.affinity {
            let more = json!({ "key": HOST_NAME, "operator": operator, "values": [host] });
            selector.as_array_mut().expect("a list").push(more);
        }
        let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": selector }] });
        let mut place = json!({
            "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            }},
        });
        if self.tolerant {
            let toleration = json!({ "key": "lab", "operator": "Equal", "value": "wide" });
            place["tolerations"] = json!([toleration]);
        }
        place
    }

    /// A Guaranteed pod that does nothing.
    fn pod(&self, wide: &Host) -> Value {
        let mut spec = self.place();
        let memory = self.memory.bytes(wide).to_string();
        let mut amounts = json!({ "cpu": self.cpus, "memory": memory });
        if self.huge_mib > 0 {
            amounts["hugepages-2Mi"] = json!(format!("{}Mi", self.huge_mib));
        }
        sleeper(self.name, spec.take(), &amounts)
    }

    /// A VM that asks for as many pCPUs; nobody starts it.
    fn vm(&self, wide: &Host) -> Value {
        let mut spec = self.place();
        let memory = match self.huge_mib {
            0 => json!({ "guest": self.memory.bytes(wide).to_string() }),
            huge => json!({ "guest": format!("{huge}Mi"), "hugepages": { "pageSize": "2Mi" } }),
        };
        spec["domain"] = json!({
            "cpu": { "cores": self.cpus, "dedicatedCpuPlacement": true },
            "memory": memory, "devices": {},
        });
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": self.name }, "spec": spec,
        })
    }
}

/// A Guaranteed pod that does nothing.
fn sleeper(name: &str, mut spec: Value, amounts: &Value) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"] = json!([{
        "name": "it", "image": "vmlab/pause:1", "imagePullPolicy": "Never",
        "resources": { "requests": amounts, "limits": amounts },
    }]);
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// The settings of the two kubelets: files.
fn kubelets(user: &User) -> [PathBuf; 2] {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                cpuManagerPolicy: static\n";
    let small = "reservedSystemCPUs: \"0\"\ntopologyManagerPolicy: single-numa-node\n";
    // What is reserved of the memory of nodes is what is reserved of all: the threshold
    // below which pods are evicted.
    let wide = "reservedSystemCPUs: \"0,4\"\ntopologyManagerPolicy: restricted\n\
                cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n\
                memoryManagerPolicy: Static\n\
                reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n\
                registerWithTaints: [{key: lab, value: wide, effect: NoSchedule}]\n";
    [("small", small), ("wide", wide)].map(|(name, text)| {
        let path = user.state().join(format!("{name}.yaml"));
        fs::write(&path, format!("{head}{text}")).expect("a file");
        path
    })
}

impl User {
    /// A file of a node's host.
    fn inside(&self, node: &str, path: &str) -> String {
        let said = self.say(&["replica", "exec", &format!("lab-{node}"), "--", "cat", path]);
        said.has_code(0).stdout.trim().to_owned()
    }
}

/// Pods run where the forecast says that a VM would, on the pCPUs that it says.
#[test]
fn pods_run_where_the_forecast_says() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let [small, wide] = kubelets(&user).map(|path| path.display().to_string());
    let host = user.state().join("wide.json");
    fs::write(&host, two_sockets_with_threads().to_string()).expect("a file");
    let host = host.display().to_string();
    let (small, wide) = (format!("small={small}"), format!("wide={wide}"));
    let nodes = ["--node", "small=two-nodes", "--node", &host];
    let kubelets = ["--kubelet", &small, "--kubelet", &wide];
    let pages = ["--node-huge-pages", "wide=128MiB"];
    let words = [&nodes[..], &kubelets, &pages].concat();
    let Some(status) = up(&user, &programs, &words) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let cgroup = status["cgroup"].as_str().expect("a cgroup").to_owned();
    let nodes = status["nodes"].as_array().expect("nodes");
    let replicas: Vec<_> = nodes.iter().map(|node| node["replica"].as_str()).collect();
    assert_eq!(replicas, [Some("lab-small"), None, Some("lab-wide")], "{status:#}");
    user.say(&["cluster", "load", "/dev/null", "--node", "x"]).is_error(&["small, wide"]);
    let archive = user.folder().join("pause.tar");
    let archive = archive.to_str().expect("a path");
    let loaded = user.say(&["cluster", "load", archive, "--node", "wide"]);
    assert!(
        loaded.has_code(0).stdout.contains("wide: unpacking docker.io/vmlab/pause:1"),
        "{loaded:#?}"
    );

    // What KubeVirt would bring to be asked about VMs: its kinds, and labels of nodes.
    let kinds = fs::read_to_string(format!("{programs}/crds.json")).expect("a file");
    for kind in kinds.lines() {
        let kind: Value = serde_json::from_str(kind).expect("JSON");
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        user.ask(&server, path, Some(&kind));
    }
    let label = json!({ "metadata": { "labels": {
        "kubevirt.io/schedulable": "true", "kubevirt.io/cpumanager": "true",
    }}});
    let folder = user.state().join("hosts");
    fs::create_dir(&folder).expect("a folder");
    let hosts = ["small", "wide"].map(|node| {
        user.request(&server, "PATCH", &format!("/api/v1/nodes/{node}"), Some(&label));
        let replica = format!("lab-{node}");
        let told = user.say(&["replica", "exec", &replica, "--", "vmlab", "host", "--json"]);
        let told = &told.has_code(0).stdout;
        fs::write(folder.join(format!("{node}.json")), told).expect("a file");
        Host::from_json(told).expect("a host")
    });
    let kubeconfig = user.folder().join("kubeconfig").display().to_string();
    let folder = folder.display().to_string();
    let forecast = || {
        let words =
            ["plan", "--cluster", "--kubeconfig", &kubeconfig, "--json", "--hosts", &folder];
        let told = user.say(&words);
        let forecast = schemas::holds("cluster-forecast", &told.stdout);
        assert_eq!(forecast["unread"], json!([]), "{forecast:#}");
        forecast
    };

    let mut real = Vec::new();
    for case in &CASES {
        if case.name == FIRST_OF_HUGE_PAGES {
            take_huge_pages_of_first_node(&user, &server);
        }
        until("KubeVirt's kinds are served", || user.try_request(&server, "GET", VMS, None).ok());
        user.ask(&server, VMS, Some(&case.vm(&hosts[1])));
        let told = forecast();
        let vm = &told["vms"][0];
        assert_eq!(vm["name"], case.name, "{told:#}");
        let of_wide = &told["nodes"].as_array().expect("nodes")[2]["kubelet"];
        assert_eq!(of_wide["is_memory_predicted"], true, "{told:#}");
        user.request(&server, "DELETE", &format!("{VMS}/{}", case.name), None);

        user.ask(&server, PODS, Some(&case.pod(&hosts[1])));
        let path = format!("{PODS}/{}", case.name);
        let pod = until("the pod's fate", || {
            let pod = user.ask(&server, &path, None);
            let unschedulable = pod["status"]["conditions"][0]["reason"] == "Unschedulable";
            let is_over = pod["status"]["phase"] == "Running" || pod["status"]["phase"] == "Failed";
            (is_over || unschedulable).then_some(pod)
        });
        let (phase, node) = (&pod["status"]["phase"], &pod["spec"]["nodeName"]);
        match case.expected {
            PodOutcome::Runs(expected) => {
                assert_eq!((phase, node), (&json!("Running"), &json!(expected)), "{pod:#}");
                assert_eq!((&vm["state"], &vm["node"]), (&json!("can-start"), node), "{vm:#}");
                let own = own_pcpus(&user, &pod);
                assert_eq!(vm["pcpus"], own.to_string(), "{vm:#}");
                real.push((expected, case.name, own));
            }
            PodOutcome::Rejected(reason) => {
                assert_eq!(pod["status"]["reason"], reason, "{pod:#}");
                assert_eq!(vm["state"], "can-not-start", "{vm:#}");
                assert_ne!(vm["nodes_that_fit"], 0, "{vm:#}");
                assert!(vm["findings"].to_string().contains(reason), "{reason}: {vm:#}");
            }
            PodOutcome::NoNode => {
                assert_eq!((phase, node), (&json!("Pending"), &Value::Null), "{pod:#}");
                assert_eq!(vm["state"], "can-not-start", "{vm:#}");
            }
        }
        if !matches!(case.expected, PodOutcome::Runs(_)) {
            user.request(&server, "DELETE", &path, None);
            until("the pod's end", || user.try_request(&server, "GET", &path, None).err());
        }
    }
    // All that run, laid on their nodes anew.
    let told = forecast();
    let mut laid = Vec::new();
    for node in told["nodes"].as_array().expect("nodes") {
        for pod in node["pods"].as_array().expect("pods") {
            let pcpus: PcpuSet = pod["pcpus"].as_str().expect("pCPUs").parse().expect("pCPUs");
            let text = |value: &Value| value.as_str().expect("a name").to_owned();
            if pcpus.is_empty() {
                assert_eq!(pod["name"], "pages", "{told:#}");
                continue;
            }
            laid.push((text(&node["name"]), text(&pod["name"]), pcpus));
        }
    }
    let owned = |(node, name, pcpus): &(&str, &str, PcpuSet)| {
        ((*node).to_owned(), (*name).to_owned(), pcpus.clone())
    };
    assert_eq!(laid, real.iter().map(owned).collect::<Vec<_>>(), "{told:#}");
    memory_is_beside_the_pcpus(&user, &server, &real, &hosts[1]);

    user.say(&["cluster", "down", "lab"]).has_code(0);
    assert_eq!(user.say(&["replica", "list", "--json"]).stdout.trim(), "[]");
    assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
}

/// Starts a pod without pCPUs of its own that gets huge pages of the first node of `wide`.
fn take_huge_pages_of_first_node(user: &User, server: &str) {
    let amounts = json!({ "cpu": "500m", "memory": "16Mi", "hugepages-2Mi": "48Mi" });
    let place = json!({
        "nodeName": "wide", "tolerations": [{ "key": "lab", "operator": "Exists" }],
    });
    user.ask(server, PODS, Some(&sleeper("pages", place, &amounts)));
    let pages = until("the pod runs", || {
        let pod = user.ask(server, &format!("{PODS}/pages"), None);
        assert_ne!(pod["status"]["phase"], "Failed", "{pod:#}");
        (pod["status"]["phase"] == "Running").then_some(pod)
    });
    let blocks = memory_blocks(user, &pages);
    for kind in ["memory", "hugepages-2Mi"] {
        assert!(blocks.contains(&(kind.to_owned(), vec![0])), "{kind}: {blocks:?}");
    }
}

/// The pCPUs that the kubelet of its node has given a pod, which are those on which its
/// container may run.
fn own_pcpus(user: &User, pod: &Value) -> PcpuSet {
    let node = pod["spec"]["nodeName"].as_str().expect("a node");
    let uid = pod["metadata"]["uid"].as_str().expect("an id");
    let state = user.inside(node, "/var/lib/kubelet/cpu_manager_state");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    let given = state["entries"][uid]["it"].as_str().expect("pCPUs").to_owned();
    let container = pod["status"]["containerStatuses"][0]["containerID"].as_str();
    let container = container.expect("an id").trim_start_matches("containerd://");
    let path = format!("/sys/fs/cgroup/kubepods/pod{uid}/{container}/cpuset.cpus");
    let (given, real): (PcpuSet, PcpuSet) =
        (given.parse().expect("pCPUs"), user.inside(node, &path).parse().expect("pCPUs"));
    assert_eq!(given, real, "{pod:#}");
    given
}

/// The static memory manager binds pods to the nodes of their pCPUs while these have memory.
fn memory_is_beside_the_pcpus(
    user: &User,
    server: &str,
    real: &[(&str, &str, PcpuSet)],
    host: &Host,
) {
    let on_wide: Vec<_> = real.iter().filter(|(node, ..)| *node == "wide").collect();
    assert_eq!(on_wide.len(), 2);
    for (_, name, pcpus) in on_wide {
        let pod = user.ask(server, &format!("{PODS}/{name}"), None);
        let nodes = host.nodes.iter();
        let near = nodes.filter(|node| node.pcpus.iter().any(|id| pcpus.contains(id)));
        let near: Vec<u32> = near.map(|node| node.id).collect();
        let blocks = memory_blocks(user, &pod);
        let kinds = 1 + usize::from(*name == "h-pages");
        assert_eq!(blocks.len(), kinds, "{name}: {blocks:?}");
        assert!(blocks.iter().all(|(_, nodes)| *nodes == near), "{name}: {blocks:?}");
    }
}

/// The kinds of memory that the kubelet of `wide` has given a pod, each with its nodes.
fn memory_blocks(user: &User, pod: &Value) -> Vec<(String, Vec<u32>)> {
    let state = user.inside("wide", "/var/lib/kubelet/memory_manager_state");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state["policyName"], "Static", "{state:#}");
    let uid = pod["metadata"]["uid"].as_str().expect("an id");
    let blocks = state["entries"][uid]["it"].as_array().expect("its memory");
    let block = |block: &Value| {
        let nodes = block["numaAffinity"].clone();
        let kind = block["type"].as_str().expect("a kind").to_owned();
        (kind, serde_json::from_value(nodes).expect("nodes"))
    };
    blocks.iter().map(block).collect()
}

/// KubeVirt's own handler and launcher run on an emulated host, and a VM's vCPUs where they
/// were predicted.
#[test]
fn a_vm_runs_on_an_emulated_host_where_it_was_predicted() {
    let Some((_turn, programs)) = programs(&["--kubevirt"]) else { return };
    let user = User::new();
    let [small, _] = kubelets(&user).map(|path| path.display().to_string());
    let small = format!("far={small}");
    let node = ["--kubevirt", "--node", "far=two-nodes", "--node-memory", "3GiB"];
    let settings = ["--node-huge-pages", "far=256MiB", "--kubelet", &small];
    let Some(status) = up(&user, &programs, &[&node[..], &settings].concat()) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let far = &status["nodes"][0];
    assert_eq!((&far["name"], &far["takes_vms"]), (&json!("far"), &json!(true)), "{status:#}");
    let pinned = |cpu: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "web" },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": { "kubernetes.io/hostname": "far" },
                "domain": {
                    "memory": { "guest": "64Mi", "hugepages": { "pageSize": "2Mi" } },
                    "cpu": cpu,
                    "devices": { "autoattachPodInterface": false },
                },
            },
        })
    };
    let vms = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    let cpu = json!({ "cores": 2, "dedicatedCpuPlacement": true });
    user.ask(&server, vms, Some(&pinned(cpu)));
    until("the VM runs", || {
        let vm = user.ask(&server, &format!("{vms}/web"), None);
        assert_ne!(vm["status"]["phase"], "Failed", "{vm:#}");
        (vm["status"]["phase"] == "Running").then_some(())
    });
    let folder = user.state().join("hosts");
    fs::create_dir(&folder).expect("a folder");
    let inside = |words: &[&str]| {
        let said = user.say(&[&["replica", "exec", "lab-far", "--"], words].concat());
        said.has_code(0).stdout.clone()
    };
    fs::write(folder.join("far.json"), inside(&["vmlab", "host", "--json"])).expect("a file");
    let kubeconfig = user.folder().join("kubeconfig").display().to_string();
    let folder = folder.display().to_string();
    let told =
        user.say(&["plan", "--cluster", "--kubeconfig", &kubeconfig, "--json", "--hosts", &folder]);
    let forecast = schemas::holds("cluster-forecast", &told.has_code(0).stdout);
    let vm = &forecast["vms"][0];
    assert_eq!((&vm["state"], &vm["node"]), (&json!("runs"), &json!("far")), "{forecast:#}");
    // On one node, as the topology manager insists, and that is not the one with the system.
    assert_eq!((&vm["pcpus"], &vm["pins"]), (&json!("2-3"), &json!([2, 3])), "{forecast:#}");
    let script = "for t in /proc/[0-9]*/task/*; do read -r n <$t/comm; case $n in CPU*/TCG) \
                  sed -n \"s|^Cpus_allowed_list:|$n|p\" $t/status;; esac; done 2>/dev/null; :";
    let mut real: Vec<String> = inside(&["sh", "-c", script])
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    real.sort();
    assert_eq!(real, ["CPU 0/TCG 2", "CPU 1/TCG 3"], "{forecast:#}");
    // Its memory is in huge pages of that node, of which each had 64.
    let free = [0, 1].map(|node| {
        let pools = format!("/sys/devices/system/node/node{node}/hugepages");
        inside(&["cat", &format!("{pools}/hugepages-2048kB/free_hugepages")]).trim().to_owned()
    });
    assert_eq!(free, ["64", "32"], "{forecast:#}");

    // KubeVirt's device plugin gives KVM to other pods, too.
    is_measured_under_kvm_of_far(&user, &load_image(&user), "devices.kubevirt.io/kvm");
    user.say(&["cluster", "down", "lab"]).has_code(0);
    assert_eq!(user.say(&["replica", "list", "--json"]).stdout.trim(), "[]");
}

/// Two kubelets, one on an emulated host, run a study each, and the report takes both.
#[test]
fn a_study_is_measured_on_two_real_nodes() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let nodes = ["--node", "far=two-nodes", "--node-memory", "3GiB"];
    let Some(_) = up(&user, &programs, &nodes) else { return };
    let image = load_image(&user);
    let study = user.state().join("study.toml");
    fs::write(&study, THIN_STUDY).expect("a file");
    let (study, dir) = (study.display().to_string(), user.state().join("results"));
    let out = dir.display().to_string();
    let kubeconfig = user.folder().join("kubeconfig").display().to_string();
    let cluster = ["--on", "k8s", "--kubeconfig", &kubeconfig, "--node-image", &image];
    let ran = user.say(&[&["run", &study, "--out", &out][..], &cluster].concat());
    ran.has_code(0);
    assert!(in_one_line(&ran).contains("on 2 nodes: 2 complete"), "{ran:#?}");
    let set = runner::node_set::read(&dir).expect("a list");
    let names: Vec<&str> = set.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["far", "vmlab"]);
    for node in &set.nodes {
        assert_complete(&dir.join(&node.folder));
    }
    let report = user.say(&["report", &out, "--format", "json"]);
    let report = schemas::holds("across", &report.has_code(0).stdout);
    let across = &report["groups"][0]["variants"][0]["across"];
    assert_eq!((&across["hosts"], &across["blocks"]), (&json!(2), &json!(4)), "{report:#}");

    is_measured_under_kvm_of_far(&user, &image, "hostpath");
    user.say(&["cluster", "down", "lab"]).has_code(0);
    assert_eq!(user.say(&["replica", "list", "--json"]).stdout.trim(), "[]");
}

/// A study runs under the KVM of the node `far`, with the image whose boot proves it; what
/// emulates that node is known in a container, too. `how` the pod gets the device is what
/// `--node-kvm` takes.
fn is_measured_under_kvm_of_far(user: &User, image: &str, how: &str) {
    user.say(&["image", "build"]).has_code(0);
    let study = user.state().join("kvm.toml");
    fs::write(&study, THIN_STUDY.replace("accel = \"tcg\"", "accel = \"kvm\"")).expect("a file");
    let dir = user.state().join("under-kvm");
    let [study, out, kubeconfig] =
        [&study, &dir, &user.folder().join("kubeconfig")].map(|path| path.display().to_string());
    let cluster = ["--on", "k8s", "--kubeconfig", &kubeconfig, "--node-image", image];
    let node = ["--node-kvm", how, "--nodes", "kubernetes.io/hostname=far"];
    let ran = user.say(&[&["run", &study, "--out", &out][..], &cluster, &node].concat());
    ran.has_code(0);
    let set = runner::node_set::read(&dir).expect("a list");
    let contents = assert_complete(&dir.join(&set.nodes[0].folder));
    assert_eq!(contents.plan.environment(), record::Environment::NestedKvm);
}

/// However a start ends while a node's host boots, nothing of it stays.
#[test]
fn nothing_stays_of_a_node_that_is_not_up_yet() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    if !rustix::process::geteuid().is_root() {
        return suite::skip("a cluster needs root");
    }
    for signal in [Signal::INT, Signal::KILL] {
        let user = User::new();
        let starting = start(&user, &programs, &["--node", "two-nodes"]);
        let pid = user.state().join("vmlab/replicas/lab-two-nodes/pid");
        let qemu = until("the host's QEMU runs", || {
            Pid::from_raw(fs::read_to_string(&pid).ok()?.trim().parse().ok()?)
        });
        let made = user.made().expect("a cluster");
        let cgroup = made["cgroup"].as_str().expect("a cgroup").to_owned();
        send(u64::from(starting.id()), signal);
        let ended = starting.wait_with_output().expect("vmlab");
        if signal == Signal::INT {
            CommandOutput::of(ended).has_code(2);
        } else {
            user.say(&["clean"]).has_code(0);
        }
        has_ended(qemu);
        assert!(!user.folder().exists());
        assert_eq!(user.say(&["replica", "list", "--json"]).stdout.trim(), "[]");
        assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
    }
}

#[test]
fn a_node_that_can_not_be_is_said_before_anything_begins() {
    let user = User::new();
    // Where there are no programs of Kubernetes', those are what is missing first.
    let Some((_turn, programs)) = programs(&[]) else { return };
    let up = ["cluster", "up", "--programs", &programs];
    let say = |words: &[&str]| user.say(&[&up[..], words].concat());
    say(&["--node", "two-nods"]).is_error(&["two-nods", "none of xeon-4208"]);
    say(&["--node", "altra"]).is_error(&["--node altra=altra", "aarch64"]);
    say(&["--node", "two-nodes", "--node", "two-nodes"]).is_error(&["--node two-nodes-1=HOST"]);
    say(&["--node", "vmlab=two-nodes"]).is_error(&["which is this machine"]);
    say(&["--node", "a=two-nodes", "--kubelet", "b=x.yaml"]).is_error(&["there are a, vmlab"]);
    if rustix::process::geteuid().is_root() {
        let none = "two-nodes=/none.yaml";
        say(&["--node", "two-nodes", "--kubelet", none]).is_error(&["/none.yaml"]);
        // A replica that has the node's name by chance is nobody's to end.
        let other = ["replica", "up", "--like", "two-nodes", "--name", "lab-two-nodes"];
        user.say(&other).has_code(0);
        let taken = ["vmlab replica down lab-two-nodes", "which is up"];
        say(&["--node", "two-nodes"]).is_error(&taken);
        user.say(&["replica", "exec", "lab-two-nodes", "--", "true"]).has_code(0);
        user.say(&["replica", "down", "lab-two-nodes"]).has_code(0);
    }
    assert!(!user.folder().exists());
}
