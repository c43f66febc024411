//! `vmlab completions SHELL`.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::{command, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab completions bash > ~/.local/share/bash-completion/completions/vmlab
  vmlab completions zsh > ~/.zfunc/_vmlab
  vmlab completions fish > ~/.config/fish/completions/vmlab.fish";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "vmlab", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
