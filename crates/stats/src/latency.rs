//! Distributions of latency: how often each value came, and the quantiles that
//! so many values can bear.
//!
//! A quantile is a metric of the boot like any other, to be compared inside
//! blocks. Quantiles are never averaged over boots; the distribution of all
//! boots together is for pictures, with a band that knows boots.
//!
//! The buckets stay those of the tool that counted. Counting anew into an
//! HdrHistogram would round them a second time and has no place for values
//! that the tool only knows to be greater than its last bucket.
//!
//! Source: G. Tene, "How NOT to Measure Latency" (why quantiles, and why not
//! their means); B. Efron, R. Tibshirani, "An Introduction to the Bootstrap"
//! (boots are drawn whole, as clusters).

use std::collections::BTreeMap;

use crate::Interval;

/// A quantile needs so many values beyond it.
const LEAST_BEYOND: f64 = 20.0;

/// Relative slack for products like 0.07 * 100, which is a little above 7.
const ROUNDING: f64 = 1e-9;

/// How often each value came, in one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatencyDistribution {
    /// Value and number of times: values rise, and no number is 0.
    counts: Vec<(u64, u64)>,
    /// Times that it was something greater.
    overflows: u64,
}

/// Why a quantile can't be given.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoQuantile {
    /// Not between 0 and 1.
    #[error("quantile {0} is not between 0 and 1")]
    Share(f64),
    /// Too few values lie beyond it.
    #[error("too few samples for p{}: {count} of {needed}", percent(*share))]
    TooFew {
        /// The quantile.
        share: f64,
        /// Values in the distribution.
        count: u64,
        /// Values needed.
        needed: u64,
    },
    /// It lies among the overflows.
    #[error("p{} lies beyond the histogram, as {overflows} of {count} samples do", percent(*share))]
    Beyond {
        /// The quantile.
        share: f64,
        /// Values that are known to be great, and nothing else.
        overflows: u64,
        /// Values in the distribution.
        count: u64,
    },
}

/// 0.999 as 99.9.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

impl LatencyDistribution {
    /// From values with the number of times that each came, in any order, and
    /// the number of those that were too great to be told apart.
    #[must_use]
    pub fn new(counts: impl IntoIterator<Item = (u64, u64)>, overflows: u64) -> Self {
        let mut sums = BTreeMap::<u64, u64>::new();
        for (value, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let sum = sums.entry(value).or_default();
            *sum = sum.saturating_add(count);
        }
        Self { counts: sums.into_iter().collect(), overflows }
    }

    /// All of `parts` together: the invocations of a boot, which are one sample
    /// of it. Their overflows are taken to lie beyond the values of all, as
    /// they do where one benchmark counted into the same buckets.
    #[must_use]
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut counts, mut overflows) = (Vec::new(), 0_u64);
        for part in parts {
            counts.extend_from_slice(&part.counts);
            overflows = overflows.saturating_add(part.overflows);
        }
        Self::new(counts, overflows)
    }

    /// Values, overflows among them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(self.overflows, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Values that are only known to be greater than all others.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// The least value that at least `share` of all values do not exceed.
    ///
    /// # Errors
    /// [`NoQuantile`] where fewer than 20 values lie beyond it (of 1000 values
    /// 0.98 is the last), or where it is one of the overflows.
    pub fn quantile(&self, share: f64) -> Result<u64, NoQuantile> {
        self.check(share)?;
        let count = self.count();
        let wanted = rank(share, count);
        let mut seen = 0_u64;
        let found = self.counts.iter().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        });
        let beyond = NoQuantile::Beyond { share, overflows: self.overflows, count };
        found.map(|(value, _)| *value).ok_or(beyond)
    }

    /// Whether so many values bear the quantile `share`.
    fn check(&self, share: f64) -> Result<(), NoQuantile> {
        if !(share > 0.0 && share < 1.0) {
            return Err(NoQuantile::Share(share));
        }
        let count = self.count();
        let needed = (LEAST_BEYOND / (1.0 - share) * (1.0 - ROUNDING)).ceil() as u64;
        if count < needed { Err(NoQuantile::TooFew { share, count, needed }) } else { Ok(()) }
    }
}

/// The place of the quantile `share` among `count` values, from 1.
fn rank(share: f64, count: u64) -> u64 {
    ((share * count as f64 * (1.0 - ROUNDING)).ceil() as u64).clamp(1, count.max(1))
}

/// A quantile of all boots together, with the band in which it lies for so
/// many other boots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The quantile's share.
    pub share: f64,
    /// Over all boots together.
    pub centre: f64,
    /// Where it lies when boots are drawn anew; none from a single boot, and
    /// none where the upper end is among the overflows.
    pub interval: Option<Interval>,
}

/// Times that the boots are drawn anew.
const DRAWS: usize = 400;

/// Confidence level of the band.
const LEVEL: f64 = 0.95;

/// The curve of quantiles over all boots (one distribution each) for a picture,
/// with a 95 % band: whole boots are drawn anew, with replacement, and the
/// quantiles of each draw give percentiles. Quantiles that all boots together
/// can't bear are left out. `seed` makes the band the same each time.
///
/// For verdicts compare [`LatencyDistribution::quantile`] of single boots inside
/// blocks: with few boots the band is too narrow.
#[must_use]
pub fn bands(boots: &[LatencyDistribution], shares: &[f64], seed: u64) -> Vec<Band> {
    let pooled = LatencyDistribution::merged(boots);
    let mut shares: Vec<f64> =
        shares.iter().copied().filter(|share| pooled.quantile(*share).is_ok()).collect();
    shares.sort_unstable_by(f64::total_cmp);
    let boots: Vec<&LatencyDistribution> = boots.iter().filter(|boot| boot.count() > 0).collect();
    let sorted = SortedBoots::new(&boots);
    let centres = sorted.quantiles(&vec![1; boots.len()], &shares);

    let mut random = SplitMix(seed);
    let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); shares.len()];
    for _ in 0..if boots.len() < 2 { 0 } else { DRAWS } {
        let mut times = vec![0; boots.len()];
        for _ in 0..boots.len() {
            times[random.below(boots.len())] += 1;
        }
        for (drawn, found) in drawn.iter_mut().zip(sorted.quantiles(&times, &shares)) {
            drawn.push(found);
        }
    }
    let cut = ((1.0 - LEVEL) / 2.0 * DRAWS as f64).round() as usize;
    let band = |((share, centre), mut drawn): ((f64, f64), Vec<f64>)| {
        drawn.sort_unstable_by(f64::total_cmp);
        let ends = drawn.get(cut).zip(drawn.get(DRAWS - 1 - cut));
        let ends = ends.filter(|(_, hi)| hi.is_finite());
        let interval = ends.map(|(lo, hi)| Interval { lo: *lo, hi: *hi, level: LEVEL });
        Band { share, centre, interval }
    };
    shares.into_iter().zip(centres).zip(drawn).map(band).collect()
}

/// The values of several boots in one rising order, each with its boot.
struct SortedBoots {
    /// Value, place of the boot, number of times.
    entries: Vec<(u64, usize, u64)>,
    /// Values of each boot, overflows among them.
    counts: Vec<u64>,
}

impl SortedBoots {
    fn new(boots: &[&LatencyDistribution]) -> Self {
        let of_boot = |(boot, distribution): (usize, &&LatencyDistribution)| {
            let counts = distribution.counts.iter();
            counts.map(|(value, count)| (*value, boot, *count)).collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = boots.iter().enumerate().flat_map(of_boot).collect();
        entries.sort_unstable();
        Self { entries, counts: boots.iter().map(|boot| boot.count()).collect() }
    }

    /// The quantiles `shares`, which rise, with boot number i there `times[i]`
    /// times; infinite among the overflows.
    fn quantiles(&self, times: &[u64], shares: &[f64]) -> Vec<f64> {
        let all =
            self.counts.iter().zip(times).fold(0_u64, |sum, (count, times)| {
                sum.saturating_add(count.saturating_mul(*times))
            });
        let mut found = Vec::with_capacity(shares.len());
        let mut ranks = shares.iter().map(|share| rank(*share, all)).peekable();
        let mut seen = 0_u64;
        for (value, boot, count) in &self.entries {
            seen = seen.saturating_add(count.saturating_mul(times[*boot]));
            while ranks.next_if(|rank| seen >= *rank).is_some() {
                found.push(*value as f64);
            }
        }
        found.resize(shares.len(), f64::INFINITY);
        found
    }
}

/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
struct SplitMix(u64);

impl SplitMix {
    /// A number below `n`, which is far below 2^64.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % n as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> LatencyDistribution {
        LatencyDistribution::new(values.into_iter().map(|value| (value, 1)), 0)
    }

    #[test]
    fn a_quantile_needs_twenty_values_beyond_it() {
        let boot = LatencyDistribution::merged(&[of(1..=500), of(501..=1000)]);
        assert_eq!(boot, of(1..=1000));
        assert_eq!(boot.quantile(0.5), Ok(500));
        assert_eq!(boot.quantile(0.98), Ok(980));
        let error = boot.quantile(0.9999).unwrap_err().to_string();
        assert_eq!(error, "too few samples for p99.99: 1000 of 200000");
        assert_eq!(boot.quantile(1.0), Err(NoQuantile::Share(1.0)));
        assert!(LatencyDistribution::default().quantile(0.5).is_err());
    }

    #[test]
    fn overflows_are_counted_and_never_guessed() {
        let boot = LatencyDistribution::new((1..=970).map(|value| (value, 1)), 30);
        assert_eq!((boot.count(), boot.overflows()), (1000, 30));
        assert_eq!(boot.quantile(0.97), Ok(970));
        let error = boot.quantile(0.98).unwrap_err().to_string();
        assert_eq!(error, "p98 lies beyond the histogram, as 30 of 1000 samples do");
        let found = bands(&[boot.clone(), boot], &[0.5, 0.97, 0.98], 1);
        assert_eq!(found.iter().map(|band| band.share).collect::<Vec<_>>(), [0.5, 0.97]);
    }

    #[test]
    fn bands_know_that_boots_differ() {
        let boots: Vec<_> =
            (0..10).map(|boot| LatencyDistribution::new([(100 + 10 * boot, 200)], 0)).collect();
        let found = bands(&boots, &[0.99, 0.5, 0.999], 1);
        let [median, tail] = found[..] else { panic!("{found:?}") };
        assert_eq!((median.share, tail.share), (0.5, 0.99));
        let span = median.interval.unwrap();
        assert!(span.lo < median.centre && median.centre < span.hi, "{median:?}");
        assert!(tail.interval.unwrap().hi <= 190.0, "{tail:?}");
        assert_eq!(found, bands(&boots, &[0.5, 0.99, 0.999], 1));
        assert!(bands(&[], &[0.5], 1).is_empty());
        assert_eq!(bands(&boots[..1], &[0.5], 1)[0].interval, None);
    }

    #[test]
    fn bands_are_as_wide_as_the_difference_between_boots_says() {
        // Boots with medians 1000 + z, z Gaussian with sd 100: with 100 boots
        // the median of all has a standard error of about 1.25 * 10.
        use rand::{RngExt, SeedableRng};
        let mut random = rand_pcg::Pcg64::seed_from_u64(5);
        let mut gauss = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let boots: Vec<_> = (0..100)
            .map(|_| {
                let centre = 1000.0 + 100.0 * gauss();
                of((0..101).map(|i| (centre + f64::from(i) - 50.0) as u64))
            })
            .collect();
        let found = bands(&boots, &[0.5], 1)[0].interval.unwrap();
        let width = found.hi - found.lo;
        assert!((30.0..70.0).contains(&width), "{width}");
    }

    proptest! {
        #[test]
        fn merging_is_counting_all_at_once(
            parts in prop::collection::vec(
                (prop::collection::vec((0_u64..50, 0_u64..9), 0..20), 0_u64..4), 0..6)
        ) {
            let merged = LatencyDistribution::merged(
                &parts.iter().map(|(counts, overflows)| {
                    LatencyDistribution::new(counts.iter().copied(), *overflows)
                }).collect::<Vec<_>>(),
            );
            let overflows = parts.iter().map(|(_, overflows)| overflows).sum();
            let all = parts.iter().flat_map(|(counts, _)| counts).copied();
            prop_assert_eq!(merged, LatencyDistribution::new(all, overflows));
        }

        /// Against the true quantile, and another's way of finding it.
        #[test]
        fn a_quantile_is_right_within_its_bucket(
            mut values in prop::collection::vec((0.0f64..16.0).prop_map(|v| 2f64.powf(v) as u64), 40..400),
            share in 0.01f64..0.95,
        ) {
            let mut hdr = Histogram::<u64>::new(2).unwrap();
            values.iter().for_each(|value| hdr.record(*value).unwrap());
            let buckets = hdr.iter_recorded();
            let buckets = buckets.map(|step| (step.value_iterated_to(), step.count_at_value()));
            let counted = LatencyDistribution::new(buckets, 0);
            values.sort_unstable();
            let enough = values.len() as f64 * (1.0 - share) >= LEAST_BEYOND;
            prop_assert_eq!(counted.quantile(share).is_ok(), enough);
            if let Ok(found) = counted.quantile(share) {
                prop_assert_eq!(found, hdr.value_at_quantile(share));
                let exact = of(values.iter().copied()).quantile(share).unwrap();
                prop_assert_eq!(exact, values[rank(share, values.len() as u64) as usize - 1]);
                prop_assert!(exact <= found && found as f64 <= exact as f64 * 1.01);
                let pooled = bands(&[counted], &[share], 1);
                prop_assert_eq!(pooled[0].centre, found as f64);
            }
        }
    }
}
