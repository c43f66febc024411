//! What the host did beside each trial, taken out of what the benchmark says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disturbance, HostSign};

/// Log ratios after the share of one sign was taken out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControlledRatios {
    /// One for each block.
    pub log_ratios: Vec<f64>,
    /// What was taken out.
    pub sign: HostSign,
    /// How much of its log ratio was taken off.
    pub share: f64,
    /// Correlation of the two in the pilot: the variance falls by its square.
    pub correlation: f64,
}

/// Signs that tell how fast the host was, whatever the VM did. What others and
/// the host's own hypervisor take is no such sign: on a busy host it is what the
/// VM leaves or asks for, so it follows the variant, and to take it out would take
/// out, or make, the difference that is looked for.
const TELLING: [HostSign; 1] = [HostSign::Canary];

/// Takes out of `log_ratios` what a sign of the host's disturbance explains in
/// the same blocks (a control variate): `d - share * (sign of B - sign of A)`. The
/// share is learned in the first `pilot` blocks and applied to all; the sign is
/// that which explains most.
///
/// None where it would not help: fewer than six pilot blocks, a correlation
/// that chance explains (two standard errors), or signs that were not read beside all.
#[must_use]
pub fn control(
    log_ratios: &[f64],
    host: &[[Disturbance; 2]],
    pilot: usize,
) -> Option<ControlledRatios> {
    let controlled = TELLING.into_iter().filter_map(|sign| {
        let inside = host.iter().map(|[a, b]| Some(b.get(sign)? - a.get(sign)?));
        by_sign(sign, log_ratios, &inside.collect::<Option<Vec<f64>>>()?, pilot)
    });
    controlled.max_by(|a, b| a.correlation.abs().total_cmp(&b.correlation.abs()))
}

fn by_sign(
    sign: HostSign,
    log_ratios: &[f64],
    canary: &[f64],
    pilot: usize,
) -> Option<ControlledRatios> {
    let n = pilot.min(log_ratios.len());
    let finite = log_ratios.iter().chain(canary).all(|value| value.is_finite());
    if n < 6 || log_ratios.len() != canary.len() || !finite {
        return None;
    }
    let mean = |values: &[f64]| values[..n].iter().sum::<f64>() / n as f64;
    let (mean_d, mean_c) = (mean(log_ratios), mean(canary));
    let pairs = || log_ratios[..n].iter().zip(&canary[..n]);
    let product: f64 = pairs().map(|(d, c)| (d - mean_d) * (c - mean_c)).sum();
    let squares_d: f64 = pairs().map(|(d, _)| (d - mean_d).powi(2)).sum();
    let squares_c: f64 = pairs().map(|(_, c)| (c - mean_c).powi(2)).sum();
    let correlation = product / (squares_d * squares_c).sqrt();
    // Not a number for a canary that never moved.
    if correlation.is_nan() || correlation.abs() * (n as f64 - 1.0).sqrt() <= 2.0 {
        return None;
    }
    let share = product / squares_c;
    let log_ratios = log_ratios.iter().zip(canary).map(|(d, c)| d - share * c).collect();
    Some(ControlledRatios { log_ratios, sign, share, correlation })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::normal;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn beside(canary: &[f64]) -> Vec<[Disturbance; 2]> {
        let seen = |log: f64| Disturbance { signs: vec![(HostSign::Canary, log)], own: None };
        canary.iter().map(|log| [seen(1.0), seen(1.0 + log)]).collect()
    }

    #[test]
    fn the_canary_takes_common_noise_out() {
        let mut random = Pcg64::seed_from_u64(51);
        let canary: Vec<f64> = (0..40).map(|_| 0.02 * normal(&mut random)).collect();
        let log_ratios: Vec<f64> =
            canary.iter().map(|canary| 0.1 + 0.8 * canary + 0.003 * normal(&mut random)).collect();
        let found = control(&log_ratios, &beside(&canary), 8).unwrap();
        assert!(found.correlation > 0.9 && (found.share - 0.8).abs() < 0.2, "{found:?}");
        let spread = |values: &[f64]| crate::student::moments(values).1;
        assert!(spread(&found.log_ratios) < 0.3 * spread(&log_ratios));
        assert!((crate::student::moments(&found.log_ratios).0 - 0.1).abs() < 0.003);
        let unrelated: Vec<f64> = (0..40).map(|_| normal(&mut random)).collect();
        assert_eq!(control(&log_ratios, &beside(&unrelated), 8), None);
        assert_eq!(control(&log_ratios, &beside(&[0.0; 40]), 8), None);
        assert_eq!(control(&log_ratios[..5], &beside(&canary[..5]), 8), None);
        assert_eq!(control(&log_ratios, &[], 8), None);
    }
}
