//! Blocks as lines: what one block says of the baseline at the left, of the
//! variant at the right. Where all lines tilt the same way, no statistics are
//! needed.

use crate::figure::axis::Axis;
use crate::figure::marker;
use crate::figure::svg::{Svg, WIDTH, text_width};
use crate::figure::values::index_of;
use crate::quantity::{UnitScale, counted};
use crate::{BootPoint, Report, ReportVariant, ResultGroup, VariantRole};

/// Height of a panel, and where there are many.
const HEIGHT: f64 = 150.0;
const LOW: f64 = 80.0;
/// At most this many panels are drawn at full height.
const FEW_PANELS: usize = 4;
const HEADER: f64 = 34.0;
const GAP: f64 = 18.0;

/// Draws `groups`, which have one workload and one metric: one panel for each
/// variant and load. Empty where no block holds both sides of a comparison.
pub(crate) fn draw(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let (Some(first), Some(baseline)) = (groups.first(), report.baseline()) else {
        return String::new();
    };
    let panels: Vec<PairedPanel<'_>> =
        groups.iter().flat_map(|group| panels(report, group, baseline)).collect();
    if panels.is_empty() {
        return String::new();
    }
    let values = || panels.iter().flat_map(|panel| &panel.blocks).flat_map(|b| [b.from, b.to]);
    let scale = UnitScale::for_values(&first.metric.unit, values());
    let several_loads = groups.len() > 1;
    let height = if panels.len() > FEW_PANELS { LOW } else { HEIGHT };
    let mut svg = Svg::new();
    let mut top = 0.0;
    let mut description = String::new();
    for panel in &panels {
        let mut name = panel.variant.name.clone();
        if several_loads {
            name = format!("{name}, host load {}", panel.group.load);
        }
        let up = panel.blocks.iter().filter(|block| block.to > block.from).count();
        let words = format!("higher in {up} of {}", counted(panel.blocks.len(), "block"));
        let room = WIDTH - text_width(&words) - 8.0;
        svg.fitted("name", (0.0, top + 14.0), &name, room);
        svg.text("value end", (WIDTH, top + 14.0), &words);
        panel.draw(report, &scale, (top + HEADER, height), &mut svg);
        description.push_str(&format!("{name}: {words}. "));
        top += HEADER + height + GAP;
    }
    let bottom = top;
    let unit = scale.unit_name();
    let title =
        format!("up: {} ({unit}); from {} to the variant", first.metric.name, baseline.name);
    svg.fitted("axis middle", (WIDTH / 2.0, bottom + 10.0), &title, WIDTH);
    let title = format!("{} of {}, block by block", first.metric.name, first.workload);
    svg.finish(id, bottom + 18.0, &title, description.trim_end())
}

/// One block's two numbers.
struct BlockPair {
    block: u32,
    from: f64,
    to: f64,
}

struct PairedPanel<'a> {
    group: &'a ResultGroup,
    variant: &'a ReportVariant,
    baseline: usize,
    blocks: Vec<BlockPair>,
}

fn panels<'a>(
    report: &'a Report,
    group: &'a ResultGroup,
    baseline: &'a ReportVariant,
) -> Vec<PairedPanel<'a>> {
    let counted = |name: &str| -> Vec<&BootPoint> {
        let boots = group.cell(name).map(|cell| cell.boots.as_slice()).unwrap_or_default();
        boots.iter().filter(|boot| boot.counted).collect()
    };
    let from = counted(&baseline.name);
    let others = report.variants.iter().filter(|variant| variant.role != VariantRole::Baseline);
    others
        .map(|variant| {
            let pair = |to: &BootPoint| {
                let from = from.iter().find(|from| from.block == to.block)?;
                Some(BlockPair { block: to.block, from: from.value, to: to.value })
            };
            let blocks = counted(&variant.name).into_iter().filter_map(pair).collect();
            PairedPanel { group, variant, baseline: index_of(report, &baseline.name), blocks }
        })
        .filter(|panel| !panel.blocks.is_empty())
        .collect()
}

impl PairedPanel<'_> {
    fn draw(&self, report: &Report, scale: &UnitScale, place: (f64, f64), svg: &mut Svg) {
        let (top, height) = place;
        let axis = Axis::for_points(self.blocks.iter().flat_map(|block| [block.from, block.to]));
        let labels = match axis.log {
            true => axis.labels_with_unit(&self.group.metric.unit),
            false => axis.labels(scale.divisor()),
        };
        let left = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max) + 12.0;
        let y = |value: f64| top + (1.0 - axis.position(value)) * height;
        for (tick, label) in axis.ticks.iter().zip(&labels) {
            svg.line("grid", (left, y(*tick)), (WIDTH, y(*tick)));
            svg.text("tick end", (left - 6.0, y(*tick) + 4.0), label);
        }
        let (from_x, to_x) = (left + 40.0, WIDTH - 40.0);
        let index = index_of(report, &self.variant.name);
        for pair in &self.blocks {
            svg.line(
                &format!("pair {}", marker::colour(index)),
                (from_x, y(pair.from)),
                (to_x, y(pair.to)),
            );
        }
        for pair in &self.blocks {
            let told = format!(
                "block {}: {} to {}",
                pair.block,
                scale.show(pair.from),
                scale.show(pair.to)
            );
            for (index, at) in
                [(self.baseline, (from_x, y(pair.from))), (index, (to_x, y(pair.to)))]
            {
                let class = format!("mark {}", marker::colour(index));
                svg.path(&class, &marker::path(index, at, 3.8), Some(&told));
            }
        }
    }
}
