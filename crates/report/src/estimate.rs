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

/// A factor that an interval which bounds anything does not reach on both sides of its
/// centre. Two blocks have one of a factor of 1e300.
const EXCLUDES_NOTHING: f64 = 1000.0;

/// What people read in place of an interval that bounds nothing; records keep its numbers.
pub const NO_BOUND_YET: &str = "[not known yet]";

/// Whether an interval around `centre` tells anything: where it is a thousand times as
/// much and a thousandth, both ends only say that there are too few blocks.
#[must_use]
pub fn is_bound(centre: f64, lo: f64, hi: f64) -> bool {
    let size = centre.abs();
    size == 0.0 || lo > size / EXCLUDES_NOTHING || hi < size * EXCLUDES_NOTHING
}

impl ShownEstimate {
    /// Its interval if that tells anything.
    #[must_use]
    pub fn bound(&self) -> Option<ShownInterval> {
        self.interval.filter(|span| is_bound(self.centre, span.lo, span.hi))
    }

    /// Its interval as people read it: made by `show`, if it tells anything.
    pub(crate) fn shown_interval(&self, show: impl Fn(ShownInterval) -> String) -> Option<String> {
        self.interval?;
        Some(self.bound().map_or_else(|| NO_BOUND_YET.to_owned(), show))
    }
}

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownInterval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}
