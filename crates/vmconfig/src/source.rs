//! Texts and places in them.
//!
//! A value that a rule may point at keeps the bytes where it stands, [`At`]; lines
//! and columns are computed when somebody is to see them.

use serde::Serialize;

/// Bytes `start..end` of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One behind the last byte.
    pub end: usize,
}

impl Span {
    /// Whether it holds no byte: what was not written stands nowhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }
}

impl From<std::ops::Range<usize>> for Span {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes.
    pub span: Span,
}

impl<T> At<T> {
    /// A value and where it stands.
    pub fn new(value: T, span: impl Into<Span>) -> Self {
        Self { value, span: span.into() }
    }
}

/// A place for people: what an editor shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters on that line, at least 1.
    pub length: usize,
    /// The whole line.
    pub text: String,
}

/// A text whose lines can be looked up.
#[derive(Debug)]
pub struct Source<'a> {
    /// The whole text.
    pub text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Source<'a> {
    /// Finds the lines of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(
                text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1),
            )
            .collect();
        Self { text, starts }
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
    pub fn place(&self, span: Span) -> Place {
        let start = self.on_boundary(span.start);
        let line = self.line_of(start);
        let text = self.line(line);
        let before = (start - self.starts[line]).min(text.len());
        let rest = &text[before..];
        let end = self.on_boundary(span.end.max(start)) - start;
        let length = rest[..end.min(rest.len())].trim_end().chars().count().max(1);
        Place {
            line: line + 1,
            column: text[..before].chars().count() + 1,
            length,
            text: text.to_owned(),
        }
    }

    fn on_boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}
