//! `vmlab cluster`: what it says without one, and in the full tier real clusters, in which
//! a pod runs and of which nothing stays, however they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use suite::{SharedThing, Tier, Turn, needs, until};

use crate::lab::{CommandOutput, said, vmlab};
use crate::schemas;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A user with clusters of their own.
pub(crate) struct User {
    state: tempfile::TempDir,
}

impl Drop for User {
    /// A test that fails leaves no cluster.
    fn drop(&mut self) {
        let _ = self.vmlab(&["cluster", "down", "--all"]).output();
    }
}

impl User {
    pub(crate) fn new() -> Self {
        Self { state: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn vmlab(&self, words: &[&str]) -> Command {
        let mut command = vmlab(words);
        command.env("XDG_STATE_HOME", self.state.path());
        command
    }

    pub(crate) fn say(&self, words: &[&str]) -> CommandOutput {
        said(&mut self.vmlab(words))
    }

    /// Settings of a kubelet that hands out pCPUs, but one, of which other pods still may
    /// have most.
    pub(crate) fn static_kubelet(&self) -> PathBuf {
        let settings = self.state.path().join("static.yaml");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    cpuManagerPolicy: static\nsystemReserved: {cpu: 100m}\n";
        fs::write(&settings, text).expect("a file");
        settings
    }

    /// Its folder, with whatever it wants to keep.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.state.path().join("vmlab/clusters/lab")
    }

    /// What its `cluster.json` says.
    pub(crate) fn made(&self) -> Option<Value> {
        let text = fs::read_to_string(self.folder().join("cluster.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Asks the API server for something, or gives it something new.
    pub(crate) fn ask(&self, server: &str, path: &str, body: Option<&Value>) -> Value {
        let method = if body.is_some() { "POST" } else { "GET" };
        self.request(server, method, path, body)
    }

    pub(crate) fn request(
        &self,
        server: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Value {
        self.try_request(server, method, path, body).unwrap_or_else(|said| panic!("{said:#?}"))
    }

    /// A service account that has what `vmlab k8s rbac WORDS` prints, and nothing else.
    pub(crate) fn account(&self, server: &str, namespace: &str, words: &[&str]) -> Account<'_> {
        let account =
            Account { user: self, server: server.to_owned(), namespace: namespace.into() };
        account.make();
        let who = format!("{namespace}/{ACCOUNT}");
        let words =
            [&["k8s", "rbac", "--service-account", &who, "--name", ACCOUNT], words].concat();
        let role = self.say(&words);
        role.has_code(0);
        let documents = topology::bounded::yaml(&role.stdout).expect("YAML");
        for (document, plural) in documents.iter().zip(["clusterroles", "clusterrolebindings"]) {
            self.ask(server, &format!("{RBAC}/{plural}"), Some(&document.json()));
        }
        account
    }

    /// A request with the certificates that are in the folder, which may be refused.
    pub(crate) fn try_request(
        &self,
        server: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CommandOutput> {
        let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "-X", method]);
        curl.args(["-H", &format!("Content-Type: application/{kind}")]);
        for (option, file) in
            [("--cacert", "ca.crt"), ("--cert", "admin.crt"), ("--key", "admin.key")]
        {
            curl.arg(option).arg(self.folder().join(file));
        }
        // Some are too large for a command line.
        let sent = self.state.path().join("body.json");
        if let Some(body) = body {
            fs::write(&sent, body.to_string()).expect("a file");
            curl.arg("--data-binary").arg(format!("@{}", sent.display()));
        }
        let told = CommandOutput::of(curl.arg(format!("{server}{path}")).output().expect("curl"));
        if told.code != Some(0) {
            return Err(told);
        }
        Ok(serde_json::from_str(&told.stdout).expect("JSON"))
    }
}

/// The name of service accounts, and of their roles and bindings.
pub(crate) const ACCOUNT: &str = "vmlab";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A service account with a namespace of its own.
pub(crate) struct Account<'a> {
    user: &'a User,
    server: String,
    pub(crate) namespace: String,
}

impl Account<'_> {
    /// Its namespace and itself; what it may do is bound to its name.
    pub(crate) fn make(&self) {
        let named = |name: &str| json!({ "metadata": { "name": name } });
        self.user.ask(&self.server, "/api/v1/namespaces", Some(&named(&self.namespace)));
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        self.user.ask(&self.server, &accounts, Some(&named(ACCOUNT)));
    }

    /// A kubeconfig with a new token, which is good while the object lives that it is bound to.
    pub(crate) fn kubeconfig(&self, bound_to: Option<Value>) -> PathBuf {
        let (user, namespace) = (self.user, &self.namespace);
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token");
        let asked = json!({ "spec": { "boundObjectRef": bound_to } });
        let answer = user.ask(&self.server, &path, Some(&asked));
        let ca = user.folder().join("ca.crt");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": ACCOUNT,
            "clusters": [{
                "name": ACCOUNT,
                "cluster": { "server": self.server, "certificate-authority": ca },
            }],
            "users": [{ "name": ACCOUNT, "user": { "token": answer["status"]["token"] } }],
            "contexts": [{
                "name": ACCOUNT,
                "context": { "cluster": ACCOUNT, "user": ACCOUNT, "namespace": namespace },
            }],
        });
        let file = user.state.path().join(format!("{namespace}.kubeconfig"));
        fs::write(&file, config.to_string()).expect("a file");
        file
    }
}

/// Lines of a file of this machine that name the folder or the cgroup of a cluster.
fn lines_with(path: &Path, texts: &[&str]) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    let found = text.lines().filter(|line| texts.iter().any(|text| line.contains(text)));
    found.map(|line| format!("{}: {line}", path.display())).collect()
}

/// What there is of a cluster outside its folder: processes by their command line, cgroup
/// and mounts, and cgroups.
pub(crate) fn left(folder: &Path, cgroup: &str) -> Vec<String> {
    let texts = [folder.to_str().expect("a path"), cgroup];
    let mut found = lines_with(Path::new("/proc/self/mountinfo"), &texts);
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        for name in ["cmdline", "cgroup", "mountinfo"] {
            found.extend(lines_with(&entry.path().join(name), &texts));
        }
    }
    let hierarchies = fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten();
    let all = hierarchies.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
    let cgroups = all.map(|hierarchy| hierarchy.join(cgroup)).filter(|path| path.exists());
    found.extend(cgroups.map(|path| path.display().to_string()));
    found
}

/// Processes whose command lines name the folder and hold this word.
pub(crate) fn processes(folder: &Path, word: &str) -> Vec<u64> {
    let folder = folder.to_str().expect("a path");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |pid: &u64| {
        let lines = lines_with(Path::new(&format!("/proc/{pid}/cmdline")), &[folder]);
        lines.iter().any(|line| line.contains(word))
    };
    pids.filter(holds).collect()
}

#[test]
fn without_a_cluster_there_is_one_clear_word() {
    let user = User::new();
    let none = user.say(&["cluster", "status"]);
    none.has_code(0);
    assert_eq!(none.stdout, "No clusters: `vmlab cluster up` starts one.\n");
    let listed = schemas::holds("clusters", &user.say(&["cluster", "status", "--json"]).stdout);
    assert_eq!(listed, json!([]));
    user.say(&["cluster", "status", "lab"]).is_error(&["no cluster \"lab\""]);
    user.say(&["cluster", "down", "lab"]).is_error(&["no cluster \"lab\""]);
    user.say(&["cluster", "load", "x.tar"]).is_error(&["There is no cluster"]);
    user.say(&["cluster", "keep", "/"]).is_error(&["started by `vmlab cluster up` alone"]);
    let all = user.say(&["cluster", "down", "--all"]);
    all.has_code(0);
    assert_eq!(all.stdout, "");
}

/// What a dead vmlab left is told, and goes.
#[test]
fn a_dead_cluster_is_removed() {
    let user = User::new();
    let owner = json!({
        "pid": 1, "starttime_ticks": 1, "boot_id": "of an earlier boot", "pid_namespace": null,
        "run_id": "cluster",
    });
    let made = json!({
        "format": 1, "vmlab": "0", "programs": "/none", "cni": "/none",
        "versions": { "kube-apiserver": "1.36.3" }, "snapshotter": "native",
        "cgroup": "vmlab-cluster-of-nobody", "made_unix_s": 1, "starter": owner, "holder": owner,
        "keeper": owner, "port": 1, "ready_s": 1.5,
    });
    let make = || {
        fs::create_dir_all(user.folder()).expect("a folder");
        fs::write(user.folder().join("cluster.json"), made.to_string()).expect("a file");
    };
    make();
    let told = user.say(&["cluster", "status", "--json"]);
    told.has_code(1);
    let listed = schemas::holds("clusters", &told.stdout);
    assert_eq!(listed[0]["state"], "dead");
    let text = user.say(&["cluster", "status"]).stdout;
    assert!(text.contains("lab is dead") && text.contains("vmlab cluster down lab"), "{text}");
    user.say(&["cluster", "load", "/dev/null"]).is_error(&["\"lab\" is dead"]);
    let down = user.say(&["cluster", "down", "lab"]);
    assert_eq!(down.stdout, "lab is down (it was dead already)\n");
    assert!(!user.folder().exists());
    make();
    let dry = user.say(&["clean", "--dry-run"]);
    assert!(dry.stdout.contains("would remove cluster lab"), "{dry:#?}");
    assert!(user.folder().exists());
}

/// A turn, and the folder with Kubernetes' programs, and with `--kubevirt` KubeVirt's.
pub(crate) fn programs(words: &[&str]) -> Option<(Turn, String)> {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let turn = needed.alone_with(SharedThing::Leftovers).turn()?;
    let built = Command::new(root().join("scripts/get-kube")).args(words).output();
    let built = CommandOutput::of(built.expect("the script"));
    built.has_code(0);
    Some((turn, built.stdout.trim().to_owned()))
}

pub(crate) fn start(user: &User, programs: &str, words: &[&str]) -> Child {
    let mut command = user.vmlab(&["cluster", "up", "--json", "--programs", programs]);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vmlab")
}

/// Starts a cluster, and what is said of it; none where none can be started.
pub(crate) fn up(user: &User, programs: &str, words: &[&str]) -> Option<Value> {
    if !rustix::process::geteuid().is_root() {
        suite::skip("a cluster needs root");
        return None;
    }
    let up = CommandOutput::of(start(user, programs, words).wait_with_output().expect("vmlab"));
    up.has_code(0);
    let status = schemas::holds("local-cluster", &up.stdout);
    assert_eq!(status["state"], "up");
    Some(status)
}

pub(crate) fn send(pid: u64, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn a_pod_runs_and_nothing_stays() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let Some(status) = up(&user, &programs, &[]) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let cgroup = status["cgroup"].as_str().expect("a cgroup").to_owned();
    user.say(&["cluster", "up"]).is_error(&["There is a cluster \"lab\" already (up)"]);
    // The same image under another name, as if it were the user's.
    let archive = user.folder().join("pause.tar");
    let loaded = user.say(&["cluster", "load", archive.to_str().expect("a path")]);
    loaded.has_code(0);
    assert!(loaded.stdout.contains("vmlab/pause:1"), "{loaded:#?}");
    user.say(&["cluster", "load", "/dev/null"]).is_error(&["containerd does not take"]);

    let container = json!({
        "name": "it", "image": "vmlab/pause:1", "imagePullPolicy": "Never",
        "resources": { "requests": { "cpu": "100m", "memory": "16Mi" } },
    });
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "containers": [container] } });
    let pods = "/api/v1/namespaces/default/pods";
    user.ask(&server, pods, Some(&pod));
    let running = until("the pod runs", || {
        let pod = user.ask(&server, &format!("{pods}/web"), None);
        (pod["status"]["phase"] == "Running").then_some(pod)
    });
    let status = &running["status"];
    assert_eq!(status["containerStatuses"][0]["ready"], true, "{status:#}");
    let address = status["podIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.244.0."), "{status:#}");
    let scheduled = until("the scheduler tells", || {
        let events = user.ask(&server, "/api/v1/namespaces/default/events", None);
        let events = events["items"].as_array().cloned().unwrap_or_default();
        events.into_iter().find(|event| event["reason"] == "Scheduled")
    });
    assert!(scheduled.to_string().contains("default-scheduler"), "{scheduled:#}");

    let told = user.say(&["cluster", "status", "--json"]);
    told.has_code(0);
    let listed = schemas::holds("clusters", &told.stdout);
    let names: Vec<_> = listed[0]["components"].as_array().expect("components").iter().collect();
    assert_eq!(names.len(), 6, "{listed:#}");
    assert_eq!(listed[0]["nodes"][0]["running_pods"], 1, "{listed:#}");
    let text = user.say(&["cluster", "status"]).stdout;
    assert!(text.contains("kube-scheduler") && text.contains("ready"), "{text}");
    let there = left(&user.folder(), &cgroup);
    assert!(there.len() > 10, "{there:#?}");
    // Nothing of it is mounted for others.
    let folder = user.folder();
    let seen = lines_with(Path::new("/proc/self/mountinfo"), &[folder.to_str().expect("a path")]);
    assert!(seen.is_empty(), "{seen:#?}");

    user.say(&["cluster", "down", "lab"]).has_code(0);
    assert!(!user.folder().exists());
    assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
}

#[test]
fn nothing_stays_of_a_cluster_that_is_killed() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let Some(status) = up(&user, &programs, &[]) else { return };
    let made = user.made().expect("a cluster");
    let cgroup = made["cgroup"].as_str().expect("a cgroup").to_owned();
    // A server that ends is told, by its reason.
    assert_eq!(status["components"][3]["name"], "kube-scheduler", "{status:#}");
    let schedulers = processes(&user.folder(), "kube-scheduler");
    let [scheduler] = schedulers[..] else { panic!("{schedulers:?}") };
    send(scheduler, Signal::KILL);
    // What is killed ends a moment later.
    let (code, listed) = until("it is told", || {
        let told = user.say(&["cluster", "status", "--json"]);
        let listed: Value = serde_json::from_str(&told.stdout).expect("JSON");
        let has_ended = listed[0]["components"][3]["state"] == "ended";
        has_ended.then_some((told.code, listed))
    });
    assert_eq!((code, &listed[0]["state"]), (Some(1), &json!("up")));
    assert_eq!(listed[0]["components"][3]["reason"], "signal 9 ended it");

    send(made["keeper"]["pid"].as_u64().expect("a pid"), Signal::KILL);
    until("its end", || {
        let told = user.say(&["cluster", "status"]);
        told.stdout.contains("lab is dead").then_some(())
    });
    user.say(&["clean"]).has_code(0);
    assert!(!user.folder().exists());
    assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
}

#[test]
fn nothing_stays_of_a_start_that_is_interrupted() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    for signal in [Signal::INT, Signal::KILL] {
        let user = User::new();
        let mut starting = start(&user, &programs, &[]);
        let made = until("the keeper runs", || {
            let made = user.made().filter(|made| made["keeper"].is_object());
            if made.is_none() && starting.try_wait().expect("vmlab").is_some() {
                return Some(None);
            }
            made.map(Some)
        });
        let Some(made) = made else {
            let ended = CommandOutput::of(starting.wait_with_output().expect("vmlab"));
            assert!(ended.stderr.contains("needs root"), "{ended:#?}");
            return suite::skip("a cluster needs root");
        };
        let cgroup = made["cgroup"].as_str().expect("a cgroup").to_owned();
        send(u64::from(starting.id()), signal);
        let ended = starting.wait_with_output().expect("vmlab");
        if signal == Signal::INT {
            CommandOutput::of(ended).has_code(2);
        } else {
            // Its keeper has seen that nobody waits any more.
            until("the keeper's end", || processes(&user.folder(), "").is_empty().then_some(()));
            user.say(&["cluster", "down", "lab"]).has_code(0);
        }
        assert!(!user.folder().exists());
        assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
    }
}

/// KubeVirt is the real one, and a VM gets the pCPU that was predicted.
#[test]
fn a_vm_runs_where_it_was_predicted() {
    let Some((_turn, programs)) = programs(&["--kubevirt"]) else { return };
    let user = User::new();
    let hosts = user.state.path().join("hosts");
    fs::create_dir(&hosts).expect("a folder");
    let host = user.say(&["host", "--json"]);
    fs::write(hosts.join("vmlab.json"), &host.stdout).expect("a file");
    let settings = user.static_kubelet();
    let words = ["--kubevirt", "--kubelet", settings.to_str().expect("a path")];
    let Some(status) = up(&user, &programs, &words) else { return };
    assert_eq!(status["kubevirt"]["phase"], "Deployed", "{status:#}");
    let server = status["server"].as_str().expect("an address").to_owned();
    let cgroup = status["cgroup"].as_str().expect("a cgroup").to_owned();

    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "web" },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": { "guest": "64Mi" },
                "cpu": { "cores": 1, "dedicatedCpuPlacement": true },
                "devices": { "autoattachPodInterface": false },
            },
        },
    });
    let vms = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    user.ask(&server, vms, Some(&vm));
    until("the VM runs", || {
        let vm = user.ask(&server, &format!("{vms}/web"), None);
        assert_ne!(vm["status"]["phase"], "Failed", "{vm:#}");
        (vm["status"]["phase"] == "Running").then_some(())
    });
    let kubeconfig = user.folder().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("a path");
    let hosts = hosts.to_str().expect("a path");
    let plan = ["plan", "--cluster", "--kubeconfig", kubeconfig, "--json", "--hosts", hosts];
    let told = user.say(&plan);
    told.has_code(0);
    let forecast = schemas::holds("cluster-forecast", &told.stdout);
    assert_eq!(forecast["unread"], json!([]), "{forecast:#}");
    let vm = &forecast["vms"][0];
    assert_eq!((&vm["name"], &vm["state"]), (&json!("web"), &json!("runs")), "{forecast:#}");
    let pins = vm["pins"].as_array().expect("pins");
    let predicted: Vec<String> = pins.iter().map(Value::to_string).collect();
    assert_eq!(predicted.len(), 1, "{vm:#}");
    assert_eq!(vcpu_affinity(&cgroup), predicted, "{vm:#}");

    user.say(&["cluster", "down", "lab"]).has_code(0);
    assert!(!user.folder().exists());
    assert_eq!(left(&user.folder(), &cgroup), Vec::<String>::new());
}

/// The pCPUs on which each vCPU's thread may run, of the QEMU in this cgroup.
fn vcpu_affinity(cgroup: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let process = entry.path();
        if lines_with(&process.join("cgroup"), &[cgroup]).is_empty() {
            continue;
        }
        let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        for thread in threads {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if !(name.starts_with("CPU ") && name.trim_end().ends_with("/TCG")) {
                continue;
            }
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            found.extend(line.map(|list| list.trim().to_owned()));
        }
    }
    found
}
