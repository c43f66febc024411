//! A part of a log that one tool wrote.

use super::Tool;
use super::text::Text;

/// A part of a log that one run of a tool wrote.
pub(super) struct Section<'a> {
    pub(super) tool: &'static Tool,
    pub(super) text: Text<'a>,
    /// How sure it is that this tool wrote it.
    pub(super) score: u32,
}
