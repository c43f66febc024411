//! Output without any sign of its tool, known by its exact shape.

use super::section::Section;
use super::sign::STRONG;
use super::text::LogText;
use super::{iperf, netperf, tool};

/// All of a text in which no sign is, if it is of a shape that only one tool
/// prints.
pub(super) fn bare(text: &str) -> Option<Section<'_>> {
    let whole = LogText::new(text);
    let (mut above, mut found) = (None, None);
    for line in whole.lines() {
        let above = above.replace(line);
        if !line.text.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        if iperf::is_bare(line) {
            found = Some(iperf::IPERF2.name);
            break;
        }
        if found.is_none() && !line.is_open() && netperf::is_bare(above, line) {
            found = Some(netperf::TOOL.name);
        }
    }
    let tool = tool(found?)?;
    Some(Section { tool, text: whole, begun: None, score: STRONG })
}
