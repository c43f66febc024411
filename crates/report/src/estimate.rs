//! Numbers, and how sure they are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownEstimate {
    /// The best guess.
    pub centre: f64,
    /// Its interval at [`Method::level`](crate::Method::level); none from a single boot or block.
    pub interval: Option<ShownInterval>,
}

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownInterval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}
