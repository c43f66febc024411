//! One value with everything that is needed to judge it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Environment, Metric};

/// One value of one metric, as a benchmark printed it (in base units).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The metric's name inside its workload.
    pub metric: String,
    /// The value, in the metric's base unit.
    pub value: f64,
}

/// Which program made a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordSource {
    /// The tool: `hackbench`, `fio`, `vmlab sim`.
    pub tool: String,
    /// Its version, where it says one.
    pub version: Option<String>,
}

/// One row of `samples.csv` and `samples.json`: a sample and its settings.
///
/// The ladder is study > variant > cell (variant x load x workload) > trial
/// (one boot) > run (one benchmark invocation) > sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleRow {
    /// The study's name.
    pub study: String,
    /// The host-load level.
    pub load: String,
    /// The workload's label in the study.
    pub workload: String,
    /// The variant.
    pub variant: String,
    /// Block number, from 0.
    pub block: u32,
    /// Which attempt at the block, from 0.
    pub attempt: u32,
    /// False where the value takes no part in any comparison: its block was
    /// not completed or was done again.
    pub counted: bool,
    /// The trial's idempotent identity.
    pub trial: String,
    /// Position of the trial in the order in which trials were run, from 0.
    pub order: u32,
    /// Run inside the trial, from 0.
    pub run: u32,
    /// Sample inside the run, from 0.
    pub sample: u32,
    /// What it measures.
    #[serde(flatten)]
    pub metric: Metric,
    /// The value in base units.
    pub value: f64,
    /// Where it was measured.
    pub environment: Environment,
    /// Which program made it.
    pub source: RecordSource,
    /// Start of the run, seconds since the Unix epoch.
    pub started_unix_s: f64,
}
