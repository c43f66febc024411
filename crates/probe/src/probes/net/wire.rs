//! What the two ends say to each other.
//!
//! One port does for all: TCP connections begin with a line that says what they
//! are, datagrams begin with a [`DatagramHeader`].

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first line of a TCP connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ClientHello {
    /// Begins a session; the server answers with [`Welcome`], and with
    /// [`ServerReport`] when it is told how many datagrams were [`ClientTotals`].
    Control(TestSession),
    /// A connection that carries a test's data.
    Data {
        /// The session that it belongs to.
        session: u32,
    },
}

/// A test that both ends know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TestSession {
    /// Chosen by the client.
    pub(crate) id: u32,
    pub(crate) test: Test,
    pub(crate) seconds: f64,
    /// Bytes of one write of a stream.
    pub(crate) size: usize,
    pub(crate) request: usize,
    pub(crate) response: usize,
}

/// What data connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Test {
    /// The client sends for a time.
    Stream,
    /// The server sends for a time.
    Maerts,
    /// Requests and responses on one connection, or on one each.
    Exchange,
    /// Datagrams; the server counts those that say so, and sends back others.
    Datagrams,
}

/// The server is ready for data.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) version: String,
}

/// Sent by the client at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientTotals {
    pub(crate) datagrams: u64,
}

/// What the server saw of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) exchanges: u64,
    pub(crate) datagrams: u64,
    /// Datagrams that came after one that was sent later by the same thread.
    pub(crate) reordered: u64,
    /// From the first byte or datagram to the last.
    pub(crate) elapsed_s: f64,
}

/// The longest line that either end reads.
const LINE_MAX: u64 = 4096;

/// The most bytes that a write, a request or a response may have.
pub(crate) const SIZE_MAX: usize = 1 << 20;

pub(crate) fn write_line(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line, and not a byte more.
pub(crate) fn read_line<M: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<M> {
    // A buffer of one byte takes nothing that follows the line.
    let mut line = Vec::new();
    BufReader::with_capacity(1, stream.take(LINE_MAX)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other end said no line"));
    }
    Ok(serde_json::from_slice(&line)?)
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    pub(crate) session: u32,
    /// The client's thread.
    pub(crate) thread: u16,
    /// True to be sent back, false to be counted.
    pub(crate) echo: bool,
    /// Number in its thread, from 0.
    pub(crate) number: u64,
    /// When it should have been sent, on the client's clock.
    pub(crate) intended_ns: u64,
}

/// Bytes of a [`DatagramHeader`].
pub(crate) const HEADER: usize = 28;

const MAGIC: [u8; 4] = *b"vmlp";

impl DatagramHeader {
    pub(crate) fn write(self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4..8].copy_from_slice(&self.session.to_le_bytes());
        datagram[8..10].copy_from_slice(&self.thread.to_le_bytes());
        datagram[10..12].copy_from_slice(&u16::from(self.echo).to_le_bytes());
        datagram[12..20].copy_from_slice(&self.number.to_le_bytes());
        datagram[20..HEADER].copy_from_slice(&self.intended_ns.to_le_bytes());
    }

    /// Nothing if it is not one of ours.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        if datagram.len() < HEADER || datagram[..4] != MAGIC {
            return None;
        }
        let word = |at: usize| datagram[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let half = |at: usize| datagram[at..at + 2].try_into().map(u16::from_le_bytes).ok();
        Some(Self {
            session: u32::from_le_bytes(datagram[4..8].try_into().ok()?),
            thread: half(8)?,
            echo: half(10)? != 0,
            number: word(12)?,
            intended_ns: word(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header =
            DatagramHeader { session: 7, thread: 3, echo: true, number: 1 << 40, intended_ns: 5 };
        let mut datagram = [0; HEADER + 2];
        header.write(&mut datagram);
        assert_eq!(DatagramHeader::read(&datagram), Some(header));
        assert_eq!(DatagramHeader::read(&datagram[..HEADER - 1]), None);
        datagram[0] = b'x';
        assert_eq!(DatagramHeader::read(&datagram), None);
    }
}
