//! `vmlab convert` and `vmlab emit`: a VM in another format, and what that
//! can't say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use guest::image::oci::OciImage;
use thinguest::{Item, Operation};
use topology::bounded;
use vmconfig::qemu::Capabilities;
use vmconfig::source::SourceText;
use vmconfig::{
    AccelChoice, Arch, BootSource, BuiltinKernel, DiskFormat, EmittedText, ImagePatch, InvalidVm,
    Loss, LossWeight, ParsedVm, PatchContext, SpecFinding, UnmodelledSetting, VmPatch, VmSpec,
    builtin, json, kubevirt, libvirt, proxmox, qemu,
};

use crate::exit::FINDINGS;
use crate::offers::OffersArgs;
use crate::{host_file, input, terminal};

const CONVERT_EXAMPLES: &str = "\
Examples:
  vmlab convert db.xml --to kubevirt      a domain of libvirt as KubeVirt's YAML
  vmlab convert vm.yaml --to libvirt      and back
  vmlab convert start-vm.sh --to libvirt  a script that starts QEMU
  vmlab convert 100.conf --to libvirt     a VM of Proxmox
  vmlab convert 100.conf --to libvirt     a VM of Proxmox
  virsh dumpxml db | vmlab convert - --to qemu
  vmlab convert db.xml --to qemu --qemu qemu-system-x86_64  can that QEMU do it?

What was not understood and what the format can't say is printed on standard
error, with its line: one by one what may change performance or takes a disk, an
interface or memory away, in a line each what else the guest lacks and what changes
nothing. With --qemu, --libvirt or --capabilities, what is written is held against what
they can do, by the rules of lint.";

const EMIT_EXAMPLES: &str = "\
Examples:
  vmlab emit --to libvirt                        the default VM
  vmlab emit --use vtune --vcpus 4 --to libvirt  pinned and mirrored on this host
  vmlab emit vm.toml --use huge-1g --use cpu-pm --host server.json --to qemu
  vmlab emit thin.toml --uefi-disk thin.img --to kubevirt  the thin guest by UEFI
  vmlab emit thin.toml --uefi-disk thin.img --containerdisk thin.tar --to kubevirt
  vmlab emit thin.toml --arch aarch64 --uefi-disk thin.img --to qemu  that of arm64
  vmlab emit --list                              the variants that --use takes";

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceFormat {
    /// QEMU's command line.
    Qemu,
    /// libvirt's domain XML.
    Libvirt,
    /// KubeVirt's objects.
    #[value(alias = "kubevirt-vm")]
    Kubevirt,
    /// Proxmox VE's configuration of a VM.
    Proxmox,
    /// vmlab's own fields.
    Json,
}

/// The formats that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertFormat {
    /// QEMU's command line.
    Qemu,
    /// libvirt's domain XML.
    Libvirt,
    /// KubeVirt's VirtualMachineInstance.
    Kubevirt,
    /// KubeVirt's VirtualMachine.
    KubevirtVm,
    /// vmlab's own fields.
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Domain XML, KubeVirt's YAML, a QEMU command line, Proxmox's .conf, JSON; '-' is
    /// standard input.
    file: PathBuf,
    /// The format to write.
    #[arg(long, value_enum)]
    to: ConvertFormat,
    /// The format that the file has; found out if not given.
    #[arg(long, value_enum)]
    from: Option<SourceFormat>,
    /// Show all that is left out, also what changes no performance.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    offers: OffersArgs,
}

#[derive(Debug, Args)]
#[command(after_help = EMIT_EXAMPLES)]
pub(crate) struct EmitArgs {
    /// The VM's fields in TOML, as in a study's `[vm]`.
    file: Option<PathBuf>,
    /// The format to write.
    #[arg(long, value_enum, required_unless_present = "list")]
    to: Option<ConvertFormat>,
    /// A variant by name, laid over the file; may be given again.
    #[arg(long = "use", value_name = "VARIANT")]
    variants: Vec<String>,
    /// Number of vCPUs.
    #[arg(long)]
    vcpus: Option<u32>,
    /// The guest's architecture, x86_64 or aarch64 [default: this host's].
    #[arg(long, value_name = "ARCH", value_parser = crate::calibrate::arch)]
    arch: Option<Arch>,
    /// The host that variants are made for; this one if not given.
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,
    /// The VM's name.
    #[arg(long, default_value = "vm")]
    name: String,
    /// Write a disk from which UEFI firmware boots the thin guest, and the VM with that
    /// disk; the VM's kernel is "builtin:thin". What says which firmware is yours to add.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    uefi_disk: Option<PathBuf>,
    /// Write what KubeVirt boots the thin guest from to a new OCI archive: the disk of
    /// --uefi-disk, else the kernel.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    containerdisk: Option<PathBuf>,
    /// List the variants.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    offers: OffersArgs,
}

pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let text = read(&args.file)?;
    let from = args.from.unwrap_or_else(|| guess(&text));
    let text = input::with_config_files(&args.file, text);
    let all = parse(&text.source(), from)
        .with_context(|| format!("Cannot read {} as {from:?}", args.file.display()))?;
    let host = HostOffers::load(&args.offers)?;
    let many = all.len() > 1;
    let mut complete = true;
    for (number, parsed) in all.iter().enumerate() {
        let spec = parsed.spec().map_err(|error| {
            let (line, error) = in_words_of(from, parsed, error);
            cannot_be(&args.file, parsed, line, error)
        })?;
        let (spec, added) = completed(spec, args.to);
        if let Some(refused) = refused(&spec, args.to) {
            let line = parsed.line(&refused.field);
            return Err(cannot_be(&args.file, parsed, line, anyhow::anyhow!(refused.message)));
        }
        for one in added {
            let place = place(&args.file, parsed, parsed.line("vcpus"));
            terminal::note(&format!("{place}: {one}"));
        }
        let emitted = emit(&spec, args.to);
        if many && number > 0 {
            terminal::print(if is_yaml(args.to) { "---\n" } else { "\n" })?;
        }
        terminal::print(&emitted.text)?;
        complete &= report(&args.file, Some(parsed), &emitted.losses, args.all);
        complete &= host.report(&emitted.text, args.to)?;
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// `FILE:LINE`, if there is a line; one of `parsed` may be in a file that the text names.
fn place(file: &Path, parsed: &ParsedVm, line: Option<u32>) -> String {
    let Some(line) = line else { return file.display().to_string() };
    let (named, line) = parsed.in_file(line);
    named.map_or_else(|| format!("{}:{line}", file.display()), |named| format!("{named}:{line}"))
}

fn cannot_be(
    file: &Path,
    parsed: &ParsedVm,
    line: Option<u32>,
    error: anyhow::Error,
) -> anyhow::Error {
    let name = &parsed.settings.name;
    error.context(format!("{}: VM {name:?} can't be", place(file, parsed, line)))
}

/// The line that is at fault, and what is wrong as the text's own format says it.
fn in_words_of(
    from: SourceFormat,
    parsed: &ParsedVm,
    error: InvalidVm,
) -> (Option<u32>, anyhow::Error) {
    let field = match error {
        InvalidVm::NotShared { number } => format!("nics.{number}"),
        _ => error.field().to_owned(),
    };
    let line = parsed.line(&field).or_else(|| first_line_below(parsed, &field));
    let mend = match (&error, from) {
        (InvalidVm::NotShared { .. }, SourceFormat::Qemu) => {
            "add -object memory-backend-memfd,id=mem,size=SIZE,share=on -machine \
             memory-backend=mem, with the SIZE of -m"
        }
        (InvalidVm::NotShared { .. }, SourceFormat::Libvirt) => {
            "write <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking> \
             in <domain>"
        }
        _ => return (line, error.into()),
    };
    let what = "a vhost-user interface needs the guest's memory shared, as its switch maps it";
    (line, anyhow::anyhow!("{what}: {mend}"))
}

/// True for the formats that QEMU is started from.
fn is_of_qemu(format: ConvertFormat) -> bool {
    matches!(format, ConvertFormat::Qemu | ConvertFormat::Libvirt)
}

/// The VM with what QEMU or libvirt wants beside so many vCPUs, and what that is.
fn completed(spec: VmSpec, format: ConvertFormat) -> (VmSpec, Vec<SpecFinding>) {
    match is_of_qemu(format).then(|| spec.with_extended_interrupts()).flatten() {
        Some(whole) => whole,
        None => (spec, Vec::new()),
    }
}

/// Why no QEMU takes as many vCPUs, or such.
fn refused(spec: &VmSpec, format: ConvertFormat) -> Option<SpecFinding> {
    let of_vcpus = ["vcpus", "topology", "cpu_model"];
    let mut findings = qemu::check(spec, &Capabilities::current()).into_iter();
    findings.find(|one| is_of_qemu(format) && of_vcpus.contains(&one.field.as_str()))
}

/// The first line of what a list of the VM is read from: `disks`, `nics`.
fn first_line_below(parsed: &ParsedVm, field: &str) -> Option<u32> {
    let above = format!("{field}.");
    let below = parsed.lines.iter().filter(|(path, _)| path.starts_with(&above));
    below.map(|(_, line)| *line).min()
}

pub(crate) fn run_emit(args: &EmitArgs) -> anyhow::Result<ExitCode> {
    let to = match (args.list, args.to) {
        (false, Some(to)) => to,
        _ => {
            terminal::print(&list())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let host = HostOffers::load(&args.offers)?;
    let mut patch = match &args.file {
        Some(file) => bounded::toml(&file.display().to_string(), &read(file)?)?,
        None => VmPatch::default(),
    };
    if args.vcpus.is_some() {
        let vcpus = VmPatch { vcpus: args.vcpus, ..VmPatch::default() };
        patch = patch.overlay(&vcpus);
    }
    if !args.variants.is_empty() {
        let host = match &args.host {
            Some(path) => host_file::load_host(path)?,
            None => host::snapshot::live(Path::new("/")),
        };
        let vcpus = patch.topology()?.vcpus();
        for name in &args.variants {
            patch = patch.overlay(&builtin::variant(name, &host, vcpus)?);
        }
    }
    let own_arch = || Arch::from_name(std::env::consts::ARCH).unwrap_or(Arch::X86_64);
    let arch = args.arch.unwrap_or_else(own_arch);
    let boot = match patch.image() {
        image if BuiltinKernel::is_thin(&image) && args.uefi_disk.is_some() => BootSource::Disk {
            image: args.uefi_disk.clone().unwrap_or_default(),
            format: DiskFormat::Raw,
        },
        _ if args.uefi_disk.is_some() => {
            bail!("--uefi-disk is for the thin guest: write kernel = \"builtin:thin\"");
        }
        image if BuiltinKernel::is_thin(&image) => {
            BootSource::Kernel { kernel: guest::thin::file(arch)?, initrd: None }
        }
        ImagePatch::File(image) => {
            let qcow2 = image.extension().is_some_and(|end| end == "qcow2");
            let format = if qcow2 { DiskFormat::Qcow2 } else { DiskFormat::Raw };
            BootSource::Disk { image, format }
        }
        ImagePatch::Builtin(_) => BootSource::Firmware,
    };
    let own_image = boot == BootSource::Firmware;
    if own_image {
        patch.kernel_cmdline = None;
    }
    if args.containerdisk.is_some() && patch.kernel != Some(BuiltinKernel::Thin) {
        bail!(
            "--containerdisk is for the thin guest: write kernel = \"builtin:thin\"; `vmlab image \
             export --to containerdisk` writes vmlab's own images"
        );
    }
    if patch.kernel == Some(BuiltinKernel::Thin) {
        let plan = thin_plan(&patch, arch)?;
        if let Some(disk) = &args.uefi_disk {
            write_uefi_disk(disk, &plan, arch)?;
        }
        if let Some(archive) = &args.containerdisk {
            write_container(archive, &boot, arch)?;
        }
        patch.kernel_cmdline = args.uefi_disk.is_none().then_some(plan);
        patch.kernel = patch.kernel.filter(|_| args.uefi_disk.is_none());
    }
    let auto_accel = match patch.accel {
        Some(AccelChoice::Tcg) => vmconfig::Accel::Tcg,
        _ => vmconfig::Accel::Kvm,
    };
    let with = PatchContext { name: &args.name, arch, auto_accel, boot };
    let (spec, added) = completed(patch.resolve(&with)?, to);
    if let Some(refused) = refused(&spec, to) {
        bail!("{refused}");
    }
    for one in added {
        terminal::note(&one.message);
    }
    let emitted = emit(&spec, to);
    terminal::print(&emitted.text)?;
    if own_image {
        terminal::note("vmlab's own image is left out: add a disk to boot from");
    }
    if args.uefi_disk.is_some() {
        terminal::note(match to {
            ConvertFormat::Kubevirt | ConvertFormat::KubevirtVm => {
                "put the disk into a containerDisk (--containerdisk), and say \
                 domain.firmware.bootloader.efi: {secureBoot: false}"
            }
            ConvertFormat::Libvirt => "say <os firmware='efi'>, without secure boot",
            ConvertFormat::Qemu | ConvertFormat::Json if arch == Arch::Aarch64 => {
                "add AAVMF's two files as drives with if=pflash"
            }
            ConvertFormat::Qemu | ConvertFormat::Json => {
                "add OVMF's two files as drives with if=pflash"
            }
        });
    }
    report(Path::new(&args.name), None, &emitted.losses, true);
    let fits = host.report(&emitted.text, to)?;
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// Writes the disk; only one of ours is written over.
fn write_uefi_disk(path: &Path, plan: &str, arch: Arch) -> anyhow::Result<()> {
    let disk = guest::thin::uefi_disk(arch, plan)?;
    let cannot = || format!("Cannot write {}", path.display());
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(cannot),
        // Whatever else stands there (a FIFO would never end) is not opened.
        Ok(there) if there.is_file() && guest::thin::is_uefi_disk(path).with_context(cannot)? => {}
        Ok(_) => bail!("{} is in the way: it is no disk of the thin guest", path.display()),
    }
    std::fs::write(path, disk).with_context(cannot)
}

/// Writes the container from which KubeVirt boots the thin guest, named as `emit` names it.
fn write_container(archive: &Path, boot: &BootSource, arch: Arch) -> anyhow::Result<()> {
    let (folder, file) = match boot {
        BootSource::Kernel { kernel, .. } => ("boot", kernel),
        BootSource::Disk { image, .. } => ("disk", image),
        _ => bail!("--containerdisk: this VM boots neither a kernel nor a disk"),
    };
    let name = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let cannot = || format!("Cannot write {}", archive.display());
    let scratch = match archive.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut out = std::fs::File::create_new(archive).with_context(cannot)?;
    let written = OciImage::of_file(folder, file, arch, &name).write_archive(&mut out, scratch);
    if written.is_err() {
        // Half of it is of no use to anybody; the first error is the one to tell.
        drop(std::fs::remove_file(archive));
    }
    written.with_context(cannot)
}

/// The thin guest's plan: what the patch says, and all operations where it names none.
fn thin_plan(patch: &VmPatch, arch: Arch) -> anyhow::Result<String> {
    let vcpus = patch.topology()?.vcpus();
    let given = patch.kernel_cmdline.clone().unwrap_or_default();
    let mut words = vec![format!("vmlab-thin={}", thinguest::FORMAT_VERSION)];
    words.extend(given.split_ascii_whitespace().map(str::to_owned));
    if !words.iter().any(|word| word.starts_with("run=")) {
        let all = Operation::all().filter(|one| one.vcpus() <= vcpus && one.is_of(arch.name()));
        let items = all.map(|operation| {
            let n = operation.default_n();
            Item::new(operation, n, operation.default_warmup(n)).to_string()
        });
        words.push(format!("run={}", items.collect::<Vec<_>>().join(",")));
    }
    Ok(words.join(" "))
}

/// What the host that a text is for can do.
struct HostOffers(lint::Context);

impl HostOffers {
    fn load(args: &OffersArgs) -> anyhow::Result<Self> {
        let (offers, host) = args.load()?;
        let mut context = lint::Context::default();
        context.offers = offers;
        Ok(Self(match host {
            Some(host) => context.on(host),
            None => context,
        }))
    }

    /// Says what it can't; true if it can all. Fields of vmlab's own are for no host yet.
    fn report(&self, text: &str, format: ConvertFormat) -> anyhow::Result<bool> {
        if self.0.offers.is_none() || format == ConvertFormat::Json {
            return Ok(true);
        }
        let findings = lint::check_offers("(what is written)", text, &self.0)?;
        if !findings.is_empty() {
            terminal::note(lint::output::text(&findings, terminal::width(), true).trim_end());
        }
        Ok(findings.iter().all(|finding| finding.severity < lint::Severity::Warning))
    }
}

fn list() -> String {
    let widest = builtin::VARIANTS.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &builtin::Builtin| format!("{:widest$}  {}\n", one.name, one.help);
    builtin::VARIANTS.iter().map(line).collect()
}

fn read(file: &Path) -> anyhow::Result<String> {
    input::text(file).with_context(|| format!("Cannot read {}", file.display()))
}

/// What a text looks like.
fn guess(text: &str) -> SourceFormat {
    let start = text.trim_start();
    if start.starts_with('<') {
        SourceFormat::Libvirt
    } else if start.starts_with('{') && text.contains("\"topology\"") {
        SourceFormat::Json
    } else if proxmox::holds_vm(text) {
        SourceFormat::Proxmox
    } else if text.contains("kind:") || text.contains("\"kind\"") {
        SourceFormat::Kubevirt
    } else {
        SourceFormat::Qemu
    }
}

fn parse(source: &SourceText<'_>, format: SourceFormat) -> anyhow::Result<Vec<ParsedVm>> {
    let text = source.text;
    Ok(match format {
        SourceFormat::Qemu => vec![qemu::parse_source(source)?],
        SourceFormat::Libvirt => libvirt::parse(text)?,
        SourceFormat::Kubevirt => kubevirt::parse(text)?,
        SourceFormat::Proxmox => vec![proxmox::parse(text)?],
        SourceFormat::Json => vec![json::parse(text)?],
    })
}

fn is_yaml(format: ConvertFormat) -> bool {
    matches!(format, ConvertFormat::Kubevirt | ConvertFormat::KubevirtVm)
}

fn emit(spec: &VmSpec, format: ConvertFormat) -> EmittedText {
    match format {
        ConvertFormat::Qemu => {
            let emitted = qemu::emit_plain(spec, &Capabilities::current());
            let program = format!("qemu-system-{}", spec.arch);
            let lines = [vec![program], emitted.option_lines()].concat();
            EmittedText { text: lines.join(" \\\n  ") + "\n", losses: emitted.losses }
        }
        ConvertFormat::Libvirt => libvirt::emit(spec),
        ConvertFormat::Kubevirt => kubevirt::emit(spec, kubevirt::KubevirtKind::Instance),
        ConvertFormat::KubevirtVm => kubevirt::emit(spec, kubevirt::KubevirtKind::Machine),
        ConvertFormat::Json => json::emit(spec),
    }
}

/// Something that was left out.
struct PlacedLoss {
    weight: LossWeight,
    /// `FILE:LINE`, if it stands somewhere.
    place: Option<String>,
    text: String,
    /// In a word or two, for where many are folded.
    short: String,
}

impl PlacedLoss {
    fn kept(file: &Path, kept: &UnmodelledSetting) -> Self {
        let UnmodelledSetting { line, path, text, file: named } = kept;
        let file = named.clone().unwrap_or_else(|| file.display().to_string());
        let first = text.lines().next().unwrap_or_default();
        let more = if text.lines().nth(1).is_some() { " ..." } else { "" };
        let short = match path.as_str() {
            "-device" => first.split(',').next().unwrap_or(first).to_owned(),
            path => path.rsplit(['/', '.']).next().unwrap_or(path).to_owned(),
        };
        let text = format!("not understood: {path}: {first}{more}");
        Self { weight: kept.weight(), place: Some(format!("{file}:{line}")), text, short }
    }

    fn loss(file: &Path, loss: &Loss, parsed: Option<&ParsedVm>) -> Self {
        let Loss { what, why, fields } = loss;
        let line = fields.iter().find_map(|field| parsed?.line(field));
        let place = parsed.filter(|_| line.is_some()).map(|parsed| place(file, parsed, line));
        let short = fields.first().cloned().unwrap_or_else(|| what.clone());
        Self { weight: loss.weight(), place, text: format!("left out: {what}: {why}"), short }
    }
}

/// Says what was left out, what matters first; true if nothing was that changes
/// performance.
fn report(file: &Path, parsed: Option<&ParsedVm>, losses: &[Loss], all: bool) -> bool {
    let kept = parsed.iter().flat_map(|parsed| &parsed.kept);
    let mut left: Vec<PlacedLoss> = kept.map(|kept| PlacedLoss::kept(file, kept)).collect();
    left.extend(losses.iter().map(|loss| PlacedLoss::loss(file, loss, parsed)));
    left.sort_by_key(|one| one.weight);
    for one in left.iter().filter(|one| all || one.weight == LossWeight::Performance) {
        let place = one.place.clone().unwrap_or_else(|| file.display().to_string());
        terminal::note(&format!("{place}: {}", one.text));
    }
    let file = file.display();
    let folded = |weight: LossWeight| {
        let these: Vec<&PlacedLoss> =
            left.iter().filter(|one| !all && one.weight == weight).collect();
        let names: BTreeSet<&str> = these.iter().map(|one| one.short.as_str()).collect();
        (these.len(), names.into_iter().collect::<Vec<_>>().join(", "))
    };
    if let (count @ 1.., names) = folded(LossWeight::Devices) {
        terminal::note(&format!(
            "{file}: the guest has less, no slower for it ({count}; --all): {names}"
        ));
    }
    if let (count @ 1.., _) = folded(LossWeight::Nothing) {
        terminal::note(&format!("{file}: {count} more change nothing in the guest (--all)"));
    }
    left.first().is_none_or(|one| one.weight > LossWeight::Performance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_looks() {
        let check =
            |text: &str, expected: SourceFormat| assert_eq!(guess(text), expected, "{text}");
        check("\n<domain/>", SourceFormat::Libvirt);
        check("apiVersion: kubevirt.io/v1\nkind: VirtualMachine", SourceFormat::Kubevirt);
        check("#!/bin/sh\nexec qemu-system-x86_64 -m 1G", SourceFormat::Qemu);
        check("{\"name\": \"vm\", \"topology\": {}}", SourceFormat::Json);
        check(
            "#a host's\ncores: 4\nmemory: 4096\nostype: l26\nscsihw: lsi\n",
            SourceFormat::Proxmox,
        );
    }

    #[test]
    fn what_is_left_out_is_told_by_its_weight() {
        let text = "<domain type='kvm'><memory unit='GiB'>1</memory><uuid>1</uuid>
  <cputune><shares>100</shares></cputune>
  <devices><video><model type='qxl'/></video></devices></domain>";
        let parsed = parse(&SourceText::new(text), guess(text)).unwrap().remove(0);
        let kept = parsed.kept.iter().map(|kept| PlacedLoss::kept(Path::new("x"), kept));
        let left: Vec<PlacedLoss> = kept.collect();
        let of = |weight: LossWeight| {
            let these = left.iter().filter(|one| one.weight == weight);
            let place = |one: &&PlacedLoss| one.place.clone().unwrap_or_default();
            these.map(|one| (place(&one), one.short.clone())).collect::<Vec<_>>()
        };
        assert_eq!(of(LossWeight::Performance), [("x:2".to_owned(), "shares".to_owned())]);
        assert_eq!(of(LossWeight::Devices), [("x:3".to_owned(), "video".to_owned())]);
        assert_eq!(of(LossWeight::Nothing), [("x:1".to_owned(), "uuid".to_owned())]);
        let report = |parsed: &ParsedVm| report(Path::new("x"), Some(parsed), &[], false);
        assert!(!report(&parsed));
        let text = text.replace("<shares>100</shares>", "");
        assert!(report(&parse(&SourceText::new(&text), guess(&text)).unwrap().remove(0)));
    }

    #[test]
    fn memory_that_is_not_shared_is_told_in_the_words_of_the_text() {
        let qemu = "qemu-system-x86_64 -m 512 \\\n -chardev socket,id=c,path=/run/a \\\n \
                    -netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n";
        let libvirt = "<domain type='kvm'><memory unit='GiB'>1</memory>
  <devices>
    <interface type='vhostuser'><source type='unix' path='/run/a' mode='client'/>
      <model type='virtio'/></interface></devices></domain>";
        for (text, mend) in [
            (qemu, "memory-backend-memfd,id=mem,size=SIZE,share=on"),
            (libvirt, "<access mode='shared'/>"),
        ] {
            let from = guess(text);
            let parsed = parse(&SourceText::new(text), from).unwrap().remove(0);
            let (line, error) = in_words_of(from, &parsed, parsed.spec().unwrap_err());
            let error = error.to_string();
            assert_eq!(line, Some(3), "{error}");
            assert!(error.contains(mend) && !error.contains("memory.shared"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_has_its_line() {
        let text = "<domain type='kvm'><memory unit='GiB'>1</memory>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' io='native'/><source file='/a'/>
      <target dev='vda' bus='virtio'/></disk></devices></domain>";
        let parsed = parse(&SourceText::new(text), guess(text)).unwrap().remove(0);
        let error = parsed.spec().unwrap_err();
        assert_eq!(first_line_below(&parsed, error.field()), Some(3));
    }

    #[test]
    fn many_vcpus_come_with_what_they_need() {
        let spec = |machine: &str| {
            let text =
                format!("qemu-system-x86_64 -accel kvm -machine {machine} -cpu host -smp 288");
            parse(&SourceText::new(&text), SourceFormat::Qemu).unwrap().remove(0).spec().unwrap()
        };
        let (whole, added) = completed(spec("q35"), ConvertFormat::Libvirt);
        assert_eq!((added.len(), refused(&whole, ConvertFormat::Libvirt)), (2, None));
        assert!(emit(&whole, ConvertFormat::Qemu).text.contains("intel-iommu,intremap=on,eim=on"));
        let (same, added) = completed(spec("q35"), ConvertFormat::Json);
        assert_eq!((same, added), (spec("q35"), Vec::new()));
        let (pc, added) = completed(spec("pc"), ConvertFormat::Qemu);
        assert_eq!(added, []);
        let message = refused(&pc, ConvertFormat::Qemu).unwrap().message;
        assert!(message.starts_with("vcpus 288 is more than machine \"pc\""), "{message}");
        assert_eq!(refused(&pc, ConvertFormat::Json), None);
    }

    #[test]
    fn what_is_written_is_held_against_the_host() {
        let mut context = lint::Context::default();
        let answers = include_str!("../../vmconfig/testdata/qemu-7.2.22/qmp-kvm.json");
        context.offers = Some(vmconfig::offers::read("qmp-kvm.json", answers).unwrap());
        let (asked, unasked) = (HostOffers(context), HostOffers(lint::Context::default()));
        let written = |machine: &str, to: ConvertFormat| {
            let text = format!("qemu-system-x86_64 -accel kvm -machine {machine} -cpu host -m 1G");
            emit(
                &parse(&SourceText::new(&text), SourceFormat::Qemu)
                    .unwrap()
                    .remove(0)
                    .spec()
                    .unwrap(),
                to,
            )
            .text
        };
        for to in [ConvertFormat::Qemu, ConvertFormat::Libvirt] {
            assert!(asked.report(&written("pc-q35-7.2", to), to).unwrap());
            assert!(!asked.report(&written("pc-q35-10.0", to), to).unwrap(), "{to:?}");
            assert!(unasked.report(&written("pc-q35-10.0", to), to).unwrap());
        }
        let json = written("pc-q35-10.0", ConvertFormat::Json);
        assert!(asked.report(&json, ConvertFormat::Json).unwrap());
    }

    #[test]
    fn a_vm_goes_round_the_formats() {
        let text = "qemu-system-x86_64 -name db -accel kvm -machine q35 -cpu host -smp 4,cores=2,threads=2 -m 4G";
        let spec = parse(&SourceText::new(text), guess(text)).unwrap().remove(0).spec().unwrap();
        let mut now = spec.clone();
        for format in [
            ConvertFormat::Libvirt,
            ConvertFormat::Json,
            ConvertFormat::Kubevirt,
            ConvertFormat::KubevirtVm,
            ConvertFormat::Qemu,
        ] {
            let EmittedText { text, losses } = emit(&now, format);
            assert_eq!(losses, [], "{text}");
            now = parse(&SourceText::new(&text), guess(&text)).unwrap().remove(0).spec().unwrap();
        }
        assert_eq!(now, spec);
    }
}
