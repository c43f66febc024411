//! What is said of clusters: against a server of our own (`fake_api.rs`), and in the full
//! tier against a real API server with KubeVirt's definitions and a real kubelet, to which
//! the same is asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::fake_api::{Answer, Content, FakeApi};
use crate::lab::{CommandOutput, VMLAB, said, vmlab};
use crate::{local_clusters, schemas};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
const VMS: &str = "/apis/kubevirt.io/v1/virtualmachines";
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const KUBEVIRTS: &str = "/apis/kubevirt.io/v1/kubevirts";
const TYPES: &str = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A node as its kubelet makes it, with the labels that virt-handler gives.
fn node(name: &str, cpus: u32, is_static: bool) -> Value {
    json!({
        "metadata": { "name": name, "labels": {
            "kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true",
            "cpumanager": is_static.to_string(),
        }},
        "spec": {},
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "lastHeartbeatTime": null,
                "lastTransitionTime": null,
            }],
            "capacity": { "cpu": cpus.to_string(), "memory": "32Gi" },
            "allocatable": { "cpu": (cpus - 1).to_string(), "memory": "30Gi" },
            "nodeInfo": {
                "kubeletVersion": "v1.36.3", "kernelVersion": "6.12.0", "machineID": "",
                "systemUUID": "", "bootID": "", "osImage": "", "containerRuntimeVersion": "",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

fn configz(is_static: bool) -> Answer {
    let config = match is_static {
        true => json!({
            "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": { "full-pcpus-only": "true" },
            "reservedSystemCPUs": "0,16", "topologyManagerPolicy": "restricted",
        }),
        false => json!({ "cpuManagerPolicy": "none" }),
    };
    Answer::new(200, json!({ "kubeletconfig": config }).to_string())
}

fn spec(cpu: Value, memory: &str) -> Value {
    json!({ "domain": { "cpu": cpu, "memory": { "guest": memory }, "devices": {} } })
}

fn object(kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": kind,
        "metadata": {
            "name": name, "namespace": "shop", "creationTimestamp": "2026-01-02T03:04:05Z",
        },
    });
    for (key, value) in rest.as_object().expect("an object") {
        object[key] = value.clone();
    }
    object
}

fn vm(name: &str, spec: Value) -> Value {
    object(
        "VirtualMachine",
        name,
        json!({ "spec": { "runStrategy": "Always", "template": { "spec": spec } } }),
    )
}

/// The instance of a VM, on a node.
fn running(name: &str, spec: Value, node: &str) -> Value {
    let mut instance = object(
        "VirtualMachineInstance",
        name,
        json!({ "spec": spec, "status": { "nodeName": node, "phase": "Running" } }),
    );
    instance["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": "1",
    }]);
    instance
}

/// Two threads a core, of pCPUs of its own.
fn pinned(cores: u32) -> Value {
    spec(json!({ "cores": cores, "threads": 2, "dedicatedCpuPlacement": true }), "2Gi")
}

/// A cluster of two nodes, of which one hands out pCPUs, and five VMs.
fn shop() -> Content {
    let odd = spec(
        json!({ "cores": 4, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true }),
        "2Gi",
    );
    let large = spec(json!({ "cores": 2 }), "64Gi");
    let small = spec(json!({ "cores": 2 }), "1Gi");
    let named = json!({
        "runStrategy": "Halted",
        "instancetype": { "name": "two", "kind": "VirtualMachineClusterInstancetype" },
        "template": { "spec": { "domain": { "devices": {} } } },
    });
    let lists = BTreeMap::from([
        (NODES.to_owned(), vec![node("two", 16, false), node("one", 32, true)]),
        (
            VMS.to_owned(),
            vec![
                vm("web", pinned(2)),
                vm("odd", odd.clone()),
                vm("large", large),
                vm("small", small.clone()),
                object("VirtualMachine", "named", json!({ "spec": named })),
            ],
        ),
        (
            INSTANCES.to_owned(),
            vec![running("web", pinned(2), "one"), running("small", small, "two")],
        ),
        (
            KUBEVIRTS.to_owned(),
            vec![json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
                "spec": {}, "status": { "observedKubeVirtVersion": "v1.7.0" },
            })],
        ),
        (
            TYPES.to_owned(),
            vec![json!({
                "apiVersion": "instancetype.kubevirt.io/v1beta1",
                "kind": "VirtualMachineClusterInstancetype", "metadata": { "name": "two" },
                "spec": {
                    "cpu": { "guest": 2, "dedicatedCPUPlacement": true },
                    "memory": { "guest": "1Gi" },
                },
            })],
        ),
        (PODS.to_owned(), Vec::new()),
    ]);
    let mut content = Content { lists, ..Content::default() };
    for (name, is_static) in [("one", true), ("two", false)] {
        content.fixed.insert(format!("{NODES}/{name}/proxy/configz"), configz(is_static));
    }
    content
}

struct Lab {
    folder: tempfile::TempDir,
    api: FakeApi,
}

impl Lab {
    fn new(content: Content) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let api = FakeApi::start(folder.path(), content);
        Self { folder, api }
    }

    /// `vmlab WORDS... --cluster --kubeconfig FILE`.
    fn say(&self, words: &[&str]) -> CommandOutput {
        let mut command = vmlab(words);
        said(command.arg("--cluster").arg("--kubeconfig").arg(&self.api.kubeconfig))
    }

    fn answer(&self, path: &str, answer: Answer) {
        let mut content = self.api.content.lock().expect("no panic");
        content.fixed.insert(path.to_owned(), answer);
    }

    /// What is answered first to requests that hold this text.
    fn first(&self, text: &str, answers: impl IntoIterator<Item = Answer>) {
        let mut content = self.api.content.lock().expect("no panic");
        content.first.push((text.to_owned(), answers.into_iter().collect()));
    }
}

/// Rules of the findings about each VM.
fn rules(report: &Value) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in report["findings"].as_array().expect("findings") {
        let text = |key: &str| finding[key].as_str().expect("a text").to_owned();
        found.entry(text("file")).or_default().push(text("rule"));
    }
    found
}

fn json_of(said: &CommandOutput) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:#?}"))
}

#[test]
fn every_vm_of_a_cluster_is_linted_for_its_node() {
    let lab = Lab::new(shop());
    let said = lab.say(&["lint", "--json"]);
    said.has_code(1);
    assert_eq!(said.stderr, "");
    let report = json_of(&said);
    assert_eq!(report["files"], 5, "{report:#}");
    let found = rules(&report);
    let of = |name: &str| found.get(&format!("shop/virtualmachine/{name}")).cloned();
    assert!(
        of("large").is_some_and(|ids| ids.contains(&"kubevirt-no-node".to_owned())),
        "{found:?}"
    );
    // full-pcpus-only is the kubelets', which no option of lint named.
    assert!(
        of("odd").is_some_and(|ids| ids.contains(&"kubevirt-odd-pcpus".to_owned())),
        "{found:?}"
    );
    for fine in ["web", "small", "named"] {
        let ids = of(fine).unwrap_or_default();
        assert!(!ids.iter().any(|id| id == "kubevirt-no-node"), "{found:?}");
    }
    // The lines are those that kubectl shows.
    let text = lab.say(&["lint"]).stdout;
    assert!(text.contains("shop/virtualmachine/large"), "{text}");
    assert!(text.contains("one and 1 node more: 30 GiB of memory, not 64 GiB"), "{text}");
    // One namespace, and files for the cluster.
    lab.answer("/api/v1/namespaces/other", Answer::of(&json!({ "kind": "Namespace" })));
    let none = said_json(&lab, &["lint", "--json", "-n", "other"]);
    assert_eq!(none["files"], 0);
    let file = lab.folder.path().join("vm.yaml");
    fs::write(&file, vm("new", pinned(32)).to_string()).expect("a file");
    let of_file = said_json(&lab, &["lint", "--json", file.to_str().expect("a path")]);
    let ids: Vec<String> = rules(&of_file).into_values().flatten().collect();
    assert!(ids.contains(&"kubevirt-no-node".to_owned()), "{of_file:#}");
}

fn said_json(lab: &Lab, words: &[&str]) -> Value {
    json_of(&lab.say(words))
}

#[test]
fn the_forecast_says_what_becomes_of_every_vm() {
    let lab = Lab::new(shop());
    let hosts = lab.folder.path().join("hosts");
    fs::create_dir(&hosts).expect("a folder");
    let described = root().join("docs/plan/two-sockets.json");
    fs::copy(described, hosts.join("one.json")).expect("a host");
    let said = lab.say(&["plan", "--json", "--hosts", hosts.to_str().expect("a path")]);
    said.has_code(1);
    let forecast = schemas::holds("cluster-forecast", &said.stdout);
    let vm = |name: &str| {
        let vms = forecast["vms"].as_array().expect("VMs");
        vms.iter().find(|vm| vm["name"] == name).unwrap_or_else(|| panic!("{forecast:#}")).clone()
    };
    assert_eq!(forecast["kubevirt"], "1.7.0");
    assert_eq!(vm("web")["state"], "runs");
    // Node one keeps 0 and 16; siblings are i and i + 16.
    assert_eq!(vm("web")["pcpus"], "1-2,17-18");
    assert_eq!(vm("web")["pins"], json!([1, 17, 2, 18]));
    assert_eq!(vm("large")["state"], "can-not-start");
    assert_eq!(vm("large")["nodes_that_fit"], 0);
    assert_eq!(vm("odd")["state"], "can-not-start");
    let why = vm("odd")["findings"].to_string();
    assert!(why.contains("one: SMTAlignmentError"), "{why}");
    // Its vCPUs are those of its instance type.
    assert_eq!(vm("named")["exclusive_pcpus"], 2);
    assert_eq!(vm("named")["pcpus"], "3,19");
    assert_eq!(vm("small")["exclusive_pcpus"], Value::Null);
    let one = &forecast["nodes"][0];
    assert_eq!((&one["name"], &one["free_pcpus"]), (&json!("one"), &json!(26)), "{one:#}");
    let text = lab.say(&["plan"]);
    text.has_code(1);
    for part in [
        "NODE",
        "static, full-pcpus-only, topology restricted",
        "0,16",
        "shop/large",
        "no node has what it asks for; the nearest: one",
        "The topology of 0 of 2 nodes is known",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
}

#[test]
fn what_pods_have_asked_for_is_no_other_s() {
    let pod = |node: &str, memory: &str, phase: &str| {
        json!({
            "metadata": { "name": format!("{node}-{memory}"), "namespace": "shop" },
            "spec": { "nodeName": node, "containers": [{
                "name": "c", "resources": { "requests": { "cpu": "1", "memory": memory } },
            }] },
            "status": { "phase": phase, "qosClass": "Burstable" },
        })
    };
    let new = |pods: Vec<Value>| {
        let mut content = shop();
        let new = vm("new", spec(json!({ "cores": 2 }), "1Gi"));
        content.lists.insert(VMS.to_owned(), vec![new]);
        content.lists.insert(INSTANCES.to_owned(), Vec::new());
        content.lists.insert(PODS.to_owned(), pods);
        json_of(&Lab::new(content).say(&["plan", "--json"]))["vms"][0].clone()
    };
    let of_two = || pod("two", "29Gi", "Running");
    let one_is_free = new(vec![of_two(), pod("two", "1Gi", "Running")]);
    assert_eq!(one_is_free["state"], "can-start", "{one_is_free:#}");
    let over = new(vec![of_two(), pod("two", "1Gi", "Running"), pod("one", "30Gi", "Failed")]);
    assert_eq!(over["state"], "can-start", "{over:#}");
    let full = new(vec![of_two(), pod("two", "512Mi", "Running"), pod("one", "30Gi", "Pending")]);
    assert_eq!(full["state"], "can-not-start", "{full:#}");
    assert_eq!(full["nodes_that_fit"], 2);
    let why =
        "no node that fits has that much left beside its pods; the nearest: one: 0 B of memory";
    assert!(full["findings"].to_string().contains(why), "{full:#}");
}

/// The launcher's pod has a node, to which the image is on its way; the instance does not say
/// it yet. The pod took the last room there, which is the VM's own.
#[test]
fn a_vm_whose_pod_has_a_node_is_not_beside_itself() {
    let wanted = spec(json!({ "cores": 2 }), "25Gi");
    let scheduling = json!({ "spec": wanted, "status": { "phase": "Scheduling" } });
    let pod = |node: &str| {
        json!({
            "metadata": {
                "name": "virt-launcher-new", "namespace": "shop",
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "new",
                    "uid": "1",
                }],
            },
            "spec": { "nodeName": node, "containers": [{
                "name": "compute", "resources": { "requests": { "cpu": "200m", "memory": "26Gi" } },
            }] },
            "status": { "phase": "Pending", "qosClass": "Burstable" },
        })
    };
    let elsewhere = json!({
        "metadata": { "name": "other", "namespace": "shop" },
        "spec": { "nodeName": "two", "containers": [{
            "name": "c", "resources": { "requests": { "memory": "29Gi" } },
        }] },
        "status": { "phase": "Running", "qosClass": "Burstable" },
    });
    let plan_of = |node: &str| {
        let mut content = shop();
        content.lists.insert(VMS.to_owned(), vec![vm("new", wanted.clone())]);
        let instance = object("VirtualMachineInstance", "new", scheduling.clone());
        content.lists.insert(INSTANCES.to_owned(), vec![instance]);
        content.lists.insert(PODS.to_owned(), vec![pod(node), elsewhere.clone()]);
        json_of(&Lab::new(content).say(&["plan", "--json"]))
    };
    let plan = plan_of("one");
    let vms = plan["vms"].as_array().expect("a list");
    assert_eq!(vms.len(), 1, "{plan:#}");
    assert_eq!((&vms[0]["state"], &vms[0]["node"]), (&json!("can-start"), &json!("one")));
    assert_eq!(vms[0]["findings"], json!([]), "{plan:#}");
    let on: Vec<&Value> =
        plan["nodes"].as_array().expect("a list").iter().map(|one| &one["vms"]).collect();
    assert_eq!(on, [&json!(0), &json!(0)], "none runs yet");
    // Of a node that is not listed nobody knows whether it starts there.
    let plan = plan_of("gone");
    let vm = &plan["vms"][0];
    assert_eq!((&vm["state"], &vm["node"]), (&json!("unknown"), &json!("gone")), "{plan:#}");
}

#[test]
fn long_lists_are_read_whole_though_the_server_forgets_and_is_busy() {
    let many = 1200;
    let mut content = shop();
    let vms = (0..many).map(|at| vm(&format!("vm-{at}"), spec(json!({ "cores": 1 }), "1Gi")));
    content.lists.insert(VMS.to_owned(), vms.collect());
    content.lists.insert(INSTANCES.to_owned(), Vec::new());
    let lab = Lab::new(content);
    let mut gone = Answer::refusal(410, "The provided continue parameter is too old");
    gone.body = gone.body.replace("\"metadata\":{}", "\"metadata\":{\"continue\":\"500\"}");
    let busy =
        Answer { headers: "retry-after: 0\r\n", ..Answer::refusal(429, "too many requests") };
    let whole = Answer::new(200, json!({ "metadata": {}, "items": [] }).to_string());
    let cut = Answer { cut_at: Some(10), ..whole };
    lab.first("virtualmachines?limit=500&continue=500", [gone, busy]);
    lab.first("pods?", [cut]);
    let said = lab.say(&["lint", "--json"]);
    assert_eq!(json_of(&said)["files"], many, "{said:#?}");
    let content = lab.api.content.lock().expect("no panic");
    let asked = |text: &str| content.asked.iter().filter(|target| target.contains(text)).count();
    assert_eq!(asked("virtualmachines?limit=500&continue=500"), 3);
    assert_eq!(asked("virtualmachines?limit=500&continue=1000"), 1);
}

#[test]
fn what_may_not_be_read_is_named() {
    let forbidden = |what: &str| Answer::refusal(403, &format!("{what} is forbidden: User \"x\""));
    let lab = Lab::new(shop());
    for name in ["one", "two"] {
        lab.answer(&format!("{NODES}/{name}/proxy/configz"), forbidden("nodes"));
    }
    lab.answer(PODS, forbidden("pods"));
    let said = lab.say(&["lint", "--json"]);
    said.has_code(1);
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{said:#?}");
    assert!(lines[0].starts_with("vmlab: May not get nodes/proxy: `vmlab k8s rbac`"), "{said:#?}");
    assert!(lines[1].starts_with("vmlab: May not list pods: "), "{said:#?}");
    assert_eq!(json_of(&said)["failed"].as_array().map(Vec::len), Some(2));
    // Without the VMs there is nothing to say.
    lab.answer(VMS, forbidden("virtualmachines.kubevirt.io"));
    lab.say(&["plan"]).is_error(&["May not list virtualmachines.kubevirt.io", "vmlab k8s rbac"]);
}

/// The shop on OpenShift: its operator tells what kernels and kubelets were given.
fn rendered() -> Content {
    let mut content = shop();
    let nodes = content.lists.get_mut(NODES).expect("nodes");
    for (node, current, desired) in [
        (0, "rendered-worker-1", "rendered-worker-2"),
        (1, "rendered-worker-1", "rendered-worker-1"),
    ] {
        let name = |what: &str| format!("machineconfiguration.openshift.io/{what}");
        nodes[node]["metadata"]["annotations"] = json!({
            name("currentConfig"): current, name("desiredConfig"): desired,
            name("state"): if current == desired { "Done" } else { "Degraded" },
        });
    }
    let kubelet = "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n\
                   reservedSystemCPUs: 0,16\ntopologyManagerPolicy: restricted\n";
    let escaped: String = kubelet.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let config = json!({
        "metadata": { "name": "rendered-worker-1" },
        "spec": {
            "kernelArguments": ["isolcpus=domain,0-3", "nohz_full=2-7", "hugepagesz=1G hugepages=4"],
            "config": { "storage": { "files": [{
                "path": "/etc/kubernetes/kubelet.conf",
                "contents": { "source": format!("data:,{escaped}") },
            }]}},
        },
    });
    content.fixed.insert(format!("{CONFIGS}/rendered-worker-1"), Answer::of(&config));
    content
}

#[test]
fn a_machine_config_tells_what_kernel_and_kubelet_were_given() {
    let lab = Lab::new(rendered());
    let planned = lab.say(&["plan", "--json"]);
    let forecast = schemas::holds("cluster-forecast", &planned.stdout);
    let one = &forecast["nodes"][0];
    // Who can be asked tells it themselves.
    assert_eq!(one["kubelet"]["source"], "kubelet");
    assert_eq!(one["boot"]["source"], "MachineConfig rendered-worker-1");
    assert_eq!(
        (&one["boot"]["isolated"], &one["boot"]["nohz_full"]),
        (&json!("0-3"), &json!("2-7"))
    );
    let findings = one["findings"].to_string();
    for part in [
        "isolates pCPUs 0 (isolcpus=), which the kubelet keeps",
        "isolates pCPUs 1-3 (isolcpus=), which pods without",
        "may get pCPUs 1,8-15,17-31 for themselves",
        "set 4 GiB of hugepages-1Gi aside (hugepages=), and pods get 0 B",
    ] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
    let text = lab.say(&["plan"]).stdout;
    let line =
        "Kernel by MachineConfig rendered-worker-1 (2 nodes): isolcpus=domain,0-3 nohz_full=2-7";
    assert!(text.contains(line), "{text}");
    let waits =
        "it is to have MachineConfig rendered-worker-2, and has rendered-worker-1 (Degraded)";
    assert!(text.contains(waits), "{text}");

    // VMs without pCPUs of their own are where nothing balances.
    let found = rules(&json_of(&lab.say(&["lint", "--json"])));
    let isolated = |name: &str| {
        let ids = found.get(&format!("shop/virtualmachine/{name}"));
        ids.is_some_and(|ids| ids.contains(&"kubevirt-shared-isolated".to_owned()))
    };
    assert!(isolated("small") && !isolated("web"), "{found:?}");

    // Where the kubelet can't be asked.
    let forbidden = |what: &str| Answer::refusal(403, &format!("{what} is forbidden: User \"x\""));
    for name in ["one", "two"] {
        lab.answer(&format!("{NODES}/{name}/proxy/configz"), forbidden("nodes"));
    }
    let linted = lab.say(&["lint", "--json"]);
    let found = rules(&json_of(&linted));
    let odd = &found["shop/virtualmachine/odd"];
    assert!(odd.contains(&"kubevirt-odd-pcpus".to_owned()), "{found:?}");
    let forecast = json_of(&lab.say(&["plan", "--json"]));
    let kubelet = &forecast["nodes"][1]["kubelet"];
    assert_eq!(kubelet["source"], "MachineConfig rendered-worker-1", "{forecast:#}");
    assert_eq!((&kubelet["reserved"], &kubelet["is_static"]), (&json!("0,16"), &json!(true)));

    // What can't be read is named, and the rest is said.
    let path = format!("{CONFIGS}/rendered-worker-1");
    lab.answer(&path, forbidden("machineconfigs"));
    let said = lab.say(&["lint"]).stderr;
    let role = "May not get machineconfigs.machineconfiguration.openshift.io of rendered-worker-1: \
                `vmlab k8s rbac`";
    assert!(said.contains(role), "{said}");
    let zipped = json!({
        "metadata": { "name": "rendered-worker-1" },
        "spec": { "kernelArguments": ["isolcpus=a"], "config": { "storage": { "files": [{
            "path": "/etc/kubernetes/kubelet.conf",
            "contents": { "source": "data:;base64,H4sI", "compression": "gzip" },
        }]}}},
    });
    for (answer, part) in [
        (Answer::refusal(404, "not found"), "its nodes name it, and it is not there"),
        (Answer::new(200, "<html>".to_owned()), "the server's answer is none: "),
        (Answer::of(&zipped), "compressed by gzip, which is not read"),
    ] {
        lab.answer(&path, answer);
        let forecast = json_of(&lab.say(&["plan", "--json"]));
        assert!(forecast["unread"].to_string().contains(part), "{part}: {forecast:#}");
        assert_eq!(forecast["nodes"][0]["kubelet"], Value::Null);
    }
    let text = lab.say(&["plan"]).stdout;
    assert!(text.contains("its kernel is told isolcpus=a: "), "{text}");
    // A cluster of another kind is not asked.
    let lab = Lab::new(shop());
    lab.say(&["plan"]);
    let content = lab.api.content.lock().expect("no panic");
    assert!(
        !content.asked.iter().any(|asked| asked.contains("machineconfig")),
        "{:?}",
        content.asked
    );
}

/// Of a namespace that is not there a server lists nothing, with a good conscience.
#[test]
fn a_mistyped_namespace_is_no_empty_one() {
    let lab = Lab::new(shop());
    let parts = ["The cluster has no namespace \"shopp\"", "-n NAMESPACE"];
    for words in [&["lint", "-n", "shopp"][..], &["plan", "-n", "shopp"]] {
        lab.say(words).is_error(&parts);
    }
    // Who may not ask is told so, and what to ask for.
    let said = "namespaces \"shopp\" is forbidden: User \"x\"";
    lab.answer("/api/v1/namespaces/shopp", Answer::refusal(403, said));
    let linted = lab.say(&["lint", "-n", "shopp"]);
    linted.has_code(0);
    assert!(
        linted.stderr.starts_with("vmlab: May not get namespaces of shopp: `vmlab k8s rbac`"),
        "{linted:#?}"
    );
    let planned = lab.say(&["plan", "-n", "shopp"]);
    planned.has_code(0);
    assert!(planned.stdout.contains("Not read: May not get namespaces of shopp"), "{planned:#?}");
}

#[test]
fn clusters_that_can_not_be_read_are_one_clear_error() {
    let lab = Lab::new(shop());
    let url = lab.api.url.clone();
    lab.answer(NODES, Answer::refusal(401, "Unauthorized"));
    lab.say(&["lint"]).is_error(&[&url, "does not accept the credentials", "log in again"]);
    lab.answer(NODES, Answer::new(200, "<html>login</html>".to_owned()));
    lab.say(&["lint"]).is_error(&["Cannot list nodes", "no list"]);
    lab.answer(NODES, Answer::new(200, json!({ "items": null }).to_string()));
    lab.answer(VMS, Answer::refusal(404, "not found"));
    lab.say(&["lint"]).is_error(&[&url, "no KubeVirt"]);

    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    let with = |words: &[&str]| {
        let mut command = vmlab(words);
        said(command.arg("--kubeconfig").arg(&config).env_remove("KUBECONFIG"))
    };
    let missing = with(&["lint", "--cluster"]);
    missing.is_error(&["Cannot read the kubeconfig", &config.display().to_string()]);
    for (no_file, why) in [("/dev/zero", "it is no file"), ("/", "it is no file")] {
        let mut command = vmlab(["lint", "--cluster", "--kubeconfig", no_file]);
        said(&mut command).is_error(&["Cannot read the kubeconfig", no_file, why]);
    }
    fs::write(&config, "a: [").expect("a file");
    with(&["lint", "--cluster"]).is_error(&["kubeconfig"]);
    fs::copy(&lab.api.kubeconfig, &config).expect("a file");
    with(&["lint", "--cluster=prod"]).is_error(&["no context \"prod\"", "it has fake"]);
    // Nobody listens where somebody did.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let text = fs::read_to_string(&config).expect("a file").replace(&url, &dead);
    fs::write(&config, text).expect("a file");
    with(&["plan", "--cluster"]).is_error(&[&dead, "does not answer"]);
    let mut none = vmlab(["lint", "--cluster"]);
    none.env("HOME", folder.path()).env_remove("KUBECONFIG");
    said(&mut none).is_error(&["No cluster is configured", "KUBECONFIG"]);
    let hosts = folder.path().join("hosts");
    fs::create_dir(&hosts).expect("a folder");
    let lab = Lab::new(shop());
    lab.say(&["lint", "--libvirt", "qemu:///system"]).is_error(&["--cluster of many"]);
    // What tells of one host, or of no cluster, goes with none.
    for words in [
        &["plan", "--vcpus", "2", "--memory", "1GiB"][..],
        &["lint", "--reserved", "0"],
        &["lint", "--kubelet", "full-pcpus-only"],
        &["plan", "--toml"],
    ] {
        let refused = lab.say(words);
        refused.has_code(2);
        assert!(refused.stderr.contains("cannot be used with"), "{refused:#?}");
    }
    lab.say(&["plan", "--hosts", hosts.to_str().expect("a path")])
        .is_error(&["holds no host of the cluster's nodes", "vmlab host --json"]);
}

#[test]
fn the_role_can_be_bound() {
    let words = ["k8s", "rbac", "--service-account", "lab/vmlab", "--without-kubelets"];
    let said_role = said(&mut vmlab(words));
    said_role.has_code(0);
    let text = said_role.stdout;
    assert!(text.contains("kind: ClusterRoleBinding") && text.contains("namespace: lab"), "{text}");
    assert!(!text.contains("nodes/proxy"), "{text}");
    for bad in ["Lab/x", "lab", "lab/-x"] {
        let refused = said(&mut vmlab(["k8s", "rbac", "--service-account", bad]));
        refused.has_code(2);
        assert!(refused.stderr.contains(bad), "{refused:#?}");
    }
}

/// What a real server and kubelet tell, and what the same objects tell from memory.
#[test]
fn a_real_cluster_tells_what_the_made_up_one_does() {
    let Some((_turn, programs)) = local_clusters::programs(&[]) else { return };
    let user = local_clusters::User::new();
    let folder = tempfile::tempdir().expect("a folder");
    let settings = folder.path().join("static.yaml");
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": { "full-pcpus-only": "true" },
        "reservedSystemCPUs": "0", "topologyManagerPolicy": "restricted",
    });
    fs::write(&settings, text.to_string()).expect("a file");
    let words = ["--kubelet", settings.to_str().expect("a path")];
    let Some(up) = local_clusters::up(&user, &programs, &words) else { return };
    // The node is a real one, and of this machine; the VMs are made there.
    let content = shop();
    let objects = [(VMS, "virtualmachines"), (INSTANCES, "virtualmachineinstances")];
    for (list, resource) in objects {
        for object in &content.lists[list] {
            let mut object = object.clone();
            // Only the server says when.
            object["metadata"].as_object_mut().expect("an object").remove("creationTimestamp");
            if object["status"]["nodeName"].is_string() {
                object["status"]["nodeName"] = "vmlab".into();
            }
            let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
            let path = folder.path().join(format!("{resource}.{name}.json"));
            fs::write(path, object.to_string()).expect("a file");
        }
    }
    fs::write(folder.path().join("type.json"), content.lists[TYPES][0].to_string())
        .expect("a file");
    let mut command = Command::new(root().join("crates/vmlab/tests/it/clusters.sh"));
    command.arg(VMLAB).arg(user.folder()).arg(up["server"].as_str().expect("an address"));
    let output = command.arg(&programs).arg(folder.path()).output().expect("the script");
    let told = CommandOutput::of(output);
    told.has_code(0);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);

    // A user without rights is told what is missing, and the role is enough.
    let refused = read("forbidden.txt");
    assert!(refused.contains("May not list nodes: `vmlab k8s rbac`"), "{refused}");
    let real = schemas::holds("cluster-forecast", &read("plan.json"));
    assert_eq!(real["unread"], json!([]), "{real:#}");
    let node = &real["nodes"][0];
    assert_eq!(node["kubelet"]["options"], json!(["full-pcpus-only"]), "{node:#}");
    assert_eq!(node["kubelet"]["reserved"], "0");
    assert_eq!(node["kubelet"]["topology_manager"], "restricted");
    assert_eq!(node["takes_pods"], true);

    // The same lists from memory give the same.
    let mut again = Content::default();
    for (path, file) in [
        (NODES, "nodes"),
        (PODS, "pods"),
        (VMS, "vms"),
        (INSTANCES, "instances"),
        (KUBEVIRTS, "kubevirts"),
        (TYPES, "types"),
    ] {
        let list: Value = serde_json::from_str(&read(&format!("{file}.json"))).expect(file);
        let items = list["items"].as_array().expect("items").clone();
        assert!(!items.is_empty() || file == "pods", "{file}: {list}");
        again.lists.insert(path.to_owned(), items);
    }
    let settings = Answer::new(200, read("configz.json"));
    again.fixed.insert(format!("{NODES}/vmlab/proxy/configz"), settings);
    let lab = Lab::new(again);
    let mut made_up = said_json(&lab, &["plan", "--json"]);
    made_up["server"] = real["server"].clone();
    assert_eq!(made_up, real);
    let lint: Value = serde_json::from_str(&read("lint.json")).expect("a report");
    assert_eq!(said_json(&lab, &["lint", "--json"]), lint);
    assert!(rules(&lint).contains_key("shop/virtualmachine/large"), "{lint:#}");
}
