//! How the interval narrowed from look to look, and where the decision fell.

use crate::figure::axis::Axis;
use crate::figure::svg::{Svg, WIDTH, n, text_width};
use crate::quantity::ratio_estimate;
use crate::sentence::findings;
use crate::{Label, Report, ResultGroup, ShownEstimate};

/// Height of a panel, and where there are many.
const HEIGHT: f64 = 130.0;
const LOW: f64 = 80.0;
/// At most this many panels are drawn at full height.
const FEW_PANELS: usize = 4;
const HEADER: f64 = 34.0;
const GAP: f64 = 30.0;
const RIGHT: f64 = WIDTH - 10.0;

/// Intervals of the first looks may stretch the axis to this many times the
/// last one; what is longer goes beyond the border.
const STRETCH: f64 = 4.0;

/// A look: after how many blocks or days, and what it saw.
type PlottedLook = (u32, ShownEstimate);

/// Draws `groups`, which have one workload and one metric: one panel for each
/// variant and load. Empty where nothing was looked at twice.
pub(crate) fn draw(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let Some(first) = groups.first() else { return String::new() };
    let several_loads = groups.len() > 1;
    let panels = groups.iter().map(|group| findings(report, group).len()).sum::<usize>();
    let height = if panels > FEW_PANELS { LOW } else { HEIGHT };
    let mut svg = Svg::new();
    let mut top = 0.0;
    let mut description = String::new();
    for group in groups {
        for finding in findings(report, group) {
            let looks = &finding.judgement.looks;
            let Some(last) = looks.last().filter(|_| looks.len() > 1) else { continue };
            let label = finding.label();
            let mut name = finding.variant.name.clone();
            if several_loads {
                name = format!("{name}, host load {}", group.load);
            }
            let room = WIDTH - text_width(label.word) - 8.0;
            svg.fitted("name", (0.0, top + 14.0), &name, room);
            svg.text(&format!("value end t-{}", label.class), (WIDTH, top + 14.0), label.word);
            let ratios: Vec<PlottedLook> =
                looks.iter().map(|look| (look.blocks, look.ratio)).collect();
            let told = |blocks: u32| format!("after {blocks} blocks");
            panel(&mut svg, &ratios, group.margin, label.class, (top + HEADER, height), told);
            let (blocks, ratio) = (last.blocks, ratio_estimate(&last.ratio));
            description.push_str(&format!("{name}: {ratio} after {blocks} blocks. "));
            top += HEADER + height + GAP;
        }
    }
    if top == 0.0 {
        return String::new();
    }
    let title = "up: ratio to the baseline; right: blocks".to_owned();
    svg.fitted("axis middle", (WIDTH / 2.0, top + 6.0), &title, WIDTH);
    let title = format!("{} of {}: look by look", first.metric.name, first.workload);
    svg.finish(id, top + 14.0, &title, description.trim_end())
}

/// Draws one panel: a roll-out's looks at one counter, day by day. Empty where there are
/// fewer than two.
pub(crate) fn of_days(
    name: &str,
    looks: &[PlottedLook],
    margin: f64,
    verdict: Label,
    id: &str,
) -> String {
    let Some((day, ratio)) = looks.last().filter(|_| looks.len() > 1) else {
        return String::new();
    };
    let mut svg = Svg::new();
    let told = |day: u32| format!("day {day}");
    panel(&mut svg, looks, Some(margin), verdict.class, (4.0, HEIGHT), told);
    let title = "up: changed by other hosts; right: days";
    let below = 4.0 + HEIGHT + GAP + 6.0;
    svg.fitted("axis middle", (WIDTH / 2.0, below), title, WIDTH);
    let description = format!("{} on day {day}: {}", ratio_estimate(ratio), verdict.word);
    svg.finish(id, below + 8.0, &format!("{name}: day by day"), &description)
}

/// Draws `looks` side by side; `told` names one by its number.
fn panel(
    svg: &mut Svg,
    looks: &[PlottedLook],
    margin: Option<f64>,
    class: &str,
    place: (f64, f64),
    told: impl Fn(u32) -> String,
) {
    let (top, height) = place;
    let axis = axis(looks, margin);
    let labels = axis.ratio_labels();
    let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 12.0;
    let y = |ratio: f64| top + (1.0 - axis.position(ratio)) * height;
    if let Some(margin) = margin {
        let (upper, lower) = (y(1.0 + margin), y(1.0 / (1.0 + margin)));
        svg.rect("margin", (left, upper), RIGHT - left, lower - upper);
    }
    for (tick, label) in axis.ticks.iter().zip(&labels) {
        svg.line("grid", (left, y(*tick)), (RIGHT, y(*tick)));
        svg.text("tick end", (left - 6.0, y(*tick) + 4.0), label);
    }
    svg.line("one", (left, y(1.0)), (RIGHT, y(1.0)));
    let (lo, hi) = (looks[0].0, looks[looks.len() - 1].0);
    let wide = f64::from(hi - lo + 1);
    let x = |number: u32| left + (f64::from(number - lo) + 0.5) / wide * (RIGHT - left);
    // Many looks stand near each other.
    let half = (0.4 * (RIGHT - left) / wide).min(4.0);
    for (number, ratio) in looks {
        let x = x(*number);
        let told = format!("{}: {}", told(*number), ratio_estimate(ratio));
        if let Some(span) = ratio.interval {
            svg.line(&format!("ratio v-{class}"), (x, y(span.lo)), (x, y(span.hi)));
        }
        let (left, right, y) = (n(x - half), n(x + half), n(y(ratio.centre)));
        svg.path(&format!("look v-{class}"), &format!("M{left} {y}L{right} {y}"), Some(&told));
    }
    for tick in Axis::linear(f64::from(lo), f64::from(hi), 6).ticks {
        if tick.fract() == 0.0 && (f64::from(lo)..=f64::from(hi)).contains(&tick) {
            svg.text("tick middle", (x(tick as u32), top + height + 15.0), &format!("{tick}"));
        }
    }
}

fn axis(looks: &[PlottedLook], margin: Option<f64>) -> Axis {
    let margin = margin.unwrap_or(0.0);
    let mut values = vec![1.0 + margin, 1.0 / (1.0 + margin)];
    values.extend(looks.iter().map(|(_, ratio)| ratio.centre));
    let last = looks.last().and_then(|(_, ratio)| ratio.interval);
    if let Some(last) = last.filter(|span| span.lo > 0.0) {
        let reach = (last.hi / last.lo).powf(STRETCH / 2.0);
        let ends = looks.iter().filter_map(|(_, ratio)| ratio.interval);
        values.extend(
            ends.flat_map(|span| [span.lo.max(last.lo / reach), span.hi.min(last.hi * reach)]),
        );
    }
    Axis::for_ratios(values.into_iter().filter(|value| value.is_finite() && *value > 0.0))
}
