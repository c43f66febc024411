//! Guest memory by page size and node, as it is at one moment.

use std::fs;
use std::path::Path;

use record::CounterSet;

use crate::audit::argv::CommandLineRequest;
use crate::audit::memory::join;

/// Reads `memory.*` of the VM of QEMU's process `pid`: levels, not counts.
///
/// Walks QEMU's page tables twice, which takes some 10 ms a GiB of memory in
/// small pages and next to nothing with huge ones.
#[must_use]
pub fn read_memory(pid: u32) -> CounterSet {
    read_memory_in(Path::new("/proc"), pid)
}

pub(super) fn read_memory_in(proc_root: &Path, pid: u32) -> CounterSet {
    let mut levels = CounterSet::default();
    let process = proc_root.join(pid.to_string());
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
    for (node, bytes) in memory.guest_by_node().into_iter().flatten() {
        levels.set(format!("memory.node{node}_bytes"), bytes as f64);
    }
    let merged = fs::read_to_string(process.join("ksm_merging_pages")).ok();
    if let Some(pages) = merged.and_then(|text| text.trim().parse::<u64>().ok()) {
        let bytes = pages.saturating_mul(rustix::param::page_size() as u64);
        levels.set("memory.merged_bytes", bytes as f64);
    }
    levels
}
