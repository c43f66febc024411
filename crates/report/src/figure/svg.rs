//! A small writer of SVG: well-formed by construction, all text escaped.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::escape;

/// Width of every figure, in its own units.
pub(crate) const WIDTH: f64 = 440.0;

/// Width of a character, in units: wide enough for the larger letters that
/// phones and paper get.
const CHARACTER: f64 = 7.4;

/// The same of a bold one, as names are written.
const BOLD_CHARACTER: f64 = 9.0;

/// An SVG element under construction.
pub(crate) struct Svg {
    body: String,
}

impl Svg {
    pub(crate) fn new() -> Self {
        Self { body: String::new() }
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (n(from.0), n(from.1), n(to.0), n(to.1));
        self.push(&format!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// A rectangle from its upper left corner.
    pub(crate) fn rect(&mut self, class: &str, at: (f64, f64), width: f64, height: f64) {
        let (x, y, width, height) = (n(at.0), n(at.1), n(width.max(0.0)), n(height.max(0.0)));
        self.push(&format!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        ));
    }

    /// A path; `told` is read out and shown when pointed at.
    pub(crate) fn path(&mut self, class: &str, d: &str, told: Option<&str>) {
        match told {
            Some(told) => self.push(&format!(
                r#"<path class="{class}" d="{d}"><title>{}</title></path>"#,
                escape(told)
            )),
            None => self.push(&format!(r#"<path class="{class}" d="{d}"/>"#)),
        }
    }

    /// Dots at `points`, as one path: a page with thousands of samples stays
    /// small.
    pub(crate) fn dots(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (x, y) in points {
            // A line of no length with round caps is a dot.
            let _ = write!(d, "M{} {}h0", n(*x), n(*y));
        }
        if !d.is_empty() {
            self.path(class, &d, None);
        }
    }

    /// Text; `class` also says how it is anchored.
    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = (n(at.0), n(at.1));
        self.push(&format!(r#"<text class="{class}" x="{x}" y="{y}">{}</text>"#, escape(text)));
    }

    /// Text that is cut to `room` units; what is cut stands in its title.
    pub(crate) fn fitted(&mut self, class: &str, at: (f64, f64), text: &str, room: f64) {
        let is_bold = matches!(class, "name" | "strong");
        let character = if is_bold { BOLD_CHARACTER } else { CHARACTER };
        let shown = cut(text, (room / character) as usize);
        if shown == text {
            return self.text(class, at, text);
        }
        let (x, y) = (n(at.0), n(at.1));
        self.push(&format!(
            r#"<text class="{class}" x="{x}" y="{y}">{}<title>{}</title></text>"#,
            escape(&shown),
            escape(text)
        ));
    }

    /// The whole element, `height` units high. `id` is unique in the page.
    pub(crate) fn finish(self, id: &str, height: f64, title: &str, description: &str) -> String {
        self.finish_of(id, (WIDTH, height), title, description)
    }

    /// The whole element of this width and height.
    pub(crate) fn finish_of(
        self,
        id: &str,
        size: (f64, f64),
        title: &str,
        description: &str,
    ) -> String {
        format!(
            concat!(
                r#"<svg class="plot figure" viewBox="0 0 {} {}" role="img" "#,
                r#"aria-labelledby="{id}-t {id}-d" xmlns="http://www.w3.org/2000/svg">"#,
                r#"<title id="{id}-t">{}</title><desc id="{id}-d">{}</desc>{}</svg>"#
            ),
            n(size.0),
            n(size.1),
            escape(title),
            escape(description),
            self.body,
            id = id,
        )
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// Room that `text` takes, in units.
pub(crate) fn text_width(text: &str) -> f64 {
    text.width() as f64 * CHARACTER
}

/// `text` in at most `columns` columns, with an ellipsis in its middle: names
/// of variants often differ at their ends.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let keep = columns.saturating_sub(1);
    let head = take_columns(text.chars(), keep - keep / 2);
    let tail: Vec<char> = take_columns(text.chars().rev(), keep / 2);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

fn take_columns(characters: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut used = 0;
    characters
        .take_while(|character| {
            used += character.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

/// A coordinate with one digit behind the point at most.
pub(crate) fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        let check = |text: &str, columns, expected: &str| assert_eq!(cut(text, columns), expected);
        check("short", 5, "short");
        check("a-very-long-variant-name", 11, "a-ver…-name");
        check("虛擬機虛擬機", 7, "虛…機");
        check("abc", 0, "…");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([n(1.0), n(0.25), n(-0.01), n(439.96)], ["1", "0.2", "0", "440"]);
    }
}
