//! `vmlab audit`: the VMs that run on this machine, as they are.

mod map;
mod text;

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use host::audit::findings::{self, Finding, Severity};
use host::audit::{self, Look, RunningVm};
use runner::machine;
use serde::Serialize;

use crate::{FINDINGS, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab audit               every VM: threads, pCPUs, memory, what is wrong
  vmlab audit 4711 --pages  one VM, every page of its memory looked at
  vmlab audit --map         which threads may run on which pCPU
  vmlab audit --json        all that was found, for programs

Run as root (or as the user who runs the VMs) to see everything; what may not
be seen is said. Nothing is changed. QEMU is asked only through a QMP socket
that nobody uses; libvirt's is left alone.

Exit codes: 0 nothing is wrong, 1 warnings, 2 error.";

/// Show the VMs that run here: where threads may run, where memory lies
///
/// Reads the QEMU processes of this machine, with or without libvirt: vCPU
/// threads, iothreads, the emulator and vhost, the pCPUs that the kernel really
/// lets them use, cgroups, memory by node and page size; and says what is wrong
/// with that.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    /// QEMU processes; all that can be seen when none is named
    #[arg(value_name = "PID")]
    pids: Vec<u32>,

    /// Print all that was found as JSON
    #[arg(long)]
    json: bool,

    /// Draw the host's pCPUs with the threads that may run on them
    #[arg(long, conflicts_with = "json")]
    map: bool,

    /// Look at every page of guest memory: its size and its node (root only;
    /// takes about a second for 16 GiB)
    #[arg(long)]
    pages: bool,

    /// Don't ask QEMU anything, not even through a QMP socket that nobody uses
    #[arg(long)]
    no_qmp: bool,
}

impl AuditArgs {
    /// Of all VMs that can be seen, for `vmlab lint --running`.
    pub(crate) fn of_all(json: bool, map: bool) -> Self {
        Self { pids: Vec::new(), json, map, pages: false, no_qmp: false }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Audit<'a> {
    format: &'static str,
    version: u32,
    vms: &'a [RunningVm],
    findings: &'a [Finding],
    /// VMs that could not be read.
    problems: &'a [String],
}

/// Runs `vmlab audit`.
///
/// # Errors
/// A process that is no QEMU, or may not be read.
pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let look = Look { qmp: !args.no_qmp, pages: args.pages, vcpu_tids: Vec::new() };
    let (all, problems) = audit::running(&look);
    let host = machine::this_host();
    // Also those that nobody asked about stand in the way of those in question.
    let mut found = findings::find(&all, &host);
    let mut vms = all;
    if !args.pids.is_empty() {
        for pid in &args.pids {
            if vms.iter().all(|vm| vm.pid != *pid) {
                match audit::read(*pid, &look) {
                    Err(error) => return Err(error.into()),
                    Ok(_) => bail!("Process {pid} began while the others were read: try again"),
                }
            }
        }
        vms.retain(|vm| args.pids.contains(&vm.pid));
        found.retain(|finding| args.pids.contains(&finding.pid));
    }
    if args.json {
        let audit = Audit {
            format: "vmlab-audit",
            version: 1,
            vms: &vms,
            findings: &found,
            problems: &problems,
        };
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&audit)?))?;
    } else {
        let mut output = if args.map {
            map::draw(&vms, &host, terminal::width())
        } else {
            text::vms(&vms, &host)
        };
        output += &text::findings(&found);
        for problem in &problems {
            output += &format!("not read: {problem}\n");
        }
        terminal::print(&output)?;
    }
    let wrong = found.iter().any(|finding| finding.severity == Severity::Warning);
    Ok(if wrong { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}
