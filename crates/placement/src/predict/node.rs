//! Which nodes of a cluster a VM's pod can go to, and what becomes of several that come
//! to one node in turn.
//!
//! A node is what its object tells: labels and amounts, not where its pCPUs are. The
//! scheduler's filters that are here are those that a node decides by itself: labels, taints
//! and amounts (`NodeAffinity`, `TaintToleration`, `NodeResourcesFit`,
//! `NodeUnschedulable`). Those that look at other pods or at volumes are not.
//!
//! Source: Kubernetes 1.36, `pkg/scheduler/framework/plugins`; KubeVirt 0.44 to 1.9,
//! `pkg/virt-controller/services/{renderresources,nodeselectorrenderer}.go`.

use std::collections::BTreeMap;
use std::fmt;

use super::kubelet::{ContainerRequest, NodeAllocations, StaticPolicy};
use super::kubevirt::{Vmi, pod_cpus};
use super::machine::KubeletHost;
use super::scheduling::{NodeSelector, Taint, Toleration};
use super::version::{Ability, KubevirtVersion};
use super::{Admission, Prediction, predict};

/// The label that virt-handler's node has where VMs may run.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// vCPUs that share one CPU of the request where nobody asks for more
/// (`cpuAllocationRatio`).
const VCPUS_PER_CPU: u64 = 10;

/// What a node has to give, as its object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOffer {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it takes new pods (it is ready and not cordoned).
    pub takes_pods: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// CPUs for pods, in thousandths.
    pub cpu_milli: u64,
    /// Memory for pods.
    pub memory_bytes: u64,
    /// Huge pages for pods: bytes by size of a page.
    pub huge_page_bytes: BTreeMap<u64, u64>,
}

/// What pods of a node have asked of it, which the scheduler gives to no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// CPUs, in thousandths.
    pub cpu_milli: u64,
    /// Memory that is in no huge pages.
    pub memory_bytes: u64,
    /// Huge pages: bytes by size of a page.
    pub huge_page_bytes: BTreeMap<u64, u64>,
}

impl PodRequests {
    /// Adds those of another pod, or of another container of the same.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// The greater of both, each amount by itself.
    pub fn raise_to(&mut self, other: &Self) {
        self.merge(other, u64::max);
    }

    fn merge(&mut self, other: &Self, of: impl Fn(u64, u64) -> u64) {
        self.cpu_milli = of(self.cpu_milli, other.cpu_milli);
        self.memory_bytes = of(self.memory_bytes, other.memory_bytes);
        for (page, bytes) in &other.huge_page_bytes {
            let own = self.huge_page_bytes.entry(*page).or_default();
            *own = of(*own, *bytes);
        }
    }
}

/// What a VM's pod asks of its node, as far as the VM alone tells: the launcher's own
/// memory comes on top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDemand {
    /// Labels that the node must have.
    pub labels: BTreeMap<String, String>,
    /// What else the node must be; `None`: anything.
    pub affinity: Option<NodeSelector>,
    /// Taints that don't keep it away.
    pub tolerations: Vec<Toleration>,
    /// CPUs, in thousandths.
    pub cpu_milli: u64,
    /// Memory that is in no huge pages, at least.
    pub memory_bytes: u64,
    /// Size of a huge page, and bytes in such pages.
    pub huge_pages: Option<(u64, u64)>,
}

impl PodDemand {
    /// What virt-controller of this version asks for.
    pub fn of(vmi: &Vmi, version: KubevirtVersion) -> Self {
        let mut labels = vmi.spec.node_selector.clone().unwrap_or_default();
        labels.insert(SCHEDULABLE.to_owned(), "true".to_owned());
        if let Some(architecture) = &vmi.spec.architecture {
            labels.insert(ARCHITECTURE.to_owned(), architecture.clone());
        }
        let exclusive = pod_cpus(version, vmi);
        if exclusive.is_some() {
            labels.insert(cpu_manager_label(version).to_owned(), "true".to_owned());
        }
        let shared = || {
            let vcpus = u64::from(vmi.shape().vcpus());
            vmi.requested_cpu_milli().unwrap_or(vcpus * 1000 / VCPUS_PER_CPU)
        };
        let bytes = vmi.memory_bytes().unwrap_or(0);
        let huge_pages = vmi.page_bytes().map(|page| (page, bytes));
        let affinity = vmi.spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
        Self {
            labels,
            affinity: affinity.and_then(|affinity| affinity.required.clone()),
            tolerations: vmi.spec.tolerations.clone().unwrap_or_default(),
            cpu_milli: exclusive.map_or_else(shared, |count| u64::from(count) * 1000),
            memory_bytes: if huge_pages.is_some() { 0 } else { bytes },
            huge_pages,
        }
    }
}

/// The label of nodes whose kubelet has the static CPU manager policy; virt-handler sets
/// it.
pub fn cpu_manager_label(version: KubevirtVersion) -> &'static str {
    if version.can(Ability::LabelsWithDomain) { "kubevirt.io/cpumanager" } else { "cpumanager" }
}

/// Why a node can't take a pod, even when nothing else runs there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeShortfall {
    /// It is cordoned or not ready.
    TakesNone,
    /// A label that it must have.
    Label {
        /// The label.
        name: String,
        /// What it must say.
        wanted: String,
        /// What it says.
        found: Option<String>,
    },
    /// It is none of those that the pod's affinity requires.
    Affinity(NodeSelector),
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// Fewer CPUs.
    Cpus {
        /// Asked for, in thousandths.
        wanted_milli: u64,
        /// There are.
        found_milli: u64,
    },
    /// Less memory.
    Memory {
        /// Asked for.
        wanted_bytes: u64,
        /// There is.
        found_bytes: u64,
    },
    /// Fewer huge pages.
    HugePages {
        /// Size of a page.
        page_bytes: u64,
        /// Asked for.
        wanted_bytes: u64,
        /// There are.
        found_bytes: u64,
    },
}

impl fmt::Display for NodeShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = |milli: u64| milli as f64 / 1000.0;
        match self {
            Self::TakesNone => f.write_str("takes no pods (cordoned or not ready)"),
            Self::Label { name, wanted, found: None } => write!(f, "no label {name}={wanted}"),
            Self::Label { name, wanted, found: Some(found) } => {
                write!(f, "label {name} is {found:?}, not {wanted:?}")
            }
            Self::Affinity(wanted) => write!(f, "is not what the affinity requires: {wanted}"),
            Self::Taint(taint) => write!(f, "taint {taint}, not tolerated"),
            Self::Cpus { wanted_milli, found_milli } => {
                write!(f, "{} CPUs, not {}", cpus(*found_milli), cpus(*wanted_milli))
            }
            Self::Memory { wanted_bytes, found_bytes } => {
                write!(f, "{} of memory, not {}", size(*found_bytes), size(*wanted_bytes))
            }
            Self::HugePages { page_bytes, wanted_bytes, found_bytes } => write!(
                f,
                "{} in huge pages of {}, not {}",
                size(*found_bytes),
                size(*page_bytes),
                size(*wanted_bytes)
            ),
        }
    }
}

/// Bytes as people say them.
fn size(bytes: u64) -> crate::plan::Size {
    crate::plan::Size(bytes)
}

impl NodeOffer {
    /// Whether the node can take the pod, as far as is known.
    pub fn fits(&self, demand: &PodDemand) -> bool {
        let huge = |(page, wanted): (u64, u64)| {
            wanted <= self.huge_page_bytes.get(&page).copied().unwrap_or(0)
        };
        self.takes_pods
            && demand.cpu_milli <= self.cpu_milli
            && demand.memory_bytes <= self.memory_bytes
            && demand.huge_pages.is_none_or(huge)
            && demand.labels.iter().all(|(name, wanted)| self.labels.get(name) == Some(wanted))
            && self.is_selected_by(demand)
            && self.taints_against(demand).next().is_none()
    }

    /// The node as a pod finds it beside those that have asked for `requests`.
    #[must_use]
    pub fn left_by(&self, requests: &PodRequests) -> Self {
        let mut left = self.clone();
        left.cpu_milli = left.cpu_milli.saturating_sub(requests.cpu_milli);
        left.memory_bytes = left.memory_bytes.saturating_sub(requests.memory_bytes);
        for (page, bytes) in &mut left.huge_page_bytes {
            *bytes = bytes.saturating_sub(requests.huge_page_bytes.get(page).copied().unwrap_or(0));
        }
        left
    }

    fn is_selected_by(&self, demand: &PodDemand) -> bool {
        let affinity = demand.affinity.as_ref();
        affinity.is_none_or(|affinity| affinity.selects(&self.name, &self.labels))
    }

    /// Taints that keep the pod away.
    fn taints_against<'a>(&'a self, demand: &'a PodDemand) -> impl Iterator<Item = &'a Taint> {
        // What a node that takes none says by its taints too is said once.
        let is_said = |taint: &Taint| !self.takes_pods && taint.is_of_condition();
        let tolerates = |taint: &Taint| demand.tolerations.iter().any(|one| one.tolerates(taint));
        self.taints
            .iter()
            .filter(move |taint| taint.keeps_away() && !tolerates(taint) && !is_said(taint))
    }

    /// Why the node can't take the pod; empty: it [`NodeOffer::fits`].
    pub fn shortfalls(&self, demand: &PodDemand) -> Vec<NodeShortfall> {
        let mut all = Vec::new();
        if !self.takes_pods {
            all.push(NodeShortfall::TakesNone);
        }
        for (name, wanted) in &demand.labels {
            let found = self.labels.get(name);
            if found != Some(wanted) {
                let (name, wanted, found) = (name.clone(), wanted.clone(), found.cloned());
                all.push(NodeShortfall::Label { name, wanted, found });
            }
        }
        if let Some(affinity) = &demand.affinity
            && !self.is_selected_by(demand)
        {
            all.push(NodeShortfall::Affinity(affinity.clone()));
        }
        all.extend(self.taints_against(demand).cloned().map(NodeShortfall::Taint));
        if demand.cpu_milli > self.cpu_milli {
            let (wanted_milli, found_milli) = (demand.cpu_milli, self.cpu_milli);
            all.push(NodeShortfall::Cpus { wanted_milli, found_milli });
        }
        if demand.memory_bytes > self.memory_bytes {
            let (wanted_bytes, found_bytes) = (demand.memory_bytes, self.memory_bytes);
            all.push(NodeShortfall::Memory { wanted_bytes, found_bytes });
        }
        if let Some((page_bytes, wanted_bytes)) = demand.huge_pages {
            let found_bytes = self.huge_page_bytes.get(&page_bytes).copied().unwrap_or(0);
            if wanted_bytes > found_bytes {
                all.push(NodeShortfall::HugePages { page_bytes, wanted_bytes, found_bytes });
            }
        }
        all
    }
}

/// Nodes that can't take a pod for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortNodes<'a> {
    /// Their names; at least one.
    pub nodes: Vec<&'a str>,
    /// The reasons.
    pub shortfalls: Vec<NodeShortfall>,
}

/// Those of the nodes that can't take the pod, by their reasons. The fewest reasons come
/// first: those nodes are the nearest to fit.
pub fn short_nodes<'a>(
    nodes: impl IntoIterator<Item = &'a NodeOffer>,
    demand: &PodDemand,
) -> Vec<ShortNodes<'a>> {
    let mut by_reasons: BTreeMap<Vec<NodeShortfall>, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        by_reasons.entry(node.shortfalls(demand)).or_default().push(&node.name);
    }
    by_reasons.remove(&Vec::new());
    let mut all: Vec<ShortNodes> = by_reasons
        .into_iter()
        .map(|(shortfalls, nodes)| ShortNodes { nodes, shortfalls })
        .collect();
    all.sort_by_key(|short| short.shortfalls.len());
    all
}

impl fmt::Display for ShortNodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<String> = self.shortfalls.iter().map(ToString::to_string).collect();
        f.write_str(self.nodes.first().copied().unwrap_or_default())?;
        match self.nodes.len() {
            0 | 1 => {}
            2 => f.write_str(" and 1 node more")?,
            count => write!(f, " and {} nodes more", count - 1)?,
        }
        write!(f, ": {}", said.join("; "))
    }
}

/// What comes to a node in turn.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A VM.
    Vm(&'a Vmi),
    /// Another Guaranteed pod, by its containers.
    Pod(&'a [ContainerRequest]),
}

/// What becomes of everything that came to a node, in that order, each beside those
/// before it. `None`: it shares the node's pool. Nothing leaves in between, which is what
/// is not known of a node that has run for a while.
pub fn admit_in_order<'a>(
    machine: &KubeletHost,
    policy: &StaticPolicy<'_>,
    arrivals: impl IntoIterator<Item = Arrival<'a>>,
    version: KubevirtVersion,
) -> Vec<Option<Prediction>> {
    let mut given = NodeAllocations::default();
    let admit = |arrival| {
        let prediction = match arrival {
            Arrival::Vm(vmi) => predict(machine, policy, &given, vmi, version)?,
            Arrival::Pod(containers) => admit_pod(policy, &given, containers, version),
        };
        prediction.add_to(&mut given);
        Some(prediction)
    };
    arrivals.into_iter().map(admit).collect()
}

/// What becomes of a pod that runs no VM: its containers are admitted in turn, all or none.
fn admit_pod(
    policy: &StaticPolicy<'_>,
    given: &NodeAllocations,
    containers: &[ContainerRequest],
    version: KubevirtVersion,
) -> Prediction {
    let pod_cpus = containers.iter().fold(0, |sum: u32, one| sum.saturating_add(one.pcpus));
    let mut with_these = given.clone();
    for container in containers {
        match policy.admit(&with_these, container) {
            Ok(allocation) => with_these.add(&allocation),
            Err(rejection) => {
                let outcome = Admission::Rejected(rejection);
                return Prediction { version, pod_cpus, memory: Vec::new(), outcome };
            }
        }
    }
    let cpuset = with_these.pcpus.difference(&given.pcpus);
    let memory = with_these.memory.split_off(given.memory.len());
    let outcome = Admission::Pinned { cpuset, pins: Default::default() };
    Prediction { version, pod_cpus, memory, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::kubelet::PolicyOptions;
    use crate::predict::{NEWEST_KNOWN, PcpuPosition};
    use serde_json::json;

    fn vmi(spec: serde_json::Value) -> Vmi {
        Vmi::from_value(&json!({ "kind": "VirtualMachineInstance", "spec": spec }))
            .expect("a guest")
    }

    fn dedicated(cores: u32) -> Vmi {
        vmi(json!({ "domain": {
            "cpu": { "cores": cores, "threads": 2, "dedicatedCpuPlacement": true },
            "memory": { "guest": "2Gi", "hugepages": { "pageSize": "1Gi" } },
        }}))
    }

    fn offer() -> NodeOffer {
        let labels = [("kubevirt.io/schedulable", "true"), ("kubevirt.io/cpumanager", "true")];
        NodeOffer {
            name: "one".to_owned(),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            takes_pods: true,
            taints: Vec::new(),
            cpu_milli: 7000,
            memory_bytes: 8 << 30,
            huge_page_bytes: [(1 << 30, 2 << 30)].into(),
        }
    }

    /// One socket of four cores of two threads, siblings i and i+4.
    fn machine() -> KubeletHost {
        KubeletHost::new((0..8).map(|pcpu| PcpuPosition {
            pcpu,
            core: pcpu % 4,
            socket: 0,
            node: 0,
            uncore: 0,
        }))
        .expect("a machine")
    }

    #[test]
    fn a_node_that_has_all_takes_the_pod() {
        let demand = PodDemand::of(&dedicated(2), NEWEST_KNOWN);
        assert_eq!(offer().shortfalls(&demand), []);
        assert!(offer().fits(&demand));
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        let demand = PodDemand::of(&dedicated(4), NEWEST_KNOWN);
        let node = NodeOffer {
            labels: [("kubevirt.io/cpumanager".to_owned(), "false".to_owned())].into(),
            takes_pods: false,
            huge_page_bytes: BTreeMap::new(),
            ..offer()
        };
        assert!(!node.fits(&demand));
        let said: Vec<String> = node.shortfalls(&demand).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "takes no pods (cordoned or not ready)",
                "label kubevirt.io/cpumanager is \"false\", not \"true\"",
                "no label kubevirt.io/schedulable=true",
                "7 CPUs, not 8",
                "0 B in huge pages of 1 GiB, not 2 GiB",
            ]
        );
    }

    #[test]
    fn shared_vms_ask_for_a_tenth_of_their_vcpus() {
        let shared = vmi(json!({ "domain": {
            "cpu": { "cores": 4 }, "memory": { "guest": "9Gi" },
        }, "nodeSelector": { "zone": "a" }, "architecture": "arm64" }));
        let demand = PodDemand::of(&shared, NEWEST_KNOWN);
        assert_eq!(demand.cpu_milli, 400);
        assert!(!demand.labels.contains_key("kubevirt.io/cpumanager"));
        let said: Vec<String> =
            offer().shortfalls(&demand).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["no label kubernetes.io/arch=arm64", "no label zone=a", "8 GiB of memory, not 9 GiB"]
        );
    }

    #[test]
    fn taints_and_affinity_keep_pods_away() {
        let taint = |key: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: effect.to_owned(),
        };
        let control = taint("node-role.kubernetes.io/control-plane", "NoSchedule");
        let wish = taint("spare", "PreferNoSchedule");
        let node = NodeOffer { taints: vec![control, wish], ..offer() };
        let asks = |more: serde_json::Value| {
            let mut spec = json!({ "domain": { "memory": { "guest": "1Gi" } } });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let demand = PodDemand::of(&vmi(spec), NEWEST_KNOWN);
            let said: Vec<_> = node.shortfalls(&demand).iter().map(ToString::to_string).collect();
            assert_eq!(node.fits(&demand), said.is_empty());
            said
        };
        let refused = "taint node-role.kubernetes.io/control-plane:NoSchedule, not tolerated";
        assert_eq!(asks(json!({})), [refused]);
        let all = json!([{ "operator": "Exists" }]);
        assert_eq!(asks(json!({ "tolerations": all })), [""; 0]);
        let zone = |operator: &str| {
            json!({ "tolerations": all, "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "zone", "operator": operator, "values": ["a"] }] },
                ] } } } })
        };
        assert_eq!(asks(zone("In")), ["is not what the affinity requires: zone In (a)"]);
        assert_eq!(asks(zone("NotIn")), [""; 0]);
        // A cordon is a taint as well, and told once.
        let cordoned = NodeOffer {
            takes_pods: false,
            taints: vec![taint("node.kubernetes.io/unschedulable", "NoSchedule")],
            ..offer()
        };
        assert_eq!(cordoned.shortfalls(&PodDemand::default()), [NodeShortfall::TakesNone]);
    }

    #[test]
    fn nodes_that_miss_the_least_come_first() {
        let named = |name: &str, cpu_milli, takes_pods| NodeOffer {
            name: name.to_owned(),
            cpu_milli,
            takes_pods,
            ..offer()
        };
        let nodes = [
            named("a", 1000, false),
            named("b", 1000, true),
            named("c", 9000, true),
            named("d", 1000, true),
        ];
        let demand = PodDemand { cpu_milli: 2000, ..PodDemand::default() };
        let said: Vec<String> =
            short_nodes(&nodes, &demand).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "b and 1 node more: 1 CPUs, not 2",
                "a: takes no pods (cordoned or not ready); 1 CPUs, not 2",
            ]
        );
    }

    #[test]
    fn the_label_changed_its_name() {
        let label = |text: &str| cpu_manager_label(text.parse().expect("a version"));
        assert_eq!(label("1.7.9"), "cpumanager");
        assert_eq!(label("1.8.0"), "kubevirt.io/cpumanager");
    }

    #[test]
    fn later_ones_get_what_is_left() {
        let machine = machine();
        let policy =
            StaticPolicy::reserving(&machine, PolicyOptions::default(), 1).expect("starts");
        assert_eq!(policy.reserved().to_string(), "0");
        let vm = dedicated(1);
        let pods = |pcpus| [ContainerRequest { pcpus, ..Default::default() }];
        let one = pods(1);
        let all = [Arrival::Pod(&one), Arrival::Vm(&vm), Arrival::Vm(&vm), Arrival::Vm(&vm)];
        let admitted = admit_in_order(&machine, &policy, all, NEWEST_KNOWN);
        let cpusets: Vec<String> = admitted
            .iter()
            .flatten()
            .map(|prediction| match &prediction.outcome {
                Admission::Pinned { cpuset, .. } => cpuset.to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        // The single one goes to the core that the reserved one broke.
        assert_eq!(cpusets, ["4", "1,5", "2,6", "3,7"]);
        let many = pods(8);
        let beyond = admit_in_order(&machine, &policy, [Arrival::Pod(&many)], NEWEST_KNOWN);
        assert!(matches!(beyond[..], [Some(Prediction { outcome: Admission::Rejected(_), .. })]));
        assert!(StaticPolicy::reserving(&machine, PolicyOptions::default(), 9).is_err());
    }
}
