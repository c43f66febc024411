//! Many comparisons at once: the list of findings, and the gate.

use report::percent;
use stats::SpreadVerdict;

use super::judge::SpreadTest;
use super::{ComparedRow, GateResult, MetricInfo, SpreadFinding, Steadiness};

/// Marks the verdicts that belong to a list in which at most `alpha` of the
/// entries are false ([`stats::benjamini_hochberg`]). Returns how many there
/// are and how many comparisons were made.
pub(super) fn findings(rows: &mut [ComparedRow], alpha: f64) -> (usize, usize) {
    let mut judged: Vec<_> =
        rows.iter_mut().flat_map(|row| row.judged.iter_mut().flatten()).collect();
    let p: Vec<f64> = judged.iter().filter_map(|judged| judged.judgement.p).collect();
    let mut adjusted = stats::benjamini_hochberg(&p).into_iter();
    for judged in &mut judged {
        // Exact metrics have no p: what differs, differs.
        judged.q = judged.judgement.p.and_then(|_| adjusted.next());
        judged.finding =
            judged.judgement.verdict.is_difference() && judged.q.is_none_or(|q| q <= alpha);
    }
    (judged.iter().filter(|judged| judged.finding).count(), judged.len())
}

/// The tests whose differences of spread are findings.
pub(super) fn steadiness(tests: &[SpreadTest], alpha: f64) -> Steadiness {
    let p: Vec<f64> = tests.iter().map(|test| test.p).collect();
    let finding = |(test, q): (&SpreadTest, f64)| {
        let SpreadTest { row, variant, spread, .. } = *test;
        let (steadier, ratio) = match spread {
            SpreadVerdict::BSteadier { ratio } => (true, ratio),
            SpreadVerdict::BLessSteady { ratio } => (false, ratio),
            SpreadVerdict::CannotTell { .. } => return None,
        };
        (q <= alpha).then_some(SpreadFinding { row, variant, steadier, ratio, q })
    };
    let adjusted = stats::benjamini_hochberg(&p);
    let findings = tests.iter().zip(adjusted).filter_map(finding).collect();
    Steadiness { comparisons: tests.len(), findings }
}

/// Failures that are named; the rest is counted.
const NAMED: usize = 20;

/// "Not worse by more than the margin", tested for all: with probability
/// 1 - alpha none of the failures is false ([`stats::holm`]).
pub(super) fn gate(
    rows: &mut [ComparedRow],
    metrics: &[MetricInfo],
    variants: &[String],
    alpha: f64,
) -> GateResult {
    let (mut p, mut places) = (Vec::new(), Vec::new());
    let mut undecidable = 0;
    for (row, entry) in rows.iter().enumerate() {
        for (variant, judged) in entry.judged.iter().enumerate() {
            let Some(judged) = judged else { continue };
            match judged.worse_p {
                Some(worse_p) => {
                    p.push(worse_p);
                    places.push((row, variant));
                }
                None if !judged.judgement.aa => undecidable += 1,
                None => {}
            }
        }
    }
    let mut held: Vec<(f64, (usize, usize))> =
        stats::holm(&p).into_iter().zip(places).filter(|(p, _)| *p <= alpha).collect();
    // The clearest first.
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut failures = Vec::new();
    for (index, (_, (row, variant))) in held.iter().enumerate() {
        let row = &mut rows[*row];
        let Some(judged) = &mut row.judged[*variant] else { continue };
        judged.gated = true;
        if index < NAMED {
            let ratio = judged.judgement.ratio.unwrap_or(f64::NAN);
            failures.push(format!(
                "{}: {} of {} is {:+.1} % from {}, worse by more than {} %",
                variants[*variant + 1],
                metrics[row.metric as usize].name,
                row.name,
                (ratio - 1.0) * 100.0,
                variants[0],
                percent(judged.judgement.margin),
            ));
        }
    }
    if held.len() > NAMED {
        failures.push(format!("and {} more", held.len() - NAMED));
    }
    GateResult { passed: held.is_empty(), failures, undecidable }
}
