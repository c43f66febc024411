//! Texts and places in them.
//!
//! A value that a rule may point at keeps the bytes where it stands, [`LocatedValue`]; lines
//! and columns are computed when somebody is to see them. Files that a text names stand
//! behind it, [`JoinedText`]: bytes, and lines that are counted through, tell which one it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use topology::bounded::Span;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedValue<T> {
    /// The value.
    pub value: T,
    /// Its bytes.
    pub span: Span,
}

impl<T> LocatedValue<T> {
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
    /// The file, if it is one that the text names and not the text itself.
    #[serde(skip)]
    pub file: Option<String>,
}

impl LineColumn {
    /// The file, which is `own` for a place in the text itself.
    #[must_use]
    pub fn file_or(&self, own: &str) -> String {
        self.file.clone().unwrap_or_else(|| own.to_owned())
    }
}

/// A file that a text names, as its reader found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedFile {
    /// As the text has it.
    pub name: String,
    /// As people are told of it.
    pub path: String,
    /// What it holds, or why that is not known.
    pub content: FileContent,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    /// This text.
    Text(String),
    /// It can't be read, for this reason.
    Unreadable(String),
}

impl From<Result<String, String>> for FileContent {
    fn from(read: Result<String, String>) -> Self {
        match read {
            Ok(text) => Self::Text(text),
            Err(why) => Self::Unreadable(why),
        }
    }
}

/// A text with the files that it names behind it.
#[derive(Debug, Clone)]
pub struct JoinedText {
    whole: String,
    /// Bytes of the text itself.
    own: usize,
    files: Vec<JoinedFile>,
}

/// A file behind a text.
#[derive(Debug, Clone)]
struct JoinedFile {
    name: String,
    path: String,
    /// Its bytes in the whole, or why there are none.
    place: Result<Span, String>,
}

impl JoinedText {
    /// Joins a text and the files that it names.
    #[must_use]
    pub fn new(text: String, named: Vec<NamedFile>) -> Self {
        let (own, mut whole, mut files) = (text.len(), text, Vec::new());
        for NamedFile { name, path, content } in named {
            let place = match content {
                FileContent::Text(text) => {
                    // Each begins on a line of its own.
                    whole.push('\n');
                    let start = whole.len();
                    whole.push_str(&text);
                    Ok(Span { start, end: whole.len() })
                }
                FileContent::Unreadable(why) => Err(why),
            };
            files.push(JoinedFile { name, path, place });
        }
        Self { whole, own, files }
    }

    /// Its lines.
    #[must_use]
    pub fn source(&self) -> SourceText<'_> {
        let (own, whole) = (&self.whole[..self.own], &self.whole[..]);
        SourceText::of(own, whole, &self.files)
    }
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
    /// The text itself.
    pub text: &'a str,
    /// With what stands behind it.
    whole: &'a str,
    files: &'a [JoinedFile],
    starts: Vec<usize>,
    /// Characters that begin before each [`STRIDE`]th byte.
    characters: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Finds the lines of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self::of(text, text, &[])
    }

    fn of(text: &'a str, whole: &'a str, files: &'a [JoinedFile]) -> Self {
        let ends = whole.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut count = 0;
        let characters = whole
            .as_bytes()
            .chunks(STRIDE)
            .map(|chunk| {
                let before = count;
                count += chunk.iter().filter(|byte| begins_character(**byte)).count();
                before
            })
            .collect();
        Self { text, whole, files, starts, characters }
    }

    /// A file that the text names, by that name: its text and where it begins, or why it
    /// can't be read. `None` where nobody looked for it.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Result<(&'a str, usize), &'a str>> {
        let file = self.files.iter().find(|file| file.name == name)?;
        Some(match &file.place {
            Ok(place) => Ok((&self.whole[place.start..place.end], place.start)),
            Err(why) => Err(why),
        })
    }

    /// The file behind the text that holds this byte.
    fn file_of(&self, byte: usize) -> Option<(&'a JoinedFile, usize)> {
        let begun = |file: &'a JoinedFile| {
            let start = file.place.as_ref().ok()?.start;
            (start <= byte).then_some((file, start))
        };
        self.files.iter().filter_map(begun).next_back()
    }

    /// The file that holds a line, and its number there, from 1; `line` is counted through
    /// the text and all files behind it. `None` for the file: the text itself.
    #[must_use]
    pub fn line_in_file(&self, line: u32) -> (Option<&'a str>, u32) {
        let start = (line as usize).checked_sub(1).and_then(|at| self.starts.get(at).copied());
        match start.and_then(|start| self.file_of(start)) {
            Some((file, start)) => {
                let before = u32::try_from(self.line_of(start)).unwrap_or(u32::MAX);
                (Some(&file.path), line.saturating_sub(before))
            }
            None => (None, line),
        }
    }

    /// The number that a file's line has when lines are counted through all of them; of the
    /// text's own line, where no file is named so.
    #[must_use]
    pub fn line_through(&self, file: Option<&str>, line: u32) -> u32 {
        let named = self.files.iter().find(|one| Some(one.path.as_str()) == file);
        let start = named.and_then(|one| one.place.as_ref().ok()).map(|place| place.start);
        let before = start.map_or(0, |start| self.line_of(start));
        line.saturating_add(u32::try_from(before).unwrap_or(u32::MAX))
    }

    /// Characters that begin before this byte.
    fn characters_before(&self, byte: usize) -> usize {
        let Some(before) = self.characters.get(byte / STRIDE) else {
            return self.characters_before_end();
        };
        let rest = &self.whole.as_bytes()[byte / STRIDE * STRIDE..byte];
        before + rest.iter().filter(|byte| begins_character(**byte)).count()
    }

    fn characters_before_end(&self) -> usize {
        let Some(before) = self.characters.last() else { return 0 };
        let rest = &self.whole.as_bytes()[(self.characters.len() - 1) * STRIDE..];
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
        let end = self.starts.get(line + 1).copied().unwrap_or(self.whole.len());
        self.whole[start..end].trim_end_matches(['\n', '\r'])
    }

    /// Where a line stands, without its end; from 1, empty behind the last one.
    #[must_use]
    pub fn line_span(&self, line: usize) -> Span {
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied();
        let start = start.unwrap_or(self.whole.len());
        Span { start, end: start + self.line(line.saturating_sub(1)).len() }
    }

    /// What stands there; nothing where no characters begin and end.
    #[must_use]
    pub fn at(&self, span: Span) -> &'a str {
        self.whole.get(span.start..span.end).unwrap_or_default()
    }

    /// All lines of the text itself, without their ends.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> {
        (0..=self.line_of(self.text.len())).map(|line| self.line(line))
    }

    /// The number of the line where `span` begins, from 1; counted through the text and the
    /// files behind it.
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
        let file = self.file_of(self.starts[line]);
        let first = file.map_or(0, |(_, start)| self.line_of(start));
        LineColumn {
            line: line + 1 - first,
            file: file.map(|(file, _)| file.path.clone()),
            column: self.characters_before(at) - line_start + 1,
            length,
            text: self.whole[from..to].to_owned(),
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
        let mut byte = byte.min(self.whole.len());
        while !self.whole.is_char_boundary(byte) {
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
        assert_eq!(end.file, None);
        assert_eq!((end.line, end.column, end.text.as_str(), end.cut), (3, 5, "last", 0));
    }
    #[test]
    fn a_place_tells_the_file() {
        let named = |name: &str, text: Result<&str, &str>| NamedFile {
            name: name.to_owned(),
            path: format!("/etc/{name}"),
            content: text.map(str::to_owned).map_err(str::to_owned).into(),
        };
        let files = vec![
            named("none", Err("gone")),
            named("one", Ok("a\nb\n")),
            named("empty", Ok("")),
            named("two", Ok("c\nd")),
        ];
        let joined = JoinedText::new("x\ny".to_owned(), files);
        let source = joined.source();
        assert_eq!(source.text, "x\ny");
        assert_eq!(source.lines().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(source.named("none"), Some(Err("gone")));
        assert_eq!(source.named("three"), None);
        let check = |name: &str, at: usize, line: usize, text: &str| {
            let (_, start) = source.named(name).unwrap().unwrap();
            let place = source.place(Span { start: start + at, end: start + at + 1 });
            let path = format!("/etc/{name}");
            assert_eq!(place.file_or("own"), path);
            assert_eq!((place.line, place.column, place.text.as_str()), (line, 1, text));
            let through = source.line_number(Span { start: start + at, end: start + at });
            assert_eq!(source.line_in_file(through), (Some(path.as_str()), line as u32));
            assert_eq!(source.line_through(Some(&path), line as u32), through);
        };
        check("one", 0, 1, "a");
        check("one", 2, 2, "b");
        check("two", 0, 1, "c");
        check("two", 2, 2, "d");
        let own = source.place(Span { start: 2, end: 3 });
        assert_eq!((own.file_or("own").as_str(), own.line), ("own", 2));
        assert_eq!(source.place(Span { start: 3, end: 3 }).file, None);
        assert_eq!(source.line_in_file(2), (None, 2));
        assert_eq!(source.line_through(None, 2), 2);
    }
}
