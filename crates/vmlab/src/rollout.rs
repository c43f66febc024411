//! `vmlab rollout PLAN`: a change that some hosts of a fleet got: widen, wait or stop?

mod page;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use fleet::plan::RolloutPlan;
use fleet::rollout::{self, RolloutHost};
use stats::RolloutStep;

use crate::exit::{FINDINGS, NOT_FINAL};
use crate::{input, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab rollout cpu-pm.toml --plan-only   how many hosts, for how many days?
  vmlab rollout cpu-pm.toml               widen, wait or stop? Ask every day
  vmlab rollout cpu-pm.toml --looks       what each day said
  vmlab rollout cpu-pm.toml --html cpu-pm.html
  vmlab rollout cpu-pm.toml --gate --require-decision
                                          0 widen, 1 stop, 3 wait
  vmlab rollout cpu-pm.toml --json | jq .step

A plan names the counters that must not suffer and the stores of the hosts, which
`vmlab watch` wrote there and which were copied here. Its intervals hold however
often they are looked at.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RolloutArgs {
    /// The plan, a TOML file.
    plan: PathBuf,
    /// Tell only how many hosts and days it takes, from what hosts did before the change.
    #[arg(long)]
    plan_only: bool,
    /// Show what each day's look said.
    #[arg(long, conflicts_with_all = ["plan_only", "json"])]
    looks: bool,
    /// Write a page with a picture of each counter.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if the change is to be stopped.
    #[arg(long)]
    gate: bool,
    /// Exit with 3 if it is to wait.
    #[arg(long)]
    require_decision: bool,
}

pub(crate) fn run(args: &RolloutArgs) -> anyhow::Result<ExitCode> {
    let name = args.plan.display().to_string();
    let text = input::text(&args.plan).with_context(|| format!("Cannot read {name}"))?;
    let plan = RolloutPlan::parse(&name, &text)?;
    let folder = args.plan.parent().unwrap_or(Path::new(""));
    let hosts = hosts(&plan, folder)?;
    if args.plan_only {
        // What came after a change tells nothing of hosts without one.
        let hosts = match plan.changed_unix_s {
            Some(changed_unix_s) => until(hosts, changed_unix_s),
            None => hosts,
        };
        return show(args, &plan, &hosts);
    }
    if plan.changed_unix_s.is_none() {
        bail!(
            "{name} does not say when hosts were changed: add changed_at = 2026-03-02T06:00:00Z, or ask with --plan-only how many hosts and days it takes"
        );
    }
    for (cohort, named) in [("changed", &plan.changed), ("unchanged", &plan.unchanged)] {
        if named.is_empty() {
            bail!("{name} names no {cohort} hosts: add {cohort} = [\"FOLDER\"] to [hosts]");
        }
    }
    show(args, &plan, &hosts)
}

fn show(args: &RolloutArgs, plan: &RolloutPlan, hosts: &[RolloutHost]) -> anyhow::Result<ExitCode> {
    let answer = rollout::answer(plan, hosts);
    if let Some(file) = &args.html {
        let page = page::page(&answer, plan, args.plan_only);
        fs::write(file, report::rollout_html(&page))
            .with_context(|| format!("Cannot write {}", file.display()))?;
    }
    let text = match (args.json, args.plan_only) {
        (true, _) => format!("{}\n", serde_json::to_string_pretty(&answer)?),
        (_, true) => text::sizes(&answer, plan),
        _ => text::answer(&answer, plan, args.looks),
    };
    terminal::print(&text)?;
    Ok(match answer.step {
        RolloutStep::Stop if args.gate => ExitCode::from(FINDINGS),
        RolloutStep::Wait if args.require_decision && !args.plan_only => ExitCode::from(NOT_FINAL),
        _ => ExitCode::SUCCESS,
    })
}

/// The same hosts with their hours before the change alone.
fn until(mut hosts: Vec<RolloutHost>, changed_unix_s: i64) -> Vec<RolloutHost> {
    let end = changed_unix_s.div_euclid(3600);
    for hours in hosts.iter_mut().flat_map(|host| &mut host.metrics) {
        hours.hours.retain(|hour, _| *hour < end);
    }
    hosts
}

/// The hosts that a plan names, with their hours.
#[cfg(feature = "sqlite")]
fn hosts(plan: &RolloutPlan, folder: &Path) -> anyhow::Result<Vec<RolloutHost>> {
    use rayon::prelude::*;

    let mut stores: Vec<(PathBuf, bool)> = Vec::new();
    for (named, is_changed) in [(&plan.unchanged, false), (&plan.changed, true)] {
        for name in named {
            let path = folder.join(name);
            let found = stores_in(&path)?;
            stores.extend(found.into_iter().map(|store| (store, is_changed)));
        }
    }
    stores.sort();
    if let Some(pair) = stores.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        bail!("{} is named twice: a host is in one cohort, once", pair[0].0.display());
    }
    let metrics: Vec<fleet::store::StoredMetric<'_>> =
        plan.metrics.iter().map(|metric| (&*metric.counter, metric.per.as_deref())).collect();
    let host = |(path, is_changed): (PathBuf, bool)| {
        let metrics = fleet::store::hours(&path, &metrics)?;
        Ok(RolloutHost { store: path.display().to_string(), is_changed, metrics })
    };
    stores.into_par_iter().map(host).collect()
}

/// A store, or those in a folder.
#[cfg(feature = "sqlite")]
fn stores_in(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = || format!("Cannot read {}", path.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "sqlite") {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!(
            "{} has no store: copy what `vmlab watch` wrote on each host there, as HOST.sqlite",
            path.display()
        );
    }
    Ok(found)
}

/// The hosts that a plan names: none can be read here.
#[cfg(not(feature = "sqlite"))]
fn hosts(plan: &RolloutPlan, _: &Path) -> anyhow::Result<Vec<RolloutHost>> {
    if !plan.changed.is_empty() || !plan.unchanged.is_empty() {
        bail!(crate::watch::NO_SQLITE);
    }
    Ok(Vec::new())
}
