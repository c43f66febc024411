//! What is wrong with the VMs that run, judged from what is alone: no rule
//! here needs to know what somebody meant.
//!
//! A thread counts as *held* when it may not run on every online pCPU. Without
//! that, where a thread runs is the scheduler's business, and no fault of a
//! configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::{Host, PcpuSet};

use super::RunningVm;

mod memory;
mod sharing;
mod siblings;
mod threads;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Costs speed, or will.
    Warning,
    /// Worth knowing; may be meant.
    Hint,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which: `guest-siblings-apart`, see [`IDS`].
    pub id: String,
    /// How bad.
    pub severity: Severity,
    /// Process of the VM.
    pub pid: u32,
    /// Its name.
    pub vm: String,
    /// What is.
    pub message: String,
    /// What to do.
    pub fix: String,
}

/// Every id that a finding can have, with one line of what it means.
pub const IDS: &[(&str, &str)] = &[
    ("guest-siblings-apart", "threads of a guest core run on different host cores"),
    ("guest-siblings-loose", "nothing keeps the threads of a guest core on one host core"),
    ("guest-cores-share-core", "different guest cores run on threads of one host core"),
    ("vcpus-exceed-pcpus", "several vCPUs have fewer pCPUs among them than they are"),
    ("vms-share-pcpus", "two VMs' vCPUs may run on the same pCPUs, and one is held there"),
    ("vms-share-core", "two VMs' vCPUs are held on threads of one core"),
    ("emulator-on-vcpu", "the emulator's threads may run where a vCPU is held"),
    ("iothread-on-vcpu", "an iothread may run where a vCPU is held"),
    ("vhost-on-vcpu", "a vhost thread may run where a vCPU is held"),
    ("affinity-not-cpuset", "a thread may run on less than its own cpuset says"),
    ("quota-on-held", "vCPUs are held on pCPUs and stopped by a CPU time limit"),
    ("memory-off-node", "guest memory lies on other nodes than the vCPUs that are held"),
    ("huge-pages-not-used", "huge pages were asked for, and memory has ordinary pages"),
    ("thp-not-used", "little of the guest's memory is in transparent huge pages"),
    ("memory-not-locked", "locked memory was asked for, and is not locked"),
    ("memory-swapped", "parts of the VM are swapped out"),
];

/// All findings about `vms`, which run together on `host`; by VM, worst first.
#[must_use]
pub fn find(vms: &[RunningVm], host: &Host) -> Vec<Finding> {
    let ground = Ground::new(host);
    let mut findings = Vec::new();
    for vm in vms {
        let mut found = Vec::new();
        siblings::check(vm, &ground, &mut found);
        sharing::check(vm, vms, &ground, &mut found);
        threads::check(vm, &ground, &mut found);
        memory::check(vm, &ground, &mut found);
        found.sort_by_key(|finding| finding.severity);
        findings.append(&mut found);
    }
    findings
}

/// What the rules need to know of the host.
struct Ground<'a> {
    host: &'a Host,
    online: PcpuSet,
    /// The core of each pCPU, named by its first pCPU.
    cores: BTreeMap<u32, u32>,
}

impl<'a> Ground<'a> {
    fn new(host: &'a Host) -> Self {
        let mut first = BTreeMap::new();
        let mut cores = BTreeMap::new();
        for pcpu in host.pcpus.iter().filter(|pcpu| pcpu.online) {
            // Where cores are not known, each pCPU is taken for one.
            let core = match pcpu.core {
                Some(core) => {
                    let place = (pcpu.socket, pcpu.die, pcpu.cluster, core);
                    *first.entry(place).or_insert(pcpu.id)
                }
                None => pcpu.id,
            };
            cores.insert(pcpu.id, core);
        }
        Self { host, online: host.online(), cores }
    }

    /// Whether a thread with this affinity is kept from some pCPU.
    fn holds(&self, affinity: &PcpuSet) -> bool {
        !self.online.is_empty() && !self.online.is_subset(affinity)
    }

    /// Cores of these pCPUs.
    fn cores_of(&self, pcpus: &PcpuSet) -> BTreeSet<u32> {
        pcpus.iter().map(|pcpu| self.cores.get(&pcpu).copied().unwrap_or(pcpu)).collect()
    }

    /// Nodes of these pCPUs.
    fn nodes_of(&self, pcpus: &PcpuSet) -> BTreeSet<u32> {
        pcpus.iter().filter_map(|pcpu| self.host.pcpu(pcpu)?.node).collect()
    }

    /// Affinity of each vCPU that is held, by its number; those without a
    /// number are not among them.
    fn held_vcpus(&self, vm: &RunningVm) -> BTreeMap<u32, PcpuSet> {
        let vcpus = vm.vcpus().into_iter();
        let affinities = vcpus.filter_map(|(vcpu, thread)| Some((vcpu, thread.affinity.clone()?)));
        affinities.filter(|(_, affinity)| self.holds(affinity)).collect()
    }

    /// pCPUs on which any vCPU of the VM is held, numbered or not.
    fn held_pcpus(&self, vm: &RunningVm) -> PcpuSet {
        let vcpus = vm.threads.iter().filter(|thread| thread.role.is_vcpu());
        let affinities = vcpus.filter_map(|thread| thread.affinity.as_ref());
        let held = affinities.filter(|affinity| self.holds(affinity));
        held.fold(PcpuSet::new(), |all, one| all.union(one))
    }
}

fn finding(
    vm: &RunningVm,
    id: &'static str,
    severity: Severity,
    message: String,
    fix: impl Into<String>,
) -> Finding {
    debug_assert!(IDS.iter().any(|(known, _)| *known == id), "{id} is in the table");
    let fix = fix.into();
    Finding { id: id.to_owned(), severity, pid: vm.pid, vm: vm.label(), message, fix }
}

/// `vCPU 3`, `vCPUs 0-1,3`.
fn vcpus(numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers: PcpuSet = numbers.into_iter().collect();
    format!("{} {numbers}", if numbers.len() == 1 { "vCPU" } else { "vCPUs" })
}

/// `pCPU 3`, `pCPUs 0-1,3`.
fn pcpus(set: &PcpuSet) -> String {
    format!("{} {set}", if set.len() == 1 { "pCPU" } else { "pCPUs" })
}

#[cfg(test)]
mod tests;
