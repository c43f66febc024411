//! What ssh says when it fails, told apart.
//!
//! ssh ends with status 255 whatever is the matter, so its words have to do.
//! Source: OpenSSH's `sshconnect.c`, `sshconnect2.c`, `clientloop.c`, `misc.c`.

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    HostKeyUnknown,
    HostKeyChanged,
    Denied,
    NoSuchHost,
    Unreachable,
    Other,
}

/// What stands in ssh's words, and what it means; the first that is found counts.
const MEANINGS: &[(&str, Refusal)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", Refusal::HostKeyChanged),
    ("Host key verification failed", Refusal::HostKeyUnknown),
    ("Permission denied", Refusal::Denied),
    ("Too many authentication failures", Refusal::Denied),
    ("no mutual signature", Refusal::Denied),
    ("Could not resolve hostname", Refusal::NoSuchHost),
    ("Connection refused", Refusal::Unreachable),
    ("No route to host", Refusal::Unreachable),
    ("Network is unreachable", Refusal::Unreachable),
    ("timed out", Refusal::Unreachable),
    ("Connection closed", Refusal::Unreachable),
    ("Connection reset", Refusal::Unreachable),
];

pub(crate) fn refusal(said: &str) -> Refusal {
    MEANINGS
        .iter()
        .find(|(words, _)| said.contains(words))
        .map_or(Refusal::Other, |(_, refusal)| *refusal)
}

/// ssh's last line that is no decoration, for an error of one line.
pub(crate) fn last_line(said: &str) -> String {
    let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
    said.lines().map(str::trim).rfind(is_text).unwrap_or("it said nothing").to_owned()
}
