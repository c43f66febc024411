//! Is B steadier than A? Two questions that must not be mixed: how much the
//! iterations of one boot differ, and how much boots differ.
//!
//! The first is a metric like others: [`unsteadiness`] is one number a boot, to
//! be compared inside blocks. The second needs many boots: below
//! [`LEAST_BOOTS`] of each, [`compare_spread`] says that it can't tell.
//!
//! Source: M. B. Brown, A. B. Forsythe, "Robust tests for the equality of
//! variances", JASA 69 (1974). The F test takes skew and outliers of boots for
//! a difference in up to a third of cases.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::boot::median;
use crate::{Interval, welch};

/// Fewer boots of either say nothing about how boots differ.
pub const LEAST_BOOTS: usize = 20;
/// Of a normal distribution the standard deviation by the median distance.
const NORMAL: f64 = 1.4826;

/// How much the iterations of one boot differ, as the logarithm of their
/// relative standard deviation (by the median distance, so that single outliers
/// don't count), a linear trend taken out. None for fewer than five iterations,
/// values without a logarithm, or no difference at all.
#[must_use]
pub fn unsteadiness(iterations: &[f64]) -> Option<f64> {
    let n = iterations.len();
    let logs: Vec<f64> = iterations.iter().map(|value| value.ln()).collect();
    if n < 5 || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    // The median of all slopes (Theil and Sen) follows no outlier either.
    let slopes: Vec<f64> = (0..n)
        .flat_map(|i| (0..i).map(move |j| (i, j)))
        .map(|(i, j)| (logs[i] - logs[j]) / (i - j) as f64)
        .collect();
    let slope = median(&slopes);
    let level: Vec<f64> = logs.iter().enumerate().map(|(i, log)| log - slope * i as f64).collect();
    let middle = median(&level);
    let distances: Vec<f64> = level.iter().map(|value| (value - middle).abs()).collect();
    let spread = NORMAL * median(&distances);
    (spread > 0.0).then(|| spread.ln())
}

/// Two-sided p value of Brown and Forsythe's test: do the two samples differ
/// in spread? None for fewer than two values of either, values that are not
/// finite, or no spread at all.
#[must_use]
pub fn brown_forsythe(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 2 || b.len() < 2 || a.iter().chain(b).any(|value| !value.is_finite()) {
        return None;
    }
    let [a, b] = [a, b].map(distances);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let (n_a, n_b) = (a.len() as f64, b.len() as f64);
    let whole = (mean_a * n_a + mean_b * n_b) / (n_a + n_b);
    let between = n_a * (mean_a - whole).powi(2) + n_b * (mean_b - whole).powi(2);
    let squares = |values: &[f64], mean: f64| -> f64 {
        values.iter().map(|value| (value - mean).powi(2)).sum()
    };
    let within = squares(&a, mean_a) + squares(&b, mean_b);
    let freedom = n_a + n_b - 2.0;
    if within <= 0.0 {
        return None;
    }
    let fisher = FisherSnedecor::new(1.0, freedom).ok()?;
    Some(fisher.sf(between / (within / freedom)))
}

/// Distances from the median.
fn distances(values: &[f64]) -> Vec<f64> {
    let middle = median(values);
    values.iter().map(|value| (value - middle).abs()).collect()
}

/// What may be said about how much boots differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// B's boots differ less than A's.
    BSteadier {
        /// Spread of B by that of A.
        ratio: Interval,
    },
    /// B's boots differ more than A's.
    BLessSteady {
        /// Spread of B by that of A.
        ratio: Interval,
    },
    /// Too few boots, or no difference to be seen.
    CannotTell {
        /// Between these the ratio of spreads, B by A, may lie; absent if
        /// nothing is known.
        ratio: Option<Interval>,
    },
}

/// Compares how much the boots of A and B differ, by one logarithm a boot
/// ([`crate::BootStatistic::log`]), at the rate of false claims `alpha`.
#[must_use]
pub fn compare_spread(a: &[f64], b: &[f64], alpha: f64) -> Spread {
    let ratio = spread_ratio(a, b, 1.0 - alpha);
    let enough = a.len().min(b.len()) >= LEAST_BOOTS;
    let differs = enough && brown_forsythe(a, b).is_some_and(|p| p < alpha);
    match ratio {
        Some(ratio) if differs && ratio.hi < 1.0 => Spread::BSteadier { ratio },
        Some(ratio) if differs && ratio.lo > 1.0 => Spread::BLessSteady { ratio },
        ratio => Spread::CannotTell { ratio },
    }
}

/// Interval of the ratio of mean distances from the median, by Welch's t on
/// their means and the propagation of errors to the logarithm.
fn spread_ratio(a: &[f64], b: &[f64], level: f64) -> Option<Interval> {
    if a.iter().chain(b).any(|value| !value.is_finite()) || a.len() < 3 || b.len() < 3 {
        return None;
    }
    let relative = |values: &[f64]| -> Vec<f64> {
        let distances = distances(values);
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        distances.iter().map(|distance| distance / mean).collect()
    };
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let centre = (mean(distances(b)) / mean(distances(a))).ln();
    // Both have mean 1 now: what is left is the relative error of each.
    let errors = welch(&relative(a), &relative(b), level).ok()?;
    let half_width = errors.interval.hi - errors.difference;
    let interval = Interval { lo: centre - half_width, hi: centre + half_width, level };
    centre.is_finite().then(|| interval.map(f64::exp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::normal;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    #[test]
    fn unsteadiness_knows_neither_trend_nor_outlier() {
        let mut random = Pcg64::seed_from_u64(41);
        let noise: Vec<f64> = (0..400).map(|_| 0.02 * normal(&mut random)).collect();
        let found = |change: &dyn Fn(usize) -> f64| {
            let values: Vec<f64> =
                noise.iter().enumerate().map(|(i, noise)| (noise + change(i)).exp()).collect();
            unsteadiness(&values).unwrap().exp()
        };
        assert!((found(&|_| 3.0) / 0.02 - 1.0).abs() < 0.15);
        assert!((found(&|i| 0.01 * i as f64) / 0.02 - 1.0).abs() < 0.15);
        assert!((found(&|i| if i % 20 == 0 { 1.0 } else { 0.0 }) / 0.02 - 1.0).abs() < 0.2);
        assert_eq!(unsteadiness(&[1.0; 10]), None);
        assert_eq!(unsteadiness(&[1.0, 2.0, 3.0]), None);
        assert_eq!(unsteadiness(&[1.0, 2.0, 0.0, 4.0, 5.0]), None);
    }

    #[test]
    fn spread_is_claimed_at_the_promised_rate_only() {
        let mut random = Pcg64::seed_from_u64(42);
        let mut rate = |sd_b: f64, boots: usize, skewed: bool| {
            let mut claims = 0;
            for _ in 0..600 {
                let mut boots = |sd: f64| -> Vec<f64> {
                    let mut luck = || {
                        let luck = normal(&mut random);
                        sd * if skewed { luck * luck } else { luck }
                    };
                    (0..boots).map(|_| luck()).collect()
                };
                let (a, b) = (boots(0.01), boots(sd_b));
                claims +=
                    u32::from(!matches!(compare_spread(&a, &b, 0.05), Spread::CannotTell { .. }));
            }
            f64::from(claims) / 600.0
        };
        assert!(rate(0.01, 20, false) < 0.08);
        assert!(rate(0.01, 20, true) < 0.08);
        assert!(rate(0.03, 30, false) > 0.9);
        assert_eq!(rate(0.1, 19, false), 0.0);
    }

    /// Distances 1, 0, 1 and 2, 0, 2: 2/3 between and 10/3 within with 4 degrees
    /// of freedom, so F = 0.8.
    #[test]
    fn brown_and_forsythe_by_hand() {
        let found = brown_forsythe(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]).unwrap();
        // F(1, 4) = t(4)^2: P(|T| > sqrt(0.8)) by the closed form.
        let t = 0.8_f64.sqrt();
        let (sin, cos) = (t / 2.0).atan().sin_cos();
        let expected = 1.0 - sin * (1.0 + cos * cos / 2.0);
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        assert_eq!(brown_forsythe(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(brown_forsythe(&[1.0, 1.0], &[2.0, 2.0]), None);
        let mut random = Pcg64::seed_from_u64(43);
        let values: Vec<f64> = (0..9).map(|_| random.random()).collect();
        assert!((brown_forsythe(&values, &values).unwrap() - 1.0).abs() < 1e-9);
    }
}
