//! `vmlab state show|diff|edit`: the state of a VM in a file: every device, every field.

mod text;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use vmstate::{DeviceState, MachineState, Patch, Selector, Skim, compare, patches};

use crate::exit::FINDINGS;
use crate::terminal;
use crate::whole_file::WholeFile;

/// How much of a file is read at once, bytes.
const PIECE_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  vmlab state show vm.vmstate         every device, every field, every value
  vmlab state show vm.vmstate --device apic --device virtio-net
  vmlab state show vm.vmstate --json | jq '.devices[] | select(.mac) | .name, .mac'
  vmlab state diff before.vmstate after.vmstate --device cpu#0
  vmlab state edit vm.vmstate --set virtio-net.mac=52:54:00:12:34:56 -o new.vmstate
  qemu-system-x86_64 ... -incoming 'exec:cat new.vmstate'
                                      starts the edited VM, with the arguments of the old

A file is what `vmlab capture` writes, a migration of QEMU's to a file, or what
`virsh save` writes. A device is called as the file calls it (0000:00:02.0/virtio-net),
by the last part of that name (virtio-net), or by that of its form; #N is which one
of several. docs/state.md tells more.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    action: StateCommand,
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// Show every device and field.
    Show(ShowArgs),
    /// Show what differs between two states; exit code 1 if anything does.
    Diff(DiffArgs),
    /// Write a state in which fields have other values.
    Edit(EditArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The state; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only this device; may be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<Selector>,
    /// Print JSON, with all values of arrays.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// The first state.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The second.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Only this device; may be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<Selector>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct EditArgs {
    /// The state, which stays as it is.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Give a field another value; may be repeated. The field `mac` of a virtio-net,
    /// e1000 or e1000e is all places where its state has the address.
    #[arg(long = "set", value_name = "DEVICE.FIELD=VALUE", required = true)]
    set: Vec<String>,
    /// The file to write; it must not exist.
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: &StateArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        StateCommand::Show(args) => show(args),
        StateCommand::Diff(args) => diff(args),
        StateCommand::Edit(args) => edit(args),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let state = read(&args.file)?;
    for selector in &args.devices {
        selector.all(&state)?;
    }
    let facts = state.facts(|device| is_wanted(&args.devices, device));
    if args.json {
        terminal::print(&(serde_json::to_string_pretty(&facts)? + "\n"))?;
    } else {
        terminal::print_all(text::lines(&facts, args.devices.is_empty()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    for selector in &args.devices {
        // One of them has it, or there is nothing to compare.
        if selector.all(&old).is_err() {
            selector.all(&new)?;
        }
    }
    let diff = compare(&old, &new, |device| is_wanted(&args.devices, device));
    if args.json {
        terminal::print(&(serde_json::to_string_pretty(&diff)? + "\n"))?;
    } else {
        terminal::print(&text::diff(&diff))?;
    }
    Ok(if diff.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

fn edit(args: &EditArgs) -> anyhow::Result<ExitCode> {
    if args.file == Path::new("-") {
        bail!("`state edit` needs a file, of which it writes a copy: - is none");
    }
    let state = read(&args.file)?;
    let patches = patches(&state, &args.set)?;
    write(&args.file, &patches, &args.out)
        .with_context(|| format!("Cannot write {}", args.out.display()))?;
    terminal::print(&text::edits(&patches, &args.out))?;
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(selectors: &[Selector], device: &DeviceState) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| selector.is(device))
}

/// Reads the state in a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<MachineState> {
    let cannot = || format!("Cannot read {}", path.display());
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).with_context(cannot)?),
    };
    skim(input).with_context(|| path.display().to_string())
}

fn skim(mut input: impl Read) -> anyhow::Result<MachineState> {
    let mut skim = Skim::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => skim.push(&piece[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(MachineState::read(skim.finish()?)?)
}

/// Writes a copy of `from` with `patches`.
fn write(from: &Path, patches: &[Patch], to: &Path) -> io::Result<()> {
    let whole = WholeFile::create(to)?;
    let mut file = whole.file();
    // The kernel shares the blocks where the file system can.
    io::copy(&mut File::open(from)?, &mut file)?;
    for patch in patches {
        file.write_all_at(&patch.bytes, patch.at)?;
    }
    whole.finish()
}
