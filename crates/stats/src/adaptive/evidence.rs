//! What the blocks of a case say so far.

use std::sync::Arc;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::loss::{BootLogs, LossCost};
use crate::boundary::Boundary;
use crate::student::moments;

/// The levels at which claims are made after each block.
pub(super) struct Levels {
    pub(super) difference: Arc<Boundary>,
    pub(super) equivalence: Arc<Boundary>,
}

impl Levels {
    pub(super) fn first(&self) -> u32 {
        self.difference.looks().first
    }

    pub(super) fn last(&self) -> u32 {
        self.difference.looks().last
    }

    /// Two-sided p value that a claim of a difference needs.
    pub(super) fn difference(&self, n: u32) -> Option<f64> {
        self.difference.nominal(n)
    }

    /// The same for the interval that must lie inside the margin.
    pub(super) fn equivalence(&self, n: u32) -> Option<f64> {
        self.equivalence.nominal(n)
    }
}

/// An estimate of the log ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RatioEstimate {
    pub(super) n: u32,
    pub(super) mean: f64,
    /// Variance of one block's difference.
    pub(super) variance: f64,
    /// Degrees of freedom of the variance.
    pub(super) freedom: f64,
    /// The least that the variance may turn out to be.
    pub(super) hoped: f64,
    /// The part of the variance of a boot that iterations explain.
    floor: f64,
    /// What others took is taken out, at so many times what it says.
    pub(super) loss_cost: Option<f64>,
}

/// Blocks share a drift if their correlation is above what chance shows in one
/// of so many cases.
const CORRELATED: f64 = 0.05;

impl RatioEstimate {
    /// None for fewer than two blocks. `floor` is the variance that iterations
    /// alone give to one boot's number.
    pub(super) fn of(boots: &BootLogs, floor: f64, pool: bool) -> Option<Self> {
        let n = boots.logs[0].len();
        if n < 2 || boots.logs[1].len() != n {
            return None;
        }
        let cost = LossCost::of(boots);
        let [a, b] = cost.as_ref().map_or(&boots.logs, |cost| &cost.logs);
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
        let (mean, sd) = moments(&differences);
        let ((_, sd_a), (_, sd_b)) = (moments(a), moments(b));
        let (var_a, var_b) = (sd_a * sd_a, sd_b * sd_b);
        let pooled = var_a + var_b;
        // The cost takes a degree of freedom of all boots, half a one of the differences.
        let known = |variance: f64, freedom: f64, taken: f64| match &cost {
            Some(cost) => {
                let left = (freedom - taken).max(0.5);
                (variance * freedom / left * cost.widening, left)
            }
            None => (variance, freedom),
        };
        let within = known(sd * sd, n as f64 - 1.0, 0.5);
        let independent = pooled > 0.0 && pool && !correlated(n, sd * sd, sd_a, sd_b);
        let (variance, freedom) = if independent {
            let freedom = (n as f64 - 1.0) * pooled * pooled / (var_a * var_a + var_b * var_b);
            known(pooled, freedom, 1.0)
        } else {
            within
        };
        // Less noise than the iterations make is luck.
        let variance = variance.max(2.0 * floor);
        let hoped = variance.min(within.0.max(2.0 * floor));
        let loss_cost = cost.map(|cost| cost.times);
        Some(Self { n: n as u32, mean, variance, freedom, hoped, floor, loss_cost })
    }

    pub(super) fn standard_error(&self) -> f64 {
        (self.variance / f64::from(self.n)).sqrt()
    }

    /// Half the width of the interval whose two-sided error is `level`.
    pub(super) fn half_width(&self, level: f64) -> f64 {
        let error = self.standard_error();
        if error == 0.0 {
            return 0.0;
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(f64::INFINITY, |student| student.inverse_cdf(1.0 - level / 2.0)) * error
    }

    /// Variance between boots beyond what iterations explain.
    pub(super) fn boot_variance(&self) -> f64 {
        (self.variance / 2.0 - self.floor).max(0.0)
    }
}

/// Whether what A and B have in common inside blocks is more than chance.
fn correlated(n: usize, within: f64, sd_a: f64, sd_b: f64) -> bool {
    if n < 3 || sd_a == 0.0 || sd_b == 0.0 {
        return false;
    }
    let freedom = n as f64 - 2.0;
    let r = ((sd_a * sd_a + sd_b * sd_b - within) / (2.0 * sd_a * sd_b)).clamp(-1.0, 1.0);
    let t = r * (freedom / (1.0 - r * r).max(f64::MIN_POSITIVE)).sqrt();
    StudentsT::new(0.0, 1.0, freedom).is_ok_and(|student| student.cdf(-t) < CORRELATED)
}
