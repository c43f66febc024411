//! What will become of every VM of a cluster, as the predictors see it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use ::cluster::{ClusterNode, ClusterObject, GuaranteedPod};
use placement::predict::kubelet::{
    MemoryManagerPolicy, NodeAllocations, ReservedCpus, SettingsSource, StaticPolicy,
};
use placement::predict::kubevirt::{Vmi, pod_cpus};
use placement::predict::node::{
    Arrival, NodeOffer, PodDemand, PodRequests, admit_in_order, short_nodes,
};
use placement::predict::{Admission, KubeletHost, Prediction, findings, predict};
use schemars::JsonSchema;
use serde::Serialize;
use topology::PcpuSet;

use super::boot::{self, BootForecast};
use crate::kubernetes::ClusterView;

/// Nodes that a VM which does not run is tried on, those with the most pCPUs free first.
const TRIED: usize = 8;

/// What will become of the VMs of a cluster.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClusterForecast {
    /// Version of this form: 1.
    version: u32,
    /// URL of the API server.
    pub(super) server: String,
    /// The version of KubeVirt that is predicted for.
    pub(super) kubevirt: String,
    pub(super) nodes: Vec<NodeForecast>,
    pub(super) vms: Vec<VmForecast>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
}

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NodeForecast {
    pub(super) name: String,
    /// Whether it takes new pods.
    pub(super) takes_pods: bool,
    pub(super) pcpus: u32,
    /// Its kubelet; absent: nobody tells.
    pub(super) kubelet: Option<KubeletForecast>,
    /// What its kernel is told at its boot, where a MachineConfig says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<BootForecast>,
    /// What is wrong with the node.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) findings: Vec<String>,
    /// Whether a host file tells where its pCPUs are.
    pub(super) is_topology_known: bool,
    /// pCPUs that pods have for themselves; absent: pods may not be read.
    pub(super) exclusive_pcpus: Option<u32>,
    /// pCPUs that a pod could get for itself.
    pub(super) free_pcpus: Option<u32>,
    /// VMs that run there.
    pub(super) vms: usize,
    /// Other pods that have pCPUs for themselves, in the order in which they came.
    pub(super) pods: Vec<PodForecast>,
}

/// A pod that has pCPUs for itself and runs no VM.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PodForecast {
    namespace: String,
    name: String,
    /// How many.
    exclusive_pcpus: u32,
    /// Which, where the node's topology is known: as if everything had come to its node in
    /// order and nothing had left. Absent, too, where it would not be admitted so.
    pcpus: Option<PcpuSet>,
}

/// A kubelet's settings that bear on pCPUs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KubeletForecast {
    /// `kubelet`, `MachineConfig NAME`, or `performance profile NAME`.
    source: String,
    /// Whether pods get pCPUs of their own.
    pub(super) is_static: bool,
    /// Options of the static policy that are on.
    pub(super) options: Vec<&'static str>,
    /// pCPUs that no pod gets for itself.
    reserved_pcpus: u32,
    /// Which, as far as that is known.
    pub(super) reserved: Option<PcpuSet>,
    pub(super) topology_manager: &'static str,
    /// Whether the memory manager binds pods to memory nodes.
    pub(super) is_memory_static: bool,
    /// Whether that is predicted: the topology says how much memory nodes have, and the
    /// kubelet what it keeps.
    pub(super) is_memory_predicted: bool,
}

impl KubeletForecast {
    /// Which pCPUs it keeps, or how many.
    pub(super) fn reserved_text(&self) -> String {
        match &self.reserved {
            Some(set) if set.is_empty() => "none".to_owned(),
            Some(set) => set.to_string(),
            None => format!("any {}", self.reserved_pcpus),
        }
    }
}

/// How far a VM gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StartForecast {
    /// It runs.
    Runs,
    /// It does not run, and would start.
    CanStart,
    /// It does not run, and would not start.
    CanNotStart,
    /// Nothing can be said.
    Unknown,
}

/// A VM.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VmForecast {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) state: StartForecast,
    /// The node that it runs on, or would first be tried on.
    pub(super) node: Option<String>,
    /// pCPUs that its pod has or would have for itself; absent: it shares the node's.
    pub(super) exclusive_pcpus: Option<u32>,
    /// Nodes that have what it asks for when nothing runs there.
    pub(super) nodes_that_fit: usize,
    /// The pod's pCPUs, where the node's topology is known: of one that runs as if
    /// everything had come to its node in order and nothing had left.
    pub(super) pcpus: Option<PcpuSet>,
    /// The pCPU of each vCPU, likewise.
    pub(super) pins: Vec<u32>,
    /// What is wrong: why it does not start, what its pins mean for the guest.
    pub(super) findings: Vec<String>,
}

impl ClusterForecast {
    /// Whether nothing that would be started fails.
    pub(super) fn all_can_start(&self) -> bool {
        self.vms.iter().all(|vm| vm.state != StartForecast::CanNotStart)
    }
}

/// A node while VMs are laid on it.
struct NodeLoad<'a> {
    node: &'a ClusterNode,
    /// What the pods there leave of what it has.
    left: NodeOffer,
    machine: Option<&'a KubeletHost>,
    policy: Option<StaticPolicy<'a>>,
    /// Why there is no policy though the kubelet is static and the topology known.
    broken: Option<String>,
    /// Predicted to be given away.
    given: NodeAllocations,
    vms: usize,
    exclusive_pcpus: u32,
    pods: Vec<PodForecast>,
}

impl NodeLoad<'_> {
    fn is_static(&self) -> bool {
        self.node.kubelet.as_ref().is_some_and(|kubelet| kubelet.is_static)
    }

    /// pCPUs that no pod gets for itself.
    fn reserved_pcpus(&self) -> u32 {
        self.node.kubelet.as_ref().map_or(0, |kubelet| kubelet.reserved.count())
    }

    /// `None`: nobody gets a pCPU for itself there, or it is not known who has.
    fn free_pcpus(&self, pods_known: bool) -> Option<u32> {
        let own = self.is_static() && pods_known;
        let taken = self.reserved_pcpus().saturating_add(self.exclusive_pcpus);
        own.then(|| self.node.cpus.saturating_sub(taken))
    }
}

type Key<'a> = (&'a str, &'a str);

fn key(object: &ClusterObject) -> Key<'_> {
    (object.namespace.as_deref().unwrap_or_default(), &object.name)
}

/// Of a cluster.
pub(super) fn forecast(view: &ClusterView) -> ClusterForecast {
    let facts = &view.facts;
    let machines: BTreeMap<&str, KubeletHost> = facts
        .nodes
        .iter()
        .filter_map(|node| {
            let machine = KubeletHost::from_host(view.host(node)?).ok()?;
            Some((node.offer.name.as_str(), machine))
        })
        .collect();
    let mut nodes: Vec<NodeLoad> = facts
        .nodes
        .iter()
        .map(|node| {
            let machine = machines.get(node.offer.name.as_str());
            let kubelet = node.kubelet.as_ref().filter(|kubelet| kubelet.is_static);
            let policy = machine.and_then(|machine| Some(kubelet?.policy(machine)));
            let (policy, broken) = match policy {
                Some(Ok(policy)) => (Some(policy), None),
                Some(Err(error)) => (None, Some(error.to_string())),
                None => (None, None),
            };
            let given = NodeAllocations::default();
            let (vms, exclusive_pcpus, pods) = (0, 0, Vec::new());
            let asked = facts.requests.get(&node.offer.name);
            let left = node.offer.left_by(asked.unwrap_or(&PodRequests::default()));
            NodeLoad { node, left, machine, policy, broken, given, vms, exclusive_pcpus, pods }
        })
        .collect();
    let at: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, state)| (state.node.offer.name.as_str(), at)).collect();

    let running: Vec<&ClusterObject> = facts
        .instances
        .iter()
        .filter(|instance| !instance.is_over && node_of(instance).is_some())
        .collect();
    let mut vms = Vec::new();
    lay_running(view, &mut nodes, &at, &running, &mut vms);
    let seen: HashSet<Key> = running.iter().map(|object| key(object)).collect();
    // An instance that has no node yet is tried as its VM is, or by itself.
    let made: HashSet<Key> = facts.vms.iter().map(key).collect();
    let waiting = facts.instances.iter().filter(|object| !object.is_over);
    let waiting = waiting.filter(|object| !made.contains(&key(object)));
    for object in facts.vms.iter().chain(waiting).filter(|object| !seen.contains(&key(object))) {
        vms.push(try_to_start(view, &nodes, object));
    }
    vms.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    ClusterForecast {
        version: 1,
        server: facts.server.clone(),
        kubevirt: view.kubevirt.to_string(),
        nodes: nodes.into_iter().map(|state| node_forecast(state, facts.pods.is_some())).collect(),
        vms,
        unread: facts.unread.iter().map(ToString::to_string).collect(),
    }
}

/// The node that an instance runs on, or will once its pod is up there.
fn node_of(instance: &ClusterObject) -> Option<&str> {
    instance.node.as_deref().or(instance.bound_to.as_deref())
}

/// Lays what runs, or has a node to start on, on its node, in the order in which it came.
fn lay_running(
    view: &ClusterView,
    nodes: &mut [NodeLoad<'_>],
    at: &HashMap<&str, usize>,
    running: &[&ClusterObject],
    vms: &mut Vec<VmForecast>,
) {
    let vmis: HashMap<Key, Result<Vmi, String>> =
        running.iter().map(|object| (key(object), read(view, object))).collect();
    // The launchers' pods say when a VM came; one without says it itself.
    let pods = view.facts.pods.as_deref().unwrap_or_default();
    let started: HashMap<Key, &GuaranteedPod> = pods
        .iter()
        .filter_map(|pod| Some(((pod.namespace.as_str(), pod.instance.as_deref()?), pod)))
        .collect();
    struct FutureVm<'a> {
        time: &'a str,
        who: Result<&'a ClusterObject, &'a GuaranteedPod>,
    }
    let mut coming: Vec<Vec<FutureVm>> = nodes.iter().map(|_| Vec::new()).collect();
    for object in running {
        let node = node_of(object).unwrap_or_default();
        let time = started.get(&key(object)).map_or(&*object.created, |pod| &*pod.started);
        match at.get(node) {
            Some(at) => coming[*at].push(FutureVm { time, who: Ok(object) }),
            None => {
                let mut vm = blank(object, state_of(object, false));
                vm.node = Some(node.to_owned());
                vm.findings.push(format!("it is on {node}, which the cluster does not list"));
                vms.push(vm);
            }
        }
    }
    for pod in pods {
        let its_vm = pod.instance.as_deref().map(|name| (pod.namespace.as_str(), name));
        if !its_vm.is_some_and(|vm| vmis.contains_key(&vm))
            && let Some(at) = at.get(pod.node.as_str())
        {
            coming[*at].push(FutureVm { time: &pod.started, who: Err(pod) });
        }
    }
    for (state, mut coming) in nodes.iter_mut().zip(coming) {
        coming.sort_by_key(|one| one.time);
        let arrivals = coming.iter().filter_map(|one| match one.who {
            Ok(object) => vmis[&key(object)].as_ref().ok().map(Arrival::Vm),
            Err(pod) => Some(Arrival::Pod(&pod.containers)),
        });
        let mut admitted = match (state.machine, &state.policy) {
            (Some(machine), Some(policy)) => {
                admit_in_order(machine, policy, arrivals, view.kubevirt).into_iter()
            }
            _ => Vec::new().into_iter(),
        };
        for one in &coming {
            match one.who {
                Err(pod) => {
                    let exclusive_pcpus = pod.exclusive_pcpus();
                    state.exclusive_pcpus = state.exclusive_pcpus.saturating_add(exclusive_pcpus);
                    let prediction = admitted.next().flatten();
                    if let Some(prediction) = &prediction {
                        prediction.add_to(&mut state.given);
                    }
                    // Of one without pCPUs only the memory counts.
                    if exclusive_pcpus == 0 {
                        continue;
                    }
                    state.pods.push(PodForecast {
                        namespace: pod.namespace.clone(),
                        name: pod.name.clone(),
                        exclusive_pcpus,
                        pcpus: prediction
                            .and_then(|prediction| prediction.outcome.cpuset().cloned()),
                    });
                }
                Ok(object) => {
                    let runs = object.node.is_some();
                    state.vms += usize::from(runs);
                    let vmi = vmis[&key(object)].as_ref();
                    let mut vm = blank(object, state_of(object, vmi.is_ok()));
                    vm.node = Some(state.node.offer.name.clone());
                    vm.findings.extend(vmi.err().cloned());
                    if let Ok(vmi) = vmi {
                        vm.exclusive_pcpus = pod_cpus(view.kubevirt, vmi);
                        let demand = PodDemand::of(vmi, view.kubevirt);
                        vm.nodes_that_fit = fitting(view, &demand).count();
                        let cpus = vm.exclusive_pcpus.unwrap_or(0);
                        state.exclusive_pcpus = state.exclusive_pcpus.saturating_add(cpus);
                        if let Some(prediction) = admitted.next().flatten() {
                            prediction.add_to(&mut state.given);
                            say(&mut vm, state, vmi, &prediction, runs);
                            if !runs && !matches!(prediction.outcome, Admission::Pinned { .. }) {
                                vm.state = StartForecast::CanNotStart;
                            }
                        }
                    }
                    vms.push(vm);
                }
            }
        }
    }
}

/// A VM that does not run, on the nodes as they are.
fn try_to_start(view: &ClusterView, nodes: &[NodeLoad<'_>], object: &ClusterObject) -> VmForecast {
    let vmi = match read(view, object) {
        Ok(vmi) => vmi,
        Err(why) => {
            let mut vm = blank(object, StartForecast::Unknown);
            vm.findings.push(why);
            return vm;
        }
    };
    let mut vm = blank(object, StartForecast::CanStart);
    vm.exclusive_pcpus = pod_cpus(view.kubevirt, &vmi);
    let demand = PodDemand::of(&vmi, view.kubevirt);
    let fit: Vec<usize> = fitting(view, &demand).collect();
    vm.nodes_that_fit = fit.len();
    if fit.is_empty() {
        vm.state = StartForecast::CanNotStart;
        let offers = view.facts.nodes.iter().map(|node| &node.offer);
        let reasons = short_nodes(offers, &demand);
        let nearest = reasons.first().map(|nearest| format!("; the nearest: {nearest}"));
        let nearest = nearest.unwrap_or_default();
        vm.findings.push(format!("no node has what it asks for{nearest}"));
        return vm;
    }
    let with_room: Vec<usize> =
        fit.iter().copied().filter(|at| nodes[*at].left.fits(&demand)).collect();
    if with_room.is_empty() {
        vm.state = StartForecast::CanNotStart;
        let left = short_nodes(fit.iter().map(|at| &nodes[*at].left), &demand);
        let nearest = left.first().map(ToString::to_string).unwrap_or_default();
        vm.findings.push(format!(
            "no node that fits has that much left beside its pods; the nearest: {nearest}"
        ));
        return vm;
    }
    let Some(cpus) = vm.exclusive_pcpus else { return vm };
    let free = |at: &usize| nodes[*at].free_pcpus(view.facts.pods.is_some());
    let mut roomy: Vec<usize> =
        with_room.iter().copied().filter(|at| free(at).is_none_or(|free| free >= cpus)).collect();
    if roomy.is_empty() {
        vm.state = StartForecast::CanNotStart;
        let most = with_room.iter().filter_map(free).max().unwrap_or(0);
        vm.findings.push(format!(
            "{cpus} pCPUs of its own, and no node that fits has more than {most} left"
        ));
        return vm;
    }
    roomy.sort_by_key(|at| Reverse(free(at)));
    let mut refused = Vec::new();
    for at in roomy.iter().copied().take(TRIED) {
        let state = &nodes[at];
        let name = &state.node.offer.name;
        let (Some(machine), Some(policy)) = (state.machine, &state.policy) else {
            vm.node = Some(name.clone());
            vm.findings.extend(state.broken.as_ref().map(|why| format!("{name}: {why}")));
            return vm;
        };
        let Some(prediction) = predict(machine, policy, &state.given, &vmi, view.kubevirt) else {
            return vm;
        };
        match &prediction.outcome {
            Admission::Pinned { .. } => {
                vm.node = Some(name.clone());
                say(&mut vm, state, &vmi, &prediction, false);
                return vm;
            }
            Admission::Rejected(why) => refused.push(format!("{name}: {why}")),
            Admission::NotPinned { error, .. } => refused.push(format!("{name}: {error}")),
        }
    }
    // One that was not tried may still take it.
    vm.state =
        if roomy.len() > TRIED { StartForecast::Unknown } else { StartForecast::CanNotStart };
    vm.findings = refused;
    vm
}

/// What a prediction means for a VM on a node.
fn say(vm: &mut VmForecast, state: &NodeLoad<'_>, vmi: &Vmi, prediction: &Prediction, runs: bool) {
    let Some(machine) = state.machine else { return };
    match &prediction.outcome {
        Admission::Pinned { cpuset, pins } => {
            let found = findings(machine, vmi, cpuset, pins);
            vm.findings.extend(found.iter().map(ToString::to_string));
            vm.pins = pins.vcpus.clone();
            vm.pcpus = Some(cpuset.clone());
        }
        Admission::NotPinned { cpuset, error } => {
            vm.pcpus = Some(cpuset.clone());
            vm.findings.push(again(runs, &error.to_string()));
        }
        Admission::Rejected(why) => vm.findings.push(again(runs, &why.to_string())),
    }
}

/// How far an instance is that has a node; `is_known`: both it and its node can be read.
fn state_of(instance: &ClusterObject, is_known: bool) -> StartForecast {
    match instance.node {
        Some(_) => StartForecast::Runs,
        None if is_known => StartForecast::CanStart,
        None => StartForecast::Unknown,
    }
}

/// It runs, so it was admitted once, when other pods were there.
fn again(runs: bool, why: &str) -> String {
    if runs { format!("started anew on its node it would fail: {why}") } else { why.to_owned() }
}

/// The nodes that have what a pod asks for, by their place in the list.
fn fitting(view: &ClusterView, demand: &PodDemand) -> impl Iterator<Item = usize> {
    let nodes = view.facts.nodes.iter().enumerate();
    nodes.filter(|(_, node)| node.offer.fits(demand)).map(|(at, _)| at)
}

/// The instance that an object is or makes.
fn read(view: &ClusterView, object: &ClusterObject) -> Result<Vmi, String> {
    let instances = lint::read_instances(&object.path(), &object.text, &view.instancetypes)
        .map_err(|error| error.to_string())?;
    let value = instances.first().ok_or("it holds no VM")?;
    Vmi::from_value(value).map_err(|error| error.to_string())
}

fn blank(object: &ClusterObject, state: StartForecast) -> VmForecast {
    let (namespace, name) = key(object);
    VmForecast {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state,
        node: None,
        exclusive_pcpus: None,
        nodes_that_fit: 0,
        pcpus: None,
        pins: Vec::new(),
        findings: Vec::new(),
    }
}

fn node_forecast(state: NodeLoad<'_>, pods_known: bool) -> NodeForecast {
    let node = state.node;
    let reserved = node.kubelet.as_ref().and_then(|kubelet| match &kubelet.reserved {
        ReservedCpus::Set(set) => Some(set.clone()),
        ReservedCpus::Milli(_) => state.policy.as_ref().map(|policy| policy.reserved().clone()),
    });
    let kubelet = node.kubelet.as_ref().map(|kubelet| KubeletForecast {
        source: match &kubelet.source {
            SettingsSource::Kubelet => "kubelet".to_owned(),
            SettingsSource::MachineConfig(name) => format!("MachineConfig {name}"),
            SettingsSource::PerformanceProfile(name) => format!("performance profile {name}"),
        },
        is_static: kubelet.is_static,
        options: kubelet.options.names(),
        reserved_pcpus: state.reserved_pcpus(),
        reserved: reserved.clone(),
        topology_manager: kubelet.topology.name(),
        is_memory_static: kubelet.memory != MemoryManagerPolicy::None,
        is_memory_predicted: state.policy.as_ref().is_some_and(StaticPolicy::binds_memory),
    });
    NodeForecast {
        name: node.offer.name.clone(),
        takes_pods: node.offer.takes_pods,
        pcpus: node.cpus,
        kubelet,
        boot: BootForecast::of(node),
        findings: boot::findings(node, reserved.as_ref()),
        is_topology_known: state.machine.is_some(),
        exclusive_pcpus: pods_known.then_some(state.exclusive_pcpus),
        free_pcpus: state.free_pcpus(pods_known),
        vms: state.vms,
        pods: state.pods,
    }
}
