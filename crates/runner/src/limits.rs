//! Limits beyond which a trial is out of line, or is not begun.

use host::ground::Clearance;
use record::{Ground, HostSign};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::lost;

/// Limits beyond which a trial is out of line with those of its variant before
/// it. Percent throughout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StabilityLimits {
    /// Whether a block with such a trial is done again.
    pub repeat: bool,
    /// Time that the host's own hypervisor took, of the VM's pCPUs' time.
    pub steal_percent: f64,
    /// Time that others used on an idle host, of the VM's pCPUs' time.
    pub foreign_percent: f64,
    /// Time that vCPUs waited for a pCPU on an idle host, of the time that
    /// they wanted to run.
    pub run_delay_percent: f64,
    /// Time in which something waited for memory.
    pub memory_pressure_percent: f64,
    /// Fall of the pCPUs' clock.
    pub clock_percent: f64,
    /// Time that a canary took longer.
    pub canary_percent: f64,
    /// Part of all blocks that may be unsteady before none is done again.
    pub unsteady_blocks_percent: f64,
}

impl Default for StabilityLimits {
    /// Wide enough for a machine that does a little else, so that what they
    /// find is worth a block.
    fn default() -> Self {
        Self {
            repeat: true,
            steal_percent: 2.0,
            foreign_percent: 10.0,
            run_delay_percent: 20.0,
            memory_pressure_percent: 5.0,
            clock_percent: 10.0,
            canary_percent: 15.0,
            unsteady_blocks_percent: 20.0,
        }
    }
}

impl StabilityLimits {
    /// The limits by their keys, percent.
    #[must_use]
    pub fn limits(&self) -> [(&'static str, f64); 7] {
        [
            ("steal_percent", self.steal_percent),
            ("foreign_percent", self.foreign_percent),
            ("run_delay_percent", self.run_delay_percent),
            ("memory_pressure_percent", self.memory_pressure_percent),
            ("clock_percent", self.clock_percent),
            ("canary_percent", self.canary_percent),
            ("unsteady_blocks_percent", self.unsteady_blocks_percent),
        ]
    }

    /// The limits by sign, on its own scale.
    pub(crate) fn by_sign(&self) -> [(HostSign, f64); 7] {
        let part = |percent: f64| lost(percent / 100.0);
        let longer = |percent: f64| (percent / 100.0).ln_1p();
        [
            (HostSign::Steal, part(self.steal_percent)),
            (HostSign::Others, part(self.foreign_percent)),
            (HostSign::RunDelay, part(self.run_delay_percent)),
            (HostSign::Memory, part(self.memory_pressure_percent)),
            (HostSign::Clock, longer(self.clock_percent)),
            (HostSign::Canary, longer(self.canary_percent)),
            (HostSign::Throttles, 0.0),
        ]
    }
}

/// What every trial begins on, beside the host settings: what is cleared before it, and
/// the levels beyond which it is failed. MiB throughout; a level that is not named may be
/// any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroundRules {
    /// Whether what is cached of files is written and dropped before each trial.
    pub drop_caches: bool,
    /// Whether free memory is compacted before each trial.
    pub compact: bool,
    /// Most that same-page merging may keep merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_mib: Option<u64>,
    /// Most that may be cached of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache_mib: Option<u64>,
    /// Most of that which may wait to be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_mib: Option<u64>,
    /// Most of the swap that may be in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_used_mib: Option<u64>,
    /// Most that may lie in transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thp_mib: Option<u64>,
    /// Least that must be free in blocks of a huge page or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_huge_mib: Option<u64>,
    /// Most that zram may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zram_mib: Option<u64>,
    /// Most that may be charged to vmlab's control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_mib: Option<u64>,
}

impl GroundRules {
    /// What is cleared before each trial, by its key.
    pub fn clearances(&self) -> impl Iterator<Item = (&'static str, Clearance)> {
        let all = [
            ("drop_caches", self.drop_caches, Clearance::DropCaches),
            ("compact", self.compact, Clearance::Compact),
        ];
        all.into_iter()
            .filter_map(|(key, is_asked, clearance)| is_asked.then_some((key, clearance)))
    }

    /// The levels that have a limit, with what `ground` has of each.
    fn levels(&self, ground: &Ground) -> impl Iterator<Item = GroundLevel> + use<> {
        // Where the kernel has no such thing, there is none of it.
        let none = Some(0);
        let most = [
            ("merged_mib", self.merged_mib, ground.merged_bytes.or(none)),
            ("page_cache_mib", self.page_cache_mib, ground.page_cache_bytes),
            ("dirty_mib", self.dirty_mib, ground.dirty_bytes),
            ("swap_used_mib", self.swap_used_mib, ground.swap_used_bytes.or(none)),
            ("thp_mib", self.thp_mib, ground.thp_bytes.or(none)),
            ("zram_mib", self.zram_mib, ground.zram_bytes.or(none)),
            ("cgroup_mib", self.cgroup_mib, ground.cgroup_bytes),
        ]
        .map(|(key, limit, bytes)| (key, limit, bytes, false));
        let least = ("free_huge_mib", self.free_huge_mib, ground.free_huge_bytes, true);
        most.into_iter().chain([least]).filter_map(|(key, limit, bytes, is_least)| {
            Some(GroundLevel { key, limit_mib: limit?, bytes, is_least })
        })
    }

    /// What is cleared before each trial and the limits of levels, as a study has them.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let clearances = self.clearances().map(|(key, _)| key.to_owned());
        let levels = self
            .levels(&Ground::default())
            .map(|level| format!("{} {} {}", level.key, level.word(), level.limit_mib));
        clearances.chain(levels).collect()
    }

    /// What of `ground` is beyond its limit, in words.
    #[must_use]
    pub fn beyond(&self, ground: &Ground) -> Vec<String> {
        self.levels(ground).filter_map(|level| level.beyond()).collect()
    }
}

/// A level that has a limit.
struct GroundLevel {
    /// The limit's key.
    key: &'static str,
    limit_mib: u64,
    /// The level; nothing where the host does not tell it.
    bytes: Option<u64>,
    /// Whether the limit is the least that must be there.
    is_least: bool,
}

impl GroundLevel {
    fn word(&self) -> &'static str {
        if self.is_least { "at least" } else { "at most" }
    }

    fn beyond(&self) -> Option<String> {
        let (key, limit) = (self.key, self.limit_mib);
        let Some(bytes) = self.bytes else {
            return Some(format!("ground.{key} = {limit}, which this host does not tell"));
        };
        let limit_bytes = limit.saturating_mul(1 << 20);
        let is_beyond = if self.is_least { bytes < limit_bytes } else { bytes > limit_bytes };
        let mib = bytes as f64 / f64::from(1 << 20);
        is_beyond.then(|| format!("ground.{key} is {mib:.1}, not {} {limit}", self.word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_beyond_its_limit_is_told_with_its_key_and_both_values() {
        let mib = |mib: u64| Some(mib << 20);
        let ground = Ground {
            page_cache_bytes: mib(100),
            dirty_bytes: Some(1),
            free_huge_bytes: mib(512),
            ..Ground::default()
        };
        assert!(GroundRules::default().beyond(&ground).is_empty(), "no level is named");
        let at_their_limits = GroundRules {
            page_cache_mib: Some(100),
            free_huge_mib: Some(512),
            // What a kernel does not have.
            merged_mib: Some(0),
            zram_mib: Some(0),
            ..GroundRules::default()
        };
        assert!(at_their_limits.beyond(&ground).is_empty());
        let rules = GroundRules {
            page_cache_mib: Some(99),
            dirty_mib: Some(0),
            free_huge_mib: Some(513),
            cgroup_mib: Some(u64::MAX),
            ..GroundRules::default()
        };
        let rules = GroundRules { compact: true, ..rules };
        let described = rules.describe();
        assert_eq!(described[..2], ["compact", "page_cache_mib at most 99"]);
        assert_eq!(described[4], "free_huge_mib at least 513");
        assert_eq!(
            rules.beyond(&ground),
            [
                "ground.page_cache_mib is 100.0, not at most 99",
                "ground.dirty_mib is 0.0, not at most 0",
                "ground.cgroup_mib = 18446744073709551615, which this host does not tell",
                "ground.free_huge_mib is 512.0, not at least 513",
            ]
        );
    }
}
