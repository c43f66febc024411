//! What lies where in physical memory, which is mapped one to one up to 4 GiB.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::instruction;
use crate::metal::PAGE_BYTES;

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
