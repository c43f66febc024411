//! `vmlab check STUDY`: what would be run, in which order, how long.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::on::OnArgs;
use crate::study_file::BudgetArgs;
use crate::{plan_text, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab check studies/smp.toml
  vmlab check studies/smp.toml --json | jq '.variants[].spec.memory_mib'
  vmlab check studies/smp.toml --on ssh://root@server
  vmlab check studies/smp.toml --on libvirt:qemu:///system
                                       and what libvirt can't do of it
  vmlab check studies/smp.toml --on sim:host.json
                                       and what the simulator has no model of

Nothing is booted or built. Where no guest was booted yet, it is not known
whether KVM is usable; the plan then says what holds under emulation.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The study file.
    study: PathBuf,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    on: OnArgs,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let plan = crate::run::plan_on(&args.on, &args.study, &args.budget)?;
    let text = if args.json { plan.to_json() } else { plan_text::text(&plan) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
