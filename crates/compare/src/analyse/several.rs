//! Many comparisons at once: the list of findings, and the gate.

use super::{Gate, MetricInfo, Row};

/// `3`, `2.5`: a fraction as a percentage.
pub(super) fn percent(fraction: f64) -> String {
    let text = format!("{:.2}", fraction * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Marks the verdicts that belong to a list in which at most `alpha` of the
/// entries are false (Benjamini and Hochberg 1995). Returns how many there are
/// and how many comparisons were made.
pub(super) fn findings(rows: &mut [Row], alpha: f64) -> (usize, usize) {
    let mut judged: Vec<_> =
        rows.iter_mut().flat_map(|row| row.judged.iter_mut().flatten()).collect();
    // Exact metrics have no p: what differs, differs.
    for judged in judged.iter_mut().filter(|judged| judged.judgement.p.is_none()) {
        judged.finding = judged.judgement.verdict.is_difference();
    }
    let comparisons = judged.len();
    let mut with_p: Vec<_> =
        judged.iter_mut().filter(|judged| judged.judgement.p.is_some()).collect();
    let p = |judged: &super::Judged| judged.judgement.p.unwrap_or(1.0);
    with_p.sort_by(|a, b| p(a).total_cmp(&p(b)));
    let count = with_p.len() as f64;
    let mut least: f64 = 1.0;
    for (place, judged) in with_p.iter_mut().enumerate().rev() {
        least = least.min(p(judged) * count / (place + 1) as f64);
        judged.q = Some(least);
        judged.finding = least <= alpha && judged.judgement.verdict.is_difference();
    }
    let found = judged.iter().filter(|judged| judged.finding).count();
    (found, comparisons)
}

/// Failures that are named; the rest is counted.
const NAMED: usize = 20;

/// Holm's procedure (1979) over "not worse by more than the margin": with
/// probability 1 - alpha none of the failures is false.
pub(super) fn gate(
    rows: &mut [Row],
    metrics: &[MetricInfo],
    variants: &[String],
    alpha: f64,
) -> Gate {
    let mut tests: Vec<(f64, usize, usize)> = Vec::new();
    let mut undecidable = 0;
    for (row, entry) in rows.iter().enumerate() {
        for (variant, judged) in entry.judged.iter().enumerate() {
            match judged.as_ref().map(|judged| judged.worse_p) {
                Some(Some(p)) => tests.push((p, row, variant)),
                Some(None) if !judged.as_ref().is_some_and(|judged| judged.judgement.aa) => {
                    undecidable += 1;
                }
                _ => {}
            }
        }
    }
    tests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = tests.len();
    let mut failures = Vec::new();
    let held =
        tests.iter().enumerate().take_while(|(i, test)| test.0 <= alpha / (count - i) as f64);
    let held: Vec<_> = held.map(|(_, test)| *test).collect();
    for (index, (_, row, variant)) in held.iter().enumerate() {
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
    Gate { passed: held.is_empty(), failures, undecidable }
}
