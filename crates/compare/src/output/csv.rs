//! The comparison as comma-separated values, one comparison a line.

use super::words::words;
use crate::analyse::ComparedData;

const COLUMNS: [&str; 23] = [
    "row",
    "metric",
    "unit",
    "better",
    "baseline",
    "variant",
    "baseline_boots",
    "variant_boots",
    "baseline_value",
    "variant_value",
    "ratio",
    "ratio_lo",
    "ratio_hi",
    "level",
    "p",
    "q",
    "rank_p",
    "verdict",
    "finding",
    "worse_p",
    "gated",
    "design",
    "words",
];

/// One line for each row and variant; numbers in base units, absent ones empty.
#[must_use]
pub fn csv(comparison: &ComparedData) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |cells: &[String]| {
        writer.write_record(cells).expect("rows have one length and memory takes them");
    };
    write(&COLUMNS.map(str::to_owned));
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let word = |value: serde_json::Value| match value {
        serde_json::Value::String(word) => word,
        _ => String::new(),
    };
    let design = word(serde_json::to_value(comparison.design).unwrap_or_default());
    for row in &comparison.rows {
        let metric = comparison.metric(row);
        for (variant, judged) in row.judged.iter().enumerate() {
            let Some(judged) = judged else { continue };
            let judgement = &judged.judgement;
            let verdict = serde_json::to_value(&judgement.verdict).unwrap_or_default();
            let centre = |cell: usize| number(row.cells[cell].as_ref().map(|cell| cell.centre));
            write(&[
                row.name.clone(),
                metric.name.clone(),
                metric.unit.clone(),
                word(serde_json::to_value(metric.better).unwrap_or_default()),
                comparison.variants[0].clone(),
                comparison.variants[variant + 1].clone(),
                judged.boots.0.to_string(),
                judged.boots.1.to_string(),
                centre(0),
                centre(variant + 1),
                number(judgement.ratio),
                number(judgement.interval.map(|interval| interval.lo)),
                number(judgement.interval.map(|interval| interval.hi)),
                number(judgement.interval.map(|interval| interval.level)),
                number(judgement.p),
                number(judged.q),
                number(judged.rank_p),
                word(verdict["verdict"].clone()),
                judged.finding.to_string(),
                number(judged.worse_p),
                judged.gated.to_string(),
                design.clone(),
                words(judged, metric).sentence(),
            ]);
        }
    }
    let bytes = writer.into_inner().expect("memory takes all bytes");
    String::from_utf8(bytes).expect("all cells are strings")
}
