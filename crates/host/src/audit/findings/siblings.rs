//! Guest cores against host cores.
//!
//! Source: the guest's scheduler treats threads of a core as sharing it (Linux
//! `Documentation/scheduler/sched-domains.rst`); QEMU `qemu-options.hx`
//! (`-smp`) for the order in which vCPUs fill cores.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Ground, Severity, finding, pcpus, vcpus};
use crate::audit::RunningVm;

pub(super) fn check(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let held = ground.held_vcpus(vm);
    let mut apart = Vec::new();
    let mut loose = BTreeSet::new();
    let cores = guest_cores(vm);
    for core in cores.iter().filter(|core| core.len() > 1) {
        let on: Vec<_> = core.iter().filter_map(|vcpu| Some((*vcpu, held.get(vcpu)?))).collect();
        let host_cores: Vec<BTreeSet<u32>> =
            on.iter().map(|(_, affinity)| ground.cores_of(affinity)).collect();
        if on.len() < core.len() || host_cores.iter().any(|cores| cores.len() > 1) {
            let disjoint = host_cores
                .iter()
                .enumerate()
                .any(|(at, cores)| host_cores[..at].iter().any(|others| others.is_disjoint(cores)));
            if !disjoint {
                loose.extend(core.iter().copied());
                continue;
            }
        } else if host_cores.windows(2).all(|pair| pair[0] == pair[1]) {
            continue;
        }
        let places: Vec<_> = on
            .iter()
            .map(|(vcpu, affinity)| format!("vCPU {vcpu} on {}", pcpus(affinity)))
            .collect();
        apart.push(places.join(", "));
    }
    if !apart.is_empty() {
        findings.push(finding(
            vm,
            "guest-siblings-apart",
            Severity::Warning,
            format!(
                "the guest takes these for threads of one core, and they run on different host \
                 cores: {}",
                first_few(&apart)
            ),
            "pin the vCPUs of a guest core to the threads of one host core, or give the guest \
             threads=1",
        ));
    }
    // On a host of one core there is nowhere else to go.
    if !loose.is_empty() && ground.cores_of(&ground.online).len() > 1 {
        findings.push(finding(
            vm,
            "guest-siblings-loose",
            Severity::Hint,
            format!(
                "the guest takes {} for threads of cores, and nothing keeps those of a core \
                 together on the host",
                vcpus(loose)
            ),
            "pin the vCPUs, or give the guest threads=1",
        ));
    }
    cores_that_share(vm, ground, &cores, findings);
}

/// vCPUs of different guest cores on the threads of one host core.
fn cores_that_share(
    vm: &RunningVm,
    ground: &Ground<'_>,
    cores: &[Vec<u32>],
    findings: &mut Vec<Finding>,
) {
    let mut by_host_core: BTreeMap<u32, Vec<(usize, u32, u32)>> = BTreeMap::new();
    let held = ground.held_vcpus(vm);
    for (guest_core, vcpu) in
        (0..).zip(cores).flat_map(|(core, vcpus)| vcpus.iter().map(move |vcpu| (core, *vcpu)))
    {
        // Only a vCPU that is held on one pCPU has a place.
        let pcpu = held.get(&vcpu).filter(|affinity| affinity.len() == 1);
        let Some(pcpu) = pcpu.and_then(|affinity| affinity.first()) else { continue };
        let host_core = ground.cores.get(&pcpu).copied().unwrap_or(pcpu);
        by_host_core.entry(host_core).or_default().push((guest_core, vcpu, pcpu));
    }
    let mut shared = Vec::new();
    for places in by_host_core.values() {
        let guest_cores: BTreeSet<_> = places.iter().map(|(core, ..)| core).collect();
        let on: BTreeSet<_> = places.iter().map(|(.., pcpu)| pcpu).collect();
        if guest_cores.len() > 1 && on.len() > 1 {
            let text = |(_, vcpu, pcpu): &(usize, u32, u32)| format!("vCPU {vcpu} on pCPU {pcpu}");
            shared.push(places.iter().map(text).collect::<Vec<_>>().join(", "));
        }
    }
    if !shared.is_empty() {
        findings.push(finding(
            vm,
            "guest-cores-share-core",
            Severity::Warning,
            format!(
                "the guest takes these for cores of their own, and they share a host core: {}",
                first_few(&shared)
            ),
            "say so to the guest (-smp ...,threads=2), or leave one thread of each host core free",
        ));
    }
}

/// The guest's cores as lists of vCPU numbers: as QEMU told, else as the
/// command line means, where threads of a core have consecutive numbers.
fn guest_cores(vm: &RunningVm) -> Vec<Vec<u32>> {
    let told = vm.guest.as_ref().map(|view| view.vcpus.as_slice()).unwrap_or_default();
    if !told.is_empty() && told.iter().all(|vcpu| vcpu.core.is_some()) {
        let mut cores: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for vcpu in told {
            let place = (vcpu.socket, vcpu.die, vcpu.cluster, vcpu.core);
            cores.entry(place).or_default().push(vcpu.vcpu);
        }
        return cores.into_values().collect();
    }
    let (Some(count), threads) = (vm.asked.vcpus, vm.asked.threads.unwrap_or(1).max(1)) else {
        return Vec::new();
    };
    let known: Vec<u32> = vm.vcpus().into_keys().collect();
    // More numbers than threads are no vCPUs of ours; a mad -smp ends here.
    let numbers = if known.is_empty() { (0..count.min(4096)).collect() } else { known };
    let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for vcpu in numbers {
        cores.entry(vcpu / threads).or_default().push(vcpu);
    }
    cores.into_values().collect()
}

/// The first three, and how many more there are.
fn first_few(texts: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = texts[..texts.len().min(SHOWN)].join("; ");
    if texts.len() > SHOWN {
        text += &format!("; and {} more", texts.len() - SHOWN);
    }
    text
}
