//! The manifests of `packaging/images` and the Jobs of studies against the kinds that others
//! define: KubeVirt's, CDI's and Kueue's own definitions in a real API server.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use suite::until;

use crate::lab::{CommandOutput, VMLAB, said};
use crate::local_clusters::{User, programs, up};
use crate::nodes::THIN_STUDY;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACE: &str = "vmlab";

/// Where objects of a kind are created, so that a field which the kind does not know is an
/// error.
fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("a version");
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", object["kind"].as_str().expect("a kind").to_lowercase());
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("namespaces/{namespace}/"),
        None => String::new(),
    };
    format!("/{root}/{version}/{namespace}{plural}?fieldValidation=Strict")
}

/// The only document of a YAML text.
fn yaml(text: &str) -> Value {
    let documents = topology::bounded::yaml(text).expect("YAML");
    let [document] = &documents[..] else { panic!("{} documents", documents.len()) };
    document.json()
}

/// Kinds of KubeVirt, CDI and Kueue, in the server.
fn define(user: &User, server: &str, programs: &Path) {
    let kubevirt = fs::read_to_string(programs.join("crds.json")).expect("KubeVirt's kinds");
    let kubevirt = kubevirt.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let files = fs::read_dir(programs.join("kinds")).expect("others' kinds").flatten();
    let files = files.map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let others = files.map(|path| yaml(&fs::read_to_string(path).expect("a kind")));
    let mut names = Vec::new();
    for kind in kubevirt.chain(others) {
        let kind: Value = kind;
        names.push(kind["metadata"]["name"].as_str().expect("a name").to_owned());
        user.ask(server, DEFINITIONS, Some(&kind));
    }
    assert!(names.iter().any(|name| name == "localqueues.kueue.x-k8s.io"), "{names:?}");
    for name in names {
        until("the kind is served", || {
            let kind = user.ask(server, &format!("{DEFINITIONS}/{name}"), None);
            let conditions = kind["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |one: &Value| one["type"] == "Established" && one["status"] == "True";
            conditions.iter().any(is).then_some(())
        });
    }
}

#[test]
fn manifests_are_what_their_kinds_want() {
    let Some((_turn, programs)) = programs(&[]) else { return };
    let user = User::new();
    let Some(status) = up(&user, &programs, &[]) else { return };
    let server = status["server"].as_str().expect("an address").to_owned();
    define(&user, &server, Path::new(&programs));
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    user.ask(&server, "/api/v1/namespaces", Some(&namespace));

    // Those of the images.
    let folder = tempfile::tempdir().expect("a folder");
    let rendered = folder.path().join("rendered");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script =
        Command::new(root.join("packaging/render")).arg(&rendered).env("VMLAB", VMLAB).output();
    CommandOutput::of(script.expect("the script")).has_code(0);
    let manifest = |name: &str| yaml(&fs::read_to_string(rendered.join(name)).expect(name));
    for name in ["guest-datavolume.yaml", "guest-vmi.yaml"] {
        let object = manifest(name);
        assert_eq!(object["metadata"]["namespace"], NAMESPACE);
        user.ask(&server, &path(&object), Some(&object));
        let mut other = object;
        other["metadata"]["name"] = json!("other");
        other["spec"]["no_such_field"] = json!(1);
        let refused = user.try_request(&server, "POST", &path(&other), Some(&other));
        let said = refused.expect_err("a field that nobody knows").stdout;
        assert!(said.contains("unknown field \\\"spec.no_such_field\\\""), "{name}: {said}");
    }

    // A study's Jobs, for a queue of Kueue's.
    let kueue = "kueue.x-k8s.io/v1beta2";
    let of = |kind: &str, name: &str, namespace: Option<&str>, spec: Value| {
        let mut object = json!({
            "apiVersion": kueue, "kind": kind, "spec": spec, "metadata": { "name": name },
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    };
    let quota = json!([
        { "name": "cpu", "nominalQuota": "1" }, { "name": "memory", "nominalQuota": "1Gi" },
    ]);
    let flavors = json!([{ "name": "any", "resources": quota }]);
    for object in [
        of("ResourceFlavor", "any", None, json!({})),
        of(
            "ClusterQueue",
            "all",
            None,
            json!({
                "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": ["cpu", "memory"], "flavors": flavors,
                }],
            }),
        ),
        of("LocalQueue", "lab", Some(NAMESPACE), json!({ "clusterQueue": "all" })),
    ] {
        user.ask(&server, &path(&object), Some(&object));
    }
    let study = folder.path().join("study.toml");
    fs::write(&study, THIN_STUDY).expect("a file");
    let mut plan = user.vmlab(&["run", study.to_str().expect("a path"), "--on", "k8s:/vmlab"]);
    plan.arg("--kubeconfig").arg(user.folder().join("kubeconfig"));
    plan.args(["--node-image", "x", "--node-queue", "lab", "--dry-run"]);
    plan.args(["--node-cpus", "1", "--node-memory", "256Mi"]);
    let planned = said(&mut plan);
    planned.has_code(0);
    let jobs: Value = serde_json::from_str(&planned.stdout).expect("JSON");
    let jobs = jobs["items"].as_array().expect("Jobs");
    assert!(!jobs.is_empty(), "{planned:#?}");
    for job in jobs {
        assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "lab");
        // Where kubectl is told to put them.
        let mut job = job.clone();
        job["metadata"]["namespace"] = NAMESPACE.into();
        user.ask(&server, &format!("{}&dryRun=All", path(&job)), Some(&job));
    }
    user.say(&["cluster", "down", "lab"]).has_code(0);
}
