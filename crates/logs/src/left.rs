//! What the readers leave of a run and must not leave in silence.

use super::scan::bare_line;
use super::text::LogText;
use super::{Log, Tool, netperf, pieces};

/// A damaged heading stands at most so many lines before the first sign that is left.
const HEADING_LINES: usize = 20;

const ZEROS: &str = "zero bytes stand in it";

/// Tells the lines of a run of which zero bytes have overwritten a part. Lines of nothing
/// else are what a crash leaves at the end.
pub(super) fn tell_zeros(text: LogText<'_>, log: &mut Log) {
    let (raw, mut from, mut number) = (text.raw(), 0, text.first_line());
    while let Some(found) = memchr::memchr(0, &raw.as_bytes()[from..]) {
        let at = from + found;
        let start = memchr::memrchr(b'\n', &raw.as_bytes()[..at]).map_or(0, |end| end + 1);
        let end = memchr::memchr(b'\n', &raw.as_bytes()[at..]).map_or(raw.len(), |end| at + end);
        number += memchr::memchr_iter(b'\n', &raw.as_bytes()[from..at]).count();
        tell_zeros_of(&raw[start..end], number, log);
        from = end;
    }
}

fn tell_zeros_of(line: &str, number: usize, log: &mut Log) {
    let says_something = line.bytes().any(|byte| byte != 0 && !byte.is_ascii_whitespace());
    if says_something && !is_told(log, number) {
        log.unread_at(number, bare_line(line), ZEROS);
    }
}

/// Tells what stands before the first sign of a log: `text` ends there.
pub(super) fn tell_before(text: LogText<'_>, log: &mut Log) {
    if memchr::memchr(0, text.raw().as_bytes()).is_some() {
        let lines = text.raw().lines().enumerate();
        let count = memchr::memchr_iter(b'\n', text.raw().as_bytes()).count();
        for (at, line) in lines.skip(count.saturating_sub(HEADING_LINES)) {
            if line.contains('\0') {
                tell_zeros_of(line, text.first_line() + at, log);
            }
        }
    }
    tell_bare(text, log);
}

/// Tells lines of which only the shape says that they are netperf's: beside another output
/// that is not enough to read them.
pub(super) fn tell_bare(text: LogText<'_>, log: &mut Log) {
    let mut above = None;
    for line in text.lines() {
        let above = above.replace(line);
        if line.text.starts_with(|first: char| first.is_ascii_digit())
            && netperf::is_bare(above, line)
            && !is_told(log, line.number)
        {
            log.unread(line, "it looks like a result of netperf -P 0, which --as netperf reads");
        }
    }
}

/// Tells the last line of a log without a newline, if a reader would take more of it with
/// one: `before` values were read of lines before `text`.
pub(super) fn tell_cut(tool: &Tool, text: LogText<'_>, before: usize, log: &mut Log) {
    let raw = text.raw();
    if raw.is_empty() || raw.ends_with('\n') {
        return;
    }
    let mut whole = Log::new(tool.name);
    pieces::read(tool, LogText::at(&format!("{raw}\n"), text.first_line()), &mut whole);
    let last = text.first_line() + memchr::memchr_iter(b'\n', raw.as_bytes()).count();
    let of_last = |log: &Log| log.values.iter().filter(|value| value.line == last).count();
    let is_less = log.values.len() - before < whole.values.len() || of_last(log) < of_last(&whole);
    if is_less && !is_told(log, last) {
        let line = &raw[memchr::memrchr(b'\n', raw.as_bytes()).map_or(0, |at| at + 1)..];
        log.unread_at(last, bare_line(line), "without a newline its end may be missing");
    }
}

fn is_told(log: &Log, line: usize) -> bool {
    log.unread
        .iter()
        .rev()
        .take_while(|unread| unread.line >= line)
        .any(|unread| unread.line == line)
}
