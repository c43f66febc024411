//! The control socket: questions come in lines, and are answered in lines.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::event::StartError;
use crate::question::{ControlReply, ControlRequest, Question};
use crate::socket::SocketListener;

/// The longest question.
const MAX_LINE: usize = 4096;
/// Those who may ask at the same time.
const MAX_CLIENTS: usize = 16;

#[derive(Debug)]
pub(crate) struct Desk {
    listener: SocketListener,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
}

impl Desk {
    pub(crate) fn open(path: &Path) -> Result<Self, StartError> {
        Ok(Self { listener: SocketListener::open(path)?, clients: Vec::new() })
    }

    /// What to wait for.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    /// Answers what has been asked.
    pub(crate) fn serve(&mut self, mut answer: impl FnMut(Question) -> ControlReply) {
        while let Some(stream) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, line: Vec::new() });
            }
        }
        self.clients.retain_mut(|client| client.serve(&mut answer));
    }
}

impl Client {
    /// False once it is gone.
    fn serve(&mut self, answer: &mut impl FnMut(Question) -> ControlReply) -> bool {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => self.line.extend_from_slice(&bytes[..count]),
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
        while let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let answered = match ControlRequest::read(&line) {
                Ok(question) => answer(question),
                Err(error) => ControlReply::Error(error.to_string()),
            };
            let mut text = serde_json::to_vec(&answered).expect("answers are JSON");
            text.push(b'\n');
            // An answer is longer than a socket's room only for a huge MAC table, and
            // whoever asked reads it now.
            let sent = self.stream.set_nonblocking(false).is_ok()
                && self.stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).is_ok()
                && self.stream.write_all(&text).is_ok()
                && self.stream.set_nonblocking(true).is_ok();
            if !sent {
                return false;
            }
        }
        self.line.len() <= MAX_LINE
    }
}
