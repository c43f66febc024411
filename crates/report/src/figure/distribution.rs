//! Latency distributions on a log axis, with the tail drawn out: each nine of
//! the quantile takes as much room as the one before.
//!
//! Where a tool counts its samples, a line is the distribution of all boots
//! together, and its band knows boots. Where a tool prints nothing but
//! quantiles, which are never averaged over boots, the middle boot stands for
//! them, in a band from the lowest boot to the highest.

use record::Unit;

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, n, text_width};
use crate::figure::values::index_of;
use crate::quantity::{counted, percentile};
use crate::{Curve, Report, ResultGroup, ShownInterval, TABLE_SHARES, WorkloadLatencies};

const HEIGHT: f64 = 190.0;
const HEADER: f64 = 22.0;
const GAP: f64 = 34.0;
const RIGHT: f64 = WIDTH - 14.0;

/// 1 - 0.1 is not quite 0.9.
const ROUNDING: f64 = 1e-9;

/// Quantiles of one distribution, needed for a line.
const LEAST_QUANTILES: usize = 2;

/// The distributions of `workload`, one panel for each load and histogram.
/// Empty where nothing was counted.
pub(crate) fn of_samples(report: &Report, workload: &str, id: &str) -> String {
    let counted = report.distributions.iter().filter(|found| found.workload == workload);
    let panels: Vec<DistributionPanel<'_>> = counted
        .map(|found| DistributionPanel::of_samples(report, found))
        .filter(DistributionPanel::is_worth_it)
        .collect();
    let description = "A line for each variant is the distribution of the samples of all its \
                       boots; the band around it is a bootstrap over boots.";
    draw(&panels, workload, description, id)
}

/// The quantiles that a tool printed of what it did not count, among `groups`,
/// which have one workload. Empty where no metric is a quantile of another's
/// family.
pub(crate) fn of_printed(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let mut families: Vec<(&str, &str)> = Vec::new();
    for group in groups {
        let Some((name, _)) = group.metric.quantile() else { continue };
        let is_counted = report.distributions.iter().any(|known| {
            (&*known.workload, &*known.load, &*known.name) == (&*first.workload, &*group.load, name)
        });
        if !is_counted && !families.contains(&(name, &group.load)) {
            families.push((name, &group.load));
        }
    }
    let panel = |(name, load)| DistributionPanel::of_printed(report, groups, name, load);
    let panels: Vec<DistributionPanel<'_>> =
        families.into_iter().map(panel).filter(DistributionPanel::is_worth_it).collect();
    let description = "A line for each variant joins the middles of its boots at each quantile; \
                       the band around it reaches from the lowest boot to the highest.";
    draw(&panels, &first.workload, description, id)
}

fn draw(panels: &[DistributionPanel<'_>], workload: &str, description: &str, id: &str) -> String {
    if panels.is_empty() {
        return String::new();
    }
    let mut svg = Svg::new();
    let mut top = 0.0;
    for panel in panels {
        let name = format!("{}, host load {}", panel.name, panel.load);
        svg.fitted("strong", (0.0, top + 12.0), &name, WIDTH);
        panel.draw(top + HEADER, &mut svg);
        top += HEADER + HEIGHT + GAP;
    }
    let title = "up: latency (log axis); right: quantile, the tail drawn out";
    svg.fitted("axis middle", (WIDTH / 2.0, top + 4.0), title, WIDTH);
    svg.finish(id, top + 12.0, &format!("Latency distribution of {workload}"), description)
}

/// One distribution under one load.
struct DistributionPanel<'a> {
    name: &'a str,
    load: &'a str,
    unit: &'a Unit,
    /// Quantiles that the axis names.
    ticks: Vec<f64>,
    series: Vec<VariantCurve>,
}

/// One variant's curve.
struct VariantCurve {
    /// Its place among the study's variants.
    index: usize,
    /// In rising order of their shares.
    points: Vec<CurvePoint>,
}

struct CurvePoint {
    /// Share of all values that do not exceed it; 1 for the greatest.
    share: f64,
    value: f64,
    band: Option<ShownInterval>,
    /// What the point's mark says; points without are there for the line.
    told: Option<String>,
}

impl<'a> DistributionPanel<'a> {
    fn of_samples(report: &Report, found: &'a WorkloadLatencies) -> Self {
        let series = |curve: &Curve| {
            let points = curve.quantiles.iter().filter(|point| point.estimate.centre > 0.0);
            let points = points.map(|point| CurvePoint {
                share: point.share,
                value: point.estimate.centre,
                band: point.estimate.interval.filter(|span| span.lo > 0.0),
                told: TABLE_SHARES.contains(&point.share).then(|| {
                    format!(
                        "{}, {}: {} ({})",
                        curve.variant,
                        percentile(point.share),
                        found.unit.show(point.estimate.centre),
                        counted(curve.boots as usize, "boot")
                    )
                }),
            });
            VariantCurve { index: index_of(report, &curve.variant), points: points.collect() }
        };
        let series: Vec<VariantCurve> = found.curves.iter().map(series).collect();
        let last = series.iter().flat_map(|series| &series.points);
        let last = last.map(|point| point.share).fold(0.0, f64::max);
        let mut ticks = vec![0.5];
        let nines = (1..9).map(|nines| 1.0 - 0.1_f64.powi(nines));
        ticks.extend(nines.take_while(|tick| *tick <= last + ROUNDING));
        Self { name: &found.name, load: &found.load, unit: &found.unit, ticks, series }
    }

    fn of_printed(
        report: &Report,
        groups: &[&'a ResultGroup],
        name: &'a str,
        load: &'a str,
    ) -> Self {
        let mut quantiles: Vec<(f64, &'a ResultGroup)> = groups
            .iter()
            .filter(|group| group.load == load)
            .filter_map(|group| Some((group.metric.quantile()?, *group)))
            .filter(|((family, _), _)| *family == name)
            .map(|((_, share), group)| (share, group))
            .filter(|(_, group)| group.cells.iter().any(|cell| !cell.boots.is_empty()))
            .collect();
        quantiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        let point = |variant: &str, share: f64, group: &ResultGroup| {
            let boots = group.cell(variant)?.boots.iter().filter(|boot| boot.counted);
            let mut values: Vec<f64> = boots.map(|boot| boot.value).filter(|v| *v > 0.0).collect();
            values.sort_by(f64::total_cmp);
            let (lo, hi) = (*values.first()?, *values.last()?);
            let value = values[values.len() / 2];
            let shown = group.metric.unit.show(value);
            let told = format!("{variant}: {shown} ({})", counted(values.len(), "boot"));
            Some(CurvePoint {
                share,
                value,
                band: Some(ShownInterval { lo, hi }),
                told: Some(told),
            })
        };
        let series = report.variants.iter().enumerate().map(|(index, variant)| {
            let points = quantiles.iter();
            let points = points.filter_map(|(share, group)| point(&variant.name, *share, group));
            VariantCurve { index, points: points.collect() }
        });
        Self {
            name,
            load,
            unit: quantiles.first().map_or(&groups[0].metric.unit, |(_, group)| &group.metric.unit),
            ticks: quantiles.iter().map(|(share, _)| *share).collect(),
            series: series.collect(),
        }
    }

    fn is_worth_it(&self) -> bool {
        self.ticks.len() >= LEAST_QUANTILES
            && self.series.iter().any(|series| series.points.len() >= LEAST_QUANTILES)
    }

    fn draw(&self, top: f64, svg: &mut Svg) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let values = points().flat_map(|point| {
            let ends = point.band.map_or([point.value; 2], |span| [span.lo, span.hi]);
            ends.into_iter().chain([point.value])
        });
        let axis = Axis::log_for(values);
        let labels = axis.labels_with_unit(self.unit);
        let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 22.0;
        let tail = Tail::over(points().map(|point| point.share));
        let x = |share: f64| left + tail.position(share) * (RIGHT - 22.0 - left);
        let y = |value: f64| top + (1.0 - axis.position(value)) * HEIGHT;
        for (tick, label) in axis.ticks.iter().zip(&labels) {
            svg.line("grid", (left - 12.0, y(*tick)), (RIGHT, y(*tick)));
            svg.text("tick end", (left - 16.0, y(*tick) + 4.0), label);
        }
        let mut free = 0.0;
        for tick in &self.ticks {
            let name = if *tick == 1.0 { "max".to_owned() } else { percentile(*tick) };
            let half = text_width(&name) / 2.0;
            svg.line("grid", (x(*tick), top), (x(*tick), top + HEIGHT));
            if x(*tick) - half >= free {
                svg.text("tick middle", (x(*tick), top + HEIGHT + 15.0), &name);
                free = x(*tick) + half + 4.0;
            }
        }
        for series in &self.series {
            let colour = marker::colour(series.index);
            let at = |share: f64, value: f64| format!("{} {}", n(x(share)), n(y(value)));
            let banded: Vec<(f64, ShownInterval)> =
                series.points.iter().filter_map(|point| Some((point.share, point.band?))).collect();
            let upper = banded.iter().map(|(share, span)| at(*share, span.hi));
            let lower = banded.iter().rev().map(|(share, span)| at(*share, span.lo));
            let outline: Vec<String> = upper.chain(lower).collect();
            if banded.len() > 1 {
                svg.path(&format!("band {colour}"), &format!("M{}z", outline.join("L")), None);
            }
            let line: Vec<String> =
                series.points.iter().map(|point| at(point.share, point.value)).collect();
            if line.len() > 1 {
                let line = format!("M{}", line.join("L"));
                svg.path(&format!("trace curve {colour}"), &line, None);
            }
            for point in &series.points {
                let Some(told) = &point.told else { continue };
                let mark = marker::path(series.index, (x(point.share), y(point.value)), 3.8);
                svg.path(&format!("mark {colour}"), &mark, Some(told));
            }
        }
    }
}

/// The axis of quantiles: 90 %, 99 %, 99.9 % lie equally far apart, and the
/// greatest value one such step behind the last.
struct Tail {
    from: f64,
    to: f64,
    greatest: f64,
}

impl Tail {
    fn over(shares: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to, mut has_greatest) = (f64::MAX, f64::MIN, false);
        for share in shares {
            if share < 1.0 {
                from = from.min(nines(share));
                to = to.max(nines(share));
            } else {
                has_greatest = true;
            }
        }
        let greatest = to + 1.0;
        Self { from, to: if has_greatest { greatest } else { to }, greatest }
    }

    /// From 0 to 1.
    fn position(&self, share: f64) -> f64 {
        let place = if share < 1.0 { nines(share) } else { self.greatest };
        let position = (place - self.from) / (self.to - self.from);
        if position.is_finite() { position.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// 0.9 is 1, 0.99 is 2.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_takes_the_same_room() {
        let check = |shares: &[f64], share: f64, expected: f64| {
            let found = Tail::over(shares.iter().copied()).position(share);
            assert!((found - expected).abs() < 1e-9, "{share} in {shares:?}: {found}");
        };
        check(&[0.9, 0.99, 0.999], 0.9, 0.0);
        check(&[0.9, 0.99, 0.999], 0.99, 0.5);
        check(&[0.9, 0.99, 0.999], 0.999, 1.0);
        check(&[0.9, 0.99, 1.0], 0.99, 0.5);
        check(&[0.9, 0.99, 1.0], 1.0, 1.0);
        check(&[0.5], 0.5, 0.0);
        check(&[1.0], 1.0, 0.0);
    }
}
