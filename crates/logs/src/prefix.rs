//! What quoting, loggers and time stamps put before a line.

use super::near;

/// Every line of GitHub's logs may begin with one.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// The line behind its spaces and tabs.
#[inline]
pub(super) fn without_indent(line: &str) -> &str {
    if line.as_bytes().first().is_some_and(u8::is_ascii_graphic) {
        return line;
    }
    // Tables are indented by many.
    let at = near::indent(line.as_bytes());
    let indent = line.as_bytes()[at..].iter().position(|byte| *byte != b' ' && *byte != b'\t');
    &line[indent.map_or(line.len(), |indent| at + indent)..]
}

/// The line without marks of quoting, stamps of time and names of loggers.
pub(super) fn without_prefix(line: &str) -> &str {
    let (body, indent) = body_of(line);
    &line[line.len() - body.len() - indent..]
}

/// The line without what surrounds it, and how far it is indented.
#[inline]
pub(super) fn body_of(line: &str) -> (&str, usize) {
    let mut rest = line;
    loop {
        let body = without_indent(rest);
        let next = match body.as_bytes().first() {
            Some(b'>') => after_quote(&body[1..]),
            // A mail on a page of the web.
            Some(b'&') => body.strip_prefix("&gt;").and_then(after_quote),
            Some(b'[') => after_brackets(body),
            Some(b'0'..=b'9') if may_be_stamp(body) => {
                after_date(body).or_else(|| after_address(body))
            }
            Some(b'A'..=b'Z') if body.as_bytes().get(3) == Some(&b' ') => {
                after_syslog(body).or_else(|| after_container(body))
            }
            Some(b'A'..=b'Z' | b'a'..=b'z') => after_container(body),
            Some(0xef) => body.strip_prefix(BYTE_ORDER_MARK),
            _ => None,
        };
        match next {
            Some(next) => rest = next,
            None => return (body, rest.len() - body.len()),
        }
    }
}

/// Whether a line that begins with a digit may begin with a date or an address: most begin
/// with a number.
#[inline]
fn may_be_stamp(line: &str) -> bool {
    let (few, behind) = (line.as_bytes().get(1..4), line.as_bytes().get(4));
    matches!(behind, Some(b'-' | b'/')) || few.is_some_and(|few| few.contains(&b'.'))
}

/// What stands behind a mark of quoting.
fn after_quote(rest: &str) -> Option<&str> {
    let quoted = rest.is_empty() || rest.starts_with(['>', '&', ' ', '\t']);
    quoted.then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// `[  247.919034] `, `[12:34:56] `, `[2024-01-02 12:34:56] `, `[stdout] `,
/// and Open MPI's `[1,0]<stdout>:`.
#[inline(never)]
fn after_brackets(line: &str) -> Option<&str> {
    let end = near::find(b']', &line.as_bytes()[..line.len().min(42)])?;
    let (inner, rest) = (&line[1..end], &line[end + 1..]);
    if let Some(rest) = rest.strip_prefix("<stdout>:").or_else(|| rest.strip_prefix("<stderr>:")) {
        return Some(rest);
    }
    let streams = ["stdout", "stderr", "output"];
    if streams.iter().any(|stream| inner.eq_ignore_ascii_case(stream)) || inner.starts_with("pod/")
    {
        return rest.strip_prefix(' ');
    }
    let bytes = inner.as_bytes();
    // Journals are full of these: `contains` and `split_once` take longer.
    let of_time = bytes.iter().all(|byte| {
        matches!(byte, b'0'..=b'9' | b' ' | b':' | b'.' | b',' | b'-' | b'+' | b'T' | b'Z' | b'/')
    });
    if !of_time {
        return None;
    }
    let colons = bytes.iter().filter(|byte| **byte == b':').count();
    let of_kernel = bytes.iter().position(|byte| *byte == b'.').is_some_and(|point| {
        let (seconds, micros) = (bytes[..point].trim_ascii(), &bytes[point + 1..]);
        micros.len() >= 6
            && micros.iter().all(u8::is_ascii_digit)
            && seconds.iter().all(u8::is_ascii_digit)
            && !seconds.is_empty()
    });
    (colons >= 2 || of_kernel).then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// `2024-01-02T12:34:56.789Z `, with a logger's words behind it.
#[inline(never)]
pub(super) fn after_date(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    let date = is(4, b"-/")
        && (0..4).all(digit)
        && digit(5)
        && digit(6)
        && is(7, b"-/")
        && digit(8)
        && digit(9)
        && is(10, b"T ")
        && digit(11)
        && digit(12)
        && is(13, b":")
        && digit(14)
        && digit(15)
        && is(16, b":");
    if !date {
        return None;
    }
    let rest = line[17..]
        .trim_start_matches(|char: char| char.is_ascii_digit() || matches!(char, '.' | ',' | 'Z'));
    let zone = rest
        .strip_prefix(['+', '-'])
        .map(|zone| zone.trim_start_matches(|char: char| char.is_ascii_digit() || char == ':'));
    let rest = zone.unwrap_or(rest);
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    if !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return None;
    }
    let plain = rest.strip_prefix(' ').unwrap_or(rest);
    Some(after_level(rest).or_else(|| after_tag(rest)).unwrap_or(plain))
}

/// Avocado's `utils   L0123 INFO | `.
fn after_level(rest: &str) -> Option<&str> {
    ["DEBUG| ", "INFO | ", "WARNI| ", "ERROR| "].iter().find_map(|level| {
        let at = memchr::memmem::find(&rest.as_bytes()[..rest.len().min(64)], level.as_bytes())?;
        Some(&rest[at + level.len()..])
    })
}

/// pdsh's `10.0.0.11: `.
#[inline(never)]
fn after_address(line: &str) -> Option<&str> {
    // Most lines that begin with a digit are none.
    if near::count_of_sixteen(b'.', line.as_bytes()) < 3 {
        return None;
    }
    let in_address = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = line.as_bytes().iter().take(16).position(|byte| !in_address(byte))?;
    let (address, rest) = (&line[..end], line[end..].strip_prefix(':')?);
    let parts = address.split('.').filter(|part| part.parse::<u8>().is_ok()).count();
    (parts == 4 && address.split('.').count() == 4 && rest.starts_with([' ', '\t']))
        .then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// Docker Compose's `bench-1  | `.
fn after_container(line: &str) -> Option<&str> {
    let head = &line.as_bytes()[..line.len().min(48)];
    // Most first words have no number at their end.
    let end = near::find(b' ', head)?;
    if !end.checked_sub(1).is_some_and(|last| head[last].is_ascii_digit()) {
        return None;
    }
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let bar = end + head[end..].iter().position(|byte| *byte != b' ')?;
    if head[bar] != b'|' || !head[..end].iter().all(in_name) {
        return None;
    }
    let (service, number) = line[..end].rsplit_once(['-', '_'])?;
    let is_name = !service.is_empty()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &line[bar + 1..];
    (is_name && (rest.is_empty() || rest.starts_with(' ')))
        .then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// `Jan  2 12:34:56 host tag[123]: `, or `Jan 02 12:34:56 ` as ts writes it.
#[inline(never)]
fn after_syslog(line: &str) -> Option<&str> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let bytes = line.as_bytes();
    let time = bytes.len() > 16
        && bytes[3] == b' '
        && (bytes[4] == b' ' || bytes[4].is_ascii_digit())
        && bytes[5].is_ascii_digit()
        && bytes[6] == b' '
        && bytes[9] == b':'
        && bytes[12] == b':'
        && matches!(bytes[15], b' ' | b'.');
    if !time || !MONTHS.iter().any(|month| line.starts_with(month)) {
        return None;
    }
    let rest = &line[15..];
    let fraction = rest.strip_prefix('.').map(|rest| rest.trim_start_matches(is_digit));
    let rest = fraction.unwrap_or(rest);
    if !rest.starts_with(' ') {
        return None;
    }
    after_tag(rest).or_else(|| rest.strip_prefix(' '))
}

fn is_digit(char: char) -> bool {
    char.is_ascii_digit()
}

/// ` host tag[123]: `, as syslog and journalctl write it. Few tags have no
/// process: any two words with a colon may be a tool's own.
fn after_tag(rest: &str) -> Option<&str> {
    const WITHOUT_PROCESS: [&str; 4] = ["kernel", "root", "systemd", "cloud-init"];
    let rest = rest.strip_prefix(' ')?;
    let (host, rest) = rest.split_once(' ')?;
    let at = rest.find(": ").or_else(|| rest.ends_with(':').then(|| rest.len() - 1))?;
    let (tag, rest) = (&rest[..at], &rest[at + 1..]);
    let is_name = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/()@".contains(&byte))
    };
    let name = match tag.strip_suffix(']').and_then(|tag| tag.split_once('[')) {
        Some((name, pid)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) => return None,
        None if WITHOUT_PROCESS.contains(&tag) => tag,
        None => return None,
    };
    (is_name(host) && is_name(name)).then(|| rest.strip_prefix(' ').unwrap_or(rest))
}
