//! `vmlab host`: what machine is this?

mod diff;

pub(crate) use diff::Drift;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use report::host_picture;
use runner::machine;

use crate::exit::FINDINGS;
use crate::host_file::load_merged;
use crate::settings::{self, ListArgs};
use crate::{interrupt, terminal};

/// Show this machine: sockets, nodes, caches, cores, memory, KVM, settings
///
/// Reads /sys and /proc and draws what matters to virtual machines. Parts that
/// cannot be read (in a container, on an old kernel) are left out and named at
/// the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vmlab host                        draw this machine
  vmlab host --json > host.json     save it, to plan for it elsewhere
  vmlab host --svg host.svg         draw it for a page
  vmlab host --try-kvm              boot a guest, to see whether KVM is usable
  vmlab host --settings             all settings, and which can be set
  vmlab host --diff host.json       what is not as it was saved
  ssh other lscpu -e | vmlab host --from -
                                    draw a machine where vmlab is not installed
  vmlab host --sysfs-root copy      read copies of /sys and /proc in the folder copy")]
pub(crate) struct HostArgs {
    /// Print the host format (JSON) instead of the drawing
    #[arg(long)]
    json: bool,

    /// Write the drawing as SVG to this file, '-' for standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Show the machine that this file describes instead of this one, '-' for
    /// standard input; several files complete each other
    ///
    /// Understood are a saved host file, lscpu (plain, -e, -p, -J), hwloc XML
    /// (lstopo --of xml), virsh capabilities, numactl -H, and a folder with
    /// copies of /sys and /proc.
    #[arg(long, value_name = "FILE", conflicts_with = "sysfs_root")]
    from: Vec<PathBuf>,

    /// Show all settings instead: their values, and what can be set here
    #[arg(long, conflicts_with_all = ["svg", "from", "diff"])]
    settings: bool,

    /// Show what differs between a saved `vmlab host --json` and now, or
    /// between two of them; exit code 1 if anything does
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 1..=2, conflicts_with_all = ["svg", "from"])]
    diff: Vec<PathBuf>,

    /// Boot a guest under KVM first, to tell whether it is usable here
    #[arg(long, conflicts_with_all = ["from", "sysfs_root", "settings"])]
    try_kvm: bool,

    /// Read sys/ and proc/ in this folder instead of this machine's
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
}

/// Runs `vmlab host`.
///
/// # Errors
/// A folder that holds no tree; output that cannot be written.
pub(crate) fn run(args: HostArgs) -> anyhow::Result<ExitCode> {
    if args.settings {
        return settings::list(&ListArgs { json: args.json, sysfs_root: args.sysfs_root });
    }
    let svg_to_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if args.json && svg_to_stdout {
        bail!("Both --json and --svg - would go to standard output: give --svg a file");
    }
    let host = match &args.sysfs_root {
        Some(root) => {
            host::snapshot::check_root(root)?;
            host::snapshot::live(root)
        }
        None if !args.from.is_empty() => load_merged(&args.from)?,
        // Even without /sys there is something to say.
        None => {
            if args.try_kvm {
                machine::try_kvm(&interrupt::cancel_on_signals()?)?;
            }
            machine::this_host()
        }
    };
    if let [before, after @ ..] = args.diff.as_slice() {
        let after = after.first().map(|path| diff::read(path)).transpose()?;
        let drift = diff::drift(&diff::read(before)?, &after.unwrap_or(host));
        let text = match args.json {
            true => serde_json::to_string_pretty(&drift)? + "\n",
            false => diff::text(&drift),
        };
        terminal::print(&text)?;
        return Ok(if drift.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) });
    }
    if let Some(file) = &args.svg {
        let drawing = host_picture::svg(&host);
        if svg_to_stdout {
            terminal::print(&drawing)?;
        } else {
            fs::write(file, drawing)
                .with_context(|| format!("Cannot write the drawing to {}", file.display()))?;
        }
    }
    if args.json {
        terminal::print(&host.to_json())?;
    } else if args.svg.is_none() {
        terminal::print(&host_picture::text(&host, terminal::width()))?;
    }
    Ok(ExitCode::SUCCESS)
}
