//! `vmlab variants`: the configurations that a study names in one word.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use vmconfig::builtin::VARIANTS;

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab variants

In a study:
  [[variant]]
  use = \"vtune\"";

/// List the configurations that a study names in one word
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VariantsArgs {}

pub(crate) fn run(_: &VariantsArgs) -> anyhow::Result<ExitCode> {
    let widest = VARIANTS.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for variant in VARIANTS {
        writeln!(text, "{:widest$}  {}", variant.name, variant.help)?;
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
