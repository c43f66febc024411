//! Where in a TOML text a key or value stands, for errors that name the line.

use std::borrow::Cow;
use std::collections::HashMap;

use toml::de::{DeTable, DeValue};

/// One step of a path into a TOML document.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathStep<'a> {
    /// A key of a table.
    Key(&'a str),
    /// An element of an array, from 0.
    Index(usize),
}

/// The lines of everything in one TOML text, which is parsed once for them all.
#[derive(Debug, Clone, Default)]
pub(super) struct TomlLines {
    /// Byte where each line begins.
    starts: Vec<usize>,
    root: LinePosition,
}

/// A key or an element: its line, and what is in it.
#[derive(Debug, Clone, Default)]
struct LinePosition {
    line: usize,
    keys: HashMap<String, LinePosition>,
    elements: Vec<LinePosition>,
}

impl TomlLines {
    pub(super) fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut lines = Self { starts, root: LinePosition { line: 1, ..LinePosition::default() } };
        if let Ok(root) = DeTable::parse(text) {
            lines.root.keys = lines.keys(root.get_ref());
        }
        lines
    }

    fn keys(&self, table: &DeTable<'_>) -> HashMap<String, LinePosition> {
        let key = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let name: &toml::Spanned<Cow<'_, str>> = name;
            (name.get_ref().to_string(), self.spot(name.span().start, value.get_ref()))
        };
        table.iter().map(key).collect()
    }

    fn spot(&self, start: usize, value: &DeValue<'_>) -> LinePosition {
        // A table made by dotted keys has no place of its own; its keys have.
        let element =
            |value: &toml::Spanned<DeValue<'_>>| self.spot(value.span().start, value.get_ref());
        LinePosition {
            line: self.line_at(start),
            keys: value.as_table().map(|table| self.keys(table)).unwrap_or_default(),
            elements: value
                .as_array()
                .map(|array| array.iter().map(element).collect())
                .unwrap_or_default(),
        }
    }

    /// The line (from 1) of the deepest part of `path` that exists; line 1 if
    /// none does.
    pub(super) fn of(&self, path: &[PathStep<'_>]) -> usize {
        self.walk(path).0
    }

    /// The line (from 1) of `path`, if all of it exists.
    pub(super) fn exactly(&self, path: &[PathStep<'_>]) -> Option<usize> {
        let (line, depth) = self.walk(path);
        (depth == path.len()).then_some(line)
    }

    /// The line of the deepest part of `path` that exists, and how many steps
    /// lead there.
    fn walk(&self, path: &[PathStep<'_>]) -> (usize, usize) {
        let mut spot = &self.root;
        for (depth, step) in path.iter().enumerate() {
            let found = match step {
                PathStep::Key(key) => spot.keys.get(*key),
                PathStep::Index(index) => spot.elements.get(*index),
            };
            let Some(found) = found else { return (spot.line, depth) };
            spot = found;
        }
        (spot.line, path.len())
    }

    /// The line (from 1) that holds byte `offset`.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_tables_arrays_and_dotted_keys_are_found() {
        let text = "title = 'x'\n\n[vm]\nvcpus = 1\n\n[[variant]]\nname = 'a'\nvm.vcpus = 2\n\n[[variant]]\nname = 'b'\nvm.vcpus = 0\n";
        let lines = TomlLines::new(text);
        let check =
            |path: &[PathStep<'_>], expected| assert_eq!(lines.of(path), expected, "{path:?}");
        check(&[PathStep::Key("title")], 1);
        check(&[PathStep::Key("vm"), PathStep::Key("vcpus")], 4);
        check(&[PathStep::Key("variant"), PathStep::Index(0)], 6);
        check(
            &[
                PathStep::Key("variant"),
                PathStep::Index(1),
                PathStep::Key("vm"),
                PathStep::Key("vcpus"),
            ],
            12,
        );
        check(
            &[
                PathStep::Key("variant"),
                PathStep::Index(1),
                PathStep::Key("vm"),
                PathStep::Key("absent"),
            ],
            12,
        );
        check(&[PathStep::Key("nowhere")], 1);
        assert_eq!(lines.exactly(&[PathStep::Key("vm"), PathStep::Key("vcpus")]), Some(4));
        assert_eq!(lines.exactly(&[PathStep::Key("vm"), PathStep::Key("absent")]), None);
    }

    /// One parse for all questions: with one for each, these would be gigabytes.
    #[test]
    fn many_questions_cost_one_parse() {
        let one = "[[variant]]\nname = 'a'\nvm.vcpus = 2\n\n";
        let text = one.repeat(20_000);
        let lines = TomlLines::new(&text);
        for index in 0..20_000 {
            let path = [
                PathStep::Key("variant"),
                PathStep::Index(index),
                PathStep::Key("vm"),
                PathStep::Key("vcpus"),
            ];
            assert_eq!(lines.exactly(&path), Some(index * 4 + 3));
        }
    }
}
