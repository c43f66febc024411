//! The console of a host that outlives the command which started it.
//!
//! QEMU would write it to a file, which grows as fast as the host prints. It writes to a
//! socket instead, and a process of vmlab's own keeps the end in the file, as it does of
//! every guest's, for as long as QEMU lives.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::owner::{OWNER_VARIABLE, RUN_VARIABLE};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::args::{CONSOLE, CONSOLE_SOCKET};

/// What `vmlab replica` is told to run [`keep_console`].
const KEEP_CONSOLE: &str = "keep-console";

/// How long QEMU may take to connect: it makes the host's memory first.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long what QEMU printed last may take to reach the file.
const LAST_LIMIT: Duration = Duration::from_secs(2);

/// How often it is looked at whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// The process that keeps a console. It ends when QEMU does.
#[derive(Debug)]
pub(crate) struct ConsoleKeeper(Child);

impl ConsoleKeeper {
    /// Starts it for the replica in `folder`, before QEMU; `vmlab` is the program.
    pub(crate) fn start(vmlab: &Path, folder: &Path) -> io::Result<Self> {
        // The path of a socket may be longer than a socket's path can be.
        let here = File::open(folder)?;
        let short = Path::new("/proc/self/fd").join(here.as_raw_fd().to_string());
        let listener = UnixListener::bind(short.join(CONSOLE_SOCKET))?;
        // Whoever looks finds it, however soon.
        File::create(folder.join(CONSOLE))?;
        let child = Command::new(vmlab)
            .args(["replica", KEEP_CONSOLE])
            .current_dir(folder)
            // As QEMU, it outlives this vmlab on purpose.
            .env_remove(OWNER_VARIABLE)
            .env_remove(RUN_VARIABLE)
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }

    /// Waits until all that an ended QEMU printed is in the file.
    pub(crate) fn finish(&mut self) {
        let until = Instant::now() + LAST_LIMIT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Ends it, before QEMU's end would.
    pub(crate) fn end(mut self) {
        // Both only fail for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keeps the end of a replica's console, 2 MiB at most, in its file: the process's
/// standard input is the socket on which QEMU will connect, its folder the replica's.
///
/// # Errors
/// Standard input is no such socket, QEMU does not connect within 60 s, or the file can't
/// be made.
pub fn keep_console() -> io::Result<()> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let timeout = Timespec::try_from(CONNECT_LIMIT).expect("a minute fits");
    let mut polled = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    if rustix::event::poll(&mut polled, Some(&timeout))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (socket, _) = listener.accept()?;
    // It is connected: the name is of no more use.
    let _ = fs::remove_file(CONSOLE_SOCKET);
    guest::keep_console(socket, Path::new(CONSOLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_whoever_started_it_or_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        // Deeper than the path of a socket may be.
        let deep = folder.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let mut ends = ConsoleKeeper::start(Path::new("/bin/true"), &deep).unwrap();
        ends.finish();
        assert!(ends.0.wait().unwrap().success());
        assert!(deep.join(CONSOLE).is_file() && deep.join(CONSOLE_SOCKET).exists());
        let taken = ConsoleKeeper::start(Path::new("/bin/true"), &deep).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(deep.join(CONSOLE_SOCKET)).unwrap();
        // The shell's script of that name.
        fs::write(deep.join("replica"), "exec sleep 1000\n").unwrap();
        let runs = ConsoleKeeper::start(Path::new("/bin/sh"), &deep).unwrap();
        let process = format!("/proc/{}", runs.0.id());
        assert!(Path::new(&process).exists());
        runs.end();
        assert!(!Path::new(&process).exists());
    }
}
