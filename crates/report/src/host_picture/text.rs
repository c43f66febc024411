//! The terminal's drawing: boxes in boxes.

use std::borrow::Cow;

use textwrap::{Options, WordSplitter};
use topology::{Host, PcpuGroup, PcpuSet, TopologyLevel};

use super::facts::facts;
use super::words::{counted, headline, is_small, isolated, nodes_without_pcpus, summary, title};

/// Narrower terminals get this width: five nested boxes need it.
const MIN_WIDTH: usize = 40;
/// A taller drawing names pCPUs by ranges instead of one cell a core.
const MAX_CELL_LINES: usize = 36;
/// Boxes beside each other; more is never lower and takes long to try.
const MAX_COLUMNS: usize = 8;
/// Narrower boxes would break ranges apart.
const MIN_RANGES_WIDTH: usize = 30;
/// Both sides of a box and the space inside them.
const BOX_SIDES: usize = 4;

/// Draws a host for a terminal `width` characters wide (at least 40): a
/// headline, the boxes, then memory, KVM, policies and warnings line by line.
pub fn text(host: &Host, width: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let mut lines = wrap(&headline(host), width, 2);
    lines.extend(wrap(&summary(host), width, 2));
    lines.push(String::new());
    let drawing = drawing(host, width);
    if !drawing.is_empty() {
        lines.extend(drawing);
        lines.push(String::new());
    }
    for fact in facts(host) {
        for (at, line) in fact.lines.iter().enumerate() {
            let name = if at == 0 { fact.name } else { "" };
            lines.extend(wrap(&format!("{name:<9}  {line}"), width, 13));
        }
    }
    if !host.warnings.is_empty() {
        lines.push(String::new());
        for warning in &host.warnings {
            lines.extend(wrap(&format!("Warning: {warning}"), width, 9));
        }
    }
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn drawing(host: &Host, width: usize) -> Vec<String> {
    let sockets = host.nesting();
    let cells = Drawer { host, by_ranges: false };
    let drawn = cells.body(&sockets, width).filter(|lines| {
        lines.len() <= MAX_CELL_LINES && lines.iter().all(|line| len(line) <= width)
    });
    let by_ranges = drawn.is_none();
    let mut lines = drawn.unwrap_or_else(|| {
        let ranges = Drawer { host, by_ranges: true };
        ranges.body(&sockets, width).unwrap_or_default()
    });
    for node in nodes_without_pcpus(host) {
        lines.extend(wrap(&node, width, 2));
    }
    let offline = host.offline();
    if !offline.is_empty() {
        lines.extend(wrap(&format!("offline: {}", breakable(&offline)), width, 9));
    }
    if !by_ranges {
        lines.extend(wrap(&legend(host, &sockets), width, 0));
    }
    lines
}

/// Explains the marks that occur.
fn legend(host: &Host, sockets: &[PcpuGroup]) -> String {
    let cores: Vec<&PcpuGroup> = sockets.iter().flat_map(PcpuGroup::cores).collect();
    let mut parts = Vec::new();
    if cores.iter().any(|core| !is_small(host, core)) {
        parts.push("[ ] core");
    }
    if cores.iter().any(|core| is_small(host, core)) {
        parts.push("( ) efficiency core");
    }
    if !isolated(host, &host.online()).is_empty() {
        parts.push("* isolated");
    }
    // Brackets around numbers explain themselves.
    if parts.len() < 2 { String::new() } else { parts.join("   ") }
}

struct Drawer<'a> {
    host: &'a Host,
    /// Name a group's pCPUs by ranges instead of one cell a core.
    by_ranges: bool,
}

impl Drawer<'_> {
    /// The inside of a box at most `width` wide; `None` if that is too narrow.
    fn body(&self, children: &[PcpuGroup], width: usize) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        for run in children.chunk_by(|a, b| self.is_line(a) == self.is_line(b)) {
            if !self.is_line(&run[0]) {
                lines.extend(self.boxes(run, width)?);
            } else if !self.by_ranges {
                lines.extend(flow(&self.cells(run), width)?);
            } else if run[0].level == TopologyLevel::Core {
                lines.extend(self.ranges(run, width));
            } else {
                let items: Vec<String> = run.iter().map(|group| self.one_line(group)).collect();
                let wrapped = || items.iter().flat_map(|item| wrap(item, width, 2)).collect();
                lines.extend(flow(&items, width).unwrap_or_else(wrapped));
            }
        }
        Some(lines)
    }

    /// Whether a group is drawn as text instead of a box.
    fn is_line(&self, group: &PcpuGroup) -> bool {
        let of_cores = group.children.iter().all(|child| child.level == TopologyLevel::Core);
        match group.level {
            TopologyLevel::Core => true,
            TopologyLevel::Die | TopologyLevel::Cache(_) | TopologyLevel::Cluster => {
                self.by_ranges && of_cores
            }
            TopologyLevel::Socket | TopologyLevel::Node => false,
        }
    }

    /// The groups as boxes, as many beside each other as makes them lowest.
    fn boxes(&self, groups: &[PcpuGroup], width: usize) -> Option<Vec<String>> {
        let mut best: Option<Vec<String>> = None;
        for columns in 1..=groups.len().min(MAX_COLUMNS) {
            let Some(drawn) = self.grid(groups, width, columns) else {
                break;
            };
            if best.as_ref().is_none_or(|best| drawn.len() < best.len()) {
                best = Some(drawn);
            }
        }
        best
    }

    fn grid(&self, groups: &[PcpuGroup], width: usize, columns: usize) -> Option<Vec<String>> {
        let each = (width + 1) / columns - 1;
        let inner = each.checked_sub(BOX_SIDES)?;
        if columns > 1 && self.by_ranges && inner < MIN_RANGES_WIDTH {
            return None;
        }
        let mut boxes = Vec::new();
        for group in groups {
            let title = title(self.host, group);
            // One more for the rule behind the title.
            if columns > 1 && len(&title) >= inner {
                return None;
            }
            let title = shorten(&title, inner.saturating_sub(1));
            boxes.push((title, self.body(&group.children, inner)?));
        }
        let inner = boxes
            .iter()
            .flat_map(|(title, body)| body.iter().map(|line| len(line)).chain([len(title) + 1]))
            .max()?;
        let mut lines = Vec::new();
        for row in boxes.chunks(columns) {
            let height = row.iter().map(|(_, body)| body.len()).max()?;
            let framed: Vec<Vec<String>> =
                row.iter().map(|(title, body)| frame(title, body, inner, height)).collect();
            for at in 0..height + 2 {
                let line: Vec<&str> = framed.iter().map(|lines| lines[at].as_str()).collect();
                lines.push(line.join(" "));
            }
        }
        Some(lines)
    }

    /// One cell a core with its threads, all of one width: `[ 0 16]`.
    fn cells(&self, cores: &[PcpuGroup]) -> Vec<String> {
        let marked: Vec<Vec<String>> = cores.iter().map(|core| self.threads(core)).collect();
        let widest = marked.iter().flatten().map(|thread| len(thread)).max().unwrap_or(0);
        cores
            .iter()
            .zip(marked)
            .map(|(core, threads)| {
                let threads: Vec<String> =
                    threads.iter().map(|thread| format!("{thread:>widest$}")).collect();
                let threads = threads.join(" ");
                if is_small(self.host, core) {
                    format!("({threads})")
                } else {
                    format!("[{threads}]")
                }
            })
            .collect()
    }

    /// A core's threads; more than two in a row are a range.
    fn threads(&self, core: &PcpuGroup) -> Vec<String> {
        let isolated = isolated(self.host, &core.pcpus);
        let mark = |pcpu: u32| if isolated.contains(pcpu) { "*" } else { "" };
        let alike = isolated.is_empty() || isolated == core.pcpus;
        match core.pcpus.ranges().as_slice() {
            [(first, last)] if alike && last - first > 1 => {
                vec![format!("{first}-{last}{}", mark(*first))]
            }
            _ => core.pcpus.iter().map(|pcpu| format!("{pcpu}{}", mark(pcpu))).collect(),
        }
    }

    /// A group in one line: `L3 32 MiB: 0-7, 128-135`.
    fn one_line(&self, group: &PcpuGroup) -> String {
        let marks = self.marks(&group.children);
        let marks = match marks.as_slice() {
            [] => String::new(),
            marks => format!(" ({})", marks.join(", ")),
        };
        format!("{}: {}{marks}", title(self.host, group), breakable(&group.pcpus))
    }

    /// `0-7, 128-135 (8 cores of 2 threads)`, marks in words.
    fn ranges(&self, cores: &[PcpuGroup], width: usize) -> Vec<String> {
        let pcpus: PcpuSet = cores.iter().flat_map(|core| core.pcpus.iter()).collect();
        let threads = cores.iter().map(|core| core.pcpus.len()).max().unwrap_or(0);
        let threads = if threads > 1 { format!(" of {threads} threads") } else { String::new() };
        let mut notes = vec![format!("{}{threads}", counted(cores.len(), "core"))];
        notes.extend(self.marks(cores));
        wrap(&format!("{} ({})", breakable(&pcpus), notes.join(", ")), width, 2)
    }

    /// What cells would show by brackets and stars.
    fn marks(&self, cores: &[PcpuGroup]) -> Vec<String> {
        let pcpus_of = |holds: &dyn Fn(&PcpuGroup) -> bool| -> PcpuSet {
            let cores = cores.iter().filter(|core| holds(core));
            cores.flat_map(|core| core.pcpus.iter()).collect()
        };
        let pcpus = pcpus_of(&|_| true);
        let marked = [
            ("efficiency", pcpus_of(&|core| is_small(self.host, core))),
            ("isolated", isolated(self.host, &pcpus)),
        ];
        marked
            .into_iter()
            .filter(|(_, marked)| !marked.is_empty())
            .map(|(name, marked)| {
                if marked == pcpus {
                    name.to_owned()
                } else {
                    format!("{name} {}", breakable(&marked))
                }
            })
            .collect()
    }
}

/// A box with its title in the upper side.
fn frame(title: &str, body: &[String], inner: usize, height: usize) -> Vec<String> {
    let rule = "─".repeat(inner.saturating_sub(len(title) + 1));
    let mut lines = vec![format!("┌─ {title} {rule}┐")];
    for at in 0..height {
        let line = body.get(at).map_or("", String::as_str);
        let pad = " ".repeat(inner - len(line));
        lines.push(format!("│ {line}{pad} │"));
    }
    lines.push(format!("└{}┘", "─".repeat(inner + 2)));
    lines
}

/// Items in columns of one width; `None` if one is wider than the space.
fn flow(items: &[String], width: usize) -> Option<Vec<String>> {
    let widest = items.iter().map(|item| len(item)).max().unwrap_or(0);
    if widest > width {
        return None;
    }
    let columns = ((width + 1) / (widest + 1)).max(1);
    // Equal rows: seventeen cells become nine and eight, not sixteen and one.
    let rows = items.len().div_ceil(columns);
    let columns = items.len().div_ceil(rows.max(1)).max(1);
    let lines = items.chunks(columns).map(|row| {
        let cells: Vec<String> = row.iter().map(|item| format!("{item:<widest$}")).collect();
        cells.join(" ").trim_end().to_owned()
    });
    Some(lines.collect())
}

/// A list that may be broken after its commas.
fn breakable(pcpus: &PcpuSet) -> String {
    pcpus.to_string().replace(',', ", ")
}

/// Breaks text between words; the lines after the first are indented. A word
/// longer than a line is cut, so that nothing is ever wider.
fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let indent = " ".repeat(indent);
    let options =
        Options::new(width).subsequent_indent(&indent).word_splitter(WordSplitter::NoHyphenation);
    let mut lines: Vec<String> =
        textwrap::wrap(text, options).into_iter().map(Cow::into_owned).collect();
    lines.retain(|line| !line.trim().is_empty());
    lines
}

fn shorten(text: &str, width: usize) -> String {
    if len(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn len(text: &str) -> usize {
    text.chars().count()
}
