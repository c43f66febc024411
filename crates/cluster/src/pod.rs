//! Pods that have something of their node for themselves: pCPUs, or memory of some nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource;
use placement::predict::MemoryAmounts;
use placement::predict::kubelet::ContainerRequest;
use placement::predict::node::PodRequests;
use vmconfig::kubevirt::Quantity;

/// A Guaranteed pod: containers that ask for a whole number of CPUs get pCPUs of their own
/// from a kubelet with the static policy, and all get memory of nodes of their own where the
/// memory manager is static.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuaranteedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is bound to.
    pub node: String,
    /// What its containers that stay ask for.
    pub containers: Vec<ContainerRequest>,
    /// When it came to its node, as the server writes it; sorts by time.
    pub started: String,
    /// The VirtualMachineInstance that it runs, by name in the same namespace.
    pub instance: Option<String>,
}

impl GuaranteedPod {
    /// pCPUs of all its containers that have their own.
    #[must_use]
    pub fn exclusive_pcpus(&self) -> u32 {
        self.containers.iter().fold(0, |sum, one| sum.saturating_add(one.pcpus))
    }

    /// `None`: it is not Guaranteed, is on no node, or is over.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        if is_over(pod) || status.qos_class.as_deref() != Some("Guaranteed") {
            return None;
        }
        let init = spec.init_containers.iter().flatten().filter(|one| stays(one));
        let containers = init.chain(&spec.containers).map(request).collect();
        let started = status.start_time.as_ref().or(pod.metadata.creation_timestamp.as_ref());
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: spec.node_name.clone()?,
            containers,
            started: started.map(|time| time.0.to_string()).unwrap_or_default(),
            instance: instance(pod),
        })
    }
}

/// The VirtualMachineInstance that a pod runs, by name in the same namespace.
fn instance(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut names = owners.filter(|owner| owner.kind == "VirtualMachineInstance");
    names.next().map(|owner| owner.name.clone())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether an init container stays beside the others.
fn stays(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// A pod that is not over, on its node.
pub(crate) struct BoundPod {
    pub(crate) node: String,
    /// What it asks of the node.
    pub(crate) requests: PodRequests,
    /// Namespace and name of the VirtualMachineInstance that it runs.
    pub(crate) instance: Option<(String, String)>,
    pub(crate) guaranteed: Option<GuaranteedPod>,
}

impl BoundPod {
    /// `None`: it is on no node, or is over.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let (node, requests) = requests(pod)?;
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let instance = instance(pod).map(|name| (namespace, name));
        Some(Self { node, requests, instance, guaranteed: GuaranteedPod::of(pod) })
    }
}

/// The node of a pod that is not over, and what the pod asks of it: all that its containers ask
/// for together, or what it takes while they are made ready, if that is more.
///
/// Source: Kubernetes 1.36, `staging/src/k8s.io/component-helpers/resource/helpers.go`
/// (`PodRequests`).
fn requests(pod: &Pod) -> Option<(String, PodRequests)> {
    let spec = pod.spec.as_ref().filter(|_| !is_over(pod))?;
    let node = spec.node_name.clone()?;
    let of = |container: &Container| {
        let asked = container.resources.as_ref().and_then(|all| all.requests.as_ref());
        amounts(asked)
    };
    let (mut all, mut meanwhile) = (PodRequests::default(), PodRequests::default());
    for init in spec.init_containers.iter().flatten() {
        if stays(init) {
            all.add(&of(init));
        } else {
            let mut now = all.clone();
            now.add(&of(init));
            meanwhile.raise_to(&now);
        }
    }
    spec.containers.iter().for_each(|container| all.add(&of(container)));
    all.raise_to(&meanwhile);
    all.add(&amounts(spec.overhead.as_ref()));
    Some((node, all))
}

fn amounts(named: Option<&BTreeMap<String, resource::Quantity>>) -> PodRequests {
    let mut found = PodRequests::default();
    for (name, amount) in named.into_iter().flatten() {
        let Ok(amount) = amount.0.parse::<Quantity>() else { continue };
        let bytes = amount.round_up().unwrap_or(u64::MAX);
        match name.as_str() {
            "cpu" => found.cpu_milli = (amount.as_f64() * 1000.0).ceil() as u64,
            "memory" => found.memory_bytes = bytes,
            other => {
                let page = other.strip_prefix("hugepages-").and_then(|of| of.parse().ok());
                if let Some(page) = page.and_then(|page: Quantity| page.round_down()) {
                    found.huge_page_bytes.insert(page, bytes);
                }
            }
        }
    }
    found
}

/// What a container asks for: whole CPUs, and every kind of memory.
fn request(container: &Container) -> ContainerRequest {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let (mut pcpus, mut memory) = (0, MemoryAmounts::new());
    for (name, amount) in limits.into_iter().flatten() {
        let Ok(amount) = amount.0.parse::<Quantity>() else { continue };
        let Some(up) = amount.round_up() else { continue };
        if name == "cpu" {
            let whole = amount.round_down() == Some(up);
            pcpus = u32::try_from(up).ok().filter(|_| whole).unwrap_or(0);
        } else if let Ok(kind) = name.parse() {
            memory.insert(kind, up);
        }
    }
    ContainerRequest { pcpus, memory }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::predict::MemoryKind;
    use serde_json::{Value, json};

    fn pod(class: &str, cpus: &[&str], phase: &str) -> Value {
        let containers: Vec<Value> = cpus
            .iter()
            .map(|cpu| {
                let limits = json!({ "cpu": cpu, "memory": "1Gi", "hugepages-2Mi": "4Mi" });
                json!({ "name": "c", "resources": { "limits": limits } })
            })
            .collect();
        json!({
            "metadata": {
                "name": "virt-launcher-web", "namespace": "shop",
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "name": "web", "uid": "1",
                }],
            },
            "spec": { "nodeName": "one", "containers": containers },
            "status": {
                "phase": phase, "qosClass": class, "startTime": "2026-01-02T03:04:05Z",
            },
        })
    }

    fn of(value: Value) -> Option<GuaranteedPod> {
        GuaranteedPod::of(&serde_json::from_value(value).expect("a pod"))
    }

    #[test]
    fn a_node_has_less_by_what_its_pods_ask_for() {
        let container = |cpu: &str, more: Value| {
            let mut requests = json!({ "cpu": cpu, "memory": "1Gi" });
            if let Some(huge) = more.get("huge") {
                requests["hugepages-2Mi"] = huge.clone();
            }
            let mut container = json!({ "name": "c", "resources": { "requests": requests } });
            if let Some(policy) = more.get("policy") {
                container["restartPolicy"] = policy.clone();
            }
            container
        };
        let none = || json!({});
        let mut object = pod("Burstable", &[], "Running");
        object["spec"]["containers"] =
            json!([container("250m", json!({ "huge": "4Mi" })), container("1", none())]);
        object["spec"]["initContainers"] =
            json!([container("100m", json!({ "policy": "Always" })), container("3", none()),]);
        object["spec"]["overhead"] = json!({ "cpu": "10m" });
        let of = |object: &Value| requests(&serde_json::from_value(object.clone()).expect("a pod"));
        let (node, found) = of(&object).expect("on a node");
        assert_eq!(node, "one");
        // 3100m while it is made ready, 1350m then; three containers that stay.
        let huge_page_bytes = [(2 << 20, 4 << 20)].into();
        let expected = PodRequests { cpu_milli: 3110, memory_bytes: 3 << 30, huge_page_bytes };
        assert_eq!(found, expected);
        object["status"]["phase"] = json!("Succeeded");
        assert_eq!(of(&object), None);
        object["status"]["phase"] = json!("Pending");
        object["spec"]["nodeName"] = Value::Null;
        assert_eq!(of(&object), None);
    }

    #[test]
    fn whole_cpus_of_guaranteed_pods_are_their_own() {
        let found = of(pod("Guaranteed", &["2", "500m", "1000m"], "Running")).expect("its own");
        assert_eq!((found.exclusive_pcpus(), found.instance.as_deref()), (3, Some("web")));
        let pcpus: Vec<u32> = found.containers.iter().map(|one| one.pcpus).collect();
        assert_eq!(pcpus, [2, 0, 1]);
        let memory = [(MemoryKind::Ordinary, 1 << 30), (MemoryKind::HugePages(2 << 20), 4 << 20)];
        assert!(found.containers.iter().all(|one| one.memory == memory.into()), "{found:?}");
        assert_eq!(found.started, "2026-01-02T03:04:05Z");
        assert_eq!(of(pod("Burstable", &["2"], "Running")), None);
        let shares = of(pod("Guaranteed", &["500m"], "Running")).expect("memory of its own");
        assert_eq!(shares.exclusive_pcpus(), 0);
        assert_eq!(of(pod("Guaranteed", &["2"], "Succeeded")), None);
    }
}
