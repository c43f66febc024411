//! Values in the order in which the trials were run, as they are and as
//! differences from their variant's centre: there drift shows as a slope, also
//! where the variants lie far apart.

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, n, text_width};
use crate::figure::values::index_of;
use crate::quantity::UnitScale;
use crate::{BootPoint, Report, ResultGroup};

const RIGHT: f64 = WIDTH - 10.0;
const HEADER: f64 = 22.0;
const TOP: f64 = 8.0;

/// With more blocks than this their borders would be a grey area.
const MAX_BORDERS: usize = 40;

/// Draws `groups`, which have one workload and one metric, one panel a load.
/// Empty where no boot brought a value.
pub(crate) fn draw(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let orders = || groups.iter().flat_map(|g| boots(g)).map(|(_, boot)| f64::from(boot.order));
    let (Some(lo), Some(hi)) = (orders().reduce(f64::min), orders().reduce(f64::max)) else {
        return String::new();
    };
    let several_loads = groups.len() > 1;
    let header = if several_loads { HEADER } else { 0.0 };
    let height = if several_loads { 130.0 } else { 210.0 };
    let scale = UnitScale::for_values(
        &first.metric.unit,
        groups.iter().flat_map(|group| boots(group)).map(|(_, boot)| boot.value),
    );
    let axes: Vec<Axis> = groups
        .iter()
        .map(|group| {
            let dots =
                boots(group).flat_map(|(_, boot)| boot.samples.iter().copied().chain([boot.value]));
            Axis::for_points(dots)
        })
        .collect();
    let labels = |axis: &Axis| match axis.log {
        true => axis.labels_with_unit(&first.metric.unit),
        false => axis.labels(scale.divisor()),
    };
    let widest = axes.iter().flat_map(labels).map(|label| text_width(&label)).fold(0.0, f64::max);
    let left = widest + 12.0;
    // Half a position of room on both sides.
    let x = |order: f64| left + (order - lo + 0.5) / (hi - lo + 1.0) * (RIGHT - left);

    let mut svg = Svg::new();
    let mut top = TOP;
    for (group, axis) in groups.iter().zip(&axes) {
        if several_loads {
            svg.text("strong", (0.0, top + 12.0), &format!("host load: {}", group.load));
            top += header;
        }
        for (tick, label) in axis.ticks.iter().zip(labels(axis)) {
            let y = top + (1.0 - axis.position(*tick)) * height;
            svg.line("grid", (left, y), (RIGHT, y));
            svg.text("tick end", (left - 6.0, y + 4.0), &label);
        }
        let panel = OrderPanel { report, group, axis, scale: &scale, top, height };
        panel.draw(&mut svg, &x);
        top += height + 14.0;
    }
    let bottom = top - 14.0;
    for tick in Axis::linear(lo, hi, 6).ticks {
        if tick.fract() == 0.0 && (lo..=hi).contains(&tick) {
            svg.text("tick middle", (x(tick), bottom + 18.0), &format!("{tick}"));
        }
    }
    let unit =
        if axes.iter().any(|axis| axis.log) { "log axis".to_owned() } else { scale.unit_name() };
    let title = format!("up: {} ({unit}); right: trials in their order", first.metric.name);
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 38.0), &title, WIDTH);
    let title = format!("{} of {} in the order of the run", first.metric.name, first.workload);
    let description = "One mark a boot, joined by a line for each variant; small dots are \
                       samples; upright lines part the blocks. A slope common to all lines is drift.";
    svg.finish(id, bottom + 46.0, &title, description)
}

/// The boots of a group with their variant.
fn boots(group: &ResultGroup) -> impl Iterator<Item = (&str, &BootPoint)> {
    let cells = group.cells.iter();
    cells.flat_map(|cell| cell.boots.iter().map(|boot| (cell.variant.as_str(), boot)))
}

/// Draws the boots of all loads as differences from the centre of their variant
/// under their load. Empty where no variant has two boots.
pub(crate) fn draw_drift(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let mut points: Vec<OrderDeviation<'_>> = Vec::new();
    for cell in groups.iter().flat_map(|group| &group.cells).filter(|cell| cell.boots.len() > 1) {
        let Some(estimate) = cell.estimate.filter(|e| e.centre != 0.0) else { continue };
        points.extend(cell.boots.iter().map(|boot| OrderDeviation {
            variant: &cell.variant,
            order: boot.order,
            percent: (boot.value / estimate.centre - 1.0) * 100.0,
        }));
    }
    points.retain(|point| point.percent.is_finite());
    points.sort_by_key(|point| point.order);
    let (Some(lo), Some(hi)) = (points.first(), points.last()) else { return String::new() };
    let (lo, hi) = (f64::from(lo.order), f64::from(hi.order));
    let axis = Axis::linear_for(points.iter().map(|point| point.percent).chain([0.0]));
    let labels: Vec<String> = axis.labels(1.0).iter().map(|label| format!("{label} %")).collect();
    let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 12.0;
    let x = |order: u32| left + (f64::from(order) - lo + 0.5) / (hi - lo + 1.0) * (RIGHT - left);
    let height = 150.0;
    let y = |percent: f64| TOP + (1.0 - axis.position(percent)) * height;

    let mut svg = Svg::new();
    for (tick, label) in axis.ticks.iter().zip(&labels) {
        let class = if *tick == 0.0 { "one" } else { "grid" };
        svg.line(class, (left, y(*tick)), (RIGHT, y(*tick)));
        svg.text("tick end", (left - 6.0, y(*tick) + 4.0), label);
    }
    for point in &points {
        let index = index_of(report, point.variant);
        let told = format!("trial {}, {}: {:+.1} %", point.order, point.variant, point.percent);
        svg.path(
            &format!("mark {}", marker::colour(index)),
            &marker::path(index, (x(point.order), y(point.percent)), 4.2),
            Some(&told),
        );
    }
    let bottom = TOP + height;
    for tick in Axis::linear(lo, hi, 6).ticks {
        if tick.fract() == 0.0 && (lo..=hi).contains(&tick) {
            svg.text("tick middle", (x(tick as u32), bottom + 18.0), &format!("{tick}"));
        }
    }
    let title = "up: off the variant's centre; right: trials in their order";
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 38.0), title, WIDTH);
    let title = format!("Drift of {} of {}", first.metric.name, first.workload);
    let description = "One mark a boot, in the order of the run: how far it lies from the centre of \
                       its variant under its load.";
    svg.finish(id, bottom + 46.0, &title, description)
}

struct OrderDeviation<'a> {
    variant: &'a str,
    order: u32,
    percent: f64,
}

struct OrderPanel<'a> {
    report: &'a Report,
    group: &'a ResultGroup,
    axis: &'a Axis,
    scale: &'a UnitScale,
    top: f64,
    height: f64,
}

impl OrderPanel<'_> {
    fn draw(&self, svg: &mut Svg, x: &dyn Fn(f64) -> f64) {
        let y = |value: f64| self.top + (1.0 - self.axis.position(value)) * self.height;
        let mut all: Vec<(&str, &BootPoint)> = boots(self.group).collect();
        all.sort_by_key(|(_, boot)| boot.order);
        let borders: Vec<f64> = all
            .windows(2)
            .filter(|pair| pair[0].1.block != pair[1].1.block)
            .map(|pair| f64::from(pair[0].1.order + pair[1].1.order) / 2.0)
            .collect();
        if borders.len() <= MAX_BORDERS {
            for border in borders {
                let x = x(border);
                svg.line("block", (x, self.top), (x, self.top + self.height));
            }
        }
        for cell in &self.group.cells {
            let index = index_of(self.report, &cell.variant);
            let mut boots: Vec<&BootPoint> = cell.boots.iter().collect();
            boots.sort_by_key(|boot| boot.order);
            let mut d = String::new();
            for boot in &boots {
                let command = if d.is_empty() { 'M' } else { 'L' };
                let place = (x(f64::from(boot.order)), y(boot.value));
                d.push_str(&format!("{command}{} {}", n(place.0), n(place.1)));
            }
            let colour = marker::colour(index);
            svg.path(&format!("trace {colour}"), &d, None);
            let samples: Vec<(f64, f64)> = boots
                .iter()
                .flat_map(|boot| boot.samples.iter().map(|sample| (boot.order, *sample)))
                .enumerate()
                .map(|(i, (order, sample))| (x(order.into()) + 3.0 * marker::jitter(i), y(sample)))
                .collect();
            svg.dots(&format!("sample {colour}"), &samples);
        }
        // Marks above all lines.
        for (variant, boot) in all {
            let index = index_of(self.report, variant);
            let class = if boot.counted { "mark" } else { "mark hollow" };
            let place = (x(f64::from(boot.order)), y(boot.value));
            let told = format!(
                "trial {}, block {}, {variant}: {}",
                boot.order,
                boot.block,
                self.scale.show(boot.value)
            );
            svg.path(
                &format!("{class} {}", marker::colour(index)),
                &marker::path(index, place, 4.2),
                Some(&told),
            );
        }
    }
}
