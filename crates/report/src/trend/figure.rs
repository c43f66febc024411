//! A series over its results: values with intervals, the level between its
//! changes, and an upright line at each change.

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, text_width};
use crate::quantity::{UnitScale, ratio_estimate};
use crate::trend::{Trend, TrendSeries, TrendSubject};

const TOP: f64 = 8.0;
const HEIGHT: f64 = 170.0;
const RIGHT: f64 = WIDTH - 10.0;

pub(super) fn draw(trend: &Trend, series: &TrendSeries, id: &str) -> String {
    if series.points.is_empty() {
        return String::new();
    }
    let centres = || series.points.iter().map(|point| point.value.centre);
    let axis = Axis::for_points(centres().chain(ends(series)));
    let scale = UnitScale::for_values(&series.metric.unit, centres());
    let labels = match (trend.of, axis.log) {
        (TrendSubject::Ratio, _) => axis.ratio_labels(),
        (TrendSubject::Value, true) => axis.labels_with_unit(&series.metric.unit),
        (TrendSubject::Value, false) => axis.labels(scale.divisor()),
    };
    let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 12.0;
    let count = series.points.len() as f64;
    let x = |point: f64| left + (point + 0.5) / count * (RIGHT - left);
    let y = |value: f64| TOP + (1.0 - axis.position(value)) * HEIGHT;

    let mut svg = Svg::new();
    for (tick, label) in axis.ticks.iter().zip(&labels) {
        svg.line("grid", (left, y(*tick)), (RIGHT, y(*tick)));
        svg.text("tick end", (left - 6.0, y(*tick) + 4.0), label);
    }
    for change in &series.changes {
        let at = x(change.point as f64 - 0.5);
        svg.line(&format!("ratio v-{}", series.label(change).class), (at, TOP), (at, TOP + HEIGHT));
    }
    let mut borders: Vec<usize> = series.changes.iter().map(|change| change.point).collect();
    borders.insert(0, 0);
    borders.push(series.points.len());
    for segment in borders.windows(2) {
        let logs = series.points[segment[0]..segment[1]].iter().map(|p| p.value.centre.ln());
        let level = (logs.sum::<f64>() / (segment[1] - segment[0]) as f64).exp();
        let (from, to) = (x(segment[0] as f64 - 0.4), x(segment[1] as f64 - 0.6));
        svg.line("one", (from, y(level)), (to, y(level)));
    }
    for (index, point) in series.points.iter().enumerate() {
        let at = x(index as f64);
        if let Some(span) = point.value.interval {
            svg.line("interval", (at, y(span.lo)), (at, y(span.hi)));
        }
        let result = &trend.results[point.result];
        let value = match trend.of {
            TrendSubject::Value => scale.show_estimate(&point.value),
            TrendSubject::Ratio => ratio_estimate(&point.value),
        };
        let told = format!("{}: {value} ({})", result.started, result.name);
        let mark = marker::path(1, (at, y(point.value.centre)), 3.4);
        svg.path("mark c1", &mark, Some(&told));
    }
    let day = |point: usize| {
        let started = &trend.results[series.points[point].result].started;
        started.get(..10).unwrap_or(started).to_owned()
    };
    let bottom = TOP + HEIGHT;
    svg.text("tick", (left, bottom + 16.0), &day(0));
    svg.text("tick end", (RIGHT, bottom + 16.0), &day(series.points.len() - 1));
    let unit = match trend.of {
        TrendSubject::Value if axis.log => "log axis".to_owned(),
        TrendSubject::Value => scale.unit_name(),
        TrendSubject::Ratio => "ratio to the baseline".to_owned(),
    };
    let title = format!("up: {} ({unit}); right: results in time", series.metric.name);
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 36.0), &title, WIDTH);
    let title = format!("{} of {} over time", series.metric.name, series.variant);
    let description: Vec<_> =
        series.changes.iter().map(|change| super::text::since(trend, series, change)).collect();
    let description = description.join(". ");
    let description = if description.is_empty() { "No change." } else { &description };
    svg.finish(id, bottom + 44.0, &title, description)
}

/// Ends of intervals, as far as they do not squeeze everything else.
fn ends(series: &TrendSeries) -> impl Iterator<Item = f64> {
    series.points.iter().flat_map(|point| {
        let centre = point.value.centre;
        let within = move |end: f64| end.clamp(centre / 3.0, centre * 3.0);
        point.value.interval.map(|span| [within(span.lo), within(span.hi)]).into_iter().flatten()
    })
}
