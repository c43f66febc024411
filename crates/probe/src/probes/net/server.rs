//! net-server: the other end of `net` and `udp`.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::args::Args;
use crate::document::ProbeResult;
use crate::spec::{ErrorContext as _, Opt, Probe, ProbeError, ProbeMetric};

use super::wire::{
    ClientHello, ClientTotals, DatagramHeader, SIZE_MAX, ServerReport, Test, TestSession, Welcome,
    read_line, write_line,
};

/// Most threads that receive datagrams.
const RECEIVERS_MAX: i64 = 256;

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
        Opt::text("bind", "0.0.0.0", "Address to listen on"),
        super::PORT,
        Opt::int(
            "sessions",
            (0, 1 << 40),
            0,
            "Tests to serve before it ends; 0 to serve until it is killed",
        ),
        Opt::int(
            "receivers",
            (1, RECEIVERS_MAX),
            1,
            "Threads that receive datagrams and send them back, each from a socket of its \
                   own; the kernel deals the senders out to them by their ports",
        ),
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
    let (port, receivers) = (args.count("port") as u16, args.size("receivers"));
    let server = TestServer::bind(args.text("bind"), port, receivers)?;
    let (served, failed) = server.serve(args.count("sessions"))?;
    outcome.push("sessions", served as f64);
    outcome.push("failed-sessions", failed as f64);
    outcome.check("sessions", failed == 0, format!("{served} served, {failed} broke off"));
    Ok(())
}

/// A server that listens.
pub(crate) struct TestServer {
    listener: TcpListener,
    /// One for each thread that receives.
    datagrams: Vec<UdpSocket>,
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
    times: SeenTimes,
    /// What each thread saw that receives datagrams.
    received: Vec<ReceivedDatagrams>,
}

/// When something happened first and last.
#[derive(Default)]
struct SeenTimes(Mutex<Option<(Instant, Instant)>>);

impl SeenTimes {
    /// Something happened at `now`.
    fn at(&self, now: Instant) {
        let mut times = self.0.lock().expect("nobody panicked");
        let (first, last) = times.unwrap_or((now, now));
        *times = Some((first.min(now), last.max(now)));
    }

    fn get(&self) -> Option<(Instant, Instant)> {
        *self.0.lock().expect("nobody panicked")
    }
}

/// What one thread received: on cache lines of its own, or threads would wait for each
/// other's counts.
#[derive(Default)]
#[repr(align(128))]
struct ReceivedDatagrams {
    datagrams: AtomicU64,
    bytes: AtomicU64,
    reordered: AtomicU64,
    times: SeenTimes,
}

/// How long a connection may say nothing beyond its test's duration.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long after the last datagram the others count as lost.
const STRAGGLERS: Duration = Duration::from_millis(300);

impl TestServer {
    /// Listens on `port` of `address` for TCP and UDP, with so many threads for datagrams;
    /// 0 for any free port.
    pub(crate) fn bind(address: &str, port: u16, receivers: usize) -> Result<Self, ProbeError> {
        let what = |kind: &str| format!("listen on {kind} {address} port {port}");
        let listener = TcpListener::bind((address, port)).tried(what("TCP"))?;
        let bound = listener.local_addr().tried(what("TCP"))?;
        let datagrams = match receivers {
            // Alone, so that a second server is told that the port is taken.
            1 => vec![UdpSocket::bind(bound).tried(what("UDP"))?],
            many => (0..many)
                .map(|_| socket_beside_others(bound))
                .collect::<io::Result<_>>()
                .tried(what("UDP"))?,
        };
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
        let mut receivers = Vec::new();
        for (number, socket) in self.datagrams.iter().enumerate() {
            let (shared, socket) = (Arc::clone(shared), socket.try_clone());
            let socket = socket.tried("share the UDP socket")?;
            let receive = move || receive_datagrams(&socket, number, &shared);
            receivers.push(std::thread::spawn(receive));
        }
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
                for receiver in receivers {
                    receiver.join().expect("no receiver panics");
                }
                return Ok((served, failed));
            }
            let mut fds =
                [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            // Interrupted or out of time: look again.
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let (shared, receivers) = (Arc::clone(shared), self.datagrams.len());
                    std::thread::spawn(move || connection(stream, &shared, receivers));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that gave up while it was waiting is no reason to end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).tried("accept a connection"),
            }
        }
    }
}

/// A socket at an address that has several.
fn socket_beside_others(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

fn connection(mut stream: TcpStream, shared: &ServerState, receivers: usize) {
    let begin = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_nodelay(true))
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| read_line::<ClientHello>(&mut stream));
    match begin {
        Ok(ClientHello::Control(session)) if session_is_sane(&session) => {
            let id = session.id;
            let count = match control(&mut stream, session, shared, receivers) {
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

fn control(
    stream: &mut TcpStream,
    session: TestSession,
    shared: &ServerState,
    receivers: usize,
) -> io::Result<()> {
    let patience = PATIENCE + Duration::from_secs_f64(session.seconds);
    stream.set_read_timeout(Some(patience))?;
    let running = Arc::new(RunningSession {
        seen: Mutex::default(),
        times: SeenTimes::default(),
        received: (0..receivers).map(|_| ReceivedDatagrams::default()).collect(),
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
        let datagrams = running.sum(|one| &one.datagrams);
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
        report.datagrams = self.sum(|one| &one.datagrams);
        report.reordered = self.sum(|one| &one.reordered);
        report.received_bytes += self.sum(|one| &one.bytes);
        let times = || self.received.iter().map(|one| &one.times).chain([&self.times]);
        let first = times().filter_map(SeenTimes::get).map(|(first, _)| first).min();
        let last = times().filter_map(SeenTimes::get).map(|(_, last)| last).max();
        let elapsed = first.zip(last).map(|(first, last)| last - first);
        report.elapsed_s = elapsed.map_or(0.0, |elapsed| elapsed.as_secs_f64());
        report
    }

    /// What all threads together received.
    fn sum(&self, count: impl Fn(&ReceivedDatagrams) -> &AtomicU64) -> u64 {
        self.received.iter().map(|one| count(one).load(Ordering::SeqCst)).sum()
    }

    fn seen(&self, from: Instant, bytes: u64, sent: u64, exchanges: u64) {
        let mut seen = self.seen.lock().expect("nobody panicked");
        seen.received_bytes += bytes;
        seen.sent_bytes += sent;
        seen.exchanges += exchanges;
        drop(seen);
        self.times.at(from);
        self.times.at(Instant::now());
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

/// Counts datagrams or sends them back until the server ends, as its thread `number` for
/// that. All datagrams of one sender come to one thread, so that it sees their order.
fn receive_datagrams(socket: &UdpSocket, number: usize, shared: &ServerState) {
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
        let Some(seen) = known.as_ref().and_then(|running| running.received.get(number)) else {
            continue;
        };
        let expected = next.entry((header.session, header.thread)).or_insert(0);
        if header.number < *expected {
            seen.reordered.fetch_add(1, Ordering::Relaxed);
        } else {
            *expected = header.number + 1;
        }
        seen.bytes.fetch_add(length as u64, Ordering::Relaxed);
        seen.times.at(Instant::now());
        seen.datagrams.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_receivers_share_a_port_and_its_senders() {
        let server = TestServer::bind("127.0.0.1", 0, 4).expect("any port");
        let address = server.address();
        // So many that their hashes do not all name one receiver.
        let senders: Vec<UdpSocket> =
            (0..64).map(|_| UdpSocket::bind("127.0.0.1:0").expect("any port")).collect();
        for _ in 0..2 {
            for sender in &senders {
                sender.send_to(b"d", address).expect("loopback takes it");
            }
        }
        let got = server.datagrams.iter().map(|socket| {
            socket.set_nonblocking(true).expect("it can");
            let one = || socket.recv_from(&mut [0; 8]).ok().map(|(_, from)| from);
            std::iter::from_fn(one).collect::<Vec<_>>()
        });
        let got: Vec<Vec<SocketAddr>> = got.collect();
        assert_eq!(got.iter().map(Vec::len).sum::<usize>(), 128);
        assert!(got.iter().filter(|one| !one.is_empty()).count() > 1, "{got:?}");
        // What one sender sends comes to one of them.
        for (number, one) in got.iter().enumerate() {
            let others = got.iter().enumerate().filter(|(other, _)| *other != number);
            assert!(others.flat_map(|(_, from)| from).all(|from| !one.contains(from)));
        }
        // One receiver has its port for itself.
        let alone = TestServer::bind("127.0.0.1", 0, 1).expect("any port");
        let again = TestServer::bind("127.0.0.1", alone.address().port(), 1);
        assert!(again.is_err(), "somebody listens there");
    }
}
