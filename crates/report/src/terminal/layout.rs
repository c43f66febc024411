//! Lines and columns, by the width that characters have on a terminal.

use std::borrow::Cow;

use textwrap::{Options, WordSplitter};
use unicode_width::UnicodeWidthStr;

use crate::escape::visible;

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Columns of `text`.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Foreign text on one line: no escape sequence reaches the terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_whitespace() { ' ' } else { visible(character) })
        .collect()
}

/// `text` in lines of at most `width` columns, parted at spaces, inside of
/// words only where a word is longer than a line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = one_line(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let options = Options::new(width.max(1)).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(&text, options).into_iter().map(Cow::into_owned).collect()
}

/// A table whose first and last columns of text wrap where it would be too
/// wide, and which becomes a list where even that is not enough.
pub(crate) struct TextTable {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// A line of a table.
pub(crate) struct TableLine {
    pub(crate) text: String,
    pub(crate) head: bool,
}

/// Columns between two columns of a table.
pub(crate) const GAP: usize = 2;

/// A wrapped column is never narrower.
const MIN_WRAPPED: usize = 14;

/// Words up to this long are not broken to make a table fit.
const MAX_WHOLE_WORD: usize = 28;

impl TextTable {
    pub(crate) fn new(heads: &[(&str, Align)]) -> Self {
        let heads = heads.iter().map(|(head, align)| (one_line(head), *align)).collect();
        Self { heads, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| one_line(cell)).collect());
    }

    pub(crate) fn lines(&self, width: usize) -> Vec<TableLine> {
        match self.widths(width) {
            Some(widths) => self.as_columns(&widths),
            None => self.as_list(width),
        }
    }

    /// Widths that fit, if there are any. The widest of the first and the last
    /// column gives way first.
    fn widths(&self, width: usize) -> Option<Vec<usize>> {
        let columns = self.heads.len();
        let natural = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].width());
            cells.chain([self.heads[i].0.width()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(natural).collect();
        let longest_word = |i: usize| {
            let words = self.rows.iter().flat_map(|row| row[i].split(' '));
            words.map(UnicodeWidthStr::width).max().unwrap_or(0).min(MAX_WHOLE_WORD)
        };
        let least: Vec<usize> = [0, columns - 1]
            .into_iter()
            .map(|i| MIN_WRAPPED.max(self.heads[i].0.width()).max(longest_word(i)).min(widths[i]))
            .collect();
        let room = width.checked_sub(GAP * columns)?;
        while widths.iter().sum::<usize>() > room {
            let over = |i: usize, least: usize| widths[i].saturating_sub(least);
            let (first, last) = (over(0, least[0]), over(columns - 1, least[1]));
            if first == 0 && last == 0 {
                return None;
            }
            widths[if first >= last { 0 } else { columns - 1 }] -= 1;
        }
        Some(widths)
    }

    fn as_columns(&self, widths: &[usize]) -> Vec<TableLine> {
        let heads: Vec<String> = self.heads.iter().map(|(head, _)| head.clone()).collect();
        let mut lines: Vec<TableLine> = self
            .as_lines(&heads, widths)
            .into_iter()
            .map(|text| TableLine { text, head: true })
            .collect();
        for row in &self.rows {
            let texts = self.as_lines(row, widths);
            lines.extend(texts.into_iter().map(|text| TableLine { text, head: false }));
        }
        lines
    }

    fn as_lines(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        (0..height)
            .map(|i| {
                let mut line = String::new();
                for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.heads) {
                    let text = cell.get(i).map_or("", String::as_str);
                    let fill = " ".repeat(width.saturating_sub(text.width()));
                    line.push_str(&" ".repeat(GAP));
                    match align {
                        Align::Left => line.push_str(&format!("{text}{fill}")),
                        Align::Right => line.push_str(&format!("{fill}{text}")),
                    }
                }
                line.trim_end().to_owned()
            })
            .collect()
    }

    /// Each row as its first cell and the others below it.
    fn as_list(&self, width: usize) -> Vec<TableLine> {
        let mut lines = Vec::new();
        let mut push = |indent: &str, text: &str| {
            for line in wrap(text, width.saturating_sub(indent.len())) {
                lines.push(TableLine { text: format!("{indent}{line}"), head: false });
            }
        };
        for row in &self.rows {
            push("  ", &row[0]);
            for ((head, _), cell) in self.heads.iter().zip(row).skip(1) {
                if !cell.is_empty() {
                    push("    ", &format!("{head}: {cell}"));
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_parted_at_spaces_and_wide_letters_count_twice() {
        let check = |text: &str, width, expected: &[&str]| assert_eq!(wrap(text, width), expected);
        check("one two three", 8, &["one two", "three"]);
        check("abcdefghij k", 4, &["abcd", "efgh", "ij k"]);
        check("虛擬機 x", 4, &["虛擬", "機 x"]);
        check("", 4, &[""]);
        check("a\u{1b}[2Jb\nc", 20, &["a␛[2Jb c"]);
    }

    #[test]
    fn a_table_aligns_wraps_and_at_last_becomes_a_list() {
        let mut table = TextTable::new(&[("variant", Align::Left), ("n", Align::Right)]);
        table.row(vec!["虛擬機".into(), "7".into()]);
        table.row(vec!["a variant with many words".into(), "12".into()]);
        let text = |width| {
            table.lines(width).iter().map(|line| format!("|{}\n", line.text)).collect::<String>()
        };
        expect_test::expect![[r#"
            |  variant                     n
            |  虛擬機                      7
            |  a variant with many words  12
        "#]]
        .assert_eq(&text(80));
        expect_test::expect![[r#"
            |  variant          n
            |  虛擬機           7
            |  a variant with  12
            |  many words
        "#]]
        .assert_eq(&text(20));
        expect_test::expect![[r#"
            |  虛擬機
            |    n: 7
            |  a
            |  variant
            |  with
            |  many
            |  words
            |    n: 12
        "#]]
        .assert_eq(&text(9));
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_no_letter_lost(text in "[a-z 虛擬]{0,80}", width in 2usize..30) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
