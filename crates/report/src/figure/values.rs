//! Every value of every variant: bars with intervals, boots and samples.

use record::Metric;

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, text_width};
use crate::quantity::{UnitScale, counted};
use crate::{BootPoint, CellResults, PublishedValue, Report, ResultGroup};

const LEFT: f64 = 16.0;
const RIGHT: f64 = WIDTH - 16.0;
const HEADER: f64 = 30.0;
const ROW: f64 = 62.0;
const BAND: f64 = 34.0;

/// Draws `groups`, which have one workload and one metric, load by load. Empty
/// where nothing was to be measured.
pub(crate) fn draw(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let Some(first) = groups.first().filter(|_| groups.iter().any(|g| !g.cells.is_empty())) else {
        return String::new();
    };
    let metric = &first.metric;
    let axis = Axis::for_bars(groups.iter().flat_map(|group| shown_values(group)));
    let scale = UnitScale::for_values(&metric.unit, groups.iter().flat_map(|g| shown_values(g)));
    let several_loads = groups.len() > 1;

    let rows: usize = groups.iter().map(|group| group.cells.len()).sum();
    let headers = if several_loads { groups.len() } else { 0 };
    let bottom = 6.0 + rows as f64 * ROW + headers as f64 * HEADER;

    let mut svg = Svg::new();
    draw_axis(&mut svg, &axis, &scale, metric, bottom);
    let mut y = 6.0;
    for group in groups {
        if several_loads {
            svg.text("strong", (0.0, y + 17.0), &format!("host load: {}", group.load));
            y += HEADER;
        }
        for cell in &group.cells {
            let row = ValueRow { report, group, cell, axis: &axis, scale: &scale, y };
            row.draw(&mut svg);
            y += ROW;
        }
    }
    let title = format!("{} of {}: every boot and every sample", metric.name, first.workload);
    svg.finish(id, bottom + 44.0, &title, &describe(groups, &scale))
}

/// Everything that must lie on the axis.
fn shown_values(group: &ResultGroup) -> impl Iterator<Item = f64> {
    let boots = group.cells.iter().flat_map(|cell| &cell.boots);
    let dots = boots.flat_map(|boot| boot.samples.iter().copied().chain([boot.value]));
    let estimates = group.cells.iter().filter_map(|cell| cell.estimate);
    let estimates = estimates.filter(|estimate| estimate.centre.is_finite());
    let ends = estimates.flat_map(|estimate| {
        // A wide interval of two boots must not squeeze everything else.
        let (near, far) = (estimate.centre / 3.0, estimate.centre * 3.0);
        let within = |end: f64| end.clamp(near.min(far), near.max(far));
        let span = estimate.interval;
        [Some(estimate.centre), span.map(|s| within(s.lo)), span.map(|s| within(s.hi))]
    });
    dots.chain(ends.flatten()).chain(group.published.iter().filter_map(PublishedValue::centre))
}

fn draw_axis(svg: &mut Svg, axis: &Axis, scale: &UnitScale, metric: &Metric, bottom: f64) {
    let labels =
        if axis.log { axis.labels_with_unit(&metric.unit) } else { axis.labels(scale.divisor()) };
    for (tick, label) in axis.ticks.iter().zip(labels) {
        let x = x(axis, *tick);
        svg.line("grid", (x, 0.0), (x, bottom));
        svg.text("tick middle", (x, bottom + 15.0), &label);
    }
    let unit = if axis.log { "log axis".to_owned() } else { scale.unit_name() };
    let title = format!("{} ({unit}), {}", metric.name, metric.better);
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 35.0), &title, WIDTH);
}

struct ValueRow<'a> {
    report: &'a Report,
    group: &'a ResultGroup,
    cell: &'a CellResults,
    axis: &'a Axis,
    scale: &'a UnitScale,
    y: f64,
}

impl ValueRow<'_> {
    fn draw(&self, svg: &mut Svg) {
        let index = index_of(self.report, &self.cell.variant);
        let colour = marker::colour(index);
        let value = self.value_text();
        svg.path(&format!("mark {colour}"), &marker::path(index, (7.0, self.y + 10.0), 4.6), None);
        let room = WIDTH - 20.0 - text_width(&value) - 8.0;
        svg.fitted("name", (18.0, self.y + 14.0), &self.cell.variant, room);
        svg.text("value end", (WIDTH, self.y + 14.0), &value);

        let top = self.y + 20.0;
        if let (Some(estimate), false) = (self.cell.estimate, self.axis.log) {
            let (zero, end) = (x(self.axis, 0.0), x(self.axis, estimate.centre));
            svg.rect(&format!("bar {colour}"), (zero.min(end), top), (end - zero).abs(), BAND);
        }
        let samples: Vec<(f64, f64)> = self
            .cell
            .boots
            .iter()
            .flat_map(|boot| &boot.samples)
            .enumerate()
            .map(|(i, value)| (x(self.axis, *value), top + 22.0 + 10.0 * marker::jitter(i)))
            .collect();
        svg.dots(&format!("sample {colour}"), &samples);
        for (i, boot) in self.cell.boots.iter().enumerate() {
            let place = (x(self.axis, boot.value), top + 22.0 + 7.0 * marker::jitter(i));
            let class = if boot.counted { "mark" } else { "mark hollow" };
            let told = self.told(boot);
            let path = marker::path(index, place, 3.4);
            svg.path(&format!("{class} {colour}"), &path, Some(&told));
        }
        self.draw_interval(svg, top + 6.5);
        let published = self.group.published(&self.cell.variant);
        if let Some((published, value)) = published.and_then(|p| Some((p, p.centre()?))) {
            let place = (x(self.axis, value), top + BAND / 2.0);
            let told = format!("published: {} ({})", self.scale.show(value), published.source);
            svg.path("published", &marker::published(place), Some(&told));
        }
    }

    fn draw_interval(&self, svg: &mut Svg, y: f64) {
        let Some(estimate) = self.cell.estimate else { return };
        let centre = x(self.axis, estimate.centre);
        if let Some(span) = estimate.interval {
            let (lo, hi) = (x(self.axis, span.lo), x(self.axis, span.hi));
            svg.line("interval", (lo, y), (hi, y));
            // Ends of a very short line would hide it.
            let has_room = hi - lo >= 6.0;
            for (end, value) in [(lo, span.lo), (hi, span.hi)] {
                if has_room && self.axis.covers(value) {
                    svg.line("interval", (end, y - 4.0), (end, y + 4.0));
                }
            }
        }
        svg.line("centre", (centre, y - 5.0), (centre, y + 5.0));
    }

    fn value_text(&self) -> String {
        match &self.cell.estimate {
            Some(estimate) => self.scale.show_estimate(estimate),
            None => no_value(self.report, self.group, &self.cell.variant),
        }
    }

    fn told(&self, boot: &BootPoint) -> String {
        let note = if boot.counted { "" } else { ", not part of the comparison" };
        format!(
            "{}, block {}, trial {}: {} ({}){note}",
            self.cell.variant,
            boot.block,
            boot.order,
            self.scale.show(boot.value),
            counted(boot.samples.len(), "sample"),
        )
    }
}

/// Why a cell has no value.
pub(crate) fn no_value(report: &Report, group: &ResultGroup, variant: &str) -> String {
    let failed = report.failures.iter().filter(|failure| {
        let trial = &failure.trial;
        trial.variant == variant && trial.load == group.load && trial.workload == group.workload
    });
    match failed.count() {
        0 => "no value".to_owned(),
        n => format!("no value, {n} failed"),
    }
}

/// Position of `variant` among the study's variants.
pub(crate) fn index_of(report: &Report, variant: &str) -> usize {
    report.variants.iter().position(|v| v.name == variant).unwrap_or(report.variants.len())
}

fn describe(groups: &[&ResultGroup], scale: &UnitScale) -> String {
    let mut text = String::from(
        "Bars or marks show each variant's centre with its interval, larger marks one boot each, small dots one sample each.",
    );
    for group in groups {
        for cell in &group.cells {
            let Some(estimate) = &cell.estimate else { continue };
            let shown = scale.show_estimate(estimate);
            text.push_str(&format!(" {} under load {}: {shown}.", cell.variant, group.load));
        }
    }
    text
}

fn x(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.position(value) * (RIGHT - LEFT)
}
