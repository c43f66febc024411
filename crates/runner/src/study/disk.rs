//! How the empty disk of workloads that want one is attached.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::{CacheMode, Disk, DiskBus, DiskIo, DiskSource, InvalidVm, VmSettings, VmSpec};

/// The serial number by which the guest finds it.
pub(crate) const SERIAL: &str = "vmlab-scratch";

/// A study's `[disk]`, or what a variant changes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StudyDisk {
    /// How it is attached; virtio-blk if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// What the host's page cache does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMode>,
    /// How QEMU reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    /// Number of the iothread that serves it, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<u32>,
    /// Request queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
}

impl StudyDisk {
    /// This patch with `over` laid over it.
    #[must_use]
    pub fn overlay(&self, over: &Self) -> Self {
        Self {
            bus: over.bus.or(self.bus),
            cache: over.cache.or(self.cache),
            io: over.io.or(self.io),
            iothread: over.iothread.or(self.iothread),
            queues: over.queues.or(self.queues),
        }
    }

    /// `spec` with this disk as its last, whose sectors are at `path`.
    ///
    /// # Errors
    /// [`InvalidVm`], if the VM can't have such a disk.
    pub fn attach(&self, spec: &VmSpec, path: &std::path::Path) -> Result<VmSpec, InvalidVm> {
        let mut settings: VmSettings = spec.clone().into();
        settings.disks.push(Disk {
            bus: self.bus.unwrap_or_default(),
            cache: self.cache,
            io: self.io,
            iothread: self.iothread,
            queues: self.queues,
            serial: Some(SERIAL.to_owned()),
            ..Disk::new(DiskSource::File(path.to_owned()))
        });
        VmSpec::new(settings)
    }
}
