//! Output without any sign of its tool, known by its exact shape.

use super::netperf;
use super::section::Section;
use super::sign::STRONG;
use super::text::LogText;

/// All of a text in which no sign is, if it is of a shape that only one tool
/// prints.
pub(super) fn bare(text: &str) -> Option<Section<'_>> {
    let whole = LogText::new(text);
    let mut above = None;
    let mut rows = whole.lines().filter(|line| {
        let above = above.replace(*line);
        line.text.starts_with(|first: char| first.is_ascii_digit())
            && netperf::is_bare(above, *line)
    });
    rows.next()?;
    Some(Section {
        tool: &netperf::TOOL,
        text: whole,
        begun: None,
        score: STRONG,
        failed_before: false,
        end: None,
    })
}
