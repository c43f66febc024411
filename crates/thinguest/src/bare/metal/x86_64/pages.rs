//! What lies where in physical memory, which is mapped one to one up to 4 GiB; devices above
//! that are mapped when they are found.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::instruction;
use crate::metal::PAGE_BYTES;

/// Where the pool begins: above the image and what `boot.s` maps by small pages.
pub(crate) const POOL_BEGIN: u64 = 16 << 20;
/// Where it ends, and devices begin.
pub(crate) const POOL_END: u64 = 3 << 30;
/// The end of what is mapped.
const MAPPED_END: u64 = 4 << 30;

unsafe extern "C" {
    static page_map: UnsafeCell<Table>;
    static page_tables: UnsafeCell<[u64; 8 * 512]>;
}

/// A page of the tables by which the processor finds pages, of four levels.
///
/// Source: Intel SDM volume 3, 4.5.
#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const UNCACHED: u64 = 1 << 4;
const LARGE: u64 = 1 << 7;
const LARGE_BYTES: u64 = 2 << 20;
/// The end of what four levels map one to one.
const ADDRESSES_END: u64 = 1 << 47;

/// Tables for devices above 4 GiB: firmware puts them side by side.
static SPARE: [Table; 8] = [const { Table([const { AtomicU64::new(0) }; 512]) }; 8];
static SPARE_TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Table {
    fn entry(&self, address: u64, shift: u32) -> &AtomicU64 {
        &self.0[(address >> shift & 511) as usize]
    }

    /// The table one level below, a spare one if there is none yet.
    fn below(&self, address: u64, shift: u32) -> Option<&'static Self> {
        let entry = self.entry(address, shift);
        let found = entry.load(Ordering::SeqCst);
        if found & PRESENT != 0 {
            let at = (found & !0xfff) as *const Self;
            // SAFETY: the processor takes it for a table, too: one of `boot.s` or a spare
            // one. It is mapped one to one, and there for good.
            return (found & LARGE == 0).then(|| unsafe { &*at });
        }
        let spare = SPARE.get(SPARE_TAKEN.fetch_add(1, Ordering::SeqCst))?;
        entry.store(physical(&raw const *spare as u64) | PRESENT | WRITABLE, Ordering::SeqCst);
        Some(spare)
    }
}

/// Maps the 2 MiB at `address`, above what `boot.s` maps; false if there is no table left.
fn map_large(address: u64) -> bool {
    // SAFETY: all access to it is by atomic words, and the processor's own.
    let map = unsafe { &*page_map.get() };
    let folder = map.below(address, 39).and_then(|pointers| pointers.below(address, 30));
    if let Some(folder) = folder {
        let page = address & !(LARGE_BYTES - 1);
        let value = page | PRESENT | WRITABLE | UNCACHED | LARGE;
        folder.entry(address, 21).store(value, Ordering::SeqCst);
    }
    folder.is_some()
}

/// True if a device's memory `begin..end` can be reached: where devices lie below 4 GiB, or
/// above, where memory is never given away.
pub(super) fn reach_device(begin: u64, end: u64) -> bool {
    const MOST_BYTES: u64 = 16 << 20;
    if begin < MAPPED_END {
        return is_device(begin) && is_device(end);
    }
    let fits = begin <= end && end - begin <= MOST_BYTES && end <= ADDRESSES_END;
    let first = begin & !(LARGE_BYTES - 1);
    fits && (first..end).step_by(LARGE_BYTES as usize).all(map_large)
}

/// What a shootdown flushes.
#[repr(align(4096))]
pub(super) struct Page(
    #[expect(dead_code, reason = "only its address is used")] [u8; PAGE_BYTES as usize],
);
pub(super) static SHOT: Page = Page([0; PAGE_BYTES as usize]);

static PAGE_0_GONE: AtomicBool = AtomicBool::new(false);

/// Takes the page of address 0 away, in which SeaBIOS leaves what it knows: after
/// that has been read.
pub(crate) fn take_page_0_away() {
    PAGE_0_GONE.store(true, Ordering::SeqCst);
    take_away(0);
}

/// The physical address of what the image holds at `address`.
pub(in crate::metal) fn physical(address: u64) -> u64 {
    address
}

pub(super) fn take_away(address: u64) {
    let index = (address / PAGE_BYTES) as usize;
    // SAFETY: the image lies in the first 16 MiB, which these tables map (thin.ld
    // asserts it); nothing of Rust's lives in the pages that are taken away.
    unsafe { (*page_tables.get())[index] = 0 };
    instruction::invalidate(address);
}

/// True if `begin..end` is mapped and holds none of Rust's own data: tables of the
/// firmware and of the loader may lie there.
pub(crate) fn is_foreign(begin: u64, end: u64) -> bool {
    let first = if PAGE_0_GONE.load(Ordering::SeqCst) { PAGE_BYTES } else { 1 };
    begin >= first && (end <= 1 << 20 || begin >= POOL_BEGIN) && end <= MAPPED_END
}

/// True if a device's register of 32 bits may lie at `address`.
pub(crate) fn is_device(address: u64) -> bool {
    (POOL_END..MAPPED_END - 3).contains(&address)
}

/// What of the memory `begin..end` may be given away: the image lies elsewhere.
pub(crate) fn usable(begin: u64, end: u64) -> (u64, u64) {
    (begin.max(POOL_BEGIN), end.min(POOL_END))
}
