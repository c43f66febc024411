//! One copy of one test, in a process of its own.
//!
//! It says `ready`, waits for a line, runs, and says what it counted as JSON.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use super::counted::{CopyCount, NAME};
use super::{dhrystone, system, whetstone};
use crate::pace::for_seconds;

/// Runs as a copy; an error's text.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let [test, seconds, dir, rest @ ..] = words else {
        return Err(format!("{NAME} is called by unixbench"));
    };
    let seconds = seconds.parse().map_err(|_| format!("{seconds:?} is no number of seconds"))?;
    let say = |line: &str| -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    };
    if rest.is_empty() {
        // Started anew, not by itself.
        say("ready")
            .and_then(|()| io::stdin().lock().read_line(&mut String::new()).map(|_| ()))
            .map_err(|error| error.to_string())?;
    }
    let counted = measure(test, seconds, Path::new(dir), rest)
        .map_err(|error| format!("unixbench {test}: {error}"))?;
    let line = serde_json::to_string(&counted).map_err(|error| error.to_string())?;
    say(&line).map_err(|error| error.to_string())
}

fn measure(test: &str, seconds: f64, dir: &Path, rest: &[String]) -> io::Result<CopyCount> {
    match test {
        "dhrystone" => {
            let mut state = dhrystone::DhrystoneState::new();
            let done = for_seconds(seconds, |n| state.run(n));
            Ok(CopyCount::new(done, state.is_right()))
        }
        "whetstone" => {
            let first = whetstone::unit();
            let mut right = first.is_right();
            let done = for_seconds(seconds, |n| {
                for _ in 0..n {
                    right &= whetstone::unit() == first;
                }
            });
            let mut counted = CopyCount::new(done, right);
            counted.ops *= whetstone::INSTRUCTIONS;
            Ok(counted)
        }
        "execl" => system::execl(seconds, rest),
        "copy-1024" => system::copy(seconds, dir, 1024, 2000),
        "copy-256" => system::copy(seconds, dir, 256, 500),
        "copy-4096" => system::copy(seconds, dir, 4096, 8000),
        "pipe" => system::pipe(seconds),
        "context" => system::context(seconds),
        "spawn" => system::spawn(seconds),
        "shell-1" => system::shell(seconds, dir, 1),
        "shell-8" => system::shell(seconds, dir, 8),
        "syscall" => system::calls(seconds),
        other => Err(io::Error::other(format!("there is no test {other}"))),
    }
}
