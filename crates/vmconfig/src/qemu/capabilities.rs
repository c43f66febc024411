//! What a version of QEMU can do, under names.

use std::fmt;

use crate::{Accel, Arch, DiskBus};

/// A version of QEMU: `7.2.22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion {
    /// The year's release.
    pub major: u32,
    /// Release within it.
    pub minor: u32,
    /// Stable update.
    pub micro: u32,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// The oldest version that is used: since 6.2 `-smp` refuses topologies that
/// do not multiply up, instead of mending them in silence.
const OLDEST: QemuVersion = QemuVersion { major: 6, minor: 2, micro: 0 };

/// What the installed QEMU can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its version.
    pub version: QemuVersion,
    /// QMP has `query-stats`: KVM's counters by VM and vCPU (7.1).
    pub query_stats: bool,
    /// The emulated APIC knows x2APIC: more than 255 APIC ids under TCG (9.0).
    pub tcg_x2apic: bool,
}

/// Why this QEMU is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableVersion {
    /// The text names no version.
    #[error("Not what QEMU --version prints: {0:?}")]
    NotQemu(String),
    /// The version is too old.
    #[error("QEMU {0} is too old: install {OLDEST} or newer")]
    TooOld(QemuVersion),
}

impl Capabilities {
    /// Those of a current QEMU, for a command line that some other host runs.
    #[must_use]
    pub fn current() -> Self {
        Self {
            version: QemuVersion { major: 10, minor: 0, micro: 0 },
            query_stats: true,
            tcg_x2apic: true,
        }
    }

    /// Those of the oldest QEMU that is used, for an argument that any QEMU may get.
    #[must_use]
    pub fn oldest() -> Self {
        Self { version: OLDEST, query_stats: false, tcg_x2apic: false }
    }

    /// From what `qemu-system-* --version` prints.
    ///
    /// # Errors
    /// [`UnusableVersion`] if that isn't QEMU, or one before 6.2.
    pub fn from_version_text(text: &str) -> Result<Self, UnusableVersion> {
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("QEMU emulator version "))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(parse_version)
            .ok_or_else(|| {
                let first = text.lines().next().unwrap_or_default();
                UnusableVersion::NotQemu(first.chars().take(80).collect())
            })?;
        if version < OLDEST {
            return Err(UnusableVersion::TooOld(version));
        }
        let since = |major, minor| (version.major, version.minor) >= (major, minor);
        Ok(Self { version, query_stats: since(7, 1), tcg_x2apic: since(9, 0) })
    }

    /// The most vCPUs that a machine type takes (its name without properties),
    /// if it is one that is known here.
    #[must_use]
    pub fn max_vcpus(&self, machine: &str) -> Option<u32> {
        let (family, version) = self.machine_version(machine);
        match family {
            "q35" | "pc-q35" => Some(match version {
                (0..=7, _) | (8, 0) => 288,
                (8, _) => 1024,
                _ => 4096,
            }),
            "pc" | "pc-i440fx" => Some(255),
            "microvm" => Some(288),
            "isapc" => Some(1),
            "virt" => Some(512),
            _ => None,
        }
    }

    /// The most APIC ids that vCPUs may span, if there is a limit below that
    /// of the machine.
    #[must_use]
    pub fn max_apic_ids(&self, arch: Arch, accel: Accel) -> Option<u32> {
        (arch == Arch::X86_64 && accel == Accel::Tcg && !self.tcg_x2apic).then_some(255)
    }

    /// True if `-smp` of this machine type takes that level of the topology.
    #[must_use]
    pub fn takes_level(&self, arch: Arch, machine: &str, level: &str) -> bool {
        match level {
            "dies" => arch == Arch::X86_64 && machine != "microvm" && machine != "isapc",
            "clusters" => {
                arch == Arch::Aarch64 && (self.version.major, self.version.minor) >= (7, 0)
            }
            _ => true,
        }
    }

    /// True if several iothreads can share the queues of a disk on this bus.
    #[must_use]
    pub fn shares_queues(&self, bus: DiskBus) -> bool {
        let since = if bus == DiskBus::VirtioScsi { 10 } else { 9 };
        bus.is_virtio() && self.version.major >= since
    }

    /// True if a vhost-user interface can have interrupts of its own. QEMU before 8.0
    /// ends in `msix_set_vector_notifiers` when the driver of an emulated guest comes.
    pub(super) fn interrupts_of_vhost_user(&self, accel: Accel) -> bool {
        accel != Accel::Tcg || self.version.major >= 8
    }

    /// What a socket is told so that it connects anew after `seconds`.
    ///
    /// Source: QEMU `docs/about/deprecated.rst`, `reconnect` (since 9.2).
    pub(super) fn reconnect(&self, seconds: u32) -> String {
        if (self.version.major, self.version.minor) >= (9, 2) {
            format!(",reconnect-ms={}", u64::from(seconds) * 1000)
        } else {
            format!(",reconnect={seconds}")
        }
    }

    /// True if this machine, its properties included, has a PCI bus.
    #[must_use]
    pub fn has_pci(&self, machine: &str) -> bool {
        let mut parts = machine.split(',');
        match parts.next() {
            Some("microvm") => parts.any(|property| property == "pcie=on"),
            Some("isapc" | "none") => false,
            _ => true,
        }
    }

    /// A machine type's family and the version whose behaviour it has: its own
    /// if it names one, else QEMU's.
    fn machine_version<'a>(&self, machine: &'a str) -> (&'a str, (u32, u32)) {
        let current = (self.version.major, self.version.minor);
        let versioned = machine.rsplit_once('-').and_then(|(family, version)| {
            let version = parse_version(version)?;
            Some((family, (version.major, version.minor)))
        });
        versioned.unwrap_or((machine, current))
    }
}

/// `7.2.22`, `10.0`, `9.1.0-rc2`.
fn parse_version(text: &str) -> Option<QemuVersion> {
    let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = numbers.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    let (major, minor) = (next()?, next()?);
    Some(QemuVersion { major, minor, micro: next().unwrap_or(0) })
}
