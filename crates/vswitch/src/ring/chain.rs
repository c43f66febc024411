//! Chains of descriptors, checked and translated.

use smallvec::SmallVec;

use super::{DESCRIPTOR, MAX_CHAIN_BYTES, RingFault, flags};
use crate::memory::{GuestBuffer, GuestMemory};

/// Whether the device reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver sends: chains to read.
    Transmit,
    /// The driver receives: chains to write.
    Receive,
}

/// Segments that a chain holds itself: drivers that send give the header one and the frame
/// another, or both the same.
const OWN: usize = 2;

/// One chain: a few segments, or a range of those beside it.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'m> {
    /// If there are no more.
    own: [GuestBuffer<'m>; OWN],
    /// The first of more.
    first: u32,
    /// How many segments; 0 if it makes no sense, and is to be given back unused.
    segments: u16,
    /// What the driver knows it by: the head's index, or the buffer id.
    pub id: u16,
    /// Descriptors of the ring that it takes.
    pub slots: u16,
    /// Bytes of all segments; [`u32::MAX`] if they are more.
    pub bytes: u32,
}

impl<'m> Chain<'m> {
    /// Of these segments, one or two.
    #[inline(always)]
    fn of(own: [GuestBuffer<'m>; OWN], segments: u16, bytes: u32, (id, slots): (u16, u16)) -> Self {
        Self { own, first: 0, segments, id, slots, bytes }
    }

    /// One that makes no sense.
    #[inline(always)]
    fn malformed((id, slots): (u16, u16)) -> Self {
        Self::of([GuestBuffer::EMPTY; OWN], 0, 0, (id, slots))
    }

    /// Of one descriptor, which is no table, judged as [`ChainBuilder::take`] does.
    #[inline(always)]
    pub(super) fn of_one(
        memory: &'m GuestMemory,
        direction: Direction,
        descriptor: RingDescriptor,
        id: u16,
    ) -> Self {
        let bytes = descriptor.length;
        match descriptor.segment(memory, direction) {
            Some(segment) if direction.allows(bytes.into()) => {
                Self::of([segment, GuestBuffer::EMPTY], 1, bytes, (id, 1))
            }
            _ => Self::malformed((id, 1)),
        }
    }

    /// The same of two.
    #[inline(always)]
    pub(super) fn of_two(
        memory: &'m GuestMemory,
        direction: Direction,
        descriptors: [RingDescriptor; 2],
        id_and_slots: (u16, u16),
    ) -> Self {
        let [first, second] = descriptors;
        let bytes = u64::from(first.length) + u64::from(second.length);
        match (first.segment(memory, direction), second.segment(memory, direction)) {
            (Some(first), Some(second)) if direction.allows(bytes) => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                Self::of([first, second], 2, bytes, id_and_slots)
            }
            _ => Self::malformed(id_and_slots),
        }
    }

    /// Of a table of two descriptors, which are `linked` as in a split ring or follow each
    /// other. None if the table is another one: what was read of it is forgotten then.
    #[inline(always)]
    pub(super) fn of_table_of_two(
        memory: &'m GuestMemory,
        direction: Direction,
        table: RingDescriptor,
        linked: bool,
        id: u16,
    ) -> Option<Self> {
        if table.length as usize != 2 * DESCRIPTOR {
            return None;
        }
        let words: [u64; 4] = memory.at(table.address, 2 * DESCRIPTOR)?.bytes().words()?;
        let read = if linked { RingDescriptor::split } else { RingDescriptor::packed };
        let [first, second] = [read([words[0], words[1]]), read([words[2], words[3]])];
        let follows = first.has(flags::NEXT) && first.link == 1 && !second.has(flags::NEXT);
        if linked && !follows || first.has(flags::INDIRECT) || second.has(flags::INDIRECT) {
            return None;
        }
        Some(Self::of_two(memory, direction, [first, second], (id, 1)))
    }

    /// Its segment, if it has one alone.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<GuestBuffer<'m>> {
        (self.segments == 1).then_some(self.own[0])
    }

    /// True if the driver made a mistake: there is nothing to read or write.
    #[must_use]
    pub fn is_malformed(self) -> bool {
        self.segments == 0
    }
}

impl Direction {
    /// True if a chain may have as many bytes. Receivers may give buffers as large as they
    /// like; only senders make frames.
    #[inline]
    fn allows(self, bytes: u64) -> bool {
        self == Self::Receive || bytes <= MAX_CHAIN_BYTES
    }
}

/// Segments of chains that have more than they hold themselves.
pub(super) type Segments<'m> = SmallVec<[GuestBuffer<'m>; 64]>;

/// A burst of chains.
#[derive(Debug)]
pub struct Chains<'m> {
    /// In the order in which the driver made them available.
    pub chains: SmallVec<[Chain<'m>; 64]>,
    pub(super) segments: Segments<'m>,
    /// Where the next one is.
    pub(super) position: u32,
    /// What is wrong with the ring after them.
    pub fault: Option<RingFault>,
}

impl Default for Chains<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'m> Chains<'m> {
    /// None yet.
    #[inline(always)]
    #[must_use]
    pub fn new() -> Self {
        // In place: one that is made elsewhere is copied with all its room for chains.
        Self { chains: SmallVec::new(), segments: SmallVec::new(), position: 0, fault: None }
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
        self.segments_of(&self.chains[number])
    }

    /// The segments of `chain`, which is one of these.
    #[inline]
    #[must_use]
    pub fn segments_of<'c>(&'c self, chain: &'c Chain<'m>) -> &'c [GuestBuffer<'m>] {
        let count = usize::from(chain.segments);
        match chain.own.get(..count) {
            Some(own) => own,
            None => &self.segments[chain.first as usize..][..count],
        }
    }

    /// Places for `count` more chains, to be written in order, and the segments of those
    /// that have several. What is not written is to be taken away by
    /// [`drop_last`](Self::drop_last).
    #[inline(always)]
    pub(super) fn make_room(&mut self, count: usize) -> (&mut [Chain<'m>], &mut Segments<'m>) {
        let before = self.chains.len();
        self.chains.resize(before + count, Chain::malformed((0, 0)));
        (&mut self.chains[before..], &mut self.segments)
    }

    /// Takes the last `count` chains away.
    #[inline]
    pub(super) fn drop_last(&mut self, count: usize) {
        self.chains.truncate(self.chains.len() - count);
    }

    /// Adds a chain of one segment that is in no ring.
    pub(crate) fn push_own(&mut self, segment: GuestBuffer<'m>) {
        let own = [segment, GuestBuffer::EMPTY];
        self.chains.push(Chain::of(own, 1, segment.len() as u32, (0, 0)));
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

    /// True if it has any of these flags.
    #[inline]
    pub(super) fn has(self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// What it points to, if that is in memory, not empty, and for the device to use as
    /// `direction` says. It begins to come nearer.
    #[inline]
    fn segment<'m>(self, memory: &'m GuestMemory, direction: Direction) -> Option<GuestBuffer<'m>> {
        let writes = direction == Direction::Receive;
        if self.length == 0 || self.has(flags::WRITE) != writes {
            return None;
        }
        let segment = memory.at(self.address, self.length as usize)?;
        if writes {
            segment.prefetch(2);
        } else {
            segment.bytes().prefetch(2);
        }
        Some(segment)
    }
}

/// A chain that is being put together.
pub(super) struct ChainBuilder<'m, 'c> {
    memory: &'m GuestMemory,
    segments: &'c mut Segments<'m>,
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
        segments: &'c mut Segments<'m>,
    ) -> Self {
        let first = segments.len();
        Self { memory, segments, direction, first, bytes: 0, sound: true }
    }

    /// Takes in a descriptor that is not a table.
    #[inline]
    pub(super) fn take(&mut self, descriptor: RingDescriptor) {
        self.bytes += u64::from(descriptor.length);
        let fits = self.direction.allows(self.bytes);
        match descriptor.segment(self.memory, self.direction).filter(|_| fits) {
            Some(segment) => self.segments.push(segment),
            None => self.sound = false,
        }
    }

    /// Takes in a table of descriptors, which are `linked` as in a split ring or follow each
    /// other.
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
    pub(super) fn finish(self, id: u16, slots: u16) -> Chain<'m> {
        let id_and_slots = (id, slots);
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let chain = match &self.segments[self.first..] {
            _ if !self.sound => Chain::malformed(id_and_slots),
            &[only] => Chain::of([only, GuestBuffer::EMPTY], 1, bytes, id_and_slots),
            &[first, second] => Chain::of([first, second], 2, bytes, id_and_slots),
            more => {
                let (first, segments) = (self.first as u32, more.len() as u16);
                let own = [GuestBuffer::EMPTY; OWN];
                return Chain { own, first, segments, id, slots, bytes };
            }
        };
        self.segments.truncate(self.first);
        chain
    }
}
