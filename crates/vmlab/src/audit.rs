//! `vmlab audit`: the VMs that run on this machine, as they are.

mod facts;
mod judge;
pub(crate) mod map;
mod text;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use guest::libvirt::Uri;
use host::audit::{self, AuditScope, RunningVm};
use lint::site::SiteRules;
use lint::{Context, Finding, Severity, output};
use runner::machine;
use schemars::JsonSchema;
use serde::Serialize;
use topology::Host;

use crate::exit::FINDINGS;
use crate::offers::{self, ActiveDomain};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab audit               every VM: threads, pCPUs, memory, what is wrong
  vmlab audit 4711 --pages  one VM, every page of its memory looked at
  vmlab audit --libvirt qemu:///system
                            the domains that run there, against what libvirt was asked for
  vmlab audit --map         which threads may run on which pCPU
  vmlab audit --json        all that was found, for programs and `vmlab facts`
  vmlab audit --transcript > vms.txt
                            what the rules look at, for `vmlab lint --host`

Run as root (or as the user who runs the VMs) to see everything; what may not
be seen is said. Nothing is changed. QEMU is asked only through a QMP socket
that nobody uses; libvirt's is left alone.";

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

    /// The domains that run at this machine's libvirt alone (qemu:///system), against the
    /// pins that it says of each
    #[arg(long, value_name = "URI", conflicts_with = "pids", value_parser = offers::libvirt_uri)]
    libvirt: Option<String>,

    /// Print all that was found as JSON
    #[arg(long)]
    json: bool,

    /// Draw the host's pCPUs with the threads that may run on them
    #[arg(long, conflicts_with = "json")]
    map: bool,

    /// Print each VM's command line and what is known of it, a text that
    /// `vmlab lint` reads here and elsewhere
    #[arg(long, conflicts_with_all = ["json", "map"])]
    transcript: bool,

    /// Look at every page of guest memory: its size and its node (root only;
    /// takes about a second for 16 GiB)
    #[arg(long)]
    pages: bool,

    /// Don't ask QEMU anything, not even through a QMP socket that nobody uses
    #[arg(long)]
    no_qmp: bool,
}

/// All VMs that run here and can be seen, with the findings on them.
pub(crate) struct AuditedVms {
    /// The VMs.
    pub(crate) vms: Vec<RunningVm>,
    /// As the rules look at them, in the same order.
    pub(crate) transcripts: Vec<lint::ObservedVm>,
    /// What is wrong.
    pub(crate) findings: Vec<Finding>,
    /// VMs that could not be read or judged.
    pub(crate) problems: Vec<String>,
}

/// Looks at all VMs of `here`, this machine, and judges them in a context, by a site's
/// rules too.
pub(crate) fn look(
    look: &AuditScope,
    here: &Host,
    context: &Context,
    rules: &[&SiteRules],
) -> AuditedVms {
    look_with(look, &[], here, context, rules)
}

/// The same, where a libvirt told which domains it runs.
fn look_with(
    look: &AuditScope,
    domains: &[ActiveDomain],
    here: &Host,
    context: &Context,
    rules: &[&SiteRules],
) -> AuditedVms {
    let (vms, mut problems) = audit::running(look);
    let transcripts = judge::transcripts(&vms, domains, here);
    let (findings, more) = judge::findings(&transcripts, context, rules);
    problems.extend(more);
    AuditedVms { vms, transcripts, findings, problems }
}

/// What `--json` prints is of this format.
pub(crate) const FORMAT: &str = "vmlab-audit";

/// Its version.
pub(crate) const VERSION: u32 = 2;

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditOutput<'a> {
    format: &'static str,
    version: u32,
    /// The kernel's release.
    kernel: Option<&'a str>,
    /// Version of the QEMU that a VM would be started with now.
    qemu: Option<&'a str>,
    vms: &'a [RunningVm],
    findings: &'a [Finding],
    /// VMs that could not be read.
    problems: &'a [String],
}

/// The domains that run at this machine's libvirt.
///
/// # Errors
/// Another machine's, or one that does not answer.
fn domains_here(uri: &str) -> anyhow::Result<Vec<ActiveDomain>> {
    let named = uri.parse::<Uri>().with_context(|| format!("--libvirt {uri}"))?;
    if let Some(there) = named.ssh() {
        bail!(
            "{uri} is another machine's: what its processes do is seen there alone. Run it there: `ssh {} vmlab audit --libvirt {}`",
            ssh_words(there),
            named.there()
        );
    }
    offers::active_domains(uri)
}

/// `USER@HOST:PORT` as ssh takes it.
fn ssh_words(there: &str) -> String {
    match there.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => format!("-p {port} {host}"),
        _ => there.to_owned(),
    }
}

/// The processes of the domains; a domain without one that can be seen is a problem.
fn of_domains(domains: &[ActiveDomain], looked: &mut AuditedVms) -> Vec<u32> {
    let mut pids = Vec::new();
    for domain in domains {
        match looked.vms.iter().find(|vm| judge::is_of(vm, domain)) {
            Some(vm) => pids.push(vm.pid),
            None => looked.problems.push(format!(
                "domain {} ({}): no QEMU of it can be seen here: be root, and where libvirt runs in a container, in it",
                domain.name, domain.uuid
            )),
        }
    }
    pids
}

/// Runs `vmlab audit`.
///
/// # Errors
/// A process that is no QEMU, or may not be read.
pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let wanted = AuditScope { qmp: !args.no_qmp, pages: args.pages, ..AuditScope::default() };
    let domains = args.libvirt.as_deref().map(domains_here).transpose()?;
    let host = machine::this_host();
    // Also those that nobody asked about stand in the way of those in question.
    let known = domains.as_deref().unwrap_or_default();
    let context = Context::default().on(host.clone());
    let mut looked = look_with(&wanted, known, &host, &context, &[]);
    let pids: Option<Vec<u32>> = match &domains {
        Some(domains) => Some(of_domains(domains, &mut looked)),
        None => Some(args.pids.clone()).filter(|pids| !pids.is_empty()),
    };
    if let Some(pids) = &pids {
        for pid in pids {
            if looked.vms.iter().all(|vm| vm.pid != *pid) {
                match audit::read(*pid, &wanted) {
                    Err(error) => return Err(error.into()),
                    Ok(_) => bail!("Process {pid} began while the others were read: try again"),
                }
            }
        }
        looked.vms.retain(|vm| pids.contains(&vm.pid));
        looked.transcripts.retain(|vm| pids.contains(&vm.pid));
        let files: Vec<String> = pids.iter().map(|pid| judge::file_of(*pid)).collect();
        looked.findings.retain(|finding| files.contains(&finding.file));
    }
    let AuditedVms { vms, transcripts, findings, problems } = looked;
    if args.transcript {
        let texts: Vec<String> = transcripts.iter().map(ToString::to_string).collect();
        terminal::print(&texts.concat())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        let audit = AuditOutput {
            format: FORMAT,
            version: VERSION,
            kernel: host.kernel.as_deref(),
            qemu: host.qemu.as_ref().map(|qemu| qemu.version.as_str()),
            vms: &vms,
            findings: &findings,
            problems: &problems,
        };
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&audit)?))?;
    } else {
        let mut text = if args.map {
            map::draw(&vms, &host, terminal::width())
        } else {
            text::vms(&vms, &host)
        };
        text += "\n";
        text += &output::text(&findings, terminal::width(), true);
        for problem in &problems {
            text += &format!("not read: {problem}\n");
        }
        terminal::print(&text)?;
    }
    let wrong = findings.iter().any(|finding| finding.severity >= Severity::Warning);
    Ok(if wrong { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}
