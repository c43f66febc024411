//! The Job of one node of a study: what its pod is given and what it runs.
//!
//! The pod waits until the study's files are there (`go`), runs vmlab once, says how that
//! ended (`code`), and stays until its results were taken (`collected`). So the study does
//! not notice when whoever asked for it is away for a while.

use serde_json::{Value, json};

use crate::kind::JOB_LABEL;

/// The folder of a pod in which all of it lies: a volume that ends with the pod.
pub const WORK: &str = "/work";

/// The name of the pod's container.
pub(crate) const CONTAINER: &str = "vmlab";

/// A pod that is told to end has so long to put a node's settings back, s.
const GRACE_S: u32 = 30;

/// A Job that nobody deletes is gone so long after its end, s.
const KEPT_S: u32 = 3600;

/// What the pod runs: `$1` is the folder, the rest the study's command line.
const RUN: &str = "\
p=
end() { [ -z \"$p\" ] || { kill \"$p\" 2>/dev/null; wait \"$p\"; }; exit 143; }
trap end TERM INT
cd \"$1\" || exit 2
shift
mkdir -p cache run state study && chmod 700 run || exit 2
until [ -e go ]; do sleep 0.2 & wait $!; done
\"$@\" >said 2>errors &
p=$!
wait \"$p\"
code=$?
p=
echo $code >code.new
mv code.new code
until [ -e collected ]; do sleep 0.5 & wait $!; done
[ $code -lt 2 ] || [ $code -eq 3 ] || exit $code
";

/// How guests of the pod come by `/dev/kvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvmAccess {
    /// They are emulated.
    None,
    /// The node's file, which takes a privileged container.
    HostPath,
    /// A device plugin's resource: `devices.kubevirt.io/kvm`.
    Resource(String),
}

/// What a node's Job is to be.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// The node.
    pub node: String,
    /// The container image, with vmlab and QEMU.
    pub image: String,
    /// `/dev/kvm`.
    pub kvm: KvmAccess,
    /// Whether the container may change the node's settings.
    pub privileged: bool,
    /// CPUs, as Kubernetes writes them: requested, and the limit.
    pub cpus: Option<String>,
    /// Memory, likewise.
    pub memory: Option<String>,
    /// Kueue's queue.
    pub queue: Option<String>,
    /// When Kubernetes ends it, s after it started.
    pub limit_s: u64,
    /// Labels and annotations by which it is found again.
    pub labels: Vec<(String, String)>,
    /// See above.
    pub annotations: Vec<(String, String)>,
    /// The command line of the study, in [`WORK`].
    pub command: Vec<String>,
}

/// The Job, as the API takes it.
#[must_use]
pub fn manifest(spec: &JobSpec) -> Value {
    let mut labels: serde_json::Map<String, Value> =
        spec.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    labels.insert(JOB_LABEL.to_owned(), json!(spec.name));
    let pod_labels = labels.clone();
    if let Some(queue) = &spec.queue {
        labels.insert("kueue.x-k8s.io/queue-name".to_owned(), json!(queue));
    }
    let annotations: serde_json::Map<String, Value> =
        spec.annotations.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut amounts = serde_json::Map::new();
    for (name, amount) in [("cpu", &spec.cpus), ("memory", &spec.memory)] {
        if let Some(amount) = amount {
            amounts.insert(name.to_owned(), json!(amount));
        }
    }
    let mut volumes = vec![json!({ "name": "work", "emptyDir": {} })];
    let mut mounts = vec![json!({ "name": "work", "mountPath": WORK })];
    match &spec.kvm {
        KvmAccess::None => {}
        KvmAccess::HostPath => {
            let host = json!({ "path": "/dev/kvm", "type": "CharDevice" });
            volumes.push(json!({ "name": "kvm", "hostPath": host }));
            mounts.push(json!({ "name": "kvm", "mountPath": "/dev/kvm" }));
        }
        KvmAccess::Resource(name) => drop(amounts.insert(name.clone(), json!("1"))),
    }
    let command: Vec<&str> = ["sh", "-c", RUN, "sh", WORK]
        .into_iter()
        .chain(spec.command.iter().map(String::as_str))
        .collect();
    let mut container = json!({
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "workingDir": WORK,
        "env": [
            { "name": "XDG_CACHE_HOME", "value": format!("{WORK}/cache") },
            { "name": "XDG_RUNTIME_DIR", "value": format!("{WORK}/run") },
            { "name": "XDG_STATE_HOME", "value": format!("{WORK}/state") },
        ],
        "volumeMounts": mounts,
    });
    if !amounts.is_empty() {
        container["resources"] = json!({ "requests": amounts, "limits": amounts });
    }
    if spec.privileged || spec.kvm == KvmAccess::HostPath {
        container["securityContext"] = json!({ "privileged": true });
    }
    // By the scheduler, so that taints, quotas and queues count, on that node alone.
    let fields = json!([{ "key": "metadata.name", "operator": "In", "values": [spec.node] }]);
    let terms = json!({ "nodeSelectorTerms": [{ "matchFields": fields }] });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": spec.name, "labels": labels, "annotations": annotations },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec.limit_s,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": GRACE_S,
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "affinity": { "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": terms,
                    } },
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;

    use super::*;

    fn spec() -> JobSpec {
        JobSpec {
            name: "vmlab-1-0".to_owned(),
            node: "one".to_owned(),
            image: "registry.example/vmlab:1".to_owned(),
            kvm: KvmAccess::None,
            privileged: false,
            cpus: None,
            memory: None,
            queue: None,
            limit_s: 600,
            labels: vec![("app".to_owned(), "vmlab".to_owned())],
            annotations: Vec::new(),
            command: vec!["vmlab".to_owned(), "run".to_owned()],
        }
    }

    /// As a client of the API reads it, with every field where it belongs.
    fn job(spec: &JobSpec) -> Job {
        let made = manifest(spec);
        let read: Job = serde_json::from_value(made.clone()).expect("a Job");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), made);
        read
    }

    #[test]
    fn a_job_is_one_pod_on_one_node() {
        let job = job(&spec());
        let spec = job.spec.expect("a spec");
        assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), Some(600)));
        let pod = spec.template.spec.expect("a pod");
        assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
        let affinity = serde_json::to_string(&pod.affinity).expect("JSON");
        assert!(affinity.contains(r#""values":["one"]"#), "{affinity}");
        assert!(pod.containers[0].resources.is_none() && pod.volumes.expect("one").len() == 1);
    }

    #[test]
    fn what_is_asked_for_is_there() {
        let asked = JobSpec {
            kvm: KvmAccess::Resource("devices.kubevirt.io/kvm".to_owned()),
            cpus: Some("4".to_owned()),
            memory: Some("8Gi".to_owned()),
            queue: Some("lab".to_owned()),
            ..spec()
        };
        let job = job(&asked);
        let labels = job.metadata.labels.expect("labels");
        assert_eq!(labels["kueue.x-k8s.io/queue-name"], "lab");
        assert_eq!(labels[JOB_LABEL], "vmlab-1-0");
        let pod = job.spec.expect("a spec").template.spec.expect("a pod");
        let resources = pod.containers[0].resources.clone().expect("resources");
        assert_eq!(resources.requests, resources.limits);
        let limits = resources.limits.expect("limits");
        assert_eq!(limits["devices.kubevirt.io/kvm"].0, "1");
        assert_eq!((&*limits["cpu"].0, &*limits["memory"].0), ("4", "8Gi"));
        assert!(pod.containers[0].security_context.is_none());
        let path = manifest(&JobSpec { kvm: KvmAccess::HostPath, ..spec() });
        let pod = &path["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
        assert_eq!(pod["volumes"][1]["hostPath"]["path"], "/dev/kvm");
    }
}
