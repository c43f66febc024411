//! What pins mean for the guest, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use topology::PcpuSet;

use super::kubevirt::{PredictedPins, Vmi};
use super::machine::{KubeletHost, PcpuPosition};

/// What is wrong with a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// Threads of one guest core run on several host cores.
    GuestCoreSplit,
    /// Several whole guest cores run on the threads of one host core.
    HostCoreShared,
    /// vCPUs without a pin.
    Unpinned,
    /// Two vCPUs on one pCPU.
    PcpuTwice,
    /// vCPUs in several nodes, and the guest sees one.
    NodesHidden,
    /// Memory is split evenly over nodes that hold uneven numbers of vCPUs.
    MemoryUneven,
    /// The emulator thread runs beside a vCPU.
    EmulatorBesideVcpu,
    /// An IOThread shares a vCPU's pCPU.
    IothreadOnVcpu,
    /// An IOThread is pinned outside of the pod.
    IothreadOutside,
    /// A core of the guest is shared with strangers.
    StrangersOnCore,
}

/// One thing that is wrong, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictionFinding {
    /// What it is.
    pub kind: FindingKind,
    /// One line.
    pub text: String,
}

impl fmt::Display for PredictionFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Looks at the pins of a guest inside the pod's pCPUs; empty: guest siblings
/// lie on host siblings, nothing is shared or hidden.
pub fn findings(
    machine: &KubeletHost,
    vmi: &Vmi,
    cpuset: &PcpuSet,
    pins: &PredictedPins,
) -> Vec<PredictionFinding> {
    let look = PinView { machine, vmi, cpuset, pins };
    let mut found = Vec::new();
    look.guest_cores(&mut found);
    look.host_cores(&mut found);
    look.counts(&mut found);
    look.nodes(&mut found);
    look.helpers(&mut found);
    look.strangers(&mut found);
    found
}

struct PinView<'a> {
    machine: &'a KubeletHost,
    vmi: &'a Vmi,
    cpuset: &'a PcpuSet,
    pins: &'a PredictedPins,
}

fn add(found: &mut Vec<PredictionFinding>, kind: FindingKind, text: String) {
    found.push(PredictionFinding { kind, text });
}

fn list(numbers: impl IntoIterator<Item = u32>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

impl PinView<'_> {
    fn threads(&self) -> usize {
        usize::try_from(self.vmi.shape().threads).unwrap_or(usize::MAX).max(1)
    }

    fn seat(&self, pcpu: u32) -> Option<&PcpuPosition> {
        self.machine.seat(pcpu)
    }

    fn distinct(&self, pcpus: &[u32], of: fn(&PcpuPosition) -> u32) -> BTreeSet<u32> {
        pcpus.iter().filter_map(|pcpu| self.seat(*pcpu).map(of)).collect()
    }

    fn is_split(&self, guest_core: usize) -> bool {
        let pcpus = self.pins.vcpus.chunks(self.threads()).nth(guest_core).unwrap_or_default();
        self.distinct(pcpus, |seat| seat.core).len() > 1
    }

    fn guest_cores(&self, found: &mut Vec<PredictionFinding>) {
        let threads = self.threads();
        if threads == 1 {
            return;
        }
        for (core, pcpus) in self.pins.vcpus.chunks(threads).enumerate() {
            let host_cores = self.distinct(pcpus, |seat| seat.core);
            if host_cores.len() < 2 {
                continue;
            }
            let nodes = self.distinct(pcpus, |seat| seat.node);
            let mut text = format!(
                "guest core {core} = pCPUs {}: threads of {} host cores",
                list(pcpus.iter().copied()),
                match host_cores.len() {
                    2 => "two".into(),
                    3 => "three".into(),
                    count => count.to_string(),
                },
            );
            if nodes.len() > 1 {
                text += &format!(" in nodes {}", list(nodes));
            }
            if self.machine.threads_per_core() < 2 {
                text += " (the host has one thread per core: use threads: 1)";
            }
            add(found, FindingKind::GuestCoreSplit, text);
        }
    }

    fn host_cores(&self, found: &mut Vec<PredictionFinding>) {
        let threads = self.threads();
        let mut on_core: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
        for (vcpu, pcpu) in self.pins.vcpus.iter().enumerate() {
            if let Some(seat) = self.seat(*pcpu) {
                on_core.entry(seat.core).or_default().push((vcpu / threads, *pcpu));
            }
        }
        let mut shared: Vec<_> = on_core.into_values().collect();
        shared.sort();
        for members in shared {
            let guest_cores: BTreeSet<usize> = members.iter().map(|(core, _)| *core).collect();
            // Sharing follows from splitting: the split was said already.
            if guest_cores.len() < 2 || guest_cores.iter().any(|core| self.is_split(*core)) {
                continue;
            }
            let cores: Vec<String> = guest_cores.iter().map(ToString::to_string).collect();
            let text = format!(
                "guest cores {} = pCPUs {}: threads of one host core, the guest takes them for \
                 separate cores",
                cores.join(" and "),
                list(members.iter().map(|(_, pcpu)| *pcpu)),
            );
            add(found, FindingKind::HostCoreShared, text);
        }
    }

    fn counts(&self, found: &mut Vec<PredictionFinding>) {
        let vcpus = usize::try_from(self.vmi.shape().vcpus()).unwrap_or(usize::MAX);
        let pinned = self.pins.vcpus.len();
        if pinned < vcpus {
            let text =
                format!("vCPUs {pinned} to {} have no pin: they float over the pod", vcpus - 1);
            add(found, FindingKind::Unpinned, text);
        }
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        for (vcpu, pcpu) in self.pins.vcpus.iter().enumerate() {
            if let Some(first) = seen.insert(*pcpu, vcpu) {
                let text = format!("vCPUs {first} and {vcpu} are both pinned to pCPU {pcpu}");
                add(found, FindingKind::PcpuTwice, text);
            }
        }
    }

    fn nodes(&self, found: &mut Vec<PredictionFinding>) {
        let nodes = self.distinct(&self.pins.vcpus, |seat| seat.node);
        match &self.pins.numa {
            None if nodes.len() > 1 => {
                let text = format!(
                    "vCPUs lie in host nodes {}, the guest sees one node: part of its \
                     accesses are remote without it knowing (use numa.guestMappingPassthrough, or a \
                     smaller guest)",
                    list(nodes),
                );
                add(found, FindingKind::NodesHidden, text);
            }
            Some(numa) => {
                let sizes: BTreeSet<usize> =
                    numa.nodes.iter().map(|node| node.vcpus.len()).collect();
                if sizes.len() > 1 {
                    let text = format!(
                        "memory is split evenly over {} guest nodes that hold {} vCPUs",
                        numa.nodes.len(),
                        numa.nodes
                            .iter()
                            .map(|node| node.vcpus.len().to_string())
                            .collect::<Vec<_>>()
                            .join(" and "),
                    );
                    add(found, FindingKind::MemoryUneven, text);
                }
            }
            None => {}
        }
    }

    /// The vCPUs that run on a core.
    fn vcpus_on_core(&self, core: u32) -> Vec<u32> {
        let pins = (0u32..).zip(&self.pins.vcpus);
        pins.filter(|(_, pcpu)| self.seat(**pcpu).is_some_and(|seat| seat.core == core))
            .map(|(vcpu, _)| vcpu)
            .collect()
    }

    fn helpers(&self, found: &mut Vec<PredictionFinding>) {
        for pcpu in &self.pins.emulator {
            let vcpus = self.seat(*pcpu).map(|seat| self.vcpus_on_core(seat.core));
            if let Some(vcpus) = vcpus.filter(|vcpus| !vcpus.is_empty()) {
                let text = format!(
                    "the emulator thread (pCPU {pcpu}) shares a host core with vCPU {}",
                    list(vcpus),
                );
                add(found, FindingKind::EmulatorBesideVcpu, text);
            }
        }
        for (thread, pcpus) in &self.pins.iothreads {
            let outside: Vec<u32> =
                pcpus.iter().copied().filter(|pcpu| !self.cpuset.contains(*pcpu)).collect();
            if !outside.is_empty() {
                let text = format!(
                    "IOThread {thread} is pinned to pCPU {}, outside of the pod's {}: it cannot \
                     be set, or disturbs others",
                    list(outside),
                    self.cpuset,
                );
                add(found, FindingKind::IothreadOutside, text);
            }
            let vcpus: Vec<u32> = (0u32..)
                .zip(&self.pins.vcpus)
                .filter(|(_, pcpu)| pcpus.contains(pcpu))
                .map(|(vcpu, _)| vcpu)
                .collect();
            if !vcpus.is_empty() {
                let text = format!("IOThread {thread} runs on the pCPUs of vCPU {}", list(vcpus));
                add(found, FindingKind::IothreadOnVcpu, text);
            }
        }
    }

    /// Host cores of which the pod has only a part.
    fn strangers(&self, found: &mut Vec<PredictionFinding>) {
        let mut cores = BTreeSet::new();
        for pcpu in &self.pins.vcpus {
            let Some(seat) = self.seat(*pcpu) else { continue };
            let all = self.machine.seats().filter(|other| other.core == seat.core);
            let others: Vec<u32> =
                all.map(|other| other.pcpu).filter(|other| !self.cpuset.contains(*other)).collect();
            if !others.is_empty() && cores.insert(seat.core) {
                let text = format!(
                    "pCPU {pcpu} of the guest shares a host core with pCPU {}, which others may use \
                     (full-pcpus-only prevents it)",
                    list(others),
                );
                add(found, FindingKind::StrangersOnCore, text);
            }
        }
    }
}
