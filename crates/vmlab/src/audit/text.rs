//! Running VMs in words: one block a VM.

use std::collections::BTreeMap;

use host::audit::cpu_pm::CpuPm;
use host::audit::memory::{BytesByNode, VmMapping};
use host::audit::thread::{RunningThread, SchedulingPolicy};
use host::audit::{RunningVm, VcpuEvidence};
use topology::bytes::rounded as size;
use topology::{Host, PcpuSet};

/// Size of a transparent huge page where the pool's size does not tell, bytes.
const THP_BYTES: u64 = 2 << 20;

/// All VMs, one block each.
pub(super) fn vms(vms: &[RunningVm], host: &Host) -> String {
    if vms.is_empty() {
        return "No QEMU runs here that may be seen.\n".to_owned();
    }
    let blocks: Vec<String> = vms.iter().map(|vm| block(vm, host)).collect();
    blocks.join("\n")
}

fn block(vm: &RunningVm, host: &Host) -> String {
    let mut lines = vec![head(vm)];
    for row in thread_rows(vm, &host.online()) {
        lines.push(format!("  {row}"));
    }
    if vm.vcpus_known_by == VcpuEvidence::Qmp {
        lines.push("  (vCPUs as QEMU itself tells them)".to_owned());
    }
    if let Some(text) = guest(vm) {
        lines.push(format!("  guest sees: {text}"));
    }
    if let Some(CpuPm { state, evidence }) = &vm.cpu_pm {
        lines.push(format!("  cpu-pm=on: {state}: {evidence}"));
    } else if let Some(halts) = &vm.halts {
        lines.push(format!("  halts: {halts}"));
    }
    lines.extend(memory(vm).into_iter().map(|line| format!("  {line}")));
    for note in &vm.notes {
        lines.push(format!("  note: {note}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn head(vm: &RunningVm) -> String {
    let mut parts = vec![format!("{} (pid {})", vm.label(), vm.pid)];
    if let Some(vcpus) = vm.asked.vcpus {
        let threads = match vm.asked.threads {
            Some(threads) if threads > 1 => format!(", {threads} threads a core"),
            _ => String::new(),
        };
        parts.push(format!("{vcpus} vCPU{}{threads}", if vcpus == 1 { "" } else { "s" }));
    }
    parts.extend(vm.asked.memory_bytes.map(size));
    let accel = vm.asked.accel.clone();
    parts.push(accel.unwrap_or_else(|| "tcg".to_owned()));
    if vm.asked.libvirt {
        let version = vm.start.as_ref().map(|start| format!(" {}", start.libvirt));
        parts.push(format!("libvirt{}", version.unwrap_or_default()));
    }
    parts.join(", ")
}

/// One row for each group of threads that are alike in everything shown.
fn thread_rows(vm: &RunningVm, online: &PcpuSet) -> Vec<String> {
    let mut threads: Vec<&RunningThread> = vm.threads.iter().collect();
    threads.sort_by_key(|thread| (thread.role.clone(), thread.tid));
    let mut rows: Vec<([String; 4], usize)> = Vec::new();
    for thread in threads {
        let row = [
            thread.role.to_string(),
            place(thread, online),
            scheduling(thread),
            groups(thread, online),
        ];
        match rows.last_mut() {
            Some((last, count)) if *last == row => *count += 1,
            _ => rows.push((row, 1)),
        }
    }
    let name = |row: &[String; 4], count: usize| match count {
        1 => row[0].clone(),
        count => format!("{} ({count} threads)", row[0]),
    };
    let width = rows.iter().map(|(row, count)| name(row, *count).len()).max().unwrap_or(0);
    let pcpus = rows.iter().map(|(row, _)| row[1].len()).max().unwrap_or(0);
    rows.iter()
        .map(|(row, count)| {
            let [_, place, scheduling, groups] = row;
            let text =
                format!("{:width$}  {place:pcpus$}  {scheduling}{groups}", name(row, *count));
            text.trim_end().to_owned()
        })
        .collect()
}

fn place(thread: &RunningThread, online: &PcpuSet) -> String {
    match &thread.affinity {
        None => "pCPUs unknown".to_owned(),
        Some(affinity) if online.is_subset(affinity) => format!("any pCPU ({affinity})"),
        Some(affinity) if affinity.len() == 1 => format!("pCPU {affinity}"),
        Some(affinity) => format!("pCPUs {affinity}"),
    }
}

fn scheduling(thread: &RunningThread) -> String {
    let priority = thread.realtime_priority.unwrap_or(0);
    match thread.policy {
        Some(SchedulingPolicy::Other) | None => match thread.nice {
            Some(0) | None => String::new(),
            Some(nice) => format!("nice {nice} "),
        },
        Some(SchedulingPolicy::Fifo) => format!("fifo {priority} "),
        Some(SchedulingPolicy::RoundRobin) => format!("round-robin {priority} "),
        Some(other) => format!("{other:?} ").to_lowercase(),
    }
}

fn groups(thread: &RunningThread, online: &PcpuSet) -> String {
    let mut text = String::new();
    if let Some(cpuset) = thread.limits.pcpus.as_ref().filter(|set| !online.is_subset(set)) {
        text += &format!("cpuset {cpuset} ");
    }
    if let Some(quota) = &thread.limits.quota {
        text += &format!("quota {} of {} µs ", quota.quota_us, quota.period_us);
    }
    text
}

fn guest(vm: &RunningVm) -> Option<String> {
    let view = vm.guest.as_ref()?;
    let distinct = |level: fn(&host::audit::guest_view::GuestVcpu) -> Option<Vec<u32>>| {
        let found: Option<std::collections::BTreeSet<_>> = view.vcpus.iter().map(level).collect();
        found.map_or(0, |found| found.len())
    };
    let sockets = distinct(|vcpu| Some(vec![vcpu.socket?]));
    let cores = distinct(|vcpu| {
        let outer = [vcpu.socket, vcpu.die, vcpu.cluster];
        let outer: Vec<u32> = outer.into_iter().flatten().collect();
        Some([outer, vec![vcpu.core?]].concat())
    });
    let nodes = distinct(|vcpu| Some(vec![vcpu.node?]));
    let levels = [(sockets, "socket"), (cores, "core"), (nodes, "node")];
    let mut parts: Vec<String> = levels
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}{}", if *count == 1 { "" } else { "s" }))
        .collect();
    let plugged = view.vcpus.len() as u64;
    if let Some(places) = view.vcpu_places.filter(|places| *places > plugged) {
        parts.push(format!("room for {} more vCPUs", places - plugged));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn memory(vm: &RunningVm) -> Vec<String> {
    let memory = &vm.memory;
    if memory.regions.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("guest memory: {} present", size(memory.guest_bytes()))];
    // Firmware and tables are not worth a line each.
    let most = memory.regions.iter().map(|region| region.bytes).max().unwrap_or(0);
    for region in memory.regions.iter().filter(|region| region.bytes * 4 >= most) {
        lines.push(format!("  {}", describe(region)));
        if let Some(pages) = &region.pages {
            let mut shown: BTreeMap<(Option<u32>, u64, bool), u64> = BTreeMap::new();
            for page in pages {
                *shown.entry((page.node, page.page_bytes, page.merged)).or_default() += page.bytes;
            }
            for ((node, page_bytes, merged), bytes) in shown {
                let node = node.map_or("node unknown".to_owned(), |node| format!("node {node}"));
                let merged = if merged { ", merged" } else { "" };
                lines.push(format!(
                    "    {node}: {} in pages of {}{merged}",
                    size(bytes),
                    size(page_bytes)
                ));
            }
        }
    }
    let mut rest = vec![format!("QEMU's own: {}", size(memory.other_bytes))];
    for (what, bytes) in [("locked", memory.locked_bytes), ("swapped out", memory.swapped_bytes)] {
        rest.extend(bytes.filter(|bytes| *bytes > 0).map(|b| format!("{what}: {}", size(b))));
    }
    if let Some(pages) = memory.ksm_merging_pages.filter(|pages| *pages > 0) {
        rest.push(format!("merged with others': {pages} pages"));
    }
    lines.push(rest.join(", "));
    lines
}

/// `ram0: 64 MiB, 64 MiB present, node 0: 64 MiB; 100% in 2 MiB pages (THP)`.
fn describe(region: &VmMapping) -> String {
    let name = region.backend.as_deref().unwrap_or("RAM");
    let mut parts = vec![format!("{name}: {}", size(region.bytes))];
    if region.present_bytes < region.bytes {
        parts.push(format!("{} present", size(region.present_bytes)));
    }
    parts.extend(region.by_node.as_ref().map(by_node).filter(|text| !text.is_empty()));
    if region.hugetlb_bytes > 0 {
        parts.push(format!("pages of {} from the pool", size(region.page_bytes)));
    } else if region.thp_bytes > 0 {
        let percent = region.thp_bytes as f64 / region.present_bytes.max(1) as f64 * 100.0;
        parts.push(format!("{percent:.0}% in transparent huge pages ({})", size(THP_BYTES)));
    } else {
        parts.push(format!("pages of {}", size(region.page_bytes)));
    }
    if let Some(policy) = region.policy.as_deref().filter(|policy| *policy != "default") {
        parts.push(format!("policy {policy}"));
    }
    parts.join(", ")
}

fn by_node(by_node: &BytesByNode) -> String {
    let nodes: Vec<String> = match by_node.len() {
        1 => by_node.keys().map(|node| format!("all on node {node}")).collect(),
        _ => by_node.iter().map(|(node, bytes)| format!("node {node}: {}", size(*bytes))).collect(),
    };
    nodes.join(", ")
}
