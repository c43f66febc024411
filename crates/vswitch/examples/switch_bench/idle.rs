//! What a switch takes of a pCPU while its ports are silent, and how long the first frame
//! after a silence is on its way.

use std::time::{Duration, Instant};

use vswitch::frontend::{FrameBytes, FrontendOptions, Touch, Traffic, TrafficFlow, TrafficPlan};

use crate::machine::{distance, ran_ns, wakes_ns};
use crate::peers::{Kind, Peer};
use crate::trial::{DropCounts, Figure, GREETING, Judge, UnusableTrial, Waits, again, connect};

/// How long nobody sends, while the switch's time is counted.
const SILENCE: Duration = Duration::from_secs(1);
/// How long the frames are counted, of which each is the first after a silence.
const FRAMES: Duration = Duration::from_secs(2);
/// 5 ms apart, 25 times as long as this switch looks for work before it sleeps.
const FRAMES_PER_S: f64 = 200.0;
/// Less of a pCPU, in percent, and a p99 that is no longer.
const MOST_PERCENT: f64 = 1.0;
const MOST_P99_US: f64 = 100.0;

/// What was seen of a switch in one round.
#[derive(Debug)]
struct IdleSighting {
    /// Of a pCPU, while nobody sent.
    percent: f64,
    times: Times,
}

/// How long frames of one round were on their way.
#[derive(Debug, Clone, Copy)]
struct Times {
    p50_us: f64,
    p99_us: f64,
}

fn once(peer: &mut Peer, judge: &mut Judge) -> Result<IdleSighting, UnusableTrial> {
    peer.wake(true).map_err(UnusableTrial::Failed)?;
    let result = awake(peer, judge);
    peer.wake(false).map_err(UnusableTrial::Failed)?;
    result
}

fn awake(peer: &Peer, judge: &mut Judge) -> Result<IdleSighting, UnusableTrial> {
    let failed = |error: String| UnusableTrial::Failed(format!("{}: {error}", peer.kind.name()));
    let before = distance(judge.pcpus);
    let ends: Result<Vec<_>, _> = peer.sockets[..2]
        .iter()
        .map(|socket| connect(socket, FrontendOptions::default()))
        .collect();
    let plan = TrafficPlan {
        flows: vec![TrafficFlow { from: 0, to: 1 }],
        bytes: FrameBytes::Fixed(60),
        touch: Touch::All,
        window: 256,
        grace: Duration::from_millis(200),
        pace_per_s: Some(FRAMES_PER_S),
    };
    let mut traffic = Traffic::new(ends.map_err(failed)?, plan);
    traffic.greet(GREETING).map_err(failed)?;
    let (began, ran) = (Instant::now(), ran_ns(peer.pid()));
    std::thread::sleep(SILENCE);
    let ran = ran_ns(peer.pid()).saturating_sub(ran);
    let percent = 100.0 * ran as f64 / began.elapsed().as_nanos() as f64;
    let (began, waits) = (Instant::now(), Waits::begin(peer.pid()));
    traffic.run(|_| began.elapsed() >= FRAMES);
    let waiting = waits.share();
    let latencies_ns = traffic.latencies_ns().to_vec();
    if latencies_ns.is_empty() {
        return Err(failed("no frame came".to_owned()));
    }
    drop(traffic);
    judge.undisturbed(before, waiting, Figure::P99)?;
    Ok(IdleSighting { percent, times: Times::of(latencies_ns) })
}

/// A bare wake of the switch's pCPU, as often.
fn wake(judge: &mut Judge) -> Result<Times, UnusableTrial> {
    let before = distance(judge.pcpus);
    let count = (FRAMES.as_secs_f64() * FRAMES_PER_S) as u32;
    let wakes = wakes_ns(judge.pcpus, count, Duration::from_secs_f64(1.0 / FRAMES_PER_S));
    let (wakes, waiting) =
        wakes.map_err(|error| UnusableTrial::Failed(format!("an eventfd: {error}")))?;
    judge.undisturbed(before, waiting, Figure::P99)?;
    Ok(Times::of(wakes))
}

impl Times {
    fn of(mut all_ns: Vec<u32>) -> Self {
        all_ns.sort_unstable();
        let count = all_ns.len();
        let at = |share: usize| f64::from(all_ns[(count * share / 100).min(count - 1)]) / 1e3;
        Self { p50_us: at(50), p99_us: at(99) }
    }
}

/// The median of the rounds, the least and the most.
fn spread<T>(all: &[T], of: impl Fn(&T) -> f64) -> [f64; 3] {
    let mut all: Vec<f64> = all.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

fn say_times(what: &str, all: &[Times], verdict: impl Fn(f64) -> String) {
    if all.is_empty() {
        println!("{what:24}: no round could be kept");
        return;
    }
    let [p50_us, ..] = spread(all, |times| times.p50_us);
    let [p99_us, least, most] = spread(all, |times| times.p99_us);
    println!(
        "{what:24}: p50 {p50_us:.1} us, p99 {p99_us:.1} us, {least:.1} to {most:.1} in {} rounds{}",
        all.len(),
        verdict(p99_us),
    );
}

/// Prints both figures of each switch, medians of the rounds and their range; the goals
/// are for this one.
pub(crate) fn compare(
    peers: &mut [Peer],
    rounds: usize,
    judge: &mut Judge,
    dropped: &mut DropCounts,
) -> Result<(), String> {
    let mut seen: Vec<Vec<IdleSighting>> = peers.iter().map(|_| Vec::new()).collect();
    let mut wakes = Vec::new();
    for round in 0..rounds {
        for place in 0..peers.len() {
            // Who is first changes.
            let number = (place + round) % peers.len();
            seen[number].extend(again(dropped, || once(&mut peers[number], judge))?);
        }
        wakes.extend(again(dropped, || wake(judge))?);
    }
    for (peer, seen) in peers.iter().zip(seen) {
        let name = peer.kind.name();
        if seen.is_empty() {
            println!("{:24}: no round could be kept", format!("idle, {name}"));
            continue;
        }
        let verdict = |goal: &str, reached: bool| match (peer.kind, reached) {
            (Kind::Ours, true) => format!(" (goal {goal}: reached)"),
            (Kind::Ours, false) => format!(" (goal {goal}: MISSED)"),
            _ => String::new(),
        };
        let [percent, least, most] = spread(&seen, |seen| seen.percent);
        println!(
            "{:24}: {percent:.3} % of a pCPU, {least:.3} to {most:.3} in {} rounds{}",
            format!("idle, {name}"),
            seen.len(),
            verdict(&format!("below {MOST_PERCENT} %"), percent < MOST_PERCENT),
        );
        let times: Vec<Times> = seen.iter().map(|seen| seen.times).collect();
        say_times(&format!("first frame, {name}"), &times, |p99_us| {
            verdict(&format!("at most {MOST_P99_US} us"), p99_us <= MOST_P99_US)
        });
    }
    say_times("a bare wake", &wakes, |_| String::new());
    Ok(())
}
