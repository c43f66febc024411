//! Texts in JSON, as the pages and traces have them: few, and written by hand.

use std::fmt::Write as _;

/// `text` as a JSON string. No `<` is left in it, so that it may stand in a page.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '<' => quoted.push_str("\\u003c"),
            c if (c as u32) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
