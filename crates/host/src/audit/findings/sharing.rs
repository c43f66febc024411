//! pCPUs that several vCPUs want: of one VM, or of two.

use std::collections::{BTreeMap, BTreeSet};

use topology::PcpuSet;

use super::{Finding, Ground, Severity, finding, pcpus, vcpus};
use crate::audit::RunningVm;

pub(super) fn check(
    vm: &RunningVm,
    vms: &[RunningVm],
    ground: &Ground<'_>,
    findings: &mut Vec<Finding>,
) {
    within(vm, ground, findings);
    let mine = ground.held_pcpus(vm);
    if mine.is_empty() {
        return;
    }
    for other in vms.iter().filter(|other| other.pid != vm.pid) {
        between(vm, &mine, other, ground, findings);
    }
}

/// vCPUs of one VM that have fewer pCPUs than they are.
fn within(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let mut by_affinity: BTreeMap<String, (PcpuSet, Vec<u32>)> = BTreeMap::new();
    for (vcpu, affinity) in ground.held_vcpus(vm) {
        let entry = by_affinity.entry(affinity.to_string()).or_insert((affinity, Vec::new()));
        entry.1.push(vcpu);
    }
    for (affinity, numbers) in by_affinity.into_values() {
        if numbers.len() > affinity.len() {
            findings.push(finding(
                vm,
                "vcpus-exceed-pcpus",
                Severity::Warning,
                format!("{} share {}", vcpus(numbers), pcpus(&affinity)),
                "give each vCPU a pCPU of its own, or the VM fewer vCPUs",
            ));
        }
    }
}

/// `vm` is held on `mine`; does `other` come there?
fn between(
    vm: &RunningVm,
    mine: &PcpuSet,
    other: &RunningVm,
    ground: &Ground<'_>,
    findings: &mut Vec<Finding>,
) {
    let theirs = ground.held_pcpus(other);
    let label = format!("{} (pid {})", other.label(), other.pid);
    let anywhere = other
        .threads
        .iter()
        .filter(|thread| thread.role.is_vcpu())
        .any(|thread| thread.affinity.as_ref().is_some_and(|affinity| !ground.holds(affinity)));
    if anywhere {
        findings.push(finding(
            vm,
            "vms-share-pcpus",
            Severity::Warning,
            format!(
                "its vCPUs are held on {}, and nothing keeps the vCPUs of {label} away",
                pcpus(mine)
            ),
            format!("keep {label} to other pCPUs (a cpuset for all VMs without pins)"),
        ));
    }
    // Said once for the two.
    if theirs.is_empty() || vm.pid > other.pid {
        return;
    }
    let both = mine.intersection(&theirs);
    if !both.is_empty() {
        // A pool that both float in is mostly meant.
        let pool = *mine == theirs && mine.len() > 1;
        findings.push(finding(
            vm,
            "vms-share-pcpus",
            if pool { Severity::Hint } else { Severity::Warning },
            format!("its vCPUs and those of {label} share {}", pcpus(&both)),
            "give each VM pCPUs of its own",
        ));
    }
    let cores = |set: &PcpuSet| ground.cores_of(&set.difference(&both));
    let shared: BTreeSet<u32> = cores(mine).intersection(&cores(&theirs)).copied().collect();
    if !shared.is_empty() {
        let threads: PcpuSet = ground
            .cores
            .iter()
            .filter(|(pcpu, core)| {
                shared.contains(core) && (mine.contains(**pcpu) || theirs.contains(**pcpu))
            })
            .map(|(pcpu, _)| *pcpu)
            .collect();
        findings.push(finding(
            vm,
            "vms-share-core",
            Severity::Warning,
            format!(
                "its vCPUs and those of {label} are on threads of the same host cores: {}",
                pcpus(&threads)
            ),
            "give each VM whole cores",
        ));
    }
}
