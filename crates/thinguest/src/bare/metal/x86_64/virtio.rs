//! A virtio device: on the PCI bus, or where ACPI says on a machine that has none.

use thinguest::{Queue, VirtioDevice};

use super::virtio_pci::PciDevice;
use crate::metal::handshake;
use crate::metal::virtio_mmio;

/// The device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Device {
    /// On the PCI bus.
    Pci(PciDevice),
    /// With registers in memory.
    Memory(virtio_mmio::Device),
}

impl Device {
    /// The first of its kind.
    pub(crate) fn find(kind: VirtioDevice) -> Option<Self> {
        let in_memory = || virtio_mmio::Device::find(kind).map(Self::Memory);
        PciDevice::find(kind).map(Self::Pci).or_else(in_memory)
    }

    /// As [`handshake::reset`].
    pub(crate) fn reset(&self) -> bool {
        match self {
            Self::Pci(device) => handshake::reset(device),
            Self::Memory(device) => device.reset(),
        }
    }

    /// As [`handshake::begin`].
    pub(crate) fn begin(&self, queues: &[&'static Queue], interrupts: bool) -> bool {
        match self {
            Self::Pci(device) => handshake::begin(device, queues, interrupts),
            Self::Memory(device) => device.begin(queues, interrupts),
        }
    }

    /// Tells it that there is something in a queue.
    pub(crate) fn notify(&self, queue: u16) {
        match self {
            Self::Pci(device) => device.notify(queue),
            Self::Memory(device) => device.notify(queue),
        }
    }

    /// Answers its interrupt, if that was no message.
    pub(crate) fn acknowledge(&self) {
        if let Self::Memory(device) = self {
            device.acknowledge();
        }
    }
}
