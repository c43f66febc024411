//! `vmlab sim`: what happens on a host that nobody here has.

mod calibrated;
pub(crate) mod draw;
pub(crate) mod output;
mod pictures;
mod validate;

pub(crate) use output::AnswerJson;
pub(crate) use validate::ScoresJson;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use sim::answer;
use sim::map::Map;
use sim::scenario::Scenario;

use crate::host_file::load_host;
use crate::{exit, input, interrupt, terminal};
use draw::{DrawJob, DrawPlan};

const EXAMPLES: &str = "\
Examples:
  vmlab sim studies/sim/overcommit.toml         20-way VMs on an 80-CPU host of 2012
  vmlab sim scenario.toml --draws 8             a first look
  vmlab sim scenario.toml --json | jq '.cells[] | {variant, meters}'
  vmlab sim scenario.toml --records sim.json && vmlab compare sim.json
  vmlab sim scenario.toml --check               is the scenario sound? what would run?
  vmlab sim scenario.toml --map map.svg --variant 'ple on'
                                                who ran where?
  vmlab sim scenario.toml --map map.html        the same as a page, with zoom
  perf script -F comm,pid,tid,cpu,time,event,trace >rec.txt
  vmlab sim --recording rec.txt --map map.html  who ran where on a real machine?
  vmlab sim scenario.toml --calibrate prices.json
                                                with what this host's exits cost
  vmlab sim --validate                          how near to published results is it?

docs/sim.md explains every key of a scenario, docs/sim-model.md what is played and what it
costs, docs/sim-results.md how near that comes to what was measured.";

/// Simulate VMs on a host that nobody here has
///
/// Plays the scenario event by event: the host's scheduler by kernel version,
/// KVM, the guests' schedulers and locks. Draws the costs that are not known
/// exactly from their ranges, and answers with intervals: throughput, how sure
/// the order is, where the time went, and which mechanism carries a difference.
/// The same scenario and seed bring the same answer on every machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["validate", "recording"])]
    scenario: Option<PathBuf>,

    /// Hold the simulator to published results and closed forms instead
    #[arg(long, conflicts_with_all = ["scenario", "seed", "no_why", "check", "records"])]
    validate: bool,

    /// Draw a recording of a real machine instead: what `perf script` or `trace-cmd
    /// report` printed, '-' for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "validate", "seed", "draws",
        "no_why", "check", "records", "json", "variant", "map_ms"])]
    recording: Option<PathBuf>,

    /// Take what things cost from a price list of `vmlab calibrate`, or from a short
    /// measurement of this machine ('here'), instead of what is known of such costs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["validate", "recording"])]
    calibrate: Option<PathBuf>,

    /// Draws of the costs, instead of the scenario's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    draws: Option<u32>,

    /// Seed of all chance, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Leave out what carries the differences: saves a third of the time
    #[arg(long)]
    no_why: bool,

    /// Only check the scenario and list what would be simulated
    #[arg(long)]
    check: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw who ran where to this file, and simulate nothing else: SVG, or a page
    /// with zoom if it ends in .html
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    map: Option<PathBuf>,

    /// The same for Perfetto or about:tracing, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    trace: Option<PathBuf>,

    /// The variant that is drawn [default: the baseline]
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,

    /// The last so many milliseconds are drawn
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = milliseconds)]
    map_ms: f64,

    /// Write each draw's values as records, for compare and import
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.001..=10_000.0).contains(value));
    value.ok_or_else(|| "must be a number of milliseconds from 0.001 to 10000".to_owned())
}

/// Runs `vmlab sim`.
///
/// # Errors
/// Scenarios that can't be read or are not sound; guests that can't go on;
/// output that can't be written.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let cancel = || interrupt::cancel_on_signals().context("Cannot listen for Ctrl-C");
    if let Some(file) = &args.recording {
        anyhow::ensure!(
            args.map.is_some() || args.trace.is_some(),
            "Say what to make of the recording: --map FILE.html, --map FILE.svg or --trace FILE"
        );
        pictures::write(args.map.as_deref(), args.trace.as_deref(), &pictures::recorded(file)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(path) = args.scenario.as_deref().filter(|_| !args.validate) else {
        let scores = validate::run(args.draws, &cancel()?)?;
        terminal::print(&if args.json { scores.json()? } else { scores.text() })?;
        return Ok(match (scores.interrupted, scores.wrong()) {
            (true, _) => ExitCode::from(exit::ERROR),
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitCode::from(exit::FINDINGS),
        });
    };
    let mut scenario = read(path)?;
    if let Some(draws) = args.draws {
        scenario.draws = draws;
    }
    if let Some(seed) = args.seed {
        scenario.seed = seed;
    }
    let measured = args.calibrate.as_deref().map(calibrated::read).transpose()?;
    let measured = measured.unwrap_or_default();
    scenario.calibrate(&measured);
    let plan = DrawPlan::new(&scenario, !args.no_why);
    if args.check {
        terminal::print(&output::plan(&scenario, &plan))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.map.is_some() || args.trace.is_some() {
        draw_map(args, &scenario, &cancel()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = plan.run(&scenario, &cancel()?);
    if let Some((DrawJob { cell, .. }, stuck)) = done.stuck {
        let cell = &scenario.cells[cell];
        bail!("{}: variant {:?}: {stuck}", path.display(), cell.variant);
    }
    let answers = answer::answers(&scenario, &done.drawn);
    if let Some(file) = &args.records {
        let records = output::records(&stem(path), &scenario, &done.drawn);
        fs::write(file, records).with_context(|| format!("Cannot write {}", file.display()))?;
    }
    let text = if args.json {
        output::json(&scenario, &answers, &measured, done.interrupted)?
    } else {
        output::text(&scenario, &answers, &measured, done.interrupted)
    };
    terminal::print(&text)?;
    Ok(if done.interrupted { ExitCode::from(exit::ERROR) } else { ExitCode::SUCCESS })
}

/// Draws one variant at the sweep's first point, with the medians of all costs.
fn draw_map(args: &SimArgs, scenario: &Scenario, cancel: &guest::Cancel) -> anyhow::Result<()> {
    let variant = args.variant.as_ref().unwrap_or(&scenario.baseline);
    let cell = scenario.cells.iter().find(|cell| cell.variant == *variant);
    let Some(cell) = cell else {
        let names: Vec<_> = scenario.cells.iter().map(|cell| cell.variant.as_str()).collect();
        bail!("There is no variant {variant:?}: there are {}", names.join(", "));
    };
    let mut model = cell.draw(scenario.seed, 0);
    let end = model.warmup_ns + model.duration_ns;
    model.map_from_ns = Some(end.saturating_sub((args.map_ms * 1e6) as u64));
    let outcome = match sim::run(&model, || !cancel.is_cancelled()) {
        Ok(outcome) => outcome,
        Err(Some(stuck)) => bail!("Variant {variant:?}: {stuck}"),
        Err(None) => bail!("Interrupted before the map was done"),
    };
    let title = format!("{}: {variant}", scenario.title);
    if let Some(until) = outcome.map_until_ns {
        terminal::note(&format!(
            "vmlab: only the first {:.3} of {} ms are drawn, as more than {} stretches and marks do not fit into memory: draw less time (--map-ms)",
            until.saturating_sub(model.map_from_ns.unwrap_or(0)) as f64 / 1e6,
            args.map_ms,
            sim::MOST_SEGMENTS
        ));
    }
    let map = Map::of_run(&model, outcome, title.trim_start_matches(": "));
    pictures::write(args.map.as_deref(), args.trace.as_deref(), &map)
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "scenario".to_owned(), |stem| stem.display().to_string())
}

/// Reads a scenario; the host description that it names lies beside it.
fn read(path: &Path) -> anyhow::Result<Scenario> {
    let name = path.display().to_string();
    let text = input::text(path).with_context(|| format!("Cannot read {name}"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let host =
        |file: &str| load_host(&folder.join(file)).map_err(|error| terminal::error_text(&error));
    let scenario = Scenario::parse(&name, &text, host)?;
    for unused in &scenario.left_out {
        terminal::note(&format!("vmlab: not in the model, left out of {unused}"));
    }
    Ok(scenario)
}
