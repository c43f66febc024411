//! What earlier trials may have left on the host when a trial begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The host's memory when a trial began, before its VM was started. What could
/// not be read is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ground {
    /// Pages that same-page merging keeps merged, B: `ksm/pages_shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_bytes: Option<u64>,
    /// Page cache, B: `Cached` of `/proc/meminfo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache_bytes: Option<u64>,
    /// Page cache that waits to be written, B: `Dirty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_bytes: Option<u64>,
    /// Swap in use, B: `SwapTotal` less `SwapFree`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    /// Transparent huge pages in use, B: `AnonHugePages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp_bytes: Option<u64>,
    /// Free memory that lies together in blocks of a huge page or more, B:
    /// `/proc/buddyinfo`. What compaction made, or what earlier trials broke up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_huge_bytes: Option<u64>,
    /// Memory in which zram keeps what was swapped or written to it, B: `mem_used_total`
    /// of all its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zram_bytes: Option<u64>,
    /// Memory charged to the control group in which vmlab and its VMs run, B, page cache of
    /// earlier trials with it: `memory.current`, or `memory.usage_in_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_bytes: Option<u64>,
}

impl Ground {
    /// Its levels with their names, in B.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("merged pages", self.merged_bytes),
            ("page cache", self.page_cache_bytes),
            ("dirty", self.dirty_bytes),
            ("swap used", self.swap_used_bytes),
            ("transparent huge pages", self.thp_bytes),
            ("free in huge blocks", self.free_huge_bytes),
            ("zram", self.zram_bytes),
            ("charged to its cgroup", self.cgroup_bytes),
        ]
        .into_iter()
        .filter_map(|(name, bytes)| Some((name, bytes?)))
    }
}
