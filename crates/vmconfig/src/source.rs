//! Texts and places in them.
//!
//! A value that a rule may point at keeps the bytes where it stands, [`Located`]; lines
//! and columns are computed when somebody is to see them.

use schemars::JsonSchema;
use serde::Serialize;

pub use topology::bounded::Span;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its bytes.
    pub span: Span,
}

impl<T> Located<T> {
    /// A value and where it stands.
    pub fn new(value: T, span: impl Into<Span>) -> Self {
        Self { value, span: span.into() }
    }
}

/// A place for people: what an editor shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct LineColumn {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters on that line, at least 1.
    pub length: usize,
    /// The whole line; of a very long one, the part around the place.
    pub text: String,
    /// Characters of the line in front of `text`.
    #[serde(skip)]
    pub cut: usize,
}

/// Bytes of a line that are shown in front of a place and behind its beginning:
/// more than fits on any screen, and not the whole file, which may be one line.
const SHOWN_BYTES: usize = 200;

/// Bytes after which characters are counted anew.
const STRIDE: usize = 1 << 12;

fn begins_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// A text whose lines can be looked up.
#[derive(Debug)]
pub struct SourceText<'a> {
    /// The whole text.
    pub text: &'a str,
    starts: Vec<usize>,
    /// Characters that begin before each [`STRIDE`]th byte.
    characters: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Finds the lines of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(
                text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1),
            )
            .collect();
        let mut count = 0;
        let characters = text
            .as_bytes()
            .chunks(STRIDE)
            .map(|chunk| {
                let before = count;
                count += chunk.iter().filter(|byte| begins_character(**byte)).count();
                before
            })
            .collect();
        Self { text, starts, characters }
    }

    /// Characters that begin before this byte.
    fn characters_before(&self, byte: usize) -> usize {
        let Some(before) = self.characters.get(byte / STRIDE) else {
            return self.characters_before_end();
        };
        let rest = &self.text.as_bytes()[byte / STRIDE * STRIDE..byte];
        before + rest.iter().filter(|byte| begins_character(**byte)).count()
    }

    fn characters_before_end(&self) -> usize {
        let Some(before) = self.characters.last() else { return 0 };
        let rest = &self.text.as_bytes()[(self.characters.len() - 1) * STRIDE..];
        before + rest.iter().filter(|byte| begins_character(**byte)).count()
    }

    /// Line that holds this byte, from 0.
    fn line_of(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte) - 1
    }

    /// A line without its end, from 0; empty behind the last one.
    #[must_use]
    pub fn line(&self, line: usize) -> &'a str {
        let Some(start) = self.starts.get(line).copied() else { return "" };
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// Where a line stands, without its end; from 1, empty behind the last one.
    #[must_use]
    pub fn line_span(&self, line: usize) -> Span {
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied();
        let start = start.unwrap_or(self.text.len());
        Span { start, end: start + self.line(line.saturating_sub(1)).len() }
    }

    /// All lines, without their ends.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> {
        (0..self.starts.len()).map(|line| self.line(line))
    }

    /// The number of the line where `span` begins, from 1.
    #[must_use]
    pub fn line_number(&self, span: Span) -> u32 {
        u32::try_from(self.line_of(self.on_boundary(span.start)) + 1).unwrap_or(u32::MAX)
    }

    /// What an editor shows of `span`.
    #[must_use]
    pub fn place(&self, span: Span) -> LineColumn {
        let start = self.on_boundary(span.start);
        let line = self.line_of(start);
        let text = self.line(line);
        let before = (start - self.starts[line]).min(text.len());
        let rest = &text[before..];
        let end = self.on_boundary(span.end.max(start)) - start;
        let length = rest[..end.min(rest.len())].trim_end().chars().count().max(1);
        let line_start = self.characters_before(self.starts[line]);
        let at = self.starts[line] + before;
        let from = self.shown_from(self.starts[line], at);
        let to = self.shown_to(at, self.starts[line] + text.len());
        LineColumn {
            line: line + 1,
            column: self.characters_before(at) - line_start + 1,
            length,
            text: self.text[from..to].to_owned(),
            cut: self.characters_before(from) - line_start,
        }
    }

    /// Where what is shown in front of `at` begins, at `start` of its line or later.
    #[must_use]
    pub fn shown_from(&self, start: usize, at: usize) -> usize {
        self.on_boundary(at.saturating_sub(SHOWN_BYTES)).max(start)
    }

    /// Where what is shown behind `at` ends, at `end` of its line or before.
    #[must_use]
    pub fn shown_to(&self, at: usize, end: usize) -> usize {
        self.on_boundary(at + SHOWN_BYTES).min(end)
    }

    fn on_boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_on_a_long_line() {
        let line = "<vm name='käse'/>".repeat(10_000);
        let text = format!("first\n{line}\nlast");
        let source = SourceText::new(&text);
        for nth in [0, 1, 700, 9_999] {
            let start = "first\n".len() + nth * "<vm name='käse'/>".len() + 1;
            let place = source.place(Span { start, end: start + 2 });
            assert_eq!((place.line, place.column, place.length), (2, nth * 17 + 2, 2));
            let marked: String = place.text.chars().skip(place.column - 1 - place.cut).collect();
            assert!(marked.starts_with("vm name='käse'/>"), "{marked}");
            assert!(place.text.len() <= 2 * SHOWN_BYTES, "the line is not copied for each place");
        }
        let end = source.place(Span { start: text.len(), end: text.len() });
        assert_eq!((end.line, end.column, end.text.as_str(), end.cut), (3, 5, "last", 0));
    }
}
