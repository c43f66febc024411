//! Student's t on the logarithms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// An interval and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Two-sided confidence level, e.g. 0.95.
    pub level: f64,
}

impl Interval {
    /// True if `value` lies in the interval, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Both ends through `transform`, which must be increasing.
    #[must_use]
    pub fn map(&self, transform: impl Fn(f64) -> f64) -> Self {
        Self { lo: transform(self.lo), hi: transform(self.hi), level: self.level }
    }
}

/// What Student's t says about the mean of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TTest {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, n - 1 in the denominator.
    pub sd: f64,
    /// Interval for the mean.
    pub interval: Interval,
    /// Two-sided p value of "the mean is 0".
    pub p: f64,
}

/// The critical value of |t| for the mean of `n` values, two-sided; infinite
/// for fewer than two.
pub(crate) fn student_critical(n: u32, alpha: f64) -> f64 {
    student_critical_df(f64::from(n) - 1.0, alpha)
}

/// The same for so many degrees of freedom; infinite for none.
pub(crate) fn student_critical_df(freedom: f64, alpha: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom);
    student.map_or(f64::INFINITY, |student| student.inverse_cdf(1.0 - alpha / 2.0))
}

/// Two-sided p value of `t` for the mean of `n` values; 1 for fewer than two.
pub(crate) fn student_p(t: f64, n: u32) -> f64 {
    let student = StudentsT::new(0.0, 1.0, f64::from(n) - 1.0);
    student.map_or(1.0, |student| (2.0 * student.cdf(-t.abs())).min(1.0))
}

/// Mean and standard deviation of at least two values. Their order does not
/// matter, to the last bit.
pub(crate) fn moments(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()).then(a.total_cmp(b)));
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt())
}

/// One-sample, two-sided t test of mean 0 with its interval at `level`.
///
/// None for fewer than two values, for values that are not finite and for a
/// level outside (0, 1). Values without any variance give an interval without
/// width, and p is 1 if they are all 0, else 0.
#[must_use]
pub fn t_test(values: &[f64], level: f64) -> Option<TTest> {
    let finite = values.iter().all(|value| value.is_finite());
    if values.len() < 2 || !finite || !(level > 0.0 && level < 1.0) {
        return None;
    }
    let n = values.len() as f64;
    let (mean, sd) = moments(values);
    let standard_error = sd / n.sqrt();
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let half_width = t.inverse_cdf(f64::midpoint(1.0, level)) * standard_error;
    let p = if standard_error > 0.0 {
        (2.0 * t.cdf(-(mean / standard_error).abs())).min(1.0)
    } else if mean == 0.0 {
        1.0
    } else {
        0.0
    };
    let interval = Interval { lo: mean - half_width, hi: mean + half_width, level };
    Some(TTest { mean, sd, interval, p })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Critical values from the usual printed tables (two-sided 95 %).
    #[test]
    fn quantiles_agree_with_the_printed_table() {
        for (n, expected) in [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (31, 2.042)] {
            let values: Vec<f64> = (0..n).map(f64::from).collect();
            let found = t_test(&values, 0.95).unwrap();
            let half_width = (found.interval.hi - found.interval.lo) / 2.0;
            let critical = half_width / (found.sd / f64::from(n).sqrt());
            assert!((critical - expected).abs() < 1e-3, "n {n}: {critical}");
        }
    }

    /// With 4 degrees of freedom `P(|T| <= t)` is `sin a (1 + cos^2 a / 2)`,
    /// where `tan a = t / 2`.
    #[test]
    fn p_agrees_with_the_closed_form() {
        let found = t_test(&[0.1, 0.2, 0.15, 0.3, 0.05], 0.95).unwrap();
        let t = found.mean / (found.sd / 5_f64.sqrt());
        let (sin, cos) = (t / 2.0).atan().sin_cos();
        let expected = 1.0 - sin * (1.0 + cos * cos / 2.0);
        assert!((found.p - expected).abs() < 1e-12, "{} {expected}", found.p);
        assert!((found.mean - 0.16).abs() < 1e-12 && (t - 3.72).abs() < 1e-3);
    }

    #[test]
    fn too_little_gives_nothing() {
        assert_eq!(t_test(&[], 0.95), None);
        assert_eq!(t_test(&[1.0], 0.95), None);
        assert_eq!(t_test(&[1.0, f64::NAN], 0.95), None);
        assert_eq!(t_test(&[1.0, 2.0], 1.0), None);
        assert_eq!(t_test(&[0.0, 0.0], 0.95).unwrap().p, 1.0);
        assert_eq!(t_test(&[0.5, 0.5], 0.95).unwrap().p, 0.0);
    }
}
