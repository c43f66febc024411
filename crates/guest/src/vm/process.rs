//! The QEMU process: what it prints, and its end.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// How much of what QEMU prints is kept.
const KEPT_BYTES: usize = 16 * 1024;

/// How long the end of QEMU's output may take once QEMU has ended.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// What QEMU printed last.
#[derive(Debug, Default)]
struct Printed {
    bytes: Vec<u8>,
    ended: bool,
}

/// A running QEMU. Killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pidfd: OwnedFd,
    printed: Arc<(Mutex<Printed>, Condvar)>,
}

impl Process {
    /// Starts `program` in a process group of its own.
    pub(super) fn spawn(
        program: &Path,
        args: &[String],
        env: &[(String, String)],
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        let mut child = command.spawn()?;
        let pidfd = match rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let printed = Arc::new((Mutex::new(Printed::default()), Condvar::new()));
        let for_reader = Arc::clone(&printed);
        std::thread::spawn(move || keep_last(reader, &for_reader));
        Ok(Self { child, pidfd, printed })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Readable once the process has ended.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits for the end until `until`; `None` if it still runs then.
    pub(super) fn wait_until(&mut self, until: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = Timespec::try_from(left).expect("limits are far below 2^63 s");
            let mut polled = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills it and waits for its end.
    pub(super) fn kill(&mut self) {
        // Both only fail for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The last of what it printed; all of it, once it has ended.
    pub(super) fn printed(&mut self) -> String {
        let (lock, changed) = &*self.printed;
        let mut printed = locked(lock);
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            let waited = changed.wait_timeout_while(printed, OUTPUT_LIMIT, |p| !p.ended);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        String::from_utf8_lossy(&printed.bytes).trim().to_owned()
    }

    /// How it ended, in words.
    pub(super) fn describe(status: ExitStatus) -> String {
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("it ended with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn locked(lock: &Mutex<Printed>) -> MutexGuard<'_, Printed> {
    // The text is whole after every line of `keep_last`.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads QEMU's output to its end, so that QEMU never waits for a reader, and
/// keeps the last of it.
fn keep_last(mut reader: PipeReader, printed: &(Mutex<Printed>, Condvar)) {
    let mut buffer = [0; 4096];
    loop {
        let length = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut kept = locked(&printed.0);
        kept.bytes.extend_from_slice(&buffer[..length]);
        let surplus = kept.bytes.len().saturating_sub(KEPT_BYTES);
        kept.bytes.drain(..surplus);
    }
    locked(&printed.0).ended = true;
    printed.1.notify_all();
}
