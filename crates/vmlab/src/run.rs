//! `vmlab run STUDY`: boot the VMs, measure, judge, report.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use guest::Cancel;
use record::journal::JournalEvent;
use runner::calibration::Calibration;
use runner::execute::ExecutionEnd;
use runner::machine::{self, Need};
use runner::node_set;
use runner::plan::StudyPlan;
use runner::simulated;
use runner::state::JournalState;
use runner::store::{self, Contents, Store, TrialSink};
use runner::summary;
use topology::Host;

use crate::on::node_args::NodeArgs;
use crate::on::{self, KubevirtPlace, OnArgs};
use crate::report::Demand;
use crate::study_file::{self, BudgetArgs, StudyText};
use crate::trials::TrialPlace;
use crate::watcher::{WatchOptions, Watcher};
use crate::{endpoint, interrupt, plan_text, report, results_folder, terminal, trials};

const EXAMPLES: &str = "\
Examples:
  vmlab run studies/quickstart.toml
  vmlab run studies/smp.toml --blocks 10 --out results/smp
  vmlab run studies/smp.toml --dry-run
  vmlab run --resume results/smp      go on after an interruption or a crash
  vmlab run studies/smp.toml --prices prices.json   and differences in seconds
  vmlab run studies/smp.toml --metrics 9464       for Prometheus, on loopback
  vmlab run --extend results/smp --blocks 10      ten more blocks
  vmlab run studies/smp.toml --on ssh://root@server       there, results here
  vmlab run studies/smp.toml --on libvirt:qemu:///system  as domains of libvirt's
  vmlab run studies/smp.toml --on kubevirt:prod/lab       as instances of KubeVirt's
  vmlab run studies/smp.toml --on k8s:prod/lab --node-image registry.example/vmlab:1 \\
      --one-per node.kubernetes.io/instance-type          on a node of each kind
  vmlab run studies/smp.toml --on sim:host.json   simulated, on a host that nobody here has

A study ends as soon as all its comparisons are decided, at the latest when its
budget is used up. --until budget uses all of it.

Progress goes to standard error when it is a terminal, the verdict to standard
output.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The study file.
    #[arg(required_unless_present_any = ["resume", "extend"], conflicts_with_all = ["resume", "extend"])]
    study: Option<PathBuf>,
    /// Go on with the study in this results folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "dry_run", "blocks", "minutes", "seed", "until", "scale"])]
    resume: Option<PathBuf>,
    /// Add as many blocks as --blocks says to the study in this results
    /// folder, for each load level; what is decided stays as it is.
    #[arg(
        long,
        value_name = "DIR",
        requires = "blocks",
        conflicts_with_all = ["resume", "out", "dry_run", "minutes", "seed", "until", "scale"]
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
    /// The price list of the host, as `vmlab calibrate` writes it: the report then
    /// says what the counters that moved make in seconds.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    prices: Option<PathBuf>,
    /// Say what every block and trial took, also where nobody watches.
    #[arg(short, long)]
    verbose: bool,
    /// Tell how far the study is as OpenMetrics at this address; a port alone
    /// is on loopback.
    #[arg(long, value_name = "ADDR", value_parser = endpoint::parse_address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    on: OnArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    demand: Demand,
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.on.nodes()?.is_none() && args.nodes.is_given() {
        bail!("--node-..., --nodes, --one-per and --parallel are for --on k8s");
    }
    match (&args.resume, &args.extend, &args.study) {
        (Some(dir), _, _) => resume(args, dir, None),
        (None, Some(dir), _) => resume(args, dir, args.budget.blocks()),
        (None, None, Some(study)) if args.dry_run => show_plan(args, study),
        (None, None, Some(study)) => start(args, study),
        (None, None, None) => bail!("Name a study file, or --resume a results folder"),
    }
}

/// Runs a study on the nodes of a cluster, or shows the Jobs that it would create.
#[cfg(feature = "kubernetes")]
fn on_nodes(
    args: &RunArgs,
    study: &Path,
    place: (Option<&str>, Option<&Path>),
) -> anyhow::Result<ExitCode> {
    if args.prices.is_some() || args.metrics.is_some() {
        bail!("--prices and --metrics are of one machine, not of the nodes of a cluster");
    }
    let written = StudyText::read(study)?;
    // Mistakes in it are known before the cluster is asked.
    written.parse(&args.budget)?;
    if let Some(dir) = &args.out {
        node_set::check_new(dir)?;
    }
    let nodes = crate::nodes::reach(place, args.nodes.asked()?)?;
    if args.dry_run {
        let jobs = nodes.jobs(&written, &args.budget)?;
        terminal::print(&(serde_json::to_string_pretty(&jobs)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let cancel = interrupt::cancel_on_signals()?;
    let out = args.out.as_deref();
    let ended = nodes.run(&written, &args.budget, out, args.verbose, &cancel)?;
    if ended.interrupted {
        let dir = ended.dir.display();
        bail!("Interrupted: `vmlab report {dir}` shows what was measured");
    }
    let report = crate::across::read(&ended.dir)?;
    let text = if args.json { report.to_json() } else { crate::across::text(&report) };
    terminal::print(&text)?;
    Ok(crate::across::exit_code(&report, args.demand.require_decision))
}

#[cfg(not(feature = "kubernetes"))]
fn on_nodes(
    _args: &RunArgs,
    _study: &Path,
    _place: (Option<&str>, Option<&Path>),
) -> anyhow::Result<ExitCode> {
    bail!("This vmlab was built without Kubernetes")
}

fn show_plan(args: &RunArgs, study: &Path) -> anyhow::Result<ExitCode> {
    if let Some(place) = args.on.nodes()? {
        return on_nodes(args, study, place);
    }
    let plan = plan_on(&args.on, study, &args.budget)?;
    let text = if args.json { plan.to_json() } else { plan_text::text(&plan) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The plan of a study on the machine that `on` names; nothing is booted or built.
pub(crate) fn plan_on(on: &OnArgs, study: &Path, budget: &BudgetArgs) -> anyhow::Result<StudyPlan> {
    if let Some(place) = on.kubevirt()? {
        plan_in_cluster(&StudyText::read(study)?, budget, &place)
    } else if let Some(host) = on.simulator() {
        Ok(study_file::prepare_simulated(&StudyText::read(study)?, budget, host)?.0)
    } else if on.is_elsewhere() {
        on::plan(on, study, budget)
    } else {
        study_file::plan(study, budget, on.libvirt().as_ref())
    }
}

fn start(args: &RunArgs, study: &Path) -> anyhow::Result<ExitCode> {
    if let Some(place) = args.on.nodes()? {
        return on_nodes(args, study, place);
    }
    if let Some(dir) = &args.out {
        store::check_new(dir)?;
    }
    let prices = args.prices()?;
    let make = |plan: &StudyPlan, host: &Host| -> anyhow::Result<Store> {
        let out = args.out.clone().unwrap_or_else(|| default_out(plan));
        let store = Store::create(&out, plan, host)?;
        prices.iter().try_for_each(|prices| store.keep_prices(prices))?;
        Ok(store)
    };
    if args.on.is_elsewhere() {
        let make = |plan: &StudyPlan, host: &Host| {
            check_prices(prices.as_ref(), plan, host)?;
            make(plan, host)
        };
        let (ended, dir) = on::start(&args.on, study, &args.budget, &args.watch(), make)?;
        return finish(args, ended, &dir);
    }
    // It may come from a pipe, and there is nothing yet to be ended in order.
    let written = StudyText::read(study)?;
    let cancel = interrupt::cancel_on_signals()?;
    #[cfg(feature = "kubernetes")]
    if let Some(place) = args.on.kubevirt()? {
        let cluster = crate::kubevirt::reach(&place)?;
        let (plan, host) = cluster.prepare(&written, &args.budget, Need::Run, &cancel)?;
        check_prices(prices.as_ref(), &plan, &host)?;
        let hosting = crate::kubevirt::ClusterHosting::new(&plan, &cluster.target)?;
        let store = make(&plan, &host)?;
        let contents = Contents::begun(plan, host, prices);
        return run_here(args, &contents, TrialPlace::Hosted(&hosting), store, &cancel);
    }
    if let Some(host) = args.on.simulator() {
        let (plan, host) = study_file::prepare_simulated(&written, &args.budget, host)?;
        check_prices(prices.as_ref(), &plan, &host)?;
        let store = make(&plan, &host)?;
        let contents = Contents::begun(plan, host, prices);
        return run_here(args, &contents, TrialPlace::Here(Box::default()), store, &cancel);
    }
    trials::restore_leftovers();
    let libvirt = args.on.libvirt();
    let libvirt = libvirt.as_ref();
    let prepared = study_file::prepare_here(&written, &args.budget, libvirt, Need::Run, &cancel)?;
    let (plan, host) = (prepared.plan, prepared.machine.host);
    check_prices(prices.as_ref(), &plan, &host)?;
    // What can't be set is known before there is a folder.
    let settings = trials::apply_settings(&plan)?;
    let store = make(&plan, &host)?;
    let contents = Contents::begun(plan, host, prices);
    run_here(args, &contents, TrialPlace::Here(Box::new(settings)), store, &cancel)
}

/// The plan of a study in a cluster; nothing is given to it or created there.
#[cfg(feature = "kubernetes")]
fn plan_in_cluster(
    written: &StudyText,
    budget: &BudgetArgs,
    place: &KubevirtPlace,
) -> anyhow::Result<StudyPlan> {
    let cluster = crate::kubevirt::reach(place)?;
    Ok(cluster.prepare(written, budget, Need::Plan, &Cancel::new())?.0)
}

#[cfg(not(feature = "kubernetes"))]
fn plan_in_cluster(
    _written: &StudyText,
    _budget: &BudgetArgs,
    _place: &KubevirtPlace,
) -> anyhow::Result<StudyPlan> {
    bail!("This vmlab was built without Kubernetes")
}

/// Goes on with the study in `dir`, by `more` blocks for each load level beyond
/// what it has where that is asked for.
fn resume(args: &RunArgs, dir: &Path, more: Option<u32>) -> anyhow::Result<ExitCode> {
    if node_set::is_node_set(dir) || args.on.nodes()?.is_some() {
        bail!(
            "A study on the nodes of a cluster can't go on: run it anew, with --nodes where some are missing"
        );
    }
    let (mut store, mut contents) = Store::resume(dir)?;
    for line in store::damage_lines(dir, &contents.damage) {
        terminal::note(&format!("vmlab: {line}"));
    }
    if contents.damage.iter().any(|damage| damage.kind.is_of_a_crash()) {
        terminal::note("vmlab: What was cut off is in journal.torn");
    }
    args.on.check_same(&contents.plan)?;
    machine::check_measurement(&contents.plan)?;
    if let Some(told) = machine::other_version(&contents.plan) {
        terminal::note(&format!("vmlab: {told}"));
    }
    if let Some(prices) = args.prices()? {
        check_prices(Some(&prices), &contents.plan, &contents.host)?;
        store.keep_prices(&prices)?;
    }
    if args.on.is_elsewhere() {
        extend(&mut store, &mut contents, more, args)?;
        let ended = on::resume(&args.on, store, &contents, &args.watch())?;
        return finish(args, ended, dir);
    }
    let cancel = interrupt::cancel_on_signals()?;
    #[cfg(feature = "kubernetes")]
    if let Some(place) = args.on.kubevirt()? {
        let cluster = crate::kubevirt::reach(&place)?;
        cluster.check_same(&contents.plan)?;
        machine::check_again(&contents.plan, &contents.host)?;
        trials::end_leftovers(&contents.plan);
        for left in crate::kubernetes::left::end_run(&cluster.target, &contents.plan.run_id()) {
            terminal::note(&format!("vmlab: {left}"));
        }
        extend(&mut store, &mut contents, more, args)?;
        let hosting = crate::kubevirt::ClusterHosting::new(&contents.plan, &cluster.target)?;
        return run_here(args, &contents, TrialPlace::Hosted(&hosting), store, &cancel);
    }
    machine::check_again(&contents.plan, &contents.host)?;
    if simulated::is_simulated(&contents.plan) {
        extend(&mut store, &mut contents, more, args)?;
        return run_here(args, &contents, TrialPlace::Here(Box::default()), store, &cancel);
    }
    trials::end_leftovers(&contents.plan);
    extend(&mut store, &mut contents, more, args)?;
    let settings = trials::apply_settings(&contents.plan)?;
    run_here(args, &contents, TrialPlace::Here(Box::new(settings)), store, &cancel)
}

/// Writes down that the study has `more` blocks for each load level.
fn extend(
    store: &mut Store,
    contents: &mut Contents,
    more: Option<u32>,
    args: &RunArgs,
) -> anyhow::Result<()> {
    let Some(more) = more else { return Ok(()) };
    let state = JournalState::from_events(&contents.events);
    if !state.ended {
        let (dir, on) = (store.dir().display(), args.on.words());
        bail!("The study in {dir} has not ended: go on with `vmlab run --resume {dir}{on}` first");
    }
    let blocks = state.rounds(&contents.plan).saturating_add(more);
    let event = JournalEvent::Extended { blocks, unix_s: runner::unix_s() };
    store.append(&event)?;
    contents.events.push(event);
    Ok(())
}

fn run_here(
    args: &RunArgs,
    contents: &Contents,
    place: TrialPlace<'_>,
    mut store: Store,
    cancel: &Cancel,
) -> anyhow::Result<ExitCode> {
    let dir = store.dir().to_owned();
    let Contents { plan, host, events, .. } = contents;
    let mut watcher = Watcher::start(&args.watch(), plan, events)?;
    let mut observe = |event: runner::execute::ExecutionEvent<'_>| watcher.observe(&event);
    let ended = if simulated::is_simulated(plan) {
        trials::simulate(plan, host, events, &mut store, cancel, &mut observe)
    } else {
        trials::run(plan, host, place, events, &mut store, cancel, &mut observe)
    };
    drop(watcher);
    let ended =
        ended.with_context(|| format!("What is known so far is safe in {}", dir.display()))?;
    drop(store);
    finish(args, ended, &dir)
}

/// Computes the report from the folder alone, and says it.
fn finish(args: &RunArgs, ended: ExecutionEnd, dir: &Path) -> anyhow::Result<ExitCode> {
    // Who interrupts waits for nothing more: of many variants it takes long, and it can
    // be had at any time.
    if ended == ExecutionEnd::Cancelled {
        let (dir, on) = (dir.display(), args.on.words());
        bail!(
            "Interrupted: go on with `vmlab run --resume {dir}{on}`; `vmlab report {dir}` shows what is known so far"
        );
    }
    let contents = results_folder::read(dir)?;
    let report = summary::report(dir, &contents);
    report::write_files(dir, &contents, &report)?;
    let text = if args.json { report.to_json() } else { report::text(&report) };
    terminal::print(&text)?;
    Ok(report::exit_code(&report, &args.demand))
}

/// What a report could not use is known before minutes are spent.
fn check_prices(prices: Option<&Calibration>, plan: &StudyPlan, host: &Host) -> anyhow::Result<()> {
    let why = prices.map(|prices| prices.unfit_for(plan, host)).unwrap_or_default();
    if why.is_empty() {
        for one in prices.map(|prices| prices.other_settings(plan, host)).unwrap_or_default() {
            terminal::note(&format!(
                "--prices were taken with another setting of the host: {} {}, not {}",
                one.setting, one.list, one.study
            ));
        }
        return Ok(());
    }
    let why: Vec<String> = why.iter().map(ToString::to_string).collect();
    bail!(
        "--prices: {}. `vmlab calibrate --all --out FILE` makes a list on the study's host",
        why.join("; ")
    )
}

impl RunArgs {
    fn prices(&self) -> anyhow::Result<Option<Calibration>> {
        Ok(self.prices.as_deref().map(store::read_prices).transpose()?)
    }

    fn watch(&self) -> WatchOptions {
        WatchOptions { verbose: self.verbose, metrics: self.metrics }
    }
}

/// `results/NAME-20260131-235959`, in local time where the machine knows it.
fn default_out(plan: &StudyPlan) -> PathBuf {
    PathBuf::from("results").join(format!("{}-{}", plan.study, machine::timestamp()))
}
