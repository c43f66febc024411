//! How a comparison looks: terminal text, Markdown, CSV, JSON, one HTML page.
//!
//! All of them say the same, from the same words.

mod bar;
mod csv;
mod html;
mod markdown;
mod text;
mod words;

pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use text::{TextStyle, text, write_text};

use crate::analyse::ComparedData;

/// The comparison as JSON: `format`, `version`, and everything behind it.
#[must_use]
pub fn json(comparison: &ComparedData) -> String {
    let mut text =
        serde_json::to_string_pretty(comparison).expect("all keys of a comparison are strings");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
