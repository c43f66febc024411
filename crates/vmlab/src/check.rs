//! `vmlab check STUDY`: what would be run, in which order, how long.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use runner::machine::Need;

use crate::study_file::{self, BudgetArgs};
use crate::{interrupt, plan_text, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab check studies/smp.toml
  vmlab check studies/smp.toml --json | jq '.variants[].spec.memory_mib'

Nothing is booted or built. Where no guest was booted yet, it is not known
whether KVM is usable; the plan then says what holds under emulation.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The study file.
    study: PathBuf,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    let prepared = study_file::prepare(&args.study, &args.budget, Need::Plan, &cancel)?;
    let text = if args.json { prepared.plan.to_json() } else { plan_text::text(&prepared.plan) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
