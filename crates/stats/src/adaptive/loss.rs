//! What the time that others took cost the boots.
//!
//! Boots of one configuration that lost more show what a loss costs; taken out of all, the loss is
//! neither noise nor, where it was by chance greater on one side, a difference. This is the
//! analysis of covariance with a slope for both sides.
//!
//! Source: R. A. Fisher, "Statistical Methods for Research Workers" (4th edition, 1932), section
//! 49.1.

use crate::disturbance::AT_WORST;

/// Losses that differ by less (root mean square around each side's mean) are left as they are.
const LEAST_SPREAD: f64 = 0.02;
/// Where the uncertain cost would widen the variance by more than this, the sides lost too
/// differently for what each shows.
const MOST_WIDENING: f64 = 2.0;

/// What is known of the blocks' boots, of A and of B.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BootLogs {
    /// One number a boot, a logarithm.
    pub(super) logs: [Vec<f64>; 2],
    /// What others took of each, as a logarithm ([`crate::lost`]) that has the sign of what it does
    /// to the numbers; None if that is not known of all.
    pub(super) lost: Option<[Vec<f64>; 2]>,
}

/// What a loss costs, and the boots without it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LossCost {
    /// Times what the loss says, 0 to [`AT_WORST`].
    pub(super) times: f64,
    /// How much the variance of the difference grows by not knowing the cost exactly.
    pub(super) widening: f64,
    /// The boots' logarithms as if all had lost alike.
    pub(super) logs: [Vec<f64>; 2],
}

impl LossCost {
    /// None where it can't be told. Whether it can depends on what was lost alone, not on the
    /// benchmark.
    pub(super) fn of(boots: &BootLogs) -> Option<Self> {
        let lost = boots.lost.as_ref()?;
        let n = lost[0].len() as f64;
        let mean = |of: &[f64]| of.iter().sum::<f64>() / n;
        let (mut squares, mut product) = (0.0, 0.0);
        for (logs, lost) in boots.logs.iter().zip(lost) {
            let (log, loss) = (mean(logs), mean(lost));
            for (y, x) in logs.iter().zip(lost) {
                squares += (x - loss).powi(2);
                product += (x - loss) * (y - log);
            }
        }
        let [a, b] = [mean(&lost[0]), mean(&lost[1])];
        let widening = 1.0 + n * (b - a).powi(2) / (2.0 * squares);
        if squares <= 2.0 * n * LEAST_SPREAD.powi(2) || widening >= MOST_WIDENING {
            return None;
        }
        let times = (product / squares).clamp(0.0, AT_WORST);
        let logs = [0, 1].map(|arm| {
            let pairs = boots.logs[arm].iter().zip(&lost[arm]);
            pairs.map(|(log, loss)| log - times * (loss - f64::midpoint(a, b))).collect()
        });
        Some(Self { times, widening, logs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: on each side a loss of 0.1 costs 0.05, and B takes 0.2 more.
    #[test]
    fn what_was_lost_is_taken_out() {
        let boots = |lost: [Vec<f64>; 2]| {
            let log = |of: &[f64], level: f64| of.iter().map(|loss| level + 0.5 * loss).collect();
            BootLogs { logs: [log(&lost[0], 0.0), log(&lost[1], 0.2)], lost: Some(lost) }
        };
        let found = LossCost::of(&boots([vec![0.0, 0.1, 0.2], vec![0.2, 0.3, 0.1]])).unwrap();
        assert!((found.times - 0.5).abs() < 1e-12, "{found:?}");
        // Two sides with squares of 0.02 each, 0.1 apart.
        assert!((found.widening - (1.0 + 3.0 * 0.01 / 0.08)).abs() < 1e-12, "{found:?}");
        let differences = found.logs[1].iter().zip(&found.logs[0]).map(|(b, a)| b - a);
        let mut off = differences.map(|difference| (difference - 0.2).abs());
        assert!(off.all(|off| off < 1e-12));
        // Always the same, nearly none, beside one side alone.
        assert_eq!(LossCost::of(&boots([vec![0.3; 3], vec![0.3; 3]])), None);
        assert_eq!(LossCost::of(&boots([vec![0.0, 0.01, 0.0], vec![0.01, 0.0, 0.0]])), None);
        assert_eq!(LossCost::of(&boots([vec![0.0; 3], vec![0.4, 0.5, 0.45]])), None);
    }
}
