//! The packed ring: one ring of descriptors, which driver and device take turns
//! to write. A counter of rounds, 1 in the first, says whose turn an entry is.

use super::chain::{Chain, ChainBuilder, Chains, Direction, RingDescriptor, Segments};
use super::packed_position::{PackedPosition, TURN, WRAP};
use super::resume::{ResumeState, RingFlags};
use super::{DESCRIPTOR, LINE, MAX_SIZE, RingFault, Setup, SetupError, flags, passes};
use crate::memory::{Area, Entries, GuestMemory};
use crate::sync::{Ordering, fence};

/// Of event structures: position and wrap counter, then flags.
const EVENT_FLAGS: usize = 2;
const EVENTS_ON: u16 = 0;
const EVENTS_OFF: u16 = 1;
const EVENTS_AT: u16 = 2;

/// How often a ring is looked at while its driver writes to it: one that nobody serves is soon
/// full, and a hostile one that is never in order must not take the control thread's time.
const LOOKS: usize = 4;

/// The flags of a chain of so many descriptors that is given back there: that there are more
/// than one is for who goes on after a death (`resume`).
#[inline]
fn used_flags(at: PackedPosition, slots: u16, bytes: u32) -> u16 {
    let written = if bytes > 0 { flags::WRITE } else { 0 };
    let more = if slots > 1 { flags::NEXT } else { 0 };
    at.used() | written | more
}

#[derive(Debug)]
pub(super) struct PackedRing {
    size: u16,
    indirect: bool,
    descriptors: Entries<DESCRIPTOR>,
    driver: Area,
    device: Area,
}

impl PackedRing {
    pub(super) fn new(memory: &GuestMemory, setup: &Setup) -> Result<Self, SetupError> {
        let size = setup.size;
        if size == 0 || size > MAX_SIZE {
            return Err(SetupError::Size { kind: "packed", size });
        }
        let area = |part, address, length, alignment| {
            Area::new(memory, address, length, alignment)
                .map_err(|source| SetupError::Part { part, source })
        };
        Ok(Self {
            size,
            indirect: setup.indirect,
            descriptors: Entries::descriptors(
                area("descriptors", setup.descriptors, u64::from(size) * 16, 16)?,
                size.into(),
            ),
            driver: area("driver's event area", setup.driver, 4, 4)?,
            device: area("device's event area", setup.device, 4, 4)?,
        })
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// From `SET_VRING_BASE`: the next available entry in the lower half, the next
    /// used one in the upper, each with its counter. They are the same, or the used
    /// one is where a backend that died had come to.
    pub(super) fn position_of(&self, base: u32) -> Result<u32, SetupError> {
        let upper = base >> 16;
        let position = if upper == 0 { base } else { upper };
        if position & (WRAP - 1) >= u32::from(self.size) {
            return Err(SetupError::Base { size: self.size, base });
        }
        Ok(position)
    }

    /// Where a ring goes on that a backend has used before, told to go on from `position`: a
    /// frontend does not know where one was that was killed. What that one had not quite given
    /// back is given back.
    pub(super) fn resume(&self, position: u32) -> u32 {
        let told = PackedPosition::of(position);
        for _ in 0..LOOKS {
            // The newest first: what is written meanwhile is newer than all that was seen.
            let mut flags = vec![0; self.size.into()];
            for (index, flags) in flags.iter_mut().enumerate().rev() {
                *flags = self.flags(index);
            }
            let Some(ring) = RingFlags::new(&flags) else { continue };
            let ResumeState { position, unmarked } = ring.standing(told);
            if let Some((at, slots)) = unmarked {
                let last = at.advance(slots - 1, self.size).index;
                let [_, word] = self.descriptors.load(last.into());
                let id = word >> 32 & 0xffff;
                let word = id << 32 | u64::from(used_flags(at, slots, 0)) << 48;
                self.descriptors.store_second(at.index.into(), word, Ordering::Release);
            }
            return position.position();
        }
        position
    }

    fn flags(&self, index: usize) -> u16 {
        (self.descriptors.second_word(index, Ordering::Acquire) >> 48) as u16
    }

    pub(super) fn base_of(&self, position: u32) -> u32 {
        position | position << 16
    }

    pub(super) fn written_part(&self) -> (u64, usize) {
        (self.descriptors.guest_address(), usize::from(self.size) * DESCRIPTOR)
    }

    /// The second word of the descriptor there, if it is available.
    #[inline]
    fn available(&self, at: PackedPosition) -> Option<u64> {
        let word = self.descriptors.second_word(at.index.into(), Ordering::Acquire);
        ((word >> 48) as u16 & TURN == at.available()).then_some(word)
    }

    #[inline]
    pub(super) fn fetch<'m>(
        &self,
        memory: &'m GuestMemory,
        direction: Direction,
        count: usize,
        chains: &mut Chains<'m>,
    ) -> Result<(), RingFault> {
        let mut at = PackedPosition::of(chains.position);
        if count == 0 || self.available(at).is_none() {
            return Ok(());
        }
        let (places, segments) = chains.make_room(count);
        let (mut done, mut fault) = (0, Ok(()));
        for place in places {
            let Some(word) = self.available(at) else { break };
            if done == 0 || usize::from(at.index).is_multiple_of(LINE / DESCRIPTOR) {
                // What is available is written when it is given back.
                self.descriptors.prefetch_write(at.index.into());
            }
            let first = self.descriptors.first_word(at.index.into());
            let descriptor = RingDescriptor::packed([first, word]);
            let mut slots = 1;
            if descriptor.has(flags::NEXT | flags::INDIRECT) {
                match self.walk(memory, direction, at, descriptor, segments) {
                    Ok(chain) => {
                        slots = chain.slots;
                        *place = chain;
                    }
                    Err(error) => {
                        fault = Err(error);
                        break;
                    }
                }
            } else {
                *place = Chain::of_one(memory, direction, descriptor, descriptor.link);
            }
            at = at.advance(slots, self.size);
            done += 1;
        }
        chains.drop_last(count - done);
        chains.position = at.position();
        fault
    }

    /// Puts a chain together whose `first` descriptor, there, is not all of it.
    fn walk<'m>(
        &self,
        memory: &'m GuestMemory,
        direction: Direction,
        at: PackedPosition,
        first: RingDescriptor,
        segments: &mut Segments<'m>,
    ) -> Result<Chain<'m>, RingFault> {
        if first.has(flags::INDIRECT) && !first.has(flags::NEXT) && self.indirect && self.size > 1 {
            let two = Chain::of_table_of_two(memory, direction, first, false, first.link);
            if let Some(chain) = two {
                return Ok(chain);
            }
        }
        let mut descriptor = first;
        let mut slots = 1;
        let mut builder = ChainBuilder::new(memory, direction, segments);
        loop {
            if descriptor.has(flags::INDIRECT) {
                if self.indirect && !descriptor.has(flags::NEXT) && slots == 1 {
                    builder.take_table(descriptor, false, self.size);
                } else {
                    builder.spoil();
                }
            } else if builder.is_sound() {
                builder.take(descriptor);
            }
            if !descriptor.has(flags::NEXT) {
                return Ok(builder.finish(descriptor.link, slots));
            }
            if slots == self.size {
                // Where the next one begins, nobody knows.
                builder.spoil();
                builder.finish(descriptor.link, slots);
                return Err(RingFault::EndlessChain);
            }
            let next = at.advance(slots, self.size).index;
            descriptor = RingDescriptor::packed(self.descriptors.load(next.into()));
            slots += 1;
        }
    }

    /// The first one is given back last: a driver that waits for it sees all of them at
    /// once, and takes no line away that is still written to.
    #[inline]
    pub(super) fn complete(&self, position: u32, chains: &[Chain<'_>], written: &[u32]) -> u32 {
        let used = |at: PackedPosition, chain: &Chain<'_>, bytes: u32| {
            let flags = used_flags(at, chain.slots, bytes);
            u64::from(bytes) | u64::from(chain.id) << 32 | u64::from(flags) << 48
        };
        let mut all = chains.iter().zip(written);
        let Some((chain, &bytes)) = all.next() else { return position };
        let first = PackedPosition::of(position);
        let first_word = used(first, chain, bytes);
        let mut at = first.advance(chain.slots, self.size);
        for (chain, &bytes) in all {
            let word = used(at, chain, bytes);
            self.descriptors.store_second(at.index.into(), word, Ordering::Relaxed);
            at = at.advance(chain.slots, self.size);
        }
        self.descriptors.store_second(first.index.into(), first_word, Ordering::Release);
        at.position()
    }

    #[inline]
    pub(super) fn wants_event(&self, before: u32, after: u32) -> bool {
        fence(Ordering::SeqCst);
        match self.driver.load_u16(EVENT_FLAGS, Ordering::Relaxed) {
            EVENTS_OFF => false,
            EVENTS_AT => {
                let at = self.driver.load_u16(0, Ordering::Relaxed);
                let [mut old, new] =
                    [before, after].map(|position| PackedPosition::of(position).index);
                if new <= old {
                    old = old.wrapping_sub(self.size);
                }
                let mut event = at & (WRAP as u16 - 1);
                if (at & WRAP as u16 != 0) != (after & WRAP != 0) {
                    event = event.wrapping_sub(self.size);
                }
                passes(event, new, old)
            }
            _ => true,
        }
    }

    pub(super) fn ask_for_kicks(&self, wanted: bool) {
        let flags = if wanted { EVENTS_ON } else { EVENTS_OFF };
        self.device.store_u16(EVENT_FLAGS, flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn has_work(&self, position: u32) -> bool {
        self.available(PackedPosition::of(position)).is_some()
    }
}
