//! TOML that a person wrote: the one reader of it, which says what is wrong by line.

use serde::de::DeserializeOwned;

use super::{FileProblems, LineProblem, MAX_BYTES};

/// Keys that say a format's version.
const VERSION_KEYS: [&str; 2] = ["vmlab", "version"];

/// Reads TOML of the file `file`. A key that the type refuses is named with the one that
/// was probably meant.
///
/// # Errors
/// [`FileProblems`] with the first thing that is wrong.
pub fn toml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileProblems> {
    let error = |line, message| FileProblems {
        file: file.to_owned(),
        problems: vec![LineProblem { line, message }],
    };
    if text.len() > MAX_BYTES {
        return Err(error(1, format!("The text is longer than {MAX_BYTES} bytes")));
    }
    toml::from_str(text).map_err(|cause| {
        let at = cause.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = message(cause.message().trim_end());
        error(
            line,
            match key_before(text, at) {
                Some(key) if message.starts_with("invalid ") => format!("{key}: {message}"),
                _ => message,
            },
        )
    })
}

/// The key whose value begins at byte `at`, where one stands before it.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?.trim_end().strip_suffix('=')?;
    let begins = before.rfind(['\n', ',', '{']).map_or(0, |separator| separator + 1);
    Some(before[begins..].trim()).filter(|key| !key.is_empty())
}

/// Rust's names of numbers, with words for people.
const NUMBERS: [(&str, &str); 8] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("i64", "a whole number"),
    ("f64", "a number"),
];

/// serde's words, with what to do.
fn message(cause: &str) -> String {
    if let Some(key) = VERSION_KEYS.iter().find(|key| cause == format!("missing field `{key}`")) {
        return format!("{cause}: begin the file with `{key} = 1`");
    }
    if let Some((found, number)) = cause.rsplit_once(", expected ")
        && let Some((_, words)) = NUMBERS.iter().find(|(name, _)| *name == number)
    {
        return format!("{found}, expected {words}");
    }
    if !cause.starts_with("unknown ") {
        return cause.to_owned();
    }
    let mut quoted = cause.split('`').skip(1).step_by(2);
    let near = quoted.next().and_then(|unknown| near(unknown, quoted));
    let said = match cause.strip_prefix("unknown field ") {
        Some(rest) => format!("Unknown key {rest}"),
        None => cause.to_owned(),
    };
    near.map_or_else(|| said.clone(), |near| format!("{said}; did you mean `{near}`?"))
}

/// The candidates, those that are most like `name` first.
#[must_use]
pub fn by_likeness<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    scored(name, candidates).into_iter().map(|(_, candidate)| candidate).collect()
}

/// The candidate that `name` was probably meant to be.
#[must_use]
pub fn near<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let best = scored(name, candidates).into_iter().next();
    best.filter(|(likeness, _)| *likeness > 0.75).map(|(_, candidate)| candidate.to_owned())
}

fn scored<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<(f64, &'a str)> {
    let score = |candidate: &'a str| (strsim::jaro_winkler(name, candidate), candidate);
    let mut scored: Vec<_> = candidates.map(score).collect();
    scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    scored
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WrittenFields {
        #[expect(dead_code)]
        vmlab: u32,
        #[expect(dead_code)]
        #[serde(default)]
        port: Vec<Port>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Port {
        #[expect(dead_code)]
        name: Option<String>,
        #[expect(dead_code)]
        socket: Option<String>,
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = toml::<WrittenFields>("sw.toml", text).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check("", "sw.toml:1: missing field `vmlab`: begin the file with `vmlab = 1`");
        check(
            "vmlab = 1\n\n[[port]]\nnam = 'a'\n",
            "sw.toml:4: Unknown key `nam`, expected `name` or `socket`; did you mean `name`?",
        );
        check(
            "vmlab = 1\nxyzzy = 2\n",
            "sw.toml:2: Unknown key `xyzzy`, expected `vmlab` or `port`",
        );
        check(
            "vmlab = 1\nport = 3\n",
            "sw.toml:2: port: invalid type: integer `3`, expected a sequence",
        );
        check(
            "vmlab = -1\n",
            "sw.toml:1: vmlab: invalid value: integer `-1`, expected a whole number from 0 to \
             4294967295",
        );
        check(
            "vmlab = 1\nport = [{ name = 'a', socket = 7 }]\n",
            "sw.toml:2: socket: invalid type: integer `7`, expected a string",
        );
        check(
            "vmlab = 1\nport = [8]\n",
            "sw.toml:2: invalid type: integer `8`, expected struct Port",
        );
        check("vmlab = 1\nvmlab = 2\n", "sw.toml:2: duplicate key");
        assert!(toml::<WrittenFields>("sw.toml", "vmlab = 1\n[[port]]\n").is_ok());
    }
}
