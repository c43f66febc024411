//! The Hodges-Lehmann centre and its exact signed-rank interval: a second
//! opinion that single outliers can't move.
//!
//! Source: M. Hollander, D. A. Wolfe, "Nonparametric Statistical Methods",
//! chapter 3 (Wilcoxon signed rank statistic, Walsh averages).

use crate::Interval;

/// Most values for which the exact distribution is computed (the cost grows
/// with the third power).
pub const MAX_PAIRS: usize = 200;

/// `P(W <= value)` of Wilcoxon's signed-rank statistic `W` over `n` values
/// without ties, if their distribution is symmetric around 0. Exact; 0 where
/// `n` is beyond [`MAX_PAIRS`].
#[must_use]
pub fn lower_tail(n: usize, value: usize) -> f64 {
    distribution(n).iter().take(value + 1).sum()
}

/// The greatest `w` with `2 P(W <= w) <= alpha`: the two-sided test at `alpha`
/// refuses if the smaller rank sum is at most this. None if there is none.
#[must_use]
pub fn critical_value(n: usize, alpha: f64) -> Option<usize> {
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
#[must_use]
pub fn hodges_lehmann(values: &[f64], level: f64) -> Option<(f64, Option<Interval>)> {
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
        lo: walsh[critical + 1],
        hi: walsh[walsh.len() - 2 - critical],
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
