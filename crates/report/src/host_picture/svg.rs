//! The figure: the same boxes as the terminal's, drawn.
//!
//! Colours are style-sheet classes, all named `hp-...` so that the figure can
//! stand inside a page. Dark colours hold on screens alone: paper stays white.
//! No CSS variables, because viewers outside browsers do not know them. Nothing
//! is shown by colour alone: small cores are round, isolated pCPUs are dashed.

use std::fmt::Write as _;

use topology::{CoreKind, Host, PcpuGroup, TopologyLevel};

use crate::escape::escape;
use crate::palette::picture_style;

use super::words::{headline, is_small, isolated, kind, nodes_without_pcpus, summary, title};

/// Widest drawing in pixels before boxes go below each other.
const MAX_WIDTH: f64 = 880.0;
/// Narrowest figure, so that the headline has room.
const MIN_WIDTH: f64 = 420.0;
const MARGIN: f64 = 16.0;
const BOX_PAD: f64 = 8.0;
const TITLE_HEIGHT: f64 = 20.0;
const GAP: f64 = 6.0;
const THREAD_WIDTH: f64 = 30.0;
const THREAD_HEIGHT: f64 = 20.0;
const CORE_PAD: f64 = 3.0;
const LINE_HEIGHT: f64 = 18.0;
/// Mean width of a character of 12 and 13 pixel text; a little too wide, so
/// that no text leaves its box.
const TITLE_CHAR: f64 = 7.0;
const LINE_CHAR: f64 = 7.2;
/// Boxes beside each other; more is never lower and takes long to try.
const MAX_COLUMNS: usize = 8;

const STYLE: &str = "\
.hp-root{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
.hp-paper{fill:var(--paper)}\
.hp-text{fill:var(--ink);font-size:13px}\
.hp-head{font-size:15px;font-weight:600}\
.hp-title{fill:var(--ink);font-size:12px;font-weight:600}\
.hp-note{fill:var(--quiet);font-size:13px}\
.hp-pcpu{fill:var(--ink);font-size:11px;text-anchor:middle}\
.hp-socket{fill:var(--panel);stroke:var(--socket-rule)}\
.hp-node{fill:var(--node);stroke:var(--node-rule)}\
.hp-die{fill:var(--die);stroke:var(--die-rule)}\
.hp-cache{fill:var(--cache);stroke:var(--cache-rule)}\
.hp-cluster{fill:var(--cluster);stroke:var(--cluster-rule)}\
.hp-core{fill:var(--paper);stroke:var(--outline)}\
.hp-thread{fill:var(--thread);stroke:none}\
.hp-small{fill:var(--small-thread)}\
.hp-isolated{stroke:var(--isolated);stroke-width:1.6;stroke-dasharray:4 2}\
.hp-offline{fill:none;stroke:var(--outline);stroke-dasharray:2 2}\
.hp-off{fill:var(--quiet);text-decoration:line-through}";

/// Draws a host as one SVG document, which may also stand inside an HTML page.
pub fn svg(host: &Host) -> String {
    let mut drawing = PictureBlock::default();
    for line in broken(&headline(host), MAX_WIDTH, 8.4) {
        drawing.line("hp-text hp-head", &line, LINE_CHAR * 1.2);
    }
    for line in broken(&summary(host), MAX_WIDTH, LINE_CHAR) {
        drawing.line("hp-note", &line, LINE_CHAR);
    }
    drawing.height += GAP;
    let sockets = host.nesting();
    drawing.below(body(host, &sockets, MAX_WIDTH));
    for node in nodes_without_pcpus(host) {
        drawing.line("hp-text", &node, LINE_CHAR);
    }
    let offline: Vec<PictureBlock> = host.offline().iter().map(offline_pcpu).collect();
    if !offline.is_empty() {
        drawing.line("hp-note", "Offline:", LINE_CHAR);
        drawing.below(flow(offline, MAX_WIDTH));
    }
    let legend = legend(host, &sockets);
    if !legend.is_empty() {
        drawing.height += GAP;
        drawing.below(flow(legend, MAX_WIDTH));
    }

    let width = drawing.width.max(MIN_WIDTH) + 2.0 * MARGIN;
    let height = drawing.height + 2.0 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"hp-root\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         style=\"max-width:100%;height:auto\">\n<title>{}</title>\n<style>{}</style>\n\
         <rect class=\"hp-paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n",
        escape(&format!("Topology: {}", summary(host))),
        picture_style(STYLE),
    );
    for mark in &drawing.marks {
        mark.write(&mut text);
    }
    text.push_str("</g>\n</svg>\n");
    text
}

/// A rectangle or a text, placed within its block.
struct Mark {
    x: f64,
    y: f64,
    kind: MarkKind,
}

enum MarkKind {
    Rect { class: &'static str, width: f64, height: f64, radius: f64, tip: Option<String> },
    Text { class: &'static str, text: String },
}

impl Mark {
    fn write(&self, out: &mut String) {
        let (x, y) = (self.x, self.y);
        let written = match &self.kind {
            MarkKind::Rect { class, width, height, radius, tip } => {
                let end = match tip {
                    Some(tip) => format!("><title>{}</title></rect>", escape(tip)),
                    None => "/>".to_owned(),
                };
                writeln!(
                    out,
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" \
                     height=\"{height}\" rx=\"{radius}\"{end}"
                )
            }
            MarkKind::Text { class, text } => {
                writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text))
            }
        };
        written.expect("writing to a String cannot fail");
    }
}

/// Marks and the room that they take.
#[derive(Default)]
struct PictureBlock {
    width: f64,
    height: f64,
    marks: Vec<Mark>,
}

impl PictureBlock {
    fn rect(&mut self, class: &'static str, at: (f64, f64), size: (f64, f64), radius: f64) {
        let kind = MarkKind::Rect { class, width: size.0, height: size.1, radius, tip: None };
        self.marks.push(Mark { x: at.0, y: at.1, kind });
    }

    fn text(&mut self, class: &'static str, at: (f64, f64), text: &str) {
        let kind = MarkKind::Text { class, text: text.to_owned() };
        self.marks.push(Mark { x: at.0, y: at.1, kind });
    }

    /// A line of text below what is there.
    fn line(&mut self, class: &'static str, text: &str, char_width: f64) {
        self.text(class, (0.0, self.height + 13.0), text);
        self.width = self.width.max(text_width(text, char_width));
        self.height += LINE_HEIGHT;
    }

    /// Places a block at a point.
    fn place(&mut self, block: PictureBlock, x: f64, y: f64) {
        self.width = self.width.max(x + block.width);
        self.height = self.height.max(y + block.height);
        self.marks.extend(block.marks.into_iter().map(|mark| Mark {
            x: mark.x + x,
            y: mark.y + y,
            kind: mark.kind,
        }));
    }

    /// Places a block below what is there.
    fn below(&mut self, block: PictureBlock) {
        let (y, height) = (self.height, block.height);
        self.place(block, 0.0, y);
        self.height = y + height + if height > 0.0 { GAP } else { 0.0 };
    }
}

/// Groups beside and below each other, cores as cells.
fn body(host: &Host, groups: &[PcpuGroup], width: f64) -> PictureBlock {
    let mut block = PictureBlock::default();
    for run in
        groups.chunk_by(|a, b| (a.level == TopologyLevel::Core) == (b.level == TopologyLevel::Core))
    {
        let drawn = if run[0].level == TopologyLevel::Core {
            flow(run.iter().map(|group| core(host, group)).collect(), width)
        } else {
            boxes(host, run, width)
        };
        block.below(drawn);
    }
    // The last gap is the box's own padding.
    block.height = (block.height - GAP).max(0.0);
    block
}

/// Boxes, as many beside each other as makes them lowest.
fn boxes(host: &Host, groups: &[PcpuGroup], width: f64) -> PictureBlock {
    let mut best = grid(host, groups, width, 1);
    for columns in 2..=groups.len().min(MAX_COLUMNS) {
        let drawn = grid(host, groups, width, columns);
        if drawn.width > width {
            break;
        }
        if drawn.height < best.height {
            best = drawn;
        }
    }
    best
}

fn grid(host: &Host, groups: &[PcpuGroup], width: f64, columns: usize) -> PictureBlock {
    let each = (width + GAP) / columns as f64 - GAP;
    let bodies: Vec<(String, PictureBlock)> = groups
        .iter()
        .map(|group| (title(host, group), body(host, &group.children, each - 2.0 * BOX_PAD)))
        .collect();
    let inner = bodies
        .iter()
        .map(|(title, body)| body.width.max(text_width(title, TITLE_CHAR)))
        .fold(0.0, f64::max);
    let box_width = inner + 2.0 * BOX_PAD;
    let mut block = PictureBlock::default();
    let (mut at, mut y) = (0, 0.0);
    let mut bodies = bodies.into_iter().peekable();
    while bodies.peek().is_some() {
        let row: Vec<(String, PictureBlock)> = bodies.by_ref().take(columns).collect();
        let inner_height = row.iter().map(|(_, body)| body.height).fold(0.0, f64::max);
        let box_height = TITLE_HEIGHT + inner_height + BOX_PAD;
        for (column, (title, body)) in row.into_iter().enumerate() {
            let x = column as f64 * (box_width + GAP);
            let class = match groups[at].level {
                TopologyLevel::Socket => "hp-socket",
                TopologyLevel::Node => "hp-node",
                TopologyLevel::Die => "hp-die",
                TopologyLevel::Cache(_) => "hp-cache",
                TopologyLevel::Cluster => "hp-cluster",
                TopologyLevel::Core => "hp-core",
            };
            block.rect(class, (x, y), (box_width, box_height), 5.0);
            block.text("hp-title", (x + BOX_PAD, y + 14.0), &title);
            block.place(body, x + BOX_PAD, y + TITLE_HEIGHT);
            block.width = block.width.max(x + box_width);
            at += 1;
        }
        y += box_height + GAP;
        block.height = y - GAP;
    }
    block
}

/// A core with its threads beside each other.
fn core(host: &Host, core: &PcpuGroup) -> PictureBlock {
    let small = is_small(host, core);
    let isolated = isolated(host, &core.pcpus);
    let mut block = PictureBlock::default();
    let count = core.pcpus.len() as f64;
    let width = count * THREAD_WIDTH + (count - 1.0) * 2.0 + 2.0 * CORE_PAD;
    let height = THREAD_HEIGHT + 2.0 * CORE_PAD;
    let radius = if small { height / 2.0 } else { 3.0 };
    let what = match kind(host, core) {
        Some(CoreKind::Efficiency) => "efficiency core",
        Some(CoreKind::LowPower) => "low-power core",
        Some(CoreKind::Performance) => "performance core",
        None => "core",
    };
    let name = core.id.map_or(what.to_owned(), |id| format!("{what} {id}"));
    block.rect("hp-core", (0.0, 0.0), (width, height), radius);
    for (at, pcpu) in core.pcpus.iter().enumerate() {
        let x = CORE_PAD + at as f64 * (THREAD_WIDTH + 2.0);
        let is_isolated = isolated.contains(pcpu);
        let class = match (small, is_isolated) {
            (false, false) => "hp-thread",
            (true, false) => "hp-thread hp-small",
            (false, true) => "hp-thread hp-isolated",
            (true, true) => "hp-thread hp-small hp-isolated",
        };
        let tip = format!("pCPU {pcpu}, {name}{}", if is_isolated { ", isolated" } else { "" });
        let radius = if small { THREAD_HEIGHT / 2.0 } else { 2.0 };
        block.marks.push(Mark {
            x,
            y: CORE_PAD,
            kind: MarkKind::Rect {
                class,
                width: THREAD_WIDTH,
                height: THREAD_HEIGHT,
                radius,
                tip: Some(tip),
            },
        });
        block.text("hp-pcpu", (x + THREAD_WIDTH / 2.0, CORE_PAD + 14.0), &pcpu.to_string());
    }
    (block.width, block.height) = (width, height);
    block
}

fn offline_pcpu(pcpu: u32) -> PictureBlock {
    let mut block = PictureBlock { width: THREAD_WIDTH, height: THREAD_HEIGHT, marks: Vec::new() };
    block.rect("hp-offline", (0.0, 0.0), (THREAD_WIDTH, THREAD_HEIGHT), 2.0);
    block.text("hp-pcpu hp-off", (THREAD_WIDTH / 2.0, 14.0), &pcpu.to_string());
    block
}

/// Samples of the marks that need words.
fn legend(host: &Host, sockets: &[PcpuGroup]) -> Vec<PictureBlock> {
    let cores: Vec<&PcpuGroup> = sockets.iter().flat_map(PcpuGroup::cores).collect();
    let mut entries: Vec<(&'static str, f64, &str)> = Vec::new();
    if cores.iter().any(|core| is_small(host, core)) {
        entries.push(("hp-thread", 2.0, "performance core"));
        entries.push(("hp-thread hp-small", 7.0, "efficiency core"));
    }
    if !isolated(host, &host.online()).is_empty() {
        entries.push(("hp-thread hp-isolated", 2.0, "isolated"));
    }
    entries
        .into_iter()
        .map(|(class, radius, words)| {
            let mut block = PictureBlock::default();
            block.rect(class, (1.0, 2.0), (22.0, 14.0), radius);
            block.text("hp-note", (29.0, 13.0), words);
            (block.width, block.height) = (29.0 + text_width(words, LINE_CHAR) + GAP, LINE_HEIGHT);
            block
        })
        .collect()
}

/// Blocks in columns of one width.
fn flow(blocks: Vec<PictureBlock>, width: f64) -> PictureBlock {
    let widest = blocks.iter().map(|block| block.width).fold(0.0, f64::max);
    let step = widest + GAP;
    let columns = (((width + GAP) / step).floor() as usize).max(1);
    // Equal rows: seventeen cells become nine and eight, not sixteen and one.
    let rows = blocks.len().div_ceil(columns).max(1);
    let columns = blocks.len().div_ceil(rows).max(1);
    let mut flowed = PictureBlock::default();
    for (at, block) in blocks.into_iter().enumerate() {
        let y = (at / columns) as f64 * (block.height + GAP);
        flowed.place(block, (at % columns) as f64 * step, y);
    }
    flowed
}

/// Text in lines that fit a width, broken between words.
fn broken(text: &str, width: f64, char_width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if text_width(line, char_width) + text_width(word, char_width) < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn text_width(text: &str, char_width: f64) -> f64 {
    text.chars().count() as f64 * char_width
}
