//! A study of vmlab's own: its plan says what was measured beside what, and
//! which engine judges.

use record::BetterDirection;
use stats::{Engine, Judgement, PairedBlocks, Verdict};

use super::{
    COMPARISON_VERSION, ComparedCell, ComparedData, ComparedRow, DataWarning, Design, MetricInfo,
    Steadiness, VariantComparison, several,
};

/// A study's data, by row.
pub struct GroupedData<'a> {
    /// The engine that its plan asks for.
    pub engine: &'a dyn Engine,
    /// Rate of false claims of its verdicts.
    pub alpha: f64,
    /// The smallest difference that matters, where a row has none of its own.
    pub margin: f64,
    /// The variants; the first is the baseline.
    pub variants: Vec<String>,
    /// Labels that have one value everywhere.
    pub common: Vec<(String, String)>,
    /// How it was measured, in words.
    pub method: Vec<String>,
    /// What the reader should know.
    pub warnings: Vec<DataWarning>,
    /// One for each load, workload and metric.
    pub rows: Vec<StudyRow>,
}

/// A metric of a workload under a load.
pub struct StudyRow {
    /// Workload and load.
    pub name: String,
    /// The metric.
    pub metric: MetricInfo,
    /// One for each variant.
    pub cells: Vec<Option<ComparedCell>>,
    /// One for each variant but the baseline.
    pub comparisons: Vec<StudyComparison>,
}

/// A variant against the baseline.
pub struct StudyComparison {
    /// The blocks in which both were measured.
    pub comparison: stats::Comparison,
    /// Why nothing may be said, whatever the numbers are.
    pub invalid: Option<stats::Invalidity>,
}

/// Judges a study: the judgements are the engine's, to the last bit.
#[must_use]
pub fn judge_study(study: GroupedData<'_>) -> ComparedData {
    let mut metrics: Vec<MetricInfo> = Vec::new();
    let mut rows: Vec<ComparedRow> = Vec::new();
    for row in study.rows {
        let metric = metrics.iter().position(|known| *known == row.metric).unwrap_or_else(|| {
            metrics.push(row.metric.clone());
            metrics.len() - 1
        });
        let boots = |cell: &Option<ComparedCell>| cell.as_ref().map_or(0, |cell| cell.boots);
        let judged = row.comparisons.iter().zip(&row.cells[1..]).map(|(one, cell)| {
            let mut judgement = study.engine.judge(&one.comparison);
            if let Some(why) = &one.invalid {
                judgement.verdict = Verdict::Invalid { why: why.clone() };
            }
            let is_valid = !matches!(judgement.verdict, Verdict::Invalid { .. });
            let worse_p = worse_p(study.engine, &one.comparison).filter(|_| is_valid);
            Some(VariantComparison {
                judgement,
                boots: (boots(&row.cells[0]), boots(cell)),
                rank_p: None,
                q: None,
                finding: false,
                worse_p,
                gated: false,
            })
        });
        let judged = judged.collect();
        rows.push(ComparedRow { name: row.name, metric: metric as u32, cells: row.cells, judged });
    }
    let (findings, comparisons) = several::findings(&mut rows, study.alpha);
    let gate = several::gate(&mut rows, &metrics, &study.variants, study.alpha);
    ComparedData {
        format: "vmlab-comparison",
        version: COMPARISON_VERSION,
        design: Design::Paired,
        method: study.method,
        variant_label: "variant".to_owned(),
        variants: study.variants,
        common: study.common,
        alpha: study.alpha,
        margin: study.margin,
        metrics,
        rows,
        suites: Vec::new(),
        steadiness: Steadiness::default(),
        findings,
        comparisons,
        gate,
        warnings: study.warnings,
    }
}

/// p of "it is not worse by more than the margin", by the study's engine: that
/// of "there is no difference" after taking the margin off every block.
fn worse_p(engine: &dyn Engine, comparison: &stats::Comparison) -> Option<f64> {
    if comparison.aa {
        return None;
    }
    let margin = comparison.margin.ln_1p();
    let sign = match comparison.better {
        BetterDirection::Lower => 1.0,
        BetterDirection::Higher => -1.0,
    };
    let beyond: Vec<f64> =
        comparison.blocks.log_ratios.iter().map(|log| sign * log - margin).collect();
    let shifted = stats::Comparison {
        blocks: PairedBlocks { log_ratios: beyond },
        better: BetterDirection::Lower,
        ..comparison.clone()
    };
    let Judgement { ratio, p, .. } = engine.judge(&shifted);
    let (ratio, p) = (ratio?, p?);
    Some(if ratio > 1.0 { p / 2.0 } else { 1.0 - p / 2.0 })
}
