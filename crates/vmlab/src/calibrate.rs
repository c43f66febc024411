//! `vmlab calibrate`: what exits, interrupts and wake-ups cost on this host.

mod change;
mod comparison;
mod picture;
mod text;

pub(crate) use change::Change;
use comparison::ListComparison;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser as _, ValueEnum};
use guest::Cancel;
use guest::qemu::{Qemu, find_qemu};
use record::Environment;
use runner::calibration::{
    Agreement, CalibrateError, Calibration, CalibrationRequest, Progress, always_exits, calibrate,
};
use runner::freeze;
use thinguest::{Apic, Item, MAX_N, MAX_VCPUS, Operation};
use topology::{Host, bounded};
use vmconfig::{Accel, AccelChoice, Arch, BootSource, PatchContext, VmPatch, VmSettings, builtin};

use crate::compare::CompareFormat;
use crate::exit::FINDINGS;
use crate::on::{self, OnArgs};
use crate::progress::Spinner;
use crate::{input, interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab calibrate                          the short list, three boots
  vmlab calibrate --all --out here.json    the whole list, kept
  vmlab calibrate --only cpuid,ipi-halt --n 5000
  vmlab calibrate --all --as-in-trials --out prices.json
                                           for the account of `run --prices prices.json`
  vmlab calibrate --use cpu-pm             in a VM of that variant
  vmlab calibrate --each base --each cpu-pm --picture prices.svg
                                           variants against the first, boot by boot
  vmlab calibrate --exact --out exact.json exits and instructions on a KVM host that
                                           is the same everywhere: for a CI's gate
  vmlab calibrate --on replica             on an emulated KVM host
  vmlab calibrate --accel tcg              instructions, the same in every run
  vmlab calibrate --arch aarch64 --all     those of an arm64 guest
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
    /// arm64's, by memory accesses.
    Gicv2,
    /// arm64's, by registers of the processor.
    Gicv3,
}

/// An architecture by its name.
pub(crate) fn arch(name: &str) -> Result<Arch, String> {
    Arch::from_name(name).ok_or_else(|| "it is x86_64 or aarch64".to_owned())
}

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// The VM's fields in TOML, as in a study's `[vm]`.
    #[arg(long, value_name = "FILE")]
    vm: Option<PathBuf>,
    /// What such a file of another machine says.
    #[arg(long, value_name = "TOML", hide = true, conflicts_with = "vm")]
    vm_text: Option<String>,
    /// A variant by name, laid over the file; may be given again.
    #[arg(long = "use", value_name = "VARIANT")]
    variants: Vec<String>,
    /// Measure in a VM of each of these variants, in turns, and compare them with the
    /// first: `base` is the VM as it is; give it again for each.
    #[arg(long, value_name = "VARIANT", conflicts_with = "compare")]
    each: Vec<String>,
    /// In an emulated KVM host with one pCPU whose clock is its count of instructions:
    /// the same exits and instructions in every run and on any machine.
    #[arg(long, conflicts_with_all = ["on", "each", "compare", "dry_run"])]
    exact: bool,
    /// The guest's architecture, x86_64 or aarch64 [default: the host's].
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    arch: Option<Arch>,
    /// Number of vCPUs [default: 2, with --exact 1, or as the VM's file says].
    #[arg(long)]
    vcpus: Option<u32>,
    /// Who executes the guest.
    #[arg(long, value_enum, default_value_t)]
    accel: AccelArg,
    /// How the guest talks to its interrupt controller [default: by registers, where it
    /// can].
    #[arg(long, value_enum)]
    apic: Option<ApicArg>,
    /// Measure all prices, not the short list.
    #[arg(long)]
    all: bool,
    /// Measure these operations.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "all")]
    only: Vec<String>,
    /// Samples of each operation, 1 to 65536 [default: each its own].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_N)))]
    n: Option<u32>,
    /// Count KVM's exits by reason meanwhile, as a study's trials do, which takes time at
    /// each: prices for a report's account of those trials.
    #[arg(long)]
    as_in_trials: bool,
    /// Fresh boots; where instructions are counted one is enough [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    boots: Option<u32>,
    /// Write the price list to a file that is new or a price list; with --each to
    /// files VARIANT.json in a folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw the prices to this SVG file, which is new or such a picture.
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    picture: Option<PathBuf>,
    /// Print the price list as JSON; the same as --format json.
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
    /// With --compare or --each, exit code 1 if something got worse by more than the
    /// margin.
    #[arg(long)]
    gate: bool,
    /// The smallest difference that matters, per cent [default: 3, of counts of
    /// instructions 0].
    #[arg(long, value_name = "PERCENT")]
    margin: Option<f64>,
    /// How to print what is found; all but text and json are of a comparison of times.
    #[arg(long, value_enum, default_value_t)]
    format: CompareFormat,
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
    Operation::SysregTrap,
    Operation::SysregDirect,
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
/// The VM as it is, among variants.
const BASE: &str = "base";

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    if (args.gate || args.margin.is_some()) && args.compare.is_empty() && args.each.len() < 2 {
        bail!("--gate and --margin want two lists: --compare A B, or --each twice");
    }
    if args.list {
        terminal::print(&text::operations())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [old, new] = &args.compare[..] {
        let lists = [old, new].map(|file| Ok((file.display().to_string(), read(file)?)));
        let lists = lists.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let found = comparison::of(&lists, args.margin)?;
        found.print(args.format())?;
        return Ok(code(!args.gate || found.passes()));
    }
    if args.on.kubevirt()?.is_some() {
        bail!("--on kubevirt is for studies: a calibration starts no instance");
    }
    if let Some(uri) = args.on.libvirt() {
        bail!("--on libvirt:{uri} is for studies: a calibration starts no domain");
    }
    let is_list = [CompareFormat::Text, CompareFormat::Json].contains(&args.format());
    if !is_list && args.each.len() < 2 {
        bail!(
            "A price list has --format text and json; the others want --compare A B, or --each twice"
        );
    }
    if args.dry_run {
        terminal::print(&dry_run(args)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.each.is_empty() {
        return each(args);
    }
    args.out.iter().try_for_each(|out| check_out(out))?;
    check_picture(args)?;
    let calibration = measure(args)?;
    let name = args.out.as_deref().unwrap_or(Path::new("here")).display().to_string();
    let written = args.out.iter().try_for_each(|out| write(out, &calibration.to_json()));
    let drawn = draw(args, &[(name, &calibration)]);
    // What was measured is shown, whatever became of the files.
    let json = args.format() == CompareFormat::Json;
    let shown = if json { calibration.to_json() } else { text::prices(&calibration) };
    terminal::print(&shown)?;
    written.and(drawn)?;
    Ok(code(!differs(&calibration)))
}

/// The exit code, if all `is_fine` or if not.
fn code(is_fine: bool) -> ExitCode {
    if is_fine { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) }
}

/// True if KVM and the guest count anything differently.
fn differs(list: &Calibration) -> bool {
    list.prices.iter().any(|price| matches!(list.agreement(price), Agreement::Differs(_)))
}

/// Before anything is measured: whatever else lies there is not ours to overwrite.
fn check_out(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        read(out).with_context(|| format!("{} is in the way", out.display()))?;
    }
    check_writable(out)
}

/// The same of a picture.
fn check_picture(args: &CalibrateArgs) -> anyhow::Result<()> {
    let Some(file) = &args.picture else { return Ok(()) };
    let cannot = || format!("Cannot write {}", file.display());
    match fs::metadata(file) {
        // Whatever else stands there (a FIFO would never end) is not opened.
        Ok(there) if there.is_file() && picture::is_one(file).with_context(cannot)? => {}
        Ok(_) => bail!("{} is in the way: it is no picture of prices", file.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(cannot),
    }
    check_writable(file)
}

/// Whether a file can be written; one that is not there is not there afterwards.
fn check_writable(file: &Path) -> anyhow::Result<()> {
    let is_there = file.exists();
    let mut options = OpenOptions::new();
    if is_there {
        options.append(true)
    } else {
        options.write(true).create_new(true)
    };
    let opened = options.open(file).map(drop);
    let left = if is_there { opened } else { opened.and_then(|()| fs::remove_file(file)) };
    left.with_context(|| format!("Cannot write {}", file.display()))
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("Cannot write {}", file.display()))
}

/// Draws the lists, if that was asked for.
fn draw(args: &CalibrateArgs, lists: &[(String, &Calibration)]) -> anyhow::Result<()> {
    let Some(file) = &args.picture else { return Ok(()) };
    write(file, &picture::svg(lists))
}

/// Measures where `args` says.
fn measure(args: &CalibrateArgs) -> anyhow::Result<Calibration> {
    let said = if args.exact {
        on::exact(&args.on, args.words_there()?.split_off(1))?
    } else if args.on.is_elsewhere() {
        on::output(&args.on, &args.words_there()?)?
    } else {
        return here(args, &interrupt::cancel_on_signals()?);
    };
    Calibration::from_json(&String::from_utf8_lossy(&said))
        .context("What the vmlab there said can't be read")
}

/// A price list as the words behind `calibrate` on a command line say.
pub(crate) fn list(words: &[String], cancel: &Cancel) -> anyhow::Result<Calibration> {
    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: CalibrateArgs,
    }
    let all = std::iter::once("calibrate").chain(words.iter().map(String::as_str));
    here(&Words::try_parse_from(all)?.args, cancel)
}

/// Measures variants in turns, boot by boot, and compares them with the first.
fn each(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    for (number, name) in args.each.iter().enumerate() {
        if args.each[..number].contains(name) {
            bail!("--each {name} is there twice: nothing would be compared");
        }
    }
    let file = |folder: &Path, name: &str| folder.join(format!("{name}.json"));
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
        args.each.iter().try_for_each(|name| check_out(&file(folder, name)))?;
    }
    check_picture(args)?;
    // Where it is the same in every boot one is enough.
    let boots = args.boots.unwrap_or(if args.accel == AccelArg::Tcg { 1 } else { BOOTS });
    let mut lists: Vec<(String, Calibration)> = Vec::new();
    for _ in 0..boots {
        for name in &args.each {
            let mut one = args.clone();
            one.boots = Some(1);
            one.each.clear();
            if name != BASE {
                one.variants.push(name.clone());
            }
            let list = measure(&one).with_context(|| format!("Variant {name}"))?;
            match lists.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.add_boots(list),
                None => lists.push((name.clone(), list)),
            }
        }
    }
    let written = lists.iter().try_for_each(|(name, list)| match &args.out {
        Some(folder) => write(&file(folder, name), &list.to_json()),
        None => Ok(()),
    });
    let borrowed: Vec<_> = lists.iter().map(|(name, list)| (name.clone(), list)).collect();
    let drawn = draw(args, &borrowed);
    let format = args.format();
    let compared = (lists.len() > 1).then(|| comparison::of(&lists, args.margin)).transpose();
    let compared = compared.and_then(|found| {
        found.as_ref().map(|found| found.check_format(format)).transpose()?;
        Ok(found)
    });
    // What was measured is shown, whatever else becomes of it.
    if format == CompareFormat::Text || format != CompareFormat::Json && compared.is_err() {
        for (name, list) in &lists {
            terminal::print(&format!("{name}\n{}\n", text::prices(list)))?;
        }
    }
    if format == CompareFormat::Json {
        let found = compared.as_ref().ok().and_then(Option::as_ref);
        terminal::print(&json_of(&lists, found)?)?;
    }
    written.and(drawn)?;
    let compared = compared?;
    if let Some(found) = compared.as_ref().filter(|_| format != CompareFormat::Json) {
        found.print(format)?;
    }
    let passes = !args.gate || compared.as_ref().is_none_or(ListComparison::passes);
    Ok(code(passes && !lists.iter().any(|(_, list)| differs(list))))
}

/// All lists and what differs, as JSON.
fn json_of(
    lists: &[(String, Calibration)],
    found: Option<&ListComparison>,
) -> anyhow::Result<String> {
    let of_one = |(name, list): &(String, Calibration)| {
        let list = list.clone().with_findings();
        serde_json::json!({ "name": name, "calibration": list })
    };
    let variants: Vec<_> = lists.iter().map(of_one).collect();
    let comparison = found.map(ListComparison::json).transpose()?;
    let all = serde_json::json!({
        "format": "vmlab-calibrations", "version": 1, "variants": variants,
        "comparison": comparison,
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// What would be run.
fn dry_run(args: &CalibrateArgs) -> anyhow::Result<String> {
    let host = host::snapshot::live(Path::new("/"));
    let arch = args.arch_on(&host);
    let qemu = find_qemu(arch)?;
    let names = if args.each.is_empty() { vec![BASE.to_owned()] } else { args.each.clone() };
    let mut shown = String::new();
    for name in names {
        let mut one = args.clone();
        one.variants.extend(Some(name).filter(|name| name != BASE));
        let patch = one.patch(&host)?;
        let tcg = one.accel == AccelArg::Tcg || patch.accel == Some(AccelChoice::Tcg);
        let accel = if tcg { Accel::Tcg } else { Accel::Kvm };
        let ask = ask(&one, &patch, accel, &host)?;
        shown += &text::dry_run(&ask, arch, &ask.command(&qemu)?);
    }
    Ok(shown)
}

/// What to measure under `accel`.
fn ask(
    args: &CalibrateArgs,
    patch: &VmPatch,
    accel: Accel,
    host: &Host,
) -> anyhow::Result<CalibrationRequest> {
    let environment = freeze::environment_of_vm(accel, host);
    let repeats = accel == Accel::Tcg || environment.is_deterministic();
    let arch = args.arch_on(host);
    let vm = settings(patch, arch, accel)?;
    if vm.vcpus() as usize > MAX_VCPUS {
        bail!("The thin guest starts {MAX_VCPUS} vCPUs at the most, and the VM has {}", vm.vcpus());
    }
    let apic = args.apic.map(|apic| match apic {
        ApicArg::Xapic => Apic::Xapic,
        ApicArg::X2apic => Apic::X2apic,
        ApicArg::Gicv2 => Apic::Gicv2,
        ApicArg::Gicv3 => Apic::Gicv3,
    });
    if let Some(apic) = apic.filter(|apic| !apic.is_of(arch.name())) {
        let all = [Apic::Xapic, Apic::X2apic, Apic::Gicv2, Apic::Gicv3];
        let known: Vec<&str> =
            all.into_iter().filter(|one| one.is_of(arch.name())).map(Apic::name).collect();
        bail!("--apic {}: {arch} guests have {}", apic.name(), known.join(" and "));
    }
    Ok(CalibrationRequest {
        vm,
        items: args.items(arch, environment)?,
        apic,
        boots: args.boots.unwrap_or(if repeats { 1 } else { BOOTS }),
        environment,
        as_in_trials: args.as_in_trials,
        kernel: host.kernel.clone(),
        cpu_model: host.cpu_model.clone(),
        hostname: host.hostname.clone(),
        host_settings: runner::calibration::settings_of(host),
    })
}

/// Measures on this machine.
fn here(args: &CalibrateArgs, cancel: &Cancel) -> anyhow::Result<Calibration> {
    let host = host::snapshot::live(Path::new("/"));
    let arch = args.arch_on(&host);
    let qemu = find_qemu(arch)?;
    let patch = args.patch(&host)?;
    let accel = match (args.accel, patch.accel) {
        (AccelArg::Kvm, _) | (AccelArg::Auto, Some(AccelChoice::Kvm)) => Some(Accel::Kvm),
        (AccelArg::Tcg, _) | (AccelArg::Auto, Some(AccelChoice::Tcg)) => Some(Accel::Tcg),
        (AccelArg::Auto, _) => None,
    };
    let ask = |accel: Accel| ask(args, &patch, accel, &host);
    let spinner = Spinner::start();
    if accel == Some(Accel::Tcg) {
        return Ok(measured(&ask(Accel::Tcg)?, &qemu, cancel, &spinner)?);
    }
    let why = match obstacle(&host, arch, &qemu) {
        Some(why) => why,
        None => match under_kvm(ask(Accel::Kvm)?, &qemu, cancel, &spinner) {
            Ok(calibration) => return Ok(calibration),
            Err(CalibrateError::Guest(failure)) => {
                format!("the thin guest does not boot under KVM: {failure}")
            }
            Err(error) => return Err(error.into()),
        },
    };
    if accel == Some(Accel::Kvm) {
        bail!("KVM can't be used: {why}. Without --accel kvm, instructions are counted under TCG");
    }
    let mut calibration = measured(&ask(Accel::Tcg)?, &qemu, cancel, &spinner)?;
    calibration.notes.push(format!("KVM was not used: {why}"));
    Ok(calibration)
}

/// Why it is not even worth trying.
fn obstacle(host: &Host, arch: Arch, qemu: &Qemu) -> Option<String> {
    if host.arch.as_deref() != Some(arch.name()) {
        return Some(format!("{arch} guests are no guests for this host's processor"));
    }
    guest::kvm::obstacle(qemu)
}

/// Under KVM; without a feature that some KVMs offer and then refuse.
fn under_kvm(
    mut ask: CalibrationRequest,
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
    ask: &CalibrationRequest,
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
fn settings(patch: &VmPatch, arch: Arch, accel: Accel) -> anyhow::Result<VmSettings> {
    let boot = BootSource::Kernel { kernel: "vmlab-thin".into(), initrd: None };
    let with = PatchContext { name: "thin", arch, auto_accel: accel, boot };
    let patch = VmPatch { accel: None, ..patch.clone() };
    Ok(patch.resolve(&with)?.into())
}

impl CalibrateArgs {
    /// The text of the VM's file, and what it says.
    fn of_file(&self) -> anyhow::Result<Option<(String, VmPatch)>> {
        let (text, name) = match (&self.vm, &self.vm_text) {
            (None, None) => return Ok(None),
            (Some(file), _) => {
                let name = file.display().to_string();
                (input::text(file).with_context(|| format!("Cannot read {name}"))?, name)
            }
            (None, Some(text)) => (text.clone(), "the VM's file".to_owned()),
        };
        let patch = bounded::toml(&name, &text)?;
        Ok(Some((text, patch)))
    }

    /// How to print what is found.
    fn format(&self) -> CompareFormat {
        if self.json { CompareFormat::Json } else { self.format }
    }

    fn patch(&self, host: &Host) -> anyhow::Result<VmPatch> {
        let mut patch =
            VmPatch { memory_mib: Some(MEMORY_MIB), vcpus: Some(VCPUS), ..VmPatch::default() };
        if let Some((_, over)) = self.of_file()? {
            patch = patch.overlay(&over);
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

    /// The guest's architecture on that host; x86-64 where it has none that is known.
    fn arch_on(&self, host: &Host) -> Arch {
        let own = || host.arch.as_deref().and_then(Arch::from_name);
        self.arch.or_else(own).unwrap_or(Arch::X86_64)
    }

    /// What to measure, the empty sample first.
    fn items(&self, arch: Arch, environment: Environment) -> anyhow::Result<Vec<Item>> {
        let is_there = |operation: &Operation| operation.is_of(arch.name());
        let mut operations: Vec<Operation> = if self.all {
            Operation::all().filter(|one| one.is_price() && is_there(one)).collect()
        } else if self.only.is_empty() {
            SHORT.iter().copied().filter(is_there).collect()
        } else {
            let named = |name: &String| {
                let operation = Operation::from_name(name).with_context(|| {
                    format!("There is no operation {name:?}: vmlab calibrate --list tells them")
                })?;
                if !is_there(&operation) {
                    bail!(
                        "{arch} guests have no {name}: vmlab calibrate --list tells what they do"
                    );
                }
                Ok(operation)
            };
            self.only.iter().map(named).collect::<anyhow::Result<_>>()?
        };
        operations.push(Operation::Nothing);
        // Elsewhere the environment says whether times are real.
        operations.extend((environment == Environment::Kvm).then(|| always_exits(arch)));
        operations.sort_unstable();
        operations.dedup();
        let item = |operation: Operation| {
            let n = self.n.unwrap_or(operation.default_n());
            Item::new(operation, n, operation.default_warmup(n))
        };
        Ok(operations.into_iter().map(item).collect())
    }

    /// The same on another machine.
    fn words_there(&self) -> anyhow::Result<Vec<String>> {
        let mut words = vec!["calibrate".to_owned(), "--json".to_owned()];
        let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
        let of_file = self.of_file()?;
        let has_vcpus = of_file.as_ref().is_some_and(|(_, patch)| patch.vcpus.is_some());
        // There is no such file there.
        of_file.into_iter().for_each(|(text, _)| say("--vm-text", text));
        self.variants.iter().for_each(|name| say("--use", name.clone()));
        self.arch.into_iter().for_each(|arch| say("--arch", arch.name().to_owned()));
        // One pCPU runs them in turns: two vCPUs that spin would wait for its scheduler.
        let vcpus = self.vcpus.or((self.exact && !has_vcpus).then_some(1));
        let numbers = [("--vcpus", vcpus), ("--n", self.n), ("--boots", self.boots)];
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
        if self.as_in_trials {
            words.push("--as-in-trials".to_owned());
        }
        Ok(words)
    }
}

fn read(file: &Path) -> anyhow::Result<Calibration> {
    let named = || format!("Cannot read {}", file.display());
    Calibration::from_json(&input::text(file).with_context(named)?).with_context(named)
}
