//! An ssh that runs: its end, and what it says meanwhile.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::patience::{Deadline, Patience, WaitFailure};

/// How much of what ssh says is kept.
const KEPT_BYTES: usize = 16 << 10;

/// How long ssh may take to end once it was told to.
const GRACE: Duration = Duration::from_secs(2);

/// How long the end of its words may take once it has ended: a program that it
/// started (`ProxyCommand`) may keep them open.
const WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Who hears each line of standard error.
pub(crate) type StderrListener = Box<dyn FnMut(&str) + Send>;

/// What was said on standard error.
#[derive(Default)]
struct StderrTail {
    text: String,
    ended: bool,
}

/// A child process; ended when dropped.
pub(crate) struct ChildProcess {
    child: Child,
    pidfd: OwnedFd,
    said: Arc<(Mutex<StderrTail>, Condvar)>,
}

impl ChildProcess {
    /// Starts `command`; its standard error is kept and told line by line.
    pub(crate) fn spawn(command: &mut Command, heard: Option<StderrListener>) -> io::Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let pidfd = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let said = Arc::new((Mutex::new(StderrTail::default()), Condvar::new()));
        let kept = Arc::clone(&said);
        let stderr = child.stderr.take().expect("standard error was asked for as a pipe");
        std::thread::spawn(move || {
            listen(stderr, &kept.0, heard);
            locked(&kept.0).ended = true;
            kept.1.notify_all();
        });
        Ok(Self { child, pidfd, said })
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// True if the process has not ended within `limit`.
    pub(crate) fn is_running_after(&self, limit: Duration) -> bool {
        let wait = Patience::new(limit, &|| false).start();
        wait.ready([(self.pidfd.as_fd(), PollFlags::IN)]).is_err()
    }

    /// Waits for its end.
    pub(crate) fn wait(
        &mut self,
        wait: &Deadline<'_>,
    ) -> Result<io::Result<ExitStatus>, WaitFailure> {
        wait.ready([(self.pidfd.as_fd(), PollFlags::IN)])?;
        Ok(self.child.wait())
    }

    /// The last of what it said on standard error; all of it once it has ended.
    pub(crate) fn said(&self) -> String {
        let (lock, changed) = &*self.said;
        let mut said = locked(lock);
        if !self.is_running_after(Duration::ZERO) {
            let waited = changed.wait_timeout_while(said, WORDS_LIMIT, |said| !said.ended);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        said.text.clone()
    }

    /// Tells it to end, and ends it if it does not.
    pub(crate) fn end(&mut self) {
        // Both signals only fail for a process that has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::TERM);
        let grace = Patience::new(GRACE, &|| false).start();
        if self.wait(&grace).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl fmt::Debug for ChildProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.child.id()).finish_non_exhaustive()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn locked(lock: &Mutex<StderrTail>) -> MutexGuard<'_, StderrTail> {
    // The text is whole after every line of `listen`.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads to the end, so that nobody waits for a reader, and keeps the last of it.
fn listen(stderr: impl Read, kept: &Mutex<StderrTail>, mut heard: Option<StderrListener>) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without an end is cut, so that it can't fill the memory.
        match lines.by_ref().take(KEPT_BYTES as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        {
            let kept = &mut locked(kept).text;
            kept.push_str(text);
            kept.push('\n');
            let mut cut = kept.len().saturating_sub(KEPT_BYTES);
            while !kept.is_char_boundary(cut) {
                cut += 1;
            }
            kept.drain(..cut);
        }
        if let Some(heard) = &mut heard {
            heard(text);
        }
    }
}
