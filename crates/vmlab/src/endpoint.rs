//! An endpoint for OpenMetrics: a page over HTTP, made anew for each who asks.
//!
//! One thread waits for all of them, so that who asks slowly keeps nobody waiting, and
//! that no thread has to be made later.
//!
//! Source: OpenMetrics 1.0 (RFC draft `draft-richih-opsawg-openmetrics-00`).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Who asks must have sent the question, and taken the answer, by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those that are answered at once; a Prometheus or two ask.
const MOST_ASKING: usize = 16;

/// More than this is no question that we know.
const LONGEST_REQUEST_BYTES: usize = 8 << 10;

/// Answers whoever asks at an address, until it is dropped.
pub(crate) struct Endpoint {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens at `address`: `127.0.0.1:9464`, or a port alone, on loopback. `page` makes
    /// the text.
    pub(crate) fn start(
        address: SocketAddr,
        page: impl Fn() -> io::Result<String> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("Cannot listen at {address} for --metrics"))?;
        let address = listener.local_addr().context("Cannot tell the address of --metrics")?;
        listener.set_nonblocking(true).context("Cannot listen without waiting for --metrics")?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let serve = move || {
            let mut asking = WaitingRequests::new();
            while !seen.load(Ordering::Acquire) {
                turn(&listener, &mut asking, &page);
            }
        };
        let server = thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        let server = Some(server.context("Cannot start a thread for --metrics")?);
        Ok(Self { address, over, server })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Wakes the thread from waiting for somebody.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(server) = self.server.take().filter(|_| woken) {
            drop(server.join());
        }
    }
}

/// Those that ask, the first one in front.
type WaitingRequests = VecDeque<Exchange>;

/// A question and its answer.
struct Exchange {
    stream: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// Once the question is there: what is not sent yet.
    answer: Option<Vec<u8>>,
}

/// Waits until something can go on, and has it go on.
fn turn(
    listener: &TcpListener,
    asking: &mut WaitingRequests,
    page: &dyn Fn() -> io::Result<String>,
) {
    let now = Instant::now();
    let first = asking.iter().map(|exchange| exchange.deadline).min();
    let left = first.map(|first| first.saturating_duration_since(now));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut waited = vec![PollFd::new(listener, PollFlags::IN)];
    waited.extend(asking.iter().map(|exchange| {
        let flags = if exchange.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&exchange.stream, flags)
    }));
    // An interrupted wait is a short one.
    let _ = poll(&mut waited, left.as_ref());
    drop(waited);
    while let Ok((stream, _)) = listener.accept() {
        // Whoever has had the most time makes room.
        if asking.len() >= MOST_ASKING {
            drop(asking.pop_front());
        }
        if stream.set_nonblocking(true).is_ok() {
            let deadline = Instant::now() + PATIENCE;
            asking.push_back(Exchange { stream, deadline, request: Vec::new(), answer: None });
        }
    }
    let now = Instant::now();
    // Who hangs up early has nothing to complain of.
    asking.retain_mut(|exchange| {
        exchange.deadline > now && matches!(exchange.advance(page), Ok(ExchangeState::Open))
    });
}

/// Whether there is more to do.
#[derive(PartialEq, Eq)]
enum ExchangeState {
    Open,
    Done,
}

impl Exchange {
    fn advance(&mut self, page: &dyn Fn() -> io::Result<String>) -> io::Result<ExchangeState> {
        if self.answer.is_none() {
            if !self.read()? {
                return Ok(ExchangeState::Open);
            }
            self.answer = Some(answer(&self.request, page)?);
        }
        let answer = self.answer.get_or_insert_default();
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(0) => return Ok(ExchangeState::Done),
                Ok(count) => drop(answer.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(ExchangeState::Open);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ExchangeState::Done)
    }

    /// Reads what has come; true once the question is whole.
    fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; 1024];
        loop {
            let read = match self.stream.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                other => other?,
            };
            self.request.extend_from_slice(&part[..read]);
            let ends = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if ends || read == 0 || self.request.len() > LONGEST_REQUEST_BYTES {
                return Ok(true);
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // It may be closed already.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

/// The answer to a request, of which only the first line is looked at.
fn answer(request: &[u8], page: &dyn Fn() -> io::Result<String>) -> io::Result<Vec<u8>> {
    let text = String::from_utf8_lossy(request);
    let request = text.lines().next().unwrap_or_default();
    let (status, kind, body) = match request.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET" | "HEAD", "/metrics"] => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, page()?)
        }
        ["GET" | "HEAD", _] => {
            ("404 Not Found", "text/plain", "The metrics are at /metrics\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "Only GET is known here\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if request.starts_with("HEAD ") { String::new() } else { body };
    Ok([head, body].concat().into_bytes())
}

/// Reads `--metrics`: an address with a port, or a port on loopback.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| "must be a port, or an address with a port: 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half-open connections, far more than are answered at once, and none in the way.
    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::start(any, || Ok("a page\n".to_owned())).unwrap();
        let connect = || TcpStream::connect(endpoint.address()).unwrap();
        let mut silent: Vec<TcpStream> = (0..3 * MOST_ASKING).map(|_| connect()).collect();
        let mut asks = connect();
        asks.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("a page\n"), "{answer}");
        // The first of the silent was hung up to make room.
        assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn only_one_page_is_known() {
        let page = || Ok("a page\n".to_owned());
        let text = |request: &[u8]| String::from_utf8(answer(request, &page).unwrap()).unwrap();
        assert!(text(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(text(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(text(b"HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(text(&[0xff; 9000]).starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse_address(text).unwrap().to_string(), expected);
        };
        check("9464", "127.0.0.1:9464");
        check(":9464", "127.0.0.1:9464");
        check("0.0.0.0:80", "0.0.0.0:80");
        check("[::1]:80", "[::1]:80");
        assert!(parse_address("here").is_err());
        assert!(parse_address("1.2.3.4").is_err());
    }
}
