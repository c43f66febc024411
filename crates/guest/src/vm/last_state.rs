//! What a guest's devices were when it hung or panicked: written down before its QEMU is
//! ended, for whoever wants to know why.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::monitor::{MonitorError, Qmp};
use super::protocol::{self, QmpRefusal};
use super::{GuestFailure, OwnedVm, QMP_LIMIT};
use crate::Cancel;
use crate::capture::{CaptureOptions, capture};

/// Most that is kept of a guest, bytes.
const MAX_BYTES: usize = 16 << 20;

/// How long it may take: memory is read and thrown away, a second a GiB or so.
const LIMIT: Duration = Duration::from_secs(10);

impl OwnedVm {
    /// Writes the devices' state to the file `path`, should the guest hang or panic, within
    /// 10 s and 16 MiB; the result stands at the console's end. Not of a domain of
    /// libvirt's.
    ///
    /// # Errors
    /// Only the failures of the VM itself.
    pub fn keep_last_state(&mut self, path: PathBuf, cancel: &Cancel) -> Result<(), GuestFailure> {
        if self.process.domain().is_some() {
            return Ok(());
        }
        // QEMU ends a VM that has panicked, else, with a device that tells it so or without
        // one: a kernel that has panicked resets its machine, which is a shutdown here.
        // Before 6.0 it can't be asked not to.
        let until = Instant::now() + QMP_LIMIT;
        let actions = json!({ "panic": "pause", "shutdown": "pause" });
        drop(self.qmp("set-action", Some(actions), until, cancel)?);
        self.last_state = Some(path);
        Ok(())
    }

    /// Lets the QEMU end whose guest has shut down, or panicked and reset.
    pub(super) fn after_shutdown(&mut self) {
        if self.last_state.is_none() {
            // It ends by itself.
            return;
        }
        if self.console.panic_line().is_some() {
            self.note_state();
        }
        self.last_state = None;
        self.qmp.send(&protocol::request("quit", None, None));
    }

    /// Writes it down, once.
    pub(super) fn note_state(&mut self) {
        let Some(path) = self.last_state.take() else { return };
        // The failure under way ends every question else.
        let ended = self.ended.take();
        let said = match self.write_state(&path) {
            Ok(bytes) => format!("the state of its devices was kept, {bytes} bytes"),
            Err(why) => format!("the state of its devices could not be kept: {why}"),
        };
        self.ended = ended.or(self.ended.take());
        self.console.note(&said);
    }

    fn write_state(&mut self, path: &Path) -> Result<usize, String> {
        let options = CaptureOptions {
            devices: true,
            stream: None,
            core: None,
            // QEMU says of it then that it ran.
            live_limit: LIMIT / 2,
            limit: Some(LIMIT),
            end: false,
        };
        let captured = capture(self, options, &Cancel::new()).map_err(|error| error.to_string())?;
        let stream = captured.stream.ok_or("QEMU told none")?;
        let bytes = stream.bytes();
        if bytes.len() > MAX_BYTES {
            return Err(format!("it has {} bytes, {MAX_BYTES} are kept at most", bytes.len()));
        }
        std::fs::write(path, bytes).map_err(|error: io::Error| error.to_string())?;
        Ok(bytes.len())
    }

    fn silent(command: &str) -> MonitorError {
        MonitorError::Silent { path: "of the trial".into(), command: command.to_owned() }
    }

    fn told(
        command: &str,
        answer: Result<Option<Result<Value, QmpRefusal>>, GuestFailure>,
    ) -> Result<Value, MonitorError> {
        match answer {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(QmpRefusal { desc, .. }))) => {
                Err(MonitorError::Refused { command: command.to_owned(), detail: desc })
            }
            Ok(None) | Err(_) => Err(Self::silent(command)),
        }
    }
}

impl Qmp for OwnedVm {
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        let arguments = (!arguments.is_null()).then_some(arguments);
        let until = Instant::now() + QMP_LIMIT;
        let answer = self.qmp_by(command, arguments, until, &Cancel::new());
        Self::told(command, answer)
    }

    fn give(&mut self, name: &str, fd: OwnedFd) -> Result<(), MonitorError> {
        let id = self.next_question();
        let arguments = json!({ "fdname": name });
        let request = protocol::request("getfd", Some(arguments), Some(id));
        self.qmp.send_with(&request, fd.as_fd()).map_err(MonitorError::Give)?;
        let until = Instant::now() + QMP_LIMIT;
        let answer = self.qmp_answer_by(id, until, &Cancel::new());
        Self::told("getfd", answer).map(drop)
    }

    fn stood_still_us(&mut self) -> Option<u64> {
        None
    }
}
