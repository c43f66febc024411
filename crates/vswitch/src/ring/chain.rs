//! Chains of descriptors, checked and translated.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::{DESCRIPTOR, RingFault, flags};
use crate::memory::{GuestBuffer, GuestMemory};

/// Bytes of one frame with its header, the largest that segmentation offload makes.
pub(crate) const MAX_CHAIN_BYTES: u64 = 65536 + 64;

/// Whether the device reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver sends: chains to read.
    Transmit,
    /// The driver receives: chains to write.
    Receive,
}

/// One chain: a range of the segments beside it.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// What the driver knows it by: the head's index, or the buffer id.
    pub id: u16,
    /// Descriptors of the ring that it takes.
    pub slots: u16,
    /// Its first segment.
    pub first: u32,
    /// How many segments; 0 if it makes no sense, and is to be given back unused.
    pub segments: u16,
    /// Bytes of all of them.
    pub bytes: u32,
}

impl Chain {
    /// True if the driver made a mistake: there is nothing to read or write.
    #[must_use]
    pub fn is_malformed(self) -> bool {
        self.segments == 0
    }
}

/// A burst of chains.
#[derive(Debug, Default)]
pub struct Chains<'m> {
    /// In the order in which the driver made them available.
    pub chains: SmallVec<[Chain; 64]>,
    segments: SmallVec<[GuestBuffer<'m>; 64]>,
    /// Where the next one is.
    pub(super) position: u32,
    /// What is wrong with the ring after them.
    pub fault: Option<RingFault>,
}

impl<'m> Chains<'m> {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// True without a chain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The segments of the chain of this number.
    #[inline]
    #[must_use]
    pub fn segments(&self, number: usize) -> &[GuestBuffer<'m>] {
        self.segments_of(self.chains[number])
    }

    /// The segments of `chain`, which is one of these.
    #[inline]
    #[must_use]
    pub fn segments_of(&self, chain: Chain) -> &[GuestBuffer<'m>] {
        let first = chain.first as usize;
        &self.segments[first..first + usize::from(chain.segments)]
    }

    /// Adds a chain of one segment that is in no ring.
    pub(crate) fn push_own(&mut self, segment: GuestBuffer<'m>) {
        let first = self.segments.len();
        self.segments.push(segment);
        self.push_chain(0, 1, first, segment.len() as u64, true);
    }

    #[inline]
    fn push_chain(&mut self, id: u16, slots: u16, first: usize, bytes: u64, sound: bool) {
        if !sound {
            self.segments.truncate(first);
        }
        let segments = self.segments.len() - first;
        self.chains.push(Chain {
            id,
            slots,
            first: first as u32,
            segments: segments as u16,
            bytes: if sound { bytes as u32 } else { 0 },
        });
    }
}

/// A descriptor's copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingDescriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
    /// Split: the next one's index. Packed: the buffer id.
    pub(super) link: u16,
}

impl RingDescriptor {
    /// From the two words of a split ring's descriptor: address; length, flags, next.
    #[inline]
    pub(super) fn split(words: [u64; 2]) -> Self {
        Self {
            address: words[0],
            length: words[1] as u32,
            flags: (words[1] >> 32) as u16,
            link: (words[1] >> 48) as u16,
        }
    }

    /// From the two words of a packed ring's: address; length, buffer id, flags.
    #[inline]
    pub(super) fn packed(words: [u64; 2]) -> Self {
        Self {
            address: words[0],
            length: words[1] as u32,
            link: (words[1] >> 32) as u16,
            flags: (words[1] >> 48) as u16,
        }
    }

    #[inline]
    pub(super) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A chain that is being put together.
pub(super) struct ChainBuilder<'m, 'c> {
    memory: &'m GuestMemory,
    chains: &'c mut Chains<'m>,
    direction: Direction,
    first: usize,
    bytes: u64,
    sound: bool,
}

impl<'m, 'c> ChainBuilder<'m, 'c> {
    #[inline]
    pub(super) fn new(
        memory: &'m GuestMemory,
        direction: Direction,
        chains: &'c mut Chains<'m>,
    ) -> Self {
        let first = chains.segments.len();
        Self { memory, chains, direction, first, bytes: 0, sound: true }
    }

    /// Takes in a descriptor that is not a table.
    #[inline]
    pub(super) fn take(&mut self, descriptor: RingDescriptor) {
        let writes = self.direction == Direction::Receive;
        let length = descriptor.length as usize;
        self.bytes += u64::from(descriptor.length);
        let segment = self.memory.at(descriptor.address, length);
        // Receivers may give buffers as large as they like; only senders make frames.
        let too_long = !writes && self.bytes > MAX_CHAIN_BYTES;
        match segment {
            Some(segment) if descriptor.has(flags::WRITE) == writes && length > 0 && !too_long => {
                if writes {
                    segment.prefetch(2);
                } else {
                    segment.bytes().prefetch(2);
                }
                self.chains.segments.push(segment);
            }
            _ => self.sound = false,
        }
    }

    /// Takes in a table of descriptors; `next` says how they follow each other.
    pub(super) fn take_table(&mut self, table: RingDescriptor, linked: bool, limit: u16) {
        let bytes = table.length as usize;
        let count = bytes / DESCRIPTOR;
        let span = self.memory.at(table.address, bytes);
        let Some(span) = span.filter(|_| bytes.is_multiple_of(DESCRIPTOR) && count > 0) else {
            self.sound = false;
            return;
        };
        // A table may be longer than the ring; what is used of it may not.
        let mut index = 0;
        for _ in 0..limit {
            let words = span.bytes().after(index * DESCRIPTOR).words();
            let words = words.expect("a whole descriptor, as the index is below their count");
            let descriptor =
                if linked { RingDescriptor::split(words) } else { RingDescriptor::packed(words) };
            if descriptor.has(flags::INDIRECT) {
                self.sound = false;
            } else {
                self.take(descriptor);
            }
            if !self.sound {
                return;
            }
            let next = if linked {
                descriptor.has(flags::NEXT).then_some(usize::from(descriptor.link))
            } else {
                Some(index + 1).filter(|&next| next < count)
            };
            match next {
                None => return,
                Some(next) if next >= count => break,
                Some(next) => index = next,
            }
        }
        self.sound = false;
    }

    /// It makes no sense.
    #[inline]
    pub(super) fn spoil(&mut self) {
        self.sound = false;
    }

    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Ends it.
    #[inline]
    pub(super) fn finish(self, id: u16, slots: u16) {
        self.chains.push_chain(id, slots, self.first, self.bytes, self.sound);
    }
}

/// The two words of the descriptor at `offset`, each read once.
#[inline]
pub(super) fn words(area: &crate::memory::Area, offset: usize) -> [u64; 2] {
    [area.load_u64(offset, Ordering::Relaxed), area.load_u64(offset + 8, Ordering::Relaxed)]
}
