//! `vmlab switch ctl`: asks and tells a switch that runs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use vswitch::{ControlReply, PortConfig, Question, StationStatus, SwitchStatus, ask};

use super::peer;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct CtlArgs {
    #[command(subcommand)]
    question: CtlCommand,
    /// The switch's control socket.
    #[arg(long, global = true, value_name = "PATH")]
    control: Option<PathBuf>,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Show ports, their counters, and the polling threads.
    Status,
    /// Show who is behind which port.
    Mac,
    /// Add a port, and show what belongs into QEMU and libvirt.
    Add {
        /// As for `vmlab switch --port`.
        port: String,
    },
    /// Remove a port; its frontend is sent away.
    Remove {
        /// The port's name.
        port: String,
    },
    /// Say that a station is behind a port: it neither ages nor moves.
    Pin {
        /// The station's address.
        mac: String,
        /// The port's name.
        port: String,
    },
    /// Let a pinned station be learned again.
    Unpin {
        /// The station's address.
        mac: String,
    },
    /// Forget what was learned.
    Forget {
        /// The port's name; all ports if not given.
        port: Option<String>,
    },
    /// End the switch.
    End,
}

pub(super) fn run(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let question = match &args.question {
        CtlCommand::Status => Question::Status,
        CtlCommand::Mac => Question::Stations,
        CtlCommand::Add { port } => return add(args, port),
        CtlCommand::Remove { port } => Question::Remove { port: port.clone() },
        CtlCommand::Pin { mac, port } => Question::Pin { mac: mac.clone(), port: port.clone() },
        CtlCommand::Unpin { mac } => Question::Unpin { mac: mac.clone() },
        CtlCommand::Forget { port } => Question::Forget { port: port.clone() },
        CtlCommand::End => Question::End,
    };
    answer(args, question)
}

/// Adds a port, and shows what belongs to its other end.
fn add(args: &CtlArgs, port: &str) -> anyhow::Result<ExitCode> {
    // The switch may run in another folder: what is relative is so here.
    let port = if port.starts_with("tap:") {
        port.to_owned()
    } else {
        let (path, rest) = port.split_once(',').map_or((port, ""), |both| both);
        let path = std::path::absolute(path)?;
        let comma = if rest.is_empty() { "" } else { "," };
        format!("{}{comma}{rest}", path.display())
    };
    let config = PortConfig::parse(&port)?;
    let control = args.control.clone().unwrap_or_else(super::default_control);
    let others = match ask(&control, Question::Status)? {
        ControlReply::Status(status) => status.ports,
        ControlReply::Error(error) => bail!("{error}"),
        _ => Vec::new(),
    };
    let others: Vec<PathBuf> = others.into_iter().map(|port| port.socket.into()).collect();
    answer(args, Question::Add { port })?;
    if !args.json {
        terminal::print(&peer::text(&[config], &others))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(args: &CtlArgs, question: Question) -> anyhow::Result<ExitCode> {
    let path = args.control.clone().unwrap_or_else(super::default_control);
    let answer = ask(&path, question)?;
    match answer {
        ControlReply::Error(error) => bail!("{error}"),
        ControlReply::Status(status) if args.json => {
            terminal::print(&(serde_json::to_string_pretty(&status)? + "\n"))?;
        }
        ControlReply::Stations(stations) if args.json => {
            terminal::print(&(serde_json::to_string_pretty(&stations)? + "\n"))?;
        }
        ControlReply::Status(status) => terminal::print(&status_text(&status))?,
        ControlReply::Stations(stations) => terminal::print(&stations_text(&stations))?,
        ControlReply::Done => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn status_text(status: &SwitchStatus) -> String {
    let width = status.ports.iter().map(|port| port.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:9}  {:>5}  {:>7}  {:>14}  {:>14}  drops\n",
        "port", "state", "rings", "busy", "frames in", "frames out"
    );
    for port in &status.ports {
        let counts = &port.counts;
        let drops: Vec<String> =
            counts.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let drops = if drops.is_empty() { "none".to_owned() } else { drops.join(", ") };
        let _ = writeln!(
            text,
            "{:width$}  {:9}  {:>5}  {:>5.1} %  {:>14}  {:>14}  {drops}",
            port.name,
            port.state.name(),
            port.rings,
            100.0 * counts.busy_ns as f64 / (1e9 * status.up_s.max(1) as f64),
            counts.frames_in,
            counts.frames_out
        );
        if let Some(error) = &port.unreachable {
            let _ = writeln!(text, "{:width$}  its VM does not listen yet: {error}", "");
        }
        if counts.rate_waits > 0 {
            let _ =
                writeln!(text, "{:width$}  waited {} times for its rate", "", counts.rate_waits);
        }
        if counts.signals_lost > 0 {
            let lost = counts.signals_lost;
            let _ = writeln!(text, "{:width$}  {lost} events could not be delivered", "");
        }
        if counts.segmented + counts.checksummed > 0 {
            let (cut, sums) = (counts.segmented, counts.checksummed);
            let _ = writeln!(
                text,
                "{:width$}  takes no offload: {cut} frames cut into segments here, {sums} checksums computed",
                ""
            );
        }
        for (ring, why) in &port.stopped {
            let _ = writeln!(text, "{:width$}  ring {ring} is stopped: {why}", "");
        }
        if let Some(error) = &port.last_error {
            let _ = writeln!(text, "{:width$}  the last frontend was sent away: {error}", "");
        }
    }
    for same in &status.same_addresses {
        let [first, second] = &same.ports;
        let _ = writeln!(text, "{}", super::same_address(first, second, &same.mac));
    }
    for (number, thread) in status.threads.iter().enumerate() {
        let counts = &thread.counts;
        let whole = (counts.busy_ns + counts.idle_ns + counts.asleep_ns).max(1) as f64;
        let share = |part: u64| 100.0 * part as f64 / whole;
        let pcpu = thread.pcpu.map_or(String::new(), |pcpu| format!(" on pCPU {pcpu}"));
        let burst = counts.frames as f64 / counts.bursts.max(1) as f64;
        let _ = writeln!(
            text,
            "thread {number}{pcpu}: {:.1} % busy, {:.1} % looking, {:.1} % asleep; {burst:.1} frames a burst",
            share(counts.busy_ns),
            share(counts.idle_ns),
            share(counts.asleep_ns)
        );
    }
    for mirror in &status.mirrors {
        let _ = writeln!(
            text,
            "mirror {}: {} frames written, {} dropped",
            mirror.target, mirror.written, mirror.dropped
        );
    }
    text
}

fn stations_text(stations: &[StationStatus]) -> String {
    let mut text = format!("{:17}  {:>4}  {:>6}  port\n", "address", "vlan", "age");
    for station in stations {
        let age = station.age_s.map_or("pinned".to_owned(), |age_s| format!("{age_s} s"));
        let vlan = if station.vlan == 0 { "-".to_owned() } else { station.vlan.to_string() };
        let _ = writeln!(text, "{:17}  {vlan:>4}  {age:>6}  {}", station.mac, station.port);
    }
    text
}
