//! KubeVirt in the cluster: its operator makes all else, from images that are there.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::node::NODE_NAME;

/// Where scripts/get-kube puts KubeVirt, below the folder of Kubernetes' programs.
pub(crate) const FOLDER: &str = "kubevirt";
/// What is applied to have the operator, one object a line.
pub(crate) const OPERATOR: &str = "operator.json";
/// The image of what runs on each node that takes VMs.
pub(crate) const OF_NODES: &str = "node.tar";
/// The images of its components.
pub(crate) const ARCHIVES: [&str; 2] = ["control.tar", OF_NODES];
/// KubeVirt's own objects of its kind.
const KUBEVIRTS: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts";
/// Its phase when all of it is there.
const DEPLOYED: &str = "Deployed";

/// KubeVirt, as it is wanted in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeVirtRequest {
    /// Whether VMs are emulated; else they need `/dev/kvm`.
    pub emulated: bool,
}

/// KubeVirt, as it says that it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubeVirtStatus {
    /// Its version.
    pub version: Option<String>,
    /// `Deploying`, `Deployed`...
    pub phase: Option<String>,
    /// VMs that run.
    pub running_vms: usize,
}

impl KubeVirtStatus {
    /// Whether all of it is there.
    #[must_use]
    pub fn is_deployed(&self) -> bool {
        self.phase.as_deref() == Some(DEPLOYED)
    }

    /// From KubeVirt's object and the list of VM instances.
    pub(crate) fn of(kubevirt: &Value, instances: &Value) -> Self {
        let status = &kubevirt["status"];
        let text = |key: &str| status[key].as_str().map(str::to_owned);
        let items = instances["items"].as_array().map_or(&[][..], Vec::as_slice);
        let running = items.iter().filter(|vm| vm["status"]["phase"] == "Running");
        Self {
            version: text("observedKubeVirtVersion"),
            phase: text("phase"),
            running_vms: running.count(),
        }
    }
}

/// The path of KubeVirt's object.
pub(crate) fn object_path() -> String {
    format!("{KUBEVIRTS}/kubevirt")
}

/// The path of the list of VM instances.
pub(crate) const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";

/// A file of KubeVirt's.
pub(crate) fn file(programs: &Path, name: &str) -> PathBuf {
    programs.join(FOLDER).join(name)
}

/// The objects that make the operator, in their order.
pub(crate) fn operator(programs: &Path) -> Result<Vec<Value>, String> {
    let path = file(programs, OPERATOR);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let objects = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    objects.map_err(|error| format!("{}: {error}", path.display()))
}

/// What the operator makes, with the container that is asked whether it is ready.
const COMPONENTS: [(&str, &str); 3] =
    [("Deployment", "virt-api"), ("Deployment", "virt-controller"), ("DaemonSet", "virt-handler")];

/// Has a component asked from its first second on; KubeVirt waits 15 s, and asks every 10 or 20.
/// A question now and then costs an emulated node little.
fn without_delay((kind, name): (&str, &str)) -> Value {
    let probe = json!({ "initialDelaySeconds": 1, "periodSeconds": 3 });
    let containers = json!([{ "name": name, "readinessProbe": probe }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    json!({
        "resourceType": kind, "resourceName": name, "type": "strategic",
        "patch": patch.to_string(),
    })
}

/// KubeVirt's object, by which its operator is told what to make.
pub(crate) fn object(wanted: &KubeVirtRequest) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
        "spec": {
            // There is no registry to ask.
            "imagePullPolicy": "IfNotPresent",
            // The API server reaches webhooks on its own node alone.
            "infra": { "replicas": 1, "nodePlacement": { "nodeSelector": {
                "kubernetes.io/hostname": NODE_NAME,
            }}},
            "customizeComponents": { "patches": COMPONENTS.map(without_delay) },
            "configuration": { "developerConfiguration": {
                "useEmulation": wanted.emulated,
                // VMs with pCPUs of their own; the kubelet has to hand them out, too.
                "featureGates": ["CPUManager"],
            }},
        },
    })
}

/// The path to which an object is posted.
pub(crate) fn list_path(object: &Value) -> Option<String> {
    let version = object["apiVersion"].as_str()?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str()?.to_lowercase();
    let plural = if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") };
    Some(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_posted_to_their_lists() {
        let path = |version: &str, kind: &str, namespace: Option<&str>| {
            let metadata = json!({ "name": "x", "namespace": namespace });
            list_path(&json!({ "apiVersion": version, "kind": kind, "metadata": metadata }))
        };
        for (version, kind, namespace, expected) in [
            ("v1", "Namespace", None, "/api/v1/namespaces"),
            ("v1", "ServiceAccount", Some("a"), "/api/v1/namespaces/a/serviceaccounts"),
            (
                "scheduling.k8s.io/v1",
                "PriorityClass",
                None,
                "/apis/scheduling.k8s.io/v1/priorityclasses",
            ),
            ("apps/v1", "Deployment", Some("a"), "/apis/apps/v1/namespaces/a/deployments"),
        ] {
            assert_eq!(path(version, kind, namespace).as_deref(), Some(expected));
        }
        let own = object(&KubeVirtRequest { emulated: true });
        assert_eq!(list_path(&own).as_deref(), Some(KUBEVIRTS));
        assert_eq!(list_path(&json!({})), None);
    }

    #[test]
    fn its_status_is_read() {
        let kubevirt =
            json!({ "status": { "phase": "Deployed", "observedKubeVirtVersion": "v1.7.0" } });
        let vms = json!({ "items": [
            { "status": { "phase": "Running" } }, { "status": { "phase": "Scheduled" } }, {},
        ]});
        let status = KubeVirtStatus::of(&kubevirt, &vms);
        assert!(status.is_deployed() && status.running_vms == 1, "{status:?}");
        assert_eq!(status.version.as_deref(), Some("v1.7.0"));
        assert!(!KubeVirtStatus::of(&json!({}), &json!({})).is_deployed());
    }
}
