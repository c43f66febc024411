//! The one reader of what a guest may write: lines of text over a Unix socket,
//! never blocking, within a budget.
//!
//! A guest is untrusted input, its agent and its ports included. Whatever it
//! writes, a [`Channel`] holds one line and one read of it, and goes back to its
//! caller, who looks at the time, after each read. What nobody has taken stays
//! in the socket, where it keeps the writer waiting; what goes beyond the
//! [`ChannelBudget`] is not read at all.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The byte that stands before the answer to `guest-sync-delimited`.
const SENTINEL: u8 = 0xff;

/// Most that is taken in at once, bytes: the caller looks at the time after it.
const READ_BYTES: usize = 256 << 10;

/// An empty buffer that held more than this gives it back, bytes.
const KEPT_ROOM_BYTES: usize = 1 << 20;

/// What may come over a channel, until [`Channel::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelBudget {
    /// Longest line, bytes; a longer one is dropped, and said.
    pub(crate) line_bytes: usize,
    /// All lines together, with their ends and with what is dropped, bytes.
    pub(crate) total_bytes: u64,
}

/// One received line.
#[derive(Debug, PartialEq, Eq)]
pub enum AgentLine {
    /// The line without its end.
    Text(Vec<u8>),
    /// A line longer than the budget's; its bytes were dropped.
    TooLong,
}

/// One end of a socket that carries lines.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    received: Vec<u8>,
    /// Where in `received` the present line begins.
    begin: usize,
    /// How much of `received` is known to hold no end of the present line.
    searched: usize,
    /// The rest of the present line is dropped.
    dropping: bool,
    to_send: Vec<u8>,
    budget: ChannelBudget,
    spent_bytes: u64,
    closed: bool,
}

impl Channel {
    /// Wraps a connected socket.
    pub(crate) fn new(socket: UnixStream, budget: ChannelBudget) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            received: Vec::new(),
            begin: 0,
            searched: 0,
            dropping: false,
            to_send: Vec::new(),
            budget,
            spent_bytes: 0,
            closed: false,
        })
    }

    /// Begins a new budget.
    pub(crate) fn renew(&mut self, budget: ChannelBudget) {
        self.budget = budget;
        self.spent_bytes = 0;
    }

    /// The budget, once more has come than it allows.
    pub(crate) fn overrun(&self) -> Option<ChannelBudget> {
        (self.spent_bytes > self.budget.total_bytes).then_some(self.budget)
    }

    /// True once the other end is gone; lines received before can still be taken.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if there is room for what arrives.
    pub(crate) fn wants_to_read(&self) -> bool {
        let waiting = self.received.len() - self.begin;
        !self.closed && self.overrun().is_none() && waiting <= self.budget.line_bytes
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

    /// Sends `bytes` with `fd` beside the first of them; what waits goes before.
    pub(crate) fn send_with(&mut self, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        self.flush();
        if self.wants_to_send() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        // There is room for one.
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = rustix::net::sendmsg(
            &self.socket,
            &[io::IoSlice::new(bytes)],
            &mut beside,
            SendFlags::NOSIGNAL,
        )?;
        self.send(&bytes[sent..]);
        Ok(())
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

    /// Takes in what has arrived, as far as there is room and at most one read's
    /// worth: somebody who writes faster than we read does not hold us here.
    pub(crate) fn fill(&mut self) {
        let mut buffer = [0; 64 * 1024];
        let mut taken = 0;
        while taken < READ_BYTES && self.wants_to_read() {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(length) => {
                    taken += length;
                    self.spent_bytes += length as u64;
                    self.take_in(&buffer[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
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
    pub(crate) fn next_line(&mut self) -> Option<AgentLine> {
        let end = self.received[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| end + self.searched) else {
            self.move_to_front();
            if self.received.len() > self.budget.line_bytes {
                self.received = Vec::new();
                self.dropping = true;
            }
            self.searched = self.received.len();
            return None;
        };
        let begin = std::mem::replace(&mut self.begin, end + 1);
        self.searched = self.begin;
        if std::mem::take(&mut self.dropping) || end - begin > self.budget.line_bytes {
            return Some(AgentLine::TooLong);
        }
        let mut line = if begin == 0 && self.begin == self.received.len() {
            // The usual case, and the only one of lines worth many MiB.
            let mut line = std::mem::take(&mut self.received);
            (self.begin, self.searched) = (0, 0);
            line.truncate(end);
            line
        } else {
            self.received[begin..end].to_vec()
        };
        if let Some(sentinel) = line.iter().rposition(|byte| *byte == SENTINEL) {
            line.drain(..=sentinel);
        }
        Some(AgentLine::Text(line))
    }

    /// Lets go of the lines that were taken.
    fn move_to_front(&mut self) {
        self.received.drain(..self.begin);
        self.begin = 0;
        if self.received.is_empty() && self.received.capacity() > KEPT_ROOM_BYTES {
            self.received = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(line_bytes: usize) -> (UnixStream, Channel) {
        let (far, near) = UnixStream::pair().unwrap();
        let budget = ChannelBudget { line_bytes, total_bytes: u64::MAX };
        (far, Channel::new(near, budget).unwrap())
    }

    /// Writes `piece` without end, until nobody is left to read it.
    fn flood(mut far: UnixStream, piece: &'static [u8]) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || while far.write_all(piece).is_ok() {})
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
        while let Some(AgentLine::Text(line)) = channel.next_line() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["one", "two", "{}"]);
        far.write_all(b"f\n").unwrap();
        drop(far);
        channel.fill();
        assert_eq!(channel.next_line(), Some(AgentLine::Text(b"half".to_vec())));
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
        assert_eq!(lines, [AgentLine::TooLong, AgentLine::Text(b"next".to_vec())]);
    }

    #[test]
    fn what_nobody_takes_stays_in_the_socket() {
        for piece in [b"no end of a line".as_slice(), b"line\nline\nline\n"] {
            let (far, mut channel) = pair(1000);
            let writer = flood(far, piece);
            while channel.wants_to_read() {
                channel.fill();
            }
            // One line that may be, and one read beyond it.
            assert!(channel.received.len() <= 1000 + READ_BYTES, "{}", channel.received.len());
            let before = channel.received.len();
            channel.fill();
            assert_eq!(channel.received.len(), before);
            drop(channel);
            writer.join().unwrap();
        }
    }

    #[test]
    fn what_goes_beyond_the_budget_is_not_read() {
        for piece in [b"no end of a line".as_slice(), b"line\nline\nline\n"] {
            let budget = ChannelBudget { line_bytes: 1000, total_bytes: 1_000_000 };
            let (far, near) = UnixStream::pair().unwrap();
            let mut channel = Channel::new(near, budget).unwrap();
            let writer = flood(far, piece);
            while channel.overrun().is_none() {
                channel.fill();
                while channel.next_line().is_some() {}
                assert!(channel.received.capacity() < 2 * READ_BYTES);
            }
            assert_eq!(channel.overrun(), Some(budget));
            assert!(!channel.wants_to_read());
            // A new budget is a new one.
            channel.renew(budget);
            assert_eq!(channel.overrun(), None);
            assert!(channel.spent_bytes == 0 && channel.wants_to_read());
            drop(channel);
            writer.join().unwrap();
        }
    }

    #[test]
    fn many_lines_at_once_are_taken_without_being_moved() {
        let (mut far, mut channel) = pair(200_000);
        far.write_all(&b"12345\n".repeat(20_000)).unwrap();
        channel.fill();
        let held = channel.received.len();
        for _ in 0..10_000 {
            assert_eq!(channel.next_line(), Some(AgentLine::Text(b"12345".to_vec())));
        }
        assert_eq!(channel.received.len(), held);
        while channel.next_line().is_some() {}
        assert!(channel.received.is_empty());
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
