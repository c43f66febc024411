//! Sockets in the file system, and the pCPUs of threads.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::SocketRights;
use crate::event::StartError;
use crate::rights;

/// A socket that is listened on; its file goes with it.
#[derive(Debug)]
pub(crate) struct SocketListener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode: what is removed is what was made.
    identity: (u64, u64),
    /// Until when nobody is taken in, as the last one could not be: without this, whoever
    /// waits for the socket would be woken by it all the time.
    pause: Cell<Option<Instant>>,
}

/// How long nobody is taken in then.
const PAUSE: Duration = Duration::from_millis(100);

impl SocketListener {
    /// Listens at `path`. A socket that nobody listens on any more is replaced.
    pub(crate) fn open(path: &Path, rights: SocketRights) -> Result<Self, StartError> {
        let path = path.to_owned();
        let listen = |source| StartError::Listen { path: path.clone(), source };
        match fs::symlink_metadata(&path) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(StartError::NotASocket { path });
            }
            Ok(_) => match connect(&path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(&path).map_err(listen)?;
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(listen(error));
                }
                Ok(_) | Err(_) => return Err(StartError::InUse { path }),
            },
            Err(_) => {}
        }
        let socket = rights::listen(&path, rights)?;
        let made = fs::symlink_metadata(&path).map_err(listen)?;
        let identity = (made.dev(), made.ino());
        Ok(Self { socket, path, identity, pause: Cell::new(None) })
    }

    /// A connection that waits, if there is one.
    ///
    /// # Errors
    /// Why it can't be taken in: no more files may be open. It is tried again later.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        if self.pause_ends().is_some_and(|end| Instant::now() < end) {
            return Ok(None);
        }
        self.pause.set(None);
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::Interrupted => Ok(None),
                _ => {
                    self.pause.set(Some(Instant::now() + PAUSE));
                    Err(error)
                }
            },
        }
    }

    /// What to wait for.
    pub(crate) fn waited(&self) -> Option<BorrowedFd<'_>> {
        self.pause.get().is_none().then(|| self.socket.as_fd())
    }

    /// By when to try again, if the last one could not be taken in.
    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        self.pause.get()
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.identity) {
            // Its folder may have become read-only; a dead socket is replaced next time.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects without waiting for a listener that is busy.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The folder that a socket is in.
pub(crate) fn folder(socket: &Path) -> PathBuf {
    match socket.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// An error if no thread of this process may run on `pcpu`.
pub(crate) fn may_run_on(pcpu: u32) -> Result<(), StartError> {
    let number = usize::try_from(pcpu).unwrap_or(usize::MAX);
    let allowed = sched_getaffinity(None);
    let fine = allowed.is_ok_and(|set| number < CpuSet::MAX_CPU && set.is_set(number));
    if fine { Ok(()) } else { Err(StartError::Pcpu { pcpu }) }
}

/// Pins the calling thread.
pub(crate) fn pin_this_thread(pcpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::try_from(pcpu).unwrap_or(usize::MAX));
    Ok(sched_setaffinity(None, &set)?)
}
