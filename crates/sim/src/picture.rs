//! Who ran where, as a picture: what `perf sched map` prints, to be read.

use std::fmt::Write as _;

use report::escape;
use report::palette::{hue, picture_style};

use crate::engine::{PcpuUser, TraceSegment};
use crate::map::{Map, Origin};

/// Columns of the picture; what is shorter than one is not drawn apart.
const COLUMNS: usize = 1_000;
const LEFT: usize = 60;
const TOP: usize = 46;
/// VMs that the legend names.
const MOST_NAMED: usize = 12;

const STYLE: &str = "\
text{font:12px sans-serif;fill:var(--ink)}\
.ground{fill:var(--paper)}\
.host{fill:var(--others)}\
.exit{fill:var(--alarm)}\
.yield{fill:var(--ink)}";

/// An SVG picture of a map: one row a pCPU, time to the right, a
/// colour a VM, brighter and darker by vCPU, host tasks grey. A line below a row
/// marks pause exits, a line above it directed yields. Its size is bounded,
/// however much happened: each of 1000 columns shows who was there longest.
#[must_use]
pub fn svg(map: &Map) -> String {
    let Map { from_ns: from, to_ns: to, ref title, .. } = *map;
    let rows = map.pcpus.len();
    let row = (720 / rows.max(1)).clamp(4, 24);
    let grid = PictureGrid::of(map);
    let (width, height) = (LEFT + COLUMNS + 10, TOP + rows * row + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{}\n",
        escape(title),
        picture_style(STYLE)
    );
    for vm in 0..map.vms.len() {
        let _ = writeln!(svg, ".v{vm} {{ fill: hsl({} 45%) }}", hue(vm));
    }
    svg.push_str("</style>\n");
    let _ = writeln!(svg, "<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>");
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"16\">{}</text>", escape(title));
    legend(&mut svg, map);
    for pcpu in 0..rows {
        let y = TOP + pcpu * row;
        if row >= 12 || pcpu % (12 / row + 1) == 0 {
            let number = map.pcpus[pcpu];
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{number}</text>",
                LEFT - 6,
                y + row.min(12)
            );
        }
        grid.draw_row(&mut svg, map, pcpu, (y, row));
    }
    let bottom = TOP + rows * row + 16;
    // A recording's clock began long before it.
    let zero = if map.origin == Origin::Recorded { from } else { 0 };
    for (x, ns, anchor) in [(LEFT, from, "start"), (LEFT + COLUMNS, to, "end")] {
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{bottom}\" text-anchor=\"{anchor}\">{} ms</text>",
            ns.saturating_sub(zero) as f64 / 1e6
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\">pCPUs; below a row: pause exits; above it: directed yields; other exits \
         have no mark. {}</text>\n</svg>",
        bottom + 18,
        map.origin.word()
    );
    svg
}

fn legend(svg: &mut String, map: &Map) {
    let step = COLUMNS / MOST_NAMED;
    for (vm, named) in map.vms.iter().take(MOST_NAMED).enumerate() {
        let x = LEFT + vm * step;
        let _ = writeln!(
            svg,
            "<rect class=\"v{vm}\" x=\"{x}\" y=\"24\" width=\"10\" height=\"10\"/>\
             <text x=\"{}\" y=\"34\">{}</text>",
            x + 14,
            escape(&named.name)
        );
    }
}

/// Who was there longest, and what happened, by pCPU and column.
struct PictureGrid {
    owners: Vec<Option<PcpuUser>>,
    exits: Vec<bool>,
    yields: Vec<bool>,
}

impl PictureGrid {
    fn of(map: &Map) -> Self {
        let Map { from_ns: from, to_ns: to, .. } = *map;
        let cells = map.pcpus.len() * COLUMNS;
        let mut grid = Self {
            owners: vec![None; cells],
            exits: vec![false; cells],
            yields: vec![false; cells],
        };
        let mut longest = vec![0u64; cells];
        let span = (to - from).max(1);
        let edge = |column: usize| from + span * column as u64 / COLUMNS as u64;
        let column = |ns: u64| {
            let at = ns.saturating_sub(from).min(span - 1);
            (u128::from(at) * COLUMNS as u128 / u128::from(span)) as usize
        };
        for segment in &map.segments {
            match *segment {
                TraceSegment::Ran { pcpu, whose, from_ns, to_ns } if to_ns > from => {
                    for at in column(from_ns)..=column(to_ns - 1) {
                        let held = to_ns.min(edge(at + 1)).saturating_sub(from_ns.max(edge(at)));
                        let cell = pcpu as usize * COLUMNS + at;
                        if held > longest[cell] {
                            longest[cell] = held;
                            grid.owners[cell] = Some(whose);
                        }
                    }
                }
                TraceSegment::Ran { .. } => {}
                TraceSegment::PauseExit { pcpu, at_ns } => {
                    grid.exits[pcpu as usize * COLUMNS + column(at_ns)] = true;
                }
                TraceSegment::Yield { pcpu, at_ns } => {
                    grid.yields[pcpu as usize * COLUMNS + column(at_ns)] = true;
                }
            }
        }
        grid
    }

    fn draw_row(&self, svg: &mut String, map: &Map, pcpu: usize, (y, height): (usize, usize)) {
        let row = pcpu * COLUMNS..(pcpu + 1) * COLUMNS;
        for (x, count, whose) in runs(&self.owners[row.clone()]) {
            let Some(whose) = whose else { continue };
            let (class, shade) = match whose {
                PcpuUser::Host(_) => ("host".to_owned(), 1.0),
                PcpuUser::Vcpu { vm, vcpu } => {
                    let vcpus = map.vms[vm as usize].vcpus.max(2);
                    let step = f64::from(vcpu) / f64::from(vcpus - 1);
                    (format!("v{vm}"), 1.0 - 0.5 * step)
                }
            };
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" fill-opacity=\"{shade:.2}\" x=\"{}\" y=\"{y}\" \
                 width=\"{count}\" height=\"{}\"/>",
                LEFT + x,
                height - 1
            );
        }
        let lines = [(&self.exits, "exit", y + height - 1), (&self.yields, "yield", y)];
        for (marks, class, y) in lines {
            for (x, count, marked) in runs(&marks[row.clone()]) {
                if marked {
                    let _ = writeln!(
                        svg,
                        "<rect class=\"{class}\" x=\"{}\" y=\"{y}\" width=\"{count}\" height=\"1\"/>",
                        LEFT + x
                    );
                }
            }
        }
    }
}

/// Runs of equal values: where each begins, how long it is, what it is.
fn runs<T: Copy + PartialEq>(values: &[T]) -> Vec<(usize, usize, T)> {
    let mut runs: Vec<(usize, usize, T)> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        match runs.last_mut() {
            Some((_, count, last)) if last == value => *count += 1,
            _ => runs.push((at, 1, *value)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn pictures_are_bounded_and_show_everybody() {
        let text = include_str!("../../../studies/sim/overcommit.toml");
        let scenario = Scenario::parse("s", text, |_| Err(String::new())).unwrap();
        let on = scenario.cells.iter().find(|cell| cell.variant == "ple on").unwrap();
        let mut model = on.draw(1, 0);
        (model.warmup_ns, model.duration_ns) = (0, 60_000_000);
        model.map_from_ns = Some(50_000_000);
        model.vms[0].name = "<a & b>".to_owned();
        let outcome = crate::run(&model, || true).unwrap();
        let map = Map::of_run(&model, outcome, "two <VMs>");
        let picture = svg(&map);
        let page = roxmltree::Document::parse(&picture).unwrap();
        let classes: std::collections::BTreeSet<_> =
            page.descendants().filter_map(|node| node.attribute("class")).collect();
        for class in ["v0", "v7", "exit", "yield", "ground"] {
            assert!(classes.contains(class), "{class}: {classes:?}");
        }
        assert!(picture.len() < 80 * COLUMNS * 120, "{}", picture.len());
    }
}
