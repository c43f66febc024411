//! The kubelet's settings: policy options by their own names.

use std::str::FromStr;

use crate::predict::machine::KubeletHost;

/// `cpuManagerPolicyOptions` of the static policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    /// `full-pcpus-only`: admits whole cores only.
    pub full_pcpus_only: bool,
    /// `distribute-cpus-across-numa`: as many from each node.
    pub distribute_across_numa: bool,
    /// `align-by-socket`: a hint's nodes are widened to their sockets.
    pub align_by_socket: bool,
    /// `distribute-cpus-across-cores`: single threads over many cores.
    pub distribute_across_cores: bool,
    /// `strict-cpu-reservation`: reserved pCPUs leave the shared pool.
    pub strict_reservation: bool,
    /// `prefer-align-cpus-by-uncorecache`: few shared caches.
    pub prefer_uncore: bool,
}

/// What the topology manager insists on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// No hints.
    #[default]
    None,
    /// Hints, never a rejection.
    BestEffort,
    /// Rejects what needs more nodes than it ideally would.
    Restricted,
    /// Rejects what does not fit one node.
    SingleNumaNode,
}

/// `topologyManagerPolicyOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyOptions {
    /// `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// `max-allowable-numa-nodes`.
    pub max_nodes: u32,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self { prefer_closest: false, max_nodes: 8 }
    }
}

/// Error type for reading and combining the kubelet's options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No such option of the static policy.
    #[error("Unknown cpuManagerPolicyOptions {0:?}: use one of {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// No such option of the topology manager.
    #[error("Unknown topologyManagerPolicyOptions {0:?}: use {CLOSEST} or {MAX_NODES}")]
    UnknownTopology(String),
    /// A value that is no number.
    #[error("Option {name} is not a number: {value:?}")]
    NotNumber {
        /// The option.
        name: String,
        /// What stands there.
        value: String,
    },
    /// A value that is not a boolean.
    #[error("Option {name} is not a boolean: {value:?} (write {name}=true)")]
    NotBoolean {
        /// The option.
        name: String,
        /// What stands there.
        value: String,
    },
    /// Two options that exclude each other.
    #[error("Options {0} and {1} exclude each other: the kubelet does not start with both")]
    Exclusive(&'static str, &'static str),
    /// `align-by-socket` with a policy that it can't work with.
    #[error("Option align-by-socket does not work with topology policy single-numa-node")]
    SocketsInOneNode,
    /// `align-by-socket` on a machine of few nodes.
    #[error(
        "Option align-by-socket needs at least as many nodes as sockets, not {nodes} for {sockets}"
    )]
    SocketsSpanNodes {
        /// The machine's nodes.
        nodes: u32,
        /// The machine's sockets.
        sockets: u32,
    },
    /// No such topology manager policy.
    #[error(
        "Unknown topology manager policy {0:?}: use none, best-effort, restricted or single-numa-node"
    )]
    UnknownPolicy(String),
    /// More nodes than the topology manager works with.
    #[error("The topology manager works with at most {max} nodes, the host has {nodes}")]
    TooManyNodes {
        /// The machine's nodes.
        nodes: usize,
        /// The limit.
        max: u32,
    },
    /// `prefer-closest-numa-nodes` without distances.
    #[error("Option prefer-closest-numa-nodes needs the distances between the host's nodes")]
    NoDistances,
    /// Reserved pCPUs that the machine does not have.
    #[error("Reserved pCPUs {0} are not online on the host")]
    ReservedMissing(String),
    /// Memory that is reserved on a node that the machine does not have.
    #[error("Memory is reserved on node {0}, which the host does not have")]
    ReservedNodeMissing(u32),
    /// A static memory manager without reserved memory.
    #[error("The static memory manager needs reservedMemory: the kubelet does not start without")]
    NoMemoryReserved,
    /// More reserved CPUs than the machine has.
    #[error("{count} CPUs are to be reserved, the host has {pcpus}")]
    ReservedTooMany {
        /// CPUs to reserve.
        count: u32,
        /// Online pCPUs.
        pcpus: usize,
    },
}

const FULL: &str = "full-pcpus-only";
const NUMA: &str = "distribute-cpus-across-numa";
const SOCKET: &str = "align-by-socket";
const CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const UNCORE: &str = "prefer-align-cpus-by-uncorecache";
const CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_NODES: &str = "max-allowable-numa-nodes";
const NAMES: [&str; 6] = [FULL, NUMA, SOCKET, CORES, STRICT, UNCORE];

/// As the kubelet reads an option's value (Go's `strconv.ParseBool`).
fn boolean(name: &str, value: &str) -> Result<bool, OptionsError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(OptionsError::NotBoolean { name: name.into(), value: value.into() }),
    }
}

impl TopologyOptions {
    /// Sets one option by its name in the kubelet's configuration.
    ///
    /// # Errors
    /// [`OptionsError`]: no such option, or another value than it takes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        match name {
            CLOSEST => self.prefer_closest = boolean(name, value)?,
            MAX_NODES => {
                let wrong = || OptionsError::NotNumber { name: name.into(), value: value.into() };
                self.max_nodes = value.parse().map_err(|_| wrong())?;
            }
            _ => return Err(OptionsError::UnknownTopology(name.into())),
        }
        Ok(())
    }
}

impl PolicyOptions {
    /// Sets one option by its name in the kubelet's configuration.
    ///
    /// # Errors
    /// [`OptionsError`]: no such option, or not a boolean.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        let place = match name {
            FULL => &mut self.full_pcpus_only,
            NUMA => &mut self.distribute_across_numa,
            SOCKET => &mut self.align_by_socket,
            CORES => &mut self.distribute_across_cores,
            STRICT => &mut self.strict_reservation,
            UNCORE => &mut self.prefer_uncore,
            _ => return Err(OptionsError::Unknown(name.into())),
        };
        *place = boolean(name, value)?;
        Ok(())
    }

    /// The options that are on, by their names in the kubelet's configuration.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            (self.full_pcpus_only, FULL),
            (self.distribute_across_numa, NUMA),
            (self.align_by_socket, SOCKET),
            (self.distribute_across_cores, CORES),
            (self.strict_reservation, STRICT),
            (self.prefer_uncore, UNCORE),
        ];
        all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }

    /// Checks that the kubelet would start with these options.
    ///
    /// # Errors
    /// [`OptionsError`] names the two sides that do not go together.
    pub fn check(&self, machine: &KubeletHost, policy: TopologyPolicy) -> Result<(), OptionsError> {
        let exclusive = [
            (self.full_pcpus_only, self.distribute_across_cores, FULL, CORES),
            (self.distribute_across_numa, self.distribute_across_cores, NUMA, CORES),
            (self.prefer_uncore, self.distribute_across_cores, UNCORE, CORES),
            (self.prefer_uncore, self.distribute_across_numa, UNCORE, NUMA),
        ];
        for (one, other, name, other_name) in exclusive {
            if one && other {
                return Err(OptionsError::Exclusive(name, other_name));
            }
        }
        if self.align_by_socket {
            if policy == TopologyPolicy::SingleNumaNode {
                return Err(OptionsError::SocketsInOneNode);
            }
            let counts = machine.counts();
            if counts.sockets > counts.nodes {
                let (nodes, sockets) = (counts.nodes, counts.sockets);
                return Err(OptionsError::SocketsSpanNodes { nodes, sockets });
            }
        }
        Ok(())
    }
}

/// `name` or `name=value`, several with commas.
impl FromStr for PolicyOptions {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut options = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, "true"));
            options.set(name.trim(), value.trim())?;
        }
        Ok(options)
    }
}

impl TopologyPolicy {
    const ALL: [Self; 4] = [Self::None, Self::BestEffort, Self::Restricted, Self::SingleNumaNode];

    /// Its name in the kubelet's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

impl FromStr for TopologyPolicy {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == text).ok_or_else(|| OptionsError::UnknownPolicy(text.into()))
    }
}
