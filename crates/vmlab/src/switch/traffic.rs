//! `vmlab switch traffic`: frames through a switch, any vhost-user switch, sent as
//! VMs send them and checked as they arrive.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use vswitch::frontend::{
    DescriptorLayout, FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficFlow,
    TrafficPlan,
};
use vswitch::message::features;

use crate::exit::FINDINGS;
use crate::terminal;

/// How long ports may take to hear of each other.
const GREETING: Duration = Duration::from_secs(10);
/// How long frames may stay away before they count as lost.
const GRACE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum TrafficPattern {
    /// From the first port to the second.
    One,
    /// Each port to the next, the last to the first (two ports: both ways).
    Ring,
    /// Each port to each other.
    Mesh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutArg {
    /// Header and frame in one descriptor.
    One,
    /// The header in a descriptor of its own.
    Two,
    /// A table of two.
    Indirect,
}

#[derive(Debug, Args)]
pub(super) struct TrafficArgs {
    /// The sockets of the switch's ports, which it listens on.
    #[arg(required = true, num_args = 2..=64, value_name = "SOCKET")]
    sockets: Vec<PathBuf>,
    /// Who sends to whom.
    #[arg(long, value_enum, default_value = "ring", value_name = "WAY")]
    way: TrafficPattern,
    /// Bytes of each frame, without the checksum that Ethernet adds.
    #[arg(long, default_value_t = 60, value_name = "N",
          value_parser = clap::value_parser!(u16).range(60..=9000))]
    bytes: u16,
    /// Write and check every byte, not the first 22 alone.
    #[arg(long)]
    whole: bool,
    /// Packed rings, not split ones.
    #[arg(long)]
    packed: bool,
    /// How frames lie in descriptors.
    #[arg(long, value_enum, default_value = "one", value_name = "LAYOUT")]
    layout: LayoutArg,
    /// Entries of each ring, a power of two.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = ring_size)]
    ring: u16,
    /// Frames a second of each flow, not as many as get through; tells how long frames
    /// are on their way.
    #[arg(long, value_name = "N", value_parser = pace)]
    pace: Option<f64>,
    /// Seconds to send.
    #[arg(long, default_value_t = 5.0, value_name = "N", value_parser = seconds)]
    seconds: f64,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn ring_size(text: &str) -> Result<u16, String> {
    let size = text.parse::<u16>().ok();
    let size = size.filter(|size| size.is_power_of_two() && (64..=32768).contains(size));
    size.ok_or_else(|| "must be a power of two from 64 to 32768".to_owned())
}

fn pace(text: &str) -> Result<f64, String> {
    let pace = text.parse::<f64>().ok().filter(|pace| (1.0..=1e8).contains(pace));
    pace.ok_or_else(|| "must be a number of frames a second, 1 to 1e8".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "must be a number of seconds, 0.01 to 86400".to_owned())
}

/// What was measured.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TrafficResult {
    ports: usize,
    way: TrafficPattern,
    bytes: u16,
    packed: bool,
    seconds: f64,
    sent: u64,
    received: u64,
    lost: u64,
    disordered: u64,
    corrupt: u64,
    frames_per_s: f64,
    /// Half of the frames were on their way for less; with a pace.
    latency_p50_ns: Option<u32>,
    /// 99 % were.
    latency_p99_ns: Option<u32>,
}

/// What a share of the frames needed at most.
fn quantile(latencies_ns: &mut [u32], percent: usize) -> Option<u32> {
    let at = latencies_ns.len().checked_sub(1)?.min(latencies_ns.len() * percent / 100);
    Some(*latencies_ns.select_nth_unstable(at).1)
}

pub(super) fn run(args: &TrafficArgs) -> anyhow::Result<ExitCode> {
    let ports = args.sockets.len();
    let flows = match args.way {
        TrafficPattern::One => vec![TrafficFlow { from: 0, to: 1 }],
        TrafficPattern::Ring => TrafficPlan::ring(ports),
        TrafficPattern::Mesh => TrafficPlan::mesh(ports),
    };
    let to_one = flows.iter().filter(|flow| flow.to == 1).count() as u64;
    let defaults = FrontendOptions::default();
    let packed = if args.packed { features::RING_PACKED } else { 0 };
    let options = FrontendOptions {
        ring_size: args.ring,
        buffer: if args.bytes > 1514 { 9216 + 64 } else { defaults.buffer },
        features: defaults.features | packed,
        shape: match args.layout {
            LayoutArg::One => DescriptorLayout::Single,
            LayoutArg::Two => DescriptorLayout::Two,
            LayoutArg::Indirect => DescriptorLayout::Indirect,
        },
        ..defaults
    };
    let plan = TrafficPlan {
        flows,
        bytes: FrameBytes::Fixed(usize::from(args.bytes)),
        touch: if args.whole { Touch::All } else { Touch::Head },
        window: (u64::from(args.ring) / to_one).max(1),
        grace: GRACE,
        pace_per_s: args.pace,
    };
    let frontends = args.sockets.iter().map(|path| {
        Frontend::connect(path, options).with_context(|| format!("Port {}", path.display()))
    });
    let mut traffic = Traffic::new(frontends.collect::<anyhow::Result<_>>()?, plan);
    if let Err(error) = traffic.greet(GREETING) {
        bail!("No frame gets through the switch: {error}");
    }
    let length = Duration::from_secs_f64(args.seconds);
    let began = Instant::now();
    let mut asked = 0_u32;
    traffic.run(|_| {
        asked += 1;
        asked.is_multiple_of(256) && began.elapsed() >= length
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut latencies_ns = traffic.latencies_ns().to_vec();
    let [latency_p50_ns, latency_p99_ns] =
        [50, 99].map(|percent| quantile(&mut latencies_ns, percent));
    let tally = traffic.tally();
    let outcome = TrafficResult {
        ports,
        way: args.way,
        bytes: args.bytes,
        packed: args.packed,
        seconds,
        sent: tally.sent,
        received: tally.received,
        lost: tally.lost,
        disordered: tally.disordered,
        corrupt: tally.corrupt,
        frames_per_s: tally.received as f64 / seconds,
        latency_p50_ns,
        latency_p99_ns,
    };
    let text = if args.json {
        serde_json::to_string(&outcome)? + "\n"
    } else {
        format!(
            "{:.3} Mpps received and checked ({} of {} frames, {} lost, {} out of order, {} damaged)\n",
            outcome.frames_per_s / 1e6,
            outcome.received,
            outcome.sent,
            outcome.lost,
            outcome.disordered,
            outcome.corrupt
        )
    };
    terminal::print(&text)?;
    if let (Some(p50), Some(p99), false) = (latency_p50_ns, latency_p99_ns, args.json) {
        let us = |ns: u32| f64::from(ns) / 1e3;
        terminal::print(&format!("on their way: p50 {:.1} us, p99 {:.1} us\n", us(p50), us(p99)))?;
    }
    let damaged = tally.disordered + tally.corrupt > 0;
    Ok(if damaged { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}
