//! Predictions for programs: one JSON object in, one out.
//!
//! An entry has a `kind`: `kubevirtUnit` (one call of KubeVirt's pool or NUMA
//! mapping), `kubevirtHand` (a whole domain on a simple host), `kubeletUnit`
//! (one call of the kubelet's allocator) or `endToEnd` (host, kubelet and
//! VirtualMachineInstance, for four versions of KubeVirt). What an entry says
//! about results is never read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use topology::{ParsePcpuSetError, PcpuSet};
use vmconfig::kubevirt::Quantity;

use super::kubelet::{
    ContainerRequest, OptionsError, Order, PolicyOptions, StaticPolicy, TopologyOptions,
    TopologyPolicy, take_distributed, take_packed,
};
use super::kubevirt::{
    CpuPool, Crossing, GuestNuma, GuestShape, PredictedMemory, PredictedPins, ReadVmiError, Vmi,
    deal, mirror_nodes, pin, pod_cpus,
};
use super::machine::{
    CapabilitiesCell, CellPcpu, Counts, KubeletHost, MachineError, PcpuPosition, SiblingLists,
};
use super::version::{Ability, KubevirtVersion, NEWEST_KNOWN};

/// The versions that an `endToEnd` entry is predicted for.
const END_TO_END: [KubevirtVersion; 4] = [
    KubevirtVersion::new(0, 44, 0),
    KubevirtVersion::new(0, 45, 0),
    KubevirtVersion::new(1, 7, 0),
    KubevirtVersion::new(1, 9, 0),
];

/// Results name the CPUs of the pod from this version on.
const NAMES_POD_CPUS: KubevirtVersion = KubevirtVersion::new(1, 0, 0);

/// Guests of more vCPUs or IOThreads than this are mistypes.
const MAX_THREADS: u64 = 65_536;

/// Error type for [`predict_entry`].
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// No `kind`, or an unknown one.
    #[error("Unknown kind {0}: use kubevirtUnit, kubevirtHand, kubeletUnit or endToEnd")]
    Kind(Value),
    /// A field that is missing or of the wrong type.
    #[error("Cannot read the entry")]
    Field(#[source] serde_json::Error),
    /// A word that names no known thing.
    #[error("Unknown {field} {value:?}")]
    Word {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
    },
    /// A list of pCPUs that is none.
    #[error("Bad list of pCPUs")]
    Pcpus(#[from] ParsePcpuSetError),
    /// A host that is none.
    #[error("Bad host")]
    Machine(#[from] MachineError),
    /// Options that the kubelet does not start with.
    #[error("Bad kubelet options")]
    Options(#[from] OptionsError),
    /// A VirtualMachineInstance that is none.
    #[error("Bad spec")]
    Vmi(#[from] ReadVmiError),
    /// Host and guest without dedicated pCPUs.
    #[error("The guest has no dedicatedCpuPlacement: nothing is pinned")]
    NotDedicated,
    /// A number that no machine reaches.
    #[error("{what} {count} is more than {MAX_THREADS}")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many.
        count: u64,
    },
}

/// Predicts one entry: an object with the entry's result keys.
///
/// # Errors
/// [`EntryError`]: the entry can't be understood. What the kubelet or KubeVirt
/// would answer with an error is a result (`error`, `rejected`).
pub fn predict_entry(entry: &Value) -> Result<Value, EntryError> {
    match entry.get("kind").and_then(Value::as_str) {
        Some("kubevirtUnit") => kubevirt_unit(entry),
        Some("kubevirtHand") => kubevirt_hand(read(entry)?),
        Some("kubeletUnit") => kubelet_unit(entry),
        Some("endToEnd") => end_to_end(read(entry)?),
        _ => Err(EntryError::Kind(entry.get("kind").cloned().unwrap_or_default())),
    }
}

fn read<T: DeserializeOwned>(entry: &Value) -> Result<T, EntryError> {
    T::deserialize(entry).map_err(EntryError::Field)
}

fn texts(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(ToString::to_string).collect()
}

fn listed(numbers: &[u32]) -> String {
    texts(numbers).join(",")
}

/// `Ok` as `key`, `Err` as `error`.
fn answer<T: Into<Value>, E: ToString>(key: &str, result: Result<T, E>) -> Value {
    match result {
        Ok(result) => json!({ key: result.into() }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

// ---- kubevirtUnit ----

#[derive(Deserialize)]
struct EntryTopology {
    cells: Option<Vec<EntryCell>>,
}

#[derive(Deserialize)]
struct EntryCell {
    id: u32,
    cpus: Option<Vec<EntryCpu>>,
}

#[derive(Deserialize)]
struct EntryCpu {
    id: u32,
    siblings: Option<Vec<u32>>,
}

impl EntryTopology {
    fn cells(self) -> Vec<CapabilitiesCell> {
        let pcpu =
            |cpu: EntryCpu| CellPcpu { id: cpu.id, siblings: cpu.siblings.unwrap_or_default() };
        let cell = |cell: EntryCell| CapabilitiesCell {
            id: cell.id,
            pcpus: cell.cpus.unwrap_or_default().into_iter().map(pcpu).collect(),
        };
        self.cells.unwrap_or_default().into_iter().map(cell).collect()
    }
}

#[derive(Clone, Copy, Deserialize)]
struct EntryGuest {
    sockets: u32,
    cores: u32,
    threads: u32,
}

impl EntryGuest {
    fn shape(self) -> Result<GuestShape, EntryError> {
        let or_one = |count: u32| count.max(1);
        let shape = GuestShape {
            sockets: or_one(self.sockets),
            cores: or_one(self.cores),
            threads: or_one(self.threads),
        };
        check_count("vCPU count", u64::from(shape.vcpus()))?;
        Ok(shape)
    }
}

fn check_count(what: &'static str, count: u64) -> Result<(), EntryError> {
    if count > MAX_THREADS { Err(EntryError::TooMany { what, count }) } else { Ok(()) }
}

#[derive(Deserialize)]
struct PoolEntry {
    cpuset: Vec<u32>,
    guest: EntryGuest,
    pool: String,
    topology: Option<EntryTopology>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NumaEntry {
    topology: Option<EntryTopology>,
    vcpupin: Vec<EntryPin>,
    guest_memory: Option<Quantity>,
    #[serde(default)]
    hugepages_backing: bool,
    page_size: Option<Quantity>,
    #[serde(default)]
    realtime: bool,
}

#[derive(Deserialize)]
struct EntryPin {
    vcpu: u32,
    cpuset: String,
}

fn kubevirt_unit(entry: &Value) -> Result<Value, EntryError> {
    match entry.get("fn").and_then(Value::as_str) {
        Some("FitCores") => {
            let mut pool = read::<PoolEntry>(entry)?.pool()?;
            Ok(answer("vcpupin", pool.fit_cores().map(|pcpus| texts(&pcpus))))
        }
        Some("FitThread") => {
            let mut pool = read::<PoolEntry>(entry)?.pool()?;
            // Asked until nothing is left.
            let threads: Vec<u32> = std::iter::from_fn(|| pool.fit_thread()).collect();
            Ok(json!({ "threads": threads }))
        }
        Some("numaMapping") => numa_mapping(read(entry)?),
        other => Err(EntryError::Word { field: "fn", value: other.unwrap_or_default().into() }),
    }
}

impl PoolEntry {
    fn pool(self) -> Result<CpuPool, EntryError> {
        let crossing = match self.pool.as_str() {
            "relaxed" => Crossing::Relaxed,
            "strict" => Crossing::Strict,
            _ => return Err(EntryError::Word { field: "pool", value: self.pool }),
        };
        let cells = self.topology.map(EntryTopology::cells).unwrap_or_default();
        Ok(CpuPool::new(self.guest.shape()?, &cells, &self.cpuset, crossing))
    }
}

fn numa_mapping(entry: NumaEntry) -> Result<Value, EntryError> {
    let pins: Vec<(u32, u32)> = entry
        .vcpupin
        .into_iter()
        .map(|pin| match pin.cpuset.parse() {
            Ok(pcpu) => Ok((pin.vcpu, pcpu)),
            Err(_) => Err(EntryError::Word { field: "vcpupin.cpuset", value: pin.cpuset }),
        })
        .collect::<Result<_, _>>()?;
    let cells = entry.topology.map(EntryTopology::cells).unwrap_or_default();
    let memory = PredictedMemory {
        bytes: entry.guest_memory.and_then(Quantity::round_down).unwrap_or(0),
        page_bytes: entry
            .page_size
            .filter(|_| entry.hugepages_backing)
            .and_then(Quantity::round_down),
        realtime: entry.realtime,
    };
    Ok(match mirror_nodes(&pins, &cells, memory) {
        Err(error) => json!({ "error": error.to_string() }),
        Ok(None) => json!({}),
        Ok(Some(numa)) => numa_json(&numa),
    })
}

fn numa_json(numa: &GuestNuma) -> Value {
    let nodes = || (0u32..).zip(&numa.nodes);
    let cells: Vec<Value> = nodes()
        .map(|(id, node)| {
            json!({
                "id": id.to_string(),
                "cpus": listed(&node.vcpus),
                "memory": node.memory_bytes,
                "unit": "b",
            })
        })
        .collect();
    let memnodes: Vec<Value> = nodes()
        .map(|(id, node)| {
            json!({ "cellid": id, "mode": "strict", "nodeset": node.host_node.to_string() })
        })
        .collect();
    let hugepages: Vec<Value> = nodes()
        .map(|(id, _)| {
            json!({
                "size": numa.page_bytes.to_string(),
                "unit": "b",
                "nodeset": id.to_string(),
            })
        })
        .collect();
    let host_nodes: Vec<u32> = numa.nodes.iter().map(|node| node.host_node).collect();
    json!({
        "cells": cells,
        "memnodes": memnodes,
        "hugepages": hugepages,
        "numatuneMemory": { "mode": "strict", "nodeset": listed(&host_nodes) },
        "noSharePages": numa.no_share_pages,
    })
}

// ---- kubevirtHand ----

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandEntry {
    source: Option<String>,
    cpuset: Vec<u32>,
    vcpus: Option<u64>,
    iothreads: Option<u64>,
    topology: Option<HandTopology>,
    guest: Option<EntryGuest>,
    supplemental_pool_thread_count: Option<u32>,
    #[serde(default)]
    isolate_emulator_thread: bool,
    #[serde(default)]
    even_parity_annotation: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HandTopology {
    Cells(EntryTopology),
    Words(String),
}

fn kubevirt_hand(entry: HandEntry) -> Result<Value, EntryError> {
    if let (Some(count), Some(vcpus), None) = (entry.iothreads, entry.vcpus, entry.guest) {
        check_count("IOThread count", count)?;
        check_count("vCPU count", vcpus)?;
        let dealt = if entry.isolate_emulator_thread {
            Ok(entry.cpuset.last().map(|last| (1, vec![*last])).into_iter().collect())
        } else {
            deal(count, vcpus, &entry.cpuset)
        };
        return Ok(answer("iothreadpin", dealt.map(|pins| iothreads_json(&pins))));
    }
    let Some(guest) = entry.guest else {
        return Err(EntryError::Word { field: "rule", value: "without a guest".into() });
    };
    guest.shape()?;
    check_count("IOThread count", entry.supplemental_pool_thread_count.unwrap_or(0).into())?;
    let cells = match entry.topology {
        None => words_to_cells(None, &entry.cpuset)?,
        Some(HandTopology::Words(words)) => words_to_cells(Some(&words), &entry.cpuset)?,
        Some(HandTopology::Cells(topology)) => topology.cells(),
    };
    let mut spec = json!({ "domain": { "cpu": {
        "sockets": guest.sockets, "cores": guest.cores, "threads": guest.threads,
        "dedicatedCpuPlacement": true,
        "isolateEmulatorThread": entry.isolate_emulator_thread,
    }}});
    if let Some(count) = entry.supplemental_pool_thread_count {
        spec["domain"]["ioThreadsPolicy"] = json!("supplementalPool");
        spec["domain"]["ioThreads"] = json!({ "supplementalPoolThreadCount": count });
    }
    let mut instance = json!({ "spec": spec, "metadata": {} });
    if entry.even_parity_annotation {
        instance["metadata"]["annotations"] = json!({ super::kubevirt::EVEN_PARITY: "" });
    }
    let vmi = Vmi::from_value(&instance)?;
    let version = entry.source.as_deref().and_then(version_in).unwrap_or(NEWEST_KNOWN);
    Ok(match pin(version, &vmi, &cells, &entry.cpuset) {
        Err(error) => json!({ "error": error.to_string() }),
        Ok(pins) => {
            let emulator = Some(listed(&pins.emulator)).filter(|list| !list.is_empty());
            json!({
                "vcpupin": texts(&pins.vcpus),
                "iothreadpin": iothreads_json(&pins.iothreads),
                "emulatorpin": emulator,
            })
        }
    })
}

/// The first word that is a version.
fn version_in(text: &str) -> Option<KubevirtVersion> {
    text.split_whitespace().find_map(|word| word.parse().ok())
}

/// A host in words, "1 cell, cpus 5..12, no sibling lists"; without words, one
/// cell of the pod's own pCPUs.
fn words_to_cells(
    words: Option<&str>,
    cpuset: &[u32],
) -> Result<Vec<CapabilitiesCell>, EntryError> {
    let pcpus: Vec<u32> = match words {
        None => cpuset.to_vec(),
        Some(words) => {
            let unknown = || EntryError::Word { field: "topology", value: words.into() };
            let range = words
                .strip_prefix("1 cell, cpus ")
                .and_then(|rest| rest.strip_suffix(", no sibling lists"))
                .and_then(|range| range.split_once(".."))
                .ok_or_else(unknown)?;
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| unknown());
            let (first, last) = (number(range.0)?, number(range.1)?);
            check_count("Last pCPU", last.into())?;
            (first..=last).collect()
        }
    };
    let pcpus = pcpus.into_iter().map(|id| CellPcpu { id, siblings: Vec::new() }).collect();
    Ok(vec![CapabilitiesCell { id: 0, pcpus }])
}

fn iothreads_json(pins: &BTreeMap<u32, Vec<u32>>) -> Map<String, Value> {
    pins.iter().map(|(thread, pcpus)| (thread.to_string(), listed(pcpus).into())).collect()
}

// ---- kubeletUnit ----

type Places = Vec<[u32; 5]>;

fn seats(places: &Places) -> impl Iterator<Item = PcpuPosition> + '_ {
    places.iter().map(|&[pcpu, core, socket, node, uncore]| PcpuPosition {
        pcpu,
        core,
        socket,
        node,
        uncore,
    })
}

#[derive(Deserialize)]
struct KubeletTopology {
    #[serde(rename = "cpus[id,core,socket,numa,uncore]")]
    places: Places,
    #[serde(rename = "numCPUs")]
    pcpus: Option<u32>,
    #[serde(rename = "numCores")]
    cores: Option<u32>,
    #[serde(rename = "numSockets")]
    sockets: Option<u32>,
    #[serde(rename = "numNUMANodes")]
    nodes: Option<u32>,
    #[serde(rename = "numUncoreCache")]
    uncores: Option<u32>,
}

impl KubeletTopology {
    fn machine(&self) -> Result<KubeletHost, EntryError> {
        let machine = KubeletHost::new(seats(&self.places))?;
        let counted = machine.counts();
        Ok(machine.with_counts(Counts {
            pcpus: self.pcpus.unwrap_or(counted.pcpus),
            cores: self.cores.unwrap_or(counted.cores),
            sockets: self.sockets.unwrap_or(counted.sockets),
            nodes: self.nodes.unwrap_or(counted.nodes),
            uncores: self.uncores.unwrap_or(counted.uncores),
        }))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TakeEntry {
    topology: KubeletTopology,
    available: PcpuSet,
    #[serde(rename = "numCPUs")]
    count: u32,
    cpu_group_size: Option<u32>,
    sort: Option<String>,
    #[serde(default)]
    prefer_uncore: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocateEntry {
    topology: KubeletTopology,
    default_before: PcpuSet,
    #[serde(default)]
    reserved: PcpuSet,
    #[serde(default)]
    reusable: PcpuSet,
    #[serde(rename = "numCPUs")]
    count: u32,
    numa_affinity: Option<BTreeSet<u32>>,
    options: Option<Map<String, Value>>,
}

fn kubelet_unit(entry: &Value) -> Result<Value, EntryError> {
    match entry.get("fn").and_then(Value::as_str) {
        Some(name @ ("takeByTopologyNUMAPacked" | "takeByTopologyNUMADistributed")) => {
            let packed = name == "takeByTopologyNUMAPacked";
            let entry: TakeEntry = read(entry)?;
            let machine = entry.topology.machine()?;
            let order = match entry.sort.as_deref() {
                None | Some("packed") => Order::Packed,
                Some("spread") => Order::Spread,
                Some(other) => {
                    return Err(EntryError::Word { field: "sort", value: other.into() });
                }
            };
            let (available, count) = (&entry.available, entry.count);
            let taken = if packed {
                take_packed(&machine, available, count, order, entry.prefer_uncore)
            } else {
                let group = entry.cpu_group_size.unwrap_or(1);
                take_distributed(&machine, available, count, group, order)
            };
            Ok(answer("result", taken.map(|pcpus| pcpus.to_string())))
        }
        Some("staticPolicy.Allocate") => {
            let entry: AllocateEntry = read(entry)?;
            let machine = entry.topology.machine()?;
            let options = policy_options(entry.options.as_ref())?;
            let policy = StaticPolicy::unchecked(&machine, options, entry.reserved);
            let allocated = policy.allocate(
                &entry.default_before,
                &entry.reusable,
                entry.count,
                entry.numa_affinity.as_ref(),
            );
            Ok(answer("result", allocated.map(|pcpus| pcpus.to_string())))
        }
        other => Err(EntryError::Word { field: "fn", value: other.unwrap_or_default().into() }),
    }
}

/// Options as booleans or as texts.
fn policy_options(given: Option<&Map<String, Value>>) -> Result<PolicyOptions, EntryError> {
    let mut options = PolicyOptions::default();
    for (name, value) in given.into_iter().flatten() {
        match value {
            Value::String(text) => options.set(name, text)?,
            other => options.set(name, &other.to_string())?,
        }
    }
    Ok(options)
}

// ---- endToEnd ----

#[derive(Deserialize)]
struct EndToEndEntry {
    #[serde(rename = "hostCPUs[id,core,socket,numa,uncore]")]
    places: Places,
    kubelet: EntryKubelet,
    #[serde(rename = "siblingsLost", default)]
    siblings_lost: bool,
    spec: Value,
    metadata: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryKubelet {
    options: Option<Map<String, Value>>,
    #[serde(default)]
    reserved: PcpuSet,
    already_taken: Option<Vec<PcpuSet>>,
    #[serde(rename = "containerCPUs")]
    container_cpus: Option<u32>,
    #[serde(alias = "topologyManager", alias = "topologyPolicy")]
    topology_manager_policy: Option<String>,
}

fn end_to_end(entry: EndToEndEntry) -> Result<Value, EntryError> {
    let machine = KubeletHost::new(seats(&entry.places))?;
    let instance = json!({ "spec": entry.spec, "metadata": entry.metadata.unwrap_or(json!({})) });
    let vmi = Vmi::from_value(&instance)?;
    let kubelet = entry.kubelet;
    let topology_policy = match kubelet.topology_manager_policy {
        Some(name) => name.parse()?,
        None => TopologyPolicy::None,
    };
    let policy =
        StaticPolicy::new(&machine, policy_options(kubelet.options.as_ref())?, kubelet.reserved)?
            .with_topology_manager(topology_policy, TopologyOptions::default())?;
    let taken = kubelet
        .already_taken
        .unwrap_or_default()
        .iter()
        .fold(PcpuSet::new(), |all, taken| all.union(taken));
    let asked = kubelet.container_cpus.or_else(|| pod_cpus(NEWEST_KNOWN, &vmi));
    let asked = asked.ok_or(EntryError::NotDedicated)?;
    let cpuset = match policy
        .admit(&taken.into(), &ContainerRequest { pcpus: asked, ..Default::default() })
    {
        Ok(allocation) => allocation.pcpus,
        Err(rejection) => {
            return Ok(json!({
                "cpuset": null, "rejected": rejection.to_string(), "results": {},
            }));
        }
    };
    let pcpus: Vec<u32> = cpuset.iter().collect();
    let mut results = Map::new();
    for version in END_TO_END {
        let has_policy = vmi.spec.domain.io_threads_policy.as_deref() != Some("supplementalPool")
            || version.can(Ability::SupplementalPool);
        // An API server of that version refuses the policy.
        if !has_policy {
            continue;
        }
        let lost = entry.siblings_lost && version.can(Ability::LosesSiblingRanges);
        let lists = if lost { SiblingLists::RangesLost } else { SiblingLists::Whole };
        let mut result = match pin(version, &vmi, &machine.cells(lists), &pcpus) {
            Err(error) => Map::from_iter([("error".to_owned(), error.to_string().into())]),
            Ok(pins) => pins_json(&pins),
        };
        if version >= NAMES_POD_CPUS
            && let Some(cpus) = pod_cpus(version, &vmi)
        {
            result.insert("podCPU".into(), cpus.to_string().into());
        }
        results.insert(format!("v{version}"), result.into());
    }
    Ok(json!({ "cpuset": cpuset.to_string(), "rejected": null, "results": results }))
}

fn pins_json(pins: &PredictedPins) -> Map<String, Value> {
    let mut result = Map::from_iter([("vcpupin".to_owned(), texts(&pins.vcpus).into())]);
    if !pins.emulator.is_empty() {
        result.insert("emulatorpin".into(), listed(&pins.emulator).into());
    }
    if !pins.iothreads.is_empty() {
        result.insert("iothreadpin".into(), iothreads_json(&pins.iothreads).into());
    }
    if let Some(numa) = &pins.numa {
        let cells: Vec<Value> = (0u32..)
            .zip(&numa.nodes)
            .map(|(id, node)| {
                json!([id.to_string(), listed(&node.vcpus), node.memory_bytes.to_string(), "b"])
            })
            .collect();
        result.insert("numaCells".into(), cells.into());
    }
    result
}
