//! Where in a log which tool's output begins.
//!
//! Every tool names its [`Sign`]s: words that its output holds, in the order
//! in which they are printed. One pass finds them all; from one tool's sign to
//! the next tool's reaches a section, and a sign that a run prints once begins
//! the tool's next run.

use std::cmp::Reverse;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::text::{Text, without_indent, without_prefix};
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

/// Whose a needle is: tool, and place among the tool's signs.
type Owner = (usize, usize);

/// Finder of all signs.
struct Finder {
    /// What may stand anywhere, and whose it is.
    within: AhoCorasick,
    within_owners: Vec<Owner>,
    /// By a line's first two bytes, its place among the `starts`; 0 is none.
    first_two: Vec<u8>,
    starts: Vec<Vec<Owner>>,
}

static FINDER: LazyLock<Finder> = LazyLock::new(|| {
    let owners = (0..TOOLS.len())
        .flat_map(|tool| (0..TOOLS[tool].signs.len()).map(move |sign| (tool, sign)));
    let (at_start, within_owners): (Vec<Owner>, Vec<Owner>) =
        owners.partition(|owner| sign(*owner).place == Place::Start);
    let within = AhoCorasick::builder()
        // No sign begins another one, so this finds all that begin somewhere.
        .match_kind(MatchKind::LeftmostFirst)
        .build(within_owners.iter().map(|owner| sign(*owner).needle))
        .expect("the signs are few and short");
    let mut first_two = vec![0; 1 << 16];
    let mut starts = vec![Vec::new()];
    for owner in at_start {
        let slot = &mut first_two[two_bytes(sign(owner).needle.as_bytes())];
        if *slot == 0 {
            *slot = u8::try_from(starts.len()).expect("the signs are few");
            starts.push(Vec::new());
        }
        starts[usize::from(*slot)].push(owner);
    }
    Finder { within, within_owners, first_two, starts }
});

fn sign((tool, sign): Owner) -> &'static Sign {
    &TOOLS[tool].signs[sign]
}

fn two_bytes(text: &[u8]) -> usize {
    text.first_chunk().map_or(0, |two| usize::from(u16::from_le_bytes(*two)))
}

/// A sign in a line.
#[derive(Clone, Copy)]
struct Hit {
    owner: Owner,
    /// Where its needle ends.
    end: usize,
}

impl Finder {
    /// The signs with which a line begins.
    fn at_start(&self, line: &str, at: usize, hits: &mut Vec<Hit>) {
        let slot = self.first_two[two_bytes(line.as_bytes())];
        for owner in &self.starts[usize::from(slot)] {
            let needle = sign(*owner).needle;
            if line.starts_with(needle) {
                hits.push(Hit { owner: *owner, end: at + needle.len() });
            }
        }
    }

    /// The first sign that may stand anywhere and begins at `from` or behind:
    /// where, and which.
    fn within(&self, text: &str, from: usize) -> Option<(usize, Owner)> {
        let found = self.within.find(Input::new(text).span(from..text.len()))?;
        Some((found.start(), self.within_owners[found.pattern().as_usize()]))
    }
}

/// A section while it grows.
struct Open {
    tool: usize,
    start: usize,
    start_line: usize,
    /// The last sign in print order that was seen.
    last_sign: usize,
    last_line_start: usize,
    score: u32,
}

impl Open {
    fn closed(self, text: &str, end: usize) -> Section<'_> {
        Section {
            tool: &TOOLS[self.tool],
            text: Text::at(&text[self.start..end], self.start_line),
            score: self.score,
        }
    }
}

/// The sections of a text, in its order.
pub(super) struct Sections<'a> {
    text: &'a str,
    /// The only tool looked for; then all of the text belongs to it.
    only: Option<usize>,
    open: Option<Open>,
    /// Whether there was any sign.
    found: bool,
    next_within: Option<(usize, Owner)>,
    hits: Vec<Hit>,
    /// Documents are searched backwards for their begin: altogether not more
    /// often than a few times all of the text. So many bytes are left.
    backwards: usize,
    line_start: usize,
    line_number: usize,
}

impl<'a> Sections<'a> {
    /// Those of `text`, or the one of the tool `only`.
    pub(super) fn new(text: &'a str, only: Option<&Tool>) -> Self {
        let only = only.and_then(|only| TOOLS.iter().position(|tool| tool.name == only.name));
        let open = only.map(|tool| Open {
            tool,
            start: 0,
            start_line: 1,
            last_sign: 0,
            last_line_start: usize::MAX,
            score: STRONG,
        });
        Self {
            text,
            only,
            found: open.is_some(),
            open,
            next_within: FINDER.within(text, 0),
            hits: Vec::new(),
            backwards: 4 * text.len(),
            line_start: 0,
            line_number: 0,
        }
    }

    /// The next ones, which altogether have at least so many bytes, or all that
    /// are left: none at the end.
    pub(super) fn next_batch(&mut self, bytes: usize) -> Vec<Section<'a>> {
        let mut batch = Batch { sections: Vec::new(), bytes: 0 };
        let finder = &*FINDER;
        while self.line_start < self.text.len() {
            if batch.bytes >= bytes {
                return batch.sections;
            }
            self.read_line(finder, &mut batch);
        }
        if let Some(open) = self.open.take() {
            batch.push(open.closed(self.text, self.text.len()));
        }
        if !std::mem::replace(&mut self.found, true) {
            batch.sections.extend(bare(self.text));
        }
        batch.sections
    }

    /// Looks for signs in the next line, each of which can end a section.
    fn read_line(&mut self, finder: &Finder, batch: &mut Batch<'a>) {
        let (text, bytes, line_start) = (self.text, self.text.as_bytes(), self.line_start);
        let line_end =
            memchr::memchr(b'\n', &bytes[line_start..]).map_or(bytes.len(), |at| line_start + at);
        self.line_start = line_end + 1;
        self.line_number += 1;
        let line = without_indent(without_prefix(&text[line_start..line_end]));
        let line_at = line.as_ptr().addr() - text.as_ptr().addr();
        self.hits.clear();
        finder.at_start(line, line_at, &mut self.hits);
        while let Some((at, owner)) = self.next_within.filter(|(at, _)| *at < line_end) {
            // What a line says twice is no more sure.
            if !self.hits.iter().any(|hit| hit.owner == owner) {
                self.hits.push(Hit { owner, end: at + sign(owner).needle.len() });
            }
            self.next_within = finder.within(text, at + 1);
        }
        self.hits.sort_unstable_by_key(|hit| (hit.end, Reverse(sign(hit.owner).needle.len())));
        for Hit { owner: (tool, index), .. } in self.hits.iter().copied() {
            let sign = &TOOLS[tool].signs[index];
            if self.only.is_some_and(|only| only != tool) {
                continue;
            }
            if let Some(open) = &self.open {
                let same = open.tool == tool;
                // What was seen before says nothing new, and others' weak signs
                // count nothing inside a section.
                let seen = same && !sign.opens && index <= open.last_sign && open.score >= STRONG;
                let weak = !same && open.score >= STRONG && sign.weight < STRONG;
                if seen || weak {
                    continue;
                }
            }
            if !sign.check.is_none_or(|check| check(line.trim_end())) {
                continue;
            }
            self.found = true;
            let continues = self.open.as_ref().is_some_and(|open| {
                open.tool == tool
                    && (!sign.opens
                        || index > open.last_sign
                        || open.last_line_start == usize::MAX
                        || line_start == open.last_line_start)
            });
            match &mut self.open {
                Some(open) if continues => {
                    open.last_sign = open.last_sign.max(index);
                    open.last_line_start = line_start;
                    open.score = open.score.saturating_add(sign.weight);
                }
                // On one line, the first strong sign decides.
                Some(open) if open.last_line_start == line_start && open.score >= STRONG => {}
                _ => {
                    let start = if sign.place == Place::Json {
                        let floor = self.open.as_ref().map_or(0, |open| open.start);
                        document_start(text, floor, line_start, &mut self.backwards)
                    } else {
                        line_start
                    };
                    let above = memchr::memchr_iter(b'\n', &bytes[start..line_start]).count();
                    if let Some(open) = self.open.take() {
                        batch.push(open.closed(text, start));
                    }
                    self.open = Some(Open {
                        tool,
                        start,
                        start_line: self.line_number - above,
                        last_sign: index,
                        last_line_start: line_start,
                        score: sign.weight,
                    });
                }
            }
        }
    }
}

/// Sections that are read at once.
struct Batch<'a> {
    sections: Vec<Section<'a>>,
    /// How long they are.
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn push(&mut self, section: Section<'a>) {
        self.bytes += section.text.raw().len();
        self.sections.push(section);
    }
}

/// All of a text in which no sign is, if it is of a shape that only one tool
/// prints.
fn bare(text: &str) -> Option<Section<'_>> {
    let whole = Text::new(text);
    let name = if iperf::is_bare(whole) {
        iperf::IPERF2.name
    } else if netperf::is_bare(whole) {
        netperf::TOOL.name
    } else {
        return None;
    };
    super::tool(name).map(|tool| Section { tool, text: whole, score: STRONG })
}

/// Where the document begins that the line at `line_start` is in: at the last
/// line that begins with a bracket without being indented more than any line
/// between. `budget` is how many bytes may still be gone through.
fn document_start(text: &str, floor: usize, line_start: usize, budget: &mut usize) -> usize {
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
    while end > floor && *budget > 0 {
        let start = memchr::memrchr(b'\n', &text.as_bytes()[..end - 1]).map_or(0, |at| at + 1);
        *budget = budget.saturating_sub(end - start);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sign_begins_another_that_may_stand_anywhere() {
        let owners = &FINDER.within_owners;
        for one in owners {
            for other in owners.iter().filter(|other| *other != one) {
                assert!(!sign(*one).needle.starts_with(sign(*other).needle));
            }
        }
    }

    #[test]
    fn signs_within_lines_are_few_enough_for_simd() {
        // Source: aho-corasick's `packed` module.
        assert!(FINDER.within_owners.len() <= 64, "{}", FINDER.within_owners.len());
    }

    #[test]
    fn signs_have_two_bytes() {
        assert!(TOOLS.iter().flat_map(|tool| tool.signs).all(|sign| sign.needle.len() >= 2));
    }
}
