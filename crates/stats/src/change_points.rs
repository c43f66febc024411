//! Where a series of results changed: for the same measurement repeated over
//! weeks, not for comparing configurations.
//!
//! A segment is split where the energy distance between its two parts is
//! greatest, as long as a weak test lets it pass; then, from the least
//! significant point up, points are taken away again until each one left
//! stands out by Student's t and by size. Nothing is drawn at random, so the
//! same series gives the same points for ever.
//!
//! Sources: D. S. Matteson, N. A. James, "A Nonparametric Approach for Multiple
//! Change Point Analysis of Multivariate Data", JASA 109 (2014) (E-divisive);
//! M. Fleming et al., "Hunter: Using Change Point Detection to Hunt for
//! Performance Regressions", ICPE 2023 (splitting weakly, then merging).

use crate::{BetterDirection, LogRatio, Verdict, welch};

/// What makes a change point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeRule {
    /// Greatest two-sided p value of Student's t between the segments beside
    /// the point.
    pub max_p: f64,
    /// Smallest difference of the segments' means that is of interest, on the
    /// scale of the values (for logarithms 0.05 is about 5 %).
    pub min_change: f64,
}

impl Default for ChangeRule {
    /// One false point in a thousand looks, and changes of about 5 %.
    fn default() -> Self {
        Self { max_p: 0.001, min_change: 0.05 }
    }
}

/// A point at which a series changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub index: usize,
    /// Mean of the segment before it.
    pub before: f64,
    /// Mean of the segment after it.
    pub after: f64,
    /// Two-sided p value of "both segments have one mean" (Welch).
    pub p: f64,
}

impl ChangePoint {
    /// What became of a series of logarithms: better or worse, as the rule that found the
    /// point left no other answer.
    #[must_use]
    pub fn verdict(&self, better: BetterDirection) -> Verdict {
        let mean = self.after - self.before;
        LogRatio { mean, half_width: 0.0, half_width_of_equivalence: 0.0 }.verdict(
            better,
            0.0,
            |_| 0,
        )
    }
}

/// Splitting asks this many times less than the rule: a change beside another
/// one is easier to see once both are cut.
const WEAKER: f64 = 10.0;

/// The least values that a segment has: fewer say nothing about their spread.
const LEAST: usize = 3;

/// The points at which `values`, in the order of time, changed. None where
/// there are fewer than six values, or one that is not finite.
#[must_use]
pub fn change_points(values: &[f64], rule: &ChangeRule) -> Vec<ChangePoint> {
    if values.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let mut points = Vec::new();
    split(values, 0, (rule.max_p * WEAKER).min(1.0), &mut points);
    points.sort_unstable();
    merge(values, points, rule)
}

/// Adds the points of `values`, which begin at `offset` of the whole series.
fn split(values: &[f64], offset: usize, max_p: f64, points: &mut Vec<usize>) {
    let Some(at) = widest(values) else { return };
    let (before, after) = values.split_at(at);
    if welch_p(before, after) > max_p {
        return;
    }
    points.push(offset + at);
    split(before, offset, max_p, points);
    split(after, offset + at, max_p, points);
}

/// Where the energy distance between both sides is greatest.
fn widest(values: &[f64]) -> Option<usize> {
    let n = values.len();
    if n < 2 * LEAST {
        return None;
    }
    // Sums of distances: among the first `k` values, among the others, and
    // between both. Moving the border by one value changes each by that
    // value's distances to both sides.
    let distances = |x: f64, others: &[f64]| others.iter().map(|y| (x - y).abs()).sum::<f64>();
    let mut within_left = 0.0;
    let mut within_right: f64 = (0..n).map(|i| distances(values[i], &values[i + 1..])).sum();
    let mut between = 0.0;
    let mut best: Option<(f64, usize)> = None;
    for k in 1..n {
        let moved = values[k - 1];
        let (to_left, to_right) =
            (distances(moved, &values[..k - 1]), distances(moved, &values[k..]));
        within_left += to_left;
        within_right -= to_right;
        between += to_right - to_left;
        if k < LEAST || n - k < LEAST {
            continue;
        }
        let (left, right) = (k as f64, (n - k) as f64);
        let pairs = |n: f64| n * (n - 1.0) / 2.0;
        let energy = 2.0 * between / (left * right)
            - within_left / pairs(left)
            - within_right / pairs(right);
        let statistic = left * right / (left + right) * energy;
        if best.is_none_or(|(most, _)| statistic > most) {
            best = Some((statistic, k));
        }
    }
    best.map(|(_, k)| k)
}

/// Takes points away, the least significant first, until all satisfy `rule`.
fn merge(values: &[f64], mut points: Vec<usize>, rule: &ChangeRule) -> Vec<ChangePoint> {
    loop {
        let found: Vec<ChangePoint> = (0..points.len())
            .map(|i| {
                let from = if i == 0 { 0 } else { points[i - 1] };
                let to = points.get(i + 1).copied().unwrap_or(values.len());
                let (before, after) = (&values[from..points[i]], &values[points[i]..to]);
                ChangePoint {
                    index: points[i],
                    before: mean(before),
                    after: mean(after),
                    p: welch_p(before, after),
                }
            })
            .collect();
        let stands = |point: &ChangePoint| {
            point.p <= rule.max_p && (point.after - point.before).abs() >= rule.min_change
        };
        let weakest = found
            .iter()
            .enumerate()
            .filter(|(_, point)| !stands(point))
            .max_by(|a, b| a.1.p.total_cmp(&b.1.p));
        match weakest {
            Some((i, _)) => points.remove(i),
            None => return found,
        };
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Two-sided p value of Welch's t; 0 for different values without any spread.
fn welch_p(a: &[f64], b: &[f64]) -> f64 {
    match welch(a, b, 0.95) {
        Ok(test) => test.p,
        Err(_) if mean(a) == mean(b) => 1.0,
        Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    /// Values around the levels, `each` of them a level, with a spread of about
    /// `noise`.
    fn series(levels: &[f64], each: usize, noise: f64, seed: u64) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut wobble = || noise * (0..12).map(|_| rng.random::<f64>() - 0.5).sum::<f64>();
        levels.iter().flat_map(|level| vec![*level; each]).map(|level| level + wobble()).collect()
    }

    fn indices(values: &[f64]) -> Vec<usize> {
        change_points(values, &ChangeRule::default()).iter().map(|point| point.index).collect()
    }

    #[test]
    fn steps_are_found_where_they_are() {
        assert_eq!(indices(&series(&[0.0, 0.1], 10, 0.01, 1)), [10]);
        assert_eq!(indices(&series(&[0.0, 0.1, 0.0], 10, 0.01, 2)), [10, 20]);
        assert_eq!(indices(&series(&[0.0, 0.1, 0.3, 0.2], 8, 0.01, 3)), [8, 16, 24]);
        assert_eq!(indices(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]), [3]);
        let point = change_points(&series(&[0.0, 0.1], 10, 0.01, 1), &ChangeRule::default())[0];
        assert!((point.after - point.before - 0.1).abs() < 0.01, "{point:?}");
        assert_eq!(point.verdict(BetterDirection::Lower), Verdict::BWorse);
        assert_eq!(point.verdict(BetterDirection::Higher), Verdict::BBetter);
    }

    #[test]
    fn small_steps_short_series_and_single_outliers_are_no_change() {
        let check = |values: &[f64]| assert_eq!(indices(values), [0_usize; 0], "{values:?}");
        check(&series(&[0.0, 0.02], 20, 0.001, 4));
        check(&[0.0, 0.0, 1.0, 1.0]);
        check(&[0.0; 30]);
        check(&[]);
        check(&[0.0, 0.0, 0.0, f64::NAN, 1.0, 1.0, 1.0, 1.0]);
        let mut one = series(&[0.0], 30, 0.01, 5);
        one[15] = 0.5;
        check(&one);
    }

    #[test]
    fn noise_alone_rarely_makes_a_point() {
        let false_points = (0..400)
            .filter(|seed| !indices(&series(&[0.0], 40, 0.05, 1000 + seed)).is_empty())
            .count();
        // Choosing the widest split makes more of chance than one test does.
        assert!(false_points <= 20, "{false_points} of 400");
    }

    proptest! {
        #[test]
        fn moving_and_mirroring_a_series_moves_nothing_else(
            values in prop::collection::vec(-1.0f64..1.0, 0..40), shift in -3.0f64..3.0
        ) {
            let moved: Vec<f64> = values.iter().map(|value| value + shift).collect();
            prop_assert_eq!(indices(&values), indices(&moved));
            for point in change_points(&values, &ChangeRule::default()) {
                prop_assert!(point.index >= LEAST && point.index <= values.len() - LEAST);
                prop_assert!(point.p <= 0.001);
            }
        }
    }
}
