//! net-server: the other end of `net` and `udp`.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::document::ProbeResult;
use crate::spec::{Default, ErrorContext as _, Opt, OptionType, Probe, ProbeError, ProbeMetric};

use super::wire::{
    ClientHello, ClientTotals, DatagramHeader, SIZE_MAX, ServerReport, Test, TestSession, Welcome,
    read_line, write_line,
};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "net-server",
    summary: "The other end of net and udp: counts, answers, sends back",
    about: "Serves any number of clients, one after the other or at once, on one port for TCP and \
            UDP. It ends after `sessions` tests, or is killed. Clients wait for it, so it may be \
            started at the same time. It answers whoever asks, so it belongs into networks of \
            one's own.",
    verifies: "every session ended with its report.",
    options: &[
        Opt {
            name: "bind",
            kind: OptionType::Text,
            default: Default::Text("0.0.0.0"),
            unit: "",
            help: "Address to listen on",
        },
        super::PORT,
        Opt {
            name: "sessions",
            kind: OptionType::Int(0, 1 << 40),
            default: Default::Int(0),
            unit: "",
            help: "Tests to serve before it ends; 0 to serve until it is killed",
        },
    ],
    metrics: &[
        ProbeMetric {
            better: "higher",
            ..ProbeMetric::count("sessions", "Tests that were served to their end")
        },
        ProbeMetric::count("failed-sessions", "Tests that broke off"),
    ],
    histograms: &[],
    example: "--port 5301 --sessions 1",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let server = TestServer::bind(args.text("bind"), args.count("port") as u16)?;
    let (served, failed) = server.serve(args.count("sessions"))?;
    outcome.push("sessions", served as f64);
    outcome.push("failed-sessions", failed as f64);
    outcome.check("sessions", failed == 0, format!("{served} served, {failed} broke off"));
    Ok(())
}

/// A server that listens.
pub(crate) struct TestServer {
    listener: TcpListener,
    datagrams: UdpSocket,
    shared: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    sessions: Mutex<HashMap<u32, Arc<RunningSession>>>,
    served: AtomicU64,
    failed: AtomicU64,
    ended: AtomicBool,
}

/// A session and what was seen of it.
struct RunningSession {
    session: TestSession,
    seen: Mutex<ServerReport>,
    datagrams: AtomicU64,
    bytes: AtomicU64,
    reordered: AtomicU64,
    times: Mutex<Option<(Instant, Instant)>>,
}

/// How long a connection may say nothing beyond its test's duration.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long after the last datagram the others count as lost.
const STRAGGLERS: Duration = Duration::from_millis(300);

impl TestServer {
    /// Listens on `port` of `address` for TCP and UDP; 0 for any free port.
    pub(crate) fn bind(address: &str, port: u16) -> Result<Self, ProbeError> {
        let what = |kind: &str| format!("listen on {kind} {address} port {port}");
        let listener = TcpListener::bind((address, port)).tried(what("TCP"))?;
        let bound = listener.local_addr().tried(what("TCP"))?;
        let datagrams = UdpSocket::bind(bound).tried(what("UDP"))?;
        Ok(Self { listener, datagrams, shared: Arc::default() })
    }

    /// Where it listens.
    #[cfg(test)]
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.listener.local_addr().expect("a listener has an address")
    }

    /// Serves until so many sessions ended, or for ever if 0; how many were
    /// served and how many broke off.
    pub(crate) fn serve(&self, sessions: u64) -> Result<(u64, u64), ProbeError> {
        let shared = &self.shared;
        let udp = {
            let (shared, socket) = (Arc::clone(shared), self.datagrams.try_clone());
            let socket = socket.tried("share the UDP socket")?;
            std::thread::spawn(move || receive_datagrams(&socket, &shared))
        };
        self.listener.set_nonblocking(true).tried("listen without waiting")?;
        let done = || {
            let counts = [&shared.served, &shared.failed];
            let [served, failed] = counts.map(|count| count.load(Ordering::SeqCst));
            (sessions > 0 && served + failed >= sessions, served, failed)
        };
        loop {
            let (enough, served, failed) = done();
            if enough {
                shared.ended.store(true, Ordering::SeqCst);
                udp.join().expect("the receiver does not panic");
                return Ok((served, failed));
            }
            let mut fds =
                [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            // Interrupted or out of time: look again.
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let shared = Arc::clone(shared);
                    std::thread::spawn(move || connection(stream, &shared));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that gave up while it was waiting is no reason to end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).tried("accept a connection"),
            }
        }
    }
}

fn connection(mut stream: TcpStream, shared: &ServerState) {
    let begin = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_nodelay(true))
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| read_line::<ClientHello>(&mut stream));
    match begin {
        Ok(ClientHello::Control(session)) if session_is_sane(&session) => {
            let id = session.id;
            let count = match control(&mut stream, session, shared) {
                Ok(()) => &shared.served,
                Err(_) => &shared.failed,
            };
            shared.sessions.lock().expect("nobody panicked").remove(&id);
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(ClientHello::Data { session }) => {
            let running = shared.sessions.lock().expect("nobody panicked").get(&session).cloned();
            if let Some(running) = running {
                // The client sees a broken connection, and its control
                // connection says what arrived.
                let _ = data(&mut stream, &running);
            }
        }
        // Not one of our clients.
        Ok(ClientHello::Control(_)) | Err(_) => {}
    }
}

fn session_is_sane(session: &TestSession) -> bool {
    let sizes = [session.size, session.request, session.response];
    sizes.iter().all(|size| (1..=SIZE_MAX).contains(size))
        && (0.0..=86_400.0).contains(&session.seconds)
}

fn control(stream: &mut TcpStream, session: TestSession, shared: &ServerState) -> io::Result<()> {
    let patience = PATIENCE + Duration::from_secs_f64(session.seconds);
    stream.set_read_timeout(Some(patience))?;
    let running = Arc::new(RunningSession {
        seen: Mutex::default(),
        datagrams: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        reordered: AtomicU64::new(0),
        times: Mutex::new(None),
        session,
    });
    let id = running.session.id;
    shared.sessions.lock().expect("nobody panicked").insert(id, Arc::clone(&running));
    write_line(stream, &Welcome { version: env!("CARGO_PKG_VERSION").to_owned() })?;
    let sent: ClientTotals = read_line(stream)?;
    // Data connections were counted before the client saw their end, but
    // datagrams may still be under way.
    let mut last = (Instant::now(), 0);
    loop {
        let datagrams = running.datagrams.load(Ordering::SeqCst);
        if datagrams != last.1 {
            last = (Instant::now(), datagrams);
        }
        if datagrams >= sent.datagrams || last.0.elapsed() >= STRAGGLERS {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    write_line(stream, &running.report())
}

impl RunningSession {
    fn report(&self) -> ServerReport {
        let mut report = self.seen.lock().expect("nobody panicked").clone();
        report.datagrams = self.datagrams.load(Ordering::SeqCst);
        report.reordered = self.reordered.load(Ordering::SeqCst);
        report.received_bytes += self.bytes.load(Ordering::SeqCst);
        let times = *self.times.lock().expect("nobody panicked");
        report.elapsed_s = times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        report
    }

    fn seen(&self, from: Instant, bytes: u64, sent: u64, exchanges: u64) {
        let mut seen = self.seen.lock().expect("nobody panicked");
        seen.received_bytes += bytes;
        seen.sent_bytes += sent;
        seen.exchanges += exchanges;
        drop(seen);
        self.at(from);
        self.at(Instant::now());
    }

    /// Something happened at `now`.
    fn at(&self, now: Instant) {
        let mut times = self.times.lock().expect("nobody panicked");
        let (first, last) = times.unwrap_or((now, now));
        *times = Some((first.min(now), last.max(now)));
    }
}

fn data(stream: &mut TcpStream, running: &RunningSession) -> io::Result<()> {
    let session = &running.session;
    let begin = Instant::now();
    match session.test {
        Test::Stream => {
            let (mut buffer, mut bytes) = (vec![0; session.size], 0);
            let ended = loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break Ok(()),
                    Ok(read) => bytes += read as u64,
                    Err(error) => break Err(error),
                }
            };
            running.seen(begin, bytes, 0, 0);
            ended
        }
        Test::Maerts => {
            let (buffer, mut sent) = (vec![b'v'; session.size], 0);
            let ended = loop {
                if begin.elapsed().as_secs_f64() >= session.seconds {
                    break Ok(());
                }
                if let Err(error) = stream.write_all(&buffer) {
                    break Err(error);
                }
                sent += buffer.len() as u64;
            };
            running.seen(begin, 0, sent, 0);
            ended.and_then(|()| stream.shutdown(Shutdown::Write))
        }
        Test::Exchange => {
            let (mut request, response) = (vec![0; session.request], vec![b'r'; session.response]);
            let mut exchanges = 0;
            let ended = loop {
                match stream.read_exact(&mut request) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
                    Err(error) => break Err(error),
                }
                if let Err(error) = stream.write_all(&response) {
                    break Err(error);
                }
                exchanges += 1;
            };
            let each = |size: usize| exchanges * size as u64;
            running.seen(begin, each(session.request), each(session.response), exchanges);
            ended
        }
        Test::Datagrams => Ok(()),
    }
}

/// Counts datagrams or sends them back until the server ends.
fn receive_datagrams(socket: &UdpSocket, shared: &ServerState) {
    // Only to see the end; datagrams do not wait for it.
    let timeout = socket.set_read_timeout(Some(Duration::from_millis(50)));
    let mut buffer = vec![0; 65_536];
    let mut known: Option<Arc<RunningSession>> = None;
    let mut next: HashMap<(u32, u16), u64> = HashMap::new();
    while timeout.is_ok() && !shared.ended.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            // Nothing came for a while: a session that ended can be forgotten.
            known = None;
            next.clear();
            continue;
        };
        let Some(header) = DatagramHeader::read(&buffer[..length]) else { continue };
        if header.echo {
            // A full queue loses it, and the client counts it as lost.
            let _ = socket.send_to(&buffer[..length], from);
        }
        if known.as_ref().is_none_or(|running| running.session.id != header.session) {
            let sessions = shared.sessions.lock().expect("nobody panicked");
            known = sessions.get(&header.session).cloned();
        }
        let Some(running) = &known else { continue };
        let expected = next.entry((header.session, header.thread)).or_insert(0);
        if header.number < *expected {
            running.reordered.fetch_add(1, Ordering::Relaxed);
        } else {
            *expected = header.number + 1;
        }
        running.bytes.fetch_add(length as u64, Ordering::Relaxed);
        running.at(Instant::now());
        running.datagrams.fetch_add(1, Ordering::SeqCst);
    }
}
