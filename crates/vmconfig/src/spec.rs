//! The VM itself and its invariants.

use std::ops::Deref;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::invalid::MAX_VCPUS;
use crate::{
    Accel, Arch, CpuCache, DelegatedPlacement, Disk, DiskFormat, GuestClock, GuestNode,
    GuestTopology, Hints, HostDevice, HostWishes, InvalidVm, Iommu, Irqchip, MemoryBacking, Nic,
    Pins, Schedulers, cpu, defaults, disk, host_device, is_default, nic, numa,
};

/// What the VM boots. Images are never written to: all that a guest writes is
/// gone when it ends, so that every boot starts from the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BootSource {
    /// A kernel that QEMU loads itself.
    Direct {
        /// The kernel's image.
        kernel: PathBuf,
        /// The initial RAM disk.
        initrd: PathBuf,
        /// Raw image of the root file system, attached read-only as the first
        /// virtio disk (`/dev/vda`).
        root_image: PathBuf,
        /// The kernel parameters that this image needs, one each.
        cmdline: Vec<String>,
    },
    /// A disk with a boot loader.
    Disk {
        /// The image.
        image: PathBuf,
        /// Its format.
        format: DiskFormat,
    },
    /// A kernel that QEMU loads itself; disks, if there are any, are
    /// [`VmSettings::disks`]. How VMs from elsewhere boot.
    Kernel {
        /// The kernel's image.
        kernel: PathBuf,
        /// The initial RAM disk.
        initrd: Option<PathBuf>,
    },
    /// The firmware looks for something to boot among [`VmSettings::disks`] and
    /// the network. How VMs from elsewhere boot.
    Firmware,
}

impl BootSource {
    /// The files that it needs, with what they are.
    #[must_use]
    pub fn files(&self) -> Vec<(&'static str, &PathBuf)> {
        match self {
            Self::Direct { kernel, initrd, root_image, .. } => {
                vec![("kernel", kernel), ("initrd", initrd), ("root image", root_image)]
            }
            Self::Disk { image, .. } => vec![("image", image)],
            Self::Kernel { kernel, initrd } => [("kernel", kernel)]
                .into_iter()
                .chain(initrd.as_ref().map(|initrd| ("initrd", initrd)))
                .collect(),
            Self::Firmware => Vec::new(),
        }
    }
}

/// Everything that describes a VM, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmSettings {
    /// The VM's name: its variant's.
    pub name: String,
    /// The guest's architecture.
    pub arch: Arch,
    /// QEMU's machine type, with its properties if there are any: `q35`,
    /// `q35,hpet=off`.
    pub machine: String,
    /// Who executes the guest's instructions.
    pub accel: Accel,
    /// QEMU's CPU model with its features: `host`, `max`, `host,-hypervisor`.
    pub cpu_model: String,
    /// The machine's vCPUs and how the guest sees them.
    pub topology: GuestTopology,
    /// vCPUs that are there at the start, if fewer than the machine has room
    /// for: the rest can be plugged in. QEMU `-smp N,maxcpus=`, libvirt `<vcpu
    /// current=>`, KubeVirt `maxSockets`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub present_vcpus: Option<u32>,
    /// What the guest is told about caches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpu_cache: Option<CpuCache>,
    /// Guest memory.
    pub memory_mib: u64,
    /// How it is backed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: MemoryBacking,
    /// Memory nodes that the guest sees; none is one for all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numa: Vec<GuestNode>,
    /// Where QEMU's threads run.
    pub pins: Pins,
    /// How the host schedules them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler: Schedulers,
    /// Threads that serve disks beside QEMU's main loop; they are numbered from
    /// 1. QEMU `-object iothread`, libvirt `<iothreads>`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub iothreads: u32,
    /// How long each of them polls for requests before it sleeps, ns at most; 0 is
    /// never, QEMU's own choice is 32768. QEMU `-object iothread,poll-max-ns=`,
    /// libvirt `<iothreadids><iothread><poll max=>` (9.4).
    #[serde(default, skip_serializing_if = "is_default")]
    pub iothread_poll_max_ns: Option<u64>,
    /// Disks beside what [`VmSettings::boot`] names.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disks: Vec<Disk>,
    /// Network interfaces.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nics: Vec<Nic>,
    /// Devices of the host that the guest has for itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host_devices: Vec<HostDevice>,
    /// Clocks and timers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clock: GuestClock,
    /// What the guest is told about being one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hints: Hints,
    /// An IOMMU that the guest sees.
    #[serde(default, skip_serializing_if = "is_default")]
    pub iommu: Option<Iommu>,
    /// Settings of the host that belong to the VM's plan.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: HostWishes,
    /// What is left to whoever places the VM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delegated: DelegatedPlacement,
    /// What it boots.
    pub boot: BootSource,
    /// Kernel parameters beside those that the image needs, one each.
    pub kernel_cmdline: Vec<String>,
    /// Arguments for QEMU beside those made from all the above.
    pub extra_args: Vec<String>,
}

impl VmSettings {
    /// A VM that boots this, all else as [`defaults`] have it.
    #[must_use]
    pub fn new(name: &str, arch: Arch, accel: Accel, boot: BootSource) -> Self {
        Self {
            name: name.to_owned(),
            arch,
            machine: defaults::machine(arch).to_owned(),
            accel,
            cpu_model: defaults::cpu_model(accel).to_owned(),
            topology: GuestTopology::of_cores(defaults::VCPUS),
            present_vcpus: None,
            cpu_cache: None,
            memory_mib: defaults::MEMORY_MIB,
            memory: MemoryBacking::default(),
            numa: Vec::new(),
            pins: Pins::default(),
            scheduler: Schedulers::default(),
            iothreads: 0,
            iothread_poll_max_ns: None,
            disks: Vec::new(),
            nics: Vec::new(),
            host_devices: Vec::new(),
            clock: GuestClock::default(),
            hints: Hints::default(),
            iommu: None,
            host: HostWishes::default(),
            delegated: DelegatedPlacement::default(),
            boot,
            kernel_cmdline: Vec::new(),
            extra_args: Vec::new(),
        }
    }

    /// vCPUs that are there when the guest starts.
    #[must_use]
    pub fn vcpus(&self) -> u32 {
        self.present_vcpus.unwrap_or_else(|| self.topology.vcpus())
    }

    /// How memory is backed: of each guest node, or of all memory if there is none.
    #[must_use]
    pub fn backing(&self) -> Vec<MemoryBacking> {
        match &*self.numa {
            [] => vec![self.memory.clone()],
            nodes => nodes.iter().map(|node| node.memory(&self.memory)).collect(),
        }
    }

    /// All vCPUs that the machine has room for.
    #[must_use]
    pub fn max_vcpus(&self) -> u32 {
        self.topology.vcpus()
    }

    /// The settings in the one way that each thing is said: properties of the
    /// CPU model that have a field stand there, and what is off by itself isn't
    /// said. [`VmSpec::new`] does this too.
    pub fn normalise(&mut self) {
        if self.present_vcpus == Some(self.topology.vcpus()) {
            self.present_vcpus = None;
        }
        lift_machine(&mut self.machine, &mut self.memory, &mut self.clock, &mut self.hints);
        cpu::lift(&mut self.cpu_model, &mut self.hints, &mut self.clock, &mut self.cpu_cache);
        self.memory.normalise();
        numa::normalise(&mut self.numa, &mut self.memory);
        disk::normalise(&mut self.disks, &self.machine);
        nic::normalise(&mut self.nics);
        self.clock.normalise();
        self.hints.normalise();
        self.delegated.normalise();
    }
}

/// A VM whose description holds together: fields are read as those of
/// [`VmSettings`], and there is no way to change one.
///
/// Invariants: every level of the topology is at least 1 and their product
/// fits; there is memory; pins name vCPUs that exist and no empty set; no text
/// has control characters; the kernel parameters and `-cpu host` have somebody
/// to take them; `extra_args` do not contradict the fields; guest nodes hold
/// every vCPU once and all memory; huge pages divide memory; disks name
/// iothreads that exist and combinations that QEMU takes. Each thing is said
/// in one way: see [`VmSettings::normalise`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "VmSettings", into = "VmSettings")]
pub struct VmSpec(VmSettings);

/// QEMU options that can't be extra arguments, and what to do instead.
pub(crate) const RESERVED: &[(&str, &str)] = &[
    ("-smp", "write vcpus or topology"),
    ("-m", "write memory_mib"),
    ("-machine", "write machine"),
    ("-M", "write machine"),
    ("-accel", "write accel"),
    ("-enable-kvm", "write accel = \"kvm\""),
    ("-cpu", "write cpu_model"),
    ("-kernel", "write image"),
    ("-initrd", "write image"),
    ("-append", "write kernel_cmdline"),
    ("-name", "a VM is named after its variant"),
    ("-daemonize", "the VM would be left behind when the run ends"),
    ("-S", "the guest would never start"),
    ("-incoming", "the guest would never start"),
    ("-no-shutdown", "the VM would be left behind when the guest ends"),
];

impl VmSpec {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`InvalidVm`] names the first field that can't be, and its value.
    pub fn new(mut settings: VmSettings) -> Result<Self, InvalidVm> {
        settings.normalise();
        check_texts(&settings)?;
        let VmSettings { topology, pins, boot, .. } = &settings;
        if let Some((level, _)) = topology.levels().into_iter().find(|(_, count)| *count == 0) {
            return Err(InvalidVm::EmptyLevel { topology: *topology, level });
        }
        let vcpus = topology.vcpus();
        if vcpus > MAX_VCPUS {
            return Err(InvalidVm::TooManyVcpus { topology: *topology });
        }
        InvalidVm::check_memory(settings.memory_mib)?;
        if let Some(&vcpu) = pins.vcpus.keys().find(|vcpu| **vcpu >= vcpus) {
            return Err(InvalidVm::NoSuchVcpu { vcpu, vcpus });
        }
        if let Some((vcpu, _)) = pins.vcpus.iter().find(|(_, pcpus)| pcpus.is_empty()) {
            return Err(InvalidVm::EmptyPin { field: "pins", thread: format!("vCPU {vcpu}") });
        }
        for (field, thread, pcpus) in [
            ("emulator_pin", "the emulator thread", &pins.emulator),
            ("vhost_pin", "the vhost threads", &pins.vhost),
        ] {
            if pcpus.as_ref().is_some_and(topology::PcpuSet::is_empty) {
                return Err(InvalidVm::EmptyPin { field, thread: thread.to_owned() });
            }
        }
        if let Some(present) = settings.present_vcpus
            && (present == 0 || present > vcpus)
        {
            let message = format!("is {vcpus}, fewer than the {present} vCPUs at the start");
            return Err(InvalidVm::Contradiction { field: "max_vcpus", message });
        }
        check_devices(&settings)?;
        if settings.accel == Accel::Tcg && settings.cpu_model.split(',').next() == Some("host") {
            return Err(InvalidVm::HostModelWithoutKvm { value: settings.cpu_model });
        }
        if matches!(boot, BootSource::Disk { .. } | BootSource::Firmware)
            && !settings.kernel_cmdline.is_empty()
        {
            let value = settings.kernel_cmdline.join(" ");
            return Err(InvalidVm::CmdlineWithoutKernel { value });
        }
        for argument in &settings.extra_args {
            // QEMU takes every option with one dash or with two.
            let option = argument.strip_prefix('-').filter(|rest| rest.starts_with('-'));
            let option = option.unwrap_or(argument);
            if let Some((_, instead)) = RESERVED.iter().find(|(name, _)| *name == option) {
                return Err(InvalidVm::ReservedArgument { argument: argument.clone(), instead });
            }
        }
        Ok(Self(settings))
    }

    /// All kernel parameters: the image's, then the VM's own.
    #[must_use]
    pub fn kernel_parameters(&self) -> Vec<&str> {
        let image: &[String] = match &self.boot {
            BootSource::Direct { cmdline, .. } => cmdline,
            _ => &[],
        };
        image.iter().chain(&self.kernel_cmdline).map(String::as_str).collect()
    }

    /// The value of a kernel parameter, `""` if it has none; the last one counts, as it
    /// does for the kernel.
    #[must_use]
    pub fn kernel_parameter(&self, name: &str) -> Option<&str> {
        let parameters = self.kernel_parameters();
        parameters.into_iter().rev().find_map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (key == name).then_some(value)
        })
    }

    /// Whether the guest is told to poll before it halts, whatever KVM hints.
    ///
    /// Source: Linux `drivers/cpuidle/cpuidle-haltpoll.c`.
    #[must_use]
    pub fn forces_haltpoll(&self) -> bool {
        matches!(self.kernel_parameter("cpuidle_haltpoll.force"), Some("1" | "Y" | "y"))
    }

    /// The longest time, ns, for which the guest is told to poll before it halts, as the kernel
    /// reads it: a number that it can't read leaves its own, 200 us.
    ///
    /// Source: Linux `drivers/cpuidle/governors/haltpoll.c`, `lib/kstrtox.c`.
    #[must_use]
    pub fn guest_halt_poll_ns(&self) -> u32 {
        let told = self.kernel_parameter("haltpoll.guest_halt_poll_ns");
        told.and_then(kernel_number).unwrap_or(200_000)
    }

    /// The machine type without its properties.
    #[must_use]
    pub fn machine_type(&self) -> &str {
        self.machine.split(',').next().unwrap_or(&self.machine)
    }
}

/// What `kstrtouint()` reads with base 0: decimal, `0x` or, behind a 0, octal.
fn kernel_number(text: &str) -> Option<u32> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let has_digits = digits.starts_with(|first: char| first.is_digit(base));
    has_digits.then(|| u32::from_str_radix(digits, base).ok()).flatten()
}

/// Takes out of the machine string what has a field of its own; a field that
/// is set holds.
fn lift_machine(
    machine: &mut String,
    memory: &mut MemoryBacking,
    clock: &mut GuestClock,
    hints: &mut Hints,
) {
    let mut kept: Vec<&str> = Vec::new();
    for (place, part) in machine.split(',').enumerate() {
        match part {
            _ if place == 0 => kept.push(part),
            "hpet=on" => clock.hpet = clock.hpet.or(Some(true)),
            "hpet=off" => clock.hpet = clock.hpet.or(Some(false)),
            "mem-merge=off" => memory.nosharepages = memory.nosharepages.or(Some(true)),
            "mem-merge=on" => {}
            "kernel-irqchip=on" | "kernel_irqchip=on" => {
                hints.irqchip = hints.irqchip.or(Some(Irqchip::Kernel));
            }
            "kernel-irqchip=split" | "kernel_irqchip=split" => {
                hints.irqchip = hints.irqchip.or(Some(Irqchip::Split));
            }
            _ => kept.push(part),
        }
    }
    *machine = kept.join(",");
}

/// What the other files know: memory, nodes, threads and devices.
fn check_devices(settings: &VmSettings) -> Result<(), InvalidVm> {
    let VmSettings { memory_mib, memory, iothreads, pins, .. } = settings;
    let max_vcpus = settings.max_vcpus();
    numa::check_memory(memory, *memory_mib, &settings.numa)?;
    numa::check(&settings.numa, max_vcpus, *memory_mib, memory)?;
    if *iothreads > MAX_IOTHREADS {
        let message = format!("is {iothreads}: at most {MAX_IOTHREADS}");
        return Err(InvalidVm::Contradiction { field: "iothreads", message });
    }
    if let Some(ns) = settings.iothread_poll_max_ns {
        let fault = match (*iothreads, ns) {
            (0, _) => Some("is for iothreads, and the VM has none: write iothreads = 1".to_owned()),
            (_, MAX_POLL_NS..) => Some(format!("is {ns} ns: less than {MAX_POLL_NS} (1 s)")),
            _ => None,
        };
        if let Some(message) = fault {
            return Err(InvalidVm::Contradiction { field: "iothread_poll_max_ns", message });
        }
    }
    let field = "iothread_pins";
    for (number, pcpus) in pins.iothreads.iter() {
        if *number == 0 || number > iothreads {
            let message = format!("names iothread {number}, but the VM has {iothreads} (from 1)");
            return Err(InvalidVm::Contradiction { field, message });
        }
        if pcpus.is_empty() {
            return Err(InvalidVm::EmptyPin { field, thread: format!("iothread {number}") });
        }
    }
    settings.scheduler.check(max_vcpus, *iothreads)?;
    let shared = settings.backing().iter().all(|one| one.shared == Some(true));
    disk::check(&settings.disks, *iothreads, shared)?;
    nic::check(&settings.nics, shared)?;
    host_device::check(&settings.host_devices)?;
    settings.clock.check()?;
    settings.hints.check()?;
    let (arch, machine, irqchip) = (settings.arch, &settings.machine, settings.hints.irqchip);
    settings.iommu.map_or(Ok(()), |iommu| iommu.check(arch, machine, irqchip))
}

/// More than anybody has disks.
pub(crate) const MAX_IOTHREADS: u32 = 1024;

/// A thread that polls for longer does nothing else.
const MAX_POLL_NS: u64 = 1_000_000_000;

/// No text that QEMU would misread.
fn check_texts(settings: &VmSettings) -> Result<(), InvalidVm> {
    let words = [("machine", &settings.machine), ("cpu_model", &settings.cpu_model)];
    for (field, value) in [("name", &settings.name)].into_iter().chain(words) {
        if value.is_empty() {
            return Err(InvalidVm::Empty { field });
        }
    }
    let parameters = match &settings.boot {
        BootSource::Direct { cmdline, .. } => cmdline.as_slice(),
        _ => &[],
    };
    let texts = [("name", &settings.name)]
        .into_iter()
        .chain(words)
        .chain(settings.kernel_cmdline.iter().map(|value| ("kernel_cmdline", value)))
        .chain(parameters.iter().map(|value| ("image", value)))
        .chain(settings.extra_args.iter().map(|value| ("extra_args", value)));
    for (field, value) in texts {
        if value.chars().any(char::is_control) {
            return Err(InvalidVm::ControlCharacter { field, value: value.clone() });
        }
    }
    for (field, value) in words {
        if value.contains(char::is_whitespace) {
            return Err(InvalidVm::WhiteSpace { field, value: value.clone() });
        }
    }
    Ok(())
}

impl Deref for VmSpec {
    type Target = VmSettings;

    fn deref(&self) -> &VmSettings {
        &self.0
    }
}

impl TryFrom<VmSettings> for VmSpec {
    type Error = InvalidVm;

    fn try_from(settings: VmSettings) -> Result<Self, InvalidVm> {
        Self::new(settings)
    }
}

impl From<VmSpec> for VmSettings {
    fn from(spec: VmSpec) -> Self {
        spec.0
    }
}
