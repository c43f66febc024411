//! `vmlab capture`: what a running VM is at one moment, in files: its devices, its memory
//! for a debugger, or all of it, to be started again.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use guest::capture::{CaptureOptions, CaptureResult, DomainMonitor, capture};
use guest::libvirt::Uri;
use guest::{Cancel, Monitor, Qmp};
use runner::unix_s;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::FINDINGS;
use crate::whole_file::WholeFile;
use crate::{interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab capture --qmp /run/vm/qmp.sock --out hung
                                      its devices and, for gdb and crash, its memory
  vmlab capture --libvirt web1 --out hung
                                      a domain of qemu:///system
  vmlab capture --qmp qmp.sock --no-core --out now
                                      its devices alone: the guest stops for
                                      milliseconds, however much memory it has
  vmlab capture --qmp qmp.sock --no-core --whole --end --out moved
                                      all of it, and the VM ends: to be edited, and
                                      started again with -incoming
  vmlab state show now/devices.vmstate
  crash vmlinux hung/memory.elf

The guest stands still while the core is written, and for the last of its memory and its
devices; how long that was is told. Then it goes on, also after an error or Ctrl-C.
QEMU opens its socket by -qmp unix:PATH,server=on,wait=off. docs/state.md tells more.";

/// What the files are called.
const DEVICES: &str = "devices.vmstate";
const WHOLE: &str = "vm.vmstate";
const CORE: &str = "memory.elf";
const RECORD: &str = "capture.json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    vm: VmArg,
    /// The libvirt of --libvirt.
    #[arg(long, value_name = "URI", default_value = "qemu:///system", conflicts_with = "qmp")]
    uri: String,
    /// The folder to make and to write into.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Leave out memory as an ELF core: the guest stops for as long as it takes to write.
    #[arg(long)]
    no_core: bool,
    /// Leave out the devices: the VM need not be one that can migrate.
    #[arg(long, conflicts_with = "no_core")]
    no_devices: bool,
    /// Keep memory with the devices, so that QEMU starts the VM again from that file.
    #[arg(long, conflicts_with = "no_devices")]
    whole: bool,
    /// End the VM instead of letting it go on: its disks stay as they are at that moment.
    #[arg(long)]
    end: bool,
    /// Seconds that the guest may go on while its memory is sent; then it is stopped.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    live_limit: u64,
    /// Print what was captured as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct VmArg {
    /// The socket of its QEMU's monitor (QMP).
    #[arg(long, value_name = "PATH")]
    qmp: Option<PathBuf>,
    /// A domain of libvirt's, by name, UUID or number.
    #[arg(long, value_name = "DOMAIN")]
    libvirt: Option<String>,
}

/// What was captured: `capture.json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CaptureFacts {
    /// Version of this form: 1.
    version: u32,
    /// When, seconds since 1970.
    unix_s: f64,
    /// The VM's name, if it has one.
    name: Option<String>,
    /// QEMU's version.
    qemu: String,
    /// What runs its guest: `kvm` or `tcg`. Under `tcg` times are those of an emulator.
    accel: &'static str,
    /// QEMU's machine type, where devices were captured.
    machine: Option<String>,
    /// Devices that were captured.
    devices: Option<usize>,
    /// For how long the guest stood still, s; null if it did not run.
    stopped_s: Option<f64>,
    /// Whose clock that is by: `qemu`'s events, or `vmlab`'s, by which it is that at most.
    stopped_by: &'static str,
    /// Whether the VM was ended.
    ended: bool,
    /// The files, below the folder.
    files: Vec<CapturedFile>,
    /// Why there is no core, if one was wanted.
    no_core: Option<String>,
    /// QEMU's command line, where its process is one of this machine.
    qemu_args: Option<Vec<String>>,
    /// What else is to be known.
    warnings: Vec<String>,
}

/// A file of a capture.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CapturedFile {
    /// Its name.
    name: &'static str,
    /// What it holds.
    holds: &'static str,
    /// Its length; zeros take no room on a disk.
    bytes: u64,
}

pub(crate) fn run(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals().context("Cannot wait for signals")?;
    let (mut qmp, pid): (Box<dyn Qmp>, _) = match (&args.vm.qmp, &args.vm.libvirt) {
        (Some(path), _) => {
            let monitor = Monitor::connect(path)?;
            let pid = monitor.pid();
            (Box::new(monitor), pid)
        }
        (None, Some(domain)) => {
            let uri: Uri = args.uri.parse().with_context(|| args.uri.clone())?;
            if let Some(machine) = uri.ssh() {
                // Files are handed over, which nobody can to another machine.
                bail!("the domain runs on {machine}: run `vmlab capture` there");
            }
            (Box::new(DomainMonitor::find(&args.uri, domain, &cancel)?), None)
        }
        (None, None) => unreachable!("clap asks for one"),
    };
    let qemu_args = pid.and_then(command_line);
    let cannot = || format!("Cannot make {}", args.out.display());
    fs::create_dir(&args.out).with_context(cannot)?;
    let captured = into(&args.out, args, qmp.as_mut(), qemu_args, &cancel);
    let facts = captured.inspect_err(|_| {
        // It is ours, and empty: what is not whole has no name.
        let _ = fs::remove_dir(&args.out);
    })?;
    let json = serde_json::to_string_pretty(&facts)? + "\n";
    terminal::print(&if args.json { json } else { text(&facts, &args.out) })?;
    Ok(match facts.no_core {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(FINDINGS),
    })
}

fn into(
    out: &Path,
    args: &CaptureArgs,
    qmp: &mut dyn Qmp,
    qemu_args: Option<Vec<String>>,
    cancel: &Cancel,
) -> anyhow::Result<CaptureFacts> {
    let file = |name: &str| {
        let path = out.join(name);
        WholeFile::create(&path).with_context(|| format!("Cannot write {}", path.display()))
    };
    let state_name = if args.whole { WHOLE } else { DEVICES };
    let state = (!args.no_devices).then(|| file(state_name)).transpose()?;
    let core = (!args.no_core).then(|| file(CORE)).transpose()?;
    let options = CaptureOptions {
        devices: !args.no_devices,
        stream: state.as_ref().filter(|_| args.whole).map(WholeFile::file),
        core: core.as_ref().map(WholeFile::file),
        live_limit: Duration::from_secs(args.live_limit),
        limit: None,
        end: args.end,
    };
    let begun_s = unix_s();
    let CaptureResult {
        stream,
        state: read,
        core: cored,
        stopped_s,
        by_events,
        qemu,
        accel,
        name,
        warnings,
    } = capture(qmp, options, cancel)?;
    let finish = |file: WholeFile, name: &str| {
        file.finish().with_context(|| format!("Cannot write {}", out.join(name).display()))
    };
    let mut files = Vec::new();
    if let (Some(file), Some(stream)) = (state, &stream) {
        let (bytes, holds) = match args.whole {
            true => (stream.file_bytes(), "devices and memory"),
            false => {
                let written = file.file().write_all(stream.bytes());
                written.with_context(|| format!("Cannot write {state_name}"))?;
                (stream.bytes().len() as u64, "devices")
            }
        };
        finish(file, state_name)?;
        files.push(CapturedFile { name: state_name, holds, bytes });
    }
    let mut no_core = None;
    match (core, cored) {
        (Some(file), Some(Ok(bytes))) => {
            finish(file, CORE)?;
            files.push(CapturedFile { name: CORE, holds: "memory as an ELF core", bytes });
        }
        (_, Some(Err(why))) => no_core = Some(why),
        _ => {}
    }
    let facts = CaptureFacts {
        version: 1,
        unix_s: begun_s,
        name,
        qemu,
        accel: accel.name(),
        machine: read.as_ref().and_then(|state| state.machine().map(str::to_owned)),
        devices: read.as_ref().map(|state| state.devices.len()),
        stopped_s,
        stopped_by: if by_events { "qemu" } else { "vmlab" },
        ended: args.end,
        files,
        no_core,
        qemu_args,
        warnings,
    };
    let record = file(RECORD)?;
    let json = serde_json::to_string_pretty(&facts)? + "\n";
    let written = record.file().write_all(json.as_bytes());
    written.with_context(|| format!("Cannot write {RECORD}"))?;
    finish(record, RECORD)?;
    Ok(facts)
}

/// The command line of the process `pid`, if it is a QEMU.
fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes: io::Result<Vec<u8>> = fs::read(format!("/proc/{pid}/cmdline"));
    let bytes = bytes.ok()?;
    let words = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    words.iter().any(|word| word.contains("qemu") || word.contains("kvm")).then_some(words)
}

fn text(facts: &CaptureFacts, out: &Path) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| text += &format!("{what:<12} {value}\n");
    let machine = facts.machine.as_ref().map_or(String::new(), |machine| format!(", {machine}"));
    line("QEMU", format!("{}{machine}", facts.qemu));
    for file in &facts.files {
        let size = topology::bytes::rounded(file.bytes);
        let path = out.join(file.name).display().to_string();
        line(&size, format!("{path}  {}", file.holds));
    }
    if let Some(why) = &facts.no_core {
        line("no core", format!("QEMU writes none: {why}"));
    }
    match (facts.stopped_s, facts.ended) {
        (_, true) => line("the VM", "has ended".to_owned()),
        (None, false) => line("the guest", "did not run, and does not".to_owned()),
        (Some(stopped_s), false) => {
            let most = if facts.stopped_by == "qemu" { "" } else { "at most " };
            let emulated = if facts.accel == "tcg" { " (emulated: TCG)" } else { "" };
            let still = format!("for {most}{:.1} ms{emulated}; it goes on", stopped_s * 1e3);
            line("stood still", still);
        }
    }
    for warning in &facts.warnings {
        line("note", warning.clone());
    }
    if let Some(file) = facts.files.iter().find(|file| file.name == WHOLE) {
        let incoming =
            format!("exec:cat {}", remote::quote([out.join(file.name).to_string_lossy()]));
        let start = match &facts.qemu_args {
            Some(args) => {
                remote::quote(args.iter().map(String::as_str).chain(["-incoming", &incoming]))
            }
            None => format!("QEMU with the arguments that it had, and -incoming '{incoming}'"),
        };
        line("start it by", start);
    }
    text
}
