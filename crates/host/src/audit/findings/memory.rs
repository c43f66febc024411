//! Memory that is not where, or not as, it should be.

use std::collections::{BTreeMap, BTreeSet};

use topology::PcpuSet;

use super::{Finding, Ground, Severity, finding, vcpus};
use crate::audit::RunningVm;
use crate::audit::in_force::{list, size};
use crate::audit::memory::ByNode;

/// Parts of guest memory elsewhere that are not worth a word.
const ELSEWHERE_SHARE: f64 = 0.05;
/// Guest memory below which page sizes are not worth a word, bytes.
const MUCH_BYTES: u64 = 64 << 20;
/// The part of it in transparent huge pages that is fine.
const THP_SHARE: f64 = 0.5;
/// The biggest base page there is (arm64, ppc64), bytes.
const SMALL_PAGE_BYTES: u64 = 64 << 10;

pub(super) fn check(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    nodes(vm, ground, findings);
    huge_pages(vm, findings);
    transparent(vm, ground, findings);
    let memory = &vm.memory;
    if vm.asked.lock_memory
        && memory.locked_bytes.is_some_and(|locked| locked < memory.guest_bytes())
    {
        let locked = memory.locked_bytes.unwrap_or(0);
        findings.push(finding(
            vm,
            "memory-not-locked",
            Severity::Warning,
            format!(
                "locked memory was asked for; {} of {} of guest memory is",
                size(locked),
                size(memory.guest_bytes())
            ),
            "raise the limit on locked memory (ulimit -l; libvirt: memtune hard_limit)",
        ));
    }
    if let Some(swapped) = memory.swapped_bytes.filter(|swapped| *swapped > 0) {
        findings.push(finding(
            vm,
            "memory-swapped",
            Severity::Warning,
            format!("{} of it is swapped out", size(swapped)),
            "free memory on the host, or lock the guest's (-overcommit mem-lock=on)",
        ));
    }
}

/// Guest memory against the nodes of the vCPUs that are held: by guest node
/// where it is known which memory is whose, else altogether.
fn nodes(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let held = ground.held_vcpus(vm);
    let mut judged = false;
    for guest_node in &vm.asked.guest_nodes {
        let is_its = |id: &Option<String>| id.is_some() && *id == guest_node.memdev;
        let region = vm.memory.regions.iter().find(|region| is_its(&region.backend));
        let on = guest_node.vcpus.iter().filter_map(|vcpu| held.get(vcpu));
        let on = on.fold(PcpuSet::new(), |all, one| all.union(one));
        let Some(by_node) = region.and_then(|region| region.by_node.as_ref()) else { continue };
        if !on.is_empty() {
            judged = true;
            let what = format!("the memory of guest node {}", guest_node.id);
            let numbers = guest_node.vcpus.iter().copied();
            elsewhere(vm, ground, &what, by_node, &on, &vcpus(numbers), findings);
        }
    }
    if judged {
        return;
    }
    let on = ground.held_pcpus(vm);
    if let Some(by_node) = vm.memory.guest_by_node().filter(|_| !on.is_empty()) {
        elsewhere(vm, ground, "guest memory", &by_node, &on, "its vCPUs", findings);
    }
}

fn elsewhere(
    vm: &RunningVm,
    ground: &Ground<'_>,
    what: &str,
    by_node: &ByNode,
    on: &PcpuSet,
    whose: &str,
    findings: &mut Vec<Finding>,
) {
    let nodes: BTreeSet<u32> = ground.nodes_of(on);
    let total: u64 = by_node.values().sum();
    let away: BTreeMap<u32, u64> = by_node
        .iter()
        .filter(|(node, _)| !nodes.contains(node))
        .map(|(node, bytes)| (*node, *bytes))
        .collect();
    let bytes: u64 = away.values().sum();
    if nodes.is_empty() || (bytes as f64) <= total as f64 * ELSEWHERE_SHARE {
        return;
    }
    let places: Vec<String> =
        away.iter().map(|(node, bytes)| format!("{} on node {node}", size(*bytes))).collect();
    findings.push(finding(
        vm,
        "memory-off-node",
        Severity::Warning,
        format!(
            "{whose} held on node {}; of {} of {what} there are {}",
            list(&nodes),
            size(total),
            places.join(", ")
        ),
        "bind the memory to the vCPUs' node (host-nodes=, policy=bind), or move it (migratepages)",
    ));
}

/// Huge pages from a pool that were asked for.
fn huge_pages(vm: &RunningVm, findings: &mut Vec<Finding>) {
    // What else would one mount at a path of that name?
    let is_pool = |path: &Option<String>| path.as_ref().is_some_and(|p| p.contains("huge"));
    for backend in &vm.asked.backends {
        if !backend.hugetlb && !is_pool(&backend.path) {
            continue;
        }
        let of = vm.memory.regions.iter().find(|r| r.backend.as_ref() == Some(&backend.id));
        if let Some(region) = of {
            ordinary(vm, &format!("memory {}", backend.id), region.page_bytes, findings);
        }
    }
    if is_pool(&vm.asked.mem_path)
        && let Some(region) = vm.memory.regions.iter().max_by_key(|region| region.bytes)
    {
        ordinary(vm, "guest memory", region.page_bytes, findings);
    }
}

fn ordinary(vm: &RunningVm, what: &str, page_bytes: u64, findings: &mut Vec<Finding>) {
    if page_bytes > SMALL_PAGE_BYTES {
        return;
    }
    findings.push(finding(
        vm,
        "huge-pages-not-used",
        Severity::Warning,
        format!("huge pages were asked for; {what} has pages of {}", size(page_bytes)),
        "check that the path lies on a mounted hugetlbfs, and that its pool has enough free pages",
    ));
}

fn transparent(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let enabled = ground.host.settings.thp_enabled.as_deref();
    let regions = vm.memory.regions.iter().filter(|region| {
        region.path.is_empty() && region.hugetlb_bytes == 0 && region.present_bytes >= MUCH_BYTES
    });
    let (present, huge) = regions.fold((0, 0), |(present, huge), region| {
        (present + region.present_bytes, huge + region.thp_bytes)
    });
    if present == 0 || huge as f64 >= present as f64 * THP_SHARE {
        return;
    }
    let fix = match enabled {
        Some("never") => "switch them on: /sys/kernel/mm/transparent_hugepage/enabled says never",
        _ => {
            "free memory in one piece (compact_memory), and see why the kernel had none: \
              fragmentation, KSM, balloon"
        }
    };
    findings.push(finding(
        vm,
        "thp-not-used",
        Severity::Hint,
        format!(
            "{} of {} of guest memory are in transparent huge pages",
            size(huge),
            size(present)
        ),
        fix,
    ));
}
