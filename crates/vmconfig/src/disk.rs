//! Disks beside the one that vmlab boots from.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{InvalidVm, NumberSet};

/// Format of a disk image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// QEMU's own format.
    Qcow2,
    /// Sectors as they are.
    #[default]
    Raw,
}

impl DiskFormat {
    /// QEMU's name for it: `qcow2`, `raw`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// A disk of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Where its sectors are.
    pub source: DiskSource,
    /// Format of its image; raw if not said. QEMU `format=`, libvirt
    /// `<driver type=>`; KubeVirt finds out by itself.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub format: DiskFormat,
    /// How it is attached; virtio-blk if not said.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub bus: DiskBus,
    /// What the host's page cache does; QEMU's own choice is `writeback`. QEMU
    /// `cache=`, libvirt and KubeVirt `cache`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMode>,
    /// How QEMU reads and writes; its own choice is `threads`. QEMU `aio=`,
    /// libvirt and KubeVirt `io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    /// What becomes of what the guest discards (TRIM, UNMAP, DISCARD); QEMU's
    /// own choice is `ignore`. QEMU `discard=`, libvirt `<driver discard=>`;
    /// KubeVirt has `unmap` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<Discard>,
    /// Whether QEMU looks for zeroes in what the guest writes; its own choice is
    /// `off`. QEMU `detect-zeroes=`, libvirt `<driver detect_zeroes=>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_zeroes: Option<ZeroDetection>,
    /// Number of the iothread that serves it, from 1; none is QEMU's main loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iothread: Option<u32>,
    /// Iothreads that share its queues, in the place of one for all. QEMU
    /// `iothread-vq-mapping` (9.0 for virtio-blk, 10.0 for virtio-scsi), libvirt
    /// `<driver><iothreads>`.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub queue_iothreads: Vec<QueueIothread>,
    /// Request queues. QEMU `num-queues=`, libvirt `<driver queues=>`, KubeVirt
    /// `blockMultiQueue` (as many as vCPUs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// The guest can't write to it.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub readonly: bool,
    /// What the guest writes is gone when it ends. QEMU `snapshot=on`, libvirt
    /// `<transient/>`.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub transient: bool,
    /// Serial number that the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its turn when the firmware looks for something to boot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
}

/// An iothread that serves some of a disk's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueIothread {
    /// Its number, from 1.
    pub iothread: u32,
    /// The queues, from 0; where none are named, QEMU deals them out in turn.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub queues: NumberSet,
}

/// Where a disk's sectors are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskSource {
    /// An image file.
    File(PathBuf),
    /// A block device of the host.
    Block(PathBuf),
    /// A SCSI target of the host's kernel, by its name (`naa.5001405...`):
    /// vhost-scsi.
    VhostScsi(String),
    /// Another process that serves it, by its vhost-user socket (vhost-user-blk).
    VhostUser(PathBuf),
    /// A PersistentVolumeClaim of Kubernetes.
    Claim(String),
    /// A container image that holds a disk (KubeVirt `containerDisk`).
    Container(String),
}

/// How a disk is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// virtio-blk.
    #[default]
    VirtioBlk,
    /// A SCSI disk on a virtio-scsi controller of its own.
    VirtioScsi,
    /// AHCI, emulated.
    Sata,
    /// The old PC's controller, emulated: four disks, one request at a time.
    Ide,
}

impl DiskBus {
    /// True if the guest needs a driver of virtio's for it.
    #[must_use]
    pub fn is_virtio(self) -> bool {
        matches!(self, Self::VirtioBlk | Self::VirtioScsi)
    }
}

/// What the host's page cache does for a disk.
///
/// Source: QEMU's manual page, `-drive cache=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// Bypassed; the guest's flushes are obeyed.
    None,
    /// Used; the guest's flushes are obeyed.
    Writeback,
    /// Used for reading; every write is flushed.
    Writethrough,
    /// Bypassed; every write is flushed.
    Directsync,
    /// Used; flushes are ignored.
    Unsafe,
}

/// How QEMU reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskIo {
    /// Linux AIO; needs a bypassed page cache.
    Native,
    /// A pool of threads.
    Threads,
    /// io_uring.
    IoUring,
}

/// What becomes of what the guest discards.
///
/// Source: QEMU's manual page, `-blockdev discard=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// Nothing: the image keeps its size.
    Ignore,
    /// The host frees the sectors.
    Unmap,
}

/// Whether QEMU looks for zeroes in what the guest writes.
///
/// Source: QEMU's manual page, `-blockdev detect-zeroes=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ZeroDetection {
    /// It does not.
    Off,
    /// It does, and writes them in the image's shorter way.
    On,
    /// It does, and discards them where [`Disk::discard`] is `unmap`.
    Unmap,
}

impl Discard {
    pub(crate) const NAMES: [(Self, &'static str); 2] =
        [(Self::Ignore, "ignore"), (Self::Unmap, "unmap")];

    /// Its name everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("ignore", |row| row.1)
    }

    /// QEMU has words of its own for both: `off` and `on`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "ignore" | "off" => Some(Self::Ignore),
            "unmap" | "on" => Some(Self::Unmap),
            _ => None,
        }
    }
}

impl ZeroDetection {
    pub(crate) const NAMES: [(Self, &'static str); 3] =
        [(Self::Off, "off"), (Self::On, "on"), (Self::Unmap, "unmap")];

    /// Its name everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("off", |row| row.1)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

impl CacheMode {
    pub(crate) const NAMES: [(Self, &'static str); 5] = [
        (Self::None, "none"),
        (Self::Writeback, "writeback"),
        (Self::Writethrough, "writethrough"),
        (Self::Directsync, "directsync"),
        (Self::Unsafe, "unsafe"),
    ];

    /// Its name everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("none", |row| row.1)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// True if the host's page cache is bypassed.
    #[must_use]
    pub fn is_direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }
}

impl DiskIo {
    pub(crate) const NAMES: [(Self, &'static str); 3] =
        [(Self::Native, "native"), (Self::Threads, "threads"), (Self::IoUring, "io_uring")];

    /// Its name everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("native", |row| row.1)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

impl Disk {
    /// The disk of this source, all else QEMU's own choice.
    #[must_use]
    pub fn new(source: DiskSource) -> Self {
        let bus = match source {
            DiskSource::VhostScsi(_) => DiskBus::VirtioScsi,
            _ => DiskBus::VirtioBlk,
        };
        Self {
            source,
            format: DiskFormat::Raw,
            bus,
            cache: None,
            io: None,
            discard: None,
            detect_zeroes: None,
            iothread: None,
            queue_iothreads: Vec::new(),
            queues: None,
            readonly: false,
            transient: false,
            serial: None,
            boot_order: None,
        }
    }

    /// Whether something else than this QEMU reads and writes its sectors.
    #[must_use]
    pub fn is_served_elsewhere(&self) -> bool {
        matches!(self.source, DiskSource::VhostScsi(_) | DiskSource::VhostUser(_))
    }

    /// What can't be about this disk, as the end of a sentence.
    fn fault(&self, iothreads: u32, shared: bool) -> Option<String> {
        if self.io == Some(DiskIo::Native) && !self.cache.is_some_and(CacheMode::is_direct) {
            let cache = self.cache.map_or("writeback (QEMU's own choice)", CacheMode::name);
            return Some(format!(
                "has io native with cache {cache}, which QEMU refuses: write cache = \"none\" or \
                 \"directsync\""
            ));
        }
        if let Some(number) = self.iothread {
            if number == 0 || number > iothreads {
                return Some(format!("wants iothread {number}, but the VM has {iothreads}"));
            }
            if !self.bus.is_virtio() {
                return Some("wants an iothread, which only virtio disks have".to_owned());
            }
        }
        if let Some(message) = self.fault_of_mapping(iothreads) {
            return Some(message);
        }
        if let Some(queues) = self.queues {
            if queues == 0 || queues > MAX_QUEUES {
                return Some(format!("has {queues} queues: 1 to {MAX_QUEUES}"));
            }
            if !self.bus.is_virtio() {
                return Some("has queues, which only virtio disks have".to_owned());
            }
        }
        if self.readonly && !self.bus.is_virtio() {
            return Some("is readonly on SATA or IDE, which QEMU and libvirt refuse".to_owned());
        }
        if self.boot_order == Some(0) {
            return Some("has boot_order 0: they count from 1".to_owned());
        }
        if self.transient && self.readonly {
            return Some("is transient and readonly: there is nothing to forget".to_owned());
        }
        if self.is_served_elsewhere() {
            let plain = Self {
                queues: self.queues,
                boot_order: self.boot_order,
                ..Self::new(self.source.clone())
            };
            if *self != plain {
                let server = match self.source {
                    DiskSource::VhostUser(_) => "served by another process",
                    _ => "a target of the host's kernel",
                };
                return Some(format!("is {server}: only queues and boot_order apply"));
            }
        }
        if matches!(self.source, DiskSource::VhostUser(_)) && !shared {
            return Some(
                "is vhost-user, whose server must map the guest's memory: write memory.shared = \
                 true and memory.source = \"memfd\" or \"file\""
                    .to_owned(),
            );
        }
        self.texts().find_map(|text| {
            let bad = text.is_empty() || text.chars().any(char::is_control);
            bad.then(|| format!("holds {text:?}: empty, or a control character"))
        })
    }

    /// What can't be about the iothreads that share its queues.
    ///
    /// Source: QEMU `hw/virtio/iothread-vq-mapping.c`.
    fn fault_of_mapping(&self, iothreads: u32) -> Option<String> {
        let all = &self.queue_iothreads;
        let first = all.first()?;
        if !self.bus.is_virtio() {
            return Some("wants iothreads, which only virtio disks have".to_owned());
        }
        if let Some(number) = self.iothread {
            return Some(format!("has iothread {number} for all queues, and others for each"));
        }
        let mut named = NumberSet::new();
        for (place, one) in all.iter().enumerate() {
            let number = one.iothread;
            if number == 0 || number > iothreads {
                return Some(format!("wants iothread {number}, but the VM has {iothreads}"));
            }
            if all[..place].iter().any(|other| other.iothread == number) {
                return Some(format!("gives queues to iothread {number} twice"));
            }
            if one.queues.is_empty() != first.queues.is_empty() {
                return Some("names the queues of some iothreads, and not of others".to_owned());
            }
            if let Some(queue) = one.queues.iter().find(|queue| named.contains(*queue)) {
                return Some(format!("gives queue {queue} to two iothreads"));
            }
            named = NumberSet::union_of([&named, &one.queues]);
        }
        if named.is_empty() {
            return None;
        }
        let Some(queues) = self.queues else {
            return Some("gives queues to iothreads, and does not say how many it has".to_owned());
        };
        (named != (0..queues.min(MAX_QUEUES)).collect())
            .then(|| format!("gives the queues {named} to iothreads, but has {queues} from 0 on"))
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        let source = match &self.source {
            DiskSource::File(path) | DiskSource::Block(path) | DiskSource::VhostUser(path) => {
                path.to_string_lossy().into_owned()
            }
            DiskSource::VhostScsi(text) | DiskSource::Claim(text) | DiskSource::Container(text) => {
                text.clone()
            }
        };
        [Some(source), self.serial.clone()].into_iter().flatten()
    }
}

/// Most queues of a virtio device (`VIRTIO_QUEUE_MAX`).
pub(crate) const MAX_QUEUES: u32 = 1024;

/// One way to say each: what QEMU does by itself is not said, and where there is no
/// IDE controller, it puts its disks at the SATA one's ports (q35).
pub(crate) fn normalise(disks: &mut [Disk], machine: &str) {
    for disk in disks.iter_mut() {
        disk.discard = disk.discard.filter(|one| *one != Discard::Ignore);
        // libvirt and QEMU both: without discarding, `unmap` is no more than `on`.
        disk.detect_zeroes = match disk.detect_zeroes {
            Some(ZeroDetection::Unmap) if disk.discard.is_none() => Some(ZeroDetection::On),
            other => other.filter(|one| *one != ZeroDetection::Off),
        };
    }
    if machine.starts_with("q35") || machine.starts_with("pc-q35") {
        for disk in disks.iter_mut().filter(|disk| disk.bus == DiskBus::Ide) {
            disk.bus = DiskBus::Sata;
        }
    }
}

pub(crate) fn check(disks: &[Disk], iothreads: u32, shared: bool) -> Result<(), InvalidVm> {
    let refuse = |number: usize, message: String| {
        let message = format!("number {number} {message}");
        Err(InvalidVm::Contradiction { field: "disks", message })
    };
    for (number, disk) in disks.iter().enumerate() {
        if let Some(message) = disk.fault(iothreads, shared) {
            return refuse(number, message);
        }
        let same = |other: &Disk| other.boot_order.is_some() && other.boot_order == disk.boot_order;
        if disks[..number].iter().any(same) {
            return refuse(number, "has the boot_order of another".to_owned());
        }
        let same = |other: &Disk| disk.is_served_elsewhere() && other.source == disk.source;
        if disks[..number].iter().any(same) {
            return refuse(
                number,
                "has the vhost-scsi target or vhost-user socket of another, which serves one"
                    .into(),
            );
        }
    }
    Ok(())
}
