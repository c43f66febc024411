//! Was the host quiet? Rules that are fixed before the first block, and a short
//! loop of known work beside each trial (the canary).
//!
//! A rule strikes a whole block, all variants of it, whatever they measured: a
//! bad trial that was dropped alone would bend the comparison. Struck blocks
//! are repeated, kept and counted; too many of them, and the host is unstable.

use serde::{Deserialize, Serialize};

use crate::boot::median;

/// More of the blocks than this struck, and the host is no place to measure.
pub const UNSTABLE: f64 = 0.2;
/// Of a normal distribution the standard deviation by the median distance.
const NORMAL: f64 = 1.4826;

/// What was seen around one trial. What could not be read is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Share of time that the hypervisor below took from the host or guest.
    pub steal: Option<f64>,
    /// Share of time that vCPU threads waited for a pCPU.
    pub run_delay: Option<f64>,
    /// Share of time for which something stalled (PSI, the greatest of CPU,
    /// memory and I/O).
    pub pressure: Option<f64>,
    /// Share of time that others ran on the VM's pCPUs.
    pub foreign_load: Option<f64>,
    /// How often a pCPU was throttled.
    pub throttled: Option<u64>,
    /// Frequency by the greatest of the study.
    pub frequency: Option<f64>,
    /// Seconds of the canary, before and after: the greater.
    pub canary_s: Option<f64>,
}

/// Limits beyond which a block is struck. Absent ones don't strike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Greatest share of steal.
    pub steal: Option<f64>,
    /// Greatest share of run delay.
    pub run_delay: Option<f64>,
    /// Greatest share of pressure.
    pub pressure: Option<f64>,
    /// Greatest share of foreign load.
    pub foreign_load: Option<f64>,
    /// Most throttlings.
    pub throttled: Option<u64>,
    /// Least frequency, by the greatest of the study.
    pub frequency: Option<f64>,
    /// Greatest distance of the canary from its median over the study, in
    /// standard deviations by the median distance.
    pub canary: Option<f64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            steal: Some(0.01),
            run_delay: Some(0.01),
            pressure: None,
            foreign_load: Some(0.02),
            throttled: Some(0),
            frequency: None,
            canary: Some(4.5),
        }
    }
}

/// Why a trial strikes its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disturbance {
    /// The hypervisor below took time.
    Steal,
    /// vCPUs waited for pCPUs.
    RunDelay,
    /// Something stalled.
    Pressure,
    /// Others ran on the VM's pCPUs.
    ForeignLoad,
    /// A pCPU was throttled.
    Throttled,
    /// pCPUs ran slowly.
    Frequency,
    /// Known work took longer or shorter than usual.
    Canary,
}

/// What disturbed each block: one list a block, empty if nothing did. `blocks`
/// holds the surroundings of each block's trials.
#[must_use]
pub fn disturbances(blocks: &[Vec<Surroundings>], rules: &Rules) -> Vec<Vec<Disturbance>> {
    let canaries: Vec<f64> = blocks.iter().flatten().filter_map(|trial| trial.canary_s).collect();
    let usual = (!canaries.is_empty()).then(|| {
        let middle = median(&canaries);
        let distances: Vec<f64> = canaries.iter().map(|canary| (canary - middle).abs()).collect();
        // A clock that always says the same would strike every tick.
        (middle, (NORMAL * median(&distances)).max(0.001 * middle))
    });
    let above = |value: Option<f64>, limit: Option<f64>| {
        value.zip(limit).is_some_and(|(value, limit)| value > limit)
    };
    let disturbs = |trial: &Surroundings, by: Disturbance| match by {
        Disturbance::Steal => above(trial.steal, rules.steal),
        Disturbance::RunDelay => above(trial.run_delay, rules.run_delay),
        Disturbance::Pressure => above(trial.pressure, rules.pressure),
        Disturbance::ForeignLoad => above(trial.foreign_load, rules.foreign_load),
        Disturbance::Throttled => {
            trial.throttled.zip(rules.throttled).is_some_and(|(times, most)| times > most)
        }
        Disturbance::Frequency => above(rules.frequency, trial.frequency),
        Disturbance::Canary => {
            let distance =
                trial.canary_s.zip(usual).map(|(s, (middle, sd))| (s - middle).abs() / sd);
            above(distance, rules.canary)
        }
    };
    let all = [
        Disturbance::Steal,
        Disturbance::RunDelay,
        Disturbance::Pressure,
        Disturbance::ForeignLoad,
        Disturbance::Throttled,
        Disturbance::Frequency,
        Disturbance::Canary,
    ];
    let of_block = |block: &Vec<Surroundings>| -> Vec<Disturbance> {
        all.into_iter().filter(|by| block.iter().any(|trial| disturbs(trial, *by))).collect()
    };
    blocks.iter().map(of_block).collect()
}

/// True if so many blocks were struck that none of the verdicts should be
/// believed: the host is unstable.
#[must_use]
pub fn is_unstable(disturbances: &[Vec<Disturbance>]) -> bool {
    let struck = disturbances.iter().filter(|block| !block.is_empty()).count();
    struck as f64 > UNSTABLE * disturbances.len() as f64
}

/// Log ratios after the canary's share was taken out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Controlled {
    /// One for each block.
    pub log_ratios: Vec<f64>,
    /// How much of the canary's log ratio was taken off.
    pub share: f64,
    /// Correlation of the two in the pilot: the variance falls by its square.
    pub correlation: f64,
}

/// Takes out of `log_ratios` what the canary's log ratios in the same blocks
/// explain (a control variate): `d - share * canary`. The share is learned in
/// the first `pilot` blocks and applied to all.
///
/// None where it would not help: fewer than six pilot blocks, a correlation
/// that chance explains (two standard errors), or values that are not finite.
#[must_use]
pub fn control(log_ratios: &[f64], canary: &[f64], pilot: usize) -> Option<Controlled> {
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
    Some(Controlled { log_ratios, share, correlation })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::normal;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[test]
    fn a_bad_trial_strikes_its_whole_block_and_says_why() {
        let quiet = Surroundings {
            steal: Some(0.0),
            run_delay: Some(0.001),
            throttled: Some(0),
            canary_s: Some(0.2),
            ..Surroundings::default()
        };
        let check = |bad: Surroundings, expected: &[Disturbance]| {
            let mut blocks = vec![vec![quiet, quiet]; 9];
            blocks.push(vec![quiet, bad]);
            let found = disturbances(&blocks, &Rules::default());
            assert!(found[..9].iter().all(Vec::is_empty));
            assert_eq!(found[9], expected, "{bad:?}");
            assert!(!is_unstable(&found));
        };
        check(quiet, &[]);
        check(Surroundings::default(), &[]);
        check(Surroundings { steal: Some(0.05), ..quiet }, &[Disturbance::Steal]);
        check(Surroundings { run_delay: Some(0.02), ..quiet }, &[Disturbance::RunDelay]);
        check(Surroundings { foreign_load: Some(0.5), ..quiet }, &[Disturbance::ForeignLoad]);
        check(Surroundings { pressure: Some(0.9), ..quiet }, &[]);
        let hot = Surroundings { throttled: Some(2), canary_s: Some(0.3), ..quiet };
        check(hot, &[Disturbance::Throttled, Disturbance::Canary]);
    }

    #[test]
    fn a_host_is_unstable_beyond_a_fifth_of_the_blocks() {
        let blocks = |bad: usize| -> Vec<Vec<Disturbance>> {
            (0..10).map(|i| if i < bad { vec![Disturbance::Steal] } else { Vec::new() }).collect()
        };
        assert!(!is_unstable(&blocks(2)) && is_unstable(&blocks(3)) && !is_unstable(&[]));
    }

    #[test]
    fn the_canary_takes_common_noise_out() {
        let mut random = Pcg64::seed_from_u64(51);
        let canary: Vec<f64> = (0..40).map(|_| 0.02 * normal(&mut random)).collect();
        let log_ratios: Vec<f64> =
            canary.iter().map(|canary| 0.1 + 0.8 * canary + 0.003 * normal(&mut random)).collect();
        let found = control(&log_ratios, &canary, 8).unwrap();
        assert!(found.correlation > 0.9 && (found.share - 0.8).abs() < 0.2, "{found:?}");
        let spread = |values: &[f64]| crate::student::moments(values).1;
        assert!(spread(&found.log_ratios) < 0.3 * spread(&log_ratios));
        assert!((crate::student::moments(&found.log_ratios).0 - 0.1).abs() < 0.003);
        let unrelated: Vec<f64> = (0..40).map(|_| normal(&mut random)).collect();
        assert_eq!(control(&log_ratios, &unrelated, 8), None);
        assert_eq!(control(&log_ratios, &[0.0; 40], 8), None);
        assert_eq!(control(&log_ratios[..5], &canary[..5], 8), None);
    }
}
