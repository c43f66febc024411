//! The Hodges-Lehmann centre and its exact signed-rank interval: a second
//! opinion that single outliers can't move.
//!
//! Source: M. Hollander, D. A. Wolfe, "Nonparametric Statistical Methods",
//! chapter 3 (Wilcoxon signed rank statistic, Walsh averages).

use crate::Interval;

/// Most values for which the exact distribution is computed (the cost grows
/// with the third power).
const MAX_PAIRS: usize = 200;

/// `P(W <= value)` of Wilcoxon's signed-rank statistic `W` over `n` values
/// without ties, if their distribution is symmetric around 0. Exact; 0 where
/// `n` is beyond [`MAX_PAIRS`].
fn lower_tail(n: usize, value: usize) -> f64 {
    distribution(n).iter().take(value + 1).sum()
}

/// The greatest `w` with `2 P(W <= w) <= alpha`: the two-sided test at `alpha`
/// refuses if the smaller rank sum is at most this. None if there is none.
fn critical_value(n: usize, alpha: f64) -> Option<usize> {
    let mut tail = 0.0;
    let mut critical = None;
    for (value, probability) in distribution(n).iter().enumerate() {
        tail += probability;
        if 2.0 * tail > alpha {
            break;
        }
        critical = Some(value);
    }
    critical
}

/// The median of the means of all pairs of values (each with itself too), and
/// the exact interval whose level is at least `level`, where `n` allows one
/// (6 values for 0.95). None without values, with values that are not finite,
/// or with more than [`MAX_PAIRS`].
pub(crate) fn hodges_lehmann(values: &[f64], level: f64) -> Option<(f64, Option<Interval>)> {
    let n = values.len();
    if n == 0 || n > MAX_PAIRS || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut walsh: Vec<f64> =
        (0..n).flat_map(|i| (i..n).map(move |j| f64::midpoint(values[i], values[j]))).collect();
    walsh.sort_by(f64::total_cmp);
    let middle = walsh.len() / 2;
    let centre = if walsh.len() % 2 == 1 {
        walsh[middle]
    } else {
        f64::midpoint(walsh[middle - 1], walsh[middle])
    };
    let interval = critical_value(n, 1.0 - level).map(|critical| Interval {
        lo: walsh[critical],
        hi: walsh[walsh.len() - 1 - critical],
        level: 1.0 - 2.0 * lower_tail(n, critical),
    });
    Some((centre, interval))
}

/// Probability of each rank sum from 0 to `n (n + 1) / 2`: every rank is in
/// the sum or not, with even odds.
fn distribution(n: usize) -> Vec<f64> {
    if n > MAX_PAIRS {
        return Vec::new();
    }
    let mut probability = vec![0.0; n * (n + 1) / 2 + 1];
    probability[0] = 1.0;
    let mut greatest = 0;
    for rank in 1..=n {
        greatest += rank;
        for sum in (0..=greatest).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    probability
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All `2^n` ways to give the ranks their signs, counted one by one.
    #[test]
    fn the_distribution_is_that_of_all_sign_patterns() {
        for n in 0..=12_usize {
            let mut counts = vec![0_u32; n * (n + 1) / 2 + 1];
            for signs in 0..1_u32 << n {
                let sum: usize = (0..n).filter(|rank| signs >> rank & 1 == 1).map(|r| r + 1).sum();
                counts[sum] += 1;
            }
            let mut tail = 0;
            for (value, count) in counts.iter().enumerate() {
                tail += count;
                let expected = f64::from(tail) / f64::from(1_u32 << n);
                assert_eq!(lower_tail(n, value), expected, "n {n}, W <= {value}");
            }
        }
    }

    /// The usual printed table, two-sided.
    #[test]
    fn critical_values_agree_with_the_printed_table() {
        let check = |alpha, expected: &[(usize, Option<usize>)]| {
            for &(n, value) in expected {
                assert_eq!(critical_value(n, alpha), value, "n {n}, alpha {alpha}");
            }
        };
        let some = |pairs: &[(usize, usize)]| -> Vec<(usize, Option<usize>)> {
            pairs.iter().map(|&(n, value)| (n, Some(value))).collect()
        };
        check(0.05, &[(0, None), (1, None), (5, None)]);
        check(
            0.05,
            &some(&[
                (6, 0),
                (7, 2),
                (8, 3),
                (9, 5),
                (10, 8),
                (12, 13),
                (15, 25),
                (20, 52),
                (25, 89),
            ]),
        );
        check(0.01, &[(7, None)]);
        check(0.01, &some(&[(8, 0), (9, 1), (10, 3), (15, 15), (20, 37)]));
    }

    #[test]
    fn one_outlier_moves_the_centre_little() {
        let (centre, interval) = hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 5.0, 1000.0], 0.95).unwrap();
        assert_eq!(centre, 3.5);
        let interval = interval.unwrap();
        assert_eq!((interval.lo, interval.hi, interval.level), (1.0, 1000.0, 0.96875));
        let (centre, interval) = hodges_lehmann(&[1.0, 3.0], 0.95).unwrap();
        assert_eq!((centre, interval), (2.0, None));
    }

    #[test]
    fn the_largest_distribution_still_sums_to_one() {
        let total = lower_tail(MAX_PAIRS, MAX_PAIRS * (MAX_PAIRS + 1) / 2);
        assert!((total - 1.0).abs() < 1e-12, "{total}");
        assert_eq!(hodges_lehmann(&vec![1.0; MAX_PAIRS + 1], 0.95), None);
        assert_eq!(hodges_lehmann(&[], 0.95), None);
        assert_eq!(hodges_lehmann(&[f64::NAN], 0.95), None);
    }
}
