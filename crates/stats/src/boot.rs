//! The samples of one boot become one number.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What sort of quantity the samples are, which decides how the samples of
/// one boot become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SampleKind {
    /// Durations and mean latencies: the median of the logarithms.
    Time,
    /// Work by time: the harmonic mean, which is total work by total time
    /// when every sample did the same work.
    Rate,
    /// Quantiles and extremes of a distribution: the median of the logarithms.
    Quantile,
    /// Events or bytes, zero allowed: the median of `ln(x + 1)`.
    Count,
    /// Parts of a whole, zero allowed: the median of `ln(100 x + 1)`. That they
    /// lie near 1 would make the logarithm of a count a difference, not a ratio;
    /// of hundredths it is one, but for the very small.
    Part,
}

impl SampleKind {
    /// The smallest sample that has a place in a ratio. A subnormal number has
    /// too few digits left for one.
    #[must_use]
    pub fn least(self) -> f64 {
        match self {
            Self::Count | Self::Part => 0.0,
            Self::Time | Self::Rate | Self::Quantile => f64::MIN_POSITIVE,
        }
    }

    /// What is compared of a sample that is not below [`SampleKind::least`].
    #[must_use]
    pub fn log(self, value: f64) -> f64 {
        match self {
            Self::Count => value.ln_1p(),
            Self::Part => (value * PARTS).ln_1p(),
            Self::Time | Self::Rate | Self::Quantile => value.ln(),
        }
    }

    /// The inverse of [`SampleKind::log`].
    #[must_use]
    pub fn value(self, log: f64) -> f64 {
        match self {
            Self::Count => log.exp_m1(),
            Self::Part => log.exp_m1() / PARTS,
            Self::Time | Self::Rate | Self::Quantile => log.exp(),
        }
    }
}

/// Parts are counted in hundredths.
const PARTS: f64 = 100.0;

/// One boot's number, as it is shown and as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootStatistic {
    /// In the metric's unit.
    pub value: f64,
    /// What is compared, [`SampleKind::log`] of it.
    pub log: f64,
}

/// Why the samples of a boot give no number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum UnusableSamples {
    /// There is no sample.
    #[error("No samples")]
    Empty,
    /// A sample is infinite or not a number.
    #[error("Sample {index} is {value}: not a finite number")]
    NotFinite {
        /// Its place, from 0.
        index: usize,
        /// The sample.
        value: f64,
    },
    /// A sample is below [`SampleKind::least`].
    #[error("Sample {index} is {value}: too small for a ratio")]
    NotPositive {
        /// Its place, from 0.
        index: usize,
        /// The sample.
        value: f64,
    },
}

/// Reduces the samples of one boot to its number. The order of the samples
/// does not matter, to the last bit.
///
/// # Errors
/// [`UnusableSamples`] names the first sample that has no place in a ratio.
pub fn boot_statistic(kind: SampleKind, samples: &[f64]) -> Result<BootStatistic, UnusableSamples> {
    if samples.is_empty() {
        return Err(UnusableSamples::Empty);
    }
    for (index, &value) in samples.iter().enumerate() {
        if !value.is_finite() {
            return Err(UnusableSamples::NotFinite { index, value });
        }
        if value < kind.least() {
            return Err(UnusableSamples::NotPositive { index, value });
        }
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(match kind {
        SampleKind::Time | SampleKind::Quantile | SampleKind::Count | SampleKind::Part => {
            let log = median_of_sorted(&sorted, |value| kind.log(value));
            BootStatistic { value: kind.value(log), log }
        }
        SampleKind::Rate => {
            // Relative to the smallest rate, so that no sum overflows.
            let smallest = sorted[0];
            let mean = sorted.iter().map(|rate| smallest / rate).sum::<f64>() / sorted.len() as f64;
            let log = smallest.ln() - mean.ln();
            BootStatistic { value: log.exp(), log }
        }
    })
}

/// The median of values of which there is at least one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    median_of_sorted(&sorted, |value| value)
}

/// The median of `transform` over values that are sorted and not empty;
/// `transform` is increasing.
fn median_of_sorted(sorted: &[f64], transform: impl Fn(f64) -> f64) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        transform(sorted[middle])
    } else {
        f64::midpoint(transform(sorted[middle - 1]), transform(sorted[middle]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_centre() {
        let check = |kind, samples: &[f64], expected: f64| {
            let found = boot_statistic(kind, samples).unwrap().value;
            assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{kind:?}: {found}");
        };
        check(SampleKind::Time, &[3.0, 1.0, 100.0], 3.0);
        check(SampleKind::Time, &[1.0, 4.0], 2.0);
        // 60 km/h there, 30 km/h back: 40 km/h.
        check(SampleKind::Rate, &[60.0, 30.0], 40.0);
        check(SampleKind::Quantile, &[5.0], 5.0);
        check(SampleKind::Count, &[0.0, 0.0, 7.0], 0.0);
        check(SampleKind::Count, &[7.0, 9.0, 8.0], 8.0);
        check(SampleKind::Rate, &[f64::MAX, f64::MAX], f64::MAX);
        check(SampleKind::Part, &[0.25, 1.0, 0.0], 0.25);
        check(SampleKind::Part, &[0.0], 0.0);
    }

    #[test]
    fn a_third_of_the_hits_is_a_third() {
        // As a count, 1.00 against 0.31 would be x0.66.
        let log = |kind: SampleKind, value| kind.log(value);
        let ratio = |kind| (log(kind, 0.31) - log(kind, 1.0)).exp();
        assert!((ratio(SampleKind::Part) - 0.317).abs() < 1e-3);
        assert!((ratio(SampleKind::Count) - 0.655).abs() < 1e-3);
    }

    #[test]
    fn what_is_compared_goes_back() {
        use SampleKind::{Count, Part, Quantile, Rate, Time};
        for kind in [Time, Rate, Quantile, Count, Part] {
            for value in [kind.least(), 1e-3, 0.5, 1.0, 7e9] {
                let back = kind.value(kind.log(value));
                assert!((back - value).abs() <= 1e-9 * value, "{kind:?} {value}: {back}");
            }
        }
    }

    #[test]
    fn samples_without_a_ratio_are_refused() {
        let check = |kind, samples: &[f64], expected: &str| {
            assert_eq!(boot_statistic(kind, samples).unwrap_err().to_string(), expected);
        };
        check(SampleKind::Time, &[], "No samples");
        check(SampleKind::Time, &[1.0, 0.0], "Sample 1 is 0: too small for a ratio");
        check(SampleKind::Rate, &[-1.0], "Sample 0 is -1: too small for a ratio");
        check(SampleKind::Count, &[-1.0], "Sample 0 is -1: too small for a ratio");
        check(SampleKind::Part, &[0.0, -0.1], "Sample 1 is -0.1: too small for a ratio");
        check(SampleKind::Count, &[f64::NAN], "Sample 0 is NaN: not a finite number");
        check(SampleKind::Quantile, &[1.0, f64::INFINITY], "Sample 1 is inf: not a finite number");
    }
}
