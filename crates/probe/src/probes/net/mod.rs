//! net: what a connection between two guests carries, by TCP and UDP.

pub(crate) mod client;
pub mod server;
pub mod udp;
mod wire;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::args::Args;
use crate::document::{ProbeResult, nanoseconds};
use crate::spec::{
    CPUS, ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS,
};
use crate::vcpus;
use client::OpenSession;
use wire::{SIZE_MAX, ServerReport, Test, TestSession};

/// The port of server and clients.
pub(crate) const PORT: Opt =
    Opt::int("port", (0, 65_535), 5301, "The server's port, of TCP and UDP");

/// Where the server is.
pub(crate) const HOST: Opt = Opt::text("host", "127.0.0.1", "Name or address of the server");

/// How long to wait for the server.
pub(crate) const WAIT: Opt =
    Opt::float("wait", (0.0, 3600.0), 30.0, "How long to wait until the server listens").unit("s");

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "net",
    summary: "TCP streams, requests and connections, UDP streams and requests to net-server",
    about: "Needs `vmlab-probe net-server` at the other end; one port is all that must be open. \
            `tcp_stream` sends to the server, `tcp_maerts` receives from it, `tcp_rr` exchanges \
            requests and responses on one connection, `tcp_crr` on one connection each, \
            `udp_stream` sends datagrams as fast as it can, `udp_rr` exchanges them. Rates of \
            both ends are in the one document, so what UDP loses is seen. `streams` connections \
            run at once, each in its thread; their rates add up. Every repeat is a session of \
            its own.",
    verifies: "the receiver got all bytes that a TCP sender gave, both ends count the same \
               exchanges, and no more datagrams arrive than were sent.",
    options: &[
        Opt::choice(
            "test",
            &["tcp_stream", "tcp_maerts", "tcp_rr", "tcp_crr", "udp_stream", "udp_rr"],
            "tcp_stream",
            "What is tested",
        ),
        HOST,
        PORT,
        WAIT,
        Opt::int("streams", (1, 256), 1, "Connections or senders at once"),
        Opt::int("size", (1, SIZE_MAX as i64), 16_384, "Bytes of one write of a TCP stream")
            .unit("B"),
        Opt::int(
            "datagram",
            (wire::HEADER as i64, 65_507),
            1_472,
            "Payload of a datagram of udp_stream and udp_rr",
        )
        .unit("B"),
        Opt::int("request", (1, SIZE_MAX as i64), 1, "Bytes of a request of tcp_rr and tcp_crr")
            .unit("B"),
        Opt::int("response", (1, SIZE_MAX as i64), 1, "Bytes of a response of tcp_rr and tcp_crr")
            .unit("B"),
        CPUS,
        Opt { default: OptionDefault::Float(1.0), ..SECONDS },
        Opt { default: OptionDefault::Int(1), ..REPEAT },
    ],
    metrics: &[
        ProbeMetric::rate("received", "B/s", "Payload a second at the receiver"),
        ProbeMetric::rate("sent", "B/s", "Payload a second at the sender"),
        ProbeMetric::rate("exchanges-per-s", "1/s", "Requests that were answered, a second"),
        ProbeMetric::rate("datagrams-received", "1/s", "Datagrams a second at the receiver"),
        ProbeMetric::rate("datagrams-sent", "1/s", "Datagrams a second at the sender"),
        ProbeMetric::count("datagrams-lost", "Datagrams that did not arrive"),
        ProbeMetric::count("datagrams-reordered", "Datagrams that came after a later one"),
        ProbeMetric::quantile("exchange-p50", "Median time of an exchange"),
        ProbeMetric::quantile("exchange-p99", "Time that 99 % of the exchanges stayed below"),
        ProbeMetric::quantile("exchange-max", "Longest exchange"),
    ],
    histograms: &[("exchange", "times of all exchanges of all repeats")],
    example: "--test tcp_rr --host 10.0.0.2 --seconds 10",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let mut exchanges = nanoseconds();
    for repeat in 0..args.size("repeat") {
        match args.text("test") {
            "tcp_stream" => stream(args, Test::Stream, outcome, repeat)?,
            "tcp_maerts" => stream(args, Test::Maerts, outcome, repeat)?,
            "tcp_rr" => exchanges += exchange(args, false, outcome, repeat)?,
            "tcp_crr" => exchanges += exchange(args, true, outcome, repeat)?,
            "udp_stream" => udp_stream(args, outcome, repeat)?,
            _ => exchanges += udp_exchange(args, outcome, repeat)?,
        }
    }
    if !exchanges.is_empty() {
        outcome.histogram("exchange", &exchanges);
    }
    Ok(())
}

fn session(args: &Args, test: Test) -> TestSession {
    TestSession {
        id: client::session_id(),
        test,
        seconds: args.float("seconds"),
        size: args.size("size"),
        request: args.size("request"),
        response: args.size("response"),
    }
}

/// Runs `work` in one thread a stream; what each says.
fn streams<R: Send>(
    args: &Args,
    work: impl Fn(usize) -> io::Result<R> + Sync,
) -> Result<Vec<R>, ProbeError> {
    let pins = args.vcpus("cpus");
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..args.size("streams"))
            .map(|number| {
                let (work, pins) = (&work, &pins);
                scope.spawn(move || {
                    vcpus::pin(pins, number)?;
                    work(number).tried("exchange data with the server")
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("no stream panics")).collect()
    })
}

/// Says that nothing more comes, and waits until the server has counted all.
fn close(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    if stream.read(&mut [0])? == 0 { Ok(()) } else { Err(io::Error::other("data after the end")) }
}

fn stream(
    args: &Args,
    test: Test,
    outcome: &mut ProbeResult,
    repeat: usize,
) -> Result<(), ProbeError> {
    let open = OpenSession::new(args, session(args, test))?;
    let begin = Instant::now();
    let own: u64 = streams(args, |_| {
        let mut stream = open.connect()?;
        let mut buffer = vec![b'c'; open.session.size];
        let mut bytes = 0;
        if test == Test::Stream {
            while begin.elapsed().as_secs_f64() < open.session.seconds {
                stream.write_all(&buffer)?;
                bytes += buffer.len() as u64;
            }
            close(&mut stream)?;
        } else {
            loop {
                match stream.read(&mut buffer)? {
                    0 => break,
                    read => bytes += read as u64,
                }
            }
        }
        Ok(bytes)
    })?
    .into_iter()
    .sum();
    let own_s = begin.elapsed().as_secs_f64();
    let report = open.finish(0)?;
    let theirs = if test == Test::Stream { report.received_bytes } else { report.sent_bytes };
    let rates = (own as f64 / own_s, theirs as f64 / report.elapsed_s);
    let (sent, received) = if test == Test::Stream { rates } else { (rates.1, rates.0) };
    outcome.push("received", received).repeat(repeat);
    outcome.push("sent", sent).repeat(repeat);
    outcome.check(
        format!("bytes {repeat}"),
        own == theirs && own > 0,
        format!("the client counted {own} bytes, the server {theirs}"),
    );
    Ok(())
}

fn exchange(
    args: &Args,
    reconnect: bool,
    outcome: &mut ProbeResult,
    repeat: usize,
) -> Result<Histogram<u64>, ProbeError> {
    let open = OpenSession::new(args, session(args, Test::Exchange))?;
    let begin = Instant::now();
    let times = streams(args, |_| {
        let mut times = nanoseconds();
        let request = vec![b'q'; open.session.request];
        let mut response = vec![0; open.session.response];
        let mut kept = if reconnect { None } else { Some(open.connect()?) };
        while begin.elapsed().as_secs_f64() < open.session.seconds || times.is_empty() {
            let asked = Instant::now();
            let mut fresh = if reconnect { Some(open.connect()?) } else { None };
            let stream = fresh.as_mut().or(kept.as_mut()).expect("one of both is there");
            stream.write_all(&request)?;
            stream.read_exact(&mut response)?;
            if let Some(stream) = &mut fresh {
                close(stream)?;
            }
            times.saturating_record((asked.elapsed().as_nanos() as u64).max(1));
        }
        if let Some(stream) = &mut kept {
            close(stream)?;
        }
        Ok(times)
    })?;
    let own_s = begin.elapsed().as_secs_f64();
    let report = open.finish(0)?;
    let mut all = nanoseconds();
    times.iter().for_each(|times| all += times);
    exchanged(&all, own_s, outcome, repeat);
    outcome.check(
        format!("exchanges {repeat}"),
        all.len() == report.exchanges,
        format!("the client counted {} exchanges, the server {}", all.len(), report.exchanges),
    );
    Ok(all)
}

fn exchanged(times: &Histogram<u64>, seconds: f64, outcome: &mut ProbeResult, repeat: usize) {
    outcome.push("exchanges-per-s", times.len() as f64 / seconds).repeat(repeat);
    for (name, q) in [("exchange-p50", 0.5), ("exchange-p99", 0.99), ("exchange-max", 1.0)] {
        outcome.push(name, times.value_at_quantile(q) as f64 / 1e9).repeat(repeat);
    }
}

fn udp_stream(args: &Args, outcome: &mut ProbeResult, repeat: usize) -> Result<(), ProbeError> {
    let open = OpenSession::new(args, session(args, Test::Datagrams))?;
    let plan = udp::SendSchedule {
        datagram: args.size("datagram"),
        batch: 1,
        seconds: args.float("seconds"),
        each_s: None,
        echo: false,
    };
    let begin = Instant::now();
    let sent: u64 = streams(args, |number| udp::send(&open, &plan, number, begin))?
        .iter()
        .map(|s| s.sent)
        .sum();
    let own_s = begin.elapsed().as_secs_f64();
    let report = open.finish(sent)?;
    let bytes = plan.datagram as f64;
    outcome.push("sent", sent as f64 * bytes / own_s).repeat(repeat);
    outcome.push("datagrams-sent", sent as f64 / own_s).repeat(repeat);
    let received = report.datagrams as f64 / report.elapsed_s.max(own_s);
    outcome.push("received", received * bytes).repeat(repeat);
    outcome.push("datagrams-received", received).repeat(repeat);
    datagrams_accounted(sent, &report, outcome, repeat);
    Ok(())
}

/// What was lost, and whether the two ends agree.
fn datagrams_accounted(sent: u64, report: &ServerReport, outcome: &mut ProbeResult, repeat: usize) {
    let received = report.datagrams;
    outcome.push("datagrams-lost", sent.saturating_sub(received) as f64).repeat(repeat);
    outcome.push("datagrams-reordered", report.reordered as f64).repeat(repeat);
    outcome.check(
        format!("datagrams {repeat}"),
        received <= sent && received > 0,
        format!("{sent} were sent and {received} arrived"),
    );
}

fn udp_exchange(
    args: &Args,
    outcome: &mut ProbeResult,
    repeat: usize,
) -> Result<Histogram<u64>, ProbeError> {
    let open = OpenSession::new(args, session(args, Test::Datagrams))?;
    let begin = Instant::now();
    let done = streams(args, |number| {
        udp::ping(&open, number, args.size("datagram"), args.float("seconds"))
    })?;
    let own_s = begin.elapsed().as_secs_f64();
    let sent = done.iter().map(|done| done.sent).sum();
    let report = open.finish(sent)?;
    let mut all = nanoseconds();
    done.iter().for_each(|done| all += &done.latencies);
    exchanged(&all, own_s, outcome, repeat);
    datagrams_accounted(sent, &report, outcome, repeat);
    outcome.check(
        format!("answers {repeat}"),
        all.len() <= report.datagrams,
        format!("{} of {} requests that arrived were answered", all.len(), report.datagrams),
    );
    Ok(all)
}
