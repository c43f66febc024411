//! Areas: what a ring's structures lie in. Checked for place and alignment once,
//! then read and written by volatile and atomic accesses.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use super::region::{GuestMemory, Region};
use super::span::{prefetch_read, prefetch_write};

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
        let size = count * size_of::<T>();
        assert!(offset <= self.length && size <= self.length - offset, "outside of the ring");
        // SAFETY: the assertion holds `offset + size` within the `length` mapped bytes.
        let address = unsafe { self.start.add(offset) }.cast::<T>();
        assert!(address.is_aligned(), "not aligned in the ring");
        address
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

    /// Stores two 32-bit words at `offset`.
    #[inline]
    pub fn store_u32_pair(&self, offset: usize, values: [u32; 2]) {
        let words = self.at::<u32>(offset, 2);
        // SAFETY: two words in the area, aligned (`at`).
        unsafe {
            ptr::write_volatile(words, values[0].to_le());
            ptr::write_volatile(words.add(1), values[1].to_le());
        }
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

    /// Begins to fetch the line at `offset`, for reading.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        prefetch_read(self.start.wrapping_add(offset));
    }

    /// Begins to fetch the line at `offset`, for writing.
    #[inline]
    pub fn prefetch_write(&self, offset: usize) {
        prefetch_write(self.start.wrapping_add(offset));
    }
}
