//! Virtqueues as the device sees them: chains of descriptors that the driver made
//! available, and what is given back to it.
//!
//! Both kinds are used in order: what is completed is what was fetched first. So
//! one position says all of a ring, and after a crash it is found again in the
//! guest's memory.
//!
//! Each descriptor is copied once and judged by its copy. A chain that makes no
//! sense (an address outside of the guest's memory, a loop, a table in a table)
//! is given back unused and counted; a ring whose position makes no sense is
//! stopped until the driver sets it up anew.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, sections 2.7 and 2.8.

mod chain;
mod packed;
mod packed_position;
mod resume;
mod split;

use crate::memory::{AreaError, GuestMemory};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub use chain::{Chain, Chains, Direction};
use packed::PackedRing;
use split::SplitRing;

/// Entries that a ring may have.
pub const MAX_SIZE: u16 = 32768;

/// Bytes of one frame with its header, the largest that segmentation offload makes.
pub(crate) const MAX_CHAIN_BYTES: u64 = 65536 + 64;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// A descriptor's bytes.
pub(crate) const DESCRIPTOR: usize = 16;

/// Flags of descriptors.
pub(crate) mod flags {
    /// The chain goes on.
    pub(crate) const NEXT: u16 = 1;
    /// For the device to write.
    pub(crate) const WRITE: u16 = 2;
    /// A table of descriptors lies there.
    pub(crate) const INDIRECT: u16 = 4;
    /// Packed ring: made available, in rounds in which the driver's counter is 1.
    pub(crate) const AVAIL: u16 = 1 << 7;
    /// Packed ring: used, in rounds in which the device's counter is 1.
    pub(crate) const USED: u16 = 1 << 15;
}

/// Where a ring lies and how it is used, as the driver said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Entries.
    pub size: u16,
    /// Packed, not split (`VIRTIO_F_RING_PACKED`).
    pub packed: bool,
    /// Events name a position (`VIRTIO_F_EVENT_IDX`).
    pub event_index: bool,
    /// Descriptors may point to tables (`VIRTIO_F_INDIRECT_DESC`).
    pub indirect: bool,
    /// Address of the descriptors, in the frontend's process.
    pub descriptors: u64,
    /// Address of the driver's area (split: the ring of available chains).
    pub driver: u64,
    /// Address of the device's area (split: the ring of used chains).
    pub device: u64,
    /// Where to begin, as `SET_VRING_BASE` says it.
    pub base: u32,
}

/// Error type for [`Ring::new`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A size that no ring of this kind has.
    #[error("A {kind} ring of {size} entries: it has to be {}", if *.kind == "split" {
        "a power of two up to 32768"
    } else {
        "1 to 32768"
    })]
    Size {
        /// `split` or `packed`.
        kind: &'static str,
        /// Entries.
        size: u16,
    },
    /// A part of it is not where the driver says.
    #[error("The ring's {part} cannot be used")]
    Part {
        /// Which.
        part: &'static str,
        /// Why.
        #[source]
        source: AreaError,
    },
    /// A position outside of the ring.
    #[error("A ring of {size} entries cannot begin at {base:#x}")]
    Base {
        /// Entries.
        size: u16,
        /// As `SET_VRING_BASE` said it.
        base: u32,
    },
}

/// Why a ring is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RingFault {
    /// The index of available chains is further ahead than the ring is long.
    IndexJump = 1,
    /// An available entry names a descriptor that does not exist.
    BadHead = 2,
    /// A packed chain has no end.
    EndlessChain = 3,
}

impl RingFault {
    /// What it is called in events and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IndexJump => "index_jump",
            Self::BadHead => "bad_head",
            Self::EndlessChain => "endless_chain",
        }
    }
}

/// A virtqueue. One thread at a time fetches and completes.
#[derive(Debug)]
pub struct Ring {
    layout: RingLayout,
    /// What comes next, as the layout reads it.
    position: AtomicU32,
    /// 0, or the [`RingFault`].
    fault: AtomicU8,
    /// Chains that were given back since it was set up.
    completed: AtomicU64,
    /// How far the next chain has come that is not given back yet.
    progress: AtomicU32,
}

#[derive(Debug)]
enum RingLayout {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    /// The ring that lies in `memory` as `setup` says.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(memory: &GuestMemory, setup: &Setup) -> Result<Self, SetupError> {
        let (layout, position) = if setup.packed {
            let ring = PackedRing::new(memory, setup)?;
            let position = ring.resume(ring.position_of(setup.base)?);
            (RingLayout::Packed(ring), position)
        } else {
            let ring = SplitRing::new(memory, setup)?;
            // All that was fetched was completed, so the driver's own view of what is
            // used says where to go on, whatever the last backend did.
            let position = ring.used_position();
            (RingLayout::Split(ring), position)
        };
        Ok(Self {
            layout,
            position: AtomicU32::new(position),
            fault: AtomicU8::new(0),
            completed: AtomicU64::new(0),
            progress: AtomicU32::new(0),
        })
    }

    /// Entries.
    #[must_use]
    pub fn size(&self) -> u16 {
        match &self.layout {
            RingLayout::Split(ring) => ring.size(),
            RingLayout::Packed(ring) => ring.size(),
        }
    }

    /// Where it stands, as `GET_VRING_BASE` answers.
    #[must_use]
    pub fn base(&self) -> u32 {
        let position = self.position.load(Ordering::Relaxed);
        match &self.layout {
            RingLayout::Split(_) => position,
            RingLayout::Packed(ring) => ring.base_of(position),
        }
    }

    /// Chains that were given back since it was set up.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// How far the next chain that is to be given back has come, as
    /// [`keep_progress`](Self::keep_progress) was told.
    #[inline]
    #[must_use]
    pub fn progress(&self) -> u32 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Keeps how far the next chain has come that is to be given back, whichever thread fetches
    /// it next: 0 if it is not begun.
    #[inline]
    pub fn keep_progress(&self, progress: u32) {
        self.progress.store(progress, Ordering::Relaxed);
    }

    /// Why it is stopped, if it is.
    #[must_use]
    pub fn fault(&self) -> Option<RingFault> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(RingFault::IndexJump),
            2 => Some(RingFault::BadHead),
            _ => Some(RingFault::EndlessChain),
        }
    }

    /// Stops it.
    pub fn stop(&self, fault: RingFault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Adds up to `count` chains to `chains`: those that follow what is in it, or
    /// what was completed last. A fault is kept in `chains` until what came before it
    /// is dealt with.
    #[inline]
    pub fn fetch<'m>(
        &self,
        memory: &'m GuestMemory,
        direction: Direction,
        count: usize,
        chains: &mut Chains<'m>,
    ) {
        if chains.fault.is_some() || self.fault.load(Ordering::Relaxed) != 0 {
            return;
        }
        if chains.is_empty() {
            chains.position = self.position.load(Ordering::Relaxed);
        }
        let fetched = match &self.layout {
            RingLayout::Split(ring) => ring.fetch(memory, direction, count, chains),
            RingLayout::Packed(ring) => ring.fetch(memory, direction, count, chains),
        };
        chains.fault = fetched.err();
    }

    /// Gives the first of the fetched chains back, as many as there are lengths
    /// (bytes written to each). True if the driver wants to be told.
    #[inline]
    pub fn complete(&self, chains: &[Chain<'_>], written: &[u32]) -> bool {
        if written.is_empty() {
            return false;
        }
        let before = self.position.load(Ordering::Relaxed);
        let chains = &chains[..written.len()];
        let after = match &self.layout {
            RingLayout::Split(ring) => ring.complete(before, chains, written),
            RingLayout::Packed(ring) => ring.complete(before, chains, written),
        };
        self.position.store(after, Ordering::Relaxed);
        // Only whoever completes writes it.
        let completed = self.completed.load(Ordering::Relaxed) + written.len() as u64;
        self.completed.store(completed, Ordering::Relaxed);
        match &self.layout {
            RingLayout::Split(ring) => ring.wants_event(before, after),
            RingLayout::Packed(ring) => ring.wants_event(before, after),
        }
    }

    /// Asks the driver to kick, or not to.
    pub fn ask_for_kicks(&self, wanted: bool) {
        let position = self.position.load(Ordering::Relaxed);
        match &self.layout {
            RingLayout::Split(ring) => ring.ask_for_kicks(wanted, position),
            RingLayout::Packed(ring) => ring.ask_for_kicks(wanted),
        }
    }

    /// True if a chain is available (or the ring's state is one to look at).
    #[must_use]
    pub fn has_work(&self) -> bool {
        let position = self.position.load(Ordering::Relaxed);
        self.fault().is_none()
            && match &self.layout {
                RingLayout::Split(ring) => ring.has_work(position),
                RingLayout::Packed(ring) => ring.has_work(position),
            }
    }

    /// The guest addresses and lengths of what completing writes: for the log of
    /// written pages.
    #[must_use]
    pub fn written_part(&self) -> (u64, usize) {
        match &self.layout {
            RingLayout::Split(ring) => ring.written_part(),
            RingLayout::Packed(ring) => ring.written_part(),
        }
    }
}

/// True if going from `old` to `new` passes `event`.
///
/// Source: VIRTIO 1.2, 2.7.7.2, and `vring_need_event` of Linux.
#[inline]
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
