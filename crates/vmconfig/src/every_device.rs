//! Patches of all disks or all network interfaces of a VM. A patch replaces a list as
//! a whole; these change one setting of each entry and keep the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CacheMode, Discard, Disk, DiskBus, DiskFormat, DiskIo, Nic, NicBackend, NicModel,
    QueueIothread, ZeroDetection, overlay_fields,
};

/// Fields of [`Disk`] that hold for every disk but targets of the host's kernel
/// (vhost-scsi), which have none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EveryDisk {
    /// See [`Disk::format`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// See [`Disk::bus`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// See [`Disk::cache`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMode>,
    /// See [`Disk::io`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    /// See [`Disk::discard`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard: Option<Discard>,
    /// See [`Disk::detect_zeroes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detect_zeroes: Option<ZeroDetection>,
    /// See [`Disk::iothread`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<u32>,
    /// See [`Disk::queue_iothreads`]; with it there is no iothread for all queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_iothreads: Option<Vec<QueueIothread>>,
    /// See [`Disk::queues`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
}

/// Fields of [`Nic`] that hold for every network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NicPatch {
    /// See [`Nic::backend`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<NicBackend>,
    /// See [`Nic::model`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<NicModel>,
    /// See [`Nic::vhost`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vhost: Option<bool>,
    /// See [`Nic::queues`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// See [`Nic::rx_queue_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_queue_size: Option<u32>,
    /// See [`Nic::tx_queue_size`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_queue_size: Option<u32>,
    /// See [`Nic::packed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<bool>,
    /// See [`Nic::mtu`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl EveryDisk {
    pub(crate) fn overlay(self, over: Self) -> Self {
        overlay_fields!(
            self,
            over,
            format,
            bus,
            cache,
            io,
            discard,
            detect_zeroes,
            iothread,
            queue_iothreads,
            queues
        )
    }

    pub(crate) fn apply(&self, disk: Disk) -> Disk {
        if disk.is_served_elsewhere() {
            return disk;
        }
        Disk {
            format: self.format.unwrap_or(disk.format),
            bus: self.bus.unwrap_or(disk.bus),
            cache: self.cache.or(disk.cache),
            io: self.io.or(disk.io),
            discard: self.discard.or(disk.discard),
            detect_zeroes: self.detect_zeroes.or(disk.detect_zeroes),
            iothread: match self.queue_iothreads {
                Some(_) => self.iothread,
                None => self.iothread.or(disk.iothread),
            },
            queue_iothreads: match (&self.queue_iothreads, self.iothread) {
                (Some(own), _) => own.clone(),
                (None, Some(_)) => Vec::new(),
                (None, None) => disk.queue_iothreads,
            },
            queues: self.queues.or(disk.queues),
            ..disk
        }
    }
}

impl NicPatch {
    pub(crate) fn overlay(self, over: Self) -> Self {
        overlay_fields!(
            self,
            over,
            backend,
            model,
            vhost,
            queues,
            rx_queue_size,
            tx_queue_size,
            packed,
            mtu
        )
    }

    pub(crate) fn apply(&self, nic: Nic) -> Nic {
        Nic {
            backend: self.backend.clone().unwrap_or(nic.backend),
            model: self.model.unwrap_or(nic.model),
            vhost: self.vhost.or(nic.vhost),
            queues: self.queues.or(nic.queues),
            rx_queue_size: self.rx_queue_size.or(nic.rx_queue_size),
            tx_queue_size: self.tx_queue_size.or(nic.tx_queue_size),
            packed: self.packed.or(nic.packed),
            mtu: self.mtu.or(nic.mtu),
            ..nic
        }
    }
}
