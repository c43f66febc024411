//! Is B steadier than A? Two questions that must not be mixed: how much the
//! iterations of one boot differ, and how much boots differ.
//!
//! The first is a metric like others: [`unsteadiness`] is one number a boot, to
//! be compared inside blocks. The second needs many boots: below
//! [`LEAST_BOOTS`] of each nothing is claimed. Boots that blocks pair share the
//! host's drift, which [`compare_spread_in_blocks`] allows for; with no blocks
//! there is [`compare_spread`].
//!
//! Sources: M. B. Brown, A. B. Forsythe, "Robust tests for the equality of
//! variances", JASA 69 (1974); E. J. G. Pitman, "A note on normal correlation",
//! and W. A. Morgan, "A test for the significance of the difference between the
//! two variances in a sample from a normal bivariate population", Biometrika 31
//! (1939). The F test takes skew and outliers of boots for a difference in up to
//! a third of cases, and so does the coefficient of correlation that Pitman and
//! Morgan use, in half of them; ranks in a tenth. Studentised by the products
//! themselves it stays below 5 % in all of them.

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use crate::boot::median;
use crate::student::student_critical;
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

/// Two-sided p value of "A and B have the same spread", for values of which
/// each pair shares something, as boots of one block share the host's state:
/// after Pitman and Morgan, the spreads are equal where sums and differences of
/// the pairs have no correlation. None for fewer than three pairs, values that
/// are not finite, or no spread at all.
#[must_use]
pub fn pitman_morgan(pairs: &[(f64, f64)]) -> Option<f64> {
    let squares = Squares::of(pairs)?;
    let t = squares.difference(1.0) / squares.noise(1.0).sqrt();
    let student = StudentsT::new(0.0, 1.0, pairs.len() as f64 - 1.0).ok()?;
    (!t.is_nan()).then(|| (2.0 * student.cdf(-t.abs())).min(1.0))
}

/// Sums over pairs of `x`, the square of A's distance from its mean, and of
/// `y`, that of B's. The product of a pair's sum and difference is `y - x`.
struct Squares {
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Squares {
    fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 3 || pairs.iter().any(|(a, b)| !(a.is_finite() && b.is_finite())) {
            return None;
        }
        let n = pairs.len() as f64;
        let mean_a = pairs.iter().map(|(a, _)| a).sum::<f64>() / n;
        let mean_b = pairs.iter().map(|(_, b)| b).sum::<f64>() / n;
        let squares = || pairs.iter().map(|(a, b)| ((a - mean_a).powi(2), (b - mean_b).powi(2)));
        Some(Self {
            x: squares().map(|(x, _)| x).sum(),
            y: squares().map(|(_, y)| y).sum(),
            xx: squares().map(|(x, _)| x * x).sum(),
            xy: squares().map(|(x, y)| x * y).sum(),
            yy: squares().map(|(_, y)| y * y).sum(),
        })
    }

    /// How far B's variance is from `factor` times A's.
    fn difference(&self, factor: f64) -> f64 {
        self.y - factor * self.x
    }

    /// The variance of that, if the factor is the true one.
    fn noise(&self, factor: f64) -> f64 {
        self.yy - 2.0 * factor * self.xy + factor * factor * self.xx
    }

    /// The factors that a test with this critical value does not reject: those
    /// between the roots of a quadratic, as in Fieller's interval.
    fn factors(&self, critical: f64) -> (f64, f64) {
        let level = critical * critical;
        let a = self.x * self.x - level * self.xx;
        let half_b = self.x * self.y - level * self.xy;
        let c = self.y * self.y - level * self.yy;
        let under_root = half_b * half_b - a * c;
        let root = under_root.max(0.0).sqrt();
        let centre = self.y / self.x;
        let (low, high) = ((half_b - root) / a, (half_b + root) / a);
        let (low, high) = (low.min(high), low.max(high));
        if a > 0.0 {
            (low.max(0.0), high)
        } else if under_root <= 0.0 || low.is_nan() {
            (0.0, f64::INFINITY)
        } else if centre >= high {
            (high.max(0.0), f64::INFINITY)
        } else {
            (0.0, low)
        }
    }
}

/// What may be said about how much boots differ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum SpreadVerdict {
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
pub fn compare_spread(a: &[f64], b: &[f64], alpha: f64) -> SpreadVerdict {
    let enough = a.len().min(b.len()) >= LEAST_BOOTS;
    let differs = enough && brown_forsythe(a, b).is_some_and(|p| p < alpha);
    SpreadVerdict::of(differs, spread_ratio(a, b, 1.0 - alpha))
}

/// The same for boots that blocks pair: the logarithms of A and B, block by
/// block. What the boots of a block have in common counts as spread of both.
#[must_use]
pub fn compare_spread_in_blocks(pairs: &[(f64, f64)], alpha: f64) -> SpreadVerdict {
    let enough = pairs.len() >= LEAST_BOOTS;
    let differs = enough && pitman_morgan(pairs).is_some_and(|p| p < alpha);
    let ratio = Squares::of(pairs).filter(|squares| squares.x > 0.0 && squares.y > 0.0);
    let ratio = ratio.map(|squares| {
        let (lo, hi) = squares.factors(student_critical(pairs.len() as u32, alpha));
        Interval { lo, hi, level: 1.0 - alpha }.map(f64::sqrt)
    });
    SpreadVerdict::of(differs, ratio)
}

impl SpreadVerdict {
    fn of(differs: bool, ratio: Option<Interval>) -> Self {
        match ratio {
            Some(ratio) if differs && ratio.hi < 1.0 => Self::BSteadier { ratio },
            Some(ratio) if differs && ratio.lo > 1.0 => Self::BLessSteady { ratio },
            ratio => Self::CannotTell { ratio },
        }
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
    use proptest::prelude::*;
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
                claims += u32::from(!matches!(
                    compare_spread(&a, &b, 0.05),
                    SpreadVerdict::CannotTell { .. }
                ));
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

    /// Boots of one kind of noise, in units of its scale.
    fn luck(kind: &str, random: &mut Pcg64) -> f64 {
        match kind {
            "normal" => normal(random),
            // Student's t of three degrees of freedom.
            "heavy" => {
                let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                normal(random) / (squares / 3.0).sqrt()
            }
            "skewed" => normal(random).powi(2),
            "bimodal" => 0.2 * normal(random) + if random.random_bool(0.3) { 5.0 } else { 0.0 },
            other => panic!("{other}"),
        }
    }

    /// How often the test in blocks claims a difference of spread.
    fn claims(kind: &str, drift: f64, spread: f64, blocks: usize, random: &mut Pcg64) -> f64 {
        const STUDIES: u32 = 2000;
        let mut claims = 0;
        for _ in 0..STUDIES {
            let pairs: Vec<(f64, f64)> = (0..blocks)
                .map(|_| {
                    let shared = drift * normal(random);
                    (shared + luck(kind, random), 0.5 + shared + spread * luck(kind, random))
                })
                .collect();
            let found = compare_spread_in_blocks(&pairs, 0.05);
            claims += u32::from(!matches!(found, SpreadVerdict::CannotTell { .. }));
        }
        f64::from(claims) / f64::from(STUDIES)
    }

    #[test]
    fn spread_in_blocks_is_claimed_at_the_promised_rate_only() {
        let mut random = Pcg64::seed_from_u64(44);
        // Two standard errors of a rate of 5 % in so many studies.
        let error = 2.0 * (0.05_f64 * 0.95 / 2000.0).sqrt();
        for kind in ["normal", "heavy", "skewed", "bimodal"] {
            for drift in [0.0, 2.0] {
                for blocks in [20, 40] {
                    let rate = claims(kind, drift, 1.0, blocks, &mut random);
                    assert!(rate <= 0.05 + error, "{kind}, drift {drift}, {blocks}: {rate}");
                }
            }
        }
        assert!(claims("normal", 0.0, 3.0, 20, &mut random) > 0.85);
        assert!(claims("bimodal", 2.0, 3.0, 40, &mut random) > 0.85);
        assert_eq!(claims("normal", 0.0, 9.0, 19, &mut random), 0.0);
    }

    /// Squares of distances 1, 0, 1 and 4, 0, 4: 6 by the root of 18.
    #[test]
    fn pitman_and_morgan_by_hand() {
        let pairs = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)];
        let found = pitman_morgan(&pairs).unwrap();
        // P(|T| > t) for two degrees of freedom in closed form; t^2 = 2.
        let expected = 1.0 - (2.0_f64 / 4.0).sqrt();
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        assert_eq!(pitman_morgan(&pairs[..2]), None);
        assert_eq!(pitman_morgan(&[(1.0, 1.0); 5]), None);
        assert_eq!(pitman_morgan(&[(1.0, f64::NAN); 5]), None);
    }

    proptest! {
        /// The interval holds what the test does not reject, and no order of the
        /// blocks and no exchange of A and B matters.
        #[test]
        fn interval_and_test_in_blocks_agree(
            pairs in prop::collection::vec((-9.0..9.0_f64, -9.0..9.0_f64), LEAST_BOOTS..60),
            factor in 0.2..5.0_f64,
        ) {
            let ratio = |spread| match spread {
                SpreadVerdict::BSteadier { ratio } | SpreadVerdict::BLessSteady { ratio } => ratio,
                SpreadVerdict::CannotTell { ratio } => ratio.unwrap(),
            };
            let found = ratio(compare_spread_in_blocks(&pairs, 0.05));
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * factor, *b)).collect();
            let p = pitman_morgan(&scaled).unwrap();
            let edge = [found.lo, found.hi].map(|end| (end / factor - 1.0).abs());
            if found.contains(factor) {
                prop_assert!(p >= 0.05 || edge.iter().any(|edge| *edge < 1e-6), "{p} {found:?}");
            } else if found.lo > 0.0 && found.hi.is_finite() {
                prop_assert!(p <= 0.05 || edge.iter().any(|edge| *edge < 1e-6), "{p} {found:?}");
            }
            let other: Vec<_> = pairs.iter().rev().map(|(a, b)| (*b, *a)).collect();
            let mirrored = ratio(compare_spread_in_blocks(&other, 0.05));
            prop_assert!(mirrored.lo == 0.0 || (mirrored.lo * found.hi - 1.0).abs() < 1e-6);
        }
    }
}
