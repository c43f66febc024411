//! The engine: after each block, is another one needed; in the end, what do
//! the blocks say?

use serde::{Deserialize, Serialize};

use crate::signed_rank::hodges_lehmann;
use crate::{Better, BootStatistic, HodgesLehmann, Interval, Judgement, Verdict, Warning, t_test};

/// Within-block log ratios `ln(B / A)`, one a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PairedBlocks {
    /// One for each block in which both were measured.
    pub log_ratios: Vec<f64>,
}

/// A log ratio nearer to 0 than this is rounding, not a difference: equal
/// measurements must not become a significant 1e-16.
const ROUNDING: f64 = 1e-12;

/// The logarithm of a ratio that is still a finite number, either way round.
const GREATEST_LOG: f64 = 700.0;

/// The ratio of a log ratio, finite and not 0 even at the ends of an interval
/// that says nothing.
fn ratio_of(log: f64) -> f64 {
    log.clamp(-GREATEST_LOG, GREATEST_LOG).exp()
}

impl PairedBlocks {
    /// From the two boots of each block.
    #[must_use]
    pub fn from_boots(pairs: impl IntoIterator<Item = (BootStatistic, BootStatistic)>) -> Self {
        let log_ratio = |(a, b): (BootStatistic, BootStatistic)| {
            let difference = b.log - a.log;
            if difference.abs() < ROUNDING { 0.0 } else { difference }
        };
        Self { log_ratios: pairs.into_iter().map(log_ratio).collect() }
    }
}

/// One question: how does B compare with A in one metric, load and workload?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The data.
    pub blocks: PairedBlocks,
    /// The metric's better direction.
    pub better: Better,
    /// The smallest relative difference that matters, e.g. 0.03.
    pub margin: f64,
    /// True if A and B are the same configuration under two names.
    pub aa: bool,
}

/// How far a study is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    /// Whole blocks that were run at this host load.
    pub blocks_done: u32,
    /// All comparisons that the study asks for, with the data so far.
    pub comparisons: &'a [Comparison],
}

/// What to do after a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
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
    fn next(&self, progress: &Progress<'_>) -> Next;

    /// What the blocks of one comparison say. Never panics: data without a
    /// meaning give [`Verdict::Invalid`] with the reason.
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
    fn next(&self, progress: &Progress<'_>) -> Next {
        if progress.blocks_done < self.blocks { Next::AnotherBlock } else { Next::Stop }
    }

    fn judge(&self, comparison: &Comparison) -> Judgement {
        let Comparison { blocks, better, margin, aa } = comparison;
        let invalid = |reason: String| Judgement::invalid(reason, *better, *margin, *aa);
        let log_ratios = &blocks.log_ratios;
        if !(*margin > 0.0 && margin.is_finite()) {
            return invalid(format!("Margin {margin} is not a positive number"));
        }
        let usable = |ratio: &f64| ratio.abs() <= GREATEST_LOG;
        if let Some(block) = log_ratios.iter().position(|ratio| !usable(ratio)) {
            let value = log_ratios[block];
            return invalid(format!("Block {block} gives no ratio (its logarithm is {value})"));
        }
        let level = 1.0 - self.alpha;
        let Some(test) = t_test(log_ratios, level) else {
            let reason = match log_ratios.len() {
                0 => "No block in which both were measured".to_owned(),
                _ => "Only 1 block in which both were measured, an interval needs 2".to_owned(),
            };
            return Judgement {
                ratio: log_ratios.first().map(|log| ratio_of(*log)),
                blocks_used: log_ratios.len() as u32,
                ..invalid(reason)
            };
        };
        let verdict = verdict(&test.interval, log_ratios.len(), *better, *margin);
        let robust = hodges_lehmann(log_ratios, level);
        let decided = !test.interval.contains(0.0);
        let mut warnings = Vec::new();
        if let Some((_, Some(ranks))) = robust
            && ranks.contains(0.0) == decided
        {
            warnings.push(Warning::OutlierDriven);
        }
        if test.sd < ROUNDING {
            warnings.push(Warning::NoVariance);
        }
        if log_ratios.len() < 5 {
            warnings.push(Warning::FewBlocks);
        }
        if *aa && decided {
            warnings.push(Warning::AaAlarm);
        }
        Judgement {
            verdict,
            ratio: Some(ratio_of(test.mean)),
            interval: Some(test.interval.map(ratio_of)),
            p: Some(test.p),
            blocks_used: log_ratios.len() as u32,
            better: *better,
            margin: *margin,
            hodges_lehmann: robust.map(|(centre, interval)| HodgesLehmann {
                ratio: ratio_of(centre),
                interval: interval.map(|interval| interval.map(ratio_of)),
            }),
            aa: *aa,
            warnings,
        }
    }
}

/// The verdict of an interval of log ratios from `n` blocks.
fn verdict(interval: &Interval, n: usize, better: Better, margin: f64) -> Verdict {
    if interval.contains(0.0) {
        let half_width = (interval.hi - interval.lo) / 2.0;
        let needed = n as f64 * (half_width / margin.ln_1p()).powi(2);
        return Verdict::NotDecided {
            at_most: (ratio_of(interval.hi) - 1.0).max(1.0 - ratio_of(interval.lo)),
            half_width,
            // The cast saturates, which is what a hopeless comparison needs.
            more_blocks: (needed.ceil() - n as f64).max(0.0) as u32,
        };
    }
    match (better, interval.hi < 0.0) {
        (Better::Lower, true) | (Better::Higher, false) => Verdict::BBetter,
        (Better::Lower, false) | (Better::Higher, true) => Verdict::BWorse,
    }
}
