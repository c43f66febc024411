//! The kubelet's static policies: which pCPUs a container gets for itself, from which
//! memory nodes, or why the pod is rejected.
//!
//! Only the choice for one container of a Guaranteed pod with a whole number of
//! CPUs is here; sharing between a pod's containers is not.
//!
//! Source: Kubernetes 1.36, `pkg/kubelet/cm/cpumanager/policy_static.go`, and
//! `allocateAlignedResources` in `pkg/kubelet/cm/topologymanager/scope.go`.

mod distribute;
mod hints;
mod memory_manager;
mod node_mask;
mod options;
mod settings;
mod take;

use std::collections::BTreeSet;

use topology::PcpuSet;

pub use distribute::take_distributed;
pub use memory_manager::{MemoryAllocation, MemoryError};
pub use options::{OptionsError, PolicyOptions, TopologyOptions, TopologyPolicy};
pub use settings::{
    KubeletConfiguration, KubeletSettings, MemoryManagerPolicy, PerformanceProfile,
    ReadSettingsError, ReservedCpus, SettingsSource,
};
pub use take::{Order, take_packed};

use crate::predict::machine::KubeletHost;
use crate::predict::memory::MemoryAmounts;
use hints::{Advisor, Hint};
use memory_manager::MemoryManager;
use node_mask::NodeMask;

/// Error type for [`take_packed`] and [`take_distributed`]. The first four
/// texts are the kubelet's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// Fewer are available than asked for.
    #[error(
        "not enough cpus available to satisfy request: requested={requested}, available={available}"
    )]
    NotEnough {
        /// Asked for.
        requested: u32,
        /// Available.
        available: usize,
    },
    /// No step found enough.
    #[error("failed to allocate cpus")]
    Failed,
    /// The combination of nodes held less than was counted.
    #[error("accounting error, not enough CPUs allocated, remaining: {remaining}")]
    TooFewTaken {
        /// Still needed.
        remaining: i64,
    },
    /// The combination of nodes gave more than was counted.
    #[error("accounting error, too many CPUs allocated, remaining: {remaining}")]
    TooManyTaken {
        /// Still needed (negative).
        remaining: i64,
    },
    /// The kubelet would never come back.
    #[error("The kubelet would loop forever here (distribute-cpus-across-numa)")]
    Endless,
    /// Too many nodes to try all combinations.
    #[error(
        "Too many combinations of nodes for distribute-cpus-across-numa: the kubelet would hang here"
    )]
    TooManyCombinations,
}

/// Error type for [`StaticPolicy::allocate`]. All texts are the kubelet's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// `full-pcpus-only` and a number that does not fill cores.
    #[error(
        "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    )]
    NotWholeCores {
        /// Asked for.
        requested: u32,
        /// Threads per core.
        per_core: u32,
    },
    /// `full-pcpus-only` and too few once the siblings of reserved pCPUs count
    /// as reserved.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
         requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    TooFewWholeCores {
        /// Left without reserved cores.
        available: usize,
        /// Asked for.
        requested: u32,
        /// Threads per core.
        per_core: u32,
    },
    /// No suitable pCPUs are left.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// No suitable memory is left.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Why the kubelet turns a pod down, as it stands in the pod's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// `full-pcpus-only` can't be kept.
    #[error("SMTAlignmentError: {0}")]
    SmtAlignment(AllocateError),
    /// The topology manager's policy can't be kept.
    #[error("TopologyAffinityError: Resources cannot be allocated with Topology locality")]
    TopologyAffinity,
    /// Anything else.
    #[error("UnexpectedAdmissionError: Allocate failed due to {0}, which is unexpected")]
    Unexpected(AllocateError),
}

/// What a container of a Guaranteed pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    /// pCPUs of its own; 0: it shares the node's pool.
    pub pcpus: u32,
    /// Memory, which counts where the memory manager is static.
    pub memory: MemoryAmounts,
}

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerAllocation {
    /// pCPUs of its own.
    pub pcpus: PcpuSet,
    /// Memory; `None`: from any node, as far as is known.
    pub memory: Option<MemoryAllocation>,
}

/// What the containers on a node have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAllocations {
    /// pCPUs of their own.
    pub pcpus: PcpuSet,
    /// Memory, in the order in which it was given.
    pub memory: Vec<MemoryAllocation>,
}

impl From<PcpuSet> for NodeAllocations {
    fn from(pcpus: PcpuSet) -> Self {
        Self { pcpus, memory: Vec::new() }
    }
}

impl NodeAllocations {
    /// One container more.
    pub fn add(&mut self, container: &ContainerAllocation) {
        self.pcpus = self.pcpus.union(&container.pcpus);
        self.memory.extend(container.memory.clone());
    }
}

/// A kubelet with `cpuManagerPolicy: static`.
#[derive(Clone, Debug)]
pub struct StaticPolicy<'a> {
    machine: &'a KubeletHost,
    options: PolicyOptions,
    reserved: PcpuSet,
    topology_policy: TopologyPolicy,
    topology_options: TopologyOptions,
    memory: Option<MemoryManager>,
}

impl<'a> StaticPolicy<'a> {
    /// A kubelet on a machine, with `reservedSystemCPUs`.
    ///
    /// # Errors
    /// [`OptionsError`]: the kubelet would not start.
    pub fn new(
        machine: &'a KubeletHost,
        options: PolicyOptions,
        reserved: PcpuSet,
    ) -> Result<Self, OptionsError> {
        options.check(machine, TopologyPolicy::None)?;
        let missing = reserved.difference(&machine.pcpus());
        if !missing.is_empty() {
            return Err(OptionsError::ReservedMissing(missing.to_string()));
        }
        Ok(Self::unchecked(machine, options, reserved))
    }

    /// A kubelet that is told how many CPUs to keep (`kubeReserved` and `systemReserved`
    /// together, rounded up) instead of which: it takes them as it would for a pod.
    ///
    /// # Errors
    /// [`OptionsError`]: the kubelet would not start.
    ///
    /// Source: `NewStaticPolicy` in `policy_static.go`.
    pub fn reserving(
        machine: &'a KubeletHost,
        options: PolicyOptions,
        count: u32,
    ) -> Result<Self, OptionsError> {
        let policy = Self::new(machine, options, PcpuSet::new())?;
        let all = machine.pcpus();
        let reserved = match count {
            0 => PcpuSet::new(),
            count => policy
                .take(&all, count)
                .map_err(|_| OptionsError::ReservedTooMany { count, pcpus: all.len() })?,
        };
        Ok(Self { reserved, ..policy })
    }

    /// The pCPUs that no pod gets for itself.
    pub fn reserved(&self) -> &PcpuSet {
        &self.reserved
    }

    /// The same without a check, also for options that no kubelet starts with.
    pub(super) fn unchecked(
        machine: &'a KubeletHost,
        options: PolicyOptions,
        reserved: PcpuSet,
    ) -> Self {
        Self {
            machine,
            options,
            reserved,
            topology_policy: TopologyPolicy::None,
            topology_options: TopologyOptions::default(),
            memory: None,
        }
    }

    /// The same kubelet with a topology manager.
    ///
    /// # Errors
    /// [`OptionsError`]: the kubelet would not start.
    pub fn with_topology_manager(
        self,
        policy: TopologyPolicy,
        topology_options: TopologyOptions,
    ) -> Result<Self, OptionsError> {
        self.options.check(self.machine, policy)?;
        let nodes = self.machine.nodes();
        // Beyond 16 nodes not even the kubelet's own search ends in time.
        let max = topology_options.max_nodes.min(16);
        let beyond = nodes.last().is_some_and(|node| *node >= u64::BITS);
        if policy != TopologyPolicy::None {
            if u32::try_from(nodes.len()).is_ok_and(|count| count > max) || beyond {
                return Err(OptionsError::TooManyNodes { nodes: nodes.len(), max });
            }
            let known = nodes
                .iter()
                .all(|from| nodes.iter().all(|to| self.machine.distance(*from, *to).is_some()));
            if topology_options.prefer_closest && !known {
                return Err(OptionsError::NoDistances);
            }
        }
        Ok(Self { topology_policy: policy, topology_options, ..self })
    }

    /// The same kubelet with a memory manager. Where nobody tells what a static one keeps from
    /// pods, or how much memory the machine's nodes have, memory comes from any.
    ///
    /// # Errors
    /// [`OptionsError`]: the kubelet would not start.
    pub fn with_memory_manager(self, policy: &MemoryManagerPolicy) -> Result<Self, OptionsError> {
        let memory = match policy {
            MemoryManagerPolicy::Static { reserved: Some(reserved) } => {
                MemoryManager::new(self.machine, reserved)?
            }
            MemoryManagerPolicy::Static { reserved: None } | MemoryManagerPolicy::None => None,
        };
        Ok(Self { memory, ..self })
    }

    /// Whether containers get their memory from few nodes, as far as is known.
    pub fn binds_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// The shared pool on a node where `taken` is given to other pods already.
    pub fn shared_pool(&self, taken: &PcpuSet) -> PcpuSet {
        let all = self.machine.pcpus().difference(taken);
        if self.options.strict_reservation { all.difference(&self.reserved) } else { all }
    }

    /// Admits a container on a node where others have `given`.
    ///
    /// # Errors
    /// [`Rejection`]: reason and message of the failed pod.
    pub fn admit(
        &self,
        given: &NodeAllocations,
        request: &ContainerRequest,
    ) -> Result<ContainerAllocation, Rejection> {
        let shared = self.shared_pool(&given.pcpus);
        let memory = self.memory.as_ref().filter(|_| !request.memory.is_empty());
        let hint = match self.topology_policy {
            TopologyPolicy::None => Hint { nodes: None, preferred: false },
            policy => {
                let (machine, options) = (self.machine, self.options);
                let topology_options = self.topology_options;
                let advisor = Advisor { machine, options, policy, topology_options };
                let available = shared.difference(&self.reserved);
                let mut wishes = vec![advisor.of_pcpus(&available, request.pcpus)];
                let of_memory = memory.map(|manager| manager.hints(&given.memory, &request.memory));
                wishes.extend(of_memory.into_iter().flatten());
                advisor.advise(wishes).ok_or(Rejection::TopologyAffinity)?
            }
        };
        let pcpus = self
            .allocate_near(&shared, &PcpuSet::new(), request.pcpus, hint.nodes)
            .map_err(|error| match error {
                AllocateError::Take(_) => Rejection::Unexpected(error),
                _ => Rejection::SmtAlignment(error),
            })?;
        let memory = memory
            .map(|manager| manager.allocate(&given.memory, &request.memory, hint))
            .transpose()
            .map_err(|error| Rejection::Unexpected(error.into()))?;
        Ok(ContainerAllocation { pcpus, memory })
    }

    /// Chooses `count` pCPUs from the shared pool (without the reserved ones)
    /// and from those that a finished init container leaves; from the given
    /// nodes first.
    ///
    /// # Errors
    /// [`AllocateError`] in the kubelet's words.
    pub fn allocate(
        &self,
        shared: &PcpuSet,
        reusable: &PcpuSet,
        count: u32,
        nodes: Option<&BTreeSet<u32>>,
    ) -> Result<PcpuSet, AllocateError> {
        let nodes = nodes.map(|nodes| NodeMask::of(nodes.iter().copied()));
        self.allocate_near(shared, reusable, count, nodes)
    }

    fn allocate_near(
        &self,
        shared: &PcpuSet,
        reusable: &PcpuSet,
        count: u32,
        nodes: Option<NodeMask>,
    ) -> Result<PcpuSet, AllocateError> {
        if count == 0 {
            return Ok(PcpuSet::new());
        }
        if self.options.full_pcpus_only {
            self.check_whole_cores(shared, count)?;
        }
        let available = shared.difference(&self.reserved).union(reusable);
        let near = match nodes {
            None => PcpuSet::new(),
            Some(nodes) => {
                let aligned = self.aligned(&available, nodes);
                let enough = u32::try_from(aligned.len()).map_or(count, |near| near.min(count));
                self.take(&aligned, enough)?
            }
        };
        let rest = count.saturating_sub(u32::try_from(near.len()).unwrap_or(u32::MAX));
        let far = self.take(&available.difference(&near), rest)?;
        Ok(near.union(&far))
    }

    fn check_whole_cores(&self, shared: &PcpuSet, requested: u32) -> Result<(), AllocateError> {
        let per_core = self.machine.threads_per_core();
        if requested.checked_rem(per_core).is_some_and(|rest| rest != 0) {
            return Err(AllocateError::NotWholeCores { requested, per_core });
        }
        let cores: BTreeSet<u32> = self
            .reserved
            .iter()
            .filter_map(|pcpu| self.machine.seat(pcpu).map(|seat| seat.core))
            .collect();
        let of_reserved_cores =
            |pcpu: &u32| self.machine.seat(*pcpu).is_some_and(|seat| cores.contains(&seat.core));
        let available = shared.iter().filter(|pcpu| !of_reserved_cores(pcpu)).count();
        if u32::try_from(available).is_ok_and(|available| requested > available) {
            return Err(AllocateError::TooFewWholeCores { available, requested, per_core });
        }
        Ok(())
    }

    /// The available pCPUs in the nodes, or in their sockets.
    fn aligned(&self, available: &PcpuSet, nodes: NodeMask) -> PcpuSet {
        let sockets: BTreeSet<u32> = self
            .machine
            .seats()
            .filter(|seat| nodes.contains(seat.node))
            .map(|seat| seat.socket)
            .collect();
        let near = |pcpu: &u32| {
            self.machine.seat(*pcpu).is_some_and(|seat| {
                if self.options.align_by_socket {
                    sockets.contains(&seat.socket)
                } else {
                    nodes.contains(seat.node)
                }
            })
        };
        available.iter().filter(near).collect()
    }

    fn take(&self, available: &PcpuSet, count: u32) -> Result<PcpuSet, TakeError> {
        let options = self.options;
        let order = if options.distribute_across_cores { Order::Spread } else { Order::Packed };
        if options.distribute_across_numa {
            let group = if options.full_pcpus_only { self.machine.threads_per_core() } else { 1 };
            return take_distributed(self.machine, available, count, group, order);
        }
        take_packed(self.machine, available, count, order, options.prefer_uncore)
    }
}
