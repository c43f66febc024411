//! From what the statistics say to what is shown.

use crate::sentence::as_sentence;
use crate::{Estimate, Judgement, Span, Verdict};

/// A difference of more than a factor of 11 is not a bound.
const HOPELESSLY_WIDE: f64 = 10.0;

impl From<&stats::Judgement> for Judgement {
    fn from(judged: &stats::Judgement) -> Self {
        let (verdict, mut notes) = match &judged.verdict {
            stats::Verdict::BBetter => (Verdict::Better, Vec::new()),
            stats::Verdict::BWorse => (Verdict::Worse, Vec::new()),
            stats::Verdict::BelowMargin { b_better } => {
                let verdict = if *b_better { Verdict::Better } else { Verdict::Worse };
                let percent = judged.margin * 100.0;
                (
                    verdict,
                    vec![format!("The difference is smaller than the margin of {percent:.1} %.")],
                )
            }
            stats::Verdict::Equivalent => {
                let percent = judged.margin * 100.0;
                (Verdict::NotDecided, vec![format!("No difference larger than {percent:.1} %.")])
            }
            stats::Verdict::NotDecided { at_most, more_blocks, .. } => {
                (Verdict::NotDecided, undecided_notes(judged, *at_most, *more_blocks))
            }
            stats::Verdict::Invalid { reason } => (Verdict::Invalid, vec![as_sentence(reason)]),
        };
        notes.extend(judged.warnings.iter().map(|warning| as_sentence(&warning.to_string())));
        let interval = judged.interval.map(|interval| Span { lo: interval.lo, hi: interval.hi });
        Self {
            ratio: judged.ratio.map(|centre| Estimate { centre, interval }),
            blocks: judged.blocks_used,
            p: judged.p,
            verdict,
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
    let mut notes = vec![format!("They differ by at most {:.1} %.", at_most * 100.0)];
    if more_blocks > 0 {
        let s = if more_blocks == 1 { "" } else { "s" };
        notes.push(format!(
            "About {more_blocks} more block{s} would make the interval as narrow as the margin of {:.1} %.",
            judged.margin * 100.0
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Better, Comparison, Engine, FixedBlocks, PairedBlocks};

    fn judge(log_ratios: &[f64]) -> Judgement {
        let blocks = PairedBlocks { log_ratios: log_ratios.to_vec() };
        let comparison = Comparison { blocks, better: Better::Lower, margin: 0.03, aa: false };
        let engine = FixedBlocks::new(4, 0.05).unwrap();
        Judgement::from(&engine.judge(&comparison))
    }

    #[test]
    fn verdicts_keep_their_interval_and_say_what_is_missing() {
        let better = judge(&[-0.69, -0.70, -0.68, -0.71, -0.69]);
        assert_eq!((better.verdict, better.blocks), (Verdict::Better, 5));
        let ratio = better.ratio.unwrap();
        let span = ratio.interval.unwrap();
        assert!(span.lo < ratio.centre && ratio.centre < span.hi && span.hi < 0.51);

        let undecided = judge(&[-0.1, 0.1, 0.05, -0.06, 0.02]);
        assert_eq!(undecided.verdict, Verdict::NotDecided);
        assert!(undecided.notes[0].starts_with("They differ by at most"), "{undecided:?}");

        let none = judge(&[]);
        assert!(none.ratio.is_none());
        assert!(!none.notes.is_empty(), "{none:?}");
    }
}
