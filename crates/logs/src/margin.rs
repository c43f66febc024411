//! What stands before every line of a log alike: a clock, a line's number, the
//! names of a job.
//!
//! A tool prints such words too, so they are a margin only where all lines have
//! one.

use std::borrow::Cow;

use super::prefix::after_date;

/// Fewer lines prove nothing.
const MIN_LINES: usize = 2;

/// Returns the rest of a line behind its margin, if it has one; lines count from 1.
type AfterMargin = fn(line: &str, number: usize) -> Option<&str>;

const SHAPES: [AfterMargin; 4] = [after_clock, after_epoch, after_number, after_job];

/// `text` without its margin, if it has one. Mails whose header says that they
/// are quoted-printable are decoded.
pub(super) fn without(text: &str) -> Cow<'_, str> {
    if let Some(shape) = SHAPES.into_iter().find(|shape| is_margin(*shape, text)) {
        let mut inner = String::with_capacity(text.len());
        for (index, line) in text.split_inclusive('\n').enumerate() {
            inner.push_str(shape(line, index + 1).unwrap_or(if line.ends_with('\n') {
                "\n"
            } else {
                ""
            }));
        }
        return Cow::Owned(inner);
    }
    if is_quoted_printable(text) { Cow::Owned(unquoted(text)) } else { Cow::Borrowed(text) }
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

/// A line that goes on in the next one is joined with it, and an empty one
/// keeps the count of lines.
fn unquoted(text: &str) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    let mut joined = 0;
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\n', '\r']);
        let soft = body.strip_suffix('=').filter(|_| body.len() < line.len());
        let mut rest = soft.unwrap_or(body);
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
        if soft.is_some() {
            joined += 1;
        } else if line.ends_with('\n') {
            bytes.extend(std::iter::repeat_n(b'\n', 1 + std::mem::take(&mut joined)));
        }
    }
    bytes.extend(std::iter::repeat_n(b'\n', joined));
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
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
    fn mails_are_decoded_and_lines_keep_their_numbers() {
        let text =
            "Content-Transfer-Encoding: quoted-printable\n\nruns=3D1 of=\n 2=20\n100 =C2=B5s\n";
        assert_eq!(
            without(text),
            "Content-Transfer-Encoding: quoted-printable\n\nruns=1 of 2 \n\n100 \u{b5}s\n"
        );
        assert_eq!(without("a=3D1\nb=3D2\n"), "a=3D1\nb=3D2\n");
    }
}
