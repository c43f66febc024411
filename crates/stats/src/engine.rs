//! The engine: after each block, is another one needed; in the end, what do
//! the blocks say?

use crate::conclude::{CriticalValue, conclude};
use crate::student::{student_critical, student_p};
use crate::{Comparison, Judgement};

/// The progress of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineProgress<'a> {
    /// Whole blocks that were run at this host load.
    pub blocks_done: u32,
    /// All comparisons that the study asks for, with the data so far.
    pub comparisons: &'a [Comparison],
}

/// What to do after a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Run another block.
    AnotherBlock,
    /// Enough: judge.
    Stop,
}

/// Decides after each block whether to go on, and judges.
///
/// Both answers depend on the arguments alone, so that a verdict can be
/// computed again from the journal.
pub trait Engine {
    /// Asked before the first block and after each.
    fn next(&self, progress: &EngineProgress<'_>) -> NextStep;

    /// What the blocks of one comparison say. Never panics: data without a
    /// meaning give [`Verdict::Invalid`](crate::Verdict::Invalid) with the reason.
    fn judge(&self, comparison: &Comparison) -> Judgement;
}

/// A number of blocks that is fixed in advance, then Student's t.
///
/// Fixed means fixed: looking at the verdict and adding blocks until it
/// pleases makes false claims of up to 15 % out of the promised 5 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixedBlocks {
    blocks: u32,
    alpha: f64,
}

/// Why a plan for the blocks can't be followed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidPlan {
    /// No blocks at all.
    #[error("0 blocks: nothing would be measured; ask for at least 1, better 5")]
    NoBlocks,
    /// Not a probability.
    #[error("Rate of false claims {0} is not between 0 and 1; 0.05 is usual")]
    Alpha(f64),
    /// Not a difference that could matter.
    #[error("Margin {0} is not a positive number; 0.03 for 3 % is usual")]
    Margin(f64),
    /// Not a time in which anything could be measured.
    #[error("Time of {0} s is not a positive number")]
    Time(f64),
}

impl FixedBlocks {
    /// `blocks` is at least 1; `alpha`, the rate of false claims, lies between
    /// 0 and 1.
    ///
    /// # Errors
    /// [`InvalidPlan`] names the value that does not.
    pub fn new(blocks: u32, alpha: f64) -> Result<Self, InvalidPlan> {
        if blocks == 0 {
            return Err(InvalidPlan::NoBlocks);
        }
        if !(alpha > 0.0 && alpha < 1.0) {
            return Err(InvalidPlan::Alpha(alpha));
        }
        Ok(Self { blocks, alpha })
    }

    /// The planned number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
}

impl Engine for FixedBlocks {
    fn next(&self, progress: &EngineProgress<'_>) -> NextStep {
        if progress.blocks_done < self.blocks { NextStep::AnotherBlock } else { NextStep::Stop }
    }

    fn judge(&self, comparison: &Comparison) -> Judgement {
        conclude(self, comparison)
    }
}

impl CriticalValue for FixedBlocks {
    fn alpha(&self) -> f64 {
        self.alpha
    }

    fn critical(&self, n: u32, alpha: f64) -> f64 {
        student_critical(n, alpha)
    }

    fn p(&self, t: f64, n: u32) -> f64 {
        student_p(t, n)
    }
}
