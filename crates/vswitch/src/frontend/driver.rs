//! The driver's half of a virtqueue, split or packed, with fixed buffers: slot n
//! of a ring always means buffer n.
//!
//! Source: VIRTIO 1.2, sections 2.7 and 2.8.

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use super::FrontendOptions;
use crate::memory::{Area, Entries, GuestBuffer, GuestMemory};
use crate::message::features;
use crate::ring::{DESCRIPTOR, flags};

/// How a frame and its header are laid out in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorLayout {
    /// Buffers to receive in, one descriptor each.
    Receive,
    /// Header and frame in one descriptor.
    Single,
    /// The header in one, the frame in another.
    Two,
    /// A table of two, header and frame.
    Indirect,
}

/// Room for a table of two.
const TABLE: u64 = 32;
/// Bytes of the header before each frame.
const HEADER: u32 = 12;

/// Bytes that a ring and its buffers take.
pub(super) fn bytes(size: u16, buffer: u32) -> u64 {
    offsets(size).2 + u64::from(size) * u64::from(buffer)
}

/// Where driver area, device area and buffers begin (tables lie before buffers).
fn offsets(size: u16) -> (u64, u64, u64) {
    let size = u64::from(size);
    let line = |bytes: u64| bytes.next_multiple_of(4096);
    let driver = line(size * 16);
    let device = driver + line(6 + size * 2);
    let tables = device + line(6 + size * 8);
    (driver, device, tables + line(size * TABLE))
}

/// A ring, as the driver has it.
#[derive(Debug)]
pub struct DriverRing {
    size: u16,
    /// Of places in a split ring.
    mask: usize,
    packed: bool,
    event_index: bool,
    shape: DescriptorLayout,
    buffer: u32,
    begin: u64,
    memory: GuestMemory,
    descriptors: Area,
    driver: Area,
    device: Area,
    /// What lies in the three.
    table: Entries<DESCRIPTOR>,
    heads: Entries<2>,
    used: Entries<8>,
    buffers: Area,
    kick: OwnedFd,
    call: OwnedFd,
    /// Of a split ring to receive with: slots whose descriptors are written.
    described: Vec<bool>,
    /// Slots that the device does not have.
    free: Vec<u16>,
    /// Split: the index of the next available entry. Packed: its place. Words of 32 bits,
    /// here and below, as compilers read 16 bits together with their neighbours: such a
    /// read waits for all writes before it.
    next: u32,
    next_used: u32,
    /// Packed: the driver's and the device's round.
    wrap: bool,
    used_wrap: bool,
    /// Where it stood when it kicked last.
    kicked: u32,
}

impl DriverRing {
    pub(super) fn new(
        memory: &GuestMemory,
        begin: u64,
        options: &FrontendOptions,
        agreed: u64,
        shape: DescriptorLayout,
        [kick, call]: [OwnedFd; 2],
    ) -> Self {
        let size = options.ring_size;
        let (driver, device, buffers) = offsets(size);
        let area = |offset: u64, length: u64| {
            Area::new(memory, begin + offset, length, 16).expect("laid out by ourselves")
        };
        let packed = agreed & features::RING_PACKED != 0;
        let slots = if shape == DescriptorLayout::Two { size / 2 } else { size };
        let bytes = u64::from(size) * u64::from(options.buffer);
        let buffers_area = Area::new(memory, begin + buffers, bytes, 64);
        let (descriptors, driver, device) =
            (area(0, driver), area(driver, device - driver), area(device, buffers - device));
        let mut ring = Self {
            size,
            mask: usize::from(size).wrapping_sub(1),
            packed,
            event_index: agreed & features::EVENT_IDX != 0,
            shape,
            buffer: options.buffer,
            begin,
            memory: memory.clone(),
            table: Entries::descriptors(descriptors.clone(), size.into()),
            heads: Entries::heads(driver.clone(), 4, size.into()),
            used: Entries::used(device.clone(), 4, size.into()),
            buffers: buffers_area.expect("laid out by ourselves"),
            descriptors,
            driver,
            device,
            kick,
            call,
            described: vec![false; usize::from(size)],
            free: (0..slots).rev().collect(),
            next: 0,
            next_used: 0,
            wrap: true,
            used_wrap: true,
            kicked: 0,
        };
        ring.clear();
        if !options.interrupts {
            ring.refuse_events();
        }
        ring
    }

    /// Empties the ring's own memory.
    fn clear(&mut self) {
        let (_, _, buffers) = offsets(self.size);
        let length = usize::try_from(buffers).expect("small");
        let whole = self.memory.at(self.begin, length).expect("laid out by ourselves");
        whole.write(&vec![0; length]);
    }

    fn refuse_events(&self) {
        if self.packed {
            self.driver.store_u16(2, 1, Ordering::Relaxed);
        } else {
            self.driver.store_u16(0, 1, Ordering::Relaxed);
            // With positions, an event far away is as good.
            let event = 4 + usize::from(self.size) * 2;
            self.driver.store_u16(event, u16::MAX / 2, Ordering::Relaxed);
        }
    }

    /// Addresses of descriptors, driver's and device's area.
    #[must_use]
    pub fn addresses(&self) -> [u64; 3] {
        let (driver, device, _) = offsets(self.size);
        [self.begin, self.begin + driver, self.begin + device]
    }

    /// Areas of descriptors, driver and device, to write what no driver writes.
    #[must_use]
    pub fn areas(&self) -> [&Area; 3] {
        [&self.descriptors, &self.driver, &self.device]
    }

    /// Where the device stands, for `SET_VRING_BASE`: it gives descriptors back in their
    /// order, so behind the last that it gave back, whether that was taken or not.
    #[must_use]
    pub fn base(&self) -> u32 {
        if self.packed {
            let (mut at, mut wrap) = (self.next_used as u16, self.used_wrap);
            while self.is_used(at, wrap) {
                (at, wrap) = self.behind(at, wrap);
            }
            let place = u32::from(at) | u32::from(wrap) << 15;
            place | place << 16
        } else {
            u32::from(self.device.load_u16(2, Ordering::Acquire))
        }
    }

    /// Of a packed ring: whether the device has given back what stands at a place.
    fn is_used(&self, at: u16, wrap: bool) -> bool {
        let word = self.table.second_word(at.into(), Ordering::Acquire);
        is_turn(word, wrap)
    }

    /// Of a packed ring: the place behind what stands at a place.
    fn behind(&self, at: u16, wrap: bool) -> (u16, bool) {
        let next = at + if self.shape == DescriptorLayout::Two { 2 } else { 1 };
        if next >= self.size { (next - self.size, !wrap) } else { (next, wrap) }
    }

    /// The event to kick with, and the one that is called.
    #[must_use]
    pub fn events(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.kick, &self.call)
    }

    /// A slot that the device does not have.
    #[inline]
    pub fn take_free(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The slot that the device gives back next, of a ring whose slots all went to it once:
    /// it takes them in the order in which they were posted.
    #[must_use]
    pub fn next_slot(&self) -> u16 {
        if self.packed {
            (self.table.second_word(self.next_used as usize, Ordering::Relaxed) >> 32) as u16
        } else {
            self.heads.load(self.next_used as usize & self.mask)
        }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Has the buffers of the next `count` free slots come nearer, to be written.
    #[inline]
    pub fn prefetch_free(&self, count: usize) {
        for &slot in self.free.iter().rev().take(count) {
            self.buffer(slot).prefetch(2);
        }
    }

    /// Guest address of a slot's buffer.
    #[inline]
    #[must_use]
    pub fn buffer_address(&self, slot: u16) -> u64 {
        self.buffers.guest_address() + u64::from(slot) * u64::from(self.buffer)
    }

    /// A slot's buffer.
    #[inline]
    #[must_use]
    pub fn buffer(&self, slot: u16) -> GuestBuffer<'_> {
        let length = self.buffer as usize;
        self.buffers.buffer(usize::from(slot) * length, length)
    }

    /// Makes a slot available: to be filled, or `bytes` of it (with header) to be read.
    #[inline(always)]
    pub fn post(&mut self, slot: u16, bytes: u32) {
        let address = self.buffer_address(slot);
        match self.shape {
            // A descriptor that is as it was need not go from one core to another.
            DescriptorLayout::Receive if self.described[usize::from(slot)] => self.offer(slot),
            DescriptorLayout::Receive => {
                self.put(slot, &[(address, self.buffer)], flags::WRITE);
                self.described[usize::from(slot)] = !self.packed;
            }
            DescriptorLayout::Single => self.put(slot, &[(address, bytes)], 0),
            DescriptorLayout::Two => {
                let rest = (address + u64::from(HEADER), bytes - HEADER);
                self.put(slot, &[(address, HEADER), rest], 0);
            }
            DescriptorLayout::Indirect => {
                let table = self.write_table(slot, bytes);
                self.put(slot, &[(table, TABLE as u32)], flags::INDIRECT);
            }
        }
    }

    /// Writes a slot's table of two descriptors. Returns its guest address.
    fn write_table(&self, slot: u16, bytes: u32) -> u64 {
        let address = self.buffer_address(slot);
        let (_, _, buffers) = offsets(self.size);
        let tables = buffers - (u64::from(self.size) * TABLE).next_multiple_of(4096);
        let table = self.begin + tables + u64::from(slot) * TABLE;
        let rest = (address + u64::from(HEADER), bytes - HEADER);
        let entries = [(address, HEADER), rest];
        let mut written = [0; TABLE as usize];
        for (index, (address, length)) in entries.into_iter().enumerate() {
            let at = index * DESCRIPTOR;
            let more = if index == 0 && !self.packed { flags::NEXT } else { 0 };
            written[at..at + 8].copy_from_slice(&address.to_le_bytes());
            written[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
            if !self.packed {
                written[at + 12..at + 14].copy_from_slice(&more.to_le_bytes());
                written[at + 14..at + 16].copy_from_slice(&1_u16.to_le_bytes());
            }
        }
        let place = self.memory.at(table, TABLE as usize).expect("laid out by ourselves");
        place.write(&written);
        table
    }

    /// Makes descriptors available as one chain, whatever they say.
    #[inline(always)]
    pub fn put(&mut self, slot: u16, descriptors: &[(u64, u32)], kind: u16) {
        if self.packed {
            self.put_packed(slot, descriptors, kind);
        } else {
            let first = if self.shape == DescriptorLayout::Two { slot * 2 } else { slot };
            for (index, &(address, length)) in (first..).zip(descriptors) {
                let last = usize::from(index - first) + 1 == descriptors.len();
                let flags = kind | if last { 0 } else { flags::NEXT };
                self.write_descriptor(index, address, length, flags, index + 1);
            }
            self.offer(first);
        }
    }

    /// Split: writes a descriptor.
    #[inline]
    pub fn write_descriptor(&self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let second = u64::from(length) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.table.store_first(index.into(), address);
        self.table.store_second(index.into(), second, Ordering::Relaxed);
    }

    /// Split: puts a head into the available ring, unseen until [`publish`](Self::publish).
    #[inline]
    pub fn offer(&mut self, head: u16) {
        self.heads.store(self.next as usize & self.mask, head);
        self.next = self.next.wrapping_add(1);
    }

    #[inline(always)]
    fn put_packed(&mut self, slot: u16, descriptors: &[(u64, u32)], kind: u16) {
        let mut first = None;
        for (number, &(address, length)) in descriptors.iter().enumerate() {
            let last = number + 1 == descriptors.len();
            let turn = if self.wrap { flags::AVAIL } else { flags::USED };
            let flags = kind | turn | if last { 0 } else { flags::NEXT };
            let second = u64::from(length) | u64::from(slot) << 32 | u64::from(flags) << 48;
            let index = self.next as usize;
            self.table.store_first(index, address);
            // The first one's flags make all of it available.
            if number == 0 && !last {
                first = Some((index, second));
            } else {
                self.table.store_second(index, second, Ordering::Release);
            }
            self.next += 1;
            if self.next == u32::from(self.size) {
                (self.next, self.wrap) = (0, !self.wrap);
            }
        }
        if let Some((index, second)) = first {
            self.table.store_second(index, second, Ordering::Release);
        }
    }

    /// Shows the device what was posted, and kicks if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        if !self.packed {
            self.driver.store_u16(2, self.next as u16, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        let wanted = if self.packed {
            self.device.load_u16(2, Ordering::Relaxed) != 1
        } else if self.event_index {
            let event = self.device.load_u16(4 + usize::from(self.size) * 8, Ordering::Relaxed);
            let next = self.next as u16;
            let passed = next.wrapping_sub(event).wrapping_sub(1);
            passed < next.wrapping_sub(self.kicked as u16)
        } else {
            self.device.load_u16(0, Ordering::Relaxed) & 1 == 0
        };
        self.kicked = self.next;
        if wanted {
            self.kick();
        }
    }

    /// Kicks.
    pub fn kick(&self) {
        // A full event has not been looked at: it will be all the same.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// The next slot that the device is done with, and the bytes that it wrote. The
    /// slot is free afterwards.
    pub fn take_used(&mut self) -> Option<(u16, u32)> {
        let mut taken = None;
        self.take_all_used(1, |slot, bytes| taken = Some((slot, bytes)));
        let (slot, _) = taken?;
        self.free.push(slot);
        taken
    }

    /// Frees the slots that the device is done with.
    #[inline]
    pub fn reclaim(&mut self) {
        let mut free = std::mem::take(&mut self.free);
        self.take_all_used(self.size, |slot, _| free.push(slot));
        self.free = free;
    }

    /// Hands the next slots that the device is done with to `take`, `most` at most, each
    /// with the bytes that were written to it. They belong to the caller from then on:
    /// free they are not.
    #[inline(always)]
    pub(super) fn take_all_used(&mut self, most: u16, mut take: impl FnMut(u16, u32)) {
        if self.packed {
            for _ in 0..most {
                let at = self.next_used as u16;
                let word = self.table.second_word(at.into(), Ordering::Acquire);
                if !is_turn(word, self.used_wrap) {
                    return;
                }
                let (next, wrap) = self.behind(at, self.used_wrap);
                (self.next_used, self.used_wrap) = (u32::from(next), wrap);
                take((word >> 32) as u16, word as u32);
            }
            return;
        }
        let ready = self.device.load_u16(2, Ordering::Acquire).wrapping_sub(self.next_used as u16);
        let first = self.next_used;
        let halved = self.shape == DescriptorLayout::Two;
        for number in 0..ready.min(most) {
            let place = first.wrapping_add(number.into()) as usize & self.mask;
            let [id, bytes] = self.used.load(place);
            take((id >> u32::from(halved)) as u16, bytes);
        }
        self.next_used = first.wrapping_add(ready.min(most).into());
    }
}

/// Of a packed ring: whether a descriptor's second word says that it is used in a round.
#[inline]
fn is_turn(word: u64, wrap: bool) -> bool {
    let turn = (word >> 48) as u16 & (flags::AVAIL | flags::USED);
    turn == if wrap { flags::AVAIL | flags::USED } else { 0 }
}
