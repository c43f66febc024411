//! Student's t that may be looked at after any number of blocks, for ever: for
//! studies whose last block nobody knows.
//!
//! The likelihood of the log ratios, averaged over a normal prior of variance
//! 1 for mean by standard deviation, against that of mean 0. Its value is an
//! e-value: where there is no difference, its expectation is at most 1 whenever
//! one stops, so it exceeds `1 / alpha` in at most `alpha` of all studies.
//!
//! Source: H. Wang, A. Ramdas, "Anytime-valid t-tests and confidence sequences
//! for Gaussian means with unknown variance", Sequential Analysis 44 (2025).

/// Prior variance of mean by standard deviation.
const PRIOR: f64 = 1.0;

/// The evidence of `t` after `n` blocks against "no difference": 20 is what
/// 0.05 asks for. Unlike 1/p it may be averaged and multiplied. 1 for fewer
/// than two blocks.
#[must_use]
pub fn e_value(t: f64, n: u32) -> f64 {
    if n < 2 || t.is_nan() {
        return 1.0;
    }
    let n = f64::from(n);
    let grown = 1.0 + n * PRIOR;
    let by_freedom = (t * t / (n - 1.0)).min(f64::MAX);
    let log = n / 2.0 * (by_freedom.ln_1p() - (by_freedom / grown).ln_1p()) - grown.ln() / 2.0;
    // Still a finite number, for JSON.
    log.min(700.0).exp()
}

/// The critical value of |t| after `n` blocks; infinite where so few blocks
/// can't decide, whatever they say.
#[must_use]
pub(crate) fn critical(n: u32, alpha: f64) -> f64 {
    if n < 2 {
        return f64::INFINITY;
    }
    let n = f64::from(n);
    let grown = 1.0 + n * PRIOR;
    let needed = (grown.sqrt() / alpha).powf(2.0 / n);
    if needed >= grown {
        return f64::INFINITY;
    }
    ((n - 1.0) * (needed - 1.0) / (1.0 - needed / grown)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_critical_values() {
        for (n, expected) in [(5, 8.45), (10, 3.87), (20, 3.42), (40, 3.32)] {
            let found = critical(n, 0.05);
            assert!((found - expected).abs() < 0.01, "n {n}: {found}");
        }
        assert_eq!(critical(2, 0.05), f64::INFINITY);
        assert_eq!(critical(0, 0.05), f64::INFINITY);
    }

    #[test]
    fn the_critical_value_has_the_evidence_that_alpha_asks_for() {
        for (n, alpha) in [(5, 0.05), (8, 0.1), (40, 0.01), (1000, 0.05)] {
            let found = e_value(critical(n, alpha), n);
            assert!((found * alpha - 1.0).abs() < 1e-9, "n {n}, alpha {alpha}: {found}");
        }
        assert_eq!(e_value(0.0, 1), 1.0);
        assert_eq!(e_value(f64::NAN, 9), 1.0);
        assert!(e_value(f64::INFINITY, 9).is_finite());
        assert!(e_value(0.0, 9) < 1.0);
    }
}
