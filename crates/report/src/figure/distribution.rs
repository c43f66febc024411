//! Latency distributions by their quantiles, on a log axis: for each variant
//! the middle of its boots with a band from the lowest boot to the highest.
//! Quantiles are compared boot by boot and never averaged over a whole study.

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, n, text_width};
use crate::figure::values::index_of;
use crate::{Group, Report};

const HEIGHT: f64 = 190.0;
const HEADER: f64 = 22.0;
const GAP: f64 = 34.0;
const RIGHT: f64 = WIDTH - 14.0;

/// Quantiles of one distribution, needed for a line.
const LEAST_QUANTILES: usize = 2;

/// Distributions among `groups`, which have one workload: one panel for each
/// load and quantity. Empty where no metric is a quantile of another's family.
pub(crate) fn draw(report: &Report, groups: &[&Group], id: &str) -> String {
    let panels = panels(groups);
    let (Some(first), false) = (groups.first(), panels.is_empty()) else { return String::new() };
    let mut svg = Svg::new();
    let mut top = 0.0;
    for panel in &panels {
        let name = format!("{}, host load {}", panel.family, panel.load);
        svg.fitted("strong", (0.0, top + 12.0), &name, WIDTH);
        panel.draw(report, top + HEADER, &mut svg);
        top += HEADER + HEIGHT + GAP;
    }
    let title = "up: latency (log axis); right: quantile";
    svg.fitted("axis middle", (WIDTH / 2.0, top + 4.0), title, WIDTH);
    let title = format!("Latency distribution of {}", first.workload);
    let description = "A line for each variant joins the middles of its boots at each quantile; \
                       the band around it reaches from the lowest boot to the highest.";
    svg.finish(id, top + 12.0, &title, description)
}

/// One quantile of a family, with its share; the greatest value's is 1.
struct Quantile<'a> {
    share: f64,
    group: &'a Group,
}

struct Panel<'a> {
    family: String,
    load: &'a str,
    quantiles: Vec<Quantile<'a>>,
}

fn panels<'a>(groups: &[&'a Group]) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for group in groups.iter().filter(|group| group.cells.iter().any(|c| !c.boots.is_empty())) {
        let Some((family, share)) = share_of(&group.metric.name) else { continue };
        let known = panels.iter_mut().find(|p| p.family == family && p.load == group.load);
        let quantile = Quantile { share, group };
        match known {
            Some(panel) => panel.quantiles.push(quantile),
            None => panels.push(Panel {
                family: family.to_owned(),
                load: &group.load,
                quantiles: vec![quantile],
            }),
        }
    }
    for panel in &mut panels {
        panel.quantiles.sort_by(|a, b| a.share.total_cmp(&b.share));
    }
    panels.retain(|panel| panel.quantiles.len() >= LEAST_QUANTILES);
    panels
}

/// `latency-p99` is (`latency`, 0.99), `latency-p99.9` and `latency-p999` are
/// (`latency`, 0.999), `latency-max` is (`latency`, 1).
fn share_of(metric: &str) -> Option<(&str, f64)> {
    let (family, last) = metric.rsplit_once('-')?;
    if last == "max" {
        return Some((family, 1.0));
    }
    let digits = last.strip_prefix('p')?;
    let share = match digits.split_once('.') {
        Some((whole, part)) => format!("{whole}{part}"),
        None => digits.to_owned(),
    };
    let value: f64 = format!("0.{share}").parse().ok()?;
    (share.len() >= 2 && share.bytes().all(|byte| byte.is_ascii_digit())).then_some((family, value))
}

impl Panel<'_> {
    fn draw(&self, report: &Report, top: f64, svg: &mut Svg) {
        let boots = |quantile: &Quantile<'_>, variant: &str| -> Vec<f64> {
            let cell = quantile.group.cell(variant);
            let boots = cell.map(|cell| cell.boots.as_slice()).unwrap_or_default();
            let counted = boots.iter().filter(|boot| boot.counted);
            let mut values: Vec<f64> =
                counted.map(|boot| boot.value).filter(|v| *v > 0.0).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let names = || report.variants.iter().map(|variant| variant.name.as_str());
        let all = names().flat_map(|name| self.quantiles.iter().flat_map(move |q| boots(q, name)));
        let axis = Axis::log_for(all);
        let unit = &self.quantiles[0].group.metric.unit;
        let labels = axis.labels_with_unit(unit);
        let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 12.0;
        let step = (RIGHT - left) / self.quantiles.len() as f64;
        let x = |place: usize| left + (place as f64 + 0.5) * step;
        let y = |value: f64| top + (1.0 - axis.position(value)) * HEIGHT;
        for (tick, label) in axis.ticks.iter().zip(&labels) {
            svg.line("grid", (left, y(*tick)), (RIGHT, y(*tick)));
            svg.text("tick end", (left - 6.0, y(*tick) + 4.0), label);
        }
        for (place, quantile) in self.quantiles.iter().enumerate() {
            let name = match quantile.share {
                1.0 => "greatest".to_owned(),
                share => format!("{} %", (share * 1e5).round() / 1e3),
            };
            svg.text("tick middle", (x(place), top + HEIGHT + 15.0), &name);
        }
        for name in names() {
            let index = index_of(report, name);
            let colour = marker::colour(index);
            let points: Vec<(f64, Vec<f64>)> = self
                .quantiles
                .iter()
                .enumerate()
                .map(|(place, quantile)| (x(place), boots(quantile, name)))
                .filter(|(_, values)| !values.is_empty())
                .collect();
            let at = |x: f64, value: f64| format!("{} {}", n(x), n(y(value)));
            let highest = points.iter().map(|(x, values)| at(*x, values[values.len() - 1]));
            let lowest = points.iter().rev().map(|(x, values)| at(*x, values[0]));
            let outline: Vec<String> = highest.chain(lowest).collect();
            if points.len() > 1 {
                svg.path(&format!("band {colour}"), &format!("M{}z", outline.join("L")), None);
            }
            let middle: Vec<String> =
                points.iter().map(|(x, values)| at(*x, values[values.len() / 2])).collect();
            svg.path(&format!("trace {colour}"), &format!("M{}", middle.join("L")), None);
            for (x, values) in &points {
                let value = values[values.len() / 2];
                let told = format!("{name}: {} ({} boots)", unit.show(value), values.len());
                let mark = marker::path(index, (*x, y(value)), 3.8);
                svg.path(&format!("mark {colour}"), &mark, Some(&told));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_known_by_their_names() {
        let check =
            |name: &str, expected: Option<(&str, f64)>| assert_eq!(share_of(name), expected);
        check("latency-p50", Some(("latency", 0.5)));
        check("latency-p99", Some(("latency", 0.99)));
        check("latency-p999", Some(("latency", 0.999)));
        check("read-latency-p99.9", Some(("read-latency", 0.999)));
        check("request-max", Some(("request", 1.0)));
        check("time", None);
        check("iops-p", None);
        check("latency-pinned", None);
    }
}
