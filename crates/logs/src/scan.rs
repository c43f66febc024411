//! Which lines of a log hold a tool's sign: the part of the search that knows
//! nothing of the lines before, so that threads share it.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use rayon::prelude::*;

use super::near::LineEnds;
use super::prefix::body_of;
use super::sign::{SignPosition, Signature};
use super::{TOOLS, near};

/// Parts of a log that are searched at once are about so long: few enough for
/// what is found in them to be kept, and worth a thread.
const PART_BYTES: usize = 1 << 18;

/// The tool that a needle belongs to, and which of its signs it is.
pub(super) type NeedleOwner = (usize, usize);

/// Finder of all signs.
struct SignFinder {
    /// What may stand anywhere, and whose it is.
    within: AhoCorasick,
    within_owners: Vec<NeedleOwner>,
    /// By a line's first two bytes, its place among the `starts`; 0 is none.
    first_two: Vec<u8>,
    starts: Vec<Vec<LinePrefix>>,
}

/// What a line may begin with.
struct LinePrefix {
    /// The needle's first bytes, and which bits of eight they are: most lines
    /// that share two bytes with it have others behind.
    head: u64,
    mask: u64,
    needle: &'static [u8],
    owner: NeedleOwner,
}

impl LinePrefix {
    fn of(owner: NeedleOwner) -> Self {
        let needle = sign(owner).needle.as_bytes();
        let bits = 8 * needle.len().min(8) as u32;
        let mask = u64::MAX.checked_shl(bits).map_or(u64::MAX, |above| !above);
        Self { head: first_eight(needle), mask, needle, owner }
    }
}

/// The first eight bytes as a number, with zeros where there are none.
fn first_eight(text: &[u8]) -> u64 {
    near::word_of(&text[..text.len().min(8)])
}

static FINDER: LazyLock<SignFinder> = LazyLock::new(|| {
    let owners = (0..TOOLS.len())
        .flat_map(|tool| (0..TOOLS[tool].signs.len()).map(move |sign| (tool, sign)));
    let (at_start, within_owners): (Vec<NeedleOwner>, Vec<NeedleOwner>) =
        owners.partition(|owner| sign(*owner).place == SignPosition::Start);
    let within = AhoCorasick::builder()
        // No sign begins another one, so this finds all that begin somewhere.
        .match_kind(MatchKind::LeftmostFirst)
        .build(within_owners.iter().map(|owner| sign(*owner).needle))
        .expect("the signs are few and short");
    let mut first_two = vec![0; 1 << 16];
    let mut starts = vec![Vec::new()];
    for owner in at_start {
        let two = first_eight(sign(owner).needle.as_bytes()) as u16;
        let slot = &mut first_two[usize::from(two)];
        if *slot == 0 {
            *slot = u8::try_from(starts.len()).expect("the signs are few");
            starts.push(Vec::new());
        }
        starts[usize::from(*slot)].push(LinePrefix::of(owner));
    }
    SignFinder { within, within_owners, first_two, starts }
});

pub(super) fn sign((tool, sign): NeedleOwner) -> &'static Signature {
    &TOOLS[tool].signs[sign]
}

/// A sign in a line.
#[derive(Clone, Copy)]
pub(super) struct Hit {
    pub(super) owner: NeedleOwner,
    /// Where its needle ends.
    end: usize,
    /// Where the line begins, and its number in its part, from 1.
    pub(super) line_start: usize,
    pub(super) line: usize,
    /// Where it begins without what surrounds it, and where it ends.
    body_start: usize,
    line_end: usize,
}

impl Hit {
    /// Its line of `text`, without what surrounds it.
    pub(super) fn line_of<'a>(&self, text: &'a str) -> &'a str {
        text[self.body_start..self.line_end].trim_end()
    }
}

impl SignFinder {
    /// The signs with which the line begins of which `text` holds the bytes `line`.
    #[inline]
    fn at_start<'a>(
        &'a self,
        text: &'a [u8],
        line: Range<usize>,
    ) -> impl Iterator<Item = NeedleOwner> + 'a {
        // What is behind the line is there to be read, and sooner than byte by byte.
        let head = match text[line.start..].first_chunk() {
            Some(eight) if line.len() < 8 => {
                u64::from_le_bytes(*eight) & ((1 << (8 * line.len())) - 1)
            }
            Some(eight) => u64::from_le_bytes(*eight),
            None => first_eight(&text[line.clone()]),
        };
        let line = &text[line];
        let starts = &self.starts[usize::from(self.first_two[usize::from(head as u16)])];
        let found = starts.iter().filter(move |start| {
            (head ^ start.head) & start.mask == 0
                && (start.needle.len() <= 8 || line.starts_with(start.needle))
        });
        found.map(|start| start.owner)
    }

    /// The first sign that may stand anywhere and begins in `span`: where, and
    /// which.
    fn within(&self, text: &str, span: Range<usize>) -> Option<(usize, NeedleOwner)> {
        let found = self.within.find(Input::new(text).span(span))?;
        Some((found.start(), self.within_owners[found.pattern().as_usize()]))
    }
}

/// What was found in a part of a log.
pub(super) struct ScanResult {
    /// Line by line, in the order in which they end.
    pub(super) hits: Vec<Hit>,
    pub(super) lines: usize,
}

/// The signs in the next parts of `text`, one for each thread, and where the
/// parts end.
pub(super) fn scan(text: &str, from: usize) -> (Vec<ScanResult>, usize) {
    let mut parts = Vec::new();
    let mut start = from;
    // To ask for the number of threads begins them: a short log needs none.
    while start < text.len() && (parts.is_empty() || parts.len() < rayon::current_num_threads()) {
        let least = text.len().min(start + PART_BYTES);
        let end = memchr::memchr(b'\n', &text.as_bytes()[least..]);
        let end = end.map_or(text.len(), |at| least + at + 1);
        parts.push(start..end);
        start = end;
    }
    let scanned = match &parts[..] {
        [part] => vec![scan_part(text, part.clone())],
        _ => parts.into_par_iter().map(|part| scan_part(text, part)).collect(),
    };
    (scanned, start)
}

fn scan_part(text: &str, part: Range<usize>) -> ScanResult {
    let (finder, bytes, end) = (&*FINDER, text.as_bytes(), part.end);
    let mut scanned = ScanResult { hits: Vec::new(), lines: 0 };
    let mut next_within = finder.within(text, part.clone());
    let part_start = part.start;
    let mut line_start = part_start;
    let mut line_ends = LineEnds::new(&bytes[part]);
    while line_start < end {
        let line_end = line_ends.next().map_or(end, |at| part_start + at);
        scanned.lines += 1;
        let first = scanned.hits.len();
        let line = scanned.lines;
        // What surrounds a line stands before it.
        let body_start = line_end - bare_line(&text[line_start..line_end]).len();
        let hit = |owner: NeedleOwner, at| {
            let end = at + sign(owner).needle.len();
            Hit { owner, end, line_start, line, body_start, line_end }
        };
        let signs = finder.at_start(bytes, body_start..line_end);
        scanned.hits.extend(signs.map(|owner| hit(owner, body_start)));
        while let Some((at, owner)) = next_within.filter(|(at, _)| *at < line_end) {
            // What a line says twice is no more sure.
            if !scanned.hits[first..].iter().any(|hit| hit.owner == owner) {
                scanned.hits.push(hit(owner, at));
            }
            next_within = finder.within(text, at + 1..end);
        }
        // Most lines have one.
        if scanned.hits.len() > first + 1 {
            scanned.hits[first..]
                .sort_unstable_by_key(|hit| (hit.end, Reverse(sign(hit.owner).needle.len())));
        }
        line_start = line_end + 1;
    }
    scanned
}

/// A line without what surrounds it.
pub(super) fn bare_line(line: &str) -> &str {
    body_of(line).0
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
