//! How the guest for x86-64 is put into memory and entered: an ELF file, by PVH's entry.
//!
//! Source: Xen's `docs/misc/pvh.pandoc`.

use core::arch::global_asm;

use uefi::boot::{AllocateType, MemoryType};

use super::{PAGE_BYTES, allocate, u64_of, word};

/// The guest.
pub(super) static GUEST: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/thinguest/x86_64/vmlab-thin"
));

/// Where what the guest is told may lie.
pub(super) const WHERE: AllocateType = AllocateType::MaxAddress(u32::MAX as u64);

/// Why [`PlacedGuest::new`] has none.
pub(super) const NO_ROOM: &str = "the memory from 1 MiB on is not free";

global_asm!(include_str!("enter.s"));

unsafe extern "C" {
    // Where the code that enters the guest begins and ends.
    static enter_pvh: u8;
    static enter_pvh_end: u8;
}

/// That code: enters the guest at `entry` as PVH says, with paging off.
type PvhEntry = unsafe extern "efiapi" fn(start_info: u32, entry: u32) -> !;

/// Puts that code where it can run without paging: firmware may have put this program
/// above 4 GiB.
fn place_enter() -> Option<PvhEntry> {
    let (begin, end) = (&raw const enter_pvh, &raw const enter_pvh_end);
    let bytes = end as usize - begin as usize;
    if bytes > PAGE_BYTES {
        return None;
    }
    let page = uefi::boot::allocate_pages(WHERE, MemoryType::LOADER_CODE, 1).ok()?;
    // SAFETY: the code lies between both; the firmware gave the page to us alone. It runs
    // from anywhere, and is of that type.
    unsafe {
        core::ptr::copy_nonoverlapping(begin, page.as_ptr(), bytes);
        Some(core::mem::transmute::<*mut u8, PvhEntry>(page.as_ptr()))
    }
}

fn u16_of(at: usize) -> Option<usize> {
    word(at).map(|bytes| usize::from(u16::from_le_bytes(bytes)))
}

/// Where a segment goes, what it holds, and how long it is.
type Segment = (usize, &'static [u8], usize);

/// The loaded segments of the guest.
fn segments() -> impl Iterator<Item = Segment> {
    let (headers, bytes) = (u64_of(32).unwrap_or(0), u16_of(54).unwrap_or(0));
    (0..u16_of(56).unwrap_or(0)).filter_map(move |index| {
        let at = headers + index * bytes;
        (word(at)? == 1_u32.to_le_bytes()).then_some(())?;
        let (offset, address) = (u64_of(at + 8)?, u64_of(at + 24)?);
        let (in_file, in_memory) = (u64_of(at + 32)?, u64_of(at + 40)?);
        Some((address, GUEST.get(offset..offset + in_file)?, in_memory))
    })
}

/// The guest in its place, where it is entered, and by what.
pub(super) struct PlacedGuest {
    entry: u32,
    enter: PvhEntry,
}

impl PlacedGuest {
    /// Puts the guest where it belongs.
    pub(super) fn new() -> Option<Self> {
        let enter = place_enter()?;
        let begin = segments().map(|(address, ..)| address).min()? & !(PAGE_BYTES - 1);
        let end = segments().map(|(address, _, bytes)| address + bytes).max()?;
        let memory = allocate(AllocateType::Address(begin as u64), end - begin)?;
        for (address, held, _) in segments() {
            memory.get_mut(address - begin..)?.get_mut(..held.len())?.copy_from_slice(held);
        }
        let entry = u64_of(24).and_then(|entry| u32::try_from(entry).ok())?;
        Some(Self { entry, enter })
    }

    /// Enters it; the firmware is left.
    pub(super) fn enter(self, start_info: u64) -> ! {
        // SAFETY: the guest is in place, and what it is told too, below 4 GiB; firmware maps
        // memory one to one, so that paging can be switched off there, where this runs.
        unsafe { (self.enter)(start_info as u32, self.entry) }
    }
}
