//! What the guest says of its memory, caches and nodes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::vcpus::parse_list;

/// A field of `/proc/meminfo` in bytes.
pub(crate) fn meminfo(field: &str) -> Option<u64> {
    field_kib(&fs::read_to_string("/proc/meminfo").ok()?, field)
}

/// Anonymous memory of this process that lies in huge pages, in bytes.
pub(crate) fn anon_huge_bytes() -> Option<u64> {
    field_kib(&fs::read_to_string("/proc/self/smaps_rollup").ok()?, "AnonHugePages")
}

fn field_kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes of all last-level caches together, as the guest sees them.
pub(crate) fn last_level_cache_bytes() -> Option<u64> {
    let mut caches: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for vcpu in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        for index in fs::read_dir(vcpu.path().join("cache")).into_iter().flatten().flatten() {
            let read = |name: &str| read_trimmed(&index.path().join(name));
            if let (Some(level), Some(shared), Some(size)) =
                (read("level"), read("shared_cpu_list"), read("size"))
                && let (Ok(level), Some(kib)) = (level.parse(), size.strip_suffix('K'))
                && let Ok(kib) = kib.parse::<u64>()
            {
                caches.insert((level, shared), kib * 1024);
            }
        }
    }
    let last = caches.keys().map(|(level, _)| *level).max()?;
    Some(caches.iter().filter(|((level, _), _)| *level == last).map(|(_, size)| size).sum())
}

/// The guest's NUMA nodes that have memory or vCPUs, each with its vCPUs.
pub(crate) fn nodes() -> Vec<(usize, Vec<usize>)> {
    let online = read_trimmed(Path::new("/sys/devices/system/node/online"));
    let numbers = online.and_then(|list| parse_list(&list)).unwrap_or_default();
    let vcpus = |node: &usize| {
        read_trimmed(Path::new(&format!("/sys/devices/system/node/node{node}/cpulist")))
            .and_then(|list| parse_list(&list))
            .unwrap_or_default()
    };
    numbers.iter().map(|node| (*node, vcpus(node))).collect()
}

/// A file of sysfs without the end of its line.
pub(crate) fn read_trimmed(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
