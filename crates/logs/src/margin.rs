//! What stands before every line of a log alike: a clock, a line's number, the
//! names of a job.
//!
//! A tool prints such words too, so they are a margin only where all lines have
//! one. Of mpstat's tables all lines may have: there the headings decide.

use std::borrow::Cow;

use super::prefix::after_date;

/// Fewer lines prove nothing.
const MIN_LINES: usize = 2;

/// Returns the rest of a line behind its margin, if it has one; lines count from 1.
type AfterMargin = fn(line: &str, number: usize) -> Option<&str>;

const SHAPES: [AfterMargin; 4] = [after_clock, after_epoch, after_number, after_job];

/// What a log's lines stand behind, or how a mail says them.
#[derive(Clone, Copy)]
enum MarginKind {
    None,
    Before(AfterMargin),
    QuotedPrintable,
}

/// Takes the margin off a log that comes bit by bit.
#[derive(Clone)]
pub(super) struct Margin {
    kind: MarginKind,
    /// How many lines it was taken off.
    lines: usize,
    /// A line of a mail that goes on in one to come, and of how many it is made.
    begun: Vec<u8>,
    joined: usize,
}

impl Margin {
    /// That of a log that begins with `text`. Mails whose header says that they are
    /// quoted-printable are decoded.
    pub(super) fn of(text: &str) -> Self {
        let is_margin = |shape: &AfterMargin| is_margin(*shape, text) && !is_column(*shape, text);
        let kind = match SHAPES.into_iter().find(is_margin) {
            Some(shape) => MarginKind::Before(shape),
            None if is_quoted_printable(text) => MarginKind::QuotedPrintable,
            None => MarginKind::None,
        };
        Self { kind, lines: 0, begun: Vec::new(), joined: 0 }
    }

    /// The log's next lines without it: whole ones, but for the last of all. A line that
    /// has none, in a log whose first lines had one, stays as it is.
    pub(super) fn take_off<'a>(&mut self, text: &'a str, is_last: bool) -> Cow<'a, str> {
        match self.kind {
            MarginKind::None => Cow::Borrowed(text),
            MarginKind::Before(shape) => Cow::Owned(self.behind(shape, text)),
            MarginKind::QuotedPrintable => Cow::Owned(self.unquoted(text, is_last)),
        }
    }

    fn behind(&mut self, shape: AfterMargin, text: &str) -> String {
        let mut inner = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            self.lines += 1;
            inner.push_str(match shape(line, self.lines) {
                Some(rest) => rest,
                // It was cut off inside of its margin.
                None if !line.ends_with('\n') => "",
                None if line.trim_end().is_empty() => "\n",
                None => line,
            });
        }
        inner
    }

    /// A line that goes on in the next one is joined with it, and an empty one keeps the
    /// count of lines.
    fn unquoted(&mut self, text: &str, is_last: bool) -> String {
        let mut inner = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let body = line.trim_end_matches(['\n', '\r']);
            let soft = body.strip_suffix('=').filter(|_| body.len() < line.len());
            unquote(soft.unwrap_or(body), &mut self.begun);
            if soft.is_some() {
                self.joined += 1;
            } else if line.ends_with('\n') {
                let newlines = 1 + std::mem::take(&mut self.joined);
                self.end_line(newlines, &mut inner);
            }
        }
        if is_last {
            let newlines = std::mem::take(&mut self.joined);
            self.end_line(newlines, &mut inner);
        }
        inner
    }

    fn end_line(&mut self, newlines: usize, inner: &mut String) {
        // No character goes over the end of a line.
        inner.push_str(&String::from_utf8_lossy(&self.begun));
        inner.extend(std::iter::repeat_n('\n', newlines));
        self.begun.clear();
    }
}

/// A column that every heading of mpstat's table of percents has.
pub(super) const MPSTAT_COLUMN: &str = "%idle";

/// `text` without its margin, if it has one.
pub(super) fn without(text: &str) -> Cow<'_, str> {
    Margin::of(text).take_off(text, true)
}

/// Whether all lines have it that are not empty; the last may be cut off.
fn is_margin(shape: AfterMargin, text: &str) -> bool {
    let mut lines = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end().is_empty() {
            continue;
        }
        if shape(line, index + 1).is_none() {
            return lines >= MIN_LINES && !line.ends_with('\n');
        }
        lines += 1;
    }
    lines >= MIN_LINES
}

/// Whether it is the first column of a table: what the first heading has.
fn is_column(shape: AfterMargin, text: &str) -> bool {
    let heading = text.split_inclusive('\n').enumerate().find_map(|(index, line)| {
        let is_heading = memchr::memmem::find(line.as_bytes(), MPSTAT_COLUMN.as_bytes());
        is_heading.and_then(|_| shape(line, index + 1))
    });
    heading.is_some_and(is_mpstat_heading)
}

/// Whether the rest of a line behind a clock is that of a heading of mpstat whose first
/// column is the clock: `  PM  CPU    %usr ...`.
fn is_mpstat_heading(rest: &str) -> bool {
    let mut words = rest.split_ascii_whitespace();
    let is_half_day = |word: &str| !word.contains([':', '[']) && word.len() <= 4;
    match words.next() {
        Some("CPU") => true,
        Some(half) => is_half_day(half) && words.next() == Some("CPU"),
        None => false,
    }
}

/// `12:34:56 ` and `00:00:01.123456 `, as ts writes it.
fn after_clock(line: &str, _: usize) -> Option<&str> {
    let bytes = line.as_bytes();
    let colons = bytes.get(2) == Some(&b':') && bytes.get(5) == Some(&b':');
    let digits = [0, 1, 3, 4, 6, 7];
    if !colons || !digits.iter().all(|at| bytes.get(*at).is_some_and(u8::is_ascii_digit)) {
        return None;
    }
    let rest = line[8..].trim_start_matches(|char: char| char.is_ascii_digit() || char == '.');
    behind_blank(rest)
}

/// `1700000000.123456 `
fn after_epoch(line: &str, _: usize) -> Option<&str> {
    let (seconds, rest) = line.split_once('.')?;
    let is_now = seconds.len() == 10 && seconds.bytes().all(|byte| byte.is_ascii_digit());
    let behind = rest.trim_start_matches(|char: char| char.is_ascii_digit());
    let decimals = rest.len() - behind.len();
    if is_now && (3..=9).contains(&decimals) { behind_blank(behind) } else { None }
}

/// `     1\t`, as `cat -n` writes it.
fn after_number(line: &str, number: usize) -> Option<&str> {
    let (written, rest) = line.trim_start_matches(' ').split_once('\t')?;
    (written.parse::<usize>() == Ok(number)).then_some(rest)
}

/// `build\tRun bench\t2024-01-02T12:34:56.1234567Z `, as GitHub's `gh` writes it.
fn after_job(line: &str, _: usize) -> Option<&str> {
    let (_, rest) = line.split_once('\t')?;
    let (_, rest) = rest.split_once('\t')?;
    after_date(rest.strip_prefix('\u{feff}').unwrap_or(rest))
}

fn behind_blank(rest: &str) -> Option<&str> {
    if rest.starts_with(['\n', '\r']) { Some(rest) } else { rest.strip_prefix([' ', '\t']) }
}

/// Source: RFC 2045, 6.7.
fn is_quoted_printable(text: &str) -> bool {
    let head = &text.as_bytes()[..text.len().min(64 * 1024)];
    memchr::memmem::find(head, b"=3D").is_some()
        && [&b"ncoding: quoted-printable"[..], b"NCODING: QUOTED-PRINTABLE"]
            .iter()
            .any(|header| memchr::memmem::find(head, header).is_some())
}

/// Adds what a line means, without its end.
fn unquote(line: &str, bytes: &mut Vec<u8>) {
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('=') {
        bytes.extend(before.as_bytes());
        match behind.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok()) {
            // A code makes no line of its own.
            Some(byte) if byte != b'\n' && byte != b'\r' => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(b'=');
                rest = behind;
            }
        }
    }
    bytes.extend(rest.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_taken_off_where_all_lines_have_one() {
        for (text, inner) in [
            ("12:34:56 a\n\n12:34:57 b\n", "a\n\nb\n"),
            ("00:00:00.123456 a\n00:00:01.000000   b\n12:3", "a\n  b\n"),
            ("1700000000.123456 a\n1700000000.123457 b\n", "a\nb\n"),
            ("     1\ta\n     2\tb\n", "a\nb\n"),
            (
                "job\tRun it\t\u{feff}2024-01-02T12:34:56.1234567Z a\njob\tRun it\t2024-01-02T12:34:56.1234567Z b\n",
                "a\nb\n",
            ),
        ] {
            assert_eq!(without(text), inner, "{text:?}");
        }
        for text in
            ["12:34:56 a\n", "12:34:56 a\nb\n", "1\ta\n3\tb\n", "1700000000 a\n1700000000 b\n"]
        {
            assert_eq!(without(text), text, "{text:?}");
        }
    }

    #[test]
    fn a_clock_that_a_heading_has_is_a_column() {
        let heading = "     CPU    %usr   %nice    %sys %iowait   %idle\n";
        let row = "     all    0.00   92.50    7.00    0.00    0.50\n";
        for half in ["", " AM", " PM"] {
            let own = format!("03:35:56{half}{heading}03:35:57{half}{row}03:35:58{half}{row}");
            assert_eq!(without(&own), own);
            let margin = own.lines().map(|line| format!("12:34:56 {line}\n")).collect::<String>();
            assert_eq!(without(&margin), own);
        }
        // No column of the heading's, or no heading.
        let average = format!("12:34:56 Average:{heading}12:34:56 Average:{row}");
        assert_eq!(without(&average), format!("Average:{heading}Average:{row}"));
        let rows = format!("12:34:56{row}").repeat(2);
        assert_eq!(without(&rows), row.repeat(2).replace("     all", "    all"));
    }

    #[test]
    fn mails_are_decoded_and_lines_keep_their_numbers() {
        let text =
            "Content-Transfer-Encoding: quoted-printable\n\nruns=3D1 of=\n 2=20\n100 =C2=B5s\n";
        assert_eq!(
            without(text),
            "Content-Transfer-Encoding: quoted-printable\n\nruns=1 of 2 \n\n100 \u{b5}s\n"
        );
        assert_eq!(without("a=3D1\nb=3D2\n"), "a=3D1\nb=3D2\n");
    }

    /// What is left of `text`, of which a line is given at a time.
    fn line_by_line(margin: &mut Margin, text: &str) -> String {
        let mut lines = text.split_inclusive('\n').peekable();
        let mut inner = String::new();
        while let Some(line) = lines.next() {
            inner.push_str(&margin.take_off(line, lines.peek().is_none()));
        }
        inner
    }

    #[test]
    fn a_margin_is_taken_off_line_by_line() {
        for text in [
            "12:34:56 a\n\n12:34:57 b\n12:3",
            "     1\ta\n     2\tb\n     3\tc",
            "Content-Transfer-Encoding: quoted-printable\n\nruns=3D1 of=\n 2=C2=\n=B5s\nend=\n",
            "no margin\n",
        ] {
            assert_eq!(line_by_line(&mut Margin::of(text), text), without(text), "{text:?}");
        }
        // Lines behind the first ones may have none.
        let mut margin = Margin::of("12:34:56 a\n12:34:57 b\n");
        assert_eq!(line_by_line(&mut margin, "12:34:56 a\nb\n12:34:57 c\n"), "a\nb\nc\n");
    }
}
