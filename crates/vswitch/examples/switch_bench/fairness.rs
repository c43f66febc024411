//! What a port that sends as much as it can costs one that sends little: its frames, and
//! their time on the way.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vswitch::frontend::{Flow, FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficPlan};

use crate::peers::Peer;
use crate::trial::connect;

/// Frames a second of the quiet one.
const QUIET_PER_S: f64 = 100_000.0;
const GREETING: Duration = Duration::from_secs(20);
/// What the quiet one keeps at least, and how long its frames take at most.
const LEAST_KEPT: f64 = 0.8;
const MOST_P99_US: f64 = 1000.0;

/// What the quiet port had of it.
struct Had {
    frames_per_s: f64,
    p99_us: f64,
}

fn plan(flows: Vec<Flow>, window: u64, pace_per_s: Option<f64>) -> TrafficPlan {
    TrafficPlan {
        flows,
        bytes: FrameBytes::Fixed(60),
        touch: Touch::All,
        window,
        grace: Duration::from_millis(50),
        pace_per_s,
    }
}

/// One time: the quiet port sends beside a flood with this window, or alone. Stations of
/// both pairs have the same addresses, in VLANs of their own.
fn had(sockets: &[PathBuf], window: Option<u64>, length: Duration) -> Result<Had, String> {
    let options = FrontendOptions::default();
    let ends = |ports: [usize; 2]| -> Result<Vec<Frontend>, String> {
        ports.iter().map(|&port| connect(&sockets[port], options)).collect()
    };
    let one = || vec![Flow { from: 0, to: 1 }];
    let mut flood = Traffic::new(ends([0, 1])?, plan(one(), window.unwrap_or(1), None));
    flood.greet(GREETING)?;
    let mut quiet = Traffic::new(ends([2, 3])?, plan(one(), 256, Some(QUIET_PER_S)));
    quiet.greet(GREETING)?;
    let began = Instant::now();
    let mut asked = 0_u32;
    quiet.run(|_| {
        if window.is_some() {
            flood.pass();
        }
        asked += 1;
        asked.is_multiple_of(32) && began.elapsed() >= length
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut latencies_ns = quiet.latencies_ns().to_vec();
    if latencies_ns.is_empty() {
        return Err("no frame of the quiet port came".to_owned());
    }
    let at = (latencies_ns.len() * 99 / 100).min(latencies_ns.len() - 1);
    let p99_ns = *latencies_ns.select_nth_unstable(at).1;
    Ok(Had {
        frames_per_s: quiet.tally().received as f64 / seconds,
        p99_us: f64::from(p99_ns) / 1e3,
    })
}

/// Prints what a flood costs, round by round in turns with silence.
pub(crate) fn compare(peer: &mut Peer, rounds: usize, length: Duration) -> Result<(), String> {
    // Full to the driver's ring, and more than any ring holds.
    for (what, window) in [("a flood that waits", 256), ("a flood that does not", 1 << 30)] {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            peer.wake(true)?;
            let both = (had(&peer.sockets, None, length), had(&peer.sockets, Some(window), length));
            peer.wake(false)?;
            alone.push(both.0?);
            beside.push(both.1?);
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
        let stands = if kept >= LEAST_KEPT && p99_us <= MOST_P99_US { "reached" } else { "MISSED" };
        println!(
            "{what:24}: the quiet port keeps {:.1} % of {:.0} frames/s (goal {:.0} %), p99 {:.1} us \
             of {:.1} alone (goal {MOST_P99_US:.0}): {stands}",
            100.0 * kept,
            mean(&alone),
            100.0 * LEAST_KEPT,
            p99_us,
            median(&alone),
        );
    }
    Ok(())
}
