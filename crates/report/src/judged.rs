//! From what the statistics say to what is shown.

use stats::{Comparison, Engine, Interval, Invalidity, Warning};

use crate::host_beside;
use crate::quantity::percent;
use crate::sentence::as_sentence;
use crate::{InterimLook, ShownEstimate, ShownInterval, ShownVerdict, VariantJudgement};

/// A difference of more than a factor of 11 is not a bound.
const HOPELESSLY_WIDE: f64 = 10.0;

impl VariantJudgement {
    /// What `engine` says of `comparison`, and what it knew after each block.
    #[must_use]
    pub fn of(engine: &dyn Engine, comparison: &Comparison) -> Self {
        Self { looks: looks(engine, comparison), ..Self::from(&engine.judge(comparison)) }
    }
}

impl VariantJudgement {
    /// Nothing may be said, whatever the numbers are.
    pub fn invalidate(&mut self, why: Invalidity) {
        self.verdict = ShownVerdict::Invalid;
        self.more_blocks = None;
        self.notes = vec![as_sentence(&why.to_string())];
        self.why = Some(why);
    }
}

/// The ratio after each block, from the first with an interval.
fn looks(engine: &dyn Engine, comparison: &Comparison) -> Vec<InterimLook> {
    let after = |blocks: usize| {
        let mut so_far = comparison.clone();
        so_far.blocks.log_ratios.truncate(blocks);
        so_far.host.truncate(blocks);
        let judged = engine.judge(&so_far);
        let Interval { lo, hi, .. } = judged.interval?;
        let ratio =
            ShownEstimate { centre: judged.ratio?, interval: Some(ShownInterval { lo, hi }) };
        // Before the first look there is no other.
        ratio.bound()?;
        Some(InterimLook { blocks: judged.blocks_used, ratio })
    };
    (2..=comparison.blocks.log_ratios.len()).filter_map(after).collect()
}

impl From<&stats::Judgement> for VariantJudgement {
    fn from(judged: &stats::Judgement) -> Self {
        let mut notes = match &judged.verdict {
            stats::Verdict::NotDecided { at_most, more_blocks, .. } => {
                undecided_notes(judged, *at_most, *more_blocks)
            }
            stats::Verdict::Invalid { why } => vec![as_sentence(&why.to_string())],
            _ => Vec::new(),
        };
        notes.extend(host_beside::notes(judged));
        let warnings = judged.warnings.iter().filter(|one| **one != Warning::HostDiffered);
        notes.extend(warnings.map(|warning| as_sentence(&warning.to_string())));
        let interval =
            judged.interval.map(|interval| ShownInterval { lo: interval.lo, hi: interval.hi });
        Self {
            ratio: judged.ratio.map(|centre| ShownEstimate { centre, interval }),
            blocks: judged.blocks_used,
            p: judged.p,
            q: None,
            looks: Vec::new(),
            verdict: ShownVerdict::from(&judged.verdict),
            more_blocks: match judged.verdict {
                stats::Verdict::NotDecided { more_blocks, .. } => Some(more_blocks),
                _ => None,
            },
            why: match &judged.verdict {
                stats::Verdict::Invalid { why } => Some(why.clone()),
                _ => None,
            },
            host: judged.host.clone(),
            notes,
        }
    }
}

/// What an interval around 1 does say. The A/A arm is not to be decided.
fn undecided_notes(judged: &stats::Judgement, at_most: f64, more_blocks: u32) -> Vec<String> {
    if judged.aa || judged.interval.is_none() || !at_most.is_finite() {
        return Vec::new();
    }
    // So wide an interval excludes nothing, and no number of blocks that it
    // suggests is worth naming.
    if at_most > HOPELESSLY_WIDE {
        return vec!["So few blocks exclude nothing yet.".to_owned()];
    }
    let mut notes = vec![format!("They differ by at most {}.", percent(at_most))];
    if more_blocks > 0 {
        let s = if more_blocks == 1 { "" } else { "s" };
        notes.push(format!(
            "About {more_blocks} more block{s} would decide it, if all goes on as it was (margin {}).",
            percent(judged.margin)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::BetterDirection;
    use stats::{Comparison, Engine, FixedBlocks, PairedBlocks};

    fn judge(log_ratios: &[f64]) -> VariantJudgement {
        let blocks = PairedBlocks { log_ratios: log_ratios.to_vec() };
        let comparison = Comparison {
            blocks,
            better: BetterDirection::Lower,
            margin: 0.03,
            aa: false,
            host: Vec::new(),
        };
        let engine = FixedBlocks::new(4, 0.05).unwrap();
        VariantJudgement::from(&engine.judge(&comparison))
    }

    #[test]
    fn verdicts_keep_their_interval_and_say_what_is_missing() {
        let better = judge(&[-0.69, -0.70, -0.68, -0.71, -0.69]);
        assert_eq!((better.verdict, better.blocks), (ShownVerdict::Better, 5));
        let ratio = better.ratio.unwrap();
        let span = ratio.interval.unwrap();
        assert!(span.lo < ratio.centre && ratio.centre < span.hi && span.hi < 0.51);

        let undecided = judge(&[-0.1, 0.1, 0.05, -0.06, 0.02]);
        assert_eq!(undecided.verdict, ShownVerdict::NotDecided);
        assert!(undecided.notes[0].starts_with("They differ by at most"), "{undecided:?}");

        let none = judge(&[]);
        assert!(none.ratio.is_none());
        assert!(!none.notes.is_empty(), "{none:?}");
    }
}
