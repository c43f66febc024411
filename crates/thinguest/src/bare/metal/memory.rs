//! Physical memory, which is mapped one to one up to 4 GiB: tables of the firmware
//! are read, registers of devices are read and written, and what is left is given
//! away once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use thinguest::{MAX_IO_BYTES, MAX_N};

use super::instruction;

/// A small page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Where the pool begins: above the image and what `boot.s` maps by small pages.
const POOL_BEGIN: u64 = 16 << 20;
/// Where it ends, and devices begin.
pub(crate) const POOL_END: u64 = 3 << 30;
/// The end of what is mapped.
const MAPPED_END: u64 = 4 << 30;

unsafe extern "C" {
    static page_tables: UnsafeCell<[u64; 8 * 512]>;
}

/// What a shootdown flushes.
#[repr(align(4096))]
pub(super) struct Page(
    #[expect(dead_code, reason = "only its address is used")] [u8; PAGE_BYTES as usize],
);
pub(super) static SHOT: Page = Page([0; PAGE_BYTES as usize]);

/// Takes the page of address 0 away, in which SeaBIOS leaves what it knows: after
/// that has been read.
pub(crate) fn take_page_0_away() {
    PAGE_0_GONE.store(true, Ordering::SeqCst);
    take_away(0);
}

static PAGE_0_GONE: AtomicBool = AtomicBool::new(false);

pub(super) fn take_away(address: u64) {
    let index = (address / PAGE_BYTES) as usize;
    // SAFETY: the image lies in the first 16 MiB, which these tables map (thin.ld
    // asserts it); nothing of Rust's lives in the pages that are taken away.
    unsafe { (*page_tables.get())[index] = 0 };
    instruction::invalidate(address);
}

/// Bytes of physical memory: firmware's tables and the loader's.
///
/// Reads go beyond Rust's own data only: an address within the image is refused.
pub(crate) fn read<const N: usize>(address: u64) -> Option<[u8; N]> {
    let end = address.checked_add(N as u64)?;
    let first = if PAGE_0_GONE.load(Ordering::SeqCst) { PAGE_BYTES } else { 1 };
    let outside = address >= first && (end <= 1 << 20 || address >= POOL_BEGIN);
    if !outside || end > MAPPED_END {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in (address..).zip(&mut bytes) {
        // SAFETY: it is mapped, and no object of Rust's: those of the pool are written
        // by their owners alone, who read no tables.
        *byte = unsafe { (at as *const u8).read_volatile() };
    }
    Some(bytes)
}

/// A register of a device, 32 bits wide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Register(*mut u32);

impl Register {
    /// The register at `address`, if devices may lie there.
    pub(crate) fn at(address: u64) -> Option<Self> {
        let ours = (POOL_END..MAPPED_END - 3).contains(&address) && address.is_multiple_of(4);
        ours.then_some(Self(address as *mut u32))
    }

    pub(crate) fn read(self) -> u32 {
        // SAFETY: mapped, aligned, and no memory of Rust's: see `Register::at`.
        unsafe { self.0.read_volatile() }
    }

    pub(crate) fn write(self, value: u32) {
        // SAFETY: as in `read`.
        unsafe { self.0.write_volatile(value) }
    }

    /// Writes its first byte, for registers that are no wider.
    pub(crate) fn write_byte(self, value: u8) {
        // SAFETY: as in `read`.
        unsafe { self.0.cast::<u8>().write_volatile(value) }
    }
}

/// The memory that nobody uses, given away from below.
#[derive(Debug)]
pub(crate) struct Pool {
    next: u64,
    end: u64,
}

impl Pool {
    /// The pool in the memory map's entry `begin..end`: the first call has it, all
    /// later ones get none.
    pub(crate) fn take(begin: u64, end: u64) -> Option<Self> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let (next, end) = (begin.max(POOL_BEGIN), end.min(POOL_END));
        (next < end && !TAKEN.swap(true, Ordering::SeqCst)).then_some(Self { next, end })
    }

    /// A pool of its own of what lies in `begin..end`, taken from this one: all above
    /// `begin`, if nothing of that was given away.
    pub(crate) fn split(&mut self, begin: u64, end: u64) -> Option<Self> {
        let begin = begin.next_multiple_of(PAGE_BYTES);
        if begin < self.next || begin >= self.end {
            return None;
        }
        let far = Self { next: begin, end: end.min(self.end) };
        self.end = begin;
        Some(far)
    }

    /// `count` words, never touched before, that begin at a multiple of `align`.
    pub(crate) fn words(&mut self, count: u64, align: u64) -> Option<&'static mut [u64]> {
        let begin = self.next.next_multiple_of(align);
        let end = begin.checked_add(count.checked_mul(8)?)?;
        if end > self.end {
            return None;
        }
        self.next = end;
        // SAFETY: firmware says that it is memory; it lies outside of the image, is
        // mapped, aligned, and given away once. Whatever it holds is a number.
        Some(unsafe { core::slice::from_raw_parts_mut(begin as *mut u64, count as usize) })
    }
}

/// The room for samples, once.
pub(crate) fn samples() -> Option<&'static mut [u64; MAX_N as usize]> {
    static SAMPLES: Samples = Samples(UnsafeCell::new([0; MAX_N as usize]));
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: it is given away once.
    (!TAKEN.swap(true, Ordering::SeqCst)).then(|| unsafe { &mut *SAMPLES.0.get() })
}

/// The room for what programs write and read, once.
pub(crate) fn io_buffer() -> Option<&'static mut [u8; MAX_IO_BYTES as usize]> {
    static BUFFER: Bytes = Bytes(UnsafeCell::new([0; MAX_IO_BYTES as usize]));
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: it is given away once.
    (!TAKEN.swap(true, Ordering::SeqCst)).then(|| unsafe { &mut *BUFFER.0.get() })
}

struct Bytes(UnsafeCell<[u8; MAX_IO_BYTES as usize]>);
// SAFETY: `io_buffer` gives the only reference away once.
unsafe impl Sync for Bytes {}

struct Samples(UnsafeCell<[u64; MAX_N as usize]>);
// SAFETY: `samples` gives the only reference away once.
unsafe impl Sync for Samples {}
