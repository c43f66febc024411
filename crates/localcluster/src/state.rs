//! Whether a cluster can be used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a cluster can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
    /// Its keeper runs and its node was ready.
    Up,
    /// It was begun and is not up yet.
    Starting,
    /// Its keeper is gone, or the vmlab that was to start it.
    Dead,
}

impl ClusterState {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Starting => "starting",
            Self::Dead => "dead",
        }
    }
}
