//! Many comparisons at once: of a hundred without any difference five would
//! claim one at 5 %.
//!
//! For lists of findings the false ones may be a given share
//! ([`benjamini_hochberg`], [`e_benjamini_hochberg`]); for gates that must not
//! stop a release by chance even one is too many ([`holm`]).
//!
//! Sources: Y. Benjamini, Y. Hochberg, J. R. Statist. Soc. B 57 (1995);
//! S. Holm, Scand. J. Statist. 6 (1979); R. Wang, A. Ramdas, "False discovery
//! rate control with e-values", J. R. Statist. Soc. B 84 (2022).

/// Places of `values` in rising order; those that are not a number last.
fn rising(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&x, &y| values[x].total_cmp(&values[y]));
    order
}

/// p values adjusted so that those up to `q` are a list of which on average at
/// most a share of `q` is false. In the order of `p`; holds for comparisons
/// that are independent or share a baseline.
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, place) in rising(p).into_iter().enumerate().rev() {
        least = least.min(p[place] * p.len() as f64 / (rank + 1) as f64);
        adjusted[place] = least;
    }
    adjusted
}

/// p values adjusted so that the chance of even one false claim among those up
/// to `alpha` is at most `alpha`. In the order of `p`; holds however the
/// comparisons depend on each other.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p.len()];
    let mut greatest = 0.0_f64;
    for (rank, place) in rising(p).into_iter().enumerate() {
        greatest = greatest.max(p[place] * (p.len() - rank) as f64).min(1.0);
        adjusted[place] = greatest;
    }
    adjusted
}

/// Which of these e-values ([`crate::e_value`]) are findings, so that on
/// average at most a share of `q` is false: for studies that were looked at
/// whenever somebody liked. Holds however they depend on each other.
#[must_use]
pub fn e_benjamini_hochberg(e: &[f64], q: f64) -> Vec<bool> {
    let mut order = rising(e);
    order.reverse();
    let enough = |rank: usize| e[order[rank - 1]] * rank as f64 * q >= e.len() as f64;
    let findings = (1..=e.len()).rev().find(|rank| enough(*rank)).unwrap_or(0);
    let mut found = vec![false; e.len()];
    order[..findings].iter().for_each(|&place| found[place] = true);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    /// Worked by hand.
    #[test]
    fn adjusted_values() {
        let p = [0.01, 0.04, 0.03, 0.5];
        near(&benjamini_hochberg(&p), &[0.04, 4.0 * 0.04 / 3.0, 4.0 * 0.04 / 3.0, 0.5]);
        near(&holm(&p), &[0.04, 0.09, 0.09, 0.5]);
        assert_eq!(
            e_benjamini_hochberg(&[100.0, 1.0, 45.0, 0.1], 0.05),
            [true, false, true, false]
        );
        assert_eq!(e_benjamini_hochberg(&[10.0, 1.0], 0.05), [false, false]);
        assert!(benjamini_hochberg(&[]).is_empty() && holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn holm_is_stricter_and_neither_is_laxer_than_p(
            p in prop::collection::vec(0.0..=1.0_f64, 1..20),
        ) {
            let (lists, gates) = (benjamini_hochberg(&p), holm(&p));
            for ((p, list), gate) in p.iter().zip(lists).zip(gates) {
                prop_assert!(*p <= list + 1e-12 && list <= gate + 1e-12 && gate <= 1.0);
            }
        }
    }
}
