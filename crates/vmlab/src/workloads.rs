//! `vmlab workloads [NAME]`: the catalogue.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab workloads             list them
  vmlab workloads hackbench   parameters, metrics and an example
  vmlab workloads --markdown  all of them, as in docs/workloads.md";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WorkloadsArgs {
    /// The benchmark to explain.
    name: Option<String>,
    /// Print the whole catalogue as Markdown.
    #[arg(long, conflicts_with = "name")]
    markdown: bool,
}

pub(crate) fn run(args: &WorkloadsArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.name {
        Some(name) => workload::find(name)?.help(),
        None if args.markdown => workload::markdown(),
        None => list(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let widest = workload::CATALOGUE.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in workload::CATALOGUE {
        writeln!(text, "{:widest$}  {}", entry.name, entry.summary)
            .expect("writing to a String does not fail");
    }
    text
}
