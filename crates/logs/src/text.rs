//! Lines of a log, freed of what surrounds them.
//!
//! A log reaches us through terminals, mail, Markdown, syslog and pagers. What
//! they add is taken off here, line by line and without copies, so that a
//! tool's reader sees what the tool printed, with the line's number.

use std::borrow::Cow;

use super::margin::{self, Margin};
use super::near::LineEnds;
use super::prefix::{BYTE_ORDER_MARK, body_of, without_prefix};
use super::{ShortList, near, number};

/// A stretch of a log: the output of one run of one tool, and whatever stands
/// behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogText<'a> {
    text: &'a str,
    first_line: usize,
}

impl<'a> LogText<'a> {
    /// All of a log.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, first_line: 1 }
    }

    /// A stretch whose first line has a number.
    pub(crate) fn at(text: &'a str, first_line: usize) -> Self {
        Self { text, first_line }
    }

    /// The lines as they stand, without what surrounds them.
    pub(crate) fn lines(self) -> TextLines<'a> {
        TextLines {
            text: self.text,
            at: 0,
            ends: LineEnds::new(self.text.as_bytes()),
            number: self.first_line,
        }
    }

    /// The bytes as they stand.
    pub(crate) fn raw(self) -> &'a str {
        self.text
    }

    /// The number of the first line.
    pub(crate) fn first_line(self) -> usize {
        self.first_line
    }
}

/// The lines of a [`LogText`]; a copy looks ahead.
#[derive(Debug, Clone)]
pub(crate) struct TextLines<'a> {
    text: &'a str,
    /// Where the next line begins.
    at: usize,
    ends: LineEnds<'a>,
    number: usize,
}

impl<'a> Iterator for TextLines<'a> {
    type Item = TextLine<'a>;

    fn next(&mut self) -> Option<TextLine<'a>> {
        if self.at >= self.text.len() {
            return None;
        }
        let end = self.ends.next();
        let raw = &self.text[self.at..end.unwrap_or(self.text.len())];
        let line = TextLine::new(raw, self.number, end.is_some());
        self.at += raw.len() + 1;
        self.number += 1;
        Some(line)
    }
}

/// One line, or a part of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextLine<'a> {
    /// What the tool printed, without spaces at both ends.
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) number: usize,
    /// Columns of space before the text.
    pub(crate) indent: usize,
    /// Whether a newline follows. Without one the text may have been cut off.
    terminated: bool,
}

impl<'a> TextLine<'a> {
    fn new(raw: &'a str, number: usize, terminated: bool) -> Self {
        let (text, indent) = body_of(raw);
        // `trim` would take more than spaces and tabs from the front.
        let text = if is_plain(text.as_bytes().last()) { text } else { text.trim_end() };
        let text = if text.ends_with('>') { without_break(text) } else { text };
        Self { text, number, indent, terminated }
    }

    /// A line that holds only `text`, which is a part of this one.
    pub(crate) fn part(&self, text: &'a str) -> Self {
        let text = trim(text);
        Self { text, terminated: self.terminated || !self.ends_with_it(text), ..*self }
    }

    /// What stands behind `prefix`, if the line begins with it.
    pub(crate) fn after(&self, prefix: &str) -> Option<Self> {
        self.text.strip_prefix(prefix).map(|rest| self.part(rest))
    }

    /// What stands behind the first `mark`, wherever it is.
    pub(crate) fn behind(&self, mark: &str) -> Option<Self> {
        self.text.cut(mark).map(|(_, rest)| self.part(rest))
    }

    /// The two sides of the first `mark`.
    pub(crate) fn split(&self, mark: &str) -> Option<(&'a str, Self)> {
        self.text.cut(mark).map(|(left, right)| (trim(left), self.part(right)))
    }

    /// The words. Spaces of other scripts are part of a word: some locales
    /// group digits with them.
    pub(crate) fn words(&self) -> AsciiWords<'a> {
        AsciiWords::new(self.text)
    }

    /// All of the words.
    pub(crate) fn all_words(&self) -> ShortList<&'a str> {
        all_words(self.text)
    }

    /// The word with an index.
    pub(crate) fn word(&self, index: usize) -> Option<&'a str> {
        self.words().nth(index)
    }

    /// The number that `word`, a part of this line, says: all of it, or none
    /// if it may be cut off.
    pub(crate) fn number(&self, word: &str) -> Option<f64> {
        if self.may_be_cut(word) { None } else { number::parse(word) }
    }

    /// As [`TextLine::number`], of a number that always has so many decimals: it is
    /// whole if it has them all, newline or not.
    pub(crate) fn decimals(&self, word: &str, decimals: usize) -> Option<f64> {
        let all = || {
            let found = word.rsplit_once(['.', ',']).map_or(0, |(_, fraction)| fraction.len());
            decimals > 0 && found == decimals
        };
        if self.may_be_cut(word) && !all() { None } else { number::parse(word) }
    }

    /// The first word's number.
    pub(crate) fn first_number(&self) -> Option<f64> {
        self.number(self.word(0)?)
    }

    /// Whether a log that was cut off may have lost the end of `word`.
    pub(crate) fn may_be_cut(&self, word: &str) -> bool {
        !self.terminated && self.ends_with_it(word)
    }

    /// Whether the line may have lost its end.
    pub(crate) fn is_open(&self) -> bool {
        !self.terminated
    }

    fn ends_with_it(&self, part: &str) -> bool {
        part.as_bytes().as_ptr_range().end >= self.text.as_bytes().as_ptr_range().end
    }
}

/// The words of a text, between ASCII's spaces.
#[derive(Debug, Clone)]
pub(crate) struct AsciiWords<'a> {
    text: &'a str,
    /// Where the search goes on.
    at: usize,
    /// Where the window begins, and which of its bytes are spaces.
    window: usize,
    spaces: u64,
}

impl<'a> AsciiWords<'a> {
    #[inline]
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, window: 0, spaces: near::spaces(text.as_bytes()) }
    }

    /// Where the next byte is that is a space, or is none; the text's length or more if
    /// there is none.
    #[inline]
    fn next_that(&mut self, is_space: bool) -> usize {
        let bytes = self.text.as_bytes();
        loop {
            let wanted = if is_space { self.spaces } else { !self.spaces };
            let ahead = wanted >> (self.at - self.window);
            if ahead != 0 {
                return self.at + ahead.trailing_zeros() as usize;
            }
            self.window += near::WINDOW;
            self.at = self.window;
            let Some(rest) = bytes.get(self.window..).filter(|rest| !rest.is_empty()) else {
                // It was no word that ended in the window before.
                self.spaces = u64::MAX;
                return bytes.len();
            };
            self.spaces = near::spaces(rest);
        }
    }
}

impl<'a> Iterator for AsciiWords<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        if self.at >= self.text.len() {
            return None;
        }
        let start = self.next_that(false);
        if start >= self.text.len() {
            self.at = start;
            return None;
        }
        self.at = start;
        let end = self.next_that(true).min(self.text.len());
        self.at = end;
        Some(&self.text[start..end])
    }
}

/// As all of [`AsciiWords`], sooner than one after the other.
fn all_words(text: &str) -> ShortList<&str> {
    let mut words = ShortList::new();
    let (mut in_word, mut start, mut window) = (false, 0, 0);
    while let Some(rest) = text.as_bytes().get(window..).filter(|rest| !rest.is_empty()) {
        let spaces = near::spaces(rest);
        // Where a byte is a space and the one before is none, or the other way round.
        let mut edges = spaces ^ (spaces << 1 | u64::from(!in_word));
        while edges != 0 {
            let at = window + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            if in_word {
                words.push(&text[start..at]);
            }
            start = at;
            in_word = !in_word;
        }
        window += near::WINDOW;
    }
    if in_word {
        words.push(&text[start..]);
    }
    words
}

/// As `str::split`, sooner where the parts are short.
pub(crate) fn fields(text: &str, separator: u8) -> TextFields<'_> {
    debug_assert!(separator.is_ascii(), "a whole character");
    TextFields { rest: Some(text), separator }
}

/// The parts of a text between separators.
#[derive(Debug, Clone)]
pub(crate) struct TextFields<'a> {
    rest: Option<&'a str>,
    separator: u8,
}

impl<'a> Iterator for TextFields<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        match near::find(self.separator, rest.as_bytes()) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => self.rest.take(),
        }
    }
}

/// A line that a page of the web ends.
fn without_break(text: &str) -> &str {
    match text.strip_suffix("<br>").or_else(|| text.strip_suffix("<br />")) {
        Some(text) => text.trim_end(),
        None => text,
    }
}

/// As `str::trim`, sooner where the ends are ASCII.
fn trim(text: &str) -> &str {
    let text = text.trim_ascii();
    let bytes = text.as_bytes();
    if is_plain(bytes.first()) && is_plain(bytes.last()) { text } else { text.trim() }
}

/// Whether a text with this byte at an end has no space there.
fn is_plain(byte: Option<&u8>) -> bool {
    byte.is_some_and(u8::is_ascii_graphic)
}

/// Searches in short texts, which the standard library's two-way search begins
/// slowly.
pub(crate) trait Cut {
    /// Where the first `mark` begins, which is not empty.
    fn place(&self, mark: &str) -> Option<usize>;

    /// Whether a `mark` stands in it.
    fn holds(&self, mark: &str) -> bool {
        self.place(mark).is_some()
    }

    /// What stands before and behind the first `mark`.
    fn cut(&self, mark: &str) -> Option<(&str, &str)>;

    /// As `split_ascii_whitespace`, sooner.
    fn ascii_words(&self) -> AsciiWords<'_>;

    /// All of the words.
    fn all_words(&self) -> ShortList<&str>;
}

impl Cut for str {
    fn place(&self, mark: &str) -> Option<usize> {
        near::place(mark.as_bytes(), self.as_bytes())
    }

    fn cut(&self, mark: &str) -> Option<(&str, &str)> {
        self.place(mark).map(|at| (&self[..at], &self[at + mark.len()..]))
    }

    fn ascii_words(&self) -> AsciiWords<'_> {
        AsciiWords::new(self)
    }

    fn all_words(&self) -> ShortList<&str> {
        all_words(self)
    }
}

/// The log as a terminal would show it: without colours, backspaces, what a
/// carriage return overwrote, and what stands before every line alike. Lines
/// keep their numbers.
pub(super) fn as_shown(text: &str) -> Cow<'_, str> {
    let text = without_byte_order_mark(text);
    if ends_lines_with_returns(text) {
        let body = text.trim_end_matches('\n');
        // A newline behind the last return ends the same line.
        let text = if body.ends_with('\r') { body } else { text };
        return match as_shown(&text.replace('\r', "\n")) {
            Cow::Owned(shown) => Cow::Owned(shown),
            Cow::Borrowed(shown) => Cow::Owned(shown.to_owned()),
        };
    }
    STEPS.into_iter().fold(Cow::Borrowed(text), |shown, step| through(shown, step))
}

/// What a carriage return overwrites does not reach into the margin, and colours may stand
/// before it.
const STEPS: [fn(&str) -> Cow<'_, str>; 4] =
    [margin::without, of_terminal, margin::without, of_table];

/// What a step makes of a text, which is copied only where it changes.
fn through<'a>(shown: Cow<'a, str>, mut step: impl FnMut(&str) -> Cow<'_, str>) -> Cow<'a, str> {
    match shown {
        Cow::Borrowed(text) => step(text),
        Cow::Owned(text) => match step(&text) {
            Cow::Owned(next) => Cow::Owned(next),
            Cow::Borrowed(_) => Cow::Owned(text),
        },
    }
}

/// The log behind the mark that it may begin with.
pub(super) fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// A log that comes bit by bit, as [`as_shown`] makes it of all of it: what stands before
/// its lines, its first ones tell.
pub(super) struct ShownLines {
    /// Before what a terminal would hide, and behind it.
    margins: [Margin; 2],
}

impl ShownLines {
    /// Of a log that begins with the lines `text`.
    pub(super) fn begin(text: &str) -> Self {
        let outer = Margin::of(text);
        let behind = through(outer.clone().take_off(text, false), of_terminal);
        let inner = Margin::of(&behind);
        Self { margins: [outer, inner] }
    }

    /// Its next lines: whole ones, but for the last of all. Lines keep their numbers.
    pub(super) fn next<'a>(&mut self, text: &'a str, is_last: bool) -> Cow<'a, str> {
        let [outer, inner] = &mut self.margins;
        let shown = through(outer.take_off(text, is_last), of_terminal);
        through(through(shown, |text| inner.take_off(text, is_last)), of_table)
    }
}

/// Whether carriage returns end the lines, since nothing else does but for newlines at the
/// end. Among lines that newlines end they overwrite what is before them, such as progress;
/// so they do in a line that was wiped with spaces.
fn ends_lines_with_returns(text: &str) -> bool {
    let text = text.trim_end_matches('\n');
    let wipes = |piece: &str| piece.len() > 1 && piece.bytes().all(|byte| byte == b' ');
    memchr::memchr(b'\n', text.as_bytes()).is_none()
        && overwrites(text.as_bytes())
        && !text.split('\r').any(wipes)
}

/// Whether there is more of a line behind a carriage return.
fn overwrites(bytes: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'\r', &bytes[from..]) {
        let run = bytes[from + at..].iter().take_while(|byte| **byte == b'\r').count();
        from += at + run;
        match bytes.get(from) {
            Some(b'\n') => {}
            Some(_) => return true,
            None => return false,
        }
    }
    false
}

/// A table of Markdown, `| a | b |`, as the words that stand in it.
fn of_table(text: &str) -> Cow<'_, str> {
    let row = |line: &'_ str| -> Option<usize> {
        let body = without_prefix(line);
        let row = body.trim();
        let is_row = row.len() > 1 && row.starts_with('|') && row.ends_with('|');
        is_row.then(|| line.len() - body.len())
    };
    // Bars are rare: most logs have none at the end of a line.
    let bytes = text.as_bytes();
    let ends_line = |bar: usize| {
        let rest = &bytes[bar + 1..];
        rest.is_empty() || [&b"\n"[..], b" \n", b"\r"].iter().any(|end| rest.starts_with(end))
    };
    if !memchr::memchr_iter(b'|', bytes).any(ends_line)
        || !text.lines().any(|line| row(line).is_some())
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (prefix, body) = line.split_at(row(line).unwrap_or(line.len()));
        shown.push_str(prefix);
        for (at, cell) in fields(body, b'|').enumerate() {
            if at > 0 {
                shown.push(' ');
            }
            shown.push_str(cell);
        }
    }
    Cow::Owned(shown)
}

fn of_terminal(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let special = memchr::memchr2(0x1b, 0x08, bytes).is_some() || overwrites(bytes);
    if !special {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let start = shown.len();
        show_line(body.trim_end_matches('\r'), &mut shown, start);
        shown.push_str(end);
    }
    Cow::Owned(shown)
}

fn show_line(body: &str, shown: &mut String, start: usize) {
    let mut rest = body;
    while let Some(at) = memchr::memchr3(b'\r', 0x08, 0x1b, rest.as_bytes()) {
        push_seen(&rest[..at], shown);
        let special = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match special {
            b'\r' => shown.truncate(start),
            0x1b => rest = behind_escape(rest),
            _ => {
                if shown.len() > start {
                    shown.pop();
                }
            }
        }
    }
    push_seen(rest, shown);
}

/// Adds what is seen of `text`: a bell is heard.
fn push_seen(text: &str, shown: &mut String) {
    match memchr::memchr(0x07, text.as_bytes()) {
        None => shown.push_str(text),
        Some(_) => shown.extend(text.split('\u{7}')),
    }
}

/// What stands behind a control sequence (ECMA-48: `ESC [ ... letter`), an
/// operating system command (`ESC ] ... BEL`), or a two-character escape, whose
/// `ESC` is taken already.
fn behind_escape(text: &str) -> &str {
    let mut chars = text.chars();
    match chars.next() {
        Some('[') => while chars.next().is_some_and(|char| !('@'..='~').contains(&char)) {},
        Some(']') => while chars.next().is_some_and(|char| char != '\u{7}' && char != '\u{1b}') {},
        Some('(' | ')') => drop(chars.next()),
        _ => {}
    }
    chars.as_str()
}

/// A metric's name or a label made of a tool's words: `Avg time (ms)` becomes
/// `avg-time-ms`.
pub(crate) fn slug(words: &str) -> String {
    let mut slug = String::with_capacity(words.len());
    let mut is_gap = true;
    // All bytes of other scripts are gaps.
    for byte in words.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'%' | b'+') {
            slug.push(char::from(byte.to_ascii_lowercase()));
            is_gap = false;
        } else if !std::mem::replace(&mut is_gap, true) {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches(['-', '.', '/']).len());
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_are_those_one_after_the_other() {
        for length in 0..200 {
            for step in 1..9 {
                for spaces in 0..step {
                    let text: String =
                        (0..length).map(|at| if at % step < spaces { ' ' } else { 'a' }).collect();
                    let expected: Vec<&str> = text.split_ascii_whitespace().collect();
                    assert_eq!(all_words(&text)[..], expected[..], "{text:?}");
                    assert!(AsciiWords::new(&text).eq(expected), "{text:?}");
                }
            }
        }
    }
}
