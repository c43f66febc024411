//! What one copy of a test counted, as it says it to the one that started it.

use serde::{Deserialize, Serialize};

use crate::pace::TimedLoop;

/// How this program is called to be a copy: this, the test, its seconds, its
/// folder, and what the test itself adds.
pub(crate) const NAME: &str = "unixbench-copy";

/// What one copy counted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CopyCount {
    pub(super) ops: f64,
    pub(super) elapsed_s: f64,
    pub(super) right: bool,
}

impl CopyCount {
    pub(super) fn new(done: TimedLoop, right: bool) -> Self {
        Self { ops: done.ops as f64, elapsed_s: done.elapsed_s, right }
    }
}
