//! The control socket: questions come in lines, and are answered in lines.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::client;
use crate::config::SocketRights;
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
    /// How long one may take to ask, or to ask again.
    patience: Duration,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    /// By when its next question has to be whole: its place is another's then.
    deadline: Instant,
}

impl Desk {
    pub(crate) fn open(path: &Path, patience: Duration) -> Result<Self, StartError> {
        let listener =
            SocketListener::open(path, SocketRights::default()).map_err(|error| match error {
                StartError::InUse { path } => StartError::ControlInUse { path },
                error => error,
            })?;
        // Who comes while all places are taken still waits when one is free again.
        let patience = patience.min(client::PATIENCE) / 2;
        Ok(Self { listener, clients: Vec::new(), patience })
    }

    /// What to wait for. While all places are taken, those who come wait at the listener.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        let listener = self.listener.waited().filter(|_| self.clients.len() < MAX_CLIENTS);
        listener.into_iter().chain(clients)
    }

    /// When the first of those who ask has had its time, or others are taken in again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.clients.iter().map(|client| client.deadline);
        deadlines.chain(self.listener.pause_ends()).min()
    }

    /// Answers what has been asked.
    pub(crate) fn serve(&mut self, mut answer: impl FnMut(Question) -> ControlReply) {
        let patience = self.patience;
        self.clients.retain_mut(|client| client.serve(patience, &mut answer));
        while self.clients.len() < MAX_CLIENTS
            && let Ok(Some(stream)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let deadline = Instant::now() + patience;
                let mut client = Client { stream, line: Vec::new(), deadline };
                if client.serve(patience, &mut answer) {
                    self.clients.push(client);
                }
            }
        }
    }
}

impl Client {
    /// False once it is gone.
    fn serve(
        &mut self,
        patience: Duration,
        answer: &mut impl FnMut(Question) -> ControlReply,
    ) -> bool {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => self.line.extend_from_slice(&bytes[..count]),
            Err(error) => {
                let waits = error.kind() == std::io::ErrorKind::WouldBlock;
                return waits && Instant::now() < self.deadline;
            }
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
            self.deadline = Instant::now() + patience;
        }
        self.line.len() <= MAX_LINE
    }
}
