//! The map as a figure.

use std::fmt::Write as _;

use report::escape;
use report::palette::{MAPPED_VMS, light_style};

use super::map::{HostMap, MapCell, MapCore, mark};

const MARGIN: usize = 16;
const CELL_WIDTH: usize = 46;
const CELL_HEIGHT: usize = 34;
const CORE_PAD: usize = 3;
const GAP: usize = 6;
const TITLE: usize = 22;
/// Cores beside each other.
const IN_ROW: usize = 16;
/// Room for the legend.
const MIN_WIDTH: usize = 320;

/// Below the colours of the VMs, `.vm0` and so on.
const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}\
.t{font-size:13px;font-weight:600}.n{font-size:13px}\
.v{font-size:13px;font-weight:600;text-anchor:middle}\
.p{font-size:9px;text-anchor:middle}\
.c{fill:var(--paper);stroke:var(--outline)}\
.ground,.free{fill:var(--paper)}.taken{fill:var(--grid)}\
.host{fill:var(--host-tasks)}.floating{fill:var(--floating)}";

/// Draws a map as one SVG document.
#[must_use]
pub fn svg(map: &HostMap) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    for group in &map.groups {
        let title = match &group.cache {
            Some(cache) => format!("{}, {cache}", group.node),
            None => group.node.clone(),
        };
        text(&mut body, "t", MARGIN, y + 14, &title);
        y += TITLE;
        for row in group.cores.chunks(IN_ROW) {
            let tall = row.iter().map(Vec::len).max().unwrap_or(0) * CELL_HEIGHT + 2 * CORE_PAD;
            for (at, core) in row.iter().enumerate() {
                let x = MARGIN + at * (CELL_WIDTH + 2 * CORE_PAD + GAP);
                draw_core(&mut body, x, y, core);
            }
            y += tall + GAP;
        }
        y += GAP;
    }
    for (mark, meaning) in &map.legend {
        text(&mut body, "t", MARGIN, y + 14, mark);
        text(&mut body, "n", MARGIN + 60, y + 14, meaning);
        y += 20;
    }
    if !map.offline.is_empty() {
        text(&mut body, "n", MARGIN, y + 14, &format!("offline: {}", map.offline));
        y += 20;
    }
    y += MARGIN;
    let longest = map.groups.iter().map(|group| group.cores.len().min(IN_ROW)).max().unwrap_or(0);
    let width = MIN_WIDTH.max(2 * MARGIN + longest * (CELL_WIDTH + 2 * CORE_PAD + GAP));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" \
         viewBox=\"0 0 {width} {y}\" role=\"img\">\n\
         <title>Where the VMs run</title>\n\
         <style>{}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{y}\"/>\n{body}</svg>\n",
        style()
    )
}

fn style() -> String {
    let vms: String = (0..MAPPED_VMS).map(|vm| format!(".vm{vm}{{fill:var(--vm{vm})}}")).collect();
    light_style(&format!("{STYLE}{vms}"))
}

fn draw_core(body: &mut String, x: usize, y: usize, core: &MapCore) {
    let width = CELL_WIDTH + 2 * CORE_PAD;
    let height = core.len() * CELL_HEIGHT + 2 * CORE_PAD;
    // Writing to a String can't fail.
    let _ = writeln!(
        body,
        "<rect class=\"c\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>"
    );
    for (thread, (pcpu, cell)) in core.iter().enumerate() {
        let (left, top) = (x + CORE_PAD, y + CORE_PAD + thread * CELL_HEIGHT);
        // VMs beyond the colours begin again; their letters tell them apart.
        let class = match cell {
            MapCell::Vcpu(vm, _) | MapCell::Other(vm) => &format!("vm{}", vm % MAPPED_VMS),
            MapCell::Floating(_) => "floating",
            MapCell::Host => "host",
            MapCell::Taken => "taken",
            MapCell::Idle(_) | MapCell::Free => "free",
        };
        let _ = writeln!(
            body,
            "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{CELL_WIDTH}\" \
             height=\"{}\" rx=\"2\"/>",
            CELL_HEIGHT - 1
        );
        let middle = left + CELL_WIDTH / 2;
        text(body, "p", middle, top + 11, &pcpu.to_string());
        text(body, "v", middle, top + 27, &mark(cell));
    }
}

fn text(body: &mut String, class: &str, x: usize, y: usize, words: &str) {
    let words = escape(words);
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>");
}
