//! A pipe from QEMU: what comes through it, until its end, a limit or Ctrl-C.
//!
//! A pipe and not a file: whoever reads can stop, and QEMU, which has then nobody to write
//! to, gives up what it writes and lets the guest go on.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::cancel::CANCEL_CHECK;

/// How much a pipe holds, bytes: as much as an unprivileged process may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// The end of a pipe to read from.
#[derive(Debug)]
pub(super) struct QemuPipe {
    file: File,
    buffer: Vec<u8>,
}

/// What one read of the pipe returned.
#[derive(Debug)]
pub(super) enum PipeRead<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Nothing yet.
    Nothing,
    /// The end: QEMU has closed its side.
    End,
}

/// A pipe: what to read from, and what to give away.
pub(super) fn pipe() -> io::Result<(QemuPipe, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    // Where less is allowed, that is what there is.
    let _ = rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES);
    let file = File::from(OwnedFd::from(reader));
    Ok((QemuPipe { file, buffer: vec![0; PIPE_BYTES] }, writer.into()))
}

impl QemuPipe {
    /// What comes next, after a wait that ends soon.
    pub(super) fn next(&mut self) -> io::Result<PipeRead<'_>> {
        let timeout = Timespec::try_from(CANCEL_CHECK).expect("a short time fits");
        let mut polled = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(PipeRead::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.file.read(&mut self.buffer) {
            Ok(0) => Ok(PipeRead::End),
            Ok(length) => Ok(PipeRead::Bytes(&self.buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(PipeRead::Nothing),
            Err(error) => Err(error),
        }
    }
}
