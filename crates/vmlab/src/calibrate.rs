//! `vmlab calibrate`: what exits, interrupts and wake-ups cost on this host.

mod change;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use compare::Data;
use compare::analyse::{self, Warning, analyse};
use guest::Cancel;
use guest::qemu::{Qemu, find_qemu};
use runner::calibration::{
    Agreement, Ask, CalibrateError, Calibration, Count, Progress, calibrate,
};
use runner::freeze;
use thinguest::{Apic, Item, MAX_N, Operation};
use topology::Host;
use vmconfig::{Accel, AccelChoice, Arch, Boot, Resolve, VmPatch, VmSettings, builtin};

use crate::compare::Format;
use crate::exit::FINDINGS;
use crate::on::{self, OnArgs};
use crate::progress::Spinner;
use crate::{interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab calibrate                          the short list, three boots
  vmlab calibrate --all --out here.json    the whole list, kept
  vmlab calibrate --only cpuid,ipi-halt --n 5000
  vmlab calibrate --use cpu-pm             in a VM of that variant
  vmlab calibrate --on replica             on an emulated KVM host
  vmlab calibrate --accel tcg              instructions, the same in every run
  vmlab calibrate --compare old.json new.json --gate
  vmlab calibrate --list                   the operations

A price is the median of a boot's samples less that of empty ones; its interval is
that between boots. Beside it stands what KVM counted in just those samples.";

/// Who executes the guest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AccelArg {
    /// KVM where this guest boots under it, else TCG.
    #[default]
    Auto,
    /// KVM.
    Kvm,
    /// QEMU's emulation: instructions are counted, no time is measured.
    Tcg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApicArg {
    /// By memory accesses.
    Xapic,
    /// By registers of the processor.
    X2apic,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// The VM's fields in TOML, as in a study's `[vm]`.
    #[arg(long, value_name = "FILE")]
    vm: Option<PathBuf>,
    /// A variant by name, laid over the file; may be given again.
    #[arg(long = "use", value_name = "VARIANT")]
    variants: Vec<String>,
    /// Number of vCPUs [default: 2].
    #[arg(long)]
    vcpus: Option<u32>,
    /// Who executes the guest.
    #[arg(long, value_enum, default_value_t)]
    accel: AccelArg,
    /// How the guest talks to its local APIC [default: by registers, where it can].
    #[arg(long, value_enum)]
    apic: Option<ApicArg>,
    /// Measure all operations, not the short list.
    #[arg(long)]
    all: bool,
    /// Measure these operations.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "all")]
    only: Vec<String>,
    /// Samples of each operation, 1 to 65536 [default: each its own].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_N)))]
    n: Option<u32>,
    /// Fresh boots; where instructions are counted one is enough [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    boots: Option<u32>,
    /// Write the price list to a file that is new or a price list.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the price list as JSON.
    #[arg(long)]
    json: bool,
    /// Show what would be run, and stop.
    #[arg(long)]
    dry_run: bool,
    /// List the operations.
    #[arg(long)]
    list: bool,
    /// Compare two price lists instead: B with A.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    compare: Vec<PathBuf>,
    /// With --compare, exit code 1 if something got worse by more than the margin.
    #[arg(long, requires = "compare")]
    gate: bool,
    /// The smallest difference that matters, per cent [default: 3, of counts of
    /// instructions 0].
    #[arg(long, value_name = "PERCENT", requires = "compare")]
    margin: Option<f64>,
    /// How to print a comparison of times.
    #[arg(long, value_enum, default_value_t, requires = "compare")]
    format: Format,
    #[command(flatten)]
    on: OnArgs,
}

/// The short list: one of each kind, some seconds on real KVM.
const SHORT: &[Operation] = &[
    Operation::Call,
    Operation::Syscall,
    Operation::Cpuid,
    Operation::Hypercall,
    Operation::MsrRead,
    Operation::MsrDirect,
    Operation::PioKernel,
    Operation::PioQemu,
    Operation::MmioKernel,
    Operation::MmioQemu,
    Operation::ApicRead,
    Operation::SelfIpi,
    Operation::PageFill4k,
    Operation::TimerHalt,
    Operation::IpiSpin,
    Operation::IpiHalt,
    Operation::SemSpin,
    Operation::SemIpi,
    Operation::SemHalt,
    Operation::SemLazy,
];

/// Memory of the VM: room for the pages that are touched first.
const MEMORY_MIB: u64 = 256;
const VCPUS: u32 = 2;
const BOOTS: u32 = 3;

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        terminal::print(&text::operations())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [old, new] = &args.compare[..] {
        return compare(args, old, new);
    }
    if let Some(out) = args.out.as_deref().filter(|out| out.exists()) {
        // Whatever else lies there is not ours to overwrite.
        read(out).with_context(|| format!("{} is in the way", out.display()))?;
    }
    if let Some(uri) = args.on.libvirt() {
        bail!("--on libvirt:{uri} is for studies: a calibration starts no domain");
    }
    let calibration = if args.on.is_elsewhere() && !args.dry_run {
        let said = on::output(&args.on, &args.words_there()?)?;
        Calibration::from_json(&String::from_utf8_lossy(&said))
            .context("What the vmlab there said can't be read")?
    } else {
        match here(args)? {
            Some(calibration) => calibration,
            None => return Ok(ExitCode::SUCCESS),
        }
    };
    if let Some(out) = &args.out {
        fs::write(out, calibration.to_json())
            .with_context(|| format!("Cannot write {}", out.display()))?;
    }
    let shown = if args.json { calibration.to_json() } else { text::prices(&calibration) };
    terminal::print(&shown)?;
    let differs = calibration
        .prices
        .iter()
        .any(|price| matches!(calibration.agreement(price), Agreement::Differs(_)));
    // The far side's findings are in its list.
    Ok(if differs && !args.json { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

/// Measures on this machine; none if it is only to be shown.
fn here(args: &CalibrateArgs) -> anyhow::Result<Option<Calibration>> {
    let arch = Arch::X86_64;
    let qemu = find_qemu(arch)?;
    let host = host::snapshot::live(Path::new("/"));
    let patch = args.patch(&host)?;
    let items = args.items()?;
    let accel = match (args.accel, patch.accel) {
        (AccelArg::Kvm, _) | (AccelArg::Auto, Some(AccelChoice::Kvm)) => Some(Accel::Kvm),
        (AccelArg::Tcg, _) | (AccelArg::Auto, Some(AccelChoice::Tcg)) => Some(Accel::Tcg),
        (AccelArg::Auto, _) => None,
    };
    let ask = |accel: Accel| -> anyhow::Result<Ask> {
        let environment = freeze::environment_of_vm(accel, &host);
        let boots = args.boots.unwrap_or(if accel == Accel::Tcg { 1 } else { BOOTS });
        Ok(Ask {
            vm: settings(&patch, accel)?,
            items: items.clone(),
            apic: args.apic.map(|apic| match apic {
                ApicArg::Xapic => Apic::Xapic,
                ApicArg::X2apic => Apic::X2apic,
            }),
            boots,
            environment,
            kernel: host.kernel.clone(),
            cpu_model: host.cpu_model.clone(),
        })
    };
    if args.dry_run {
        let ask = ask(accel.unwrap_or(Accel::Kvm))?;
        terminal::print(&text::dry_run(&ask, &ask.command(&qemu)?))?;
        return Ok(None);
    }
    let cancel = interrupt::cancel_on_signals()?;
    let spinner = Spinner::start();
    let why = match accel {
        Some(Accel::Tcg) => None,
        _ => match obstacle(&host, &qemu) {
            Some(why) => Some(why),
            None => match under_kvm(ask(Accel::Kvm)?, &qemu, &cancel, &spinner) {
                Ok(calibration) => return Ok(Some(calibration)),
                Err(CalibrateError::Guest(failure)) => {
                    Some(format!("the thin guest does not boot under KVM: {failure}"))
                }
                Err(error) => return Err(error.into()),
            },
        },
    };
    if let Some(why) = why {
        if accel == Some(Accel::Kvm) {
            bail!(
                "KVM can't be used: {why}. Without --accel kvm, instructions are counted under TCG"
            );
        }
        let note = format!("KVM was not used: {why}");
        let mut calibration = measured(&ask(Accel::Tcg)?, &qemu, &cancel, &spinner)?;
        calibration.notes.push(note);
        return Ok(Some(calibration));
    }
    Ok(Some(measured(&ask(Accel::Tcg)?, &qemu, &cancel, &spinner)?))
}

/// Why it is not even worth trying.
fn obstacle(host: &Host, qemu: &Qemu) -> Option<String> {
    if host.arch.as_deref() != Some(Arch::X86_64.name()) {
        return Some("there is no thin guest for this host's architecture yet".to_owned());
    }
    guest::kvm::obstacle(qemu)
}

/// Under KVM; without a feature that some KVMs offer and then refuse.
fn under_kvm(
    mut ask: Ask,
    qemu: &Qemu,
    cancel: &Cancel,
    spinner: &Spinner,
) -> Result<Calibration, CalibrateError> {
    /// IA32_ARCH_CAPABILITIES.
    const REFUSED: &str = "failed to set MSR 0x10a";
    let note = match measured(&ask, qemu, cancel, spinner) {
        Err(CalibrateError::Guest(failure)) if failure.to_string().contains(REFUSED) => {
            "KVM here offers arch-capabilities and refuses them: measured without"
        }
        other => return other,
    };
    ask.vm.cpu_model.push_str(",-arch-capabilities");
    let mut calibration = measured(&ask, qemu, cancel, spinner)?;
    calibration.notes.push(note.to_owned());
    Ok(calibration)
}

fn measured(
    ask: &Ask,
    qemu: &Qemu,
    cancel: &Cancel,
    spinner: &Spinner,
) -> Result<Calibration, CalibrateError> {
    let mut place = String::new();
    calibrate(ask, qemu, cancel, &mut |progress| match progress {
        Progress::Boot(boot, of) => place = format!("boot {boot} of {of}"),
        Progress::Operation(name) => spinner.say(&format!("{place}: {name}")),
    })
}

/// The VM of a patch, with what it boots still to be said.
fn settings(patch: &VmPatch, accel: Accel) -> anyhow::Result<VmSettings> {
    let boot = Boot::Kernel { kernel: "vmlab-thin".into(), initrd: None };
    let with = Resolve { name: "thin", arch: Arch::X86_64, auto_accel: accel, boot };
    let patch = VmPatch { accel: None, ..patch.clone() };
    Ok(patch.resolve(&with)?.into())
}

impl CalibrateArgs {
    fn patch(&self, host: &Host) -> anyhow::Result<VmPatch> {
        let mut patch =
            VmPatch { memory_mib: Some(MEMORY_MIB), vcpus: Some(VCPUS), ..VmPatch::default() };
        if let Some(file) = &self.vm {
            let named = || format!("Cannot read {}", file.display());
            let text = fs::read_to_string(file).with_context(named)?;
            patch = patch.overlay(&toml::from_str(&text).with_context(named)?);
        }
        if self.vcpus.is_some() {
            patch = patch.overlay(&VmPatch { vcpus: self.vcpus, ..VmPatch::default() });
        }
        let vcpus = patch.topology()?.vcpus();
        for name in &self.variants {
            patch = patch.overlay(&builtin::variant(name, host, vcpus)?);
        }
        if patch.kernel_cmdline.is_some() {
            bail!("kernel_cmdline is the thin guest's plan: leave it out");
        }
        Ok(patch)
    }

    /// What to measure, the empty sample first.
    fn items(&self) -> anyhow::Result<Vec<Item>> {
        let mut operations: Vec<Operation> = if self.all {
            Operation::all().collect()
        } else if self.only.is_empty() {
            SHORT.to_vec()
        } else {
            let named = |name: &String| {
                Operation::from_name(name).with_context(|| {
                    format!("There is no operation {name:?}: vmlab calibrate --list tells them")
                })
            };
            self.only.iter().map(named).collect::<anyhow::Result<_>>()?
        };
        operations.push(Operation::Nothing);
        operations.sort_unstable();
        operations.dedup();
        let item = |operation: Operation| {
            let n = self.n.unwrap_or(operation.default_n());
            Item { operation, n, warmup: (n / 10).max(2) }
        };
        Ok(operations.into_iter().map(item).collect())
    }

    /// The same on another machine.
    fn words_there(&self) -> anyhow::Result<Vec<String>> {
        if self.vm.is_some() {
            bail!("--vm names a file of this machine: leave it out with --on, or copy it there");
        }
        let mut words = vec!["calibrate".to_owned(), "--json".to_owned()];
        let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
        self.variants.iter().for_each(|name| say("--use", name.clone()));
        let numbers = [("--vcpus", self.vcpus), ("--n", self.n), ("--boots", self.boots)];
        for (option, value) in numbers {
            value.into_iter().for_each(|value| say(option, value.to_string()));
        }
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        say("--accel", word(&|| self.accel.to_possible_value()));
        if let Some(apic) = self.apic {
            say("--apic", word(&|| apic.to_possible_value()));
        }
        if !self.only.is_empty() {
            say("--only", self.only.join(","));
        }
        if self.all {
            words.push("--all".to_owned());
        }
        Ok(words)
    }
}

fn read(file: &Path) -> anyhow::Result<Calibration> {
    /// More than any price list.
    const MAX_BYTES: u64 = 16 << 20;
    let named = || format!("Cannot read {}", file.display());
    if fs::metadata(file).with_context(named)?.len() > MAX_BYTES {
        bail!("{} is bigger than {MAX_BYTES} bytes", file.display());
    }
    Calibration::from_json(&fs::read_to_string(file).with_context(named)?).with_context(named)
}

fn compare(args: &CalibrateArgs, old: &Path, new: &Path) -> anyhow::Result<ExitCode> {
    let (a, b) = (read(old)?, read(new)?);
    if a.count != b.count {
        let counts = [a.count, b.count].map(Count::name);
        bail!(
            "{} has {}, and {} {}: they can't be compared",
            old.display(),
            counts[0],
            new.display(),
            counts[1]
        );
    }
    if a.count == Count::Instructions {
        let changes = change::changes(&a, &b, args.margin.unwrap_or(0.0) / 100.0);
        let shown =
            if args.json { change::json(&changes) } else { text::changes(&a, &b, &changes) };
        terminal::print(&shown)?;
        let worse = changes.iter().any(|change| change.is_worse);
        return Ok(if args.gate && worse { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS });
    }
    let mut data = Data::default();
    data.add_imported(&old.display().to_string(), &a.values());
    data.add_imported(&new.display().to_string(), &b.values());
    let asked = analyse::Ask {
        variant: None,
        block: None,
        boot: Some("boot".to_owned()),
        by: vec!["operation".to_owned()],
        baseline: None,
        metrics: Vec::new(),
        filter: None,
        better: Default::default(),
        margin: args.margin.unwrap_or(3.0) / 100.0,
        alpha: 0.05,
    };
    let mut comparison = analyse(&data.finish(), &asked)?;
    for (file, list) in [(old, &a), (new, &b)] {
        if list.environment.is_emulated_time() || list.is_software_kvm() {
            let text = format!("{}: {}", file.display(), list.environment_sentence());
            comparison.warnings.push(Warning { code: "emulated", text });
        }
    }
    let format = if args.json { Format::Json } else { args.format };
    crate::compare::print(&comparison, format)?;
    if args.gate && !comparison.gate.passed {
        comparison.gate.failures.iter().for_each(|failure| terminal::note(failure));
        return Ok(ExitCode::from(FINDINGS));
    }
    Ok(ExitCode::SUCCESS)
}
