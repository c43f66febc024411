//! A part of a log that one tool wrote.

use super::text::LogText;
use super::{Log, Tool};

/// A part of a log that one run of a tool wrote.
pub(super) struct Section<'a> {
    pub(super) tool: &'static Tool,
    pub(super) text: LogText<'a>,
    /// What was read of the run's lines before.
    pub(super) begun: Option<Box<Log>>,
    /// How sure it is that this tool wrote it.
    pub(super) score: u32,
}
