//! Several descriptions of one machine.

use std::collections::{BTreeMap, BTreeSet};

use super::{DescribedMachine, Facet};
use crate::{Host, Node, Pcpu, PcpuSet};

/// Error type for [`DescribedMachine::merge`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} describe different machines, or one at different times: {what}")]
pub struct MergeError {
    /// The name of one description.
    pub first: String,
    /// The name of the other one.
    pub second: String,
    /// What they do not agree on.
    pub what: String,
}

impl DescribedMachine {
    /// Completes this description by another one of the same machine. Where
    /// both tell something, this one counts.
    ///
    /// # Errors
    /// [`MergeError`] if the two cannot be of one machine: they list other
    /// pCPUs, or put them into other nodes or cores.
    pub fn merge(self, other: DescribedMachine) -> Result<DescribedMachine, MergeError> {
        if let Some(what) = contradiction(&self, &other) {
            return Err(MergeError { first: self.name, second: other.name, what });
        }
        let mut merged = self;
        merge_pcpus(&mut merged, &other);
        merge_nodes(&mut merged, &other);
        merge_caches(&mut merged, &other);
        merge_rest(&mut merged.host, &other.host);
        merged.known.extend(&other.known);
        let sizes = other.cache_sizes.into_iter();
        merged.cache_sizes = sizes.chain(merged.cache_sizes).collect();
        size_caches(&mut merged);
        merged.name = format!("{} with {}", merged.name, other.name);
        for format in other.formats {
            if !merged.formats.contains(&format) {
                merged.formats.push(format);
            }
        }
        crate::sysfs::number_threads(&mut merged.host);
        Ok(merged)
    }
}

fn contradiction(one: &DescribedMachine, other: &DescribedMachine) -> Option<String> {
    let (here, there) = (one.host.online(), other.host.online());
    if here != there {
        return Some(format!("pCPUs {here} are online in one, {there} in the other"));
    }
    let both_know = |facet| one.known.contains(&facet) && other.known.contains(&facet);
    let nodes = |host: &Host| -> BTreeSet<PcpuSet> {
        let sets = host.nodes.iter().map(|node| node.pcpus.clone());
        sets.filter(|pcpus| !pcpus.is_empty()).collect()
    };
    if both_know(Facet::NodePcpus) && nodes(&one.host) != nodes(&other.host) {
        return Some("their nodes hold other pCPUs".into());
    }
    if both_know(Facet::Cores) && cores(&one.host) != cores(&other.host) {
        return Some("other pCPUs are threads of one core".into());
    }
    None
}

fn cores(host: &Host) -> BTreeSet<PcpuSet> {
    let mut cores: BTreeMap<_, PcpuSet> = BTreeMap::new();
    for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.core.is_some()) {
        cores.entry((pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core)).or_default().insert(pcpu.id);
    }
    cores.into_values().collect()
}

/// Ids of one level come from one description alone: others number otherwise.
fn merge_pcpus(merged: &mut DescribedMachine, other: &DescribedMachine) {
    let lacks = |facet| !merged.known.contains(&facet) && other.known.contains(&facet);
    let (sockets, dies, clusters) =
        (lacks(Facet::Sockets), lacks(Facet::Dies), lacks(Facet::Clusters));
    let (cores, nodes) = (lacks(Facet::Cores), lacks(Facet::Nodes));
    let (kinds, frequency) = (lacks(Facet::Kinds), lacks(Facet::MaxFrequency));
    for pcpu in &mut merged.host.pcpus {
        let Some(there) = other.host.pcpu(pcpu.id) else {
            continue;
        };
        let mut take = |wanted: bool, field: fn(&mut Pcpu) -> &mut Option<u32>| {
            if wanted {
                *field(pcpu) = *field(&mut there.clone());
            }
        };
        take(sockets, |pcpu| &mut pcpu.socket);
        take(dies, |pcpu| &mut pcpu.die);
        take(clusters, |pcpu| &mut pcpu.cluster);
        take(cores, |pcpu| &mut pcpu.core);
        take(nodes, |pcpu| &mut pcpu.node);
        take(kinds, |pcpu| &mut pcpu.capacity);
        if kinds {
            pcpu.kind = there.kind;
        }
        if frequency {
            pcpu.max_khz = there.max_khz;
        }
    }
    let known = merged.host.select(|_| true);
    let more = other.host.pcpus.iter().filter(|pcpu| !known.contains(pcpu.id));
    merged.host.pcpus.extend(more.cloned());
    merged.host.pcpus.sort_by_key(|pcpu| pcpu.id);
}

fn merge_nodes(merged: &mut DescribedMachine, other: &DescribedMachine) {
    let nodes = std::mem::take(&mut merged.host.nodes).into_iter();
    let mut nodes: BTreeMap<u32, Node> = nodes.map(|node| (node.id, node)).collect();
    for there in &other.host.nodes {
        match nodes.get_mut(&there.id) {
            None => {
                nodes.insert(there.id, there.clone());
            }
            Some(node) => {
                node.memory_bytes = node.memory_bytes.or(there.memory_bytes);
                node.free_bytes = node.free_bytes.or(there.free_bytes);
                if node.distances.is_empty() {
                    node.distances.clone_from(&there.distances);
                }
                if !merged.known.contains(&Facet::HugePages) {
                    node.huge_pages.clone_from(&there.huge_pages);
                }
            }
        }
    }
    merged.host.nodes = nodes.into_values().collect();
}

fn merge_caches(merged: &mut DescribedMachine, other: &DescribedMachine) {
    let sizes: BTreeMap<_, Option<u64>> = other
        .host
        .caches
        .iter()
        .map(|cache| ((cache.level, cache.kind, &cache.pcpus), cache.size_bytes))
        .collect();
    for cache in &mut merged.host.caches {
        let there = sizes.get(&(cache.level, cache.kind, &cache.pcpus));
        cache.size_bytes = cache.size_bytes.or(there.copied().flatten());
    }
    let levels: BTreeSet<_> =
        merged.host.caches.iter().map(|cache| (cache.level, cache.kind)).collect();
    let more = other.host.caches.iter();
    let more = more.filter(|cache| !levels.contains(&(cache.level, cache.kind)));
    merged.host.caches.extend(more.cloned());
    merged.host.caches.sort_by_key(|cache| (cache.level, cache.kind, cache.pcpus.first()));
}

/// One description tells the sizes, another one who shares the caches.
fn size_caches(merged: &mut DescribedMachine) {
    for cache in &mut merged.host.caches {
        if cache.size_bytes.is_none() {
            cache.size_bytes = merged.cache_sizes.get(&(cache.level, cache.kind)).copied();
        }
    }
    // One of the two may have told the sizes of the last level alone.
    let caches = &merged.host.caches;
    if caches.iter().all(|cache| cache.size_bytes.is_some()) {
        merged.known.insert(Facet::CacheSizes);
    } else {
        merged.known.remove(&Facet::CacheSizes);
    }
}

fn merge_rest(host: &mut Host, other: &Host) {
    fn fill<T: Clone>(field: &mut Option<T>, other: &Option<T>) {
        if field.is_none() {
            field.clone_from(other);
        }
    }
    fn fill_list<T: Clone>(field: &mut Vec<T>, other: &[T]) {
        if field.is_empty() {
            *field = other.to_vec();
        }
    }
    fill(&mut host.hostname, &other.hostname);
    fill(&mut host.kernel, &other.kernel);
    fill(&mut host.arch, &other.arch);
    fill(&mut host.cpu_model, &other.cpu_model);
    fill(&mut host.memory_bytes, &other.memory_bytes);
    fill(&mut host.available_bytes, &other.available_bytes);
    fill(&mut host.isolated, &other.isolated);
    fill(&mut host.nohz_full, &other.nohz_full);
    fill(&mut host.allowed, &other.allowed);
    fill(&mut host.qemu, &other.qemu);
    fill(&mut host.kvm.device, &other.kvm.device);
    fill(&mut host.kvm.disable_exits, &other.kvm.disable_exits);
    fill_list(&mut host.kvm.modules, &other.kvm.modules);
    fill_list(&mut host.cmdline, &other.cmdline);
    fill_list(&mut host.huge_pages, &other.huge_pages);
    fill_list(&mut host.frequency, &other.frequency);
    fill_list(&mut host.vhost, &other.vhost);
    if host.virtualised.is_vm.is_none() {
        host.virtualised = other.virtualised.clone();
    }
    if host.settings == crate::KernelSettings::default() {
        host.settings = other.settings.clone();
    }
    if host.tunables.is_empty() {
        host.tunables = other.tunables.clone();
    }
    if host.cpuidle == crate::Cpuidle::default() {
        host.cpuidle = other.cpuidle.clone();
    }
    for warning in &other.warnings {
        if !host.warnings.contains(warning) {
            host.warnings.push(warning.clone());
        }
    }
}
