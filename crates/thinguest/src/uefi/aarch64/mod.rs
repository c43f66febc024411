//! How the guest for arm64 is put into memory and entered: Linux's arm64 Image.
//!
//! Sources: Linux `Documentation/arch/arm64/booting.rst`; Arm DDI 0487, D7 (caches).

use core::arch::{asm, global_asm};
use core::ops::Range;

use uefi::boot::AllocateType;

use super::{allocate, u64_of, word};

/// The guest.
pub(super) static GUEST: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/thinguest/aarch64/vmlab-thin"
));

/// Where what the guest is told may lie: in the memory that it maps.
pub(super) const WHERE: AllocateType = AllocateType::MaxAddress((256 << 30) - 1);

/// Why [`PlacedGuest::new`] has none.
pub(super) const NO_ROOM: &str = "there is no memory for the guest";

global_asm!(include_str!("enter.s"));

unsafe extern "C" {
    // Where the code that enters the guest begins and ends.
    static enter_image: u8;
    static enter_image_end: u8;
}

/// The guest in its place.
pub(super) struct PlacedGuest {
    memory: &'static mut [u8],
}

impl PlacedGuest {
    /// Puts the guest where there is room for all that it says it takes.
    pub(super) fn new() -> Option<Self> {
        const MAGIC: &[u8; 4] = b"ARM\x64";
        if word(56)? != *MAGIC {
            return None;
        }
        let memory = allocate(WHERE, u64_of(16)?)?;
        memory.get_mut(..GUEST.len())?.copy_from_slice(GUEST);
        Some(Self { memory })
    }

    /// Enters it; the firmware is left.
    pub(super) fn enter(self, start_info: u64) -> ! {
        let entry = self.memory.as_ptr();
        // It is run, and the rest of its memory read, before caches are on.
        clean(self.memory.as_ptr_range());
        clean(&raw const enter_image..&raw const enter_image_end);
        // SAFETY: the guest is in place, and what it is told too; nothing of this program
        // is used from here on.
        unsafe {
            asm!(
                "b enter_image", in("x0") start_info, in("x1") entry,
                options(noreturn, nostack)
            )
        }
    }
}

/// Writes what caches hold of these bytes to memory, and drops it from them, so that nothing
/// overwrites later what is written past them.
fn clean(range: Range<*const u8>) {
    let kind: u64;
    // SAFETY: it tells the caches' kind.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) kind, options(nomem, nostack)) };
    let line_bytes = 4_usize << (kind >> 16 & 15);
    let begin = range.start as usize & !(line_bytes - 1);
    for line in (begin..range.end as usize).step_by(line_bytes) {
        // SAFETY: what memory holds to this program does not change.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: it waits.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}
