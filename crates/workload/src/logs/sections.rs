//! Where in a log which tool's output begins.
//!
//! Every tool names its [`Sign`]s: words that its output holds, in the order
//! in which they are printed. One pass finds them all; from one tool's sign to
//! the next tool's reaches a section, and a sign that a run prints once begins
//! the tool's next run.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::text::{Text, without_prefix};
use super::{TOOLS, Tool, iperf, netperf};

/// Words that tell a tool's output.
pub(crate) struct Sign {
    needle: &'static str,
    place: Place,
    weight: u32,
    /// Printed once a run, by which runs are told apart.
    opens: bool,
    /// What else must hold for the line, without what surrounds it.
    check: Option<fn(&str) -> bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The line begins with it.
    Start,
    /// Anywhere in a line.
    Within,
    /// In a JSON document, which begins before.
    Json,
}

/// A sign that no other tool prints.
pub(super) const STRONG: u32 = 10;
/// A sign that others may print too: it counts where nothing else does.
const WEAK: u32 = 1;

/// A line's beginning that this tool alone prints, once a run.
pub(crate) const fn opens(needle: &'static str) -> Sign {
    Sign { needle, place: Place::Start, weight: STRONG, opens: true, check: None }
}

/// A line's beginning that this tool alone prints, any number of times.
pub(crate) const fn part(needle: &'static str) -> Sign {
    Sign { opens: false, ..opens(needle) }
}

/// A line's beginning that others print as well.
pub(crate) const fn hint(needle: &'static str) -> Sign {
    Sign { weight: WEAK, opens: false, ..opens(needle) }
}

/// A word of a JSON document that this tool alone prints, once a document.
pub(crate) const fn json(needle: &'static str) -> Sign {
    Sign { place: Place::Json, ..opens(needle) }
}

/// A word of a JSON document that this tool alone prints, any number of times.
pub(crate) const fn json_part(needle: &'static str) -> Sign {
    Sign { place: Place::Json, ..part(needle) }
}

impl Sign {
    /// The sign may stand anywhere in its line.
    pub(crate) const fn within(self) -> Self {
        Self { place: Place::Within, ..self }
    }

    /// The sign only counts in a line for which `check` is true.
    pub(crate) const fn when(self, check: fn(&str) -> bool) -> Self {
        Self { check: Some(check), ..self }
    }
}

/// A part of a log that one run of a tool wrote.
pub(super) struct Section<'a> {
    pub(super) tool: &'static Tool,
    pub(super) text: Text<'a>,
    /// How sure it is that this tool wrote it.
    pub(super) score: u32,
}

/// Finder of all signs, and whose each pattern is: tool, and place among the
/// tool's signs.
static FINDER: LazyLock<(AhoCorasick, Vec<(usize, usize)>)> = LazyLock::new(|| {
    let owners: Vec<(usize, usize)> = (0..TOOLS.len())
        .flat_map(|tool| (0..TOOLS[tool].signs.len()).map(move |sign| (tool, sign)))
        .collect();
    let needles = owners.iter().map(|(tool, sign)| TOOLS[*tool].signs[*sign].needle);
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        // The fastest of them; its size does not matter here.
        .kind(Some(AhoCorasickKind::DFA))
        .build(needles)
        .expect("the signs are few and short");
    (finder, owners)
});

/// A section while it grows.
struct Open {
    tool: usize,
    start: usize,
    /// The last sign in print order that was seen.
    last_sign: usize,
    last_line_start: usize,
    score: u32,
}

/// The sections of `text`, in its order. Only of the tool at `only`, if it is
/// given; then all of the text belongs to it.
pub(super) fn split<'a>(text: &'a str, only: Option<&Tool>) -> Vec<Section<'a>> {
    let (finder, owners) = &*FINDER;
    let bytes = text.as_bytes();
    let only = only.and_then(|only| TOOLS.iter().position(|tool| tool.name == only.name));
    let mut closed: Vec<Open> = Vec::new();
    let mut open: Option<Open> = only.map(|tool| Open {
        tool,
        start: 0,
        last_sign: 0,
        last_line_start: usize::MAX,
        score: STRONG,
    });
    for hit in finder.find_overlapping_iter(bytes) {
        let (tool, index) = owners[hit.pattern().as_usize()];
        let sign = &TOOLS[tool].signs[index];
        if only.is_some_and(|only| only != tool) {
            continue;
        }
        if let Some(open) = &open {
            let same = open.tool == tool;
            // What was seen before says nothing new, and others' weak signs
            // count nothing inside a section.
            let seen = same && !sign.opens && index <= open.last_sign && open.score >= STRONG;
            let weak = !same && open.score >= STRONG && sign.weight < STRONG;
            if seen || weak {
                continue;
            }
        }
        let line_start = memchr::memrchr(b'\n', &bytes[..hit.start()]).map_or(0, |at| at + 1);
        if !sign.holds(text, line_start, hit.start()) {
            continue;
        }
        let continues = open.as_ref().is_some_and(|open| {
            open.tool == tool
                && (!sign.opens
                    || index > open.last_sign
                    || open.last_line_start == usize::MAX
                    || line_start == open.last_line_start)
        });
        match &mut open {
            Some(open) if continues => {
                open.last_sign = open.last_sign.max(index);
                open.last_line_start = line_start;
                open.score = open.score.saturating_add(sign.weight);
            }
            // On one line, the first strong sign decides.
            Some(open) if open.last_line_start == line_start && open.score >= STRONG => {}
            _ => {
                let start = if sign.place == Place::Json {
                    let floor = open.as_ref().map_or(0, |open| open.start);
                    document_start(text, floor, line_start)
                } else {
                    line_start
                };
                closed.extend(open.take());
                open = Some(Open {
                    tool,
                    start,
                    last_sign: index,
                    last_line_start: line_start,
                    score: sign.weight,
                });
            }
        }
    }
    closed.extend(open);
    if closed.is_empty() {
        return bare(text);
    }
    let mut line = 1;
    let mut counted = 0;
    let ends: Vec<usize> =
        closed.iter().skip(1).map(|next| next.start).chain([text.len()]).collect();
    closed
        .iter()
        .zip(ends)
        .map(|(section, end)| {
            line += memchr::memchr_iter(b'\n', &bytes[counted..section.start]).count();
            counted = section.start;
            Section {
                tool: &TOOLS[section.tool],
                text: Text::at(&text[section.start..end], line),
                score: section.score,
            }
        })
        .collect()
}

/// All of a text in which no sign is, if it is of a shape that only one tool
/// prints.
fn bare(text: &str) -> Vec<Section<'_>> {
    let whole = Text::new(text);
    let name = if iperf::is_bare(whole) {
        iperf::IPERF2.name
    } else if netperf::is_bare(whole) {
        netperf::TOOL.name
    } else {
        return Vec::new();
    };
    let tool = super::tool(name);
    tool.map(|tool| Section { tool, text: whole, score: STRONG }).into_iter().collect()
}

impl Sign {
    fn holds(&self, text: &str, line_start: usize, at: usize) -> bool {
        if self.place == Place::Json && self.check.is_none() {
            return true;
        }
        let end = memchr::memchr(b'\n', &text.as_bytes()[at..]).map_or(text.len(), |n| at + n);
        let line = without_prefix(&text[line_start..end]).trim_start_matches([' ', '\t']);
        let at_start = line.as_ptr() as usize == text.as_ptr() as usize + at;
        (self.place != Place::Start || at_start)
            && self.check.is_none_or(|check| check(line.trim_end()))
    }
}

/// Where the document begins that the line at `line_start` is in: at the last
/// line that begins with a bracket without being indented more than any line
/// between.
fn document_start(text: &str, floor: usize, line_start: usize) -> usize {
    let mut end = line_start;
    // The line itself first: a document of one line.
    let own = text[line_start..].lines().next().unwrap_or_default();
    let body = without_prefix(own);
    let own_indent = body.len() - body.trim_start_matches([' ', '\t']).len();
    if own_indent == 0 && body.starts_with(['{', '[']) {
        return line_start;
    }
    let mut best = line_start;
    let mut least = own_indent;
    while end > floor {
        let start = memchr::memrchr(b'\n', &text.as_bytes()[..end - 1]).map_or(0, |at| at + 1);
        let body = without_prefix(&text[start..end]);
        let trimmed = body.trim_start_matches([' ', '\t']);
        let indent = body.len() - trimmed.len();
        if trimmed.starts_with(['{', '[']) && indent <= least {
            best = start;
            least = indent;
            if indent == 0 {
                break;
            }
        } else if indent < least && !trimmed.trim_end().is_empty() && !trimmed.starts_with('"') {
            break;
        }
        end = start;
    }
    best
}
