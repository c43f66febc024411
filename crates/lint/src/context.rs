//! What surrounds the configurations: host, versions, kubelet options.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use placement::predict::kubelet::{
    MemoryManagerPolicy, PolicyOptions, TopologyOptions, TopologyPolicy,
};
use placement::predict::node::NodeOffer;
use placement::predict::{KubevirtVersion, NEWEST_KNOWN};
use serde_json::Value;
use topology::{Host, PcpuSet};
use vmconfig::PciAddress;
use vmconfig::kubevirt::Catalogue;
use vmconfig::offers::Offers;

use crate::busy::BusyPcpus;
use crate::cluster::Cluster;
use crate::version::ReleaseVersion;

/// The KubeVirt that is taken where nobody says one.
pub const DEFAULT_KUBEVIRT: KubevirtVersion = NEWEST_KNOWN;
/// The Kubernetes that is taken where nobody says one.
pub const DEFAULT_KUBERNETES: ReleaseVersion = ReleaseVersion(1, 36, 3);

/// The kubelet's settings that bear on pCPUs and memory nodes.
#[derive(Debug, Clone)]
pub struct Kubelet {
    /// Options of the static CPU manager policy.
    pub options: PolicyOptions,
    /// Policy of the topology manager.
    pub topology: TopologyPolicy,
    /// Its options.
    pub topology_options: TopologyOptions,
    /// Policy of the memory manager.
    pub memory: MemoryManagerPolicy,
    /// Whether a CPU limit is a quota (`cpuCFSQuota`).
    pub cfs_quota: bool,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            options: PolicyOptions::default(),
            topology: TopologyPolicy::default(),
            topology_options: TopologyOptions::default(),
            memory: MemoryManagerPolicy::None,
            cfs_quota: true,
        }
    }
}

/// What rules may know beside the configuration itself.
#[derive(Debug)]
pub struct Context {
    /// The host with lookups; `None` where nobody said one.
    pub(crate) machine: Option<HostLookup>,
    /// KubeVirt's version.
    pub kubevirt: KubevirtVersion,
    /// The cluster's KubeVirt; `None` where nobody said which feature gates it has on.
    pub cluster: Option<Cluster>,
    /// Kubernetes' version.
    pub kubernetes: ReleaseVersion,
    /// The kubelet's options.
    pub kubelet: Kubelet,
    /// pCPUs that VMs should stay away from: for the host's own work, the
    /// kubelet's reserved ones.
    pub reserved: PcpuSet,
    /// pCPUs of the VM's node that its kernel isolates and pods share.
    pub isolated: PcpuSet,
    /// pCPUs that the host itself is busy on.
    pub busy: BusyPcpus,
    /// What the host's QEMU and libvirt can do; `None` where nobody said.
    pub offers: Option<Offers>,
    /// Nodes that a VM may go to; empty: nobody said.
    pub nodes: Arc<[NodeOffer]>,
    /// KubeVirt's instance types and preferences, for VMs that name them.
    pub instancetypes: Catalogue,
    /// Nodes of the host's PCI devices by address.
    pub device_nodes: BTreeMap<PciAddress, u32>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            machine: None,
            kubevirt: DEFAULT_KUBEVIRT,
            cluster: None,
            kubernetes: DEFAULT_KUBERNETES,
            kubelet: Kubelet::default(),
            reserved: PcpuSet::new(),
            isolated: PcpuSet::new(),
            busy: BusyPcpus::default(),
            offers: None,
            device_nodes: BTreeMap::new(),
            instancetypes: Catalogue::default(),
            nodes: Arc::new([]),
        }
    }
}

impl Context {
    /// The same, for VMs on this host.
    #[must_use]
    pub fn on(mut self, host: Host) -> Self {
        self.machine = Some(HostLookup::new(host));
        self
    }
}

/// A host with the lookups that rules need.
#[derive(Debug)]
pub(crate) struct HostLookup {
    pub(crate) host: Host,
    pub(crate) online: PcpuSet,
    /// Threads of each core.
    pub(crate) cores: Vec<PcpuSet>,
    core_of: HashMap<u32, usize>,
    pub(crate) threads_per_core: usize,
    json: OnceLock<Value>,
}

impl HostLookup {
    fn new(host: Host) -> Self {
        let nesting = host.nesting();
        let cores: Vec<PcpuSet> =
            nesting.iter().flat_map(|group| group.cores()).map(|core| core.pcpus.clone()).collect();
        let core_of = cores
            .iter()
            .enumerate()
            .flat_map(|(index, core)| core.iter().map(move |pcpu| (pcpu, index)))
            .collect();
        let threads_per_core = cores.iter().map(PcpuSet::len).max().unwrap_or(1);
        let online = host.online();
        Self { online, host, cores, core_of, threads_per_core, json: OnceLock::new() }
    }

    /// The host as its own JSON says it, for conditions of a site's rules.
    pub(crate) fn json(&self) -> &Value {
        self.json.get_or_init(|| serde_json::to_value(&self.host).unwrap_or_default())
    }

    /// Index of the core that this pCPU is a thread of.
    pub(crate) fn core(&self, pcpu: u32) -> Option<usize> {
        self.core_of.get(&pcpu).copied()
    }

    /// Those of `pcpus` that the host has: a list may name many more.
    fn known(&self, pcpus: &PcpuSet) -> impl Iterator<Item = u32> {
        self.host.pcpus.iter().map(|pcpu| pcpu.id).filter(|id| pcpus.contains(*id))
    }

    /// The cores that these pCPUs touch.
    pub(crate) fn cores_of(&self, pcpus: &PcpuSet) -> PcpuSet {
        self.known(pcpus).filter_map(|pcpu| self.core(pcpu)).map(|core| core as u32).collect()
    }

    /// This pCPU and the other threads of its core.
    pub(crate) fn siblings(&self, pcpu: u32) -> PcpuSet {
        self.core(pcpu).map_or_else(PcpuSet::new, |core| self.cores[core].clone())
    }

    pub(crate) fn node(&self, pcpu: u32) -> Option<u32> {
        self.host.pcpu(pcpu)?.node
    }

    pub(crate) fn nodes_of(&self, pcpus: &PcpuSet) -> PcpuSet {
        self.known(pcpus).filter_map(|pcpu| self.node(pcpu)).collect()
    }

    /// Nodes that have pCPUs.
    pub(crate) fn nodes(&self) -> PcpuSet {
        self.nodes_of(&self.online)
    }

    /// The most pCPUs in a node.
    pub(crate) fn widest_node(&self) -> usize {
        let widest = self.host.nodes.iter().map(|node| node.pcpus.len()).max();
        widest.filter(|pcpus| *pcpus > 0).unwrap_or(self.online.len())
    }

    /// The first pCPUs of the last-level caches that these pCPUs touch.
    pub(crate) fn caches_of(&self, pcpus: &PcpuSet) -> PcpuSet {
        pcpus.iter().filter_map(|pcpu| self.host.last_level_cache(pcpu)?.pcpus.first()).collect()
    }

    /// The most pCPUs under one last-level cache.
    pub(crate) fn widest_cache(&self) -> Option<usize> {
        self.online
            .iter()
            .filter_map(|pcpu| self.host.last_level_cache(pcpu))
            .map(|cache| cache.pcpus.len())
            .max()
    }

    /// Whether the host has a pCPU for each of so many vCPUs.
    pub(crate) fn fits(&self, vcpus: u32) -> bool {
        vcpus as usize <= self.online.len()
    }

    pub(crate) fn is_amd(&self) -> bool {
        self.host.is_amd()
    }

    /// Whether a vhost module is there; `None` where the description does not
    /// tell of modules.
    pub(crate) fn has_vhost(&self, name: &str) -> Option<bool> {
        let told = self.host.kvm.device.is_some() || !self.host.vhost.is_empty();
        told.then(|| self.host.vhost.iter().any(|module| module.name == name))
    }

    pub(crate) fn kvm_parameter(&self, name: &str) -> Option<&str> {
        let mut modules = self.host.kvm.modules.iter();
        modules.find_map(|module| module.parameters.get(name)).map(String::as_str)
    }

    /// By which instructions KVM says that it can leave out exits.
    pub(crate) fn exits_to_disable(&self) -> Option<Vec<String>> {
        self.host.kvm.exits_to_disable()
    }

    /// The kernel's `major.minor`.
    pub(crate) fn kernel(&self) -> Option<ReleaseVersion> {
        let release = self.host.kernel.as_deref()?;
        let mut parts = release.split(['.', '-']).map_while(|part| part.parse().ok());
        Some(ReleaseVersion(parts.next()?, parts.next()?, 0))
    }
}

/// What an example is for.
#[derive(Clone, Copy)]
pub struct ExampleHost {
    /// In words, to stand behind "for"; empty: anything.
    pub said: &'static str,
    pub(crate) build: fn() -> Context,
}

impl ExampleHost {
    /// The context that the words describe.
    #[must_use]
    pub fn context(&self) -> Context {
        (self.build)()
    }
}

impl fmt::Debug for ExampleHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.said)
    }
}
