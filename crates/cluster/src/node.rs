//! A node of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use placement::predict::node::NodeOffer;
use placement::predict::scheduling::Taint;
use vmconfig::kubevirt::Quantity;

use placement::predict::kubelet::KubeletSettings;

use crate::machine_config::{MachineConfigState, NodeBoot};

/// A node.
#[derive(Clone, Debug)]
pub struct ClusterNode {
    /// What it has for pods.
    pub offer: NodeOffer,
    /// The kubelet's version: `v1.36.3`.
    pub kubelet_version: String,
    /// Its kernel.
    pub kernel: String,
    /// CPUs that it has, those that are kept for the host among them.
    pub cpus: u32,
    /// The kubelet's settings; `None`: nobody tells.
    pub kubelet: Option<KubeletSettings>,
    /// The MachineConfig that OpenShift gave it, if it has one.
    pub machine_config: Option<MachineConfigState>,
    /// What its kernel is told by that; `None`: nobody tells.
    pub boot: Option<NodeBoot>,
}

impl ClusterNode {
    pub(crate) fn of(node: Node) -> Self {
        let status = node.status.unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let spec = node.spec.unwrap_or_default();
        let unschedulable = spec.unschedulable.unwrap_or(false);
        let taints = spec.taints.unwrap_or_default().into_iter();
        let taints = taints.map(|taint| Taint {
            key: taint.key,
            value: taint.value.unwrap_or_default(),
            effect: taint.effect,
        });
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
        let amounts = |amounts: Option<BTreeMap<String, _>>| amounts.unwrap_or_default();
        let read = |text: &str| text.parse::<Quantity>().ok();
        let capacity = amounts(status.capacity);
        let cpus = capacity.get("cpu").and_then(|amount| read(&amount.0)?.round_down());
        let allocatable = amounts(status.allocatable);
        let bytes = |name: &str| allocatable.get(name).and_then(|one| read(&one.0)?.round_down());
        let cpu = allocatable.get("cpu").and_then(|amount| read(&amount.0));
        let huge_page_bytes = allocatable
            .iter()
            .filter_map(|(name, amount)| {
                let size = read(name.strip_prefix("hugepages-")?)?.round_down()?;
                Some((size, read(&amount.0)?.round_down()?))
            })
            .collect();
        Self {
            offer: NodeOffer {
                name: node.metadata.name.unwrap_or_default(),
                labels: node.metadata.labels.unwrap_or_default(),
                takes_pods: ready && !unschedulable,
                taints: taints.collect(),
                cpu_milli: cpu.map_or(0, |cpus| (cpus.as_f64() * 1000.0) as u64),
                memory_bytes: bytes("memory").unwrap_or(0),
                huge_page_bytes,
            },
            kubelet_version: info.kubelet_version,
            kernel: info.kernel_version,
            cpus: cpus.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(0),
            kubelet: None,
            machine_config: MachineConfigState::of(node.metadata.annotations.as_ref()),
            boot: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_tells_what_it_has() {
        let object = json!({
            "metadata": { "name": "one", "labels": { "kubernetes.io/arch": "amd64" } },
            "spec": { "taints": [{ "key": "dedicated", "value": "vm", "effect": "NoSchedule" }] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "capacity": { "cpu": "8" },
                "allocatable": {
                    "cpu": "7500m", "memory": "16Gi",
                    "hugepages-1Gi": "4Gi", "hugepages-2Mi": "0",
                },
                "nodeInfo": {
                    "kubeletVersion": "v1.36.3", "kernelVersion": "6.12.0", "machineID": "",
                    "systemUUID": "", "bootID": "", "osImage": "", "containerRuntimeVersion": "",
                    "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
                },
            },
        });
        let node = ClusterNode::of(serde_json::from_value(object.clone()).expect("a node"));
        assert_eq!((node.cpus, node.offer.cpu_milli), (8, 7500));
        assert_eq!(node.offer.huge_page_bytes, [(2 << 20, 0), (1 << 30, 4 << 30)].into());
        assert!(node.offer.takes_pods);
        let [taint] = &node.offer.taints[..] else { panic!("{:?}", node.offer.taints) };
        assert_eq!(taint.to_string(), "dedicated=vm:NoSchedule");
        let mut cordoned = object;
        cordoned["spec"]["unschedulable"] = true.into();
        let node = ClusterNode::of(serde_json::from_value(cordoned).expect("a node"));
        assert!(!node.offer.takes_pods);
    }
}
