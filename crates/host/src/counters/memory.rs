//! Guest memory by page size and node, as it is at one moment.

use std::fs;
use std::path::Path;

use record::CounterSet;

use crate::audit::argv::CommandLineRequest;
use crate::audit::memory::join;

/// Reads `memory.*` of the VM of QEMU's process `pid`: levels, not counts; `vcpu_tids`
/// are its vCPUs' threads.
///
/// Walks QEMU's page tables twice, which takes some 10 ms a GiB of memory in
/// small pages and next to nothing with huge ones.
#[must_use]
pub fn read_memory(pid: u32, vcpu_tids: &[u32]) -> CounterSet {
    read_memory_in(Path::new("/"), pid, vcpu_tids)
}

pub(super) fn read_memory_in(root: &Path, pid: u32, vcpu_tids: &[u32]) -> CounterSet {
    let mut levels = CounterSet::default();
    let process = root.join("proc").join(pid.to_string());
    let text = |file: &str| fs::read(process.join(file)).ok();
    let Some(smaps) = text("smaps").filter(|text| !text.is_empty()) else { return levels };
    let numa_maps = text("numa_maps").unwrap_or_default();
    let smaps = String::from_utf8_lossy(&smaps);
    let memory = join(&smaps, &String::from_utf8_lossy(&numa_maps), &CommandLineRequest::default());
    if memory.regions.is_empty() {
        return levels;
    }
    for region in &memory.regions {
        levels.add("memory.present_bytes", region.present_bytes as f64);
        levels.add("memory.thp_bytes", region.thp_bytes as f64);
        levels.add("memory.hugetlb_bytes", region.hugetlb_bytes as f64);
        levels.add("memory.swapped_bytes", region.swapped_bytes as f64);
    }
    let by_node = memory.guest_by_node().unwrap_or_default();
    for (node, bytes) in &by_node {
        levels.set(format!("memory.node{node}_bytes"), *bytes as f64);
    }
    let nodes = root.join("sys/devices/system/node");
    let several = fs::read_to_string(nodes.join("online")).is_ok_and(|text| text.trim() != "0");
    if let Some((home, bytes)) = by_node.iter().max_by_key(|(_, bytes)| **bytes)
        && several
    {
        levels.set("memory.home_bytes", *bytes as f64);
        let home = nodes.join(format!("node{home}"));
        let at_home = |pcpu: &u32| home.join(format!("cpu{pcpu}")).exists();
        // Where one thread is not known, no count is.
        let pcpus: Option<Vec<u32>> =
            vcpu_tids.iter().map(|tid| last_pcpu(&process, *tid)).collect();
        if let Some(pcpus) = pcpus.filter(|pcpus| !pcpus.is_empty()) {
            levels
                .set("memory.home_vcpus", pcpus.iter().filter(|pcpu| at_home(pcpu)).count() as f64);
        }
    }
    let merged = fs::read_to_string(process.join("ksm_merging_pages")).ok();
    if let Some(pages) = merged.and_then(|text| text.trim().parse::<u64>().ok()) {
        let bytes = pages.saturating_mul(rustix::param::page_size() as u64);
        levels.set("memory.merged_bytes", bytes as f64);
    }
    levels
}

/// The pCPU on which a thread ran last.
///
/// Source: Linux `Documentation/filesystems/proc.rst` (stat, `task_cpu`).
fn last_pcpu(process: &Path, tid: u32) -> Option<u32> {
    let stat = fs::read_to_string(process.join(format!("task/{tid}/stat"))).ok()?;
    // The name may hold spaces and brackets; the state behind it is field 3.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(39 - 3)?.parse().ok()
}
