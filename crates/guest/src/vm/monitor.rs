//! The monitor of a QEMU that outlives the process which started it.
//!
//! A [`OwnedVm`](super::Vm) ends with its owner; an emulated host does not. There
//! QEMU listens, and whoever has something to ask connects.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};

use super::channel::{AgentLine, Channel, ChannelBudget};
use super::protocol::{self, QmpMessage};
use super::{QMP_BUDGET, QMP_LIMIT};
use crate::libvirt::VirshError;

/// What QEMU calls the pipe for a core.
const CORE: &str = "vmlab-core";

/// Somebody who asks a QEMU, and hands it files.
pub trait Qmp {
    /// Runs one command; `arguments` may be null.
    ///
    /// # Errors
    /// [`MonitorError`], after at most 10 s where QEMU itself is asked.
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError>;

    /// Gives QEMU an open file, which it calls `name` until it has used it.
    ///
    /// # Errors
    /// [`MonitorError`].
    ///
    /// Source: QMP `getfd`.
    fn give(&mut self, name: &str, fd: OwnedFd) -> Result<(), MonitorError>;

    /// Begins to write memory as an ELF core into a pipe; the guest stands still meanwhile.
    ///
    /// # Errors
    /// [`MonitorError`]; [`MonitorError::Refused`] where QEMU writes none.
    ///
    /// Source: QMP `dump-guest-memory`.
    fn begin_core(&mut self, to: OwnedFd) -> Result<(), MonitorError> {
        self.give(CORE, to)?;
        let protocol = format!("fd:{CORE}");
        let arguments = json!({ "paging": false, "protocol": protocol, "detach": true });
        let begun = self.ask("dump-guest-memory", arguments);
        if let Err(MonitorError::Refused { .. }) = &begun {
            // The file is still QEMU's; one that has taken it knows it no more.
            let _ = self.ask("closefd", json!({ "fdname": CORE }));
        }
        begun.map(drop)
    }

    /// How that ended; `None` while it goes on.
    ///
    /// # Errors
    /// [`MonitorError`].
    ///
    /// Source: QMP `query-dump`.
    fn core_ended(&mut self) -> Result<Option<Result<(), String>>, MonitorError> {
        let told = self.ask("query-dump", Value::Null)?;
        Ok(match told["status"].as_str() {
            Some("active") => None,
            Some("completed") => Some(Ok(())),
            _ => Some(Err("QEMU gave it up".to_owned())),
        })
    }

    /// For how long the guest stood still since this was asked last, microseconds, if
    /// QEMU's own events tell: from `STOP` to `RESUME`.
    fn stood_still_us(&mut self) -> Option<u64>;
}

/// A connection to QEMU's monitor (QMP); QEMU serves one at a time.
#[derive(Debug)]
pub struct Monitor {
    path: PathBuf,
    channel: Channel,
    id: u64,
    /// When the guest was stopped, if it is.
    stopped_us: Option<u64>,
    /// How long it has stood still, once it went on.
    stood_still_us: Option<u64>,
}

/// Error type for [`Monitor`].
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// Nobody listens.
    #[error("No QEMU answers on {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// QEMU ended, or said nothing in time.
    #[error("QEMU's monitor {path} did not answer {command}")]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
    },
    /// It said more than any answer has.
    #[error(
        "QEMU's monitor {path} said more than {limit_bytes} bytes before it answered {command}"
    )]
    Flooded {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
        /// The budget.
        limit_bytes: u64,
    },
    /// virsh could not ask it.
    #[error(transparent)]
    Virsh(#[from] VirshError),
    /// A file could not be handed over.
    #[error("Cannot hand QEMU a file")]
    Give(#[source] io::Error),
    /// QEMU said no.
    #[error("QEMU refused {command}: {detail}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's words.
        detail: String,
    },
}

impl Monitor {
    /// Connects to the socket at `path`, which may be longer than a socket's
    /// path can be.
    ///
    /// # Errors
    /// [`MonitorError`], if nobody listens or answers there.
    pub fn connect(path: &Path) -> Result<Self, MonitorError> {
        let failed = |source| MonitorError::Connect { path: path.to_owned(), source };
        // The parent of a bare name is not a folder's name.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(failed)?;
        let name = path.file_name().unwrap_or_default();
        let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        let socket = UnixStream::connect(short).map_err(failed)?;
        Self::over(socket, path)
    }

    /// Speaks with a QEMU that is at the other end already; messages call it `path`.
    pub(crate) fn over(socket: UnixStream, path: &Path) -> Result<Self, MonitorError> {
        let failed = |source| MonitorError::Connect { path: path.to_owned(), source };
        let channel = Channel::new(socket, QMP_BUDGET).map_err(failed)?;
        let (stopped_us, stood_still_us) = (None, None);
        let mut monitor =
            Self { path: path.to_owned(), channel, id: 0, stopped_us, stood_still_us };
        monitor.ask("qmp_capabilities", Value::Null)?;
        Ok(monitor)
    }

    /// Runs one command; `arguments` may be null.
    ///
    /// # Errors
    /// [`MonitorError`], after at most 10 s.
    ///
    /// Source: QEMU `docs/interop/qmp-spec.rst`.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        self.ask_with(command, arguments, None)
    }

    fn ask_with(
        &mut self,
        command: &str,
        arguments: Value,
        fd: Option<OwnedFd>,
    ) -> Result<Value, MonitorError> {
        self.id += 1;
        self.channel.renew(QMP_BUDGET);
        let arguments = (!arguments.is_null()).then_some(arguments);
        let request = protocol::request(command, arguments, Some(self.id));
        match fd {
            None => self.channel.send(&request),
            Some(fd) => {
                self.channel.send_with(&request, fd.as_fd()).map_err(MonitorError::Give)?;
            }
        }
        let until = Instant::now() + QMP_LIMIT;
        loop {
            self.channel.fill();
            while let Some(line) = self.channel.next_line() {
                let AgentLine::Text(line) = line else { continue };
                let (id, result) = match protocol::parse_qmp(&line) {
                    Some(QmpMessage::Answer { id, result }) => (id, result),
                    Some(QmpMessage::Event { name, at_us, .. }) => {
                        self.note_event(&name, at_us);
                        continue;
                    }
                    Some(QmpMessage::Greeting) | None => continue,
                };
                if id == self.id {
                    return result.map_err(|refusal| MonitorError::Refused {
                        command: command.to_owned(),
                        detail: refusal.desc,
                    });
                }
            }
            if let Some(ChannelBudget { total_bytes: limit_bytes, .. }) = self.channel.overrun() {
                let (path, command) = (self.path.clone(), command.to_owned());
                return Err(MonitorError::Flooded { path, command, limit_bytes });
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.channel.is_closed() || left.is_zero() {
                let (path, command) = (self.path.clone(), command.to_owned());
                return Err(MonitorError::Silent { path, command });
            }
            self.wait(left);
            self.channel.flush();
        }
    }

    fn note_event(&mut self, name: &str, at_us: u64) {
        match name {
            "STOP" => self.stopped_us = Some(at_us),
            "RESUME" => {
                if let Some(since) = self.stopped_us.take() {
                    let still = self.stood_still_us.get_or_insert(0);
                    *still = still.saturating_add(at_us.saturating_sub(since));
                }
            }
            _ => {}
        }
    }

    /// The process at the other end: QEMU's, if it listens itself.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(self.channel.fd()).ok()?;
        Some(peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// What the human monitor prints for `line`.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn ask_human(&mut self, line: &str) -> Result<String, MonitorError> {
        let answer = self.ask("human-monitor-command", json!({ "command-line": line }))?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    fn wait(&self, limit: Duration) {
        let wanted = if self.channel.wants_to_send() {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let mut polled = [PollFd::from_borrowed_fd(self.channel.fd(), wanted)];
        let timeout = Timespec::try_from(limit).expect("limits are far below 2^63 s");
        // Whatever ended the wait, the caller looks at everything.
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}

impl Qmp for Monitor {
    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        Monitor::ask(self, command, arguments)
    }

    fn give(&mut self, name: &str, fd: OwnedFd) -> Result<(), MonitorError> {
        self.ask_with("getfd", json!({ "fdname": name }), Some(fd)).map(drop)
    }

    fn stood_still_us(&mut self) -> Option<u64> {
        self.stood_still_us.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listening_qemu_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let deep = folder.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let here = File::open(&deep).unwrap();
        let listener =
            UnixListener::bind(format!("/proc/self/fd/{}/qmp", here.as_raw_fd())).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(b"{\"QMP\": {}}\n").unwrap();
            let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
            for answer in [
                r#"{"return": {}, "id": 1}"#,
                "{\"event\": \"STOP\"}\n{\"return\": \"two\\r\\n\", \"id\": 2}",
                r#"{"error": {"class": "GenericError", "desc": "not now"}, "id": 3}"#,
            ] {
                lines.next().unwrap().unwrap();
                socket.write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
        let mut monitor = Monitor::connect(&deep.join("qmp")).unwrap();
        assert_eq!(monitor.ask_human("info version").unwrap(), "two\r\n");
        let refused = monitor.ask("stop", Value::Null).unwrap_err();
        assert_eq!(refused.to_string(), "QEMU refused stop: not now");
        server.join().unwrap();
        let gone = monitor.ask("quit", Value::Null).unwrap_err();
        assert!(matches!(gone, MonitorError::Silent { .. }), "{gone}");
        assert!(matches!(
            Monitor::connect(&folder.path().join("none")),
            Err(MonitorError::Connect { .. })
        ));
    }

    #[test]
    fn a_monitor_without_end_is_left() {
        // What a guest makes QEMU say again and again; and what is no line at all.
        let event = json!({ "event": "GUEST_CRASHLOADED", "data": "x".repeat(64 << 10) });
        for piece in [format!("{event}\n").into_bytes(), vec![b'x'; 64 << 10]] {
            let (mut qemu, near) = UnixStream::pair().unwrap();
            let server = std::thread::spawn(move || {
                let first = b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n";
                qemu.write_all(first).unwrap();
                let mut lines = BufReader::new(qemu.try_clone().unwrap()).lines();
                lines.next().unwrap().unwrap();
                lines.next().unwrap().unwrap();
                // Until nobody is left to read it.
                while qemu.write_all(&piece).is_ok() {}
            });
            let mut monitor = Monitor::over(near, Path::new("qmp")).unwrap();
            let error = monitor.ask("query-status", Value::Null).unwrap_err();
            assert_eq!(
                error.to_string(),
                "QEMU's monitor qmp said more than 67108864 bytes before it answered query-status"
            );
            drop(monitor);
            server.join().unwrap();
        }
    }
}
