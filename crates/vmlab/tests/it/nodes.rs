//! A study on the nodes of a cluster: against a server of our own whose pods are processes
//! here that simulate, and in the full tier in the pod of a real kubelet.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use suite::until;

use crate::fake_api::{self, Answer, Content, FakeApi};
use crate::fake_pods::{FakePods, Fate};
use crate::lab::{CommandOutput, VMLAB, said, vmlab};
use crate::local_clusters::{User, programs, send, up};
use crate::running::assert_complete;
use crate::schemas;

const JOBS: &str = "/apis/batch/v1/namespaces/lab/jobs";
const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const STUDY: &str = "vmlab = 1\ntitle = \"One or two\"\nbaseline = \"one\"\n\n\
    [budget]\nblocks = 3\nuntil = \"budget\"\n\n[vm]\nmemory_mib = 512\n\n\
    [[variant]]\nname = \"one\"\nvm.vcpus = 1\n\n\
    [[variant]]\nname = \"two\"\nvm.vcpus = 2\n\n\
    [[workload]]\nrun = \"hackbench\"\nparams = { groups = 2, loops = 20 }\n";

fn node(name: &str, class: &str, spec: Value) -> Value {
    fake_api::node(name, ("example.com/machine", class), spec)
}

/// A folder with a study, and a cluster of three nodes, one that is cordoned and one that
/// is tainted.
struct Fleet {
    folder: tempfile::TempDir,
    api: FakeApi,
    pods: Arc<FakePods>,
}

impl Fleet {
    /// Whose pods' vmlab is this script.
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bin");
        fs::create_dir(&path).expect("a folder");
        let program = path.join("vmlab");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::write(folder.path().join("study.toml"), STUDY).expect("a file");
        let pods = Arc::new(FakePods::new(&folder.path().join("pods"), &path));
        let namespace = json!({ "metadata": { "name": "lab" }, "status": { "phase": "Active" } });
        let taint = json!({ "key": "dedicated", "value": "db", "effect": "NoSchedule" });
        let nodes = vec![
            node("ada", "big", json!({})),
            node("bob", "big", json!({})),
            node("eve", "small", json!({})),
            node("off", "small", json!({ "unschedulable": true })),
            node("own", "small", json!({ "taints": [taint] })),
        ];
        let content = Content {
            lists: BTreeMap::from([("/api/v1/nodes".to_owned(), nodes)]),
            fixed: BTreeMap::from([
                ("/api/v1/namespaces/lab".to_owned(), Answer::of(&namespace)),
                (REVIEWS.to_owned(), Answer::of(&json!({ "status": { "allowed": true } }))),
            ]),
            pods: Some(Arc::clone(&pods)),
            ..Content::default()
        };
        let api = FakeApi::start(folder.path(), content);
        Self { folder, api, pods }
    }

    /// Whose pods simulate.
    fn simulating() -> Self {
        Self::simulating_if("true")
    }

    /// The same, where `check` says yes.
    fn simulating_if(check: &str) -> Self {
        let host =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/hosts/four-sockets.json");
        Self::new(&format!("{check} || exit\nexec '{VMLAB}' \"$@\" --on 'sim:{}'", host.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = vmlab(["run"]);
        command.arg(self.path("study.toml")).args(["--on", "k8s:fake/lab"]);
        command.arg("--kubeconfig").arg(&self.api.kubeconfig).args(words);
        self.api.keep_left_of(&mut command);
        command
    }

    /// Runs the study; results go to `results`.
    fn run(&self, words: &[&str]) -> CommandOutput {
        let mut command = self.command(words);
        command.args(["--node-image", "registry.example/vmlab:1"]);
        said(command.arg("--out").arg(self.path("results")))
    }

    fn set(&self) -> Value {
        let text = fs::read_to_string(self.path("results/nodes.json")).expect("a list");
        schemas::holds("nodes", &text)
    }

    fn content(&self) -> std::sync::MutexGuard<'_, Content> {
        self.api.content.lock().expect("no panic")
    }
}

/// What was printed, as if no line had been broken: where they are hangs on the numbers.
pub(crate) fn in_one_line(said: &CommandOutput) -> String {
    said.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_study_runs_on_each_node_and_nothing_stays() {
    let fleet = Fleet::simulating();
    let ran = fleet.run(&["--node-class", "example.com/machine", "--nodes", "pool=lab"]);
    ran.has_code(0);
    for left_out in [
        "node off is left out: takes no pods (cordoned or not ready)",
        "node own is left out: taint dedicated=db:NoSchedule, not tolerated",
    ] {
        assert!(ran.stderr.contains(left_out), "{left_out}: {ran:#?}");
    }
    for part in ["on 3 nodes: 3 complete", "two is faster than one", "3 nodes, 9 blocks", "big"] {
        assert!(in_one_line(&ran).contains(part), "{part:?}: {}", ran.stdout);
    }
    assert_eq!(fleet.pods.names(), Vec::<String>::new());
    let asked = fleet.content().asked.clone();
    assert!(asked.iter().any(|one| one.contains("labelSelector=pool%3Dlab")), "{asked:#?}");
    let set = fleet.set();
    let states: Vec<&Value> =
        set["nodes"].as_array().expect("nodes").iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["complete", "complete", "complete"]);
    for name in ["ada", "bob", "eve"] {
        let folder = fleet.path("results/nodes").join(name);
        assert_complete(&folder);
        said(vmlab(["report", "--verify"]).arg(&folder)).has_code(0);
        said(vmlab(["report"]).arg(&folder)).has_code(0);
    }
    let dir = fleet.path("results");
    let dir = dir.to_str().expect("a path");
    let json = said(&mut vmlab(["report", dir, "--format", "json"]));
    let report = schemas::holds("across", &json.stdout);
    let variant = &report["groups"][0]["variants"][0];
    assert_eq!(variant["across"]["hosts"], 3, "{report:#}");
    assert_eq!(variant["across"]["classes"][0]["class"], "big", "{report:#}");
    assert_eq!(variant["nodes"].as_array().map(Vec::len), Some(3));
    // One decider: as the run said it, and `compare` again.
    assert_eq!(said(&mut vmlab(["report", dir])).stdout, ran.stdout);
    let compared = said(&mut vmlab(["compare", dir, "--format", "json"]));
    assert_eq!(compared.stdout, json.stdout);
    let again = fleet.run(&[]);
    again.is_error(&["a study on many nodes already", "another --out"]);
    said(&mut vmlab(["run", "--resume", dir])).is_error(&["can't go on: run it anew"]);
    said(&mut vmlab(["report", dir, "--format", "csv"])).is_error(&["holds many nodes"]);
}

#[test]
fn a_connection_that_breaks_is_taken_up_again() {
    let fleet = Fleet::simulating_if("cmp study/disk.img \"${0%/bin/*}/disk.img\"");
    // A disk image of more than one piece.
    let disk: Vec<u8> =
        (0..9_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(fleet.path("disk.img"), disk).expect("a file");
    let study = STUDY.replace("[vm]\n", "[vm]\nimage = \"disk.img\"\n");
    fs::write(fleet.path("study.toml"), study).expect("a file");
    // While files go in, and at several places of what comes out.
    let breaks = vec![1, 40, 3000, 20_000, 1, 100_000];
    fleet.pods.fates.lock().expect("no panic").insert("ada".to_owned(), Fate::Breaks(breaks));
    let ran = fleet.run(&["--parallel", "1", "--one-per", "example.com/machine", "--blocks", "2"]);
    ran.has_code(0);
    assert!(in_one_line(&ran).contains("on 2 nodes: 2 complete"), "{ran:#?}");
    assert!(in_one_line(&ran).contains("Each class is one node"), "{ran:#?}");
    assert_complete(&fleet.path("results/nodes/ada"));
    assert!(!fleet.path("results/nodes/bob").exists());
    assert_eq!(fleet.pods.names(), Vec::<String>::new());
}

#[test]
fn what_becomes_of_a_node_is_told() {
    let fleet = Fleet::simulating();
    let status = |status: Value| Fate::Status(status);
    let no_image = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": {
        "reason": "ImagePullBackOff", "message": "Back-off pulling image",
    } } }] });
    let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" });
    {
        let mut fates = fleet.pods.fates.lock().expect("no panic");
        fates.insert("ada".to_owned(), status(no_image));
        fates.insert("eve".to_owned(), status(evicted));
    }
    let ran = fleet.run(&[]);
    ran.has_code(1);
    assert!(in_one_line(&ran).contains("1 complete, 2 failed"), "{ran:#?}");
    assert!(in_one_line(&ran).contains("Only one host"), "{ran:#?}");
    let set = fleet.set();
    let told = |number: usize, kind: &str, part: &str| {
        let node = &set["nodes"][number];
        assert_eq!((&node["state"], &node["kind"]), (&json!("failed"), &json!(kind)), "{node:#}");
        let reason = node["reason"].as_str().expect("a reason");
        assert!(reason.contains(part) && in_one_line(&ran).contains(part), "{part:?}: {ran:#?}");
    };
    told(0, "image", "Back-off pulling image");
    told(2, "evicted", "low on memory");
    assert_eq!(fleet.pods.names(), Vec::<String>::new());
}

#[test]
fn a_study_that_fails_in_its_pod_says_why() {
    let fleet = Fleet::new("echo 'vmlab: there is no QEMU' >&2; exit 2");
    let ran = fleet.run(&[]);
    ran.has_code(1);
    assert!(
        in_one_line(&ran).contains("3 failed") && in_one_line(&ran).contains("there is no QEMU"),
        "{ran:#?}"
    );
    assert_eq!(fleet.set()["nodes"][0]["kind"], "study");
}

#[test]
fn a_cluster_that_can_t_be_used_is_one_clear_error() {
    let check = |change: &dyn Fn(&mut Content), words: &[&str], parts: &[&str]| {
        let fleet = Fleet::simulating();
        change(&mut fleet.content());
        fleet.run(words).is_error(parts);
        assert_eq!(fleet.pods.created.lock().expect("no panic").len(), 0);
        assert!(!fleet.path("results").exists());
    };
    let denied = Answer::of(&json!({ "status": { "allowed": false } }));
    check(
        &|content| drop(content.fixed.insert(REVIEWS.to_owned(), denied.clone())),
        &[],
        &["create jobs.batch", "create pods/exec", "k8s rbac --jobs"],
    );
    let gone = Answer::refusal(404, "not found");
    check(
        &|content| drop(content.fixed.insert("/api/v1/namespaces/lab".to_owned(), gone.clone())),
        &[],
        &["no namespace \"lab\"", "k8s:CONTEXT/NAMESPACE"],
    );
    check(
        &|content| {
            let off = node("off", "small", json!({ "unschedulable": true }));
            content.lists.insert("/api/v1/nodes".to_owned(), vec![off]);
        },
        &["--nodes", "a=b"],
        &["No node of the cluster", "--nodes \"a=b\""],
    );
    check(&|_| {}, &["--one-per", "none"], &["--one-per none: no node"]);
    check(&|_| {}, &["--node-kvm", "yes"], &["--node-kvm yes: write none, hostpath"]);
    check(&|_| {}, &["--node-cpus", "many"], &["--node-cpus many"]);
    let fleet = Fleet::simulating();
    said(&mut fleet.command(&[])).is_error(&["--node-image", "make-packages oci"]);
    let study = fleet.path("study.toml");
    let mut here = vmlab(["run", "--on", "sim", "--parallel", "2"]);
    said(here.arg(&study)).is_error(&["are for --on k8s"]);
    said(vmlab(["check", "--on", "k8s"]).arg(&study)).is_error(&["is for `vmlab run`"]);
}

/// What the cluster refuses of each Job is told of its node, with the role.
#[test]
fn refused_jobs_are_told() {
    for (said, kind, part) in [
        ("jobs.batch is forbidden: exceeded quota: none", "quota", "A quota of namespace"),
        ("User \"x\" cannot create", "forbidden", "k8s rbac --jobs"),
    ] {
        let fleet = Fleet::simulating();
        let answers = (0..3).map(|_| Answer::refusal(403, said)).collect();
        fleet.content().first.push((format!("POST {JOBS}"), answers));
        let ran = fleet.run(&[]);
        ran.has_code(1);
        assert!(
            in_one_line(&ran).contains("3 failed") && in_one_line(&ran).contains(part),
            "{ran:#?}"
        );
        assert_eq!(fleet.set()["nodes"][1]["kind"], kind);
    }
}

#[test]
fn a_dry_run_shows_the_jobs_and_creates_none() {
    let fleet = Fleet::simulating();
    let words = ["--dry-run", "--node-image", "registry.example/vmlab:1", "--node-cpus", "4"];
    let more = ["--node-kvm", "devices.kubevirt.io/kvm", "--node-queue", "lab", "--blocks", "7"];
    let shown = said(&mut fleet.command(&[&words[..], &more[..]].concat()));
    shown.has_code(0);
    let list: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let jobs = list["items"].as_array().expect("Jobs");
    assert_eq!(jobs.len(), 3);
    let text = jobs[0].to_string();
    for part in ["\"ada\"", "--blocks=7", "kueue.x-k8s.io/queue-name", "devices.kubevirt.io/kvm"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fleet.pods.created.lock().expect("no panic").len(), 0);
    let role = said(&mut vmlab(["k8s", "rbac", "--jobs", "--user", "ada"]));
    role.has_code(0);
    for part in ["resources: [\"jobs\"]", "resources: [\"pods/exec\"]", "ClusterRoleBinding"] {
        assert!(role.stdout.contains(part), "{part}: {}", role.stdout);
    }
    for word in ["secrets", "\"*\"", "patch", "nodes/proxy", "kubevirt"] {
        assert!(!role.stdout.contains(word), "{word}: {}", role.stdout);
    }
}

#[test]
fn an_interrupted_study_leaves_no_job() {
    let fleet = Fleet::new("exec sleep 1000");
    let mut command = fleet.command(&["--node-image", "x", "--verbose", "--out"]);
    command.arg(fleet.path("results")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().expect("vmlab");
    until("the study begins on all nodes", || {
        let begun = |entry: fs::DirEntry| entry.path().join("said").exists();
        let pods = fs::read_dir(fleet.path("pods")).ok()?;
        (pods.flatten().map(begun).filter(|is| *is).count() == 3).then_some(())
    });
    send(u64::from(running.id()), Signal::INT);
    let ended = CommandOutput::of(running.wait_with_output().expect("vmlab"));
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("Interrupted: `vmlab report"), "{ended:#?}");
    assert_eq!(fleet.pods.names(), Vec::<String>::new());
    assert_eq!(fleet.set()["nodes"][0]["state"], "interrupted");
}

/// Builds vmlab's container image, and loads it into the nodes of the user's cluster; its
/// name there.
pub(crate) fn load_image(user: &User) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("scripts/make-packages");
    let built = std::process::Command::new(script).args(["--debug", "oci"]).output();
    let built = CommandOutput::of(built.expect("the script"));
    built.has_code(0);
    let archive = root.join(built.stdout.lines().last().expect("the archive"));
    let loaded = user.say(&["cluster", "load", archive.to_str().expect("a path")]);
    loaded.has_code(0);
    // `unpacking NAME (sha256:...)...done`
    let mut words = loaded.stdout.split_whitespace().skip_while(|word| *word != "unpacking");
    words.nth(1).expect("an image").to_owned()
}

/// A study whose guest is nothing but a list of operations: it needs no image, nor, being
/// emulated, the trial of KVM.
pub(crate) const THIN_STUDY: &str = "\
vmlab = 1
title = \"Thin\"
baseline = \"plain\"
seed = 1

[budget]
blocks = 2
until = \"budget\"

[vm]
memory_mib = 128
kernel = \"builtin:thin\"
accel = \"tcg\"

[[variant]]
name = \"plain\"
vm.kernel_cmdline = \"calls=plain\"

[[variant]]
name = \"ring3\"
vm.kernel_cmdline = \"calls=ring3\"

[[workload]]
run = \"thin\"
params = { operation = \"self-ipi\", n = 20 }
";

/// The results come out of the pod of a real kubelet, and nothing of it is left, whatever
/// ends vmlab; for a user who has the printed role alone.
#[test]
fn a_study_runs_in_the_pod_of_a_real_node() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let Some(status) = up(&user, &programs, &[]) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let image = load_image(&user);
    let account = user.account(&server, "lab", &["--jobs"]);
    let kubeconfig = account.kubeconfig(None);
    let kubeconfig = kubeconfig.to_str().expect("a path");
    let folder = tempfile::tempdir().expect("a folder");
    let study = folder.path().join("study.toml");
    fs::write(&study, THIN_STUDY).expect("a file");
    let study = study.to_str().expect("a path");
    let dir = folder.path().join("results");
    let out = dir.to_str().expect("a path");
    let run = ["run", study, "--out", out, "--on", "k8s", "--kubeconfig", kubeconfig];
    let more = ["--node-image", &image, "--verbose"];
    let start = || {
        let mut command = user.vmlab(&[&run[..], &more[..]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vmlab")
    };
    let left = || {
        let mut names = Vec::new();
        for path in ["/apis/batch/v1/namespaces/lab/jobs", "/api/v1/namespaces/lab/pods"] {
            let list = user.ask(&server, path, None);
            let items = list["items"].as_array().cloned().unwrap_or_default();
            names.extend(items.iter().map(|item| item["metadata"]["name"].to_string()));
        }
        names
    };
    let runs = || {
        let list = user.ask(&server, "/api/v1/namespaces/lab/pods", None);
        (list["items"][0]["status"]["phase"] == "Running").then_some(())
    };

    // Killed: `clean` finds the Job where the run's folder says that it is.
    let mut killed = start();
    until("a pod runs", runs);
    send(u64::from(killed.id()), Signal::KILL);
    killed.wait().expect("it ended");
    assert!(!left().is_empty());
    let cleaned = user.say(&["clean"]);
    cleaned.has_code(0);
    assert!(cleaned.stdout.contains("deleted Job lab/vmlab-"), "{cleaned:#?}");
    assert_eq!(left(), Vec::<String>::new());
    fs::remove_dir_all(&dir).expect("a folder");

    // Interrupted: it deletes its Job itself.
    let interrupted = start();
    until("a pod runs", runs);
    send(u64::from(interrupted.id()), Signal::INT);
    CommandOutput::of(interrupted.wait_with_output().expect("vmlab")).has_code(2);
    assert_eq!(left(), Vec::<String>::new());
    fs::remove_dir_all(&dir).expect("a folder");

    let ran = CommandOutput::of(start().wait_with_output().expect("vmlab"));
    ran.has_code(0);
    assert!(in_one_line(&ran).contains("on 1 node: 1 complete"), "{ran:#?}");
    assert_eq!(left(), Vec::<String>::new());
    let set = runner::node_set::read(&dir).expect("a list");
    assert_complete(&dir.join(&set.nodes[0].folder));
    user.say(&["cluster", "down", "lab"]).has_code(0);
}
