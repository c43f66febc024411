//! The program `vmlab-probe`: prints what [`probe::cli`] says.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = probe::cli::run(std::env::args().skip(1).collect());
    // A reader that went away is no reason to panic; the exit code still tells.
    let _ = std::io::stdout().write_all(ended.stdout.as_bytes());
    let _ = std::io::stderr().write_all(ended.stderr.as_bytes());
    ExitCode::from(ended.code)
}
