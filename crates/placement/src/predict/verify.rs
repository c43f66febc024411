//! The predictor held against a kubelet: what real ones gave, pod by pod, beside what is
//! predicted.
//!
//! An experiment is a machine, a kubelet's configuration, pods that come and go, and what
//! the kubelet made of each. [`RECORDED`] are those that `scripts/ask-kubelet` made.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Cache, CacheKind, Host, HugePagePool, Node, Pcpu, PcpuSet};

use super::kubelet::{
    ContainerRequest, KubeletConfiguration, KubeletSettings, MemoryAllocation, NodeAllocations,
    OptionsError, ReadSettingsError,
};
use super::machine::{KubeletHost, MachineError};
use super::memory::{MemoryAmounts, ParseMemoryKindError};

/// The [`ExperimentRecord`] of the kubelet of Kubernetes 1.36.3, as JSON.
pub const RECORDED: &str = include_str!("../../testdata/kubelet-1.36.3/experiments.json");

/// More pCPUs than any machine has; guards against a mistyped file.
const MAX_PCPUS: u32 = 65_536;

/// Experiments with one kubelet, as a file holds them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentRecord {
    /// Version of this form: [`ExperimentRecord::VERSION`].
    pub version: u32,
    /// Kubernetes' version, of which the kubelet is: `1.36.3`.
    pub kubernetes: String,
    /// What was done, and what came of it.
    pub experiments: Vec<Experiment>,
}

impl ExperimentRecord {
    /// The form that is read and written here.
    pub const VERSION: u32 = 1;

    /// Reads a record.
    ///
    /// # Errors
    /// [`VerifyError::Record`] and [`VerifyError::Version`].
    pub fn from_json(text: &str) -> Result<Self, VerifyError> {
        // Before anything else of it: a later form may have other keys.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text).map_err(VerifyError::Record)?;
        if version != Self::VERSION {
            return Err(VerifyError::Version(version));
        }
        serde_json::from_str(text).map_err(VerifyError::Record)
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// The machine that the kubelet saw.
    pub machine: MachineShape,
    /// What bears on pCPUs of its `KubeletConfiguration`, with that file's keys.
    pub kubelet: serde_json::Map<String, serde_json::Value>,
    /// What happened, in this order.
    pub steps: Vec<Step>,
    /// What became of each pod, in the order in which they came.
    #[serde(default)]
    pub answers: Vec<Answer>,
}

/// A machine whose parts are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineShape {
    /// Sockets.
    pub sockets: u32,
    /// Memory nodes of a socket.
    pub nodes_per_socket: u32,
    /// Cores of a node.
    pub cores_per_node: u32,
    /// Last-level caches of a node.
    pub caches_per_node: u32,
    /// Threads of a core.
    pub threads: u32,
    /// Which pCPUs are threads of one core.
    pub thread_numbering: ThreadNumbering,
    /// Memory of a node; 0: it plays no part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub node_memory_bytes: u64,
    /// Huge pages of 2 MiB that are in the pool of a node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub node_huge_pages: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How Linux numbers the threads of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadNumbering {
    /// Core i has pCPUs i, i + cores...
    Far,
    /// Core i has pCPUs 2i, 2i + 1.
    Near,
}

/// What happens on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A pod comes.
    Pod {
        /// Its name.
        name: String,
        /// pCPUs of its own that it asks for.
        pcpus: u32,
        /// Bytes of memory that it asks for, by Kubernetes' names: `memory`,
        /// `hugepages-2Mi`. Empty: it plays no part.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        memory: BTreeMap<String, u64>,
    },
    /// A pod goes.
    Gone {
        /// Its name.
        name: String,
    },
}

/// What became of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It got these pCPUs.
    Pcpus(PcpuSet),
    /// It got these pCPUs, and memory of these nodes.
    Bound {
        /// The pCPUs.
        pcpus: PcpuSet,
        /// The nodes.
        memory_nodes: PcpuSet,
    },
    /// It was rejected: the pod's reason and message.
    Rejected(String),
}

/// A pod's answer beside the prediction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifiedPod {
    /// Its name.
    pub name: String,
    /// pCPUs of its own that it asked for.
    pub pcpus: u32,
    /// What is predicted.
    pub predicted: Answer,
    /// What the kubelet gave.
    pub given: Answer,
}

impl Answer {
    /// Counts what a pod got among what is given.
    fn add_to(&self, given: &mut NodeAllocations, amounts: &MemoryAmounts) {
        let (Self::Pcpus(pcpus) | Self::Bound { pcpus, .. }) = self else { return };
        given.pcpus = given.pcpus.union(pcpus);
        if let Self::Bound { memory_nodes, .. } = self {
            let nodes = memory_nodes.iter().collect();
            given.memory.push(MemoryAllocation { nodes, amounts: amounts.clone() });
        }
    }
}

impl VerifiedPod {
    /// Whether the prediction is right, to the letter.
    pub fn is_right(&self) -> bool {
        self.predicted == self.given
    }
}

/// Error type for [`verify`].
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Not the text of a record.
    #[error("Not a record of experiments with a kubelet")]
    Record(#[source] serde_json::Error),
    /// A form that is not known.
    #[error("The record has version {0}, and this vmlab reads version {v}: use a newer vmlab", v = ExperimentRecord::VERSION)]
    Version(u32),
    /// The shape of no machine.
    #[error("A machine of {0} pCPUs: give sockets, nodes, cores and threads from 1 on")]
    Shape(u64),
    /// As many caches as do not divide the cores.
    #[error("{caches} caches don't divide {cores} cores of a node")]
    Caches {
        /// Caches of a node.
        caches: u32,
        /// Its cores.
        cores: u32,
    },
    /// Not the text of a configuration.
    #[error("Not a KubeletConfiguration")]
    Configuration(#[from] serde_json::Error),
    /// Memory of no kind.
    #[error(transparent)]
    Memory(#[from] ParseMemoryKindError),
    /// A setting that is not known.
    #[error(transparent)]
    Settings(#[from] ReadSettingsError),
    /// The kubelet would not start.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Pods without answers, or answers without pods.
    #[error("{pods} pods came and {answers} answers are there")]
    Answers {
        /// Pods.
        pods: usize,
        /// Answers.
        answers: usize,
    },
    /// A pod that goes and is not there, or comes twice.
    #[error("Step {0}: the pod {1:?} goes without being there, or comes twice")]
    Pod(usize, String),
}

impl MachineShape {
    /// All of it.
    ///
    /// # Errors
    /// [`VerifyError::Shape`] and [`VerifyError::Caches`].
    pub fn host(&self) -> Result<Host, VerifyError> {
        let Self {
            sockets,
            nodes_per_socket,
            cores_per_node,
            caches_per_node,
            threads,
            thread_numbering,
            node_memory_bytes,
            node_huge_pages,
        } = *self;
        let factors = [sockets, nodes_per_socket, cores_per_node, threads];
        let all = factors.iter().map(|one| u64::from(*one)).try_fold(1_u64, u64::checked_mul);
        let all = all.unwrap_or(u64::MAX);
        let pcpus = u32::try_from(all).ok().filter(|all| (1..=MAX_PCPUS).contains(all));
        let pcpus = pcpus.ok_or(VerifyError::Shape(all))?;
        if caches_per_node == 0 || !cores_per_node.is_multiple_of(caches_per_node) {
            let (caches, cores) = (caches_per_node, cores_per_node);
            return Err(VerifyError::Caches { caches, cores });
        }
        let cores = pcpus / threads;
        let per_cache = cores_per_node / caches_per_node;
        let mut host = Host::default();
        let mut caches: BTreeMap<u32, PcpuSet> = BTreeMap::new();
        let mut nodes: BTreeMap<u32, PcpuSet> = BTreeMap::new();
        for id in 0..pcpus {
            let (core, thread) = match thread_numbering {
                ThreadNumbering::Far => (id % cores, id / cores),
                ThreadNumbering::Near => (id / threads, id % threads),
            };
            let node = core / cores_per_node;
            nodes.entry(node).or_default().insert(id);
            caches.entry(core / per_cache).or_default().insert(id);
            host.pcpus.push(Pcpu {
                id,
                online: true,
                socket: Some(node / nodes_per_socket),
                core: Some(core % (cores_per_node * nodes_per_socket)),
                thread: Some(thread),
                node: Some(node),
                ..Pcpu::default()
            });
        }
        let count = sockets * nodes_per_socket;
        let distance = |from: u32, to: u32| match (from == to, from / nodes_per_socket) {
            (true, _) => 10,
            (_, socket) if socket == to / nodes_per_socket => 12,
            _ => 20,
        };
        host.nodes = nodes
            .into_iter()
            .map(|(id, pcpus)| {
                let distances = (0..count).map(|to| (to, distance(id, to))).collect();
                let memory_bytes = Some(node_memory_bytes).filter(|bytes| *bytes > 0);
                let (page_bytes, total, free) = (2 << 20, node_huge_pages, node_huge_pages);
                let pool = HugePagePool { page_bytes, total, free };
                let huge_pages = Vec::from_iter((total > 0).then_some(pool));
                Node { id, pcpus, distances, memory_bytes, huge_pages, ..Node::default() }
            })
            .collect();
        host.caches = caches
            .into_values()
            .map(|pcpus| Cache {
                level: 3,
                kind: CacheKind::Unified,
                size_bytes: Some(32 << 20),
                pcpus,
            })
            .collect();
        Ok(host)
    }
}

/// Predicts every pod of an experiment, each beside the kubelet's answer.
///
/// # Errors
/// [`VerifyError`]: the experiment is none.
pub fn verify(experiment: &Experiment) -> Result<Vec<VerifiedPod>, VerifyError> {
    verify_on(&experiment.machine.host()?, experiment)
}

/// The same on a machine that was read from somewhere.
///
/// # Errors
/// [`VerifyError`]: the experiment is none.
pub fn verify_on(host: &Host, experiment: &Experiment) -> Result<Vec<VerifiedPod>, VerifyError> {
    let machine = KubeletHost::from_host(host)?;
    let configuration = serde_json::Value::Object(experiment.kubelet.clone());
    let configuration: KubeletConfiguration = serde_json::from_value(configuration)?;
    let settings = KubeletSettings::from_configuration(configuration)?;
    let policy = settings.policy(&machine)?;
    let mut there: Vec<(&str, Answer, MemoryAmounts)> = Vec::new();
    let mut verified = Vec::new();
    let mut answers = experiment.answers.iter();
    for (at, step) in experiment.steps.iter().enumerate() {
        let place = |name: &String| there.iter().position(|(one, ..)| one == name);
        let (name, pcpus, memory) = match step {
            Step::Pod { name, pcpus, memory } => (name, *pcpus, memory),
            Step::Gone { name } => {
                let place = place(name).ok_or_else(|| VerifyError::Pod(at, name.clone()))?;
                there.remove(place);
                continue;
            }
        };
        if place(name).is_some() {
            return Err(VerifyError::Pod(at, name.clone()));
        }
        let Some(given) = answers.next() else { break };
        let kinds = memory.iter().map(|(kind, bytes)| Ok((kind.parse()?, *bytes)));
        let memory: MemoryAmounts = kinds.collect::<Result<_, ParseMemoryKindError>>()?;
        let mut others = NodeAllocations::default();
        for (_, answer, amounts) in &there {
            answer.add_to(&mut others, amounts);
        }
        // The kubelet's managers are asked before it counts CPUs itself (`OutOfcpu`).
        let request = ContainerRequest { pcpus, memory };
        let predicted = match policy.admit(&others, &request) {
            Ok(allocation) => match allocation.memory {
                None => Answer::Pcpus(allocation.pcpus),
                Some(memory) => {
                    let memory_nodes = memory.nodes.into_iter().collect();
                    Answer::Bound { pcpus: allocation.pcpus, memory_nodes }
                }
            },
            Err(rejection) => Answer::Rejected(rejection.to_string()),
        };
        // What comes later stands beside what is really there.
        there.push((name, given.clone(), request.memory));
        let (name, given) = (name.clone(), given.clone());
        verified.push(VerifiedPod { name, pcpus, predicted, given });
    }
    let pods = experiment.steps.iter().filter(|step| matches!(step, Step::Pod { .. })).count();
    if pods != experiment.answers.len() {
        return Err(VerifyError::Answers { pods, answers: experiment.answers.len() });
    }
    Ok(verified)
}
