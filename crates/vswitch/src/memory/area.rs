//! Areas: what a ring's structures lie in. Checked for place and alignment once,
//! then read and written by volatile and atomic accesses. Entries: what an area has one
//! after the other.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use super::region::{GuestMemory, Region};
use super::span::{GuestBuffer, prefetch_read, prefetch_write};

/// Error type for [`Area::new`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// No region holds it.
    #[error("{length} bytes at {address:#x} are in no memory region")]
    Unmapped {
        /// Address in the frontend's process.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// The address is no multiple of what the specification asks for.
    #[error("The ring's address {address:#x} is no multiple of {alignment}")]
    Misaligned {
        /// Address in the frontend's process.
        address: u64,
        /// Bytes.
        alignment: u64,
    },
}

/// A part of guest memory that is kept mapped.
#[derive(Debug, Clone)]
pub struct Area {
    /// Keeps the mapping.
    region: Arc<Region>,
    start: *mut u8,
    length: usize,
    /// Guest physical address, for the log of written pages.
    guest_address: u64,
}

// SAFETY: the pointer is into the mapping that `region`, which is Send and Sync, keeps;
// all access is volatile or atomic.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// `length` bytes at an address of the frontend's process, which is a multiple
    /// of `alignment`, here as there.
    ///
    /// # Errors
    /// [`AreaError`].
    pub fn new(
        memory: &GuestMemory,
        user_address: u64,
        length: u64,
        alignment: u64,
    ) -> Result<Self, AreaError> {
        let unmapped = AreaError::Unmapped { address: user_address, length };
        let (region, offset) = memory.find_user(user_address, length).ok_or(unmapped.clone())?;
        let bytes = usize::try_from(length).map_err(|_| unmapped.clone())?;
        let span = region.at(offset, bytes).ok_or(unmapped)?;
        let start = span.start();
        if !user_address.is_multiple_of(alignment) || !(start as u64).is_multiple_of(alignment) {
            return Err(AreaError::Misaligned { address: user_address, alignment });
        }
        let guest_address = region.placement().guest_address + offset;
        Ok(Self { region: Arc::clone(region), start, length: bytes, guest_address })
    }

    /// All of `region`.
    #[must_use]
    pub fn whole(region: Arc<Region>) -> Self {
        let placement = region.placement();
        let length = placement.size as usize;
        let start = region.at(0, length).expect("a region holds itself").start();
        Self { region, start, length, guest_address: placement.guest_address }
    }

    /// Where it lies in the guest.
    #[must_use]
    pub fn guest_address(&self) -> u64 {
        self.guest_address
    }

    /// `length` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not in the area.
    #[inline]
    #[must_use]
    pub fn buffer(&self, offset: usize, length: usize) -> GuestBuffer<'_> {
        let start = self.bytes_at(offset, length);
        // SAFETY: `length` bytes from `start` are in the area, mapped as long as `self` lives,
        // which the result borrows.
        unsafe { GuestBuffer::new(start, length) }
    }

    /// The region that it is in.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The address of `count` values at `offset`.
    ///
    /// # Panics
    /// If they are not in the area or not aligned: a mistake of ours, as offsets are
    /// made of a ring's indices, masked by its size.
    #[inline]
    fn at<T>(&self, offset: usize, count: usize) -> *mut T {
        let address = self.bytes_at(offset, count * size_of::<T>()).cast::<T>();
        assert!(address.is_aligned(), "not aligned in the ring");
        address
    }

    /// The address of `length` bytes at `offset`.
    #[inline]
    fn bytes_at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset <= self.length && length <= self.length - offset, "outside of the ring");
        // SAFETY: the assertion holds `offset + length` within the `length` mapped bytes.
        unsafe { self.start.add(offset) }
    }

    /// The 16-bit word at `offset`, read once.
    #[inline]
    #[must_use]
    pub fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        // SAFETY: in the area and aligned (`at`), mapped as long as `self` lives. Other
        // processes use it atomically or not at all, which is theirs to answer for.
        u16::from_le(unsafe { AtomicU16::from_ptr(self.at(offset, 1)) }.load(order))
    }

    /// Stores a 16-bit word at `offset`.
    #[inline]
    pub fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        // SAFETY: as in `load_u16`.
        unsafe { AtomicU16::from_ptr(self.at(offset, 1)) }.store(value.to_le(), order);
    }

    /// The 64-bit word at `offset`, read once.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `load_u16`.
        u64::from_le(unsafe { AtomicU64::from_ptr(self.at(offset, 1)) }.load(order))
    }

    /// Stores a 64-bit word at `offset`.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load_u16`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 1)) }.store(value.to_le(), order);
    }

    /// Sets bits of the byte at `offset`; other processes read and clear it.
    #[inline]
    pub fn set_bits(&self, offset: usize, bits: u8) {
        // SAFETY: as in `load_u16`.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }.fetch_or(bits, Ordering::Relaxed);
    }
}

/// Entries of `SIZE` bytes, one after the other in an area: that all of them are in it and
/// aligned is checked once, so that an access compares its index with their count, no more.
#[derive(Debug, Clone)]
pub struct Entries<const SIZE: usize> {
    /// Keeps the mapping.
    area: Area,
    first: *mut u8,
    count: usize,
}

// SAFETY: as for `Area`, into whose mapping the pointer goes.
unsafe impl<const SIZE: usize> Send for Entries<SIZE> {}
// SAFETY: as above.
unsafe impl<const SIZE: usize> Sync for Entries<SIZE> {}

impl<const SIZE: usize> Entries<SIZE> {
    /// `count` entries from `offset` in `area` on, aligned to `alignment`.
    ///
    /// # Panics
    /// If they are not in it or not aligned, which is a mistake of ours: a ring's areas
    /// are as long as its entries need.
    fn aligned(area: Area, offset: usize, count: usize, alignment: usize) -> Self {
        let bytes = count.checked_mul(SIZE).and_then(|bytes| bytes.checked_add(offset));
        assert!(bytes.is_some_and(|bytes| bytes <= area.length), "outside of the ring");
        let first = area.start.wrapping_add(offset);
        assert!(first.addr().is_multiple_of(alignment), "not aligned in the ring");
        Self { area, first, count }
    }

    /// Guest physical address of the first.
    #[must_use]
    pub fn guest_address(&self) -> u64 {
        self.area.guest_address + (self.first.addr() - self.area.start.addr()) as u64
    }

    /// # Panics
    /// If there is no such entry, a mistake of ours: indices are masked by a ring's size.
    #[inline]
    fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.count, "outside of the ring");
        // SAFETY: `index < count`, and `count` entries from `first` are in the area.
        unsafe { self.first.add(index * SIZE) }
    }

    /// Begins to fetch the line of an entry, for reading.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        prefetch_read(self.first.wrapping_add(index.wrapping_mul(SIZE)));
    }

    /// Begins to fetch the line of an entry, for writing.
    #[inline]
    pub fn prefetch_write(&self, index: usize) {
        prefetch_write(self.first.wrapping_add(index.wrapping_mul(SIZE)));
    }
}

impl Entries<2> {
    /// Heads of a split ring: `count` from `offset` in `area` on.
    ///
    /// # Panics
    /// If they are not in it, a mistake of ours.
    #[must_use]
    pub fn heads(area: Area, offset: usize, count: usize) -> Self {
        Self::aligned(area, offset, count, 2)
    }

    /// The head at `index`, read once.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> u16 {
        // SAFETY: in the area (`at`) and aligned as all entries are, mapped as long as `self`
        // lives. Other processes use it atomically or not at all, which is theirs to answer for.
        let head = unsafe { AtomicU16::from_ptr(self.at(index).cast()) };
        u16::from_le(head.load(Ordering::Relaxed))
    }

    /// Stores a head at `index`.
    #[inline]
    pub fn store(&self, index: usize, head: u16) {
        // SAFETY: as in `load`.
        let place = unsafe { AtomicU16::from_ptr(self.at(index).cast()) };
        place.store(head.to_le(), Ordering::Relaxed);
    }
}

impl Entries<8> {
    /// Used entries of a split ring: `count` from `offset` in `area` on.
    ///
    /// # Panics
    /// If they are not in it, a mistake of ours.
    #[must_use]
    pub fn used(area: Area, offset: usize, count: usize) -> Self {
        Self::aligned(area, offset, count, 4)
    }

    /// Head and bytes written at `index`, each read once.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> [u32; 2] {
        let words = self.at(index).cast::<u32>();
        // SAFETY: two words in the area (`at`), aligned as all entries are.
        [0, 1].map(|word| u32::from_le(unsafe { ptr::read_volatile(words.add(word)) }))
    }

    /// Stores head and bytes written at `index`.
    #[inline]
    pub fn store(&self, index: usize, words: [u32; 2]) {
        let place = self.at(index).cast::<u32>();
        // SAFETY: as in `load`.
        unsafe {
            ptr::write_volatile(place, words[0].to_le());
            ptr::write_volatile(place.add(1), words[1].to_le());
        }
    }
}

impl Entries<16> {
    /// Descriptors of a ring: `count` from the beginning of `area` on.
    ///
    /// # Panics
    /// If they are not in it, a mistake of ours.
    #[must_use]
    pub fn descriptors(area: Area, count: usize) -> Self {
        Self::aligned(area, 0, count, 16)
    }

    #[inline]
    fn word(&self, index: usize, number: usize) -> &AtomicU64 {
        debug_assert!(number < 2, "a descriptor has two words");
        // SAFETY: one of an entry's two words, in the area (`at`) and aligned as all entries
        // are, mapped as long as `self` lives. Other processes as in `Entries<2>::load`.
        unsafe { AtomicU64::from_ptr(self.at(index).cast::<u64>().add(number & 1)) }
    }

    /// The two words of a descriptor, each read once.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> [u64; 2] {
        [self.first_word(index), self.second_word(index, Ordering::Relaxed)]
    }

    /// Its first word: the address.
    #[inline]
    #[must_use]
    pub fn first_word(&self, index: usize) -> u64 {
        u64::from_le(self.word(index, 0).load(Ordering::Relaxed))
    }

    /// Its second word, with the length and the flags.
    #[inline]
    #[must_use]
    pub fn second_word(&self, index: usize, order: Ordering) -> u64 {
        u64::from_le(self.word(index, 1).load(order))
    }

    /// Stores a descriptor's first word.
    #[inline]
    pub fn store_first(&self, index: usize, word: u64) {
        self.word(index, 0).store(word.to_le(), Ordering::Relaxed);
    }

    /// Stores a descriptor's second word.
    #[inline]
    pub fn store_second(&self, index: usize, word: u64, order: Ordering) {
        self.word(index, 1).store(word.to_le(), order);
    }
}
