//! What a port that sends as much as it can costs one that sends little: its frames, and
//! their time on the way.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vswitch::frontend::{
    FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficFlow, TrafficPlan,
};

use crate::machine::distance;
use crate::peers::Peer;
use crate::trial::{Dropped, Figure, GREETING, Judge, Unusable, Waits, again, connect};

/// Frames a second of the quiet one.
const QUIET_PER_S: f64 = 100_000.0;
/// What the quiet one keeps at least, and how long its frames take at most.
const LEAST_KEPT: f64 = 0.8;
const MOST_P99_US: f64 = 1000.0;

/// What the quiet port had of it.
#[derive(Debug)]
struct Had {
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

/// One time: the quiet port sends beside a flood with this window, or alone.
fn once(peer: &mut Peer, window: Option<u64>, judge: &mut Judge) -> Result<Had, Unusable> {
    let before = distance(judge.pcpus);
    peer.wake(true).map_err(Unusable::Failed)?;
    let had = had(&peer.sockets, peer.pid(), window, judge.length);
    peer.wake(false).map_err(Unusable::Failed)?;
    let (had, waiting) = had.map_err(Unusable::Failed)?;
    judge.undisturbed(before, waiting, Figure::P99)?;
    Ok(had)
}

/// What it had, and the share of its time that a thread waited for its pCPU. Stations of
/// both pairs have the same addresses, in VLANs of their own.
fn had(
    sockets: &[PathBuf],
    pid: u32,
    window: Option<u64>,
    length: Duration,
) -> Result<(Had, f64), String> {
    let options = FrontendOptions::default();
    let ends = |ports: [usize; 2]| -> Result<Vec<Frontend>, String> {
        ports.iter().map(|&port| connect(&sockets[port], options)).collect()
    };
    let one = || vec![TrafficFlow { from: 0, to: 1 }];
    let mut flood = Traffic::new(ends([0, 1])?, plan(one(), window.unwrap_or(1), None));
    flood.greet(GREETING)?;
    let mut quiet = Traffic::new(ends([2, 3])?, plan(one(), 256, Some(QUIET_PER_S)));
    quiet.greet(GREETING)?;
    let (began, waits) = (Instant::now(), Waits::begin(pid));
    let mut asked = 0_u32;
    quiet.run(|_| {
        if window.is_some() {
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
    Ok((Had { frames_per_s, p99_us: f64::from(p99_ns) / 1e3 }, waiting))
}

/// Prints what a flood costs, round by round in turns with silence.
pub(crate) fn compare(
    peer: &mut Peer,
    rounds: usize,
    judge: &mut Judge,
    dropped: &mut Dropped,
) -> Result<(), String> {
    // Full to the driver's ring, and more than any ring holds.
    for (what, window) in [("a flood that waits", 256), ("a flood that does not", 1 << 30)] {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let both = again(dropped, || {
                Ok((once(peer, None, judge)?, once(peer, Some(window), judge)?))
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
        let mean =
            |all: &[Had]| all.iter().map(|had| had.frames_per_s).sum::<f64>() / all.len() as f64;
        let median = |all: &[Had]| {
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
