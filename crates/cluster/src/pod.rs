//! Pods that have pCPUs of their node for themselves.

use k8s_openapi::api::core::v1::{Container, Pod};
use vmconfig::kubevirt::Quantity;

/// A pod whose containers get pCPUs of their own from a kubelet with the static policy:
/// Guaranteed, with a whole number of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusivePod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is bound to.
    pub node: String,
    /// pCPUs of all its containers that have their own.
    pub cpus: u32,
    /// When it came to its node, as the server writes it; sorts by time.
    pub started: String,
    /// The VirtualMachineInstance that it runs, by name in the same namespace.
    pub instance: Option<String>,
}

impl ExclusivePod {
    /// `None`: it shares the node's pool, is on no node, or is over.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if over || status.qos_class.as_deref() != Some("Guaranteed") {
            return None;
        }
        // Containers that stay beside the others are init containers to the API.
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let init = spec.init_containers.iter().flatten().filter(stays);
        let cpus = spec.containers.iter().chain(init).filter_map(whole_cpus).sum();
        if cpus == 0 {
            return None;
        }
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
            cpus,
            started: started.map(|time| time.0.to_string()).unwrap_or_default(),
            instance,
        })
    }
}

/// CPUs of a container, if they are whole ones.
fn whole_cpus(container: &Container) -> Option<u32> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let cpus: Quantity = limits.get("cpu")?.0.parse().ok()?;
    let whole = cpus.round_down().filter(|whole| cpus.round_up() == Some(*whole))?;
    u32::try_from(whole).ok().filter(|whole| *whole > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(class: &str, cpus: &[&str], phase: &str) -> Value {
        let containers: Vec<Value> = cpus
            .iter()
            .map(|cpu| json!({ "name": "c", "resources": { "limits": { "cpu": cpu } } }))
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

    fn of(value: Value) -> Option<ExclusivePod> {
        ExclusivePod::of(&serde_json::from_value(value).expect("a pod"))
    }

    #[test]
    fn whole_cpus_of_guaranteed_pods_are_their_own() {
        let found = of(pod("Guaranteed", &["2", "500m", "1000m"], "Running")).expect("its own");
        assert_eq!((found.cpus, found.instance.as_deref()), (3, Some("web")));
        assert_eq!(found.started, "2026-01-02T03:04:05Z");
        assert_eq!(of(pod("Burstable", &["2"], "Running")), None);
        assert_eq!(of(pod("Guaranteed", &["500m"], "Running")), None);
        assert_eq!(of(pod("Guaranteed", &["2"], "Succeeded")), None);
    }
}
