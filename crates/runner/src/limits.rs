//! Limits beyond which a trial is out of line.

use record::HostSign;
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
