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
    /// Whether words of failure stand before its heading, which are its own.
    pub(super) failed_before: bool,
    /// What comes behind it; none at the end of the log.
    pub(super) end: Option<SectionEnd>,
}

/// Where another run begins.
#[derive(Clone, Copy)]
pub(super) struct SectionEnd {
    /// The number of its first line.
    pub(super) line: usize,
    /// Its tool.
    pub(super) next: &'static Tool,
}
