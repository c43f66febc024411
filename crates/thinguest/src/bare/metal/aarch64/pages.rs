//! What lies where: the image at the addresses of the link, all else mapped one to one,
//! as `boot.s` says: devices below 1 GiB and from 256 GiB on, memory between them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use super::instruction;
use crate::metal::PAGE_BYTES;

/// Where memory that is mapped begins.
pub(crate) const POOL_BEGIN: u64 = 1 << 30;
/// Where memory that is mapped ends.
pub(crate) const POOL_END: u64 = 256 << 30;
const MAPPED_END: u64 = 511 << 30;
/// What is mapped of the devices' first GiB.
const DEVICES_BEGIN: u64 = 2 << 20;

unsafe extern "C" {
    static level_3: UnsafeCell<[u64; 4 * 512]>;
    static image_begin: u8;
    static image_end: u8;
}

/// Where the image was loaded.
static LOADED: AtomicU64 = AtomicU64::new(0);

pub(super) fn set_loaded(at: u64) {
    LOADED.store(at, Ordering::SeqCst);
}

/// Where the image lies in physical memory, to its end.
fn image() -> (u64, u64) {
    let begin = LOADED.load(Ordering::SeqCst);
    (begin, begin + (&raw const image_end as u64 - &raw const image_begin as u64))
}

/// The physical address of what the image holds at `address`.
pub(in crate::metal) fn physical(address: u64) -> u64 {
    address - &raw const image_begin as u64 + image().0
}

pub(super) fn take_away(address: u64) {
    let index = ((address - &raw const image_begin as u64) / PAGE_BYTES) as usize;
    // SAFETY: the image lies in what these tables map (thin.ld asserts it); nothing of
    // Rust's lives in the pages that are taken away.
    unsafe { (*level_3.get())[index] = 0 };
    instruction::invalidate(address);
}

fn holds_image(begin: u64, end: u64) -> bool {
    let image = image();
    begin < image.1 && end > image.0
}

/// True if `begin..end` is mapped and holds none of Rust's own data: the device tree,
/// tables of the firmware and what the loader tells may lie there.
pub(crate) fn is_foreign(begin: u64, end: u64) -> bool {
    begin >= POOL_BEGIN && end <= POOL_END && !holds_image(begin, end)
}

/// True if a device's register of 32 bits may lie at `address`.
pub(crate) fn is_device(address: u64) -> bool {
    (DEVICES_BEGIN..POOL_BEGIN - 3).contains(&address)
        || (POOL_END..MAPPED_END - 3).contains(&address)
}

/// What of the memory `begin..end` may be given away: the longer part beside the image.
pub(crate) fn usable(begin: u64, end: u64) -> (u64, u64) {
    let (begin, end) = (begin.max(POOL_BEGIN), end.min(POOL_END));
    if !holds_image(begin, end) {
        return (begin, end);
    }
    let image = image();
    if image.0.saturating_sub(begin) > end.saturating_sub(image.1) {
        (begin, image.0)
    } else {
        (image.1, end)
    }
}
