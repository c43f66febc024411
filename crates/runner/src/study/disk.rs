//! How the empty disks of workloads that want some are made and attached.

use std::path::{Path, PathBuf};

use host::pci_disk::PciDisk;
use host::settings::SettingsTree;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::{
    CacheMode, Disk, DiskBus, DiskIo, DiskSource, InvalidVm, PciAddress, QueueIothread, VmSettings,
    VmSpec,
};
use workload::{CatalogueEntry, GuestFacts, Params};

/// The serial number by which the guest finds the first; of those that follow, their
/// number stands behind it.
const SERIAL: &str = "vmlab-scratch";

/// What QEMU's storage daemon says for all its disks.
///
/// Source: QEMU `block/export/vhost-user-blk-server.c`.
const DAEMON_SERIAL: &str = "vhost_user_blk";

/// A study's `[disk]`, or what a variant changes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StudyDisk {
    /// How it is attached; virtio-blk if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<StudyBus>,
    /// What its sectors are kept in; a file if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing: Option<DiskBacking>,
    /// What the host's page cache does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMode>,
    /// How QEMU, or its storage daemon, reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    /// The iothread that serves it: a number from 1, or `each`, which deals the disks
    /// out to all iothreads in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<StudyIothread>,
    /// Iothreads that share its queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_iothreads: Option<Vec<QueueIothread>>,
    /// Request queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
}

/// How a study's disk is attached, and who serves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StudyBus {
    /// virtio-blk, by QEMU.
    #[default]
    VirtioBlk,
    /// A SCSI disk on a virtio-scsi controller of its own, by QEMU.
    VirtioScsi,
    /// AHCI, emulated by QEMU.
    Sata,
    /// The old PC's controller, emulated by QEMU.
    Ide,
    /// virtio-scsi, by a target of the host's kernel.
    VhostScsi,
    /// virtio-blk, by QEMU's storage daemon.
    VhostUserBlk,
    /// The host's own disk, a PCI device, driven by the guest through VFIO.
    Vfio,
}

impl StudyBus {
    /// What the guest sees of a disk that something serves.
    fn seen(self) -> DiskBus {
        match self {
            Self::VirtioBlk | Self::VhostUserBlk | Self::Vfio => DiskBus::VirtioBlk,
            Self::VirtioScsi | Self::VhostScsi => DiskBus::VirtioScsi,
            Self::Sata => DiskBus::Sata,
            Self::Ide => DiskBus::Ide,
        }
    }
}

/// What a disk's sectors are kept in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBacking {
    /// A file without a name, its blocks allocated.
    #[default]
    File,
    /// Nothing: a null_blk of the host's kernel answers at once and keeps nothing.
    NullBlk,
    /// The host's memory: a brd of the host's kernel.
    Brd,
    /// Block devices of the host, one a disk. **All on them is lost.**
    Devices(DiskDevices),
}

/// Block devices of the host that a study may overwrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskDevices {
    /// The devices, `/dev/nvme1n1`, or PCI addresses, `0000:3b:00.0`.
    pub paths: Vec<PathBuf>,
    /// That all on them may be lost; nothing is done unless it is true.
    #[serde(default)]
    pub overwrite: bool,
}

/// Which iothread serves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "iothread: a number from 1, or \"each\"")]
pub enum StudyIothread {
    /// This one, from 1.
    Number(u32),
    /// One after the other.
    Dealt(EachWord),
}

/// The word `each`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EachWord {
    /// Each disk its own, as far as there are some.
    Each,
}

/// What a workload wants of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskWish {
    /// How many; at least one.
    pub(crate) count: u32,
    /// Of what size each, MiB.
    pub(crate) mib: u64,
    /// How many of them without a file system: all, or none.
    pub(crate) raw: u32,
}

impl DiskWish {
    /// What `entry` wants, if it wants any.
    pub(crate) fn of(entry: &CatalogueEntry, params: &Params, facts: &GuestFacts) -> Option<Self> {
        let mib = entry.scratch_mib(params, facts);
        let raw = entry.raw_disks(params);
        (mib > 0).then_some(Self { count: raw.max(1), mib, raw })
    }
}

impl StudyDisk {
    /// This patch with `over` laid over it.
    #[must_use]
    pub fn overlay(&self, over: &Self) -> Self {
        Self {
            bus: over.bus.or(self.bus),
            backing: over.backing.clone().or_else(|| self.backing.clone()),
            cache: over.cache.or(self.cache),
            io: over.io.or(self.io),
            // One says who serves it in the place of the other.
            iothread: match over.queue_iothreads {
                Some(_) => over.iothread,
                None => over.iothread.or(self.iothread),
            },
            queue_iothreads: match over.iothread {
                Some(_) => over.queue_iothreads.clone(),
                None => over.queue_iothreads.clone().or_else(|| self.queue_iothreads.clone()),
            },
            queues: over.queues.or(self.queues),
        }
    }

    pub(crate) fn bus(&self) -> StudyBus {
        self.bus.unwrap_or_default()
    }

    pub(crate) fn backing(&self) -> DiskBacking {
        self.backing.clone().unwrap_or_default()
    }

    /// What can't be about `count` such disks, `raw` of which have no file system.
    pub(crate) fn fault(&self, count: u32, raw: u32) -> Option<String> {
        if self.bus() == StudyBus::Vfio {
            let served = self.iothread.is_some() || self.queue_iothreads.is_some();
            let fault = if !matches!(self.backing(), DiskBacking::Devices(_)) {
                "gives the guest a disk of the host: write backing.devices"
            } else if served || self.queues.is_some() {
                "leaves nobody to serve the disk: leave out iothread, queue_iothreads and queues"
            } else if raw == 0 {
                "gives the guest the disk as it is, and the workload wants a file system: write \
                 params = { disks = 1 } with fio"
            } else {
                ""
            };
            if !fault.is_empty() {
                return Some(format!("bus = \"vfio\" {fault}"));
            }
        }
        match self.backing() {
            DiskBacking::NullBlk if raw == 0 => Some(
                "backing = \"null-blk\" keeps nothing, and the workload wants a file system: \
                 write backing = \"brd\", or params = { disks = 1 } with fio"
                    .to_owned(),
            ),
            DiskBacking::File
                if self.bus() == StudyBus::VhostScsi
                    && self.cache.is_some_and(CacheMode::is_direct) =>
            {
                Some(
                    "bus = \"vhost-scsi\" with backing = \"file\" goes through the host's page \
                     cache: leave out cache, or write another backing"
                        .to_owned(),
                )
            }
            DiskBacking::Brd if count > 1 => Some(format!(
                "backing = \"brd\": a host has one disk in memory at a time, and the study wants \
                 {count}"
            )),
            DiskBacking::Devices(devices) => {
                let there = devices.paths.len();
                if !devices.overwrite {
                    Some(
                        "backing.devices: all on them will be lost: write overwrite = true if it \
                         may be"
                            .to_owned(),
                    )
                } else if there < count as usize {
                    Some(format!("backing.devices names {there}, and the study wants {count}"))
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// What stands for `count` disks while a plan is checked.
    pub(crate) fn stand_ins(&self, count: u32) -> Vec<DiskSource> {
        // Those are no disks of QEMU's.
        let count = if self.bus() == StudyBus::Vfio { 0 } else { count };
        (1..=count)
            .map(|number| match (self.bus(), self.backing()) {
                (StudyBus::VhostScsi, _) => DiskSource::VhostScsi(format!("naa.{number:016x}")),
                (StudyBus::VhostUserBlk, _) => {
                    DiskSource::VhostUser(format!("/scratch{number}.sock").into())
                }
                (_, DiskBacking::File) => DiskSource::File(format!("/scratch{number}").into()),
                _ => DiskSource::Block(format!("/dev/scratch{number}").into()),
            })
            .collect()
    }

    /// `spec` with these disks as its last.
    ///
    /// # Errors
    /// [`InvalidVm`], if the VM can't have such disks.
    pub(crate) fn attach(
        &self,
        spec: &VmSpec,
        sources: Vec<DiskSource>,
    ) -> Result<VmSpec, InvalidVm> {
        let queues = self.queues_in(spec);
        let mut settings: VmSettings = spec.clone().into();
        for (number, source) in (1..).zip(sources) {
            let iothread = self.iothread.map(|iothread| match iothread {
                StudyIothread::Number(number) => number,
                StudyIothread::Dealt(EachWord::Each) => {
                    (number - 1) % settings.iothreads.max(1) + 1
                }
            });
            let plain = Disk::new(source);
            let own = !plain.is_served_elsewhere();
            settings.disks.push(Disk {
                bus: self.bus().seen(),
                // Else the server's affair.
                cache: self.cache.filter(|_| own),
                io: self.io.filter(|_| own),
                iothread,
                queue_iothreads: self.queue_iothreads.clone().unwrap_or_default(),
                queues: self.queues.or((self.bus() == StudyBus::VhostUserBlk).then_some(queues)),
                serial: own.then(|| serial(number)),
                ..plain
            });
        }
        VmSpec::new(settings)
    }

    /// Request queues of a disk of `spec`: as QEMU has it by itself, one for each vCPU.
    pub(crate) fn queues_in(&self, spec: &VmSpec) -> u32 {
        self.queues.unwrap_or(spec.vcpus())
    }

    /// The serial numbers that the guest sees, in the order of the disks.
    pub(crate) fn serials(&self, count: u32) -> Vec<String> {
        let of_daemon = self.bus() == StudyBus::VhostUserBlk;
        let all = (1..=count).map(serial);
        all.map(|own| if of_daemon { DAEMON_SERIAL.to_owned() } else { own }).collect()
    }
}

/// The serial number of disk `number`, from 1.
pub(crate) fn serial(number: u32) -> String {
    if number == 1 { SERIAL.to_owned() } else { format!("{SERIAL}-{number}") }
}

/// The block device that a study names: by its path, or by the PCI address of a disk, which
/// stays the same whatever the kernel calls the disk.
pub(crate) fn block_device(named: &Path) -> Result<PathBuf, String> {
    if named.to_string_lossy().parse::<PciAddress>().is_err() {
        return Ok(named.to_owned());
    }
    let found = PciDisk::find(&SettingsTree::live(), named);
    found.map(|disk| disk.path).map_err(|error| error.to_string())
}

/// Whether `path` is a block device of which nothing is in use.
pub(crate) fn is_free(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !found.file_type().is_block_device() {
        return Err(format!("{shown} is no block device"));
    }
    let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap_or(0);
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(exclusive).open(path);
    match opened {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            Err(format!("{shown} is in use: a mounted file system, a volume, swap"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}
