//! This switch beside DPDK's testpmd, Open vSwitch on DPDK and the Linux bridge, in
//! one run, in turns, as ratios with intervals. Prints what it finds, asserts nothing
//! about it. It ends with 1 if a peer is missing or fails, or a frame came damaged.
//!
//! Usage: switch_bench [--rounds N] [--trial-ms N] [--kernel SCRIPT] [ROW...]
//!
//! A ROW is a word of the rows' names, `idle`, `fairness` or `bridge`: only those are run.

mod drive;
mod fairness;
mod idle;
mod kernel;
mod machine;
mod peers;
mod rows;
mod trial;

use std::process::ExitCode;
use std::time::Duration;

use machine::Pcpus;
use peers::{Kind, Pages, Peer};
use rows::Row;
use trial::{DropCounts, Judge, UnusableTrial, again};
use vswitch::{PortConfig, Switch, SwitchConfig};

/// What is asked for.
struct BenchOrder {
    rounds: usize,
    trial: Duration,
    kernel: Option<String>,
    words: Vec<String>,
}

fn wanted(mut args: impl Iterator<Item = String>) -> Result<BenchOrder, String> {
    let mut wanted = BenchOrder {
        rounds: 9,
        trial: Duration::from_millis(150),
        kernel: None,
        words: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|error| format!("{text}: {error}"));
        match arg.as_str() {
            "--rounds" => wanted.rounds = number(value()?)?.max(2) as usize,
            "--trial-ms" => wanted.trial = Duration::from_millis(number(value()?)?.into()),
            "--kernel" => wanted.kernel = Some(value()?),
            word if word.starts_with('-') => return Err(format!("{word} is not known")),
            word => wanted.words.push(word.to_owned()),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let result = if args.peek().is_some_and(|word| word == "serve") {
        serve(args.skip(1))
    } else if args.peek().is_some_and(|word| word == "drive") {
        drive::drive(args.skip(1))
    } else {
        wanted(args).and_then(|wanted| run(&wanted))
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("switch_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// This switch, in a process of its own: `serve PCPU[,PCPU] SOCKET...`
fn serve(mut args: impl Iterator<Item = String>) -> Result<bool, String> {
    let pcpus = args.next().and_then(|list| list.split(',').map(|one| one.parse().ok()).collect());
    let ports = args.map(|port| PortConfig::parse(&port).map_err(|error| error.to_string()));
    let mut config = SwitchConfig::new(ports.collect::<Result<_, _>>()?);
    config.pcpus = pcpus.ok_or("serve PCPU[,PCPU] SOCKET...")?;
    let switch = Switch::start(&config).map_err(|error| error.to_string())?;
    // It ends with the process that started it.
    while switch.events().recv().is_ok() {}
    Ok(true)
}

fn run(wanted: &BenchOrder) -> Result<bool, String> {
    let pcpus = Pcpus::find()?;
    machine::prefer();
    let free: u64 =
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
    let pages = if free >= 480 { Pages::Huge } else { Pages::Small };
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut rows = rows::all();
    if pcpus.second.is_none() && rows.iter().any(|row| row.ours == Kind::OursOnTwo) {
        println!("no rows with two polling threads: they need a third pCPU, there are two");
        rows.retain(|row| row.ours != Kind::OursOnTwo);
    }
    let named = |row: &Row| wanted.words.iter().any(|word| row.name.contains(word.as_str()));
    rows.retain(|row| wanted.words.is_empty() || named(row));
    let mut fine = true;
    let mut peers = Vec::new();
    let is_wanted =
        |what: &str| wanted.words.is_empty() || wanted.words.iter().any(|word| word == what);
    for kind in [Kind::Ours, Kind::OursOnTwo, Kind::Testpmd, Kind::Ovs] {
        let takes_part = match kind {
            Kind::Ours => true,
            Kind::Testpmd if is_wanted("idle") => true,
            _ => rows.iter().any(|row| [row.ours, row.against].contains(&kind)),
        };
        if !takes_part {
            continue;
        }
        match Peer::start(kind, folder.path(), pcpus, pages, rows::MOST_PORTS) {
            Ok(mut peer) => {
                peer.wake(false)?;
                peers.push(peer);
            }
            Err(error) if kind == Kind::Ours => return Err(error),
            Err(error) => {
                eprintln!("switch_bench: no {} to compare with: {error}", kind.name());
                fine = false;
            }
        }
    }
    let mut fair = is_wanted("fairness")
        .then(|| Peer::start(Kind::Fair, folder.path(), pcpus, pages, 4))
        .transpose()?;
    if let Some(fair) = &mut fair {
        fair.wake(false)?;
    }
    // After they were started, which would all have been pinned there, too.
    machine::pin(pcpus.generator).map_err(|error| error.to_string())?;
    println!(
        "pCPU {} sends and receives, pCPU {} switches; {:.0} ns from one to the other and back; \
         peers on {} pages",
        pcpus.generator,
        pcpus.switch,
        machine::round_trip_ns(pcpus),
        if pages == Pages::Huge { "huge" } else { "4-KiB" },
    );
    let mut judge =
        Judge { pcpus, length: wanted.trial, copies_ns: [machine::hot_copy_ns()].into() };
    let mut dropped = DropCounts::new();
    for round in 0..wanted.rounds {
        for row in &mut rows {
            fine &= one_round(row, round, &mut peers, &mut judge, &mut dropped);
        }
    }
    for row in &rows {
        println!("{}", row.text());
    }
    if is_wanted("idle")
        && let Err(error) = idle::compare(&mut peers, wanted.rounds, &mut judge, &mut dropped)
    {
        eprintln!("switch_bench: idle: {error}");
        fine = false;
    }
    if let Some(fair) = &mut fair
        && let Err(error) = fairness::compare(fair, wanted.rounds, &mut judge, &mut dropped)
    {
        eprintln!("switch_bench: fairness: {error}");
        fine = false;
    }
    if let Some(script) = wanted.kernel.as_ref().filter(|_| is_wanted("bridge")) {
        fine &= kernel::compare(script, wanted.rounds, &mut peers, &mut judge, &mut dropped);
    }
    let dropped: Vec<String> =
        dropped.iter().map(|(why, count)| format!("{count} because {why}")).collect();
    if !dropped.is_empty() {
        println!("trials dropped and done again: {}", dropped.join(", "));
    }
    Ok(fine)
}

/// Both switches of a row once, who is first changing from round to round. False if
/// something failed that is no disturbance.
fn one_round(
    row: &mut Row,
    round: usize,
    peers: &mut [Peer],
    judge: &mut Judge,
    dropped: &mut DropCounts,
) -> bool {
    let mut kinds = [row.ours, row.against];
    if kinds.iter().any(|kind| !peers.iter().any(|peer| peer.kind == *kind)) {
        return true;
    }
    if round % 2 == 1 {
        kinds.reverse();
    }
    let both = again(dropped, || {
        let mut one = |kind: Kind| {
            let peer = peers.iter_mut().find(|peer| peer.kind == kind).expect("it runs");
            judge.trial(peer, row.options, &row.plan, row.ports, row.figure)
        };
        let (a, b) = (one(kinds[0])?, one(kinds[1])?);
        if a.distance != b.distance {
            return Err(UnusableTrial::Disturbed("the pCPUs moved"));
        }
        Ok(if kinds[0] == row.ours { (a, b) } else { (b, a) })
    });
    match both {
        Ok(Some((ours, theirs))) => row.add(ours, theirs),
        Ok(None) => {}
        Err(error) => {
            eprintln!("switch_bench: {}: {error}", row.name);
            return false;
        }
    }
    true
}
