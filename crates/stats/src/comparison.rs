//! One question to the blocks, and the blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BetterDirection, BootStatistic, Disturbance};

/// A log ratio nearer to 0 than this is rounding, not a difference: equal
/// measurements must not become a significant 1e-16.
pub(crate) const ROUNDING: f64 = 1e-12;

/// Within-block log ratios `ln(B / A)`, one a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairedBlocks {
    /// One for each block in which both were measured.
    pub log_ratios: Vec<f64>,
}

impl PairedBlocks {
    /// From the two boots of each block.
    #[must_use]
    pub fn from_boots(pairs: impl IntoIterator<Item = (BootStatistic, BootStatistic)>) -> Self {
        let log_ratio = |(a, b): (BootStatistic, BootStatistic)| {
            let difference = b.log - a.log;
            if difference.abs() < ROUNDING { 0.0 } else { difference }
        };
        Self { log_ratios: pairs.into_iter().map(log_ratio).collect() }
    }
}

/// One question: how does B compare with A in one metric, load and workload?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The data.
    pub blocks: PairedBlocks,
    /// The metric's better direction.
    pub better: BetterDirection,
    /// The smallest relative difference that matters, e.g. 0.03.
    pub margin: f64,
    /// True if A and B are the same configuration under two names.
    pub aa: bool,
    /// What the host did beside A and B in each block; empty where nobody
    /// looked.
    pub host: Vec<[Disturbance; 2]>,
}
