//! What others published, beside what was measured.

use crate::{Cell, Estimate, Group, Published, Report};

/// The published and the measured figures of one variant.
pub(crate) struct Row<'a> {
    pub(crate) published: &'a Published,
    pub(crate) measured: Option<Estimate>,
    pub(crate) is_baseline: bool,
    pub(crate) published_ratio: Option<f64>,
    pub(crate) measured_ratio: Option<Estimate>,
    /// Standard deviation between boots, in the metric's base unit.
    pub(crate) measured_sd: Option<f64>,
}

/// All rows of `group`.
pub(crate) fn rows<'a>(report: &Report, group: &'a Group) -> Vec<Row<'a>> {
    let Some(baseline) = report.baseline() else { return Vec::new() };
    let row = |published: &'a Published| {
        let cell = group.cell(&published.variant);
        Row {
            published,
            measured: cell.and_then(|cell| cell.estimate),
            is_baseline: published.variant == baseline.name,
            published_ratio: published_ratio(group, &baseline.name, &published.variant),
            measured_ratio: cell
                .and_then(|cell| cell.judgement.as_ref())
                .and_then(|judgement| judgement.ratio),
            measured_sd: cell.and_then(sd_of_boots),
        }
    };
    group.published.iter().map(row).collect()
}

/// Whether anything is told of standard deviations.
pub(crate) fn tells_sd(group: &Group) -> bool {
    group.published.iter().any(|published| published.sd.is_some())
}

/// The published ratio of `variant` to the baseline, or that of the values.
pub(crate) fn published_ratio(group: &Group, baseline: &str, variant: &str) -> Option<f64> {
    let published = group.published(variant)?;
    let of_values = || Some(published.value? / group.published(baseline)?.value?);
    let ratio = published.ratio.or_else(of_values)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Sample standard deviation of the boots that count.
fn sd_of_boots(cell: &Cell) -> Option<f64> {
    let values: Vec<f64> =
        cell.boots.iter().filter(|boot| boot.counted).map(|boot| boot.value).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}
