//! KVM's own counters: what QEMU's `query-stats` or debugfs says, under
//! vmlab's names and in base units.
//!
//! Source: Linux `Documentation/virt/kvm/api.rst`, `KVM_GET_STATS_FD`;
//! `virt/kvm/kvm_main.c` (`kvm_create_vm_debugfs`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use record::CounterSet;

/// KVM's folder for its VMs.
const DEBUGFS: &str = "/sys/kernel/debug/kvm";

/// What is a state or a peak: its difference over a run would say nothing.
const STATES: &[&str] = &[
    "blocking",
    "guest_mode",
    "max_mmu_page_hash_collisions",
    "max_mmu_rmap_size",
    "mmu_unsync",
    "lpages",
];

/// States that are counted in pages of a size.
const PAGES: &[(&str, &str, u64)] = &[
    ("pages_4k", "mapped_4k_bytes", 4 << 10),
    ("pages_2m", "mapped_2m_bytes", 2 << 20),
    ("pages_1g", "mapped_1g_bytes", 1 << 30),
    ("nx_lpage_splits", "nx_split_bytes", 2 << 20),
];

/// True if a stat (`kvm.pages_2m`) is a state, which is as it is now and has no difference.
#[must_use]
pub fn is_state(stat: &str) -> bool {
    let stat = stat.strip_prefix("kvm.").unwrap_or(stat);
    STATES.contains(&stat) || PAGES.iter().any(|row| row.0 == stat)
}

/// Counters from KVM's stats: `kvm.<name>` as the kernel has them, summed over
/// the vCPUs. States become levels or are left out, nanoseconds become seconds.
#[must_use]
pub fn counters(stats: &BTreeMap<String, f64>) -> CounterSet {
    let mut all = CounterSet::default();
    for (name, value) in stats {
        let Some(stat) = name.strip_prefix("kvm.") else {
            all.set(name, *value);
            continue;
        };
        if STATES.contains(&stat) {
            continue;
        }
        if let Some((_, name, bytes)) = PAGES.iter().find(|row| row.0 == stat) {
            all.set(format!("kvm.{name}"), value * *bytes as f64);
        } else if let Some(what) = stat.strip_suffix("_ns") {
            all.set(format!("kvm.{what}_s"), value / 1e9);
        } else {
            all.set(name, *value);
        }
    }
    all
}

/// The stats of the VM of QEMU's process `pid` from debugfs, for QEMUs without
/// `query-stats` (before 7.1); empty where they may not be read.
#[must_use]
pub fn read_debugfs(pid: u32) -> BTreeMap<String, f64> {
    read_debugfs_in(Path::new(DEBUGFS), pid)
}

fn read_debugfs_in(root: &Path, pid: u32) -> BTreeMap<String, f64> {
    let mut stats = BTreeMap::new();
    // A folder is called after the process and its descriptor of the VM.
    let of_vm = |name: &str| name.split_once('-').is_some_and(|(of, _)| of == pid.to_string());
    for vm in fs::read_dir(root).into_iter().flatten().flatten() {
        if !vm.file_name().to_str().is_some_and(of_vm) {
            continue;
        }
        for file in fs::read_dir(vm.path()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let value = fs::read_to_string(file.path()).ok();
            let value = value.and_then(|text| text.trim().parse::<u64>().ok());
            if let Some(value) = value.filter(|_| !name.ends_with("_hist")) {
                *stats.entry(format!("kvm.{name}")).or_insert(0.0) += value as f64;
            }
        }
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_vm_s_folder() {
        // Linux 6.1 on an emulated AMD host: a guest that booted and sat idle.
        let text = include_str!("../../testdata/linux-6.1-x86_64-svm/debugfs.txt");
        let temp = tempfile::tempdir().expect("temp folder");
        for (folder, lines) in [("137-10", text), ("1370-4", "exits 1\n"), ("13-7", "exits 1\n")] {
            let folder = temp.path().join(folder);
            fs::create_dir_all(folder.join("vcpu0")).expect("mkdir");
            for line in lines.lines() {
                let (name, value) = line.split_once(' ').expect("a name and a value");
                fs::write(folder.join(name), format!("{value}\n")).expect("write");
            }
        }
        let stats = read_debugfs_in(temp.path(), 137);
        assert_eq!(stats["kvm.exits"], 16494.0);
        let counters = counters(&stats);
        let unknown: Vec<&String> =
            counters.0.keys().filter(|name| record::counter(name).is_none()).collect();
        assert_eq!(unknown, Vec::<&String>::new());
        assert_eq!(counters.get("kvm.halt_exits"), Some(1526.0));
        assert_eq!(counters.get("kvm.halt_wait_s"), Some(85.849_982_03));
        assert_eq!(counters.get("kvm.mapped_2m_bytes"), Some(64.0 * f64::from(2 << 20)));
        assert_eq!(counters.get("kvm.blocking"), None);
        assert!(!counters.0.keys().any(|name| name.ends_with("_hist")));
        assert_eq!(read_debugfs_in(temp.path(), 4), BTreeMap::new());
    }
}
