//! A guest's memory for the model: as much of `src/memory` as rings use, with the model
//! checker's atomics in the place of mapped bytes.
//!
//! A place is always accessed by the same width, as the specification lays rings out, so
//! each area has its cells once for each width. What the switch accesses without any order
//! (volatile, or by copying) is relaxed here.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Where the parts of the one ring lie, and the buffers behind them.
pub(crate) const DESCRIPTORS: u64 = 0x1000;
pub(crate) const DRIVER: u64 = 0x2000;
pub(crate) const DEVICE: u64 = 0x3000;
pub(crate) const BUFFERS: u64 = 0x4000;
/// Bytes of a buffer.
pub(crate) const BUFFER: u32 = 64;
/// Bytes of each area: enough for rings of four entries.
const AREA: usize = 64;

/// Nothing goes wrong with the areas of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AreaError {}

impl std::fmt::Display for AreaError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl std::error::Error for AreaError {}

#[derive(Debug)]
struct Cells {
    halves: [AtomicU16; AREA / 2],
    words: [AtomicU32; AREA / 4],
    doubles: [AtomicU64; AREA / 8],
}

impl Cells {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            halves: std::array::from_fn(|_| AtomicU16::new(0)),
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            doubles: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }
}

/// The three areas of a ring, and one word of each buffer.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    areas: [Arc<Cells>; 3],
    buffers: Vec<AtomicU32>,
}

impl GuestMemory {
    pub(crate) fn with_buffers(count: usize) -> Self {
        let buffers = (0..count).map(|_| AtomicU32::new(0)).collect();
        Self { areas: std::array::from_fn(|_| Cells::new()), buffers }
    }

    pub(crate) fn at(&self, address: u64, length: usize) -> Option<GuestBuffer<'_>> {
        let number = address.checked_sub(BUFFERS)? / u64::from(BUFFER);
        Some(GuestBuffer { word: Some(self.buffers.get(number as usize)?), length })
    }
}

/// One of a ring's parts.
#[derive(Debug, Clone)]
pub(crate) struct Area(Arc<Cells>);

impl Area {
    pub(crate) fn new(
        memory: &GuestMemory,
        address: u64,
        _: u64,
        _: u64,
    ) -> Result<Self, AreaError> {
        let place = [DESCRIPTORS, DRIVER, DEVICE].iter().position(|&area| area == address);
        Ok(Self(Arc::clone(&memory.areas[place.expect("one of the three")])))
    }

    pub(crate) fn guest_address(&self) -> u64 {
        unreachable!("no log is kept")
    }

    pub(crate) fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        self.0.halves[offset / 2].load(order)
    }

    pub(crate) fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        self.0.halves[offset / 2].store(value, order);
    }
}

/// Entries of an area, from its byte `first` on.
#[derive(Debug, Clone)]
pub(crate) struct Entries<const SIZE: usize> {
    area: Area,
    first: usize,
}

impl<const SIZE: usize> Entries<SIZE> {
    pub(crate) fn guest_address(&self) -> u64 {
        self.area.guest_address()
    }

    pub(crate) fn prefetch(&self, _: usize) {}

    pub(crate) fn prefetch_write(&self, _: usize) {}
}

impl Entries<2> {
    pub(crate) fn heads(area: Area, first: usize, _: usize) -> Self {
        Self { area, first }
    }

    fn head(&self, index: usize) -> &AtomicU16 {
        &self.area.0.halves[self.first / 2 + index]
    }

    pub(crate) fn load(&self, index: usize) -> u16 {
        self.head(index).load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self, index: usize, head: u16) {
        self.head(index).store(head, Ordering::Relaxed);
    }
}

impl Entries<8> {
    pub(crate) fn used(area: Area, first: usize, _: usize) -> Self {
        Self { area, first }
    }

    fn word(&self, index: usize, number: usize) -> &AtomicU32 {
        &self.area.0.words[self.first / 4 + index * 2 + number]
    }

    pub(crate) fn load(&self, index: usize) -> [u32; 2] {
        [0, 1].map(|number| self.word(index, number).load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, index: usize, words: [u32; 2]) {
        for (number, word) in words.into_iter().enumerate() {
            self.word(index, number).store(word, Ordering::Relaxed);
        }
    }
}

impl Entries<16> {
    pub(crate) fn descriptors(area: Area, _: usize) -> Self {
        Self { area, first: 0 }
    }

    fn word(&self, index: usize, number: usize) -> &AtomicU64 {
        &self.area.0.doubles[index * 2 + number]
    }

    pub(crate) fn load(&self, index: usize) -> [u64; 2] {
        [self.first_word(index), self.second_word(index, Ordering::Relaxed)]
    }

    pub(crate) fn first_word(&self, index: usize) -> u64 {
        self.word(index, 0).load(Ordering::Relaxed)
    }

    pub(crate) fn second_word(&self, index: usize, order: Ordering) -> u64 {
        self.word(index, 1).load(order)
    }

    pub(crate) fn store_first(&self, index: usize, word: u64) {
        self.word(index, 0).store(word, Ordering::Relaxed);
    }

    pub(crate) fn store_second(&self, index: usize, word: u64, order: Ordering) {
        self.word(index, 1).store(word, order);
    }
}

/// A buffer, of which a word stands for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestBuffer<'m> {
    word: Option<&'m AtomicU32>,
    length: usize,
}

impl<'m> GuestBuffer<'m> {
    pub(crate) const EMPTY: Self = Self { word: None, length: 0 };

    pub(crate) fn len(self) -> usize {
        self.length
    }

    pub(crate) fn bytes(self) -> Self {
        self
    }

    pub(crate) fn after(self, _: usize) -> Self {
        unreachable!("no tables are used")
    }

    pub(crate) fn words<const COUNT: usize>(self) -> Option<[u64; COUNT]> {
        unreachable!("no tables are used")
    }

    pub(crate) fn prefetch(self, _: usize) {}

    pub(crate) fn read(self) -> u32 {
        self.word.expect("a buffer").load(Ordering::Relaxed)
    }

    pub(crate) fn write(self, value: u32) {
        self.word.expect("a buffer").store(value, Ordering::Relaxed);
    }
}
