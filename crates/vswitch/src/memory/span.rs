//! Spans: a range of mapped bytes that was checked once, and what may be done
//! with it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// Bytes to read: of a guest, or our own.
#[derive(Debug, Clone, Copy)]
pub struct ByteRange<'m> {
    start: *const u8,
    length: usize,
    memory: PhantomData<&'m [u8]>,
}

/// Bytes of a guest to read and write.
#[derive(Debug, Clone, Copy)]
pub struct GuestBuffer<'m> {
    start: NonNull<u8>,
    length: usize,
    memory: PhantomData<&'m ()>,
}

/// A word that may lie at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct UnalignedWord(u64);

impl<'m> From<&'m [u8]> for ByteRange<'m> {
    fn from(own: &'m [u8]) -> Self {
        Self { start: own.as_ptr(), length: own.len(), memory: PhantomData }
    }
}

impl<'m> ByteRange<'m> {
    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.length
    }

    /// True without a byte.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// What follows the first `offset` bytes; nothing if there are not as many.
    #[inline]
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        let offset = offset.min(self.length);
        // SAFETY: `offset <= length`: the pointer stays in the range or one past its end.
        Self { start: unsafe { self.start.add(offset) }, length: self.length - offset, ..self }
    }

    /// The first `length` bytes, or all.
    #[inline]
    #[must_use]
    pub fn first(self, length: usize) -> Self {
        Self { length: self.length.min(length), ..self }
    }

    /// The first 32 bytes, each read once: whatever the guest writes meanwhile,
    /// what is judged is what is passed on. None if there are not as many.
    #[inline]
    #[must_use]
    pub fn head(self) -> Option<[u8; 32]> {
        if self.length < 32 {
            return None;
        }
        let mut head = [0; 32];
        let words = self.start.cast::<UnalignedWord>();
        for (i, part) in head.chunks_exact_mut(8).enumerate() {
            // SAFETY: 32 bytes from `start` are mapped (checked above), `UnalignedWord` needs no
            // alignment, and any bytes are a `UnalignedWord`. Volatile: the load is done once and
            // never again.
            let word = unsafe { ptr::read_volatile(words.add(i)) };
            part.copy_from_slice(&{ word.0 }.to_ne_bytes());
        }
        Some(head)
    }

    /// The first bytes as words, each read once, to be looked at in registers. None if
    /// there are not as many.
    #[inline]
    #[must_use]
    pub fn words<const COUNT: usize>(self) -> Option<[u64; COUNT]> {
        if self.length < 8 * COUNT {
            return None;
        }
        let words = self.start.cast::<UnalignedWord>();
        Some(std::array::from_fn(|i| {
            // SAFETY: `i < COUNT`: eight bytes are mapped there (checked above), which are a
            // `UnalignedWord` at any address. Volatile as in `head`.
            u64::from_le(unsafe { ptr::read_volatile(words.add(i)) }.0)
        }))
    }

    /// True if these are the bytes of `own`, each read once.
    #[inline]
    #[must_use]
    pub fn equals(self, own: &[u8]) -> bool {
        if self.length != own.len() {
            return false;
        }
        let (chunks, rest) = own.as_chunks::<8>();
        let mut differs = 0;
        let words = self.start.cast::<UnalignedWord>();
        for (i, chunk) in chunks.iter().enumerate() {
            // SAFETY: eight bytes for each chunk of `own` are mapped, as both are as long.
            let word = unsafe { ptr::read_volatile(words.add(i)) };
            differs |= { word.0 } ^ u64::from_ne_bytes(*chunk);
        }
        for (i, &byte) in rest.iter().enumerate() {
            // SAFETY: as above: `8 * chunks.len() + i` is less than the length.
            let there = unsafe { ptr::read_volatile(self.start.add(8 * chunks.len() + i)) };
            differs |= u64::from(there ^ byte);
        }
        differs == 0
    }

    /// Reads into `own`, each byte once; as many as both have, which it returns.
    #[inline]
    pub fn read(self, own: &mut [u8]) -> usize {
        let length = self.length.min(own.len());
        for (i, byte) in own[..length].iter_mut().enumerate() {
            // SAFETY: `i < length` bytes from `start` are mapped. Volatile as in `head`.
            *byte = unsafe { ptr::read_volatile(self.start.add(i)) };
        }
        length
    }

    /// Copies into `own`, as many as both have, which it returns. What is copied
    /// is looked at only there.
    #[inline]
    pub fn copy_out(self, own: &mut [u8]) -> usize {
        let length = self.length.min(own.len());
        // SAFETY: `length` bytes are mapped at `start` and are ours at `own`, which is
        // an exclusive reference to memory of our own and so no part of a mapping.
        unsafe { ptr::copy_nonoverlapping(self.start, own.as_mut_ptr(), length) };
        length
    }

    /// Copies into `own`, which is as long or longer, without a call: for a few hundred
    /// bytes. Nothing, and 0, if there are fewer than 16 bytes, or more than `own` has room
    /// for.
    #[inline]
    pub fn copy_out_short(self, own: &mut [u8]) -> usize {
        if self.length < 16 || self.length > own.len() {
            return 0;
        }
        // SAFETY: `length`, at least 16, bytes are mapped at `start` and are ours at `own`,
        // which is no part of a mapping.
        unsafe { copy_short(self.start, own.as_mut_ptr(), self.length) };
        self.length
    }

    /// Copies to another guest's buffer, as many bytes as both have, which it returns.
    #[inline]
    pub fn copy_to(self, target: GuestBuffer<'_>) -> usize {
        let length = self.length.min(target.length);
        // SAFETY: `length` bytes are mapped at both. The ranges may only overlap if both
        // are of one guest's mapping; `copy` is used then.
        unsafe {
            if length < 16 || overlap(self.start, target.start(), length) {
                ptr::copy(self.start, target.start(), length);
            } else if length <= 256 {
                copy_short(self.start, target.start(), length);
            } else {
                ptr::copy_nonoverlapping(self.start, target.start(), length);
            }
        }
        length
    }

    /// Begins to fetch the first cache lines, for reading.
    #[inline]
    pub fn prefetch(self, lines: usize) {
        prefetch_read(self.start);
        if lines > 1 && self.length > 64 {
            prefetch_read(self.start.wrapping_add(64));
        }
    }
}

impl<'m> GuestBuffer<'m> {
    /// No bytes, of nobody.
    pub(crate) const EMPTY: Self =
        Self { start: NonNull::dangling(), length: 0, memory: PhantomData };

    /// A range of guest memory.
    ///
    /// # Safety
    /// `length` bytes from `start`, which is not null, stay mapped, readable and writable,
    /// for `'m`.
    #[inline]
    pub(super) unsafe fn new(start: *mut u8, length: usize) -> Self {
        // SAFETY: as the caller says.
        let start = unsafe { NonNull::new_unchecked(start) };
        Self { start, length, memory: PhantomData }
    }

    /// The pointer, for the module's other files.
    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.length
    }

    /// True without a byte.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The same range, to read.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> ByteRange<'m> {
        ByteRange { start: self.start.as_ptr(), length: self.length, memory: PhantomData }
    }

    /// What follows the first `offset` bytes; nothing if there are not as many.
    #[inline]
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        let offset = offset.min(self.length);
        // SAFETY: as in `ByteRange::after`.
        Self { start: unsafe { self.start.add(offset) }, length: self.length - offset, ..self }
    }

    /// The first `length` bytes, or all.
    #[inline]
    #[must_use]
    pub fn first(self, length: usize) -> Self {
        Self { length: self.length.min(length), ..self }
    }

    /// Writes `own` at the range's beginning, as many bytes as fit, which it returns.
    #[inline]
    pub fn write(self, own: &[u8]) -> usize {
        let length = self.length.min(own.len());
        // SAFETY: `length` bytes are mapped at `start`; `own` is a shared reference to
        // memory of our own, so no part of a mapping.
        unsafe {
            if (16..=256).contains(&length) {
                copy_short(own.as_ptr(), self.start(), length);
            } else {
                ptr::copy_nonoverlapping(own.as_ptr(), self.start(), length);
            }
        }
        length
    }

    /// Writes the first `bytes` of `own`, at least 16, without a call. False if there is
    /// no room, or they are not as many.
    #[inline]
    pub fn write_short(self, own: &[u8; 128], bytes: usize) -> bool {
        if bytes > self.length || !(16..=own.len()).contains(&bytes) {
            return false;
        }
        // SAFETY: `bytes`, at least 16, are mapped at `start` and are ours at `own`.
        unsafe { copy_short(own.as_ptr(), self.start(), bytes) };
        true
    }

    /// Reads from `file` once, as many bytes as there is room for, or as come at once.
    ///
    /// # Errors
    /// What `read(2)` says.
    pub fn read_from(self, file: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: `length` bytes from `start` are mapped and may be written (see `new`); the
        // kernel writes no more than that.
        let read = unsafe { libc::read(file.as_raw_fd(), self.start().cast(), self.length) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// Writes 32 bytes, if there is room.
    #[inline]
    pub fn write_head(self, head: &[u8; 32]) -> bool {
        if self.length < 32 {
            return false;
        }
        // SAFETY: 32 bytes are mapped at `start` (checked above), `head` is our own.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), self.start(), 32) };
        true
    }

    /// Writes words from registers, if there is room.
    #[inline]
    pub fn write_words<const COUNT: usize>(self, words: [u64; COUNT]) -> bool {
        if self.length < 8 * COUNT {
            return false;
        }
        let places = self.start().cast::<UnalignedWord>();
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: `i < COUNT`: eight bytes are mapped there (checked above), at any
            // alignment. Volatile as in `ByteRange::head`.
            unsafe { ptr::write_volatile(places.add(i), UnalignedWord(word.to_le())) };
        }
        true
    }

    /// Begins to fetch the first cache lines, for writing.
    #[inline]
    pub fn prefetch(self, lines: usize) {
        prefetch_write(self.start());
        if lines > 1 && self.length > 64 {
            prefetch_write(self.start().wrapping_add(64));
        }
    }
}

#[inline]
fn overlap(a: *const u8, b: *const u8, length: usize) -> bool {
    (a as usize).abs_diff(b as usize) < length
}

/// Copies 16 to a few hundred bytes without a call. Blocks from the end may repeat bytes
/// of those from the beginning: what a length of a range takes is always the same, without
/// a loop.
///
/// # Safety
/// `length >= 16` bytes are readable at `from` and writable at `to`, apart.
#[inline]
unsafe fn copy_short(from: *const u8, to: *mut u8, length: usize) {
    type Block<const SIZE: usize> = [u8; SIZE];
    /// # Safety
    /// `SIZE` bytes are readable at `from + at` and writable at `to + at`, apart.
    #[inline]
    unsafe fn copy<const SIZE: usize>(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: as the caller says; unaligned accesses need no alignment.
        unsafe {
            let block = ptr::read_unaligned(from.add(at).cast::<Block<SIZE>>());
            ptr::write_unaligned(to.add(at).cast::<Block<SIZE>>(), block);
        }
    }
    let mut done = 0;
    // SAFETY: each block ends at `length` at the latest: those of a size come where `length`
    // is not less than it, the last ones begin at `length` less their size.
    unsafe {
        while length - done > 128 {
            copy::<64>(from, to, done);
            done += 64;
        }
        match length - done {
            65.. => {
                copy::<64>(from, to, done);
                copy::<64>(from, to, length - 64);
            }
            33.. => {
                copy::<32>(from, to, done);
                copy::<32>(from, to, length - 32);
            }
            _ => {
                copy::<16>(from, to, done);
                copy::<16>(from, to, length - 16);
            }
        }
    }
}

/// Begins to fetch the line at `address`, for reading.
#[inline]
pub(super) fn prefetch_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint; it faults at no address, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Begins to fetch the line at `address`, for writing.
#[inline]
pub(super) fn prefetch_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // The compiler makes a prefetch for reading of its own hint where the processor
        // need not have PREFETCHW; those of 64 bits without it take it for NOP.
        // SAFETY: as in `prefetch_read`.
        unsafe {
            std::arch::asm!(
                "prefetchw byte ptr [{}]",
                in(reg) address,
                options(nostack, preserves_flags, readonly)
            );
        }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}
