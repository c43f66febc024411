//! Is another block worth its time?

use statrs::distribution::{ContinuousCDF, Normal};

use super::evidence::{Levels, RatioEstimate};

/// The greatest chance of a decision by blocks needed for it, over the next
/// `left` blocks, if mean and variance are as they seem. `band` is the margin
/// on the log scale.
///
/// The mean after more blocks is normal around the present one: its variance
/// falls from that of `n` blocks to that of all.
pub(super) fn chance_by_cost(
    evidence: &RatioEstimate,
    levels: &Levels,
    band: f64,
    left: u32,
) -> f64 {
    let normal = Normal::standard();
    let RatioEstimate { n, mean, hoped: variance, freedom, .. } = *evidence;
    let mut best = 0.0_f64;
    for more in 1..=left {
        let then = n + more;
        let Some((difference, equivalence)) = levels.difference(then).zip(levels.equivalence(then))
        else {
            continue;
        };
        let freedom = freedom * (f64::from(then) - 1.0) / (f64::from(n) - 1.0);
        let error = (variance / f64::from(then)).sqrt();
        let critical = |level: f64| {
            // The first term of Student's quantile by the normal one.
            let z = -normal.inverse_cdf(level / 2.0);
            (z + z * (z * z + 1.0) / (4.0 * freedom)) * error
        };
        let (apart, inside) = (critical(difference), band - critical(equivalence));
        let moves = (variance / f64::from(n) - variance / f64::from(then)).sqrt();
        let below = |bound: f64| {
            if moves > 0.0 {
                normal.cdf((bound - mean) / moves)
            } else {
                f64::from(u8::from(mean < bound))
            }
        };
        let mut chance = below(-apart) + 1.0 - below(apart);
        if inside > 0.0 {
            let inside = inside.min(apart);
            chance += below(inside) - below(-inside);
        }
        best = best.max(chance / f64::from(more));
    }
    best
}
