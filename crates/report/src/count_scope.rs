//! What counters count per.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a counter's value is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CountScope {
    /// Each operation of the benchmark.
    Operation,
    /// Each run.
    Run,
    /// The moment at which a run ends: a level.
    End,
}
