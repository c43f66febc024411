//! What a port that sends as much as it can costs one that sends little: its frames, and
//! their time on the way.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vswitch::frontend::{
    FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficFlow, TrafficPlan,
};

use vswitch::message::features;

use crate::machine::distance;
use crate::peers::Peer;
use crate::trial::{DropCounts, Figure, GREETING, Judge, UnusableTrial, Waits, again, connect};

/// Frames a second of the quiet one.
const QUIET_PER_S: f64 = 100_000.0;
/// What the quiet one keeps at least, and how long its frames take at most.
const LEAST_KEPT: f64 = 0.8;
const MOST_P99_US: f64 = 1000.0;

/// What the other port does meanwhile.
#[derive(Debug, Clone, Copy)]
enum FloodKind {
    Nothing,
    /// It sends short frames, so many ahead of its receiver.
    Frames {
        window: u64,
    },
    /// It sends the largest segments, to be cut by the switch into the smallest.
    Segments,
}

/// A flood that goes on.
#[derive(Debug)]
enum Flood {
    Frames(Traffic),
    Segments { sender: Frontend, receiver: Frontend },
}

/// Bytes of a large segment with its headers, and of the parts that are made of it.
const LARGE: usize = 64_054;
const PART: u16 = 48;

impl Flood {
    fn begin(kind: FloodKind, sockets: [&Path; 2]) -> Result<Option<Self>, String> {
        let options = FrontendOptions::default();
        let [to, from] = [sockets[1], sockets[0]];
        match kind {
            FloodKind::Nothing => Ok(None),
            FloodKind::Frames { window } => {
                let ends = vec![connect(from, options)?, connect(to, options)?];
                let flows = vec![TrafficFlow { from: 0, to: 1 }];
                let mut flood = Traffic::new(ends, plan(flows, window, None));
                flood.greet(GREETING)?;
                Ok(Some(Self::Frames(flood)))
            }
            FloodKind::Segments => {
                let segments = options.features | features::CSUM | features::HOST_TSO4;
                let large = FrontendOptions {
                    features: segments,
                    buffer: 65_536,
                    ring_size: 64,
                    ..options
                };
                // It takes no segments.
                let (mut sender, receiver) = (connect(from, large)?, connect(to, options)?);
                let bytes = large_segment();
                let ring = &mut sender.pairs()[0].transmit;
                let mut slots = Vec::new();
                while let Some(slot) = ring.take_free() {
                    ring.buffer(slot).write(&bytes);
                    slots.push(slot);
                }
                slots.into_iter().for_each(|slot| ring.post(slot, bytes.len() as u32));
                Ok(Some(Self::Segments { sender, receiver }))
            }
        }
    }

    fn pass(&mut self) {
        match self {
            Self::Frames(flood) => flood.pass(),
            Self::Segments { sender, receiver } => {
                let ring = &mut receiver.pairs()[0].receive;
                while ring.take_used().is_some() {}
                while let Some(slot) = ring.take_free() {
                    ring.post(slot, 0);
                }
                ring.publish();
                let ring = &mut sender.pairs()[0].transmit;
                while ring.take_used().is_some() {}
                while let Some(slot) = ring.take_free() {
                    // What is in it stays.
                    ring.post(slot, 12 + LARGE as u32);
                }
                ring.publish();
                ring.kick();
            }
        }
    }
}

/// A TCP segment over IPv4 with the header that asks for it to be cut.
fn large_segment() -> Vec<u8> {
    let mut bytes = vec![0; 12 + LARGE];
    bytes[..2].copy_from_slice(&[1, 1]);
    for (at, word) in [(2, 54), (4, PART), (6, 34), (8, 16)] {
        bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    let frame = &mut bytes[12..];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 6;
    frame[46] = 5 << 4;
    bytes
}

/// What the quiet port had of it.
#[derive(Debug)]
struct PortShare {
    frames_per_s: f64,
    p99_us: f64,
}

fn plan(flows: Vec<TrafficFlow>, window: u64, pace_per_s: Option<f64>) -> TrafficPlan {
    TrafficPlan {
        flows,
        bytes: FrameBytes::Fixed(60),
        touch: Touch::All,
        window,
        grace: Duration::from_millis(50),
        pace_per_s,
    }
}

/// One time: the quiet port sends beside a flood, or alone.
fn once(peer: &mut Peer, kind: FloodKind, judge: &mut Judge) -> Result<PortShare, UnusableTrial> {
    let before = distance(judge.pcpus);
    peer.wake(true).map_err(UnusableTrial::Failed)?;
    let had = had(&peer.sockets, peer.pid(), kind, judge.length);
    peer.wake(false).map_err(UnusableTrial::Failed)?;
    let (had, waiting) = had.map_err(UnusableTrial::Failed)?;
    judge.undisturbed(before, waiting, Figure::P99)?;
    Ok(had)
}

/// What it had, and the share of its time that a thread waited for its pCPU. Stations of
/// both pairs have the same addresses, in VLANs of their own.
fn had(
    sockets: &[PathBuf],
    pid: u32,
    kind: FloodKind,
    length: Duration,
) -> Result<(PortShare, f64), String> {
    let options = FrontendOptions::default();
    let mut flood = Flood::begin(kind, [&sockets[0], &sockets[1]])?;
    let ends = vec![connect(&sockets[2], options)?, connect(&sockets[3], options)?];
    let flows = vec![TrafficFlow { from: 0, to: 1 }];
    let mut quiet = Traffic::new(ends, plan(flows, 256, Some(QUIET_PER_S)));
    quiet.greet(GREETING)?;
    let (began, waits) = (Instant::now(), Waits::begin(pid));
    let mut asked = 0_u32;
    quiet.run(|_| {
        if let Some(flood) = &mut flood {
            flood.pass();
        }
        asked += 1;
        asked.is_multiple_of(32) && began.elapsed() >= length
    });
    let (seconds, waiting) = (began.elapsed().as_secs_f64(), waits.share());
    let mut latencies_ns = quiet.latencies_ns().to_vec();
    if latencies_ns.is_empty() {
        return Err("no frame of the quiet port came".to_owned());
    }
    let at = (latencies_ns.len() * 99 / 100).min(latencies_ns.len() - 1);
    let p99_ns = *latencies_ns.select_nth_unstable(at).1;
    let frames_per_s = quiet.tally().received as f64 / seconds;
    Ok((PortShare { frames_per_s, p99_us: f64::from(p99_ns) / 1e3 }, waiting))
}

/// Prints what a flood costs, round by round in turns with silence.
pub(crate) fn compare(
    peer: &mut Peer,
    rounds: usize,
    judge: &mut Judge,
    dropped: &mut DropCounts,
) -> Result<(), String> {
    // Full to the driver's ring, and more than any ring holds.
    for (what, kind) in [
        ("a flood that waits", FloodKind::Frames { window: 256 }),
        ("a flood that does not", FloodKind::Frames { window: 1 << 30 }),
        ("a flood to be cut", FloodKind::Segments),
    ] {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let both = again(dropped, || {
                Ok((once(peer, FloodKind::Nothing, judge)?, once(peer, kind, judge)?))
            })?;
            if let Some(both) = both {
                alone.push(both.0);
                beside.push(both.1);
            }
        }
        if alone.is_empty() {
            println!("{what:24}: no round could be kept");
            continue;
        }
        let mean = |all: &[PortShare]| {
            all.iter().map(|had| had.frames_per_s).sum::<f64>() / all.len() as f64
        };
        let median = |all: &[PortShare]| {
            let mut p99: Vec<f64> = all.iter().map(|had| had.p99_us).collect();
            p99.sort_by(f64::total_cmp);
            p99[p99.len() / 2]
        };
        let kept = mean(&beside) / mean(&alone);
        let p99_us = median(&beside);
        let stands = match kept >= LEAST_KEPT && p99_us <= MOST_P99_US {
            true => "reached",
            false if kept >= LEAST_KEPT && median(&alone) > MOST_P99_US => {
                "missed without a flood, too: undecided"
            }
            false => "MISSED",
        };
        println!(
            "{what:24}: the quiet port keeps {:.1} % of {:.0} frames/s (goal {:.0} %), p99 {:.1} us \
             of {:.1} alone (goal {MOST_P99_US:.0}) in {} rounds: {stands}",
            100.0 * kept,
            mean(&alone),
            100.0 * LEAST_KEPT,
            p99_us,
            median(&alone),
            alone.len(),
        );
    }
    Ok(())
}
