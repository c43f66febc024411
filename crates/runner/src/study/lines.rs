//! Where in a TOML text a key or value stands, for errors that name the line.

use toml::de::{DeTable, DeValue};

/// One step of a path into a TOML document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    /// A key of a table.
    Key(&'a str),
    /// An element of an array, from 0.
    Index(usize),
}

/// The positions of everything in one TOML text.
pub(super) struct Lines<'a> {
    text: &'a str,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The line (from 1) of the deepest part of `path` that exists; line 1 if
    /// none does.
    pub(super) fn of(&self, path: &[Step<'_>]) -> usize {
        self.walk(path).0
    }

    /// The line (from 1) of `path`, if all of it exists.
    pub(super) fn exactly(&self, path: &[Step<'_>]) -> Option<usize> {
        let (line, depth) = self.walk(path);
        (depth == path.len()).then_some(line)
    }

    /// The line of the deepest part of `path` that exists, and how many steps
    /// lead there.
    fn walk(&self, path: &[Step<'_>]) -> (usize, usize) {
        let Ok(root) = DeTable::parse(self.text) else { return (1, 0) };
        let mut offset = 0;
        let mut depth = 0;
        let mut table = Some(root.get_ref());
        let mut array = None;
        for step in path {
            let value: Option<&toml::Spanned<DeValue<'_>>> = match step {
                Step::Key(key) => {
                    let found = table.and_then(|table| {
                        table.iter().find(|(name, _)| name.get_ref().as_ref() == *key)
                    });
                    if let Some((name, _)) = found {
                        offset = name.span().start;
                    }
                    found.map(|(_, value)| value)
                }
                Step::Index(index) => array.and_then(|array: &[_]| array.get(*index)),
            };
            let Some(value) = value else { break };
            // A table made by dotted keys has no place of its own; its keys have.
            if matches!(step, Step::Index(_)) {
                offset = value.span().start;
            }
            depth += 1;
            table = value.get_ref().as_table();
            array = value.get_ref().as_array().map(|array| &array[..]);
        }
        (self.line_at(offset), depth)
    }

    /// The line (from 1) that holds byte `offset`.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_tables_arrays_and_dotted_keys_are_found() {
        let text = "title = 'x'\n\n[vm]\nvcpus = 1\n\n[[variant]]\nname = 'a'\nvm.vcpus = 2\n\n[[variant]]\nname = 'b'\nvm.vcpus = 0\n";
        let lines = Lines::new(text);
        let check = |path: &[Step<'_>], expected| assert_eq!(lines.of(path), expected, "{path:?}");
        check(&[Step::Key("title")], 1);
        check(&[Step::Key("vm"), Step::Key("vcpus")], 4);
        check(&[Step::Key("variant"), Step::Index(0)], 6);
        check(&[Step::Key("variant"), Step::Index(1), Step::Key("vm"), Step::Key("vcpus")], 12);
        check(&[Step::Key("variant"), Step::Index(1), Step::Key("vm"), Step::Key("absent")], 12);
        check(&[Step::Key("nowhere")], 1);
        assert_eq!(lines.exactly(&[Step::Key("vm"), Step::Key("vcpus")]), Some(4));
        assert_eq!(lines.exactly(&[Step::Key("vm"), Step::Key("absent")]), None);
    }
}
