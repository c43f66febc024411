//! One connection of vhost-user: messages with file descriptors over a Unix socket.
//!
//! Nothing here waits: a message is read as far as it has come, and what is still
//! missing is asked for again when there is more. File descriptors belong to the
//! message with whose first byte they come; all that nobody takes are closed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::message::{HEADER, MAX_FDS, MessageError, MessageHeader};
use crate::passed::PassedFile;

/// A whole message.
#[derive(Debug)]
pub struct VhostMessage {
    /// Its first bytes.
    pub header: MessageHeader,
    /// What follows them.
    pub payload: Vec<u8>,
    /// Files that came with it.
    pub fds: Vec<PassedFile>,
}

/// Error type for [`VhostChannel`].
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end closed the connection.
    #[error("The connection was closed")]
    Closed,
    /// It did so inside a message.
    #[error("The connection was closed inside a message")]
    ClosedInside,
    /// More file descriptors than any message carries.
    #[error("A message carries more than {MAX_FDS} file descriptors")]
    TooManyFds,
    /// Those that came could not all be had.
    #[error(
        "A message's file descriptors cannot all be had, as this process, or the host, may have \
             no more files open (`ulimit -n`)"
    )]
    NoRoomForFds,
    /// The other end does not read what it asked for.
    #[error("The other end does not read its answers")]
    NotRead,
    /// The message is none.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The connection failed.
    #[error("The connection failed")]
    Io(#[source] io::Error),
}

/// A connection.
#[derive(Debug)]
pub struct VhostChannel {
    socket: UnixStream,
    /// The bytes of the current message that were read so far.
    bytes: Vec<u8>,
    fds: Vec<PassedFile>,
    /// Of all files that came over it.
    token: Arc<()>,
}

impl VhostChannel {
    /// Over `socket`.
    ///
    /// # Errors
    /// If it can't be made not to block.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, bytes: Vec::new(), fds: Vec::new(), token: Arc::new(()) })
    }

    /// Lives on after the connection as long as files of it are still to be closed.
    pub(crate) fn files(&self) -> Weak<()> {
        Arc::downgrade(&self.token)
    }

    /// Ends the connection; the other end sees it.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// True if a message has begun and not ended.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// [`ChannelError`]; the connection is of no use then.
    pub fn receive(&mut self) -> Result<Option<VhostMessage>, ChannelError> {
        loop {
            let wanted = match self.bytes.first_chunk::<HEADER>() {
                None => HEADER - self.bytes.len(),
                Some(&header) => {
                    let header = MessageHeader::read(header)?;
                    let whole = HEADER + header.size as usize;
                    if self.bytes.len() == whole {
                        let payload = self.bytes.split_off(HEADER);
                        self.bytes.clear();
                        let fds = std::mem::take(&mut self.fds);
                        return Ok(Some(VhostMessage { header, payload, fds }));
                    }
                    whole - self.bytes.len()
                }
            };
            if !self.read(wanted)? {
                return Ok(None);
            }
        }
    }

    /// Reads up to `wanted` bytes; false if there is none yet.
    fn read(&mut self, wanted: usize) -> Result<bool, ChannelError> {
        let before = self.bytes.len();
        self.bytes.resize(before + wanted, 0);
        // Room for more than may come: what did not fit would be lost unseen.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut self.bytes[before..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.socket, &mut slices, &mut ancillary, flags);
        let count = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(before + count);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds.map(|file| PassedFile::new(file, &self.token)));
            }
        }
        match received {
            Ok(received) => {
                if self.fds.len() > MAX_FDS {
                    return Err(ChannelError::TooManyFds);
                }
                // There was room for more.
                if received.flags.contains(ReturnFlags::CTRUNC) {
                    return Err(ChannelError::NoRoomForFds);
                }
                match (count, before) {
                    (0, 0) => Err(ChannelError::Closed),
                    (0, _) => Err(ChannelError::ClosedInside),
                    _ => Ok(true),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) if before == 0 => Err(ChannelError::Closed),
            Err(error) => Err(ChannelError::Io(error.into())),
        }
    }

    /// Sends a message, all of it or none.
    ///
    /// # Errors
    /// [`ChannelError::NotRead`] if there is no room for it, [`ChannelError::Io`].
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(ChannelError::TooManyFds);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(ChannelError::NotRead),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ChannelError::Closed),
            Err(error) => Err(ChannelError::Io(error.into())),
        }
    }
}

impl AsFd for VhostChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
