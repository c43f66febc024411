//! Distributions of latency: one histogram a boot, and the quantiles that it
//! can bear.
//!
//! A quantile is a metric of the boot like any other, to be compared inside
//! blocks. Quantiles are never averaged over boots; histograms of all boots
//! together are for pictures, with a band that knows boots.
//!
//! Source: G. Tene, HdrHistogram; the band is a bootstrap over boots.

use hdrhistogram::Histogram;

/// A quantile needs so many values beyond it.
pub const LEAST_BEYOND: f64 = 20.0;

/// Why a quantile can't be given.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoQuantile {
    /// Not between 0 and 1.
    #[error("Quantile {0} is not between 0 and 1")]
    Share(f64),
    /// Too few values lie beyond it.
    #[error("Quantile {share} of {count} values is chance: {needed} values are needed")]
    TooFew {
        /// The quantile.
        share: f64,
        /// Values in the histograms.
        count: u64,
        /// Values needed.
        needed: u64,
    },
}

/// The quantile `share` of one boot, in the histograms' unit, over all of its
/// invocations together: they are one sample of the same boot.
///
/// # Errors
/// [`NoQuantile`] where fewer than 20 values lie beyond it: of 1000 values 0.98
/// is the last.
pub fn boot_quantile(invocations: &[Histogram<u64>], share: f64) -> Result<f64, NoQuantile> {
    if !(share > 0.0 && share < 1.0) {
        return Err(NoQuantile::Share(share));
    }
    let count: u64 = invocations.iter().map(Histogram::len).sum();
    // A little less, for 1 - 0.98 is not quite 0.02.
    let needed = (LEAST_BEYOND / (1.0 - share) * (1.0 - 1e-9)).ceil() as u64;
    if count < needed {
        return Err(NoQuantile::TooFew { share, count, needed });
    }
    Ok(quantile(invocations.iter(), share))
}

/// The quantile of histograms taken together. There is at least one value.
fn quantile<'a>(histograms: impl Iterator<Item = &'a Histogram<u64>>, share: f64) -> f64 {
    let mut counts: Vec<(u64, u64)> = histograms
        .flat_map(|histogram| {
            histogram.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value()))
        })
        .collect();
    counts.sort_unstable();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let wanted = (share * all as f64).ceil() as u64;
    let mut seen = 0;
    for (value, count) in &counts {
        seen += count;
        if seen >= wanted {
            return *value as f64;
        }
    }
    counts.last().map_or(0.0, |(value, _)| *value as f64)
}

/// A quantile of all boots together, with the band in which it lies for so
/// many other boots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The quantile's share.
    pub share: f64,
    /// Over all boots together.
    pub centre: f64,
    /// Lower end of the band.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// Resamplings of the boots.
const DRAWS: usize = 200;

/// The curve of quantiles over all boots (one histogram each) for a picture,
/// with a 95 % band from drawing boots anew. Empty without boots; quantiles
/// that all boots together can't bear are left out. `seed` makes the band the
/// same each time.
///
/// For verdicts compare [`boot_quantile`] inside blocks: with few boots the
/// band is too narrow.
#[must_use]
pub fn bands(boots: &[Histogram<u64>], shares: &[f64], seed: u64) -> Vec<Band> {
    let bearable = shares.iter().copied().filter(|share| boot_quantile(boots, *share).is_ok());
    let mut state = seed;
    let mut draw = || {
        // splitmix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % boots.len() as u64
    };
    let drawn: Vec<Vec<&Histogram<u64>>> = if boots.is_empty() {
        Vec::new()
    } else {
        (0..DRAWS).map(|_| boots.iter().map(|_| &boots[draw() as usize]).collect()).collect()
    };
    bearable
        .map(|share| {
            let mut found: Vec<f64> =
                drawn.iter().map(|boots| quantile(boots.iter().copied(), share)).collect();
            found.sort_unstable_by(f64::total_cmp);
            let centre = quantile(boots.iter(), share);
            Band { share, centre, lo: found[DRAWS / 40], hi: found[DRAWS - 1 - DRAWS / 40] }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl Iterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        values.for_each(|value| histogram.record(value).unwrap());
        histogram
    }

    #[test]
    fn a_quantile_needs_twenty_values_beyond_it() {
        let boot = [histogram(1..=500), histogram(501..=1000)];
        assert_eq!(boot_quantile(&boot, 0.5), Ok(500.0));
        assert_eq!(boot_quantile(&boot, 0.98), Ok(980.0));
        let error = boot_quantile(&boot, 0.99).unwrap_err().to_string();
        assert_eq!(error, "Quantile 0.99 of 1000 values is chance: 2000 values are needed");
        assert_eq!(boot_quantile(&boot, 1.0), Err(NoQuantile::Share(1.0)));
        assert!(boot_quantile(&[], 0.5).is_err());
    }

    #[test]
    fn bands_know_that_boots_differ() {
        let boots: Vec<_> =
            (0..10).map(|boot| histogram((0..200).map(|_| 100 + 10 * boot))).collect();
        let found = bands(&boots, &[0.5, 0.99, 0.999], 1);
        assert_eq!(found.len(), 2);
        let [median, tail] = found[..] else { unreachable!() };
        assert!(median.lo < median.centre && median.centre < median.hi, "{median:?}");
        assert!(tail.centre >= tail.lo && tail.hi <= 191.0, "{tail:?}");
        assert_eq!(found, bands(&boots, &[0.5, 0.99, 0.999], 1));
        assert!(bands(&[], &[0.5], 1).is_empty());
    }
}
