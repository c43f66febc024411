//! Lines of text over a Unix socket, never blocking, with bounded memory.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The byte that stands before the answer to `guest-sync-delimited`.
const SENTINEL: u8 = 0xff;

/// One received line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line without its end.
    Text(Vec<u8>),
    /// A line longer than the limit; its bytes were dropped.
    TooLong,
}

/// One end of a socket that carries lines.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    received: Vec<u8>,
    /// How much of `received` is known to hold no end of a line.
    searched: usize,
    /// The rest of the present line is dropped.
    dropping: bool,
    to_send: Vec<u8>,
    limit: usize,
    closed: bool,
}

impl Channel {
    /// Wraps a connected socket; lines may be `limit` bytes long.
    pub(crate) fn new(socket: UnixStream, limit: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            received: Vec::new(),
            searched: 0,
            dropping: false,
            to_send: Vec::new(),
            limit,
            closed: false,
        })
    }

    /// Sets how long a line may be.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// True once the other end is gone; lines received before can still be taken.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if something waits to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.closed && !self.to_send.is_empty()
    }

    /// The descriptor, for `poll`.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends what the socket takes now, and keeps the rest for [`Self::flush`].
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.to_send.extend_from_slice(bytes);
        self.flush();
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) {
        while self.wants_to_send() {
            match self.socket.write(&self.to_send) {
                Ok(0) => self.closed = true,
                Ok(sent) => drop(self.to_send.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }

    /// Takes in whatever has arrived.
    pub(crate) fn fill(&mut self) {
        let mut buffer = [0; 64 * 1024];
        while !self.closed {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(length) => self.take_in(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
            // One whole line is enough for now: memory stays bounded.
            if self.received.len() > self.limit {
                return;
            }
        }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        if self.dropping {
            // What is dropped is only looked at for its end.
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
            self.received.extend_from_slice(&bytes[end..]);
        } else {
            self.received.extend_from_slice(bytes);
        }
    }

    /// The next whole line, if there is one.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        let end = self.received[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| end + self.searched) else {
            self.searched = self.received.len();
            if self.received.len() > self.limit {
                self.received = Vec::new();
                self.searched = 0;
                self.dropping = true;
            }
            return None;
        };
        let rest = self.received.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        self.searched = 0;
        line.pop();
        if std::mem::take(&mut self.dropping) {
            return Some(Line::TooLong);
        }
        if let Some(sentinel) = line.iter().rposition(|byte| *byte == SENTINEL) {
            line.drain(..=sentinel);
        }
        Some(Line::Text(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(limit: usize) -> (UnixStream, Channel) {
        let (far, near) = UnixStream::pair().unwrap();
        (far, Channel::new(near, limit).unwrap())
    }

    #[test]
    fn lines_are_cut_wherever_the_socket_cuts_them() {
        let (mut far, mut channel) = pair(100);
        let text = b"one\ntwo\n\xffgarbage\xff{}\nhal";
        for byte in text {
            far.write_all(&[*byte]).unwrap();
            channel.fill();
        }
        let mut lines = Vec::new();
        while let Some(Line::Text(line)) = channel.next_line() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["one", "two", "{}"]);
        far.write_all(b"f\n").unwrap();
        drop(far);
        channel.fill();
        assert_eq!(channel.next_line(), Some(Line::Text(b"half".to_vec())));
        assert!(channel.is_closed());
    }

    #[test]
    fn a_line_beyond_the_limit_is_dropped_and_said() {
        let (mut far, mut channel) = pair(1000);
        let writer = std::thread::spawn(move || {
            for _ in 0..1000 {
                far.write_all(&[b'x'; 1000]).unwrap();
            }
            far.write_all(b"\nnext\n").unwrap();
        });
        let mut lines = Vec::new();
        while lines.len() < 2 {
            channel.fill();
            assert!(channel.received.capacity() < 1_000_000);
            lines.extend(channel.next_line());
        }
        writer.join().unwrap();
        assert_eq!(lines, [Line::TooLong, Line::Text(b"next".to_vec())]);
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later() {
        let (mut far, mut channel) = pair(100);
        let text = vec![b'x'; 4 << 20];
        channel.send(&text);
        assert!(channel.wants_to_send());
        let mut seen = 0;
        let mut buffer = vec![0; 1 << 20];
        while seen < text.len() {
            seen += far.read(&mut buffer).unwrap();
            channel.flush();
        }
        assert!(!channel.wants_to_send());
    }
}
