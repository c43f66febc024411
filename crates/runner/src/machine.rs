//! What a plan needs to know of this machine: the host, QEMU, whether KVM is
//! usable, the images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use guest::image::{self, BuildError, OwnImageError, Recipe, RecipeError};
use guest::kvm::{self, KvmVerdict};
use guest::libvirt::{LibvirtFacts, Uri, Virsh, VirshError};
use guest::qemu::{self, FindQemuError, Qemu};
use guest::thin::{self, NoProgram};
use guest::{Cancel, Cancellation};
use host::owner::{self, Owner, OwnerError, RuntimeDirError};
use record::Environment;
use topology::{Host, QemuInfo};
use vmconfig::{Accel, AccelChoice, Arch, BootSource, BuiltinKernel, DiskFormat, ImagePatch};

use crate::freeze::{self, MachineFacts, MachineImage};
use crate::plan::{
    ImageFacts, MEASUREMENT_VERSION, QemuFacts, ResolveWorkloadError, SIMULATION_VERSION, StudyPlan,
};
use crate::study::Study;

/// The image that is booted to see whether KVM works, where no study names another.
const TRIAL_IMAGE: &str = image::BUILTIN;

/// What is known of KVM before a guest was booted under it.
const NOT_TRIED: &str = "is not known before the first `vmlab run`, which boots a guest under it";

/// How much may be done to learn about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Only look: nothing is built or booted.
    Plan,
    /// Build images that are missing, boot a guest to see whether KVM works.
    Run,
}

/// Error type for [`discover`].
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The host's architecture has no VMs here.
    #[error("vmlab has no VMs for this host's architecture {0:?} (it has x86_64 and aarch64)")]
    Arch(String),
    /// No usable QEMU.
    #[error(transparent)]
    Qemu(#[from] FindQemuError),
    /// A builtin image that does not exist.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// An image could not be built.
    #[error("Cannot build the image {name}")]
    Build {
        /// The image.
        name: String,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// A host load can't be made.
    #[error(
        "Load {load:?} needs stress-ng on this host: run `apt-get install stress-ng` (Fedora, SUSE: the same package)"
    )]
    NoStressNg {
        /// The load.
        load: String,
    },
    /// The guests' own program is missing.
    #[error(transparent)]
    Probe(#[from] crate::probe::MissingProbe),
    /// An image that the study names can't be used.
    #[error("{file}:{line}: image can't be used")]
    Image {
        /// The study file.
        file: String,
        /// The line that names it.
        line: usize,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// There is no thin guest.
    #[error("{file}:{line}: {source}")]
    Thin {
        /// The study file.
        file: String,
        /// The line that names it.
        line: usize,
        /// Why.
        source: NoProgram,
    },
    /// This process can't mark what it starts.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// No folder for sockets.
    #[error(transparent)]
    Runtime(#[from] RuntimeDirError),
    /// libvirt does not answer.
    #[error(transparent)]
    Libvirt(#[from] VirshError),
    /// Its QEMUs could not reach this vmlab.
    #[error(
        "QEMU runs as another user at {0}, who can't reach this user's sockets and images: run vmlab as root, or take qemu:///session"
    )]
    OtherUser(Uri),
    /// Ctrl-C.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

/// Which libvirt is at `uri`, if its QEMUs can run trials of this user's.
fn ask_libvirt(uri: &Uri, cancel: &Cancel) -> Result<LibvirtFacts, DiscoverError> {
    let facts = Virsh::new(uri).facts(uri, cancel)?;
    if !uri.is_session() && !rustix::process::geteuid().is_root() {
        return Err(DiscoverError::OtherUser(uri.clone()));
    }
    Ok(facts)
}

/// Why an image that a study names can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is no such builtin image.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A file of the user's own.
    #[error(transparent)]
    Own(#[from] OwnImageError),
}

/// Learns what a plan for `study` needs to know of this machine; `say` hears
/// what takes time. Images of the user's own are looked up from `folder`. A libvirt
/// that is to run the VMs is one of this machine.
///
/// # Errors
/// [`DiscoverError`] says what to install or to change.
pub fn discover(
    study: &Study,
    folder: &Path,
    libvirt: Option<&Uri>,
    need: Need,
    cancel: &Cancel,
    say: &mut dyn FnMut(String),
) -> Result<MachineFacts, DiscoverError> {
    let libvirt = libvirt.map(|uri| ask_libvirt(uri, cancel)).transpose()?;
    let mut host = host::snapshot::live(Path::new("/"));
    let native = arch_of(&host).map_err(DiscoverError::Arch)?;
    let arch = study.arch.unwrap_or(native);
    let found = qemu::find_qemu(arch)?;
    if let Some(load) = study.loads.iter().find(|load| load.stress.is_some())
        && !host::program::is_in_path("stress-ng")
    {
        return Err(DiscoverError::NoStressNg { load: load.name.clone() });
    }
    if crate::probe::is_needed(study) {
        crate::probe::find(arch)?;
    }
    let mut images = BTreeMap::new();
    for image in freeze::images(study) {
        let named = |source| DiscoverError::Image {
            file: study.file.clone(),
            line: line_of_image(study, &image),
            source,
        };
        let there = match &image {
            thin if BuiltinKernel::is_thin(thin) => {
                thin_guest(arch).map_err(|source| DiscoverError::Thin {
                    file: study.file.clone(),
                    line: line_of_image(study, &image),
                    source,
                })?
            }
            ImagePatch::Builtin(name) => {
                let recipe = Recipe::builtin_from(name, folder, arch);
                let recipe = recipe.map_err(|error| named(error.into()))?;
                find_builtin(&recipe, need, cancel, say)?
            }
            ImagePatch::File(path) => {
                own_image(&folder.join(path)).map_err(|error| named(error.into()))?
            }
        };
        images.insert(image, there);
    }
    let (auto_accel, environment_why) = if arch != native {
        (Accel::Tcg, Some(format!("The guests are {arch}, this host is {native}.")))
    } else if wants_kvm(study) {
        say("looking whether a guest boots under KVM".to_owned());
        accelerator(&host, &found, trial_image(study), arch, need, cancel)?
    } else {
        (Accel::Tcg, Some("The study asks for emulation.".to_owned()))
    };
    host.qemu = Some(qemu_info(&found, Some(auto_accel == Accel::Kvm), environment_why.clone()));
    Ok(MachineFacts {
        host,
        arch,
        qemu: QemuFacts {
            path: found.path.display().to_string(),
            version: found.version_text.clone(),
        },
        capabilities: found.capabilities,
        libvirt,
        kubevirt: None,
        auto_accel,
        environment_why,
        images,
        is_simulated: false,
    })
}

/// What a plan needs to know of a machine that is only described, where trials are
/// simulated: nothing is looked for, built or booted.
///
/// # Errors
/// [`DiscoverError::Arch`] and images that no vmlab has.
pub fn described(study: &Study, folder: &Path, host: Host) -> Result<MachineFacts, DiscoverError> {
    /// Configurations are checked against what this QEMU takes.
    const QEMU: &str = "QEMU emulator version 10.0.0";
    let arch = match study.arch {
        Some(arch) => arch,
        None => arch_of(&host).map_err(DiscoverError::Arch)?,
    };
    let mut images = BTreeMap::new();
    for image in freeze::images(study) {
        let there = match &image {
            thin if BuiltinKernel::is_thin(thin) => MachineImage {
                boot: BootSource::Kernel { kernel: PathBuf::from("thin"), initrd: None },
                facts: ImageFacts { identity: "not looked at".to_owned(), kernel: None },
            },
            ImagePatch::Builtin(name) => builtin(&Recipe::builtin_from(name, folder, arch)?, None),
            ImagePatch::File(path) => MachineImage {
                boot: BootSource::Disk { image: folder.join(path), format: DiskFormat::Qcow2 },
                facts: ImageFacts { identity: "not looked at".to_owned(), kernel: None },
            },
        };
        images.insert(image, there);
    }
    let qemu = QemuFacts { path: String::new(), version: QEMU.to_owned() };
    Ok(MachineFacts {
        host,
        arch,
        capabilities: qemu.capabilities().expect("its version is one that vmlab takes"),
        qemu,
        libvirt: None,
        kubevirt: None,
        auto_accel: Accel::Kvm,
        environment_why: None,
        images,
        is_simulated: true,
    })
}

/// Boots a guest under KVM, if it is not known yet whether that works here;
/// [`this_host`] then tells the verdict.
///
/// # Errors
/// [`DiscoverError`] says what to install or to change.
pub fn try_kvm(cancel: &Cancel) -> Result<(), DiscoverError> {
    let host = host::snapshot::live(Path::new("/"));
    let arch = arch_of(&host).map_err(DiscoverError::Arch)?;
    let found = qemu::find_qemu(arch)?;
    accelerator(&host, &found, TRIAL_IMAGE.to_owned(), arch, Need::Run, cancel).map(drop)
}

/// This machine in the host format, with its QEMU and what is known of KVM;
/// nothing is booted for it.
#[must_use]
pub fn this_host() -> Host {
    let mut host = host::snapshot::live(Path::new("/"));
    let Ok(arch) = arch_of(&host) else { return host };
    match qemu::find_qemu(arch) {
        Ok(found) => {
            let (usable, why) = match kvm::known_verdict(&found) {
                Some(KvmVerdict::Usable) => (Some(true), "a guest was seen to boot".to_owned()),
                Some(KvmVerdict::Unusable { why }) => (Some(false), why),
                None => (None, NOT_TRIED.to_owned()),
            };
            host.qemu = Some(qemu_info(&found, usable, Some(why)));
        }
        Err(error) => host.warnings.push(error.to_string()),
    }
    host
}

/// The architecture of the host's VMs; its name where there are none.
fn arch_of(host: &Host) -> Result<Arch, String> {
    let name = host.arch.clone().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    Arch::from_name(&name).ok_or(name)
}

fn qemu_info(found: &Qemu, kvm_usable: Option<bool>, kvm_why: Option<String>) -> QemuInfo {
    QemuInfo {
        path: found.path.display().to_string(),
        version: found.capabilities.version.to_string(),
        accelerators: found.accelerators.clone(),
        kvm_usable,
        kvm_why,
        ..QemuInfo::default()
    }
}

/// True if any VM of the study may run under KVM.
#[must_use]
pub fn wants_kvm(study: &Study) -> bool {
    study.variants.iter().any(|variant| variant.vm.accel.unwrap_or_default() != AccelChoice::Tcg)
}

/// The builtin image that is booted to see whether KVM works, before the study's trials:
/// one of the study's own, which is there already, if it has one with Linux as Debian built
/// it. That the thin guest boots would prove little, and a kernel of somebody's own may fail
/// for reasons of its own.
#[must_use]
pub fn trial_image(study: &Study) -> String {
    let own = freeze::images(study).into_iter().find_map(|image| match image {
        thin if BuiltinKernel::is_thin(&thin) => None,
        ImagePatch::Builtin(name) if !name.contains('+') => Some(name),
        ImagePatch::Builtin(_) | ImagePatch::File(_) => None,
    });
    own.unwrap_or_else(|| TRIAL_IMAGE.to_owned())
}

/// KVM if the guest `trial_image` was seen to boot under it, else TCG with the reason.
fn accelerator(
    host: &Host,
    found: &Qemu,
    trial_image: String,
    arch: Arch,
    need: Need,
    cancel: &Cancel,
) -> Result<(Accel, Option<String>), DiscoverError> {
    let verdict = match need {
        Need::Plan => kvm::known_verdict(found),
        Need::Run => {
            let recipe = Recipe::builtin(&trial_image, arch)?;
            let image = image::build(&recipe, &mut |_| {}, cancel)
                .map_err(|source| DiscoverError::Build { name: recipe.name.clone(), source })?;
            let owner = Owner::current("kvm-check")?;
            let folder = owner::runtime_dir(&owner)?;
            let host = match host.virtualised.emulator {
                Some(_) => kvm::HostKind::Emulated,
                None => kvm::HostKind::Real,
            };
            Some(kvm::usable_kvm(host, found, &image, folder.path(), &owner.env(), cancel)?)
        }
    };
    Ok(match verdict {
        Some(KvmVerdict::Usable) => (Accel::Kvm, None),
        Some(KvmVerdict::Unusable { why }) => {
            (Accel::Tcg, Some(format!("KVM is not used: {why}.")))
        }
        None => (Accel::Tcg, Some(format!("Whether KVM works here {NOT_TRIED}."))),
    })
}

/// Where the study names `image`; line 1 if it is a default.
fn line_of_image(study: &Study, image: &ImagePatch) -> usize {
    let field = if BuiltinKernel::is_thin(image) { "kernel" } else { "image" };
    let variant = study.variants.iter().find(|variant| variant.vm.image() == *image);
    variant.map_or(1, |variant| study.line_of(&variant.name, field))
}

fn find_builtin(
    recipe: &Recipe,
    need: Need,
    cancel: &Cancel,
    say: &mut dyn FnMut(String),
) -> Result<MachineImage, DiscoverError> {
    let there = match need {
        Need::Run => {
            let mut observe = |progress| say(build_step(&recipe.name, &progress));
            let built = image::build(recipe, &mut observe, cancel)
                .map_err(|source| DiscoverError::Build { name: recipe.name.clone(), source })?;
            Some(built)
        }
        Need::Plan => image::find(recipe),
    };
    Ok(builtin(recipe, there))
}

/// The thin guest, which vmlab carries.
fn thin_guest(arch: Arch) -> Result<MachineImage, NoProgram> {
    let kernel = thin::file(arch)?;
    let name = kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(MachineImage {
        boot: BootSource::Kernel { kernel, initrd: None },
        facts: ImageFacts { identity: name, kernel: None },
    })
}

fn own_image(path: &Path) -> Result<MachineImage, OwnImageError> {
    let own = image::check_own(path)?;
    let identity = format!("{}, {} bytes", own.format.name(), own.virtual_bytes);
    Ok(MachineImage {
        boot: BootSource::Disk { image: own.path, format: own.format },
        facts: ImageFacts { identity, kernel: None },
    })
}

fn builtin(recipe: &Recipe, there: Option<image::GuestImage>) -> MachineImage {
    let hash = &recipe.hash()[..12];
    let Some(image) = there else {
        // Not built yet: the plan can be shown, not run.
        let missing = |file: &str| PathBuf::from(format!("{}-{hash}/{file}", recipe.name));
        return MachineImage {
            boot: BootSource::Direct {
                kernel: missing("vmlinuz"),
                initrd: missing("initrd.cpio"),
                root_image: missing("root.ext4"),
                cmdline: recipe.cmdline.clone(),
            },
            facts: ImageFacts { identity: format!("recipe {hash}, not built yet"), kernel: None },
        };
    };
    let list: String = image
        .packages
        .iter()
        .map(|package| format!("{} {}\n", package.name, package.version))
        .collect();
    let packages = &blake3::hash(list.as_bytes()).to_hex()[..12];
    let kernel = image.packages.iter().find(|package| package.name.starts_with("linux-image-"));
    MachineImage {
        facts: ImageFacts {
            identity: format!("recipe {hash}, packages {packages}"),
            kernel: kernel.map(|package| package.version.clone()),
        },
        boot: BootSource::Direct {
            kernel: image.kernel,
            initrd: image.initrd,
            root_image: image.root_image,
            cmdline: image.cmdline,
        },
    }
}

/// What a build is doing, for people.
#[must_use]
pub fn build_step(name: &str, progress: &image::BuildProgress) -> String {
    let percent = progress.fraction.map(|fraction| format!(" {:.0} %", fraction * 100.0));
    format!("image {name}: {}{}", progress.stage.text(), percent.unwrap_or_default())
}

/// Error type for [`check_again`].
#[derive(Debug, thiserror::Error)]
pub enum ChangedError {
    /// Trials are others in the vmlab that made the plan.
    #[error(
        "The study was begun by vmlab {plan}, whose trials measure otherwise than those of {}: the blocks would not compare; go on with that one, or start anew", env!("CARGO_PKG_VERSION")
    )]
    Measurement {
        /// The plan's version.
        plan: String,
    },
    /// A later vmlab made the plan, and its trials may need what this one does not know.
    #[error(
        "The study was begun by vmlab {plan}, and {} does not know {fields} of its plan: go on with that one, or a later one", env!("CARGO_PKG_VERSION")
    )]
    UnknownFields {
        /// The plan's version.
        plan: String,
        /// The fields, by path.
        fields: String,
    },
    /// The catalogue has not what the plan names.
    #[error(
        "The study was begun by vmlab {plan}, and {} has not its workload {label}: go on with that one, or start anew", env!("CARGO_PKG_VERSION")
    )]
    Workload {
        /// The plan's version.
        plan: String,
        /// The workload's label.
        label: String,
        /// What is wrong.
        #[source]
        source: Box<ResolveWorkloadError>,
    },
    /// QEMU is another one now.
    #[error(
        "The study was begun with {plan}, now there is {here} ({path}): the blocks would not compare; start anew"
    )]
    Qemu {
        /// The plan's version line and program.
        plan: String,
        /// The version line now.
        here: String,
        /// The program now.
        path: String,
    },
    /// libvirt is another one now.
    #[error(
        "The study was begun with {plan}, now there is {here}: the blocks would not compare; start anew"
    )]
    Libvirt {
        /// The plan's.
        plan: String,
        /// The one that is there.
        here: String,
    },
    /// libvirt does not answer any more.
    #[error(transparent)]
    NoLibvirt(#[from] Box<DiscoverError>),
    /// The machine is another one.
    #[error("The study was begun on {plan}, this is {here}: go on there (`--on`), or start anew")]
    Host {
        /// The plan's machine.
        plan: String,
        /// This one.
        here: String,
    },
    /// No usable QEMU any more.
    #[error(transparent)]
    NoQemu(#[from] FindQemuError),
    /// A file that the VMs boot is gone.
    #[error("{what} {path} of the study is gone: restore it (`vmlab image build`), or start anew")]
    Gone {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// Whether a plan that was begun on `host` can go on here: same measurement, same
/// machine, same QEMU, same images. What vmlab is called does not matter.
///
/// # Errors
/// [`ChangedError`] says what changed.
pub fn check_again(plan: &StudyPlan, host: &Host) -> Result<(), ChangedError> {
    check_measurement(plan)?;
    if plan.environment() == Environment::Simulated || plan.kubevirt.is_some() {
        return Ok(());
    }
    // A name alone may change, as a container's does with every start.
    let kind = |host: &Host| (host.arch.clone(), host.cpu_model.clone(), host.pcpus.len());
    let now = host::snapshot::live(Path::new("/"));
    if kind(host) != kind(&now) {
        return Err(ChangedError::Host { plan: machine_text(host), here: machine_text(&now) });
    }
    if let Some(variant) = plan.variants.first() {
        let found = qemu::find_qemu(variant.spec.arch)?;
        let path = found.path.display().to_string();
        if (&path, &found.version_text) != (&plan.qemu.path, &plan.qemu.version) {
            let plan = format!("{} ({})", plan.qemu.version, plan.qemu.path);
            return Err(ChangedError::Qemu { plan, here: found.version_text, path });
        }
    }
    let specs = plan
        .variants
        .iter()
        .map(|variant| &variant.spec)
        .chain(plan.other_specs().map(|(_, spec)| spec));
    if let Some(begun) = &plan.libvirt {
        let now = ask_libvirt(&begun.uri, &Cancel::new()).map_err(Box::new)?;
        if now != *begun {
            let (plan, here) = (begun.to_string(), now.to_string());
            return Err(ChangedError::Libvirt { plan, here });
        }
    }
    for (what, path) in specs.flat_map(|spec| spec.boot.files()) {
        if !path.exists() {
            return Err(ChangedError::Gone { what, path: path.clone() });
        }
    }
    Ok(())
}

/// Whether this vmlab's trials of the plan are those of the vmlab that made it.
///
/// # Errors
/// [`ChangedError`] says what differs.
pub fn check_measurement(plan: &StudyPlan) -> Result<(), ChangedError> {
    let begun_by = plan.vmlab_version.clone();
    let here = match plan.environment() {
        Environment::Simulated => SIMULATION_VERSION,
        _ => MEASUREMENT_VERSION,
    };
    if plan.measurement_version != here {
        return Err(ChangedError::Measurement { plan: begun_by });
    }
    if !plan.unknown_fields().is_empty() {
        let fields = plan.unknown_fields().join(", ");
        return Err(ChangedError::UnknownFields { plan: begun_by, fields });
    }
    for workload in &plan.workloads {
        let resolved =
            plan.variants.iter().try_for_each(|variant| workload.resolve_in(variant).map(|_| ()));
        resolved.map_err(|source| ChangedError::Workload {
            plan: begun_by.clone(),
            label: workload.label.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}

/// What to tell whoever goes on with a plan of another vmlab's.
#[must_use]
pub fn other_version(plan: &StudyPlan) -> Option<String> {
    let here = env!("CARGO_PKG_VERSION");
    (plan.vmlab_version != here).then(|| {
        format!(
            "The study was begun by vmlab {} and goes on with {here}, which measures the same: the report says which blocks are whose",
            plan.vmlab_version
        )
    })
}

/// A machine in a few words.
fn machine_text(host: &Host) -> String {
    let name = host.hostname.as_deref().unwrap_or("a machine without a name");
    let processor = host.cpu_model.as_deref().or(host.arch.as_deref()).unwrap_or("unknown");
    format!("{name} ({processor}, {} pCPUs)", host.pcpus.len())
}

/// A seed for a study that names none.
#[must_use]
pub fn fresh_seed() -> u64 {
    // Studies are reproduced by typing the seed: keep it short.
    u64::from(rand::random::<u32>())
}

/// Now, as part of a folder's name: `20260131-235959`, UTC.
#[must_use]
pub fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_tried_with_an_image_that_the_study_boots_anyway() {
        let trial = |vm: &str| {
            let study = format!(
                "vmlab = 1\ntitle = \"T\"\nquestion = \"Q?\"\nbaseline = \"a\"\n[vm]\n{vm}\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nvm.vcpus = 2\n[[workload]]\nrun = \"boot\"\n"
            );
            trial_image(&Study::parse("made-up.toml", &study).unwrap())
        };
        assert_eq!(trial(""), "debian-12");
        assert_eq!(trial("image = \"builtin:debian-13\""), "debian-13");
        // Others' kernels and disks may fail for reasons of their own, the thin guest needs
        // less than Linux does.
        assert_eq!(trial("image = \"builtin:debian-13+linux-image-amd64\""), "debian-12");
        assert_eq!(trial("image = \"disk.qcow2\""), "debian-12");
        assert_eq!(trial("kernel = \"builtin:thin\""), "debian-12");
    }
}
