//! What people write of a VM: everything optional, laid over each other, then
//! completed by the defaults.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;

use crate::invalid::MAX_VCPUS;
use crate::{
    Accel, Arch, BootSource, CpuCache, DelegatedPlacement, Disk, EveryDisk, GuestClock, GuestNode,
    GuestTopology, Hints, HostDevice, HostWishes, InvalidVm, Iommu, MemoryBacking, Nic, NicPatch,
    Pins, SchedulerPatch, VcpuPins, VmSettings, VmSpec, cpu, defaults, is_default, numa,
};

/// A part of a VM's description: a study's `[vm]` table, or what a variant
/// changes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VmPatch {
    /// Number of vCPUs. Alone, they are the cores of one socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// vCPUs that the machine has room for; those that `vcpus` does not count
    /// can be plugged in. Topology then speaks of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vcpus: Option<u32>,
    /// How the guest sees its vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyPatch>,
    /// Where the vCPUs run; replaces the base's pins as a whole, `[]` takes
    /// them away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<VcpuPins>,
    /// Where QEMU's other threads run; `""` takes the base's pin away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator_pin: Option<PcpuSet>,
    /// Where iothreads run, `{ 1 = "2" }`; replaces the base's as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread_pins: Option<VcpuPins>,
    /// Where the kernel's vhost threads run; `""` takes the base's pin away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vhost_pin: Option<PcpuSet>,
    /// How the host schedules QEMU's threads.
    #[serde(skip_serializing_if = "is_default")]
    pub scheduler: SchedulerPatch,
    /// Guest memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// How it is backed; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub memory: MemoryBacking,
    /// Guest nodes; replaces the base's as a whole, `[]` takes them away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Vec<GuestNode>>,
    /// QEMU's CPU model with its features: `host,-hypervisor`. Two words are
    /// not QEMU's: `host-passthrough` is all that the accelerator gives, and
    /// `host-model` is libvirt's named likeness of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Features laid over the CPU model, one each: `+invtsc`, `-hypervisor`,
    /// `tsc-frequency=2000000000`; appended to the base's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<String>,
    /// What the guest is told about caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cache: Option<CpuCache>,
    /// Number of threads that serve disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothreads: Option<u32>,
    /// How long each of them polls for requests before it sleeps, ns at most; 0 is
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread_poll_max_ns: Option<u64>,
    /// Disks beside the image; replaces the base's as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<Disk>>,
    /// What holds for every disk; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub each_disk: EveryDisk,
    /// Network interfaces; replaces the base's as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nics: Option<Vec<Nic>>,
    /// What holds for every network interface; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub each_nic: NicPatch,
    /// Devices of the host that the guest has for itself; replaces the base's as a
    /// whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_devices: Option<Vec<HostDevice>>,
    /// Clocks and timers; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub clock: GuestClock,
    /// What the guest is told; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub hints: Hints,
    /// An IOMMU that the guest sees; replaces the base's as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iommu: Option<Iommu>,
    /// Settings of the host; laid over the base's key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostWishes,
    /// What is left to whoever places the VM; laid over the base's.
    #[serde(skip_serializing_if = "is_default")]
    pub delegated: DelegatedPlacement,
    /// QEMU's machine type, with its properties if wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Who executes the guest's instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accel: Option<AccelChoice>,
    /// What it boots: `builtin:NAME`, or the path of a qcow2 or raw image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImagePatch>,
    /// What it boots in place of an image: a kernel that is a VM's whole software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<BuiltinKernel>,
    /// Kernel parameters, separated by white space; appended to the base's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cmdline: Option<String>,
    /// Arguments for QEMU, one each; appended to the base's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
}

/// Levels of the guest's topology; see [`GuestTopology`]. A level that isn't
/// written is 1, except that the cores follow from `vcpus` if they can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TopologyPatch {
    /// Sockets of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Dies in a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies: Option<u32>,
    /// Clusters in a die.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
    /// Cores in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Threads in a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// Who shall execute the guest's instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccelChoice {
    /// KVM where it is usable, else TCG.
    #[default]
    Auto,
    /// KVM or nothing.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// What to boot, as people name it.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub enum ImagePatch {
    /// An image that vmlab builds itself, by name: `debian-12`.
    Builtin(String),
    /// A disk image of the user's own.
    File(PathBuf),
}

/// A kernel that needs no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum BuiltinKernel {
    /// vmlab's thin guest.
    Thin,
}

impl BuiltinKernel {
    const NAME: &'static str = "thin";

    /// What it is among images.
    #[must_use]
    pub fn image(self) -> ImagePatch {
        ImagePatch::Builtin(Self::NAME.to_owned())
    }

    /// True if `image` stands for the thin guest.
    #[must_use]
    pub fn is_thin(image: &ImagePatch) -> bool {
        *image == Self::Thin.image()
    }
}

/// Why a text names no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Not a kernel: {0:?}; write \"builtin:thin\", vmlab's thin guest. Linux's kernel is part of an image"
)]
pub struct ParseKernelError(String);

impl TryFrom<String> for BuiltinKernel {
    type Error = ParseKernelError;

    fn try_from(text: String) -> Result<Self, ParseKernelError> {
        match text.strip_prefix(BUILTIN) {
            Some(Self::NAME) => Ok(Self::Thin),
            _ => Err(ParseKernelError(text)),
        }
    }
}

impl From<BuiltinKernel> for String {
    fn from(kernel: BuiltinKernel) -> Self {
        kernel.image().to_string()
    }
}

/// Why a text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not an image: {0:?}; write \"builtin:NAME\" or the path of a qcow2 or raw image")]
pub struct ParseImageError(String);

/// What a patch is completed with, beside the [`defaults`].
#[derive(Debug, Clone)]
pub struct PatchContext<'a> {
    /// The VM's name: its variant's.
    pub name: &'a str,
    /// The guest's architecture.
    pub arch: Arch,
    /// What [`AccelChoice::Auto`] means on this host.
    pub auto_accel: Accel,
    /// What the patch's image is, once it is there; see [`VmPatch::image`].
    pub boot: BootSource,
}

/// Why a patch gives no VM. `field()` names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// `vcpus` is 0.
    #[error("vcpus is 0: a VM has at least 1")]
    NoVcpus,
    /// The topology does not make that many vCPUs.
    #[error("vcpus is {vcpus}, but topology {topology} makes {}", topology.vcpus())]
    Product {
        /// The vCPUs asked for.
        vcpus: u32,
        /// The topology asked for.
        topology: GuestTopology,
    },
    /// No number of cores makes that many vCPUs.
    #[error("vcpus {vcpus} can't be shared evenly among topology {topology}; write its cores too")]
    Uneven {
        /// The vCPUs asked for.
        vcpus: u32,
        /// The topology with one core.
        topology: GuestTopology,
    },
    /// The completed VM can't be.
    #[error(transparent)]
    Invalid(#[from] InvalidVm),
}

impl ResolveError {
    /// The field at fault, as studies write it.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoVcpus | Self::Product { .. } | Self::Uneven { .. } => "vcpus",
            Self::Invalid(error) => error.field(),
        }
    }
}

impl VmPatch {
    /// This patch with `over` laid over it. What `over` says holds; arguments
    /// and kernel parameters are appended. `vcpus`, `max_vcpus` and `topology`
    /// belong together: if `over` has one, this patch's are all forgotten.
    #[must_use]
    pub fn overlay(&self, over: &Self) -> Self {
        let (base, over) = (self.clone(), over.clone());
        let (vcpus, max_vcpus, topology) = match (over.vcpus, over.max_vcpus, over.topology) {
            (None, None, None) => (base.vcpus, base.max_vcpus, base.topology),
            all => all,
        };
        let kernel_cmdline = match (base.kernel_cmdline, over.kernel_cmdline) {
            (Some(base), Some(over)) => Some(format!("{base} {over}")),
            (base, over) => over.or(base),
        };
        // One of the two is booted: whoever names either means that one.
        let (image, kernel) = match (over.image, over.kernel) {
            (None, None) => (base.image, base.kernel),
            named => named,
        };
        Self {
            vcpus,
            max_vcpus,
            topology,
            pins: over.pins.or(base.pins),
            emulator_pin: over.emulator_pin.or(base.emulator_pin),
            iothread_pins: over.iothread_pins.or(base.iothread_pins),
            vhost_pin: over.vhost_pin.or(base.vhost_pin),
            scheduler: base.scheduler.overlay(over.scheduler),
            memory_mib: over.memory_mib.or(base.memory_mib),
            memory: base.memory.overlay(over.memory),
            numa: over.numa.or(base.numa),
            cpu_model: over.cpu_model.or(base.cpu_model),
            cpu_features: [base.cpu_features, over.cpu_features].concat(),
            cpu_cache: over.cpu_cache.or(base.cpu_cache),
            iothreads: over.iothreads.or(base.iothreads),
            iothread_poll_max_ns: over.iothread_poll_max_ns.or(base.iothread_poll_max_ns),
            disks: over.disks.or(base.disks),
            each_disk: base.each_disk.overlay(over.each_disk),
            nics: over.nics.or(base.nics),
            each_nic: base.each_nic.overlay(over.each_nic),
            host_devices: over.host_devices.or(base.host_devices),
            clock: base.clock.overlay(over.clock),
            hints: base.hints.overlay(over.hints),
            iommu: over.iommu.or(base.iommu),
            host: base.host.overlay(over.host),
            delegated: base.delegated.overlay(over.delegated),
            machine: over.machine.or(base.machine),
            accel: over.accel.or(base.accel),
            image,
            kernel,
            kernel_cmdline,
            extra_args: [base.extra_args, over.extra_args].concat(),
        }
    }

    /// What it boots, the default included.
    #[must_use]
    pub fn image(&self) -> ImagePatch {
        self.kernel.map(BuiltinKernel::image).or_else(|| self.image.clone()).unwrap_or_else(|| {
            let name = defaults::IMAGE.trim_start_matches(BUILTIN);
            ImagePatch::Builtin(name.to_owned())
        })
    }

    /// Who executes the guest's instructions, the default included.
    #[must_use]
    pub fn accel(&self, auto: Accel) -> Accel {
        match self.accel.unwrap_or_default() {
            AccelChoice::Auto => auto,
            AccelChoice::Kvm => Accel::Kvm,
            AccelChoice::Tcg => Accel::Tcg,
        }
    }

    /// The guest's topology, the default included.
    ///
    /// # Errors
    /// [`ResolveError`] if `vcpus` and `topology` contradict each other.
    pub fn topology(&self) -> Result<GuestTopology, ResolveError> {
        if self.vcpus == Some(0) {
            return Err(ResolveError::NoVcpus);
        }
        let patch = self.topology.unwrap_or_default();
        let level = |count: Option<u32>| count.unwrap_or(1);
        let topology = GuestTopology {
            sockets: level(patch.sockets),
            dies: level(patch.dies),
            clusters: level(patch.clusters),
            cores: level(patch.cores),
            threads: level(patch.threads),
        };
        let Some(vcpus) =
            self.max_vcpus.or(self.vcpus).or(self.topology.is_none().then_some(defaults::VCPUS))
        else {
            return Ok(topology);
        };
        match patch.cores {
            Some(_) if topology.vcpus() != vcpus => Err(ResolveError::Product { vcpus, topology }),
            Some(_) => Ok(topology),
            // A level of 0 is left for the constructor to name.
            None if topology.vcpus() == 0 => Ok(topology),
            None if vcpus.is_multiple_of(topology.vcpus()) => {
                Ok(GuestTopology { cores: vcpus / topology.vcpus(), ..topology })
            }
            None => Err(ResolveError::Uneven { vcpus, topology }),
        }
    }

    /// The CPU model with its features, the default included.
    fn cpu_model(&self, accel: Accel) -> String {
        let default = defaults::cpu_model(accel);
        let model = match &self.cpu_model {
            None => default.to_owned(),
            Some(text) => match text.strip_prefix("host-passthrough") {
                Some(rest) if rest.is_empty() || rest.starts_with(',') => {
                    format!("{default}{rest}")
                }
                _ => text.clone(),
            },
        };
        cpu::with_features(&model, &self.cpu_features)
    }

    /// The VM that this patch describes.
    ///
    /// # Errors
    /// [`ResolveError`] names the field that can't be, and its value.
    pub fn resolve(&self, with: &PatchContext<'_>) -> Result<VmSpec, ResolveError> {
        let accel = self.accel(with.auto_accel);
        let topology = self.topology()?;
        let memory_mib = self.memory_mib.unwrap_or(defaults::MEMORY_MIB);
        let iothreads = self.iothreads.unwrap_or(0);
        let mut numa = self.numa.clone().unwrap_or_default();
        numa::complete(&mut numa, topology.vcpus(), memory_mib);
        let words = |text: &Option<String>| {
            text.iter().flat_map(|text| text.split_ascii_whitespace()).map(str::to_owned).collect()
        };
        let disks = self.disks.clone().unwrap_or_default();
        let nics = self.nics.clone().unwrap_or_default();
        let present_vcpus = self.max_vcpus.and(self.vcpus);
        let settings = VmSettings {
            machine: self.machine.clone().unwrap_or_else(|| defaults::machine(with.arch).into()),
            cpu_model: self.cpu_model(accel),
            topology,
            present_vcpus,
            cpu_cache: self.cpu_cache,
            memory_mib,
            memory: self.memory.clone(),
            numa,
            pins: Pins {
                vcpus: self.pins.clone().unwrap_or_default(),
                emulator: self.emulator_pin.clone().filter(|pcpus| !pcpus.is_empty()),
                iothreads: self.iothread_pins.clone().unwrap_or_default(),
                vhost: self.vhost_pin.clone().filter(|pcpus| !pcpus.is_empty()),
            },
            scheduler: self.scheduler.clone().resolve(topology.vcpus().min(MAX_VCPUS), iothreads),
            iothreads,
            iothread_poll_max_ns: self.iothread_poll_max_ns,
            disks: disks.into_iter().map(|disk| self.each_disk.apply(disk)).collect(),
            nics: nics.into_iter().map(|nic| self.each_nic.apply(nic)).collect(),
            host_devices: self.host_devices.clone().unwrap_or_default(),
            clock: self.clock.clone(),
            hints: self.hints.clone(),
            iommu: self.iommu,
            host: self.host.clone(),
            delegated: self.delegated.clone(),
            kernel_cmdline: words(&self.kernel_cmdline),
            extra_args: self.extra_args.clone(),
            ..VmSettings::new(with.name, with.arch, accel, with.boot.clone())
        };
        Ok(VmSpec::new(settings)?)
    }
}

const BUILTIN: &str = "builtin:";

impl FromStr for ImagePatch {
    type Err = ParseImageError;

    fn from_str(text: &str) -> Result<Self, ParseImageError> {
        match text.strip_prefix(BUILTIN) {
            Some("") => Err(ParseImageError(text.to_owned())),
            Some(name) => Ok(Self::Builtin(name.to_owned())),
            None if text.trim().is_empty() => Err(ParseImageError(text.to_owned())),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl TryFrom<String> for ImagePatch {
    type Error = ParseImageError;

    fn try_from(text: String) -> Result<Self, ParseImageError> {
        text.parse()
    }
}

impl fmt::Display for ImagePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "{BUILTIN}{name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl From<ImagePatch> for String {
    fn from(image: ImagePatch) -> Self {
        image.to_string()
    }
}
