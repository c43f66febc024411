//! Trials as instances of KubeVirt's: what is refused and what a refusal becomes, against a
//! server of our own, and in the full tier a study in a real cluster.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use record::journal::TrialResult;
use record::{Environment, FailureKind, Outcome};
use rustix::process::Signal;
use serde_json::{Value, json};
use suite::until;

use crate::fake_api::{self, Answer, Content, FakeApi};
use crate::lab::{CommandOutput, events, said, vmlab};
use crate::local_clusters::{User, programs, send, up};
use crate::running::{assert_complete, results};

const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/lab/virtualmachineinstances";
const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Two variants that every cluster with pCPUs to give can run.
const STUDY: &str = "vmlab = 1\ntitle = \"Own pCPUs\"\nbaseline = \"shared\"\nseed = 1\n\n\
    [budget]\nblocks = 1\nboot_limit_s = 180\n\n[vm]\nmemory_mib = 256\nvcpus = 1\n\n\
    [[variant]]\nname = \"shared\"\n\n\
    [[variant]]\nname = \"own\"\nvm.delegated.dedicated_vcpus = true\n\n\
    [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\ninvocations = 1\n";

fn node(schedulable: &str) -> Value {
    fake_api::node("one", ("kubevirt.io/schedulable", schedulable), json!({}))
}

/// A cluster that takes what it is given, and has nothing to run it.
fn cluster() -> Content {
    let kubevirt = json!({
        "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
        "spec": { "configuration": { "developerConfiguration": { "useEmulation": true } } },
        "status": { "observedKubeVirtVersion": "v1.7.0" },
    });
    let namespace = json!({ "metadata": { "name": "lab" }, "status": { "phase": "Active" } });
    Content {
        lists: BTreeMap::from([
            ("/api/v1/nodes".to_owned(), vec![node("true")]),
            ("/apis/kubevirt.io/v1/kubevirts".to_owned(), vec![kubevirt]),
        ]),
        fixed: BTreeMap::from([
            ("/api/v1/namespaces/lab".to_owned(), Answer::of(&namespace)),
            (REVIEWS.to_owned(), Answer::of(&json!({ "status": { "allowed": true } }))),
            (format!("POST {INSTANCES}"), Answer::of(&json!({ "metadata": { "uid": "1" } }))),
        ]),
        ..Content::default()
    }
}

/// A folder with a study, and a server.
struct Lab {
    folder: tempfile::TempDir,
    api: FakeApi,
}

impl Lab {
    fn new(study: &str, content: Content) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("study.toml"), study).expect("a file");
        let api = FakeApi::start(folder.path(), content);
        Self { folder, api }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        let mut command = vmlab(["run"]);
        command.arg(self.path("study.toml")).args(["--on", "kubevirt:fake/lab"]);
        command.arg("--kubeconfig").arg(&self.api.kubeconfig);
        command.arg("--out").arg(self.path("results")).args(words);
        self.api.keep_left_of(&mut command);
        said(&mut command)
    }

    /// What was created, without what was but tried.
    fn created(&self) -> Vec<String> {
        let content = self.api.content.lock().expect("no panic");
        let asked = content.asked.iter().filter(|asked| asked.contains("virtualmachineinstances"));
        let kept = asked.filter(|asked| asked.starts_with("POST ") && !asked.contains("dryRun"));
        kept.cloned().collect()
    }
}

#[test]
fn what_kubevirt_can_t_say_is_refused_with_its_line() {
    let study = "vmlab = 1\ntitle = \"Odd\"\nbaseline = \"pinned\"\n\n[vm]\nmemory_mib = 256\n\n\
                 [[variant]]\nname = \"pinned\"\nvm.pins = [\"0\"]\n\n\
                 [[variant]]\nname = \"hints\"\nvm.hints.cpu_pm = true\n\n\
                 [[load]]\nname = \"busy\"\nstress = { percent = 50 }\n\n\
                 [[workload]]\nrun = \"fio\"\n\n[ground]\ndrop_caches = true\n";
    let lab = Lab::new(study, cluster());
    let refused = lab.run(&["--kubevirt-image", "registry.example/guest:1"]);
    refused.has_code(2);
    let lines: Vec<&str> = refused.stderr.lines().collect();
    let expected = [
        (":10: pinned: KubeVirt can't say pins of vCPUs", "the kubelet gave it"),
        (":14: hints: KubeVirt can't say hints.cpu_pm", "a hook in a sidecar"),
        (":16: busy: stress-ng is not started on a node", "other VMs"),
        (":20: fio: fio needs an empty disk", "do not have"),
        (":23: [ground]: the memory of nodes", "looked at"),
    ];
    assert_eq!(lines.len(), expected.len(), "{refused:#?}");
    for (line, (begin, end)) in lines.iter().zip(expected) {
        assert!(line.contains(begin) && line.contains(end), "{refused:#?}");
    }
    assert_eq!(lab.created(), Vec::<String>::new());
    assert!(!lab.path("results").exists());
}

/// The study of the four placements that KubeVirt is told alone, and who says where it ran.
#[test]
fn a_cluster_takes_its_own_study_of_placements() {
    let mut content = cluster();
    let kubevirts = content.lists.get_mut("/apis/kubevirt.io/v1/kubevirts").expect("a list");
    kubevirts[0]["spec"]["configuration"] = json!({});
    let lab = Lab::new(STUDY, content);
    let check = |study: &str, more: &[&str]| {
        let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let mut command = vmlab(["check"]);
        command.arg(studies.join(study)).args(["--on", "kubevirt:fake/lab", "--kubeconfig"]);
        command.arg(&lab.api.kubeconfig);
        said(command.args(["--kubevirt-image", "registry.example/guest:1"]).args(more))
    };
    for size in [&[][..], &["--scale", "small"]] {
        let taken = check("kubevirt-cluster.toml", size);
        taken.has_code(0);
        let place = format!("Measured under KVM on nodes of {}, by KubeVirt.", lab.api.url);
        assert!(taken.stdout.contains(&place), "{taken:#?}");
        assert_eq!(taken.stdout.matches("dedicatedCpuPlacement: true").count(), 3, "{taken:#?}");
    }
    // Where vmlab places the VMs in KubeVirt's stead, KubeVirt can't be told where.
    let warned = check("kubevirt.toml", &[]);
    warned.has_code(0);
    assert!(warned.stderr.contains("a run would be refused: pin_def: "), "{warned:#?}");
    assert!(check("smp.toml", &["--kubevirt-image", "A B"]).stderr.contains("names no image"));
}

/// Time on a node that an emulator executes is no speed, and its label alone tells.
#[test]
fn an_emulated_node_counts_as_that() {
    let with = |emulated: &[bool]| {
        let mut content = cluster();
        let kubevirts = content.lists.get_mut("/apis/kubevirt.io/v1/kubevirts").expect("a list");
        kubevirts[0]["spec"]["configuration"] = json!({});
        let nodes = emulated.iter().enumerate().map(|(at, emulated)| {
            let mut node = node("true");
            node["metadata"]["name"] = json!(format!("node-{at}"));
            if *emulated {
                node["metadata"]["labels"]["vmlab/emulator"] = json!("tcg");
            }
            node
        });
        content.lists.insert("/api/v1/nodes".to_owned(), nodes.collect());
        Lab::new(STUDY, content).run(&["--dry-run"])
    };
    let real = with(&[false, false]);
    assert!(real.has_code(0).stdout.contains("Measured under KVM on nodes of "), "{real:#?}");
    let emulated = with(&[true, true]);
    assert!(emulated.has_code(0).stdout.contains("on an emulated host"), "{emulated:#?}");
    assert!(!emulated.stdout.contains("Measured under KVM on nodes of "), "{emulated:#?}");
    assert!(!emulated.stderr.contains("emulated time"), "{emulated:#?}");
    let mixed = with(&[true, false]);
    assert!(mixed.has_code(0).stdout.contains("on an emulated host"), "{mixed:#?}");
    let warned = "executes the instructions of node-0 (vmlab/emulator), not those of node-1";
    assert!(mixed.stderr.contains(warned), "{mixed:#?}");
}

/// What a dead run left in a cluster that is no more: kept, until somebody says that it may
/// be forgotten.
#[test]
fn a_cluster_that_is_gone_is_forgotten_by_force_alone() {
    let lab = Lab::new(STUDY, cluster());
    // A port that nobody listens at any more.
    let server = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
    let gone = fs::read_to_string(&lab.api.kubeconfig).expect("a file");
    let gone = gone.replace(&lab.api.url, &format!("http://{}", server.expect("a port")));
    fs::write(&lab.api.kubeconfig, gone).expect("a file");
    let left = lab.path("vmlab/4194304-0");
    fs::create_dir_all(&left).expect("a folder");
    fs::set_permissions(lab.path("vmlab"), fs::Permissions::from_mode(0o700)).expect("its owner");
    let run = json!({
        "kind": "Job", "kubeconfig": lab.api.kubeconfig, "context": "fake",
        "namespace": "lab", "run_id": "r1",
    });
    fs::write(left.join("in-cluster.json"), run.to_string()).expect("a file");
    // Shown alone: the rest of this machine is not the test's.
    let shown = |words: &[&str]| {
        let mut command = vmlab(["clean", "--dry-run"]);
        lab.api.keep_left_of(command.args(words));
        said(&mut command)
    };
    let path = left.display();
    let kept = shown(&[]);
    kept.has_code(2);
    for part in ["does not answer", &format!("{path} stays, it tells where that is; --force")] {
        assert!(kept.stdout.contains(part), "{part:?}: {kept:#?}");
    }
    let forced = shown(&["--force"]);
    assert!(forced.stdout.contains(&format!("would remove {path}\n")), "{forced:#?}");
    assert!(!forced.stdout.contains(" stays"), "{forced:#?}");
}

#[test]
fn a_plan_shows_the_instances_and_creates_none() {
    let lab = Lab::new(STUDY, cluster());
    let shown = lab.run(&["--dry-run"]);
    // `--out` is for runs.
    shown.has_code(0);
    let warned = "warning: a run would be refused: builtin:debian-12: name the container image";
    assert!(shown.stderr.contains(warned), "{shown:#?}");
    let mut command = vmlab(["run"]);
    command.arg(lab.path("study.toml")).args(["--on", "kubevirt:fake/lab", "--dry-run"]);
    command.arg("--kubeconfig").arg(&lab.api.kubeconfig);
    command.args(["--kubevirt-image", "builtin:debian-12=registry.example/guest:1"]);
    let shown = said(&mut command);
    shown.has_code(0);
    assert_eq!(shown.stderr, "", "{shown:#?}");
    for part in [
        "KubeVirt     1.7.0 at http://127.0.0.1:",
        "Namespace    lab",
        "KubeVirt there emulates its VMs",
        "container image registry.example/guest:1",
        "              image: \"registry.example/guest:1\"",
        "kernelPath: /boot/vmlinuz",
        "path: /disk/root.ext4",
        "dedicatedCpuPlacement: true",
    ] {
        assert!(shown.stdout.contains(part), "{part:?}: {}", shown.stdout);
    }
    assert_eq!(lab.created(), Vec::<String>::new());
}

#[test]
fn a_cluster_that_can_t_be_used_is_one_clear_error() {
    let image = ["--kubevirt-image", "registry.example/guest:1"];
    let check = |change: &dyn Fn(&mut Content), words: &[&str], parts: &[&str]| {
        let mut content = cluster();
        change(&mut content);
        let lab = Lab::new(STUDY, content);
        lab.run(words).is_error(parts);
        assert_eq!(lab.created(), Vec::<String>::new());
    };
    check(
        &|content| drop(content.fixed.remove("/api/v1/namespaces/lab")),
        &image,
        &["no namespace \"lab\"", "kubevirt:CONTEXT/NAMESPACE"],
    );
    let ends = Answer::of(&json!({ "status": { "phase": "Terminating" } }));
    check(
        &|content| drop(content.fixed.insert("/api/v1/namespaces/lab".to_owned(), ends.clone())),
        &image,
        &["Namespace \"lab\" is being deleted"],
    );
    let denied = Answer::of(&json!({ "status": { "allowed": false } }));
    check(
        &|content| drop(content.fixed.insert(REVIEWS.to_owned(), denied.clone())),
        &image,
        &["create virtualmachineinstances.kubevirt.io", "create pods/exec", "k8s rbac --run"],
    );
    check(
        &|content| {
            content.lists.insert("/api/v1/nodes".to_owned(), vec![node("false")]);
        },
        &image,
        &["No node of the cluster", "kubevirt.io/schedulable=true"],
    );
    check(
        &|content| drop(content.lists.remove("/apis/kubevirt.io/v1/kubevirts")),
        &image,
        &["has no KubeVirt"],
    );
    let webhook = "admission webhook \"virt-api\" denied the request: not enough";
    let refusal = Answer::refusal(422, webhook);
    check(
        &|content| content.first.push((format!("POST {INSTANCES}"), [refusal.clone()].into())),
        &image,
        &[":14: shared: the cluster refuses the instance", "not enough"],
    );
    check(&|_| {}, &["--kubevirt-image", "no=x"], &["boots no such image", "builtin:debian-12"]);
    check(&|_| {}, &[], &["name the container image", "image export --to containerdisk"]);
}

#[test]
fn a_quota_becomes_an_outcome_of_each_trial() {
    let mut content = cluster();
    let quota = "pods \"vm\" is forbidden: exceeded quota: none";
    // The first two are tried alone.
    let taken = Answer::of(&json!({ "metadata": { "uid": "1" } }));
    let refusal = Answer::refusal(403, quota);
    let answers = [taken.clone(), taken, refusal.clone(), refusal].into();
    content.first = vec![(format!("POST {INSTANCES}"), answers)];
    let lab = Lab::new(STUDY, content);
    let ran = lab.run(&["--kubevirt-image", "registry.example/guest:1"]);
    assert!(ran.stdout.contains("cluster failed"), "{ran:#?}");
    let all = results(&events(&lab.path("results")));
    assert_eq!(all.len(), 2, "{ran:#?}");
    for result in all {
        let Outcome::Failed(failure) = &result.outcome else { panic!("{result:#?}") };
        assert_eq!(failure.kind, FailureKind::ClusterFailed);
        assert!(failure.detail.contains("A quota of namespace \"lab\" is reached"), "{failure}");
    }
    assert_eq!(lab.created().len(), 2);
}

#[test]
fn a_role_for_runs_allows_what_they_do_and_no_more() {
    let role = said(&mut vmlab(["k8s", "rbac", "--run", "--service-account", "lab/vmlab"]));
    role.has_code(0);
    for part in [
        "resources: [\"virtualmachineinstances\"]\n  verbs: [\"create\", \"get\", \"list\", \"watch\", \"delete\"]",
        "resources: [\"pods/exec\"]\n  verbs: [\"create\", \"get\"]",
        "resources: [\"pods/log\"]\n  verbs: [\"get\"]",
        "resources: [\"nodes/proxy\"]",
        "kind: ClusterRoleBinding",
    ] {
        assert!(role.stdout.contains(part), "{part:?}: {}", role.stdout);
    }
    for word in ["secrets", "virtualmachines\"", "\"*\"", "patch"] {
        assert!(!role.stdout.contains(word), "{word}: {}", role.stdout);
    }
    let without = said(&mut vmlab(["k8s", "rbac", "--run", "--without-kubelets"]));
    assert!(!without.stdout.contains("nodes/proxy"), "{without:#?}");
}

/// Names of the instances and pods of a namespace.
pub(crate) fn left(user: &User, server: &str, namespace: &str) -> Vec<String> {
    let mut names = Vec::new();
    for path in ["apis/kubevirt.io/v1 virtualmachineinstances", "api/v1 pods"] {
        let (group, resource) = path.split_once(' ').expect("two words");
        let list = user.ask(server, &format!("/{group}/namespaces/{namespace}/{resource}"), None);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        names.extend(items.iter().map(|item| item["metadata"]["name"].to_string()));
    }
    names
}

/// The only file of the folder's blobs whose text begins so.
fn blob(dir: &Path, result: &TrialResult, role: &str) -> String {
    let name = &result.runs[0].blobs[role];
    fs::read_to_string(dir.join("blobs").join(name)).expect("a blob")
}

/// Each trial's VM is where it was predicted, its workload is run in it, and nothing of it
/// is left, whatever ends vmlab; for a user who has the printed role alone.
#[test]
fn a_study_comes_to_its_end_in_a_real_cluster() {
    let Some((_turn, programs)) = programs(&["--kubevirt"]) else { return };
    let user = User::new();
    let settings = user.static_kubelet();
    let words = ["--kubevirt", "--kubelet", settings.to_str().expect("a path")];
    let Some(status) = up(&user, &programs, &words) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    let account = user.account(&server, "lab", &["--run"]);
    let kubeconfig = account.kubeconfig(None);
    let kubeconfig = kubeconfig.to_str().expect("a path");
    let folder = tempfile::tempdir().expect("a folder");
    let study = folder.path().join("study.toml");
    fs::write(&study, STUDY).expect("a file");
    let study = study.to_str().expect("a path");
    let dir = folder.path().join("results");
    let out = dir.to_str().expect("a path");
    let on = ["--on", "kubevirt", "--kubeconfig", kubeconfig, "--verbose"];
    let start = || {
        let mut command = user.vmlab(&["run", study, "--out", out]);
        command.args(on).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vmlab")
    };
    let runs = || {
        let list =
            user.ask(&server, "/apis/kubevirt.io/v1/namespaces/lab/virtualmachineinstances", None);
        let phase = list["items"][0]["status"]["phase"].as_str().map(str::to_owned);
        (phase.as_deref() == Some("Running")).then_some(())
    };

    // Killed: `clean` finds the instance where the run's folder says that it is.
    let mut killed = start();
    until("an instance runs", runs);
    send(u64::from(killed.id()), Signal::KILL);
    killed.wait().expect("it ended");
    assert!(!left(&user, &server, "lab").is_empty());
    let cleaned = user.say(&["clean"]);
    cleaned.has_code(0);
    assert!(cleaned.stdout.contains("deleted VirtualMachineInstance lab/vmlab-"), "{cleaned:#?}");
    assert_eq!(left(&user, &server, "lab"), Vec::<String>::new());
    fs::remove_dir_all(&dir).expect("a folder");

    // Interrupted: it deletes its instance itself.
    let interrupted = start();
    until("an instance runs", runs);
    send(u64::from(interrupted.id()), Signal::INT);
    CommandOutput::of(interrupted.wait_with_output().expect("vmlab")).has_code(2);
    assert_eq!(left(&user, &server, "lab"), Vec::<String>::new());
    let elsewhere = user.say(&["run", "--resume", out]);
    elsewhere.is_error(&["was begun in a cluster"]);

    let mut resumed = user.vmlab(&["run", "--resume", out]);
    let resumed = said(resumed.args(on));
    assert!(resumed.stdout.contains("own"), "{resumed:#?}");
    assert_eq!(left(&user, &server, "lab"), Vec::<String>::new());
    let contents = assert_complete(&dir);
    let cluster = contents.plan.kubevirt.expect("the plan names it");
    assert_eq!((cluster.server, cluster.is_emulated), (server.clone(), true));
    assert_eq!(contents.plan.variants[0].environment, Environment::Tcg);
    let all = results(&events(&dir));
    let completed: Vec<_> = all.iter().filter(|one| one.outcome.is_completed()).collect();
    assert_eq!(completed.len(), 2, "{resumed:#?} {all:#?}");
    for result in completed {
        let fact = |name: &str| result.facts.get(name).map_or("", String::as_str);
        assert_eq!(result.warnings, Vec::<String>::new());
        assert!(result.boot_s.is_some_and(|boot_s| boot_s > 0.0), "{result:#?}");
        assert_eq!(result.runs[0].samples[0].metric, "time", "{result:#?}");
        // The node that there is, with a policy that is predicted.
        assert_eq!(fact("kubevirt.node"), cluster.nodes[0], "{result:#?}");
        assert!(fact("kubevirt.phases_s").contains("Running"), "{result:#?}");
        assert_eq!(fact("kubevirt.pcpus"), fact("kubevirt.predicted_pcpus"), "{result:#?}");
        let vcpus = fact("kubevirt.vcpu_pcpus");
        assert_eq!(vcpus, fact("kubevirt.predicted_vcpu_pcpus"), "{result:#?}");
        assert_eq!(result.vcpu_affinity, [vcpus.to_owned()]);
        let rule = fact("kubevirt.predicted_by");
        let is_own = result.trial.variant == "own";
        assert!(rule.contains("static policy"), "{rule}");
        assert_eq!(rule.contains("KubeVirt 1.7.0's pins"), is_own, "{rule}");
        assert_eq!(fact("kubevirt.qos_class") == "Guaranteed", is_own, "{result:#?}");
        assert!(result.qemu_args.iter().any(|word| word.contains("charmonitor")), "{result:#?}");
        let domain = blob(&dir, result, "domain-xml");
        assert_eq!(domain.contains("<vcpupin "), is_own, "{domain}");
        assert!(blob(&dir, result, "vmi").contains("kernelBoot:"));
        assert!(blob(&dir, result, "events").contains("SuccessfulCreate"));
        assert!(!blob(&dir, result, "pod-cgroup").is_empty());
    }
    let counters = &all[all.len() - 1].runs[0].counters;
    assert!(counters.get("guest.context_switches").is_some_and(|count| count > 0.0));
    assert!(counters.get("host.context_switches").is_none(), "{counters:#?}");
    user.say(&["cluster", "down", "lab"]).has_code(0);
}
