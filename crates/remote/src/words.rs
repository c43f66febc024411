//! What ssh says when it fails, told apart.
//!
//! ssh ends with status 255 whatever is the matter, so its words have to do.
//! Source: OpenSSH's `sshconnect.c`, `sshconnect2.c`, `clientloop.c`, `misc.c`.

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    HostKeyUnknown,
    HostKeyChanged,
    Denied,
    NoSuchHost,
    Unreachable,
    Other,
}

/// What stands in ssh's words, and what it means; the first that is found counts.
const MEANINGS: &[(&str, ConnectionRefusal)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", ConnectionRefusal::HostKeyChanged),
    ("Host key verification failed", ConnectionRefusal::HostKeyUnknown),
    ("Permission denied", ConnectionRefusal::Denied),
    ("Too many authentication failures", ConnectionRefusal::Denied),
    ("no mutual signature", ConnectionRefusal::Denied),
    ("Could not resolve hostname", ConnectionRefusal::NoSuchHost),
    ("Connection refused", ConnectionRefusal::Unreachable),
    ("No route to host", ConnectionRefusal::Unreachable),
    ("Network is unreachable", ConnectionRefusal::Unreachable),
    ("timed out", ConnectionRefusal::Unreachable),
    ("Connection closed", ConnectionRefusal::Unreachable),
    ("Connection reset", ConnectionRefusal::Unreachable),
];

pub(crate) fn refusal(said: &str) -> ConnectionRefusal {
    MEANINGS
        .iter()
        .find(|(words, _)| said.contains(words))
        .map_or(ConnectionRefusal::Other, |(_, refusal)| *refusal)
}

/// ssh's last line that is no decoration, for an error of one line.
pub(crate) fn last_line(said: &str) -> String {
    let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
    said.lines().map(str::trim).rfind(is_text).unwrap_or("it said nothing").to_owned()
}
