//! The state of a virtio device, which QEMU describes as so many bytes of type `virtio`.
//!
//! It has the transport's part, the device's registers and configuration, its queues, and
//! behind them what only that device knows. The transport is not named: the one whose
//! form holds to the end of the queues is it.
//!
//! Source: QEMU `hw/virtio/virtio.c`, `virtio_save`; `hw/virtio/virtio-pci.c`,
//! `virtio_pci_save_config`; `hw/virtio/virtio-mmio.c`, `virtio_mmio_save_config`;
//! `hw/pci/pci.c`, `vmstate_pci_device`; `hw/pci/msix.c`, `msix_save`.

use crate::cursor::Cursor;
use crate::error::Problem;
use crate::field::FieldKind;

/// Most queues of a device. Source: QEMU `VIRTIO_QUEUE_MAX`.
const MAX_QUEUES: u32 = 1024;

/// Most entries of a queue. Source: QEMU `VIRTQUEUE_MAX_SIZE`, with room for what it is
/// in newer machines.
const MAX_QUEUE_ENTRIES: u32 = 32_768;

/// The longest configuration of a device that there is, with room, bytes.
const MAX_CONFIG_BYTES: u32 = 4096;

/// Bytes of the address of a NIC.
const MAC_BYTES: usize = 6;

/// Bytes of a device's configuration in PCI, and in PCI Express.
const PCI_CONFIG_BYTES: [usize; 2] = [256, 4096];

/// A capability's number in PCI's list, of MSI-X; source: PCI Local Bus 3.0, 6.8.2.
const MSIX: u8 = 0x11;

/// A part of the state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VirtioPart {
    pub(crate) name: String,
    pub(crate) type_name: &'static str,
    pub(crate) kind: FieldKind,
    pub(crate) size: usize,
    pub(crate) count: usize,
    /// Where, in the bytes of the state.
    pub(crate) at: usize,
}

/// By what a driver reaches the device.
#[derive(Debug, Clone, Copy)]
enum VirtioTransport {
    Pci { config_bytes: usize },
    Mmio,
}

/// The parts of `bytes`; `None` if they have no form that is known.
pub(crate) fn split(bytes: &[u8], is_net: bool) -> Option<Vec<VirtioPart>> {
    let pci = PCI_CONFIG_BYTES.map(|config_bytes| VirtioTransport::Pci { config_bytes });
    pci.into_iter().chain([VirtioTransport::Mmio]).find_map(|transport| {
        let mut parts = VirtioReader { cursor: Cursor::new(bytes, 0), bytes, found: Vec::new() };
        parts.device(transport, is_net).ok()?.then_some(parts.found)
    })
}

struct VirtioReader<'a> {
    cursor: Cursor<'a>,
    bytes: &'a [u8],
    found: Vec<VirtioPart>,
}

impl<'a> VirtioReader<'a> {
    /// Whether the bytes are such a device.
    fn device(&mut self, transport: VirtioTransport, is_net: bool) -> Result<bool, Problem> {
        let vectors = match transport {
            VirtioTransport::Pci { config_bytes } => self.pci(config_bytes)?,
            VirtioTransport::Mmio => {
                for name in ["mmio.host_features_sel", "mmio.guest_features_sel"] {
                    if self.number(name, 4)? > 1 {
                        return Ok(false);
                    }
                }
                self.number("mmio.guest_page_shift", 4)?;
                Some(0)
            }
        };
        let Some(vectors) = vectors else { return Ok(false) };
        self.number("status", 1)?;
        self.number("isr", 1)?;
        self.number("queue_sel", 2)?;
        self.number("guest_features", 4)?;
        let config_bytes = self.cursor.number32()?;
        if config_bytes > MAX_CONFIG_BYTES {
            return Ok(false);
        }
        self.config(config_bytes as usize, is_net)?;
        let queues = self.cursor.number32()?;
        // A device has one, and what is taken for a configuration that is too short has
        // zeros here.
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Ok(false);
        }
        for queue in 0..queues {
            let entries = self.number(&format!("queue[{queue}].num"), 4)?;
            if !(1..=u64::from(MAX_QUEUE_ENTRIES)).contains(&entries) {
                return Ok(false);
            }
            if matches!(transport, VirtioTransport::Mmio) {
                self.number(&format!("queue[{queue}].align"), 4)?;
            }
            self.number(&format!("queue[{queue}].desc"), 8)?;
            self.number(&format!("queue[{queue}].last_avail_idx"), 2)?;
            if vectors > 0 {
                self.number(&format!("queue[{queue}].vector"), 2)?;
            }
        }
        if is_net {
            self.part("net.mac", "mac", FieldKind::Mac, MAC_BYTES)?;
        }
        let rest = self.bytes.len() - self.cursor.at();
        self.part("rest", "buffer", FieldKind::Bytes, rest)?;
        Ok(true)
    }

    /// The part of PCI; how many vectors the device has, or `None` if it is none of PCI's.
    fn pci(&mut self, config_bytes: usize) -> Result<Option<usize>, Problem> {
        // Of the form with a configuration, which is version 2 of it.
        if self.number("pci.version_id", 4)? != 2 {
            return Ok(None);
        }
        let at = self.cursor.at();
        self.part("pci.config", "pci config", FieldKind::Bytes, config_bytes)?;
        let config = &self.bytes[at..at + config_bytes];
        // Red Hat's number, which is virtio's.
        if config[..2] != [0xf4, 0x1a] {
            return Ok(None);
        }
        self.part("pci.irq_state", "pci irq state", FieldKind::Bytes, 16)?;
        let vectors = vectors(config);
        if vectors > 0 {
            self.part("pci.msix_table", "msix", FieldKind::Bytes, 16 * vectors)?;
            self.part("pci.msix_pending", "msix", FieldKind::Bytes, vectors.div_ceil(8))?;
            self.number("pci.config_vector", 2)?;
        }
        Ok(Some(vectors))
    }

    fn config(&mut self, bytes: usize, is_net: bool) -> Result<(), Problem> {
        let rest = match bytes.checked_sub(MAC_BYTES) {
            Some(rest) if is_net => {
                self.part("config.mac", "mac", FieldKind::Mac, MAC_BYTES)?;
                rest
            }
            _ => bytes,
        };
        let name = if rest == bytes { "config" } else { "config.rest" };
        self.part(name, "buffer", FieldKind::Bytes, rest)
    }

    fn number(&mut self, name: &str, size: usize) -> Result<u64, Problem> {
        let type_name = match size {
            1 => "uint8",
            2 => "uint16",
            4 => "uint32",
            _ => "uint64",
        };
        let value = self.cursor.clone().number(size)?;
        self.part(name, type_name, FieldKind::Unsigned, size)?;
        Ok(value)
    }

    fn part(
        &mut self,
        name: &str,
        type_name: &'static str,
        kind: FieldKind,
        size: usize,
    ) -> Result<(), Problem> {
        let at = self.cursor.at();
        self.cursor.take(size)?;
        if size > 0 {
            let name = name.to_owned();
            self.found.push(VirtioPart { name, type_name, kind, size, count: 1, at });
        }
        Ok(())
    }
}

/// How many MSI-X vectors a device has, by its list of capabilities.
fn vectors(config: &[u8]) -> usize {
    let mut at = usize::from(config[0x34]);
    // The list may be a circle.
    for _ in 0..48 {
        let Some(capability) = config.get(at..at + 4).filter(|_| at >= 0x40) else { return 0 };
        if capability[0] == MSIX {
            let control = u16::from_le_bytes([capability[2], capability[3]]);
            return usize::from(control & 0x7ff) + 1;
        }
        at = usize::from(capability[1]);
    }
    0
}
