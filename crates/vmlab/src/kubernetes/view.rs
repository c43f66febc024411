//! A cluster as it was read, with what is known of its nodes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ::cluster::{ClusterFacts, ClusterNode};
use anyhow::Context as _;
use lint::{Cluster, Context, Kubelet, KubevirtVersion, ReleaseVersion};
use placement::predict::KubeletHost;
use placement::predict::kubelet::{KubeletSettings, ReservedCpus};
use placement::predict::node::NodeOffer;
use topology::{Host, PcpuSet};
use vmconfig::kubevirt::Catalogue;

use super::KubernetesArgs;
use crate::host_file::load_host;
use crate::progress::Spinner;
use crate::terminal;

/// A cluster.
pub(crate) struct ClusterView {
    pub(crate) facts: ClusterFacts,
    /// KubeVirt's version: as given, as its object says, else the newest that is known.
    pub(crate) kubevirt: KubevirtVersion,
    /// Feature gates and version, where KubeVirt's object may be read.
    gates: Option<Cluster>,
    pub(crate) instancetypes: Catalogue,
    hosts: BTreeMap<String, Host>,
    offers: Arc<[NodeOffer]>,
}

impl ClusterView {
    /// Reads the cluster that the arguments name; `None` without one.
    ///
    /// # Errors
    /// A cluster that can't be read, a folder of hosts that holds none of its nodes.
    pub(crate) fn read(
        args: &KubernetesArgs,
        kubevirt: Option<KubevirtVersion>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(target) = args.target() else { return Ok(None) };
        let facts = {
            let spinner = Spinner::start();
            ::cluster::read(&target, &mut |what| spinner.say(&format!("reading {what}")))?
        };
        let hosts = args.hosts.as_deref().map(|folder| hosts(folder, &facts.nodes)).transpose()?;
        Ok(Some(Self::new(facts, hosts.unwrap_or_default(), kubevirt)))
    }

    fn new(
        facts: ClusterFacts,
        hosts: BTreeMap<String, Host>,
        kubevirt: Option<KubevirtVersion>,
    ) -> Self {
        let mut gates: Option<Cluster> = None;
        for object in &facts.kubevirts {
            if let Some(found) = Cluster::read(&object.text) {
                gates.get_or_insert_default().extend(found);
            }
        }
        let observed = gates.as_ref().and_then(|gates| gates.version);
        let mut instancetypes = Catalogue::default();
        for object in &facts.instancetypes {
            if let Some(types) = lint::instancetypes(&object.text) {
                instancetypes.extend(&types);
            }
        }
        let offers = facts.nodes.iter().map(|node| node.offer.clone()).collect();
        let kubevirt = kubevirt.or(observed).unwrap_or(lint::DEFAULT_KUBEVIRT);
        Self { facts, kubevirt, gates, instancetypes, hosts, offers }
    }

    /// A node by its name.
    pub(crate) fn node(&self, name: &str) -> Option<&ClusterNode> {
        let nodes = &self.facts.nodes;
        nodes.binary_search_by(|node| node.offer.name.as_str().cmp(name)).ok().map(|at| &nodes[at])
    }

    /// Where a node's pCPUs are, as far as somebody told.
    pub(crate) fn host(&self, node: &ClusterNode) -> Option<&Host> {
        self.hosts.get(&node.offer.name)
    }

    /// What rules may know of a VM on this node, or of one that runs nowhere.
    pub(crate) fn context(&self, node: Option<&ClusterNode>) -> Context {
        let mut context = Context::default();
        context.kubevirt = self.kubevirt;
        context.cluster = self.gates.clone();
        context.nodes = Arc::clone(&self.offers);
        context.instancetypes.extend(&self.instancetypes);
        context.kubernetes = match node {
            Some(node) => version(node).unwrap_or(context.kubernetes),
            // What the oldest kubelet does may happen to it.
            None => self.facts.nodes.iter().filter_map(version).min().unwrap_or(context.kubernetes),
        };
        let settings = match node {
            Some(node) => node.kubelet.as_ref(),
            None => self.common_settings(),
        };
        let host = node.and_then(|node| self.host(node));
        if let Some(settings) = settings.filter(|settings| settings.is_static) {
            context.kubelet = Kubelet {
                options: settings.options,
                topology: settings.topology,
                topology_options: settings.topology_options,
                memory: settings.memory.clone(),
                cfs_quota: settings.cfs_quota,
            };
            context.reserved = reserved(settings, host);
        }
        let boot = node.and_then(|node| node.boot.as_ref());
        if let Some(boot) = boot {
            context.isolated = boot.parameters.isolated.difference(&context.reserved);
        }
        match host {
            Some(host) => context.on(host.clone()),
            None => context,
        }
    }

    /// The settings of all kubelets with the static policy, if they are the same.
    fn common_settings(&self) -> Option<&KubeletSettings> {
        let all = self.facts.nodes.iter().filter_map(|node| node.kubelet.as_ref());
        let mut all = all.filter(|settings| settings.is_static);
        let first = all.next()?;
        let of = |one: &KubeletSettings| {
            (one.options, one.topology, one.topology_options, one.cfs_quota)
        };
        let same = |other: &KubeletSettings| of(other) == of(first) && other.memory == first.memory;
        all.all(same).then_some(first)
    }
}

/// pCPUs that the kubelet keeps, as far as it is known which.
fn reserved(settings: &KubeletSettings, host: Option<&Host>) -> PcpuSet {
    let chosen = || {
        let machine = KubeletHost::from_host(host?).ok()?;
        settings.policy(&machine).ok().map(|policy| policy.reserved().clone())
    };
    match &settings.reserved {
        ReservedCpus::Set(set) => set.clone(),
        ReservedCpus::Milli(_) => chosen().unwrap_or_default(),
    }
}

/// The kubelet's version without what distributions add (`v1.33.4+k3s1`).
fn version(node: &ClusterNode) -> Option<ReleaseVersion> {
    let text = node.kubelet_version.trim_start_matches('v');
    let end = text.find(|letter: char| letter != '.' && !letter.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// The host files of a folder, by node.
fn hosts(folder: &Path, nodes: &[ClusterNode]) -> anyhow::Result<BTreeMap<String, Host>> {
    let name = folder.display();
    let entries = std::fs::read_dir(folder).with_context(|| format!("Cannot read {name}"))?;
    let known: BTreeSet<&str> = nodes.iter().map(|node| node.offer.name.as_str()).collect();
    let mut hosts = BTreeMap::new();
    for entry in entries {
        let path = entry.with_context(|| format!("Cannot read {name}"))?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let node =
            if path.is_dir() { path.file_name().and_then(|name| name.to_str()) } else { None };
        let node = node.unwrap_or(stem);
        if known.contains(node) {
            hosts.insert(node.to_owned(), load_host(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            terminal::note(&format!("vmlab: {}: the cluster has no node {node}", path.display()));
        }
    }
    anyhow::ensure!(
        !hosts.is_empty(),
        "{name} holds no host of the cluster's nodes ({}): write `vmlab host --json` of each to \
         NODE.json",
        known.iter().take(5).copied().collect::<Vec<_>>().join(", ")
    );
    Ok(hosts)
}
