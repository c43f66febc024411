//! Many comparisons at once: of a hundred without any difference five would
//! claim one at 5 %.
//!
//! For lists of findings the false ones may be a given share
//! ([`benjamini_hochberg`]); for gates that must not stop a release by chance
//! even one is too many ([`holm`]).
//!
//! Sources: Y. Benjamini, Y. Hochberg, J. R. Statist. Soc. B 57 (1995);
//! S. Holm, Scand. J. Statist. 6 (1979).

/// Places of the p values in rising order, with the values. What is not a
/// number shows nothing, so it is 1.
fn rising(p: &[f64]) -> Vec<(usize, f64)> {
    let mut order: Vec<(usize, f64)> = p.iter().map(|p| p.min(1.0)).enumerate().collect();
    order.sort_by(|x, y| x.1.total_cmp(&y.1));
    order
}

/// p values adjusted so that those up to `q` are a list of which on average at
/// most a share of `q` is false. In the order of `p`; holds for comparisons
/// that are independent or share a baseline.
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, (place, value)) in rising(p).into_iter().enumerate().rev() {
        least = least.min(value * p.len() as f64 / (rank + 1) as f64);
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
    for (rank, (place, value)) in rising(p).into_iter().enumerate() {
        greatest = greatest.max(value * (p.len() - rank) as f64).min(1.0);
        adjusted[place] = greatest;
    }
    adjusted
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
        near(&holm(&[0.001, f64::NAN]), &[0.002, 1.0]);
        near(&benjamini_hochberg(&[0.001, -f64::NAN]), &[0.002, 1.0]);
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
