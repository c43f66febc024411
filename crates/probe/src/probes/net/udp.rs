//! udp: a blaster of small datagrams, one way or there and back.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use crate::args::Args;
use crate::document::{ProbeResult, nanoseconds};
use crate::spec::{
    CPUS, ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS,
    THREADS,
};
use crate::vcpus;

use super::client::{self, OpenSession};
use super::wire::{DatagramHeader, HEADER, Test, TestSession};
use super::{HOST, PORT, WAIT};

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "udp",
    summary: "Datagrams a second one way or there and back, with loss and latency",
    about: "Each thread sends datagrams of `size` bytes to `vmlab-probe net-server`, as fast as it \
            can or `rate` a second in all threads together. `one-way` counts what arrives there; \
            `two-way` has the server send each back and counts those too, each thread receiving \
            in a second one. Latency is measured from the time at which the datagram should have \
            been sent, so a sender that the host stopped does not hide what it delayed; without \
            a rate that is the time at which it was sent. `batch` datagrams go with one system \
            call (sendmmsg). Each is received with one of its own, since the library that the \
            probe makes its calls with offers no recvmmsg: on Linux 6 with 64 datagrams of 50 \
            bytes a call, that took 330 ns of a receiver's time for each, against 360. Rates are \
            datagrams a second over all threads and the time that it really took.",
    verifies: "no more datagrams arrive than were sent, nor come back than arrived.",
    options: &[
        HOST,
        PORT,
        WAIT,
        Opt::choice(
            "mode",
            &["one-way", "two-way"],
            "two-way",
            "Whether the server sends the datagrams back",
        ),
        Opt::int(
            "size",
            (HEADER as i64, 65_507),
            50,
            "Payload of a datagram; 28 are the probe's own header",
        )
        .unit("B"),
        Opt::int(
            "rate",
            (0, 1 << 40),
            0,
            "Datagrams a second of all threads together; 0 for as many as go",
        )
        .unit("1/s"),
        Opt::int(
            "batch",
            (1, 1024),
            1,
            "Datagrams of one system call of a sender, as far as they are due",
        ),
        Opt { default: OptionDefault::Int(1), help: "Threads that send", ..THREADS },
        CPUS,
        Opt { default: OptionDefault::Float(1.0), ..SECONDS },
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::rate("sent", "1/s", "Datagrams a second that the client sent"),
        ProbeMetric::rate("arrived", "1/s", "Datagrams a second that the server received"),
        ProbeMetric::rate("returned", "1/s", "Datagrams a second that came back to the client"),
        ProbeMetric::count("lost-there", "Datagrams that did not reach the server"),
        ProbeMetric::count("lost-back", "Datagrams that reached the server and did not come back"),
        ProbeMetric::count("refused", "Datagrams that the client's own kernel did not take"),
        ProbeMetric::count("reordered", "Datagrams that reached the server after a later one"),
        ProbeMetric::quantile("latency-p50", "Median time there and back"),
        ProbeMetric::quantile("latency-p99", "Time there and back that 99 % stayed below"),
        ProbeMetric::quantile("latency-max", "Longest time there and back"),
    ],
    histograms: &[("latency", "times there and back of all repeats")],
    example: "--host 10.0.0.2 --rate 100000 --threads 2 --seconds 10",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let mut latencies = nanoseconds();
    for repeat in 0..args.size("repeat") {
        latencies += once(args, outcome, repeat)?;
    }
    if !latencies.is_empty() {
        outcome.histogram("latency", &latencies);
    }
    Ok(())
}

fn once(
    args: &Args,
    outcome: &mut ProbeResult,
    repeat: usize,
) -> Result<Histogram<u64>, ProbeError> {
    let (threads, pins) = (args.size("threads"), args.vcpus("cpus"));
    let rate = args.count("rate");
    let plan = SendSchedule {
        datagram: args.size("size"),
        batch: args.size("batch"),
        seconds: args.float("seconds"),
        each_s: (rate > 0).then(|| threads as f64 / rate as f64),
        echo: args.text("mode") == "two-way",
    };
    let open = OpenSession::new(
        args,
        TestSession {
            id: client::session_id(),
            test: Test::Datagrams,
            seconds: plan.seconds,
            size: 1,
            request: 1,
            response: 1,
        },
    )?;
    let begin = Instant::now();
    let done: Result<Vec<UdpResult>, ProbeError> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let (plan, open, pins) = (&plan, &open, &pins);
                scope.spawn(move || {
                    vcpus::pin(pins, number)?;
                    send(open, plan, number, begin).tried("send datagrams")
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("no sender panics")).collect()
    });
    let done = done?;
    let sum = |count: fn(&UdpResult) -> u64| done.iter().map(count).sum::<u64>();
    let (sent, refused) = (sum(|done| done.sent), sum(|done| done.refused));
    // The slowest sender's time, without its wait for stragglers.
    let took_s = done.iter().map(|done| done.elapsed_s).fold(0.0, f64::max);
    let report = open.finish(sent)?;
    let mut latencies = nanoseconds();
    done.iter().for_each(|done| latencies += &done.latencies);
    let (arrived, returned) = (report.datagrams, latencies.len());
    let mut push = |name: &str, value: f64| {
        outcome.push(name, value).repeat(repeat);
    };
    push("sent", sent as f64 / took_s);
    push("arrived", arrived as f64 / took_s.max(report.elapsed_s));
    push("lost-there", sent.saturating_sub(arrived) as f64);
    push("refused", refused as f64);
    push("reordered", report.reordered as f64);
    if plan.echo {
        let last_s = done.iter().map(|done| done.last_back_s).fold(took_s, f64::max);
        push("returned", returned as f64 / last_s);
        push("lost-back", arrived.saturating_sub(returned) as f64);
        if returned > 0 {
            for (name, q) in [("latency-p50", 0.5), ("latency-p99", 0.99), ("latency-max", 1.0)] {
                push(name, latencies.value_at_quantile(q) as f64 / 1e9);
            }
        }
    }
    outcome.check(
        format!("datagrams {repeat}"),
        arrived > 0 && arrived <= sent && returned <= arrived,
        format!("{sent} were sent, {arrived} arrived, {returned} came back"),
    );
    Ok(latencies)
}

/// How a thread sends datagrams.
pub(crate) struct SendSchedule {
    pub(crate) datagram: usize,
    /// Datagrams of one system call at most.
    pub(crate) batch: usize,
    pub(crate) seconds: f64,
    /// Seconds between two datagrams; nothing for as many as go.
    pub(crate) each_s: Option<f64>,
    pub(crate) echo: bool,
}

/// What a thread sent, and what came back to it.
pub(crate) struct UdpResult {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) latencies: Histogram<u64>,
    /// When the last datagram came back, from the begin of all threads on.
    last_back_s: f64,
}

/// How long a sender waits for the last datagrams to come back.
const STRAGGLERS: Duration = Duration::from_millis(300);

fn socket(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    Ok(socket)
}

/// Sends as planned; times are those since `begin`.
pub(crate) fn send(
    open: &OpenSession,
    plan: &SendSchedule,
    number: usize,
    begin: Instant,
) -> io::Result<UdpResult> {
    let socket = socket(open.server)?;
    let now_ns = || begin.elapsed().as_nanos() as u64;
    let (ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let receiver = plan.echo.then(|| {
            let (socket, session) = (&socket, open.session.id);
            let (ended, sent) = (&ended, &sent);
            scope.spawn(move || receive(socket, session, ended, sent, now_ns))
        });
        let mut datagrams = vec![vec![0; plan.datagram]; plan.batch];
        let (mut refused, mut count) = (0, 0);
        let from = Instant::now();
        let result = loop {
            let now_s = from.elapsed().as_secs_f64();
            if now_s >= plan.seconds {
                break Ok(now_s);
            }
            // When the next datagram should go, and how many may go by now.
            let next_s = plan.each_s.map_or(now_s, |each_s| (count + refused) as f64 * each_s);
            if next_s > now_s {
                wait_s(next_s - now_s);
                continue;
            }
            let due = plan.each_s.map_or(plan.batch, |each_s| {
                (((now_s - next_s) / each_s) as usize + 1).min(plan.batch)
            });
            let now_ns = now_ns();
            for (at, datagram) in datagrams[..due].iter_mut().enumerate() {
                let late_s = now_s - next_s - plan.each_s.unwrap_or(0.0) * at as f64;
                let header = DatagramHeader {
                    session: open.session.id,
                    thread: number as u16,
                    echo: plan.echo,
                    number: count + at as u64,
                    intended_ns: now_ns.saturating_sub((late_s.max(0.0) * 1e9) as u64),
                };
                header.write(datagram);
            }
            match send_all(&socket, &datagrams[..due]) {
                Ok(taken) => {
                    count += taken as u64;
                    sent.store(count, Ordering::Relaxed);
                }
                // No room in the queue, or the server's host said that nobody listens.
                Err(error) if !is_fatal(&error) => refused += 1,
                Err(error) => break Err(error),
            }
        };
        ended.store(true, Ordering::SeqCst);
        let (latencies, last_ns) = match receiver {
            Some(receiver) => receiver.join().expect("the receiver does not panic")?,
            None => (nanoseconds(), 0),
        };
        let last_back_s = last_ns as f64 / 1e9;
        Ok(UdpResult { sent: count, refused, elapsed_s: result?, latencies, last_back_s })
    })
}

/// Sends datagrams with one system call; how many the kernel took.
fn send_all(socket: &UdpSocket, datagrams: &[Vec<u8>]) -> io::Result<usize> {
    if let [one] = datagrams {
        return socket.send(one).map(|_| 1);
    }
    let slices: Vec<_> = datagrams.iter().map(|datagram| [IoSlice::new(datagram)]).collect();
    let mut controls: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<_> = slices
        .iter()
        .zip(&mut controls)
        .map(|(slice, control)| MMsgHdr::new(slice, control))
        .collect();
    Ok(sendmmsg(socket, &mut messages, SendFlags::empty())?)
}

/// Sleeps through most of a pause and spins through the rest.
fn wait_s(seconds: f64) {
    if seconds > 200e-6 {
        std::thread::sleep(Duration::from_secs_f64(seconds - 100e-6));
    } else {
        std::hint::spin_loop();
    }
}

fn is_fatal(error: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    let passing = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
    !passing.contains(&error.kind()) && error.raw_os_error() != Some(no_buffers)
}

/// Takes what comes back until all did, or nothing more comes; when the last did.
fn receive(
    socket: &UdpSocket,
    session: u32,
    ended: &AtomicBool,
    sent: &AtomicU64,
    now_ns: impl Fn() -> u64,
) -> io::Result<(Histogram<u64>, u64)> {
    socket.set_read_timeout(Some(STRAGGLERS))?;
    let (mut latencies, mut buffer, mut last_ns) = (nanoseconds(), vec![0; 65_536], 0);
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let header = DatagramHeader::read(&buffer[..length]);
                if let Some(header) = header.filter(|header| header.session == session) {
                    last_ns = now_ns();
                    let ns = last_ns.saturating_sub(header.intended_ns);
                    latencies.saturating_record(ns.max(1));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if ended.load(Ordering::SeqCst) {
                    return Ok((latencies, last_ns));
                }
            }
            Err(error) if !is_fatal(&error) => {}
            Err(error) => return Err(error),
        }
        if ended.load(Ordering::SeqCst) && latencies.len() >= sent.load(Ordering::SeqCst) {
            return Ok((latencies, last_ns));
        }
    }
}

/// How long a request waits for its answer before it counts as lost.
const ANSWER: Duration = Duration::from_secs(1);

/// Sends one datagram after the other, each when the one before came back.
pub(crate) fn ping(
    open: &OpenSession,
    number: usize,
    size: usize,
    seconds: f64,
) -> io::Result<UdpResult> {
    let socket = socket(open.server)?;
    socket.set_read_timeout(Some(ANSWER))?;
    let (mut datagram, mut answer) = (vec![0; size], vec![0; 65_536]);
    let (begin, mut sent, mut latencies) = (Instant::now(), 0, nanoseconds());
    while begin.elapsed().as_secs_f64() < seconds || sent == 0 {
        let header = DatagramHeader {
            session: open.session.id,
            thread: number as u16,
            echo: true,
            number: sent,
            intended_ns: begin.elapsed().as_nanos() as u64,
        };
        header.write(&mut datagram);
        let asked = Instant::now();
        socket.send(&datagram)?;
        sent += 1;
        while asked.elapsed() < ANSWER {
            match socket.recv(&mut answer) {
                Ok(length) if DatagramHeader::read(&answer[..length]) == Some(header) => {
                    latencies.saturating_record((asked.elapsed().as_nanos() as u64).max(1));
                    break;
                }
                // An answer that came too late for its request.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    Ok(UdpResult { sent, refused: 0, elapsed_s, latencies, last_back_s: elapsed_s })
}
