//! What the host did beside a trial, from which it is told whether the host
//! was steady.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The host during one trial, from before QEMU's start to after its end.
///
/// What could not be read is absent. "Its pCPUs" are those that the VM's vCPUs
/// may run on: where they are pinned, else all that are online.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostWatch {
    /// Number of the VM's pCPUs.
    pub pcpus: u32,
    /// How long was watched, s.
    pub wall_s: f64,
    /// Time of a fixed piece of computing on its pCPUs before the trial, s.
    pub canary_before_s: Option<f64>,
    /// The same after the trial, s.
    pub canary_after_s: Option<f64>,
    /// pCPU time on its pCPUs that neither vmlab nor the VM used, s: at least
    /// so much, as all of theirs is taken to have been used there.
    pub foreign_s: Option<f64>,
    /// pCPU time that vmlab and the VM used, wherever, s. Earlier versions did
    /// not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_s: Option<f64>,
    /// Time that the host's own hypervisor took from its pCPUs, s.
    pub steal_s: Option<f64>,
    /// Time in which some task of the host waited for memory, s.
    pub pressure_memory_s: Option<f64>,
    /// Time in which some task of the host waited for I/O, s.
    pub pressure_io_s: Option<f64>,
    /// Thermal throttling events of its pCPUs.
    pub throttles: Option<f64>,
    /// Mean clock of its pCPUs before the trial, Hz.
    pub clock_before_hz: Option<f64>,
    /// The same after the trial, Hz.
    pub clock_after_hz: Option<f64>,
}

/// What the host was seen to do beside a trial.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HostSign {
    /// Others used the VM's pCPUs.
    Others,
    /// The host's own hypervisor took time from them.
    Steal,
    /// Something waited for memory.
    Memory,
    /// The pCPUs' clock, or its change.
    Clock,
    /// A fixed piece of work beside the trial took longer.
    Canary,
    /// vCPUs waited for a pCPU. A VM with more vCPUs than pCPUs makes its own,
    /// so it can't be compared between variants.
    RunDelay,
    /// The pCPUs were throttled: a number of events, no logarithm. A busy VM
    /// heats them itself, so it can't be compared between variants.
    Throttles,
}

impl HostSign {
    /// True if it also depends on how much of its pCPUs the VM itself uses.
    #[must_use]
    pub fn follows_own_use(self) -> bool {
        matches!(self, Self::Others | Self::Steal)
    }

    /// True if no variant makes it itself, so that a difference is the host's.
    #[must_use]
    pub fn is_comparable(self) -> bool {
        !matches!(self, Self::RunDelay | Self::Throttles)
    }
}

impl fmt::Display for HostSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Others => "others' time on the pCPUs",
            Self::Steal => "steal",
            Self::Memory => "waiting for memory",
            Self::Clock => "the clock",
            Self::Canary => "the canary",
            Self::RunDelay => "vCPUs' wait for a pCPU",
            Self::Throttles => "throttling",
        })
    }
}

/// Why a block counts as unsteady.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UnsteadyCause {
    /// A trial was out of line with those of the same variant before it, unlike
    /// the others of its block.
    Trial {
        /// The trial's workload.
        workload: String,
        /// The trial's variant.
        variant: String,
        /// What showed it.
        sign: HostSign,
        /// By how much more than usual: of a share or a duration the logarithm
        /// of how much longer something may take for it (0.1 for 10 %), of
        /// throttling the events.
        excess: f64,
    },
    /// As journals up to version 0.1.0 tell it.
    Told(String),
}

impl HostWatch {
    /// The mean of the two canaries, s.
    #[must_use]
    pub fn canary_s(&self) -> Option<f64> {
        Some((self.canary_before_s? + self.canary_after_s?) / 2.0)
    }

    /// The part of its pCPUs' time that `seconds` are, 0 to 1.
    #[must_use]
    pub fn part_of_pcpus(&self, seconds: f64) -> f64 {
        let all_s = self.wall_s * f64::from(self.pcpus);
        if all_s > 0.0 { (seconds / all_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}
