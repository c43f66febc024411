//! The QEMU process: what it prints, and its end. It is vmlab's child, or libvirt's.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::domain::RunningDomain;
use super::failure::GuestFailure;

/// How much of what QEMU prints is kept.
const KEPT_BYTES: usize = 16 * 1024;

/// How long the end of QEMU's output may take once QEMU has ended.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// What QEMU printed last.
#[derive(Debug, Default)]
struct LastOutput {
    bytes: Vec<u8>,
    ended: bool,
}

/// How a QEMU ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QemuExit {
    /// As a child's end is told.
    Told(ExitStatus),
    /// Somebody else was told.
    Untold,
}

impl QemuExit {
    /// Whether it is somebody's signal that ended it, as far as is known.
    pub(super) fn by_signal(self) -> bool {
        matches!(self, Self::Told(status) if status.signal().is_some())
    }

    /// This end of QEMU as a failure, of which `detail` tells.
    pub(super) fn failure(self, detail: String) -> GuestFailure {
        let its_own = [Signal::SEGV, Signal::ABORT].map(|signal| Some(signal.as_raw()));
        match self {
            Self::Told(status) if its_own.contains(&status.signal()) => {
                GuestFailure::Crashed { detail }
            }
            _ => GuestFailure::Died { detail },
        }
    }
}

/// Who started it.
#[derive(Debug)]
enum ProcessStarter {
    Child(Child),
    Domain(RunningDomain),
}

/// A running QEMU. Killed when dropped.
#[derive(Debug)]
pub(super) struct QemuProcess {
    held: ProcessStarter,
    pid: u32,
    pidfd: OwnedFd,
    printed: Arc<(Mutex<LastOutput>, Condvar)>,
}

impl QemuProcess {
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
        let printed = Arc::new((Mutex::new(LastOutput::default()), Condvar::new()));
        let for_reader = Arc::clone(&printed);
        std::thread::spawn(move || keep_last(reader, &for_reader));
        let pid = child.id();
        Ok(Self { held: ProcessStarter::Child(child), pid, pidfd, printed })
    }

    /// The process `pid` of a domain.
    pub(super) fn of_domain(domain: RunningDomain, pid: Pid) -> io::Result<Self> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Self { held: ProcessStarter::Domain(domain), pid, pidfd, printed: Arc::default() })
    }

    pub(super) fn id(&self) -> u32 {
        self.pid
    }

    /// The domain, if it is one.
    pub(super) fn domain(&self) -> Option<&RunningDomain> {
        match &self.held {
            ProcessStarter::Child(_) => None,
            ProcessStarter::Domain(domain) => Some(domain),
        }
    }

    /// Readable once the process has ended.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// How long each of its threads has been ready and waited for a pCPU, by thread
    /// (`/proc/PID/task/TID/schedstat`, Documentation/scheduler/sched-stats.rst); none where
    /// the kernel does not count it.
    pub(super) fn waited(&self) -> HashMap<OsString, Duration> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        let waited = |thread: fs::DirEntry| {
            let counted = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let waited_ns = counted.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((thread.file_name(), Duration::from_nanos(waited_ns)))
        };
        threads.flatten().filter_map(waited).collect()
    }

    /// Waits for the end until `until`; `None` if it still runs then.
    pub(super) fn wait_until(&mut self, until: Instant) -> io::Result<Option<QemuExit>> {
        loop {
            if let Some(ending) = self.ending()? {
                return Ok(Some(ending));
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

    /// How it has ended, if it has.
    fn ending(&mut self) -> io::Result<Option<QemuExit>> {
        if let ProcessStarter::Child(child) = &mut self.held {
            return Ok(child.try_wait()?.map(QemuExit::Told));
        }
        let mut polled = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(None),
            Ok(_) => Ok(Some(QemuExit::Untold)),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills it and waits for its end.
    pub(super) fn kill(&mut self) {
        match &mut self.held {
            ProcessStarter::Child(child) => {
                // Both only fail for a process that has ended and was waited for.
                let _ = child.kill();
                let _ = child.wait();
            }
            ProcessStarter::Domain(domain) => domain.end(),
        }
    }

    /// The last of what it printed; all of it, once it has ended.
    pub(super) fn printed(&mut self) -> String {
        if let ProcessStarter::Domain(domain) = &self.held {
            return domain.printed();
        }
        let ended = matches!(self.ending(), Ok(Some(_)));
        let (lock, changed) = &*self.printed;
        let mut printed = locked(lock);
        if ended {
            let waited = changed.wait_timeout_while(printed, OUTPUT_LIMIT, |p| !p.ended);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        String::from_utf8_lossy(&printed.bytes).trim().to_owned()
    }

    /// Its end as a failure; `unknown` is said where it is not known how it ended.
    pub(super) fn failure(&mut self, ending: Option<QemuExit>, unknown: &str) -> GuestFailure {
        let mut detail = ending.map_or_else(|| unknown.to_owned(), Self::describe);
        let printed = self.printed();
        if !printed.is_empty() {
            detail = format!("{printed} ({detail})");
        }
        match ending {
            Some(ending) => ending.failure(detail),
            None => GuestFailure::Died { detail },
        }
    }

    /// How it ended, in words.
    pub(super) fn describe(ending: QemuExit) -> String {
        let QemuExit::Told(status) = ending else { return "its process ended".to_owned() };
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("it ended with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        }
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The longest that a thread of `now` has waited since `before`, as [`QemuProcess::waited`]
/// tells it.
pub(super) fn longest_since(
    before: &HashMap<OsString, Duration>,
    now: &HashMap<OsString, Duration>,
) -> Duration {
    let since = |(thread, waited): (&OsString, &Duration)| {
        waited.saturating_sub(before.get(thread).copied().unwrap_or_default())
    };
    now.iter().map(since).max().unwrap_or_default()
}

fn locked(lock: &Mutex<LastOutput>) -> MutexGuard<'_, LastOutput> {
    // The text is whole after every line of `keep_last`.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads QEMU's output to its end, so that QEMU never waits for a reader, and
/// keeps the last of it.
fn keep_last(mut reader: PipeReader, printed: &(Mutex<LastOutput>, Condvar)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_of_a_thread_counts() {
        let of = |waited: &[(&str, u64)]| -> HashMap<OsString, Duration> {
            waited.iter().map(|(id, ms)| ((*id).into(), Duration::from_millis(*ms))).collect()
        };
        let before = of(&[("1", 900), ("2", 40), ("3", 7)]);
        assert_eq!(longest_since(&before, &before), Duration::ZERO);
        let now = of(&[("1", 910), ("2", 70), ("4", 5)]);
        assert_eq!(longest_since(&before, &now), Duration::from_millis(30));
        assert_eq!(longest_since(&of(&[]), &of(&[])), Duration::ZERO);
    }

    #[test]
    fn two_that_need_one_pcpu_wait_for_it() {
        let pcpu = rustix::thread::sched_getcpu().to_string();
        let busy = || {
            let args = ["-c", &pcpu, "sh", "-c", "while :; do :; done"].map(str::to_owned);
            QemuProcess::spawn(Path::new("taskset"), &args, &[]).unwrap()
        };
        let both = [busy(), busy()];
        let before = both.each_ref().map(QemuProcess::waited);
        suite::until("a busy process to wait for its pCPU", || {
            let mut pairs = both.iter().zip(&before);
            pairs
                .any(|(one, before)| longest_since(before, &one.waited()) > Duration::ZERO)
                .then_some(())
        });
    }
}
