//! A long run in pieces that threads read at once.
//!
//! At some lines of some outputs a reader forgets all that it knows: at a
//! table's heading, at a row that says all of itself ([`Signature::anew`]). A run is
//! cut there, and its pieces, read apart, are what it is read whole.

use rayon::prelude::*;

use super::scan::bare_line;
use super::sign::Signature;
use super::{BATCH_BYTES, Log, LogText, Tool};

/// Pieces are about so long: worth a thread, and enough for many of them.
const PIECE_BYTES: usize = 1 << 16;

/// Reads a run of `tool` into `log`.
pub(super) fn read(tool: &Tool, text: LogText<'_>, log: &mut Log) {
    if text.raw().len() < BATCH_BYTES {
        return (tool.read)(text, log);
    }
    match &anew(tool)[..] {
        [] => (tool.read)(text, log),
        anew => in_pieces(tool, anew, PIECE_BYTES, text, log),
    }
}

/// The signs at which the reader of `tool` knows nothing of the lines before.
fn anew(tool: &Tool) -> Vec<&Signature> {
    tool.signs.iter().filter(|sign| sign.begins_anew()).collect()
}

/// Reads a run of `tool` that is cut at lines with one of the signs `anew`,
/// into pieces of at least so many bytes.
fn in_pieces(
    tool: &Tool,
    anew: &[&Signature],
    piece_bytes: usize,
    text: LogText<'_>,
    log: &mut Log,
) {
    let (mut rest, mut line) = (text.raw(), text.first_line());
    while !rest.is_empty() {
        let mut pieces = Vec::new();
        let mut bytes = 0;
        // What is read of so many is in memory twice for a moment.
        while bytes < BATCH_BYTES && !rest.is_empty() {
            let (piece, behind) = rest.split_at(end_of_piece(rest, piece_bytes, anew));
            pieces.push(piece);
            bytes += piece.len();
            rest = behind;
        }
        let lines: Vec<usize> = pieces.par_iter().map(|piece| lines(piece)).collect();
        let first_lines = lines.iter().scan(line, |next, lines| {
            *next += lines;
            Some(*next - lines)
        });
        let first_lines: Vec<usize> = first_lines.collect();
        line += lines.iter().sum::<usize>();
        let logs: Vec<Log> = pieces
            .into_par_iter()
            .zip(first_lines)
            .map(|(piece, first_line)| {
                let mut behind = log.behind();
                (tool.read)(LogText::at(piece, first_line), &mut behind);
                behind
            })
            .collect();
        logs.into_iter().for_each(|piece| log.append(piece));
    }
}

/// Where the last line begins, behind `from`, at which the reader of `tool` knows nothing
/// of the lines before; 0 if there is none.
pub(super) fn last_begin(tool: &Tool, text: &str, from: usize) -> usize {
    let anew = anew(tool);
    let mut end = if anew.is_empty() { from } else { text.len() };
    while end > from {
        let start = memchr::memrchr(b'\n', &text.as_bytes()[..end - 1]).map_or(0, |at| at + 1);
        let line = bare_line(text[start..end].trim_end_matches('\n')).trim_end();
        if anew.iter().any(|sign| sign.is_in(line)) {
            return start;
        }
        end = start;
    }
    0
}

fn lines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// Where the first line begins that is `far` enough behind and has one of the
/// signs `anew`; the end of the text if none has.
fn end_of_piece(text: &str, far: usize, anew: &[&Signature]) -> usize {
    let mut from = far;
    while let Some(end) = text.as_bytes().get(from..).and_then(|bytes| memchr::memchr(b'\n', bytes))
    {
        let start = from + end + 1;
        let rest = &text[start..];
        let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
        let line = bare_line(&rest[..end]).trim_end();
        if anew.iter().any(|sign| sign.is_in(line)) {
            return start;
        }
        from = start;
    }
    text.len()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::TOOLS;
    use super::*;

    /// What each tool that is read in pieces finds in `text`, whole and in pieces
    /// of at least so many bytes, if no more than `room` values are kept.
    pub(in super::super) fn whole_and_in_pieces(
        text: &str,
        piece_bytes: usize,
        room: usize,
    ) -> Vec<(Log, Log)> {
        let both = |tool: &Tool| {
            let anew = anew(tool);
            let mut whole = Log { room, ..Log::new(tool.name) };
            let mut pieces = whole.clone();
            (tool.read)(LogText::new(text), &mut whole);
            // Those of values to come, of which there are none.
            whole.clear_labels();
            in_pieces(tool, &anew, piece_bytes, LogText::new(text), &mut pieces);
            (!anew.is_empty()).then_some((whole, pieces))
        };
        TOOLS.iter().filter_map(both).collect()
    }
}
