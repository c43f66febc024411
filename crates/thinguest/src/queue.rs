//! A split virtqueue of one chain of descriptors, as the driver's side has it.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 2.7.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Descriptors of a queue.
pub const QUEUE_SIZE: u16 = 8;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const NO_INTERRUPT: u16 = 1;

/// What the device may read, or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its physical address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u32,
    /// True if the device writes it.
    pub is_written: bool,
}

/// What a look at the used ring finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedRingState {
    /// The device has not answered yet.
    NotYet,
    /// It gave the chain back, and says that it wrote so many bytes.
    Back(u32),
    /// What it says can't be: an index or a chain that was not given to it.
    Lie,
}

#[repr(C, align(16))]
#[derive(Debug)]
struct Descriptor {
    address: AtomicU64,
    bytes: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

#[repr(C, align(2))]
#[derive(Debug)]
struct AvailableRing {
    flags: AtomicU16,
    index: AtomicU16,
    ring: [AtomicU16; QUEUE_SIZE as usize],
}

#[repr(C, align(4))]
#[derive(Debug)]
struct UsedRing {
    flags: AtomicU16,
    index: AtomicU16,
    ring: [[AtomicU32; 2]; QUEUE_SIZE as usize],
}

/// The memory that driver and device share. All of it is atomic, as the device changes it
/// whenever it likes.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Queue {
    descriptors: [Descriptor; QUEUE_SIZE as usize],
    available: AvailableRing,
    used: UsedRing,
}

impl Queue {
    /// An empty one.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it is a static's value")]
    pub const fn new() -> Self {
        Self {
            descriptors: [const {
                Descriptor {
                    address: AtomicU64::new(0),
                    bytes: AtomicU32::new(0),
                    flags: AtomicU16::new(0),
                    next: AtomicU16::new(0),
                }
            }; QUEUE_SIZE as usize],
            available: AvailableRing {
                flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                ring: [const { AtomicU16::new(0) }; QUEUE_SIZE as usize],
            },
            used: UsedRing {
                flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                ring: [const { [const { AtomicU32::new(0) }; 2] }; QUEUE_SIZE as usize],
            },
        }
    }

    /// Where its three parts lie: descriptors, available ring, used ring.
    #[must_use]
    pub fn addresses(&self) -> [u64; 3] {
        let at = |offset: usize| (&raw const *self as usize + offset) as u64;
        [
            at(core::mem::offset_of!(Self, descriptors)),
            at(core::mem::offset_of!(Self, available)),
            at(core::mem::offset_of!(Self, used)),
        ]
    }

    /// Makes it empty, with a chain of `pieces`, at most [`QUEUE_SIZE`], that is given to
    /// no device yet. The device has been reset.
    pub fn begin(&self, pieces: &[Piece], interrupts: bool) {
        let last = pieces.len().min(self.descriptors.len()).saturating_sub(1);
        for ((index, piece), descriptor) in (0..).zip(pieces).zip(&self.descriptors) {
            let mut flags = if piece.is_written { WRITE } else { 0 };
            if usize::from(index) < last {
                flags |= NEXT;
            }
            descriptor.address.store(piece.address, Ordering::Relaxed);
            descriptor.bytes.store(piece.bytes, Ordering::Relaxed);
            descriptor.flags.store(flags, Ordering::Relaxed);
            descriptor.next.store(index + 1, Ordering::Relaxed);
        }
        let flags = if interrupts { 0 } else { NO_INTERRUPT };
        self.available.flags.store(flags, Ordering::Relaxed);
        self.available.index.store(0, Ordering::Relaxed);
        self.used.index.store(0, Ordering::SeqCst);
    }

    /// Gives the chain to the device, which has none.
    pub fn give(&self) {
        let index = self.available.index.load(Ordering::Relaxed);
        self.available.ring[usize::from(index % QUEUE_SIZE)].store(0, Ordering::Relaxed);
        self.available.index.store(index.wrapping_add(1), Ordering::Release);
        // The device sees it before it is told of it.
        fence(Ordering::SeqCst);
    }

    /// Whether the device gave the chain back.
    #[must_use]
    pub fn used(&self) -> UsedRingState {
        let given = self.available.index.load(Ordering::Relaxed);
        let back = self.used.index.load(Ordering::Acquire);
        if back == given.wrapping_sub(1) {
            return UsedRingState::NotYet;
        }
        let [chain, bytes] = &self.used.ring[usize::from(given.wrapping_sub(1) % QUEUE_SIZE)];
        if back != given || chain.load(Ordering::Relaxed) != 0 {
            return UsedRingState::Lie;
        }
        UsedRingState::Back(bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A device that answers with an index and a chain.
    fn answer(queue: &Queue, index: u16, chain: u32, bytes: u32) {
        let slot = &queue.used.ring[usize::from(index.wrapping_sub(1) % QUEUE_SIZE)];
        slot[0].store(chain, Ordering::Relaxed);
        slot[1].store(bytes, Ordering::Relaxed);
        queue.used.index.store(index, Ordering::Release);
    }

    fn begun() -> Queue {
        let queue = Queue::new();
        let piece = |bytes, is_written| Piece { address: 64, bytes, is_written };
        queue.begin(&[piece(16, false), piece(20, true), piece(1, true)], true);
        queue
    }

    #[test]
    fn the_layout_is_the_standard_s() {
        let queue = begun();
        let [descriptors, available, used] = queue.addresses();
        assert_eq!((descriptors % 16, available % 2, used % 4), (0, 0, 0));
        assert_eq!(available - descriptors, 16 * u64::from(QUEUE_SIZE));
        assert!(used - available >= 4 + 2 * u64::from(QUEUE_SIZE));
        assert_eq!(size_of::<UsedRing>(), 4 + 8 * usize::from(QUEUE_SIZE));
        let flags = |at: usize| queue.descriptors[at].flags.load(Ordering::Relaxed);
        assert_eq!([flags(0), flags(1), flags(2)], [NEXT, NEXT | WRITE, WRITE]);
        assert_eq!(queue.descriptors[1].next.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_chain_goes_and_comes_back_more_often_than_the_index_has_values() {
        let queue = begun();
        for round in 1..=70_000_u32 {
            queue.give();
            assert_eq!(queue.used(), UsedRingState::NotYet);
            answer(&queue, round as u16, 0, round);
            assert_eq!(queue.used(), UsedRingState::Back(round));
        }
    }

    proptest! {
        #[test]
        fn a_device_that_lies_is_found_out(index in any::<u16>(), chain in any::<u32>()) {
            let queue = begun();
            queue.give();
            answer(&queue, index, chain, 1);
            let expected = match (index, chain) {
                (0, _) => UsedRingState::NotYet,
                (1, 0) => UsedRingState::Back(1),
                _ => UsedRingState::Lie,
            };
            prop_assert_eq!(queue.used(), expected);
        }
    }
}
