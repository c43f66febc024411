//! The engine that looks after every block and stops when the question is
//! answered.

use std::sync::Arc;

use crate::anytime;
use crate::boundary::{Boundary, LookSchedule, MOST_LOOKS};
use crate::conclude::{CriticalValue, conclude, verdict_of};
use crate::{Comparison, Engine, EngineProgress, InvalidPlan, Judgement, NextStep, Verdict};

/// Blocks before the first look: fewer can hardly decide, and a look costs
/// error that later ones then lack.
pub const FIRST_LOOK: u32 = 5;
/// The error is spent evenly over the blocks.
const EXPONENT: f64 = 1.0;
/// Rates of false claims at which boundaries are computed to read a p value
/// between them.
const LADDER: [f64; 12] = [0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4, 1e-6];

/// Looks at the blocks after each one, and still keeps the promised error rate.
///
/// With a greatest number of blocks the boundary is a group-sequential one
/// ([`Boundary`]), which decides soonest. Without one, or with more blocks than
/// [`MOST_LOOKS`], it is the anytime-valid t ([`e_value`](crate::e_value)),
/// which costs about a tenth more time and allows to go on for ever. Intervals
/// hold for all looks together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequentialTest {
    blocks: Option<u32>,
    alpha: f64,
}

impl SequentialTest {
    /// At most `blocks` blocks, at least 1 (which decides nothing).
    ///
    /// # Errors
    /// [`InvalidPlan`] if `blocks` is 0 or `alpha` not between 0 and 1.
    pub fn within(blocks: u32, alpha: f64) -> Result<Self, InvalidPlan> {
        if blocks == 0 {
            return Err(InvalidPlan::NoBlocks);
        }
        Ok(Self { blocks: Some(blocks), ..Self::open_ended(alpha)? })
    }

    /// Until all is decided, or somebody says stop. Blocks may be added at any
    /// time.
    ///
    /// # Errors
    /// [`InvalidPlan`] if `alpha` is not between 0 and 1.
    pub fn open_ended(alpha: f64) -> Result<Self, InvalidPlan> {
        if !(alpha > 0.0 && alpha < 1.0) {
            return Err(InvalidPlan::Alpha(alpha));
        }
        Ok(Self { blocks: None, alpha })
    }

    /// The greatest number of blocks, if there is one.
    #[must_use]
    pub fn blocks(&self) -> Option<u32> {
        self.blocks
    }

    /// Blocks before the first look.
    #[must_use]
    pub fn first_look(&self) -> u32 {
        self.blocks.map_or(FIRST_LOOK, |blocks| blocks.clamp(2, FIRST_LOOK))
    }

    /// About how many more blocks this comparison needs; none once it is
    /// decided, or if nothing can be said about it.
    #[must_use]
    pub fn more_blocks(&self, comparison: &Comparison) -> Option<u32> {
        match self.verdict(comparison) {
            Verdict::NotDecided { more_blocks, .. } => Some(more_blocks),
            _ => None,
        }
    }

    /// The verdict of [`Engine::judge`] without the rest of the judgement.
    #[must_use]
    pub fn verdict(&self, comparison: &Comparison) -> Verdict {
        verdict_of(self, comparison)
    }

    fn boundary(&self, alpha: f64) -> Option<Arc<Boundary>> {
        let last = self.blocks.filter(|blocks| (2..=MOST_LOOKS).contains(blocks))?;
        let first = self.first_look();
        Boundary::of(LookSchedule { first, last, alpha, exponent: EXPONENT, ordinary_from: first })
    }
}

impl CriticalValue for SequentialTest {
    fn alpha(&self) -> f64 {
        self.alpha
    }

    fn critical(&self, n: u32, alpha: f64) -> f64 {
        match self.boundary(alpha) {
            Some(boundary) if n <= boundary.looks().last => {
                boundary.critical(n).unwrap_or(f64::INFINITY)
            }
            _ => anytime::critical(n, alpha),
        }
    }

    fn p(&self, t: f64, n: u32) -> f64 {
        let planned = self.boundary(self.alpha).is_some_and(|boundary| n <= boundary.looks().last);
        if !planned {
            return (1.0 / anytime::e_value(t, n)).min(1.0);
        }
        // Downwards from the rate in use, where most of the interest is.
        let mut ladder: Vec<f64> = LADDER.to_vec();
        ladder.push(self.alpha);
        ladder.sort_by(|a, b| b.total_cmp(a));
        ladder.dedup();
        let crossed = |alpha: f64| t.abs() >= self.critical(n, alpha);
        let step = ladder.partition_point(|&alpha| crossed(alpha));
        let Some(&refused) = ladder.get(step) else { return ladder[step - 1] };
        if step == 0 || t == 0.0 {
            return 1.0;
        }
        // Between two rungs the rate is nearly a power of t.
        let (low, high) = (self.critical(n, ladder[step - 1]), self.critical(n, refused));
        let share = ((t.abs() / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
        let rate = ladder[step - 1].ln() * (1.0 - share) + refused.ln() * share;
        rate.exp().max(refused * (1.0 + 1e-9))
    }

    fn last(&self) -> Option<u32> {
        self.blocks
    }
}

impl Engine for SequentialTest {
    fn next(&self, progress: &EngineProgress<'_>) -> NextStep {
        let EngineProgress { blocks_done, comparisons } = progress;
        if self.blocks.is_some_and(|blocks| *blocks_done >= blocks) {
            return NextStep::Stop;
        }
        // An A/A arm has nothing to decide; alone it is measured to the end.
        let open = |comparison: &Comparison| !self.verdict(comparison).is_decided();
        let mut asked = comparisons.iter().filter(|comparison| !comparison.aa).peekable();
        if asked.peek().is_none() || asked.any(open) {
            NextStep::AnotherBlock
        } else {
            NextStep::Stop
        }
    }

    fn judge(&self, comparison: &Comparison) -> Judgement {
        conclude(self, comparison)
    }
}

#[cfg(test)]
mod tests;
