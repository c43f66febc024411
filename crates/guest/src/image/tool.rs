//! Runs the programs that build an image, with their output by lines.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::cancel::CANCEL_CHECK;
use crate::{Cancel, Cancellation};

/// How many of the last lines are kept for an error's text.
const TAIL_LINES: usize = 40;

/// Error type for [`run`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("{program} is not installed")]
    Missing { program: String },
    #[error("Cannot run {program}")]
    Run {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} failed ({status}):\n{tail}")]
    Failed { program: String, status: ExitStatus, tail: String },
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

/// Runs `command` to its end, with stdout and stderr together going to
/// `on_line` line by line. On cancel its whole process group is killed.
pub(crate) fn run(
    mut command: Command,
    on_line: &mut dyn FnMut(&str),
    cancel: &Cancel,
) -> Result<(), ToolError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source: io::Error| match is_missing(&program, &source) {
        true => ToolError::Missing { program: program.clone() },
        false => ToolError::Run { program: program.clone(), source },
    };
    let (mut output, writer) = io::pipe().map_err(failed)?;
    let copy = writer.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(writer).stderr(copy).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the pipe's writing end: without this no end is seen.
    drop(command);

    let mut tail: Vec<String> = Vec::new();
    let mut pending = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        if let Err(cancelled) = cancel.check() {
            let group = rustix::process::Pid::from_child(&child);
            // It may have ended just now; then there is nothing to kill.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            return Err(cancelled.into());
        }
        let mut polled = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(CANCEL_CHECK).expect("a short time fits");
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let read = output.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        pending.extend_from_slice(&buffer[..read]);
        while let Some(end) = pending.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if line.is_empty() {
                continue;
            }
            on_line(line);
            if tail.len() == TAIL_LINES {
                tail.remove(0);
            }
            tail.push(line.to_owned());
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(ToolError::Failed { program, status, tail: tail.join("\n") })
    }
}

/// Whether `program` is nowhere. A folder of PATH that this user may not search makes
/// that a refusal: execvp(3).
fn is_missing(program: &str, error: &io::Error) -> bool {
    let found = |path: std::ffi::OsString| {
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    };
    match error.kind() {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::PermissionDenied => {
            !program.contains('/') && !std::env::var_os("PATH").is_some_and(found)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_as_they_are_written_and_failures_keep_the_tail() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; exit 3"]);
        let mut lines = Vec::new();
        let error = run(shell, &mut |line| lines.push(line.to_owned()), &Cancel::new());
        assert_eq!(lines, ["one", "two"]);
        let text = error.unwrap_err().to_string();
        assert_eq!(text, "sh failed (exit status: 3):\none\ntwo");
    }

    #[test]
    fn a_cancelled_tool_is_killed_with_its_children() {
        let cancel = Cancel::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo up; sleep 1000; echo never"]);
        let flag = cancel.clone();
        let result = run(shell, &mut |_| flag.cancel(), &cancel);
        assert!(matches!(result, Err(ToolError::Cancelled(_))));
    }

    #[test]
    fn a_missing_tool_is_named() {
        let error = run(Command::new("no-such-tool"), &mut |_| (), &Cancel::new()).unwrap_err();
        assert_eq!(error.to_string(), "no-such-tool is not installed");
    }
}
