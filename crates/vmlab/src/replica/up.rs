//! `vmlab replica up`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Command, FromArgMatches as _};
use guest::Cancel;
use guest::image::{self, GuestImage, Recipe};
use guest::qemu::{Qemu, find_emulator};
use placement::plan::Size;
use replica::{KNOWN, Programs, Replica, ReplicaMachine, ReplicaRequest};
use schemars::JsonSchema;
use serde::Serialize;
use topology::Host;
use vmconfig::Arch;

use super::{programs, text};
use crate::progress::Spinner;
use crate::{host_file, interrupt, terminal};

/// The host image that is taken where none is named.
const DEFAULT_IMAGE: &str = "host-debian-12";

#[derive(Debug, Args)]
pub(super) struct ReplicaUpArgs {
    /// The host to emulate: a saved host file (vmlab host --json), lscpu, hwloc
    /// XML, virsh capabilities, numactl -H, or a folder with copies of /sys and
    /// /proc; several complete each other. This machine if none is given.
    #[arg(value_name = "FILE", conflicts_with = "like")]
    from: Vec<PathBuf>,

    /// A well-known host instead of a description.
    #[arg(long, value_name = "HOST", value_parser = known())]
    like: Option<String>,

    /// The replica's name; that of the described host if not given.
    #[arg(long)]
    name: Option<String>,

    /// Memory in all, shared among the nodes as on the described host: 4GiB,
    /// 3000MiB. 192 MiB a pCPU if not given, but at least 2 GiB and at most 8.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    /// The host's image: host-debian-12 (Linux 6.1, QEMU 7.2), host-debian-13
    /// (Linux 6.12, QEMU 10.0), or host-debian-12-full, which has what kernbench and
    /// pgbench run on the host itself.
    #[arg(long, default_value = DEFAULT_IMAGE)]
    image: String,

    /// The image for guests in it, from this machine's cache.
    #[arg(long, default_value = image::BUILTIN, value_name = "IMAGE")]
    guest: String,

    /// An NVMe disk of that size, behind an IOMMU, so that a guest can have it for
    /// itself; several times for several. The host boots then: such a disk's state
    /// can't be saved.
    #[arg(long, value_name = "SIZE")]
    nvme: Vec<Size>,

    /// Boot, even if there is a saved state, and save none.
    #[arg(long)]
    fresh: bool,

    /// Seconds that the boot may take.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,

    /// Only show QEMU's arguments and what can't be shown.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn known() -> clap::builder::PossibleValuesParser {
    KNOWN
        .iter()
        .map(|known| clap::builder::PossibleValue::new(known.name).help(known.about))
        .collect::<Vec<_>>()
        .into()
}

pub(super) fn run(args: &ReplicaUpArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::cancel_on_signals()?;
    let asked = ReplicaUpRequest::of(args)?;
    if args.dry_run {
        return dry_run(args, &asked);
    }
    let began = Instant::now();
    let up = asked.start(args, &Spinner::start(), &cancel)?;
    if args.json {
        terminal::print(&(serde_json::to_string_pretty(&text::object(&up))? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (name, made) = (&up.name, &up.made);
    let how = if made.restored { "restored from a saved state" } else { "booted" };
    let mut said = format!(
        "{name} is up: {how} in {:.1} s, with what goes before and after {:.1} s\n",
        made.ready_s.unwrap_or_default(),
        began.elapsed().as_secs_f64()
    );
    let memory_mib = args.memory.map(Size::in_mib);
    let shape = ReplicaMachine::of(&asked.host, memory_mib, asked.qemu.is_mended())?;
    said += &text::shape(&shape);
    said += text::emulator(asked.arch, &asked.qemu);
    said += &format!("Next: vmlab replica exec {name} -- vmlab host\n");
    terminal::print(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// The words of `vmlab replica up` for the host that is known by this name, or that this
/// file describes; `None` if it is neither.
pub(crate) fn words_for(host: &str) -> Option<Vec<&str>> {
    match (KNOWN.iter().any(|known| known.name == host), Path::new(host).exists()) {
        (true, _) => Some(vec!["--like", host]),
        (false, true) => Some(vec![host]),
        (false, false) => None,
    }
}

/// A host that `vmlab replica up WORDS` would bring up, looked up.
pub(crate) struct WantedReplica {
    args: ReplicaUpArgs,
    asked: ReplicaUpRequest,
}

impl WantedReplica {
    /// # Errors
    /// Words that `up` does not take, a host that can't be emulated here.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let words = std::iter::once("up").chain(words);
        let matches =
            ReplicaUpArgs::augment_args(Command::new("up")).try_get_matches_from(words)?;
        let args = ReplicaUpArgs::from_arg_matches(&matches)?;
        let asked = ReplicaUpRequest::of(&args)?;
        Ok(Self { args, asked })
    }

    /// Its architecture.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn arch(&self) -> Arch {
        self.asked.arch
    }

    /// What is known of the emulator's faults; empty: nothing.
    fn known_faults(&self) -> &str {
        text::emulator(self.asked.arch, &self.asked.qemu).trim_end()
    }

    /// # Errors
    /// What can't be built or started.
    pub(crate) fn bring_up(&self, spinner: &Spinner, cancel: &Cancel) -> anyhow::Result<Replica> {
        self.asked.start(&self.args, spinner, cancel)
    }
}

/// Brings up the host that `vmlab replica up WORDS` would.
pub(crate) fn bring_up<'a>(
    words: impl IntoIterator<Item = &'a str>,
    cancel: &Cancel,
) -> anyhow::Result<Replica> {
    let wanted = WantedReplica::of(words)?;
    // Before a study begins in it: a guest lost to the emulator is no finding.
    let known = wanted.known_faults();
    if !known.is_empty() {
        terminal::note(known);
    }
    wanted.bring_up(&Spinner::start(), cancel)
}

/// What was asked for, looked up.
struct ReplicaUpRequest {
    name: String,
    host: Host,
    source: String,
    arch: Arch,
    qemu: Qemu,
    recipe: Recipe,
    guests: Recipe,
}

impl ReplicaUpRequest {
    fn of(args: &ReplicaUpArgs) -> anyhow::Result<Self> {
        let (host, source) = described(args)?;
        let name = args.name.clone().unwrap_or_else(|| default_name(&host));
        let arch = arch_of(&host)?;
        let qemu = find_emulator(arch)?;
        let recipe = Recipe::host(image::plain_name(&args.image), arch)?;
        let guests = Recipe::builtin(image::plain_name(&args.guest), arch)?;
        Ok(Self { name, host, source, arch, qemu, recipe, guests })
    }

    fn start(
        &self,
        args: &ReplicaUpArgs,
        spinner: &Spinner,
        cancel: &Cancel,
    ) -> anyhow::Result<Replica> {
        let vmlab = programs::static_vmlab(self.arch)?;
        let probe = runner::probe::find(self.arch)?;
        let began = Instant::now();
        let host_image = built(&self.recipe, spinner, cancel)?;
        let guest_image = built(&self.guests, spinner, cancel)?;
        let name = &self.name;
        let nvme_mib: Vec<u64> = args.nvme.iter().map(|size| size.in_mib()).collect();
        let keeper = std::env::current_exe().context("Cannot find this program's own file")?;
        let wanted = ReplicaRequest {
            name,
            host: &self.host,
            source: &self.source,
            memory_mib: args.memory.map(Size::in_mib),
            nvme_mib: &nvme_mib,
            qemu: &self.qemu,
            image: (&host_image, &self.recipe.name),
            guests: &guest_image,
            keeper: &keeper,
            programs: Programs { vmlab: &vmlab, probe: &probe },
            fresh: args.fresh,
            boot_limit: Duration::from_secs(args.timeout),
        };
        let up = replica::up(&wanted, cancel, &mut |step| {
            spinner.say(&format!("{name}: {step} ({:.0} s)", began.elapsed().as_secs_f64()));
        })?;
        if up.made.started_again {
            terminal::note(&format!(
                "{name}: its emulator ended while it booted and was started again \
                 (docs/emulation.md)"
            ));
        }
        Ok(up)
    }
}

/// The host to emulate, and where its description came from.
fn described(args: &ReplicaUpArgs) -> anyhow::Result<(Host, String)> {
    if let Some(name) = &args.like {
        return Ok((replica::like(name)?, format!("like {name}")));
    }
    if args.from.is_empty() {
        return Ok((runner::machine::this_host(), "this machine".to_owned()));
    }
    let files: Vec<String> = args.from.iter().map(|path| path.display().to_string()).collect();
    Ok((host_file::load_merged(&args.from)?, files.join(", ")))
}

/// The described host's name without its domain, as far as it can be a name.
fn default_name(host: &Host) -> String {
    let name = host.hostname.as_deref().unwrap_or_default();
    let name = name.split('.').next().unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "host".to_owned() } else { plain.to_owned() }
}

fn arch_of(host: &Host) -> anyhow::Result<Arch> {
    let name = host.arch.as_deref().unwrap_or("x86_64");
    match Arch::from_name(name) {
        Some(arch) => Ok(arch),
        None => bail!("The described host is {name}: x86_64 and aarch64 hosts can be emulated"),
    }
}

/// The image from the cache, or built now.
fn built(recipe: &Recipe, spinner: &Spinner, cancel: &Cancel) -> anyhow::Result<GuestImage> {
    let mut observe = |step| spinner.say(&runner::machine::build_step(&recipe.name, &step));
    image::build(recipe, &mut observe, cancel)
        .with_context(|| format!("Cannot build the image {}", recipe.name))
}

/// What `up --dry-run --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplicaPreview<'a> {
    /// The QEMU that would emulate it.
    qemu: &'a Path,
    /// Its arguments.
    args: &'a [String],
    pcpus: u32,
    /// By node.
    node_memory_mib: Vec<u64>,
    /// How many times as much memory the described host has.
    memory_factor: Option<f64>,
    /// What the emulator can't show, in words.
    not_shown: &'a [String],
}

fn dry_run(args: &ReplicaUpArgs, asked: &ReplicaUpRequest) -> anyhow::Result<ExitCode> {
    let ReplicaUpRequest { name, host, recipe, qemu, .. } = asked;
    let (memory_mib, disks) = (args.memory.map(Size::in_mib), args.nvme.len());
    let (shape, arguments) =
        replica::preview(name, host, memory_mib, disks, recipe, qemu.is_mended())?;
    if args.json {
        let facts = ReplicaPreview {
            qemu: &qemu.path,
            args: &arguments,
            pcpus: shape.pcpus(),
            node_memory_mib: shape.nodes.iter().map(|node| node.memory_mib).collect(),
            memory_factor: shape.memory_factor,
            not_shown: &shape.not_shown,
        };
        terminal::print(&(serde_json::to_string_pretty(&facts)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut said = text::shape(&shape);
    said += &format!("\n{}", qemu.path.display());
    for argument in &arguments {
        let option = argument.starts_with('-');
        said += if option { " \\\n  " } else { " " };
        said += &remote::quote([argument]);
    }
    said.push('\n');
    terminal::print(&said)?;
    Ok(ExitCode::SUCCESS)
}
