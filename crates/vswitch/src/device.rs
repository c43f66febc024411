//! A frontend's device as the polling threads see it: memory, running rings, and
//! what the driver can take. Immutable; a change makes another one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::memory::{Area, GuestBuffer, GuestMemory, Region};
use crate::message::features;
use crate::ring::Ring;
use crate::tap::Tap;

/// Bytes of a frame's header since Virtio 1.0, and with mergeable buffers.
pub const LONG_HEADER: usize = 12;
/// Bytes of a frame's header before.
pub const SHORT_HEADER: usize = 10;

/// A running ring, with its events.
#[derive(Debug, Clone)]
pub struct ActiveRing {
    /// The ring.
    pub ring: Arc<Ring>,
    /// The driver tells of new entries; none if it wants to be polled.
    pub kick: Option<Arc<OwnedFd>>,
    /// Tells the driver; none if it polls.
    pub call: Option<Arc<OwnedFd>>,
}

/// The two rings of a queue.
#[derive(Debug, Clone, Default)]
pub struct QueuePair {
    /// The driver receives.
    pub receive: Option<ActiveRing>,
    /// The driver sends.
    pub transmit: Option<ActiveRing>,
}

/// What a frontend has set up.
#[derive(Debug, Clone)]
pub struct VhostDevice {
    /// Its memory.
    pub memory: GuestMemory,
    /// Its queues.
    pub pairs: Vec<QueuePair>,
    /// What driver and backend agreed on.
    pub features: u64,
    /// Where written pages are marked, while a migration asks for it.
    pub log: Option<Arc<DirtyLog>>,
    /// The host's network, for a device without rings.
    pub tap: Option<Arc<Tap>>,
}

impl VhostDevice {
    /// The host's network: one queue, no rings.
    #[must_use]
    pub fn of_tap(tap: Tap) -> Self {
        let (memory, features) = (tap.memory().clone(), tap.features());
        let tap = Some(Arc::new(tap));
        Self { memory, pairs: vec![QueuePair::default()], features, log: None, tap }
    }

    /// Bytes of the header before each frame.
    #[inline]
    #[must_use]
    pub fn header(&self) -> usize {
        let long = features::MRG_RXBUF | features::VERSION_1;
        if self.features & long == 0 { SHORT_HEADER } else { LONG_HEADER }
    }

    /// True if a frame may be spread over several receive buffers.
    #[inline]
    #[must_use]
    pub fn merges(&self) -> bool {
        self.features & features::MRG_RXBUF != 0
    }

    /// How many queues the driver receives with.
    #[must_use]
    pub fn receivers(&self) -> usize {
        self.pairs.iter().take_while(|pair| pair.receive.is_some()).count()
    }

    /// All running rings.
    pub fn queues(&self) -> impl Iterator<Item = &ActiveRing> {
        self.pairs.iter().flat_map(|pair| pair.receive.iter().chain(&pair.transmit))
    }
}

/// Pages that were written, a bit each, for live migration.
///
/// Source: QEMU, `docs/interop/vhost-user.rst`, "Migration".
#[derive(Debug)]
pub struct DirtyLog {
    area: Area,
    bytes: u64,
}

impl DirtyLog {
    /// Of a guest page; the protocol fixes it.
    pub const PAGE: u64 = 4096;

    /// In `region`, which is mapped from the log's file.
    #[must_use]
    pub fn new(region: Region) -> Self {
        let bytes = region.placement().size;
        Self { area: Area::whole(Arc::new(region)), bytes }
    }

    /// Bytes of a log of all pages below a guest address.
    #[must_use]
    pub fn bytes_for(end: u64) -> u64 {
        end.div_ceil(Self::PAGE).div_ceil(8)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if its file was made shorter: what was marked since is in no log.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.area.region().is_lost()
    }

    /// Marks `length` bytes at a guest address.
    pub fn mark(&self, guest_address: u64, length: usize) {
        if length == 0 {
            return;
        }
        let last = (guest_address + (length as u64 - 1)) / Self::PAGE;
        for page in guest_address / Self::PAGE..=last {
            if page / 8 < self.bytes {
                self.area.set_bits((page / 8) as usize, 1 << (page % 8));
            }
        }
    }

    /// Marks what was written of `buffer`.
    pub fn mark_buffer(&self, memory: &GuestMemory, buffer: GuestBuffer<'_>, length: usize) {
        if let Some(address) = memory.guest_address(buffer) {
            self.mark(address, length.min(buffer.len()));
        }
    }
}
