//! A value from a log that vmlab did not make.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Better, MetricKind, Unit};

/// One value of a tool's log, with what the log says about it.
///
/// A log knows nothing of studies, so what tells its values apart are labels:
/// those that the tool prints (`op=write`, `threads=4`) and those that whoever
/// imports it adds (`variant=pinned`, `boot=3`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Imported {
    /// The metric's name inside its tool.
    pub metric: String,
    /// The value, in base units.
    pub value: f64,
    /// The base unit: `s`, `B`, `1/s`, `B/s`, `count`, ...
    pub unit: Unit,
    /// Which direction is better, where the log's format decides that.
    pub better: Option<Better>,
    /// What sort of quantity it is.
    pub kind: MetricKind,
    /// What tells it from other values of the same metric.
    pub labels: BTreeMap<String, String>,
    /// The line that it stands in, from 1.
    pub line: usize,
}
