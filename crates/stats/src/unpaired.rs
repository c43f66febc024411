//! Two samples without blocks: what is left for numbers of which nobody knows
//! what was measured beside what. Drift of the machine counts as a difference
//! here; prefer blocks.
//!
//! [`mann_whitney`] and [`median_interval`] follow benchstat
//! (golang.org/x/perf/benchmath, github.com/aclements/go-moremath/stats), so
//! that its figures can be had again.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::Interval;
use crate::student::moments;

/// Greatest sample for which the distribution of U is exact, without ties.
const EXACT: usize = 50;
/// The same, with ties.
const EXACT_WITH_TIES: usize = 25;
/// Greatest sample whose order statistics are counted, not approximated.
const EXACT_MEDIAN: usize = 30;

/// Why two samples can't be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnpairedError {
    /// A sample has too few values.
    #[error("A sample has {found} values, at least {needed} are needed")]
    TooFew {
        /// Values found.
        found: usize,
        /// Values needed.
        needed: usize,
    },
    /// A value is infinite or not a number.
    #[error("A value is not a finite number")]
    NotFinite,
    /// No value differs from another.
    #[error("All values are equal")]
    AllEqual,
}

fn check(samples: [&[f64]; 2], needed: usize) -> Result<(), UnpairedError> {
    for sample in samples {
        if sample.len() < needed {
            return Err(UnpairedError::TooFew { found: sample.len(), needed });
        }
        if sample.iter().any(|value| !value.is_finite()) {
            return Err(UnpairedError::NotFinite);
        }
    }
    Ok(())
}

/// Two-sided p value of Mann and Whitney's U test: do values of one sample
/// tend to be greater than those of the other?
///
/// Exact for samples of at most 50 values, of at most 25 where values are
/// equal; beyond that the normal approximation, corrected for ties and
/// continuity. Costs a sort beyond the exact sizes.
///
/// # Errors
/// [`UnpairedError`], for which benchstat says p = 1.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Result<f64, UnpairedError> {
    check([a, b], 1)?;
    let mut merged: Vec<(f64, bool)> =
        a.iter().map(|value| (*value, true)).chain(b.iter().map(|value| (*value, false))).collect();
    merged.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    // Zero and minus zero are one value here, so `==` and not the order's key.
    let groups = merged.chunk_by(|x, y| x.0 == y.0);
    let mut ties = Vec::new();
    // Twice U, so that halves stay whole: each pair counts 2, or 1 if equal.
    let (mut twice_u, mut b_below) = (0_usize, 0_usize);
    for group in groups {
        let of_a = group.iter().filter(|(_, is_a)| *is_a).count();
        let of_b = group.len() - of_a;
        twice_u += of_a * (2 * b_below + of_b);
        b_below += of_b;
        ties.push(group.len());
    }
    if ties.len() == 1 {
        return Err(UnpairedError::AllEqual);
    }
    let pairs = a.len() * b.len();
    // With ties U is not distributed alike on both sides of its mean: the tail
    // is that of the sample whose U is the smaller one.
    let (first, smaller) =
        if twice_u <= pairs { (a.len(), twice_u) } else { (b.len(), 2 * pairs - twice_u) };
    let has_ties = ties.len() < merged.len();
    let limit = if has_ties { EXACT_WITH_TIES } else { EXACT };
    if a.len().max(b.len()) > limit {
        return Ok(approximate(twice_u as f64 / 2.0, a.len(), b.len(), &ties));
    }
    if smaller == pairs {
        return Ok(1.0);
    }
    let tail = if has_ties {
        lower_tail_with_ties(first, &ties, smaller)
    } else {
        lower_tail(a.len(), b.len(), smaller / 2)
    };
    Ok((2.0 * tail).min(1.0))
}

fn approximate(u: f64, a: usize, b: usize, ties: &[usize]) -> f64 {
    let (a, b) = (a as f64, b as f64);
    let n = a + b;
    let tied: f64 = ties.iter().map(|&ties| ties as f64).map(|ties| ties.powi(3) - ties).sum();
    let sd = (a * b * ((n + 1.0) - tied / (n * (n - 1.0))) / 12.0).sqrt();
    let distance = ((u - a * b / 2.0).abs() - 0.5).max(0.0);
    2.0 * Normal::standard().cdf(-distance / sd)
}

/// `P(U <= u)` without ties: the number of ways is a coefficient of the
/// Gaussian binomial, by multiplying and dividing its factors.
fn lower_tail(a: usize, b: usize, u: usize) -> f64 {
    let mut ways = vec![0.0_f64; u + 1];
    ways[0] = 1.0;
    let mut all = 1.0;
    for factor in 1..=a {
        for sum in (b + factor..=u).rev() {
            ways[sum] -= ways[sum - b - factor];
        }
        for sum in factor..=u {
            ways[sum] += ways[sum - factor];
        }
        all *= (b + factor) as f64 / factor as f64;
    }
    ways.iter().sum::<f64>() / all
}

/// `P(2 U <= twice_u)` given how many values are equal to each other: each
/// group of equal values gives some of its places to the first sample, of `a`
/// values.
fn lower_tail_with_ties(a: usize, ties: &[usize], twice_u: usize) -> f64 {
    // Ways to (choose so many values for the first sample so far, reach so much
    // of twice U), whole numbers that an f64 holds exactly.
    let width = twice_u + 1;
    let mut ways = vec![0.0_f64; (a + 1) * width];
    ways[0] = 1.0;
    let places: usize = ties.iter().sum();
    let mut seen = 0;
    for &size in ties {
        let after = places - seen - size;
        // From the greatest number down: what is read is still that of before.
        for chosen in (a.saturating_sub(after)..=a.min(seen + size)).rev() {
            // Each value that is still to choose lies above those that the
            // second sample has by then: whatever can't end within the tail
            // need not be counted.
            let to_come = 2 * (a - chosen) * (seen + size - chosen);
            let Some(within) = width.checked_sub(to_come) else { continue };
            let mut choices = 1.0;
            for taken in 1..=size.min(chosen) {
                choices *= (size + 1 - taken) as f64 / taken as f64;
                let Some(left) = seen.checked_sub(chosen - taken) else { continue };
                let gain = taken * (2 * left + size - taken);
                if gain < within {
                    let (below, here) = ways.split_at_mut(chosen * width);
                    let from = &below[(chosen - taken) * width..][..within - gain];
                    for (to, from) in here[gain..within].iter_mut().zip(from) {
                        *to += choices * from;
                    }
                }
            }
        }
        seen += size;
    }
    let all = (1..=a).fold(1.0, |all, k| all * (places - a + k) as f64 / k as f64);
    ways[a * width..].iter().sum::<f64>() / all
}

/// What Welch's t test says about the difference of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// Mean of the second sample less that of the first.
    pub difference: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Degrees of freedom, by Welch and Satterthwaite; not whole.
    pub freedom: f64,
    /// Interval of the difference.
    pub interval: Interval,
    /// Two-sided p value of "there is no difference".
    pub p: f64,
}

/// Welch's t test of two means whose variances may differ, with the interval
/// at `level`. On logarithms, `exp` of the difference is the ratio.
///
/// # Errors
/// [`UnpairedError`]: each sample needs two values, and some must differ.
pub fn welch(a: &[f64], b: &[f64], level: f64) -> Result<Welch, UnpairedError> {
    check([a, b], 2)?;
    let (part_a, part_b) = (moments(a), moments(b));
    let share = |part: (f64, f64), n: usize| part.1 * part.1 / n as f64;
    let (share_a, share_b) = (share(part_a, a.len()), share(part_b, b.len()));
    let variance = share_a + share_b;
    let spread = share_a.powi(2) / (a.len() - 1) as f64 + share_b.powi(2) / (b.len() - 1) as f64;
    let freedom = variance * variance / spread;
    let difference = part_b.0 - part_a.0;
    let standard_error = variance.sqrt();
    let student = StudentsT::new(0.0, 1.0, freedom).map_err(|_| UnpairedError::AllEqual)?;
    let half_width = student.inverse_cdf(f64::midpoint(1.0, level)) * standard_error;
    Ok(Welch {
        difference,
        standard_error,
        freedom,
        interval: Interval { lo: difference - half_width, hi: difference + half_width, level },
        p: (2.0 * student.cdf(-(difference / standard_error).abs())).min(1.0),
    })
}

/// Median, and the interval between two order statistics that holds the
/// population's median at least at `level`, whatever the distribution. An end
/// is infinite where the sample is too small for it (below 6 values for 0.95).
/// Of two intervals that are equally good the lower one, as benchstat does.
/// None without values and for values that are not finite.
#[must_use]
pub fn median_interval(values: &[f64], level: f64) -> Option<(f64, Interval)> {
    let n = values.len();
    if n == 0 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = n / 2;
    let median =
        if n % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
    let (lo, hi, level) = orders(n, level);
    let value = |order: i64, outside: f64| {
        let place = usize::try_from(order - 1).ok();
        place.and_then(|place| sorted.get(place)).copied().unwrap_or(outside)
    };
    let lo = value(lo, f64::NEG_INFINITY);
    Some((median, Interval { lo, hi: value(hi, f64::INFINITY), level }))
}

/// Probability of `k` heads in `n` throws. Beyond 20 throws by logarithms, as
/// benchstat computes it: of two sides that are equally likely its rounding
/// picks one, and so does this.
fn evenly(n: i64, k: i64) -> f64 {
    if k > n {
        return 0.0;
    }
    let choices = if n <= 20 || k == 0 || k == n {
        (1..=k).fold(1.0, |choices, i| choices * (n - k + i) as f64 / i as f64).round()
    } else {
        let log = |n: i64| libm::lgamma((n + 1) as f64);
        (log(n) - log(k) - log(n - k)).exp()
    };
    choices * 0.5_f64.powi(n as i32)
}

/// The order statistics, from 1, that bound the median of `n` values, and the
/// level that they have.
fn orders(n: usize, level: f64) -> (i64, i64, f64) {
    let all = n as i64 + 1;
    if level >= 1.0 {
        return (0, all, 1.0);
    }
    if n <= EXACT_MEDIAN {
        let probability = |k: i64| if k < 0 { 0.0 } else { evenly(n as i64, k) };
        // Out from the middle, the likelier side first, left if both are.
        let mut left = (all - 1) / 2;
        let mut right = left + 1;
        let mut sum = probability(left);
        let (mut below, mut above) = (probability(left - 1), probability(right));
        while sum < level && (below > 0.0 || above > 0.0) {
            if below >= above {
                sum += below;
                left -= 1;
                below = probability(left - 1);
            } else {
                sum += above;
                right += 1;
                above = probability(right);
            }
        }
        return (left, right, sum.min(1.0));
    }
    let (mean, sd) = (n as f64 / 2.0, (n as f64).sqrt() / 2.0);
    let normal = Normal::new(mean, sd).expect("the deviation is positive");
    let covered =
        |left: i64, right: i64| normal.cdf(right as f64 - 0.5) - normal.cdf(left as f64 - 0.5);
    let left_end = normal.inverse_cdf((1.0 - level) / 2.0);
    let right_end = 2.0 * mean - left_end;
    let left = (left_end - 0.5).floor() as i64 + 1;
    let right = (right_end - 0.5).ceil() as i64 + 1;
    let shorter = covered(left, right - 1);
    if shorter >= level { (left, right - 1, shorter) } else { (left, right, covered(left, right)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        a: Vec<f64>,
        b: Vec<f64>,
        /// How benchstat shows the medians' intervals.
        ci: [String; 2],
        /// To three digits.
        p: f64,
    }

    fn as_benchstat_shows(values: &[f64]) -> String {
        let (median, interval) = median_interval(values, 0.95).unwrap();
        if !(interval.lo.is_finite() && interval.hi.is_finite()) {
            return "∞".to_owned();
        }
        let width = (interval.hi / median - 1.0).max(1.0 - interval.lo / median);
        format!("{:.0}%", 100.0 * width)
    }

    #[test]
    fn benchstat_says_the_same() {
        let text = include_str!("../testdata/benchstat-20260908/cases.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        assert_eq!(cases.len(), 50);
        for Case { a, b, ci, p } in cases {
            let found = mann_whitney(&a, &b).unwrap_or(1.0);
            assert_eq!(format!("{found:.3}"), format!("{p:.3}"), "{a:?} {b:?}");
            assert_eq!([as_benchstat_shows(&a), as_benchstat_shows(&b)], ci, "{a:?} {b:?}");
        }
    }

    /// Every way to choose the first sample's places, counted one by one.
    #[test]
    fn exact_p_values_are_those_of_all_choices() {
        for values in [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 9.0]] {
            let split = |chosen: u32| -> (Vec<f64>, Vec<f64>) {
                let (a, b): (Vec<_>, Vec<_>) =
                    values.iter().enumerate().partition(|(place, _)| chosen >> place & 1 == 1);
                let values = |side: Vec<(usize, &f64)>| side.into_iter().map(|(_, v)| *v).collect();
                (values(a), values(b))
            };
            let u = |chosen: u32| -> f64 {
                let (a, b) = split(chosen);
                let wins = |x: &f64| -> f64 {
                    b.iter()
                        .map(|y| {
                            if x > y {
                                1.0
                            } else if x == y {
                                0.5
                            } else {
                                0.0
                            }
                        })
                        .sum()
                };
                a.iter().map(wins).sum()
            };
            let all: Vec<u32> =
                (0..1 << 7).filter(|chosen: &u32| chosen.count_ones() == 3).collect();
            for &chosen in &all {
                let (a, b) = split(chosen);
                // With ties the two tails are not alike.
                let here = u(chosen);
                let beyond = |other: &&u32| match here <= 6.0 {
                    true => u(**other) <= here,
                    false => u(**other) >= here,
                };
                let tail = all.iter().filter(beyond).count();
                let expected = (2.0 * tail as f64 / all.len() as f64).min(1.0);
                let found = mann_whitney(&a, &b).unwrap();
                assert!((found - expected).abs() < 1e-12, "{a:?} {b:?}: {found} {expected}");
            }
        }
    }

    /// By hand: means 2 and 5, variances 1 and 4, so 5/3 by 3 values each.
    #[test]
    fn welch_by_hand() {
        let found = welch(&[1.0, 2.0, 3.0], &[3.0, 5.0, 7.0], 0.95).unwrap();
        assert!((found.difference - 3.0).abs() < 1e-12);
        assert!((found.standard_error - (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((found.freedom - 50.0 / 17.0).abs() < 1e-12);
        assert!(found.p > 0.05 && !found.interval.contains(-1.2) && found.interval.contains(0.0));
        let equal = welch(&[1.0, 1.0], &[2.0, 2.0], 0.95);
        assert_eq!(equal, Err(UnpairedError::AllEqual));
    }

    #[test]
    fn samples_that_say_nothing_are_refused() {
        let few = |found, needed| Err(UnpairedError::TooFew { found, needed });
        assert_eq!(mann_whitney(&[], &[1.0]), few(0, 1));
        assert_eq!(mann_whitney(&[1.0, 1.0], &[1.0]), Err(UnpairedError::AllEqual));
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), Err(UnpairedError::NotFinite));
        assert_eq!(mann_whitney(&[1.0; 60], &[1.0; 60]), Err(UnpairedError::AllEqual));
        assert_eq!(
            welch(&[1.0], &[1.0, 2.0], 0.95).unwrap_err().to_string(),
            "A sample has 1 values, at least 2 are needed"
        );
        assert_eq!(median_interval(&[], 0.95), None);
        let (median, interval) = median_interval(&[2.0], 0.95).unwrap();
        assert_eq!((median, interval.lo, interval.hi), (2.0, f64::NEG_INFINITY, f64::INFINITY));
    }
}
