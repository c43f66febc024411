//! One variant alone, for tables and bars.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BootStatistic, Interval, SampleKind, t_test};

/// Centre and spread of one variant's boots, in the metric's unit.
///
/// Not for comparisons: two such intervals that overlap say nothing about the
/// difference inside the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Number of boots.
    pub boots: u32,
    /// Geometric mean of the boots' values; for counts that of `x + 1`, less 1
    /// ([`SampleKind::log`]).
    pub centre: f64,
    /// Student's t interval of the centre, computed on the logarithms; absent
    /// with a single boot.
    pub interval: Option<Interval>,
    /// Relative spread between boots: the standard deviation of the
    /// logarithms; absent with a single boot.
    pub spread: Option<f64>,
}

/// Describes a variant by its boots. None without boots, and if one of them
/// is not finite.
#[must_use]
pub fn describe(kind: SampleKind, boots: &[BootStatistic], level: f64) -> Option<Estimate> {
    let logs: Vec<f64> = boots.iter().map(|boot| boot.log).collect();
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let back = |log: f64| kind.value(log);
    let boots = logs.len() as u32;
    Some(match t_test(&logs, level) {
        Some(test) => {
            let mut interval = test.interval.map(back);
            // A count is never negative, whatever the interval of its logarithm.
            interval.lo = interval.lo.max(0.0);
            Estimate {
                boots,
                centre: back(test.mean),
                interval: Some(interval),
                spread: Some(test.sd),
            }
        }
        None => Estimate { boots, centre: back(logs[0]), interval: None, spread: None },
    })
}
