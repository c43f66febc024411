//! A log in parts, of which only what is still needed is in memory: the run that
//! the last part ends in, and of a long one that can be read in pieces
//! ([`Signature::anew`](super::sign::Signature::anew)) only its last piece.

use super::between::LeadingFailures;
use super::sections::{SectionSearch, Sections};
use super::text::{self, ShownLines};
use super::{Log, Tool, read_sections, visit};

/// As [`visit`], of a log that is read bit by bit. `more` appends its next lines to
/// a text, and says whether there may be still more; a line that was begun is whole,
/// but for the last of all. What holds for the whole log by its beginning, such as
/// that a clock stands before every line, is seen in the first part: it should have
/// some MiB. A line without end, such as one of carriage returns alone, is held whole.
///
/// # Errors
/// The first of `more` and `take`, which ends the reading.
pub fn visit_parts<T: Send, E>(
    mut more: impl FnMut(&mut String) -> Result<bool, E>,
    tool: Option<&Tool>,
    shape: impl Fn(Log) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let mut raw = String::new();
    let mut ended = !more(&mut raw)?;
    if ended {
        return visit(&raw, tool, shape, take);
    }
    let mut search = SectionSearch::begin(tool);
    let mut shown = String::new();
    let mut before = LeadingFailures::default();
    let mut added = text::without_byte_order_mark(&raw);
    let mut lines = ShownLines::begin(added);
    loop {
        let shown_before = shown.len();
        shown.push_str(&lines.next(added, ended));
        let added_bytes = shown.len() - shown_before;
        let mut sections = Sections::resumed(&shown, search, ended);
        read_sections(&mut sections, false, &mut before, &shape, &mut take)?;
        if ended {
            return Ok(());
        }
        let needed;
        (needed, search) = sections.interrupted();
        shown.drain(..needed);
        let read = search.read_ahead(&shown, added_bytes);
        shown.drain(..read);
        raw.clear();
        ended = !more(&mut raw)?;
        added = &raw;
    }
}
