//! Pods that have something of their node for themselves: pCPUs, or memory of some nodes.

use k8s_openapi::api::core::v1::{Container, Pod};
use placement::predict::MemoryAmounts;
use placement::predict::kubelet::ContainerRequest;
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
        let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if over || status.qos_class.as_deref() != Some("Guaranteed") {
            return None;
        }
        // Containers that stay beside the others are init containers to the API.
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let init = spec.init_containers.iter().flatten().filter(stays);
        let containers = init.chain(&spec.containers).map(request).collect();
        let owners = pod.metadata.owner_references.iter().flatten();
        let instance = owners
            .filter(|owner| owner.kind == "VirtualMachineInstance")
            .map(|owner| owner.name.clone())
            .next();
        let started = status.start_time.as_ref().or(pod.metadata.creation_timestamp.as_ref());
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: spec.node_name.clone()?,
            containers,
            started: started.map(|time| time.0.to_string()).unwrap_or_default(),
            instance,
        })
    }
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
