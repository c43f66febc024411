//! A trend for a terminal.

use crate::quantity::{UnitScale, counted, ratio, ratio_estimate};
use crate::terminal::{Paint, Printer};
use crate::trend::{SeriesChange, Trend, TrendSeries, TrendSubject};
use crate::{Label, TerminalStyle};

/// The trend as text of at most `width` columns (at least 40): the series that
/// changed first, what changed with them, then those that did not.
#[must_use]
pub fn terminal(trend: &Trend, width: usize, style: TerminalStyle) -> String {
    let mut out = Printer::new(width, style);
    let results = counted(trend.results.len(), "result");
    out.paragraph("", &format!("{}: {results}", trend.study), Some(Paint::Bold));
    if let (Some(first), Some(last)) = (trend.results.first(), trend.results.last()) {
        let span = format!("from {} to {}", first.started, last.started);
        out.paragraph("", &span, Some(Paint::Quiet));
    }
    for warning in &trend.warnings {
        out.paragraph("", &format!("Warning: {warning}"), Some(Paint::Worse));
    }
    let (changed, steady): (Vec<&TrendSeries>, Vec<&TrendSeries>) =
        trend.series.iter().partition(|series| !series.changes.is_empty());
    for series in changed {
        out.blank();
        out.paragraph("", &heading(trend, series), Some(Paint::Bold));
        for change in &series.changes {
            let paint = Paint::of(series.label(change));
            out.paragraph("  ", &since(trend, series, change), Some(paint));
            for difference in &change.with {
                out.paragraph("      ", difference, None);
            }
        }
    }
    if !steady.is_empty() {
        out.blank();
        out.paragraph("", "Without a change:", Some(Paint::Quiet));
        for series in steady {
            out.paragraph("  ", &heading(trend, series), None);
        }
    }
    out.text
}

/// `2-vcpu at hackbench, load idle: time 1.17 s [..], 12 results`.
pub(super) fn heading(trend: &Trend, series: &TrendSeries) -> String {
    let TrendSeries { load, workload, metric, variant, points, .. } = series;
    let now = points.last().map(|point| match trend.of {
        TrendSubject::Value => {
            UnitScale::for_values(&metric.unit, [point.value.centre].into_iter())
                .show_estimate(&point.value)
        }
        TrendSubject::Ratio => ratio_estimate(&point.value),
    });
    let now = now.unwrap_or_default();
    let results = counted(points.len(), "result");
    format!("{variant} at {workload}, load {load}: {} {now}, {results}", metric.name)
}

/// `▼ since 2026-11-03: ×1.08, slower (p 0.0002), results/...`.
pub(super) fn since(trend: &Trend, series: &TrendSeries, change: &SeriesChange) -> String {
    let result = &trend.results[series.points[change.point].result];
    let Label { sign, word, .. } = series.label(change);
    format!(
        "{sign} since {}: {}, {word} (p {:.1e}), {}",
        result.started,
        ratio(change.ratio),
        change.p,
        result.name
    )
}
