//! Predictions as text.

use std::fmt::Write;

use placement::predict::kubelet::{
    KubeletSettings, MemoryManagerPolicy, StaticPolicy, TopologyPolicy,
};
use placement::predict::kubevirt::{PredictedPins, Vmi};
use placement::predict::{
    Ability, Admission, FindingKind, KubeletHost, KubevirtVersion, Prediction, PredictionFinding,
    SiblingLists, findings,
};
use report::counted;
use topology::PcpuSet;

/// Findings of one kind that are printed; the rest is counted.
const SHOWN: usize = 4;

/// The node that is predicted for.
pub(super) struct PredictedHost<'a> {
    pub(super) machine: &'a KubeletHost,
    pub(super) settings: &'a KubeletSettings,
    pub(super) policy: &'a StaticPolicy<'a>,
    pub(super) taken: &'a PcpuSet,
}

/// What there is to say about one guest.
pub(super) struct GuestText {
    pub(super) text: String,
    /// Whether all versions do what the guest believes.
    pub(super) is_fine: bool,
}

fn or_none(set: &PcpuSet) -> String {
    if set.is_empty() { "none".into() } else { set.to_string() }
}

/// The node, in three lines.
pub(super) fn node(node: &PredictedHost<'_>) -> String {
    let counts = node.machine.counts();
    let mut kubelet = match node.settings.options.names() {
        names if names.is_empty() => "no options".to_owned(),
        names => names.join(", "),
    };
    if node.settings.topology != TopologyPolicy::None {
        kubelet += &format!("; topology {}", node.settings.topology.name());
    }
    if node.settings.memory != MemoryManagerPolicy::None {
        kubelet += "; memory Static";
        if !node.policy.binds_memory() {
            kubelet += " (not predicted: the host does not say how much its nodes have)";
        }
    }
    format!(
        "Node     {}, {}, {}, {} (pCPUs {})\n\
         Kubelet  static policy, {kubelet}\n\
         pCPUs    reserved: {}; held by other pods: {}\n",
        counted(counts.sockets, "socket"),
        counted(counts.nodes, "memory node"),
        counted(counts.cores, "core"),
        counted(counts.pcpus, "thread"),
        node.machine.pcpus(),
        or_none(node.policy.reserved()),
        or_none(node.taken),
    )
}

/// One guest under all versions; versions that do the same share a table.
pub(super) fn guest(
    node: &PredictedHost<'_>,
    vmi: &Vmi,
    predictions: Option<&[Prediction]>,
) -> GuestText {
    let mut out = String::new();
    let is_fine =
        write_guest(&mut out, node, vmi, predictions).expect("writing to a String does not fail");
    GuestText { text: out, is_fine }
}

fn write_guest(
    out: &mut String,
    node: &PredictedHost<'_>,
    vmi: &Vmi,
    predictions: Option<&[Prediction]>,
) -> Result<bool, std::fmt::Error> {
    let shape = vmi.shape();
    writeln!(
        out,
        "\nGuest {}: {} x {} x {} = {}",
        vmi.metadata.name.as_deref().unwrap_or("(no name)"),
        counted(shape.sockets, "socket"),
        counted(shape.cores, "core"),
        counted(shape.threads, "thread"),
        counted(shape.vcpus(), "vCPU"),
    )?;
    let Some(predictions) = predictions else {
        let shared = node.policy.shared_pool(node.taken);
        writeln!(
            out,
            "  No dedicatedCpuPlacement: the guest floats over the node's shared pool (pCPUs \
             {shared}); nothing is pinned."
        )?;
        return Ok(true);
    };
    let mut is_fine = true;
    let mut shown: Vec<&Prediction> = Vec::new();
    for prediction in predictions {
        let is_same = |other: &&&Prediction| {
            other.outcome == prediction.outcome
                && other.pod_cpus == prediction.pod_cpus
                && other.memory == prediction.memory
        };
        if shown.iter().find(is_same).is_some() {
            continue;
        }
        shown.push(prediction);
        let same: Vec<&Prediction> = predictions.iter().filter(|other| is_same(&other)).collect();
        let versions: Vec<KubevirtVersion> = same.iter().map(|other| other.version).collect();
        is_fine &= write_outcome(out, node, vmi, prediction, &versions)?;
    }
    Ok(is_fine)
}

fn write_outcome(
    out: &mut String,
    node: &PredictedHost<'_>,
    vmi: &Vmi,
    prediction: &Prediction,
    versions: &[KubevirtVersion],
) -> Result<bool, std::fmt::Error> {
    let names: Vec<String> = versions.iter().map(ToString::to_string).collect();
    writeln!(out, "\nKubeVirt {}", names.join(", "))?;
    for version in versions.iter().filter(|version| version.is_unknown()) {
        writeln!(out, "  {version} is newer than this prediction: it is taken for 1.9")?;
    }
    let asks = counted(prediction.pod_cpus, "CPU");
    let (cpuset, pins) = match &prediction.outcome {
        Admission::Rejected(rejection) => {
            writeln!(out, "  The pod asks for {asks}: the kubelet rejects it")?;
            writeln!(out, "  {rejection}")?;
            return Ok(false);
        }
        Admission::NotPinned { cpuset, error } => {
            writeln!(out, "  The pod asks for {asks} and gets pCPUs {cpuset}")?;
            writeln!(out, "  virt-launcher does not start the guest: {error}")?;
            return Ok(false);
        }
        Admission::Pinned { cpuset, pins } => (cpuset, pins),
    };
    write!(out, "  The pod asks for {asks} and gets pCPUs {cpuset}")?;
    for memory in &prediction.memory {
        let nodes: PcpuSet = memory.nodes.iter().copied().collect();
        write!(out, ", memory of host node {nodes}")?;
    }
    writeln!(out)?;
    write_pins(out, node.machine, vmi, pins)?;
    let found = findings(node.machine, vmi, cpuset, pins);
    write_verdict(out, vmi, &found)?;
    write_findings(out, &found)?;
    let whole = node.machine.cells(SiblingLists::Whole);
    let loses = whole != node.machine.cells(SiblingLists::RangesLost);
    if loses && versions.iter().any(|version| version.can(Ability::LosesSiblingRanges)) {
        writeln!(
            out,
            "  - KubeVirt 1.4 and later can't read this host's sibling lists (neighbours, written \
             as ranges): it takes each thread for a core"
        )?;
    }
    Ok(found.is_empty())
}

fn write_pins(
    out: &mut String,
    machine: &KubeletHost,
    vmi: &Vmi,
    pins: &PredictedPins,
) -> std::fmt::Result {
    let threads = usize::try_from(vmi.shape().threads).unwrap_or(1).max(1);
    writeln!(out)?;
    writeln!(out, "    vCPU  guest core  pCPU  host core  socket  node")?;
    let mut row = |name: String, guest_core: String, pcpu: u32| {
        let seat = machine.seat(pcpu);
        let place = |of: fn(&placement::predict::PcpuPosition) -> u32| {
            seat.map_or_else(|| "?".into(), |seat| of(seat).to_string())
        };
        writeln!(
            out,
            "{name:>8}  {guest_core:>10}  {pcpu:>4}  {:>9}  {:>6}  {:>4}",
            place(|seat| seat.core),
            place(|seat| seat.socket),
            place(|seat| seat.node),
        )
    };
    for (vcpu, pcpu) in pins.vcpus.iter().enumerate() {
        row(vcpu.to_string(), (vcpu / threads).to_string(), *pcpu)?;
    }
    for pcpu in &pins.emulator {
        row("emulator".into(), "-".into(), *pcpu)?;
    }
    for (thread, pcpus) in &pins.iothreads {
        let set: PcpuSet = pcpus.iter().copied().collect();
        writeln!(out, "    IOThread {thread}: pCPUs {set}")?;
    }
    if let Some(numa) = &pins.numa {
        for (number, node) in numa.nodes.iter().enumerate() {
            let vcpus: PcpuSet = node.vcpus.iter().copied().collect();
            writeln!(
                out,
                "    guest node {number}: vCPUs {vcpus}, {} MiB of host node {}",
                node.memory_bytes >> 20,
                node.host_node,
            )?;
        }
    }
    writeln!(out)
}

/// One line on whether guest siblings lie on host siblings.
fn write_verdict(out: &mut String, vmi: &Vmi, found: &[PredictionFinding]) -> std::fmt::Result {
    let shape = vmi.shape();
    let count =
        |kind| u32::try_from(found.iter().filter(|it| it.kind == kind).count()).unwrap_or(0);
    let (split, shared) = (count(FindingKind::GuestCoreSplit), count(FindingKind::HostCoreShared));
    let cores = counted(shape.cores_in_all(), "guest core");
    if shape.threads > 1 && split == 0 {
        writeln!(out, "  Guest siblings lie on host siblings: {cores}, all whole.")
    } else if shape.threads > 1 {
        writeln!(
            out,
            "  Guest siblings do NOT lie on host siblings: {split} of {cores} split over host cores."
        )
    } else if shared > 0 {
        writeln!(
            out,
            "  The guest has no siblings, the host does: {} held by several guest cores.",
            counted(shared, "host core"),
        )
    } else {
        writeln!(out, "  No siblings in the guest, and each guest core has a host core of its own.")
    }
}

fn write_findings(out: &mut String, found: &[PredictionFinding]) -> std::fmt::Result {
    for group in found.chunk_by(|one, next| one.kind == next.kind) {
        for finding in group.iter().take(SHOWN) {
            writeln!(out, "  - {finding}")?;
        }
        if group.len() > SHOWN {
            writeln!(out, "  - and {} more of the same", group.len() - SHOWN)?;
        }
    }
    Ok(())
}
