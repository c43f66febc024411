//! Files that another process sent: what they are, told without asking their file system,
//! and closed where that can hold nobody up.
//!
//! A file system in user space (FUSE) or behind a network answers `fstat`, `fstatfs`, page
//! faults and even `close` when it likes, or never. So nothing of this is tried with a file
//! before it is known to be the kernel's own; one that is not is closed by a thread that
//! has nothing else to do.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};

use crate::bell::is_event;
use crate::memory::is_in_memory;

/// What a file is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// Of tmpfs or hugetlbfs, a memfd included.
    Memory,
    /// An eventfd.
    Event,
    Other,
}

/// A file that came with a message.
#[derive(Debug)]
pub struct PassedFile {
    /// None once it was taken.
    file: Option<OwnedFd>,
    kind: FileKind,
    /// There as long as the file is open.
    token: Arc<()>,
}

impl PassedFile {
    /// Of a connection, of which `token` tells whether files are still open.
    pub(crate) fn new(file: OwnedFd, token: &Arc<()>) -> Self {
        let kind = match () {
            () if is_in_memory(&file) => FileKind::Memory,
            () if is_event(&file) => FileKind::Event,
            () => FileKind::Other,
        };
        Self { file: Some(file), kind, token: Arc::clone(token) }
    }

    /// False if whoever sent it decides how long its use takes.
    pub(crate) fn is_of_the_kernel(&self) -> bool {
        self.kind != FileKind::Other
    }

    /// The eventfd, if it is one.
    pub(crate) fn into_event(mut self) -> Option<OwnedFd> {
        if self.kind == FileKind::Event { self.file.take() } else { None }
    }
}

impl From<OwnedFd> for PassedFile {
    fn from(file: OwnedFd) -> Self {
        Self::new(file, &Arc::new(()))
    }
}

impl AsFd for PassedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("it is taken with the value alone").as_fd()
    }
}

impl Drop for PassedFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if let (FileKind::Other, Some(closer)) = (self.kind, CLOSER.get()) {
            // Without its thread, the file comes back and is closed here.
            let _ = closer.send((file, Arc::clone(&self.token)));
        }
    }
}

/// To the thread that closes files which may take their time.
static CLOSER: OnceLock<Sender<(OwnedFd, Arc<()>)>> = OnceLock::new();

/// Starts that thread, once a process. It ends with the process, whatever it waits for.
///
/// # Errors
/// If there can be no more threads.
pub(crate) fn start_closer() -> std::io::Result<()> {
    if CLOSER.get().is_none() {
        let (closer, files) = mpsc::channel::<(OwnedFd, Arc<()>)>();
        let close = move || files.into_iter().for_each(drop);
        std::thread::Builder::new().name("vswitch-close".to_owned()).spawn(close)?;
        // Where two start at once, the thread of one has nothing to do and ends.
        let _ = CLOSER.set(closer);
    }
    Ok(())
}
