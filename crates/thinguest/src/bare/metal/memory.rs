//! Physical memory, which is mapped one to one: tables of the firmware are read,
//! registers of devices are read and written, and what is left is given away once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use thinguest::{MAX_FAR_NODES, MAX_IO_BYTES, MAX_N, NodePieces, PhysicalMemory, PhysicalRange};

#[cfg(target_arch = "aarch64")]
use super::aarch64::pages;
#[cfg(target_arch = "x86_64")]
use super::x86_64::pages;

#[cfg(target_arch = "x86_64")]
pub(crate) use pages::take_page_0_away;
pub(crate) use pages::{POOL_BEGIN, POOL_END};

/// Bytes of physical memory: firmware's tables and the loader's.
///
/// Reads go beyond Rust's own data only: an address within the image is refused.
pub(crate) fn read<const N: usize>(address: u64) -> Option<[u8; N]> {
    let end = address.checked_add(N as u64)?;
    if !pages::is_foreign(address, end) {
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

/// The machine's own memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory;

impl PhysicalMemory for Memory {
    fn read<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        read(address)
    }
}

/// A register of a device, 32 bits wide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Register(*mut u32);

impl Register {
    /// The register at `address`, if devices may lie there.
    pub(crate) fn at(address: u64) -> Option<Self> {
        let ours = pages::is_device(address) && address.is_multiple_of(4);
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
    #[cfg(target_arch = "x86_64")]
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
    /// The memory that nobody uses: that of the nearest node, and of each other one, if there
    /// are several. `largest` tells the largest piece within a begin and an end. The first
    /// call has them, all later ones get none.
    pub(crate) fn take(
        largest: impl Fn(u64, u64) -> Option<PhysicalRange>,
        nodes: Option<NodePieces>,
    ) -> (Option<Self>, [Option<Self>; MAX_FAR_NODES]) {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::SeqCst) {
            return (None, [const { None }; MAX_FAR_NODES]);
        }
        let find = |begin: u64, end: u64| {
            let piece = largest(begin.max(POOL_BEGIN), end.min(POOL_END))?;
            // What is found outside of where it was looked for would be given away twice.
            let (next, end) = pages::usable(piece.0.max(begin), piece.1.min(end));
            (next < end).then_some(Self { next, end })
        };
        let Some(NodePieces { near, far }) = nodes else {
            return (find(0, u64::MAX), [const { None }; MAX_FAR_NODES]);
        };
        // So would what firmware says to be of two nodes. They come lowest first.
        let mut given = near.1;
        let far = far.map(|piece| {
            let (begin, end) = piece?;
            let begin = begin.max(given);
            given = given.max(end);
            if begin < end { find(begin, end) } else { None }
        });
        (find(near.0, near.1), far)
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
