//! A running study as OpenMetrics: how far it is, what is open, what the last
//! trials took. No history and no samples: those stand in the results folder.
//!
//! Source: OpenMetrics 1.0 (RFC draft `draft-richih-opsawg-openmetrics-00`).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use record::Outcome;
use runner::agenda::Standing;
use runner::execute::Progress;
use runner::plan::Plan;

/// Who asks must have sent the question by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those that are answered at once; a Prometheus or two ask.
const MOST_ASKING: usize = 16;

/// More than this is no question that we know.
const LONGEST_REQUEST_BYTES: usize = 8 << 10;

type Labels = Vec<(&'static str, String)>;
type Real = Gauge<f64, AtomicU64>;

/// The gauges and counters of one study.
struct Instruments {
    blocks_done: Gauge,
    blocks_rejected: Counter,
    trials: Family<Labels, Counter>,
    remaining_s: Real,
    boot_s: Family<Labels, Real>,
    trial_s: Family<Labels, Real>,
    canary_s: Family<Labels, Real>,
    ratio: Family<Labels, Real>,
    ratio_low: Family<Labels, Real>,
    ratio_high: Family<Labels, Real>,
    open: Family<Labels, Gauge>,
}

impl Instruments {
    fn new(plan: &Plan, registry: &mut Registry) -> Self {
        let about = vec![
            ("study", plan.study.clone()),
            ("environment", plan.environment().to_string()),
            ("emulated_time", plan.environment().is_emulated_time().to_string()),
            ("qemu", plan.qemu.version.clone()),
            ("vmlab", plan.vmlab_version.clone()),
        ];
        registry.register("study", "The study that runs", Info::new(about));
        let planned: Gauge = Gauge::default();
        if let Some(blocks) = plan.total_blocks() {
            planned.set(i64::from(blocks));
            registry.register("blocks_planned", "Blocks at most", planned);
        }
        let new = Self {
            blocks_done: Gauge::default(),
            blocks_rejected: Counter::default(),
            trials: Family::default(),
            remaining_s: Real::default(),
            boot_s: Family::default(),
            trial_s: Family::default(),
            canary_s: Family::default(),
            ratio: Family::default(),
            ratio_low: Family::default(),
            ratio_high: Family::default(),
            open: Family::default(),
        };
        let second = || Unit::Seconds;
        registry.register("blocks_done", "Blocks that count", new.blocks_done.clone());
        registry.register(
            "blocks_rejected",
            "Blocks done again since the host was not steady",
            new.blocks_rejected.clone(),
        );
        registry.register("trials", "Trials by how they ended", new.trials.clone());
        let left = "What the study probably still needs";
        registry.register_with_unit("remaining", left, second(), new.remaining_s.clone());
        let boot = "Boot of the variant's last trial";
        registry.register_with_unit("boot", boot, second(), new.boot_s.clone());
        let trial = "Duration of the variant's last trial";
        registry.register_with_unit("trial", trial, second(), new.trial_s.clone());
        let canary = "A fixed piece of computing before and after the last trial";
        registry.register_with_unit("canary", canary, second(), new.canary_s.clone());
        let ratio = "Variant by baseline, of the workload's primary metric";
        registry.register("comparison_ratio", ratio, new.ratio.clone());
        let low = "Lower end of the ratio's interval";
        registry.register("comparison_ratio_low", low, new.ratio_low.clone());
        let high = "Upper end of the ratio's interval";
        registry.register("comparison_ratio_high", high, new.ratio_high.clone());
        registry.register("comparison_open", "1 while it is not decided", new.open.clone());
        new
    }

    fn observe(&self, event: &Progress<'_>) {
        match event {
            Progress::TrialEnded(result) => {
                let key = &result.trial;
                let outcome = match &result.outcome {
                    Outcome::Completed => "completed".to_owned(),
                    Outcome::Failed(failure) => failure.kind.to_string(),
                };
                self.trials.get_or_create(&vec![("outcome", outcome)]).inc();
                let cell = vec![
                    ("load", key.load.clone()),
                    ("workload", key.workload.clone()),
                    ("variant", key.variant.clone()),
                ];
                if let Some(boot_s) = result.boot_s {
                    self.boot_s.get_or_create(&cell).set(boot_s);
                }
                self.trial_s.get_or_create(&cell).set(result.wall_s);
                let watch = result.watch.as_ref();
                let canaries = [
                    ("before", watch.and_then(|watch| watch.canary_before_s)),
                    ("after", watch.and_then(|watch| watch.canary_after_s)),
                ];
                for (when, seconds) in canaries {
                    if let Some(seconds) = seconds {
                        self.canary_s.get_or_create(&vec![("when", when.to_owned())]).set(seconds);
                    }
                }
            }
            Progress::BlockRejected(_) => {
                self.blocks_rejected.inc();
            }
            Progress::Standing { done, remaining_s, agenda } => {
                self.blocks_done.set(i64::from(*done));
                if let Some(seconds) = remaining_s {
                    self.remaining_s.set(*seconds);
                }
                agenda.comparisons.iter().for_each(|standing| self.compare(standing));
            }
            Progress::BlockStarted { .. }
            | Progress::TrialStarted(_)
            | Progress::Booted(_)
            | Progress::NotRestored(_)
            | Progress::RunStarted(..) => {}
        }
    }

    fn compare(&self, standing: &Standing) {
        let labels = vec![
            ("load", standing.load.clone()),
            ("workload", standing.workload.clone()),
            ("variant", standing.variant.clone()),
        ];
        self.open.get_or_create(&labels).set(i64::from(standing.is_open));
        if let Some(ratio) = standing.judgement.ratio {
            self.ratio.get_or_create(&labels).set(ratio);
        }
        if let Some(interval) = standing.judgement.interval {
            self.ratio_low.get_or_create(&labels).set(interval.lo);
            self.ratio_high.get_or_create(&labels).set(interval.hi);
        }
    }
}

/// Answers whoever asks at an address, until it is dropped.
pub(crate) struct Exporter {
    instruments: Instruments,
    address: SocketAddr,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Listens at `address`: `127.0.0.1:9464`, or a port alone, on loopback.
    pub(crate) fn start(address: SocketAddr, plan: &Plan) -> anyhow::Result<Self> {
        let mut registry = Registry::with_prefix("vmlab");
        let instruments = Instruments::new(plan, &mut registry);
        let listener = TcpListener::bind(address)
            .with_context(|| format!("Cannot listen at {address} for --metrics"))?;
        let address = listener.local_addr().context("Cannot tell the address of --metrics")?;
        let over = Arc::new(AtomicBool::new(false));
        let registry = Arc::new(Mutex::new(registry));
        let seen = Arc::clone(&over);
        let serve = move || {
            let mut open = VecDeque::new();
            while let Ok((stream, _)) = listener.accept() {
                if seen.load(Ordering::Acquire) {
                    break;
                }
                begin(stream, &registry, &mut open);
            }
            open.into_iter().for_each(|(stream, _)| hang_up(&stream));
        };
        let server = thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        let server = Some(server.context("Cannot start a thread for --metrics")?);
        Ok(Self { instruments, address, over, server })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn observe(&self, event: &Progress<'_>) {
        self.instruments.observe(event);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Wakes the thread from waiting for somebody.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(server) = self.server.take().filter(|_| woken) {
            drop(server.join());
        }
    }
}

/// Those that ask, the first one in front, with the thread that answers.
type Asking = VecDeque<(TcpStream, JoinHandle<()>)>;

/// Answers in a thread of its own: who asks slowly keeps nobody else waiting.
fn begin(stream: TcpStream, registry: &Arc<Mutex<Registry>>, open: &mut Asking) {
    open.retain(|(_, thread)| !thread.is_finished());
    // Whoever has had the most time makes room.
    while open.len() >= MOST_ASKING {
        let Some((first, thread)) = open.pop_front() else { break };
        hang_up(&first);
        drop(thread.join());
    }
    let (Ok(mut other), registry) = (stream.try_clone(), Arc::clone(registry)) else { return };
    let answer = move || {
        // Who hangs up early has nothing to complain of.
        drop(answer(&mut other, &registry));
        hang_up(&other);
    };
    let thread = thread::Builder::new().name("metrics-answer".to_owned()).spawn(answer);
    // Without a thread to spare it is hung up.
    if let Ok(thread) = thread {
        open.push_back((stream, thread));
    }
}

fn hang_up(stream: &TcpStream) {
    // It may be closed already.
    drop(stream.shutdown(Shutdown::Both));
}

fn answer(stream: &mut TcpStream, registry: &Mutex<Registry>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(stream)?;
    let (status, kind, body) = match request.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET" | "HEAD", "/metrics"] => {
            let mut text = String::new();
            let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
            encode(&mut text, &registry).map_err(io::Error::other)?;
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, text)
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
    stream.write_all(head.as_bytes())?;
    if !request.starts_with("HEAD ") {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// The request's first line; its headers are read and not looked at.
fn read_request(stream: &mut TcpStream) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut part)?;
        request.extend_from_slice(&part[..read]);
        if read == 0 || request.len() > LONGEST_REQUEST_BYTES {
            break;
        }
    }
    let text = String::from_utf8_lossy(&request);
    Ok(text.lines().next().unwrap_or_default().to_owned())
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let registry = Arc::new(Mutex::new(Registry::default()));
        let mut open = Asking::new();
        let mut silent = Vec::new();
        let mut accept = || begin(listener.accept().unwrap().0, &registry, &mut open);
        for _ in 0..3 * MOST_ASKING {
            silent.push(TcpStream::connect(address).unwrap());
            accept();
        }
        let mut asks = TcpStream::connect(address).unwrap();
        accept();
        asks.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The first of the silent was hung up to make room, the last was not.
        assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
        assert!(open.len() <= MOST_ASKING && open.len() > 1);
        open.into_iter().for_each(|(stream, thread)| {
            hang_up(&stream);
            thread.join().unwrap();
        });
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
