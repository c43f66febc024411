//! Ratios to the baseline with their intervals, around the line at 1.

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, n, text_width};
use crate::figure::values::index_of;
use crate::published::{published_ratio, shown_ratio};
use crate::quantity::{counted, percent, ratio_estimate};
use crate::sentence::{directions, findings};
use crate::{Report, ResultGroup, ShownEstimate, VariantRole};

const LEFT: f64 = 16.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 26.0;
const HEADER: f64 = 30.0;
const ROW: f64 = 42.0;

/// An interval may stretch the axis to this many times beyond all ratios;
/// what is longer ends in an arrow.
const STRETCH: f64 = 3.0;

/// Draws `groups`, which have one workload and one metric, load by load.
/// Empty where nothing is compared.
pub(crate) fn draw(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let (Some(first), Some(baseline)) = (groups.first(), report.baseline()) else {
        return String::new();
    };
    let rows: usize = groups.iter().map(|group| findings(report, group).len()).sum();
    if rows == 0 {
        return String::new();
    }
    let several_loads = groups.len() > 1;
    let headers = if several_loads { groups.len() } else { 0 };
    let bottom = TOP + rows as f64 * ROW + headers as f64 * HEADER;
    let axis = axis(groups, &baseline.name);

    let mut svg = Svg::new();
    if let Some(margin) = first.margin {
        let (lo, hi) = (x(&axis, 1.0 / (1.0 + margin)), x(&axis, 1.0 + margin));
        svg.rect("margin", (lo, TOP - 6.0), hi - lo, bottom - TOP + 6.0);
    }
    // The interval of the baseline against itself: the noise floor.
    let aa = report.variants.iter().filter(|variant| variant.role == VariantRole::AaArm);
    for variant in aa {
        let cells = groups.iter().filter_map(|group| group.cell(&variant.name)?.judgement.as_ref());
        for span in cells.filter_map(|judgement| judgement.ratio?.interval) {
            let (lo, hi) = (x(&axis, span.lo), x(&axis, span.hi));
            svg.rect("floor", (lo, TOP - 6.0), hi - lo, bottom - TOP + 6.0);
        }
    }
    for (tick, label) in axis.ticks.iter().zip(axis.ratio_labels()) {
        let x = x(&axis, *tick);
        svg.line("grid", (x, TOP - 6.0), (x, bottom));
        svg.text("tick middle", (x, bottom + 15.0), &label);
    }
    let one = x(&axis, 1.0);
    svg.line("one", (one, TOP - 10.0), (one, bottom));
    let (left, right) = directions(&first.metric);
    let (left, right) = (format!("◂ {left}"), format!("{right} ▸"));
    // Where the line at 1 lies near a border, both words move inwards.
    let right_x = (one + 8.0).min(WIDTH - text_width(&right));
    let left_x = (one - 8.0).max(text_width(&left)).min(right_x - 8.0);
    svg.text("axis end", (left_x, 12.0), &left);
    svg.text("axis", (right_x, 12.0), &right);
    let margin = first.margin.map(|m| format!("; shaded: ±{}", percent(m))).unwrap_or_default();
    let title = format!("{} by that of {}{margin}", first.metric.name, baseline.name);
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 35.0), &title, WIDTH);

    let mut y = TOP;
    let mut description = String::new();
    for group in groups {
        if several_loads {
            svg.text("strong", (0.0, y + 17.0), &format!("host load: {}", group.load));
            y += HEADER;
        }
        for finding in findings(report, group) {
            let index = index_of(report, &finding.variant.name);
            let label = finding.label();
            let words = match &finding.judgement.ratio {
                Some(ratio) => format!("{} {}", ratio_estimate(ratio), label.word),
                None => label.word.to_owned(),
            };
            let at = (7.0, y + 10.0);
            let mark = marker::path(index, at, 4.6);
            svg.path(&format!("mark {}", marker::colour(index)), &mark, None);
            let room = WIDTH - 20.0 - text_width(&words) - 8.0;
            svg.fitted("name", (18.0, y + 14.0), &finding.variant.name, room);
            svg.text(&format!("value end t-{}", label.class), (WIDTH, y + 14.0), &words);
            if let Some(ratio) = &finding.judgement.ratio {
                draw_ratio(&mut svg, &axis, ratio, label.class, y + 28.0);
            }
            if let Some(told) = published_ratio(group, &baseline.name, &finding.variant.name) {
                // Of a range, its middle on the axis of ratios.
                let place = (x(&axis, (told.lo * told.hi).sqrt()), y + 28.0);
                let told = format!("published: {}", shown_ratio(told));
                svg.path("published", &marker::published(place), Some(&told));
            }
            let blocks = counted(finding.judgement.blocks as usize, "block");
            let name = &finding.variant.name;
            description.push_str(&format!("{name}, load {}: {words}, {blocks}. ", group.load));
            y += ROW;
        }
    }
    let title = format!("{} of {}: ratio to {}", first.metric.name, first.workload, baseline.name);
    svg.finish(id, bottom + 44.0, &title, description.trim_end())
}

fn axis(groups: &[&ResultGroup], baseline: &str) -> Axis {
    let mut sure = Vec::new();
    let mut ends = Vec::new();
    for group in groups {
        let margin = group.margin.unwrap_or(0.0);
        sure.extend([1.0 + margin, 1.0 / (1.0 + margin)]);
        for cell in &group.cells {
            let published = published_ratio(group, baseline, &cell.variant);
            sure.extend(published.into_iter().flat_map(|told| [told.lo, told.hi]));
            let Some(ratio) = cell.judgement.as_ref().and_then(|j| j.ratio) else { continue };
            sure.push(ratio.centre);
            ends.extend(ratio.interval.map(|span| [span.lo, span.hi]).into_iter().flatten());
        }
    }
    sure.retain(|value| value.is_finite() && *value > 0.0);
    let lo = sure.iter().copied().fold(1.0, f64::min) / STRETCH;
    let hi = sure.iter().copied().fold(1.0, f64::max) * STRETCH;
    let ends = ends.into_iter().map(|end| end.clamp(lo, hi));
    Axis::for_ratios(sure.iter().copied().chain(ends))
}

fn draw_ratio(svg: &mut Svg, axis: &Axis, ratio: &ShownEstimate, class: &str, y: f64) {
    let centre = x(axis, ratio.centre);
    if let Some(span) = ratio.interval {
        let (lo, hi) = (x(axis, span.lo), x(axis, span.hi));
        let line = format!("ratio v-{class}");
        svg.line(&line, (lo, y), (hi, y));
        for (end, value, outwards) in [(lo, span.lo, -1.0), (hi, span.hi, 1.0)] {
            if axis.covers(value) {
                svg.line(&line, (end, y - 5.0), (end, y + 5.0));
            } else {
                let (back, tip) = (n(end - outwards * 2.0), n(end + outwards * 6.0));
                let d = format!("M{back} {}L{tip} {}L{back} {}z", n(y - 5.0), n(y), n(y + 5.0));
                svg.path(&format!("arrow v-{class}"), &d, Some("the interval goes on"));
            }
        }
    }
    let hollow = if ratio.interval.is_some() { "" } else { " hollow" };
    svg.path(
        &format!("point v-{class}{hollow}"),
        &marker::path(1, (centre, y), 4.6),
        Some(&ratio_estimate(ratio)),
    );
}

fn x(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.position(value) * (RIGHT - LEFT)
}
