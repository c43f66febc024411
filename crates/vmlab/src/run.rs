//! `vmlab run STUDY`: boot the VMs, measure, judge, report.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use guest::Cancel;
use host::owner::Owner;
use host::settings::{Mode, RestoreOutcome, Settings, Tree};
use record::journal::Event;
use runner::execute::{Ended, State, execute};
use runner::local::LocalLab;
use runner::machine::{self, Need};
use runner::plan::Plan;
use runner::store::{self, Contents, Keeper, Store};
use runner::summary;
use topology::Host;

use crate::metrics::{self, Exporter};
use crate::progress::StudyProgress;
use crate::study_file::{self, BudgetArgs};
use crate::{interrupt, plan_text, report, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab run studies/quickstart.toml
  vmlab run studies/smp.toml --blocks 10 --out results/smp
  vmlab run studies/smp.toml --dry-run
  vmlab run --resume results/smp      go on after an interruption or a crash
  vmlab run studies/smp.toml --metrics 9464       for Prometheus, on loopback
  vmlab run --extend results/smp --blocks 10      ten more blocks

A study ends as soon as all its comparisons are decided, at the latest when its
budget is used up. --until budget uses all of it.

Progress goes to standard error when it is a terminal, the verdict to standard
output. Exit codes: 0 fine, 1 findings (failed trials, an A/A alarm), 2 error
or interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The study file.
    #[arg(required_unless_present_any = ["resume", "extend"], conflicts_with_all = ["resume", "extend"])]
    study: Option<PathBuf>,
    /// Go on with the study in this results folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "dry_run", "blocks", "minutes", "seed"])]
    resume: Option<PathBuf>,
    /// Add as many blocks as --blocks says to the study in this results
    /// folder, for each load level; what is decided stays as it is.
    #[arg(
        long,
        value_name = "DIR",
        requires = "blocks",
        conflicts_with_all = ["resume", "out", "dry_run", "minutes", "seed", "until"]
    )]
    extend: Option<PathBuf>,
    /// The results folder to make (default: results/STUDY-DATE-TIME).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show what would be run, and stop.
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Say what every block and trial took, also where nobody watches.
    #[arg(short, long)]
    verbose: bool,
    /// Tell how far the study is as OpenMetrics at this address; a port alone
    /// is on loopback.
    #[arg(long, value_name = "ADDR", value_parser = metrics::parse_address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    budget: BudgetArgs,
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    match (&args.resume, &args.extend, &args.study) {
        (Some(dir), _, _) => resume(args, dir, None, &cancel),
        (None, Some(dir), _) => resume(args, dir, args.budget.blocks(), &cancel),
        (None, None, Some(study)) => start(args, study, &cancel),
        (None, None, None) => bail!("Name a study file, or --resume a results folder"),
    }
}

fn start(args: &RunArgs, study: &Path, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let need = if args.dry_run { Need::Plan } else { Need::Run };
    if let Some(dir) = args.out.as_ref().filter(|_| !args.dry_run) {
        store::check_new(dir)?;
    }
    if !args.dry_run {
        restore_leftovers();
    }
    let prepared = study_file::prepare(study, &args.budget, need, cancel)?;
    let plan = prepared.plan;
    if args.dry_run {
        let text = if args.json { plan.to_json() } else { plan_text::text(&plan) };
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let dir = args.out.clone().unwrap_or_else(|| default_out(&plan));
    let host = prepared.machine.host;
    // What can't be set is known before there is a folder.
    let settings = apply_settings(&plan)?;
    let store = Store::create(&dir, &plan, &host)?;
    run_plan(args, &plan, &host, settings, store, &[], cancel)
}

/// Goes on with the study in `dir`, by `more` blocks for each load level beyond
/// what it has where that is asked for.
fn resume(
    args: &RunArgs,
    dir: &Path,
    more: Option<u32>,
    cancel: &Cancel,
) -> anyhow::Result<ExitCode> {
    let (mut store, contents) = Store::resume(dir)?;
    let Contents { plan, host, mut events, torn } = contents;
    if let Some(torn) = torn {
        terminal::note(&format!("vmlab: {torn}"));
    }
    machine::check_again(&plan)?;
    // What the killed session left would disturb the blocks to come.
    for left in crate::clean::end_leftovers_of(&plan.run_id()) {
        terminal::note(&format!("vmlab: {left}"));
    }
    if let Some(more) = more {
        let state = State::from_events(&events);
        if !state.ended {
            bail!(
                "The study in {} has not ended: go on with `vmlab run --resume {}` first",
                dir.display(),
                dir.display()
            );
        }
        let blocks = state.rounds(&plan).saturating_add(more);
        let event = Event::Extended { blocks, unix_s: runner::unix_s() };
        store.append(&event)?;
        events.push(event);
    }
    let settings = apply_settings(&plan)?;
    run_plan(args, &plan, &host, settings, store, &events, cancel)
}

fn run_plan(
    args: &RunArgs,
    plan: &Plan,
    host: &Host,
    settings: Option<Settings>,
    mut store: Store,
    events: &[Event],
    cancel: &Cancel,
) -> anyhow::Result<ExitCode> {
    let dir = store.dir().to_owned();
    if crate::clean::anything_running() {
        terminal::note(
            "vmlab: processes of a dead run still run and will disturb this one: `vmlab clean` ends them",
        );
    }
    let done = State::from_events(events).complete.len() as u64;
    let trials_done = done * u64::from(plan.trials_per_block());
    let owner = Owner::current(&plan.run_id())?;
    let mut lab = LocalLab::new(plan, host, owner, cancel.clone())?;
    if let Some(settings) = settings {
        lab.hold(settings);
    }
    let exporter = args.metrics.map(|address| Exporter::start(address, plan)).transpose()?;
    if let Some(exporter) = &exporter {
        terminal::note(&format!("vmlab: metrics at http://{}/metrics", exporter.address()));
    }
    let mut progress = StudyProgress::start(plan, trials_done, args.verbose);
    let ended = execute(plan, events, &mut store, &mut lab, cancel, &mut |event| {
        progress.observe(&event);
        if let Some(exporter) = &exporter {
            exporter.observe(&event);
        }
    });
    drop(progress);
    restore_settings(lab.release());
    let ended = ended.with_context(|| {
        format!("The study stopped; what was measured is safe in {}", dir.display())
    })?;

    drop(store);
    let contents = store::read(&dir)?;
    let report = summary::report(&dir, &contents);
    report::write_files(&dir, &contents, &report)?;
    if ended == Ended::Cancelled {
        bail!("Interrupted: go on with `vmlab run --resume {}`", dir.display());
    }
    let text = if args.json { report.to_json() } else { report::text(&report) };
    terminal::print(&text)?;
    Ok(report::exit_code(&report))
}

/// `results/NAME-20260131-235959`, in local time where the machine knows it.
fn default_out(plan: &Plan) -> PathBuf {
    PathBuf::from("results").join(format!("{}-{}", plan.study, machine::timestamp()))
}

/// Sets what the plan asks for; it is put back on drop at the latest.
fn apply_settings(plan: &Plan) -> anyhow::Result<Option<Settings>> {
    restore_leftovers();
    let wanted = plan.study_settings();
    if wanted.is_empty() {
        return Ok(None);
    }
    let owner = Owner::current(&plan.run_id())?;
    let settings = Settings::apply(&Tree::live(), &plan.wish(&wanted)?, &owner)?;
    for note in settings.notes() {
        terminal::note(&format!("vmlab: host setting {note}"));
    }
    Ok(Some(settings))
}

/// What a dead run set must not be taken for the machine's own value.
fn restore_leftovers() {
    for line in crate::clean::restore_leftovers() {
        terminal::note(&format!("vmlab: left by a dead run: {line}"));
    }
}

fn restore_settings(settings: Option<Settings>) {
    let restored = match settings.map(Settings::restore) {
        None => return,
        Some(Err(error)) => {
            terminal::note(&format!("vmlab: {error}; `vmlab clean` tries again"));
            return;
        }
        Some(Ok(restored)) => restored,
    };
    let odd = |outcome: &RestoreOutcome| !matches!(outcome, RestoreOutcome::Restored);
    let odd: Vec<_> = restored.into_iter().filter(|one| odd(&one.outcome)).collect();
    for line in crate::settings::outcomes(&odd, Mode::Restore) {
        terminal::note(&format!("vmlab: host setting {line}"));
    }
}
