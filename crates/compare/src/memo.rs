//! Answers of [`stats`] that many cells ask for again: a hundred thousand cells
//! of ten values have a few hundred different answers.

use std::collections::HashMap;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::words::MixedMap;

/// More answers than this are not kept: data full of ties hardly repeat.
const MOST_KEPT: usize = 1 << 18;

/// p values of the Mann-Whitney test and orders of the median's interval.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    critical: Vec<(u64, Box<[f64; NODES]>)>,
    ranks: MixedMap<u64, Result<f64, stats::UnpairedError>>,
    orders: HashMap<(usize, u64), Orders>,
}

/// Which order statistics bound the median, from 0; none is outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orders {
    pub(crate) lo: Option<usize>,
    pub(crate) hi: Option<usize>,
}

impl Memo {
    /// [`stats::mann_whitney`] of two sorted samples.
    ///
    /// The answer depends on nothing but which values of the merged samples
    /// belong to which and which are equal, and so few different ones are
    /// asked for that looking them up is most of the work.
    pub(crate) fn mann_whitney(
        &mut self,
        a: &[f64],
        b: &[f64],
    ) -> Result<f64, stats::UnpairedError> {
        let Some(key) = Self::shape(a, b) else { return stats::mann_whitney(a, b) };
        if let Some(known) = self.ranks.get(&key) {
            return *known;
        }
        let answer = stats::mann_whitney(a, b);
        if self.ranks.len() < MOST_KEPT {
            self.ranks.insert(key, answer);
        }
        answer
    }

    /// A number for what the answer depends on: both sizes, U, and the sizes
    /// of the groups of equal values. None where it does not fit 64 bits.
    fn shape(a: &[f64], b: &[f64]) -> Option<u64> {
        let (n, m) = (a.len(), b.len());
        if n == 0 || m == 0 || n + m > 40 || !(a[0].is_finite() && b[0].is_finite()) {
            return None;
        }
        if !(a[n - 1].is_finite() && b[m - 1].is_finite()) {
            return None;
        }
        // Bit k: the value at place k + 1 equals the one before it.
        let (mut i, mut j, mut place) = (0, 0, 0);
        let (mut equal, mut twice_u) = (0_u64, 0_usize);
        while i < n || j < m {
            let value = match (a.get(i), b.get(j)) {
                (Some(x), Some(y)) => x.min(*y),
                (Some(x), None) => *x,
                (None, y) => *y?,
            };
            let (begin_i, begin_j) = (i, j);
            while i < n && a[i] == value {
                i += 1;
            }
            while j < m && b[j] == value {
                j += 1;
            }
            let (of_a, of_b) = (i - begin_i, j - begin_j);
            twice_u += of_a * (2 * begin_j + of_b);
            let size = of_a + of_b;
            // The first of a group has no bit, the others follow it.
            equal |= ((1_u64 << (size - 1)) - 1) << place;
            place += size;
        }
        // At most 39 places have a bit, sizes below 64 take 6 bits each, and
        // twice U is at most 800. U and its mirror image are not the same
        // answer: ties that lie to one side bend the distribution.
        Some(equal | (n as u64) << 40 | (m as u64) << 46 | (twice_u as u64) << 52)
    }

    /// Student's two-sided critical value for `freedom` degrees of freedom, which
    /// need not be whole: cubic interpolation between values that are exact.
    ///
    /// As a function of `1 / freedom` it is smooth, so that the error is below
    /// 1e-9 of it; computing it anew for each of a hundred thousand cells would
    /// be half of all work.
    pub(crate) fn critical(&mut self, freedom: f64, level: f64) -> f64 {
        let level_bits = level.to_bits();
        let at = self.critical.iter().position(|(known, _)| *known == level_bits);
        let at = at.unwrap_or_else(|| {
            self.critical.push((level_bits, Box::new([f64::NAN; NODES])));
            self.critical.len() - 1
        });
        let nodes = &mut self.critical[at].1;
        if !(freedom > 1.0 && freedom.is_finite()) {
            return exact_critical(freedom.max(f64::MIN_POSITIVE), level);
        }
        let place = (NODES - 1) as f64 / freedom;
        let first = (place as usize).clamp(1, NODES - 3) - 1;
        let mut known = [0.0; 4];
        for (offset, value) in known.iter_mut().enumerate() {
            let node = &mut nodes[first + offset];
            if node.is_nan() {
                *node = exact_critical((NODES - 1) as f64 / (first + offset) as f64, level);
            }
            *value = *node;
        }
        let x = place - first as f64;
        let [a, b, c, d] = known;
        // Lagrange's polynomial through 0, 1, 2, 3.
        -a * (x - 1.0) * (x - 2.0) * (x - 3.0) / 6.0 + b * x * (x - 2.0) * (x - 3.0) / 2.0
            - c * x * (x - 1.0) * (x - 3.0) / 2.0
            + d * x * (x - 1.0) * (x - 2.0) / 6.0
    }

    /// Which order statistics bound the median of `n` values.
    pub(crate) fn orders(&mut self, n: usize, level: f64) -> Orders {
        *self.orders.entry((n, level.to_bits())).or_insert_with(|| {
            // The interval of the sample 0, 1, 2, ... names its own places.
            let places: Vec<f64> = (0..n).map(|place| place as f64).collect();
            let place = |end: f64| end.is_finite().then_some(end as usize);
            match stats::median_interval(&places, level) {
                Some((_, interval)) => Orders { lo: place(interval.lo), hi: place(interval.hi) },
                None => Orders { lo: None, hi: None },
            }
        })
    }
}

/// Nodes of the interpolation, evenly over `1 / freedom` from 0 to 1.
const NODES: usize = 513;

/// The critical value itself; for infinitely many degrees of freedom that of
/// the normal distribution.
fn exact_critical(freedom: f64, level: f64) -> f64 {
    let p = f64::midpoint(1.0, level);
    if freedom.is_finite() {
        StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(p))
    } else {
        Normal::standard().inverse_cdf(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mirrored_samples_with_ties_to_one_side_are_told_apart() {
        // Both merge to 1 1 1 2 3; U is 1 in one and 3 in the other, of 4 pairs.
        let cases: [(&[f64], &[f64]); 2] =
            [(&[1.0], &[1.0, 1.0, 2.0, 3.0]), (&[2.0], &[1.0, 1.0, 1.0, 3.0])];
        let mut memo = Memo::default();
        for (a, b) in cases {
            assert_eq!(memo.mann_whitney(a, b), stats::mann_whitney(a, b), "{a:?} {b:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

        #[test]
        fn critical_values_are_right_between_the_nodes(freedom in 1.0..2000.0, level in 0.5..0.999) {
            let found = Memo::default().critical(freedom, level);
            let exact = exact_critical(freedom, level);
            prop_assert!((found / exact - 1.0).abs() < 1e-6, "{found} {exact}");
        }

        #[test]
        fn a_remembered_answer_is_the_answer(
            samples in prop::collection::vec(
                (prop::collection::vec(0_u8..9, 1..9), prop::collection::vec(0_u8..9, 1..9)),
                1..40,
            ),
        ) {
            let mut memo = Memo::default();
            for (a, b) in samples {
                let sorted = |values: Vec<u8>| {
                    let mut values: Vec<f64> = values.into_iter().map(f64::from).collect();
                    values.sort_by(f64::total_cmp);
                    values
                };
                let (a, b) = (sorted(a), sorted(b));
                prop_assert_eq!(memo.mann_whitney(&a, &b), stats::mann_whitney(&a, &b));
                prop_assert_eq!(memo.mann_whitney(&b, &a), stats::mann_whitney(&b, &a));
            }
        }
    }
}
