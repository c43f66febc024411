//! What an installed QEMU can do, from itself: a machine without anything is
//! started, asked, and ended.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use vmconfig::Accel;
use vmconfig::offers::{QMP_COMMANDS, QMP_EXPANSION, all_features};

use super::monitor::{Monitor, MonitorError};

/// Error type for [`ask_offers`].
#[derive(Debug, thiserror::Error)]
pub enum AskOffersError {
    /// The program can't be run.
    #[error("Cannot run {program}")]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no QEMU, or one that does not answer.
    #[error("{program} does not say what it can do")]
    Ask {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: MonitorError,
    },
}

/// A process that does not outlive its owner.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks a QEMU (a path, or a name in PATH) by QMP what it can do, under KVM where it
/// can have that: the answers to [`QMP_COMMANDS`] and [`QMP_EXPANSION`] as it prints them,
/// one a line, for [`vmconfig::offers::read`].
///
/// # Errors
/// [`AskOffersError`]: no such program, or one that does not answer within 10 s.
///
/// Source: QEMU QMP Reference Manual.
pub fn ask_offers(program: &Path) -> Result<String, AskOffersError> {
    let program = program.to_owned();
    let failed = |source| AskOffersError::Run { program: program.clone(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let copy = theirs.try_clone().map_err(failed)?;
    let mut command = Command::new(&program);
    command
        .args(["-machine", "none,accel=kvm:tcg", "-nodefaults", "-display", "none", "-S"])
        .args(["-qmp", "stdio"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(OwnedFd::from(copy)))
        .stderr(Stdio::null());
    let _child = OwnedChild(command.spawn().map_err(failed)?);
    // The command holds the socket's other end: without this no end is seen.
    drop(command);
    let refused = |source| AskOffersError::Ask { program: program.clone(), source };
    let mut monitor = Monitor::over(ours, &program).map_err(refused)?;
    let mut text = String::new();
    let mut told = |answer: &Value| {
        text.push_str(&json!({ "return": answer }).to_string());
        text.push('\n');
    };
    let mut accel = Accel::Tcg;
    for one in QMP_COMMANDS {
        let answer = monitor.ask(one, Value::Null).map_err(refused)?;
        if answer["enabled"] == true {
            accel = Accel::Kvm;
        }
        told(&answer);
    }
    // Not every architecture has it.
    match monitor.ask(QMP_EXPANSION, all_features(accel)) {
        Ok(answer) => told(&answer),
        Err(MonitorError::Refused { .. }) => {}
        Err(error) => return Err(refused(error)),
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_qemu_is_told() {
        let check = |program: &str, expected: &str| {
            let error = ask_offers(Path::new(program)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check("/nowhere/qemu", "Cannot run /nowhere/qemu");
        check("true", "true does not say what it can do");
    }
}
