//! The split ring: a table of descriptors, a ring of available heads, a ring of
//! used ones.

use super::chain::{Chain, ChainBuilder, Chains, Direction, RingDescriptor, Segments};
use super::{DESCRIPTOR, LINE, MAX_SIZE, RingFault, Setup, SetupError, flags, passes};
use crate::memory::{Area, Entries, GuestMemory};
use crate::sync::{Ordering, fence};

/// In the available ring: the driver wants no events.
const NO_INTERRUPT: u16 = 1;
/// In the used ring: the device wants no kicks.
const NO_NOTIFY: u16 = 1;
/// Both rings: flags, index, then the entries.
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const AVAILABLE: usize = 2;
const USED: usize = 8;

#[derive(Debug)]
pub(super) struct SplitRing {
    size: u16,
    event_index: bool,
    indirect: bool,
    descriptors: Entries<DESCRIPTOR>,
    available: Area,
    heads: Entries<AVAILABLE>,
    used: Area,
    used_entries: Entries<USED>,
}

impl SplitRing {
    pub(super) fn new(memory: &GuestMemory, setup: &Setup) -> Result<Self, SetupError> {
        let size = setup.size;
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(SetupError::Size { kind: "split", size });
        }
        let entries = u64::from(size);
        let area = |part, address, length, alignment| {
            Area::new(memory, address, length, alignment)
                .map_err(|source| SetupError::Part { part, source })
        };
        // The last two bytes of each are the event index; drivers leave room for
        // them whether it is used or not.
        let event = 2;
        let descriptors = area("descriptors", setup.descriptors, entries * 16, 16)?;
        let available = area("available ring", setup.driver, 4 + entries * 2 + event, 2)?;
        let used = area("used ring", setup.device, 4 + entries * 8 + event, 4)?;
        Ok(Self {
            size,
            event_index: setup.event_index,
            indirect: setup.indirect,
            descriptors: Entries::descriptors(descriptors, size.into()),
            heads: Entries::heads(available.clone(), ENTRIES, size.into()),
            available,
            used_entries: Entries::used(used.clone(), ENTRIES, size.into()),
            used,
        })
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    pub(super) fn used_position(&self) -> u32 {
        u32::from(self.used.load_u16(INDEX, Ordering::Acquire))
    }

    pub(super) fn written_part(&self) -> (u64, usize) {
        (self.used.guest_address(), ENTRIES + usize::from(self.size) * USED)
    }

    #[inline]
    fn slot(&self, position: u16) -> usize {
        usize::from(position & (self.size - 1))
    }

    #[inline]
    pub(super) fn fetch<'m>(
        &self,
        memory: &'m GuestMemory,
        direction: Direction,
        count: usize,
        chains: &mut Chains<'m>,
    ) -> Result<(), RingFault> {
        let position = chains.position as u16;
        let ready = self.available.load_u16(INDEX, Ordering::Acquire).wrapping_sub(position);
        if ready > self.size {
            return Err(RingFault::IndexJump);
        }
        let count = count.min(usize::from(ready)) as u16;
        for i in 0..count {
            // Looked at again below: a hint may be wrong.
            self.descriptors.prefetch(self.slot(self.head(position.wrapping_add(i))));
        }
        if self.indirect {
            self.prefetch_tables(memory, position, count);
        }
        for i in (0..count).step_by(LINE / USED) {
            self.used_entries.prefetch_write(self.slot(position.wrapping_add(i)));
        }
        let (places, segments) = chains.make_room(count.into());
        let mut done = 0;
        for place in places {
            let head = self.head(position.wrapping_add(done));
            if head >= self.size {
                break;
            }
            let descriptor = RingDescriptor::split(self.descriptors.load(head.into()));
            // Each by itself: what is put together elsewhere and copied here waits for itself.
            if descriptor.has(flags::NEXT | flags::INDIRECT) {
                *place = self.walk(memory, direction, head, descriptor, segments);
            } else {
                *place = Chain::of_one(memory, direction, descriptor, head);
            }
            done += 1;
        }
        chains.position = u32::from(position.wrapping_add(done));
        if done < count {
            chains.drop_last((count - done).into());
            return Err(RingFault::BadHead);
        }
        Ok(())
    }

    /// The head at a position.
    #[inline]
    fn head(&self, position: u16) -> u16 {
        self.heads.load(self.slot(position))
    }

    /// Has the tables of chains come nearer, as far as they have some: a driver that uses
    /// them does so all the time.
    #[inline]
    fn prefetch_tables(&self, memory: &GuestMemory, position: u16, count: u16) {
        for i in 0..count {
            let head = self.head(position.wrapping_add(i));
            let table = RingDescriptor::split(self.descriptors.load(self.slot(head)));
            if !table.has(flags::INDIRECT) {
                return;
            }
            if let Some(table) = memory.at(table.address, table.length as usize) {
                table.bytes().prefetch(2);
            }
        }
    }

    /// Puts a chain together whose `first` descriptor, at `head`, is not all of it.
    fn walk<'m>(
        &self,
        memory: &'m GuestMemory,
        direction: Direction,
        head: u16,
        first: RingDescriptor,
        segments: &mut Segments<'m>,
    ) -> Chain<'m> {
        if first.has(flags::INDIRECT) && !first.has(flags::NEXT) && self.indirect {
            let two = Chain::of_table_of_two(memory, direction, first, true, head);
            if let Some(chain) = two.filter(|_| self.size > 1) {
                return chain;
            }
        }
        let linked = |descriptor: RingDescriptor| {
            let is_there = descriptor.has(flags::NEXT) && descriptor.link < self.size;
            is_there.then(|| RingDescriptor::split(self.descriptors.load(descriptor.link.into())))
        };
        let mut second = linked(first);
        if let Some(second) = second
            && !first.has(flags::INDIRECT)
            && !second.has(flags::NEXT | flags::INDIRECT)
            && self.size > 1
        {
            return Chain::of_two(memory, direction, [first, second], (head, 1));
        }
        let mut builder = ChainBuilder::new(memory, direction, segments);
        let mut descriptor = first;
        let mut left = self.size;
        loop {
            if descriptor.has(flags::INDIRECT) {
                // A table ends the chain.
                if self.indirect && !descriptor.has(flags::NEXT) {
                    builder.take_table(descriptor, true, left);
                } else {
                    builder.spoil();
                }
                break;
            }
            builder.take(descriptor);
            left -= 1;
            if !descriptor.has(flags::NEXT) || !builder.is_sound() {
                break;
            }
            // A chain that is longer than the ring goes round in it.
            match second.take().or_else(|| linked(descriptor)).filter(|_| left > 0) {
                Some(next) => descriptor = next,
                None => {
                    builder.spoil();
                    break;
                }
            }
        }
        builder.finish(head, 1)
    }

    #[inline]
    pub(super) fn complete(&self, position: u32, chains: &[Chain<'_>], written: &[u32]) -> u32 {
        let mut position = position as u16;
        for (chain, &bytes) in chains.iter().zip(written) {
            self.used_entries.store(self.slot(position), [u32::from(chain.id), bytes]);
            position = position.wrapping_add(1);
        }
        self.used.store_u16(INDEX, position, Ordering::Release);
        u32::from(position)
    }

    /// The driver's wish is read after the index is seen by it, or both could wait
    /// for each other.
    #[inline]
    pub(super) fn wants_event(&self, before: u32, after: u32) -> bool {
        fence(Ordering::SeqCst);
        if self.event_index {
            let offset = ENTRIES + usize::from(self.size) * AVAILABLE;
            let event = self.available.load_u16(offset, Ordering::Relaxed);
            passes(event, after as u16, before as u16)
        } else {
            self.available.load_u16(0, Ordering::Relaxed) & NO_INTERRUPT == 0
        }
    }

    pub(super) fn ask_for_kicks(&self, wanted: bool, position: u32) {
        if self.event_index {
            if wanted {
                let offset = ENTRIES + usize::from(self.size) * USED;
                self.used.store_u16(offset, position as u16, Ordering::Relaxed);
            }
        } else {
            self.used.store_u16(0, if wanted { 0 } else { NO_NOTIFY }, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    pub(super) fn has_work(&self, position: u32) -> bool {
        self.available.load_u16(INDEX, Ordering::Acquire) != position as u16
    }
}
