//! Holders: shells that make something in the kernel, print a line once it is made, and
//! keep it until their stdin ends. So it goes with vmlab, however that ends.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::owner::Owner;

/// What a holder prints once everything is made.
pub(crate) const MADE: &str = "made";

/// Starts `command` as a holder with `owner`'s mark.
pub(crate) fn spawn(command: &mut Command, owner: &Owner) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    owner.apply(command);
    command.spawn()
}

/// The first line that a holder prints; empty if it ends without one.
pub(crate) fn first_line(holder: &mut Child) -> io::Result<String> {
    let mut line = String::new();
    if let Some(stdout) = holder.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    Ok(line.trim().to_owned())
}

/// What a holder that failed printed to stderr, as one line.
pub(crate) fn complaint(holder: &mut Child) -> io::Result<String> {
    let mut text = String::new();
    if let Some(stderr) = &mut holder.stderr {
        stderr.read_to_string(&mut text)?;
    }
    Ok(text.trim().replace('\n', "; "))
}
