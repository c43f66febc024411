//! `vmlab-thin.efi`: brings the thin guest up on UEFI firmware. It takes the plan from its
//! load options or from `\vmlab.txt` on the disk that it was read from, puts the guest
//! where its ELF headers say, leaves the firmware, and enters it as PVH does.
//!
//! Sources: UEFI 2.10; Xen `xen/include/public/arch-x86/hvm/start_info.h`.

#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "firmware is left and the guest entered")]

use core::arch::global_asm;

use uefi::boot::{self, AllocateType, MemoryType, image_handle};
use uefi::mem::memory_map::MemoryMap;
use uefi::prelude::*;
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::media::file::{File, FileAttribute, FileMode};
use uefi::table::cfg::ConfigTableEntry;
use uefi::{println, system};

/// The guest: an ELF file whose entry is PVH's.
static GUEST: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/thinguest/x86_64/vmlab-thin"
));

const PAGE_BYTES: usize = 4096;
/// Longest plan.
const PLAN_BYTES: usize = 4096;
/// Where what the guest is told lies in its page: start_info, then the memory map, then,
/// in a page of its own, the command line.
const MAP_AT: usize = 64;
const MAP_ENTRIES: usize = (PAGE_BYTES - MAP_AT) / 24;
const START_MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;
const RESERVED: u32 = 2;

global_asm!(include_str!("enter.s"));

unsafe extern "C" {
    // Where the code that enters the guest begins and ends.
    static enter_pvh: u8;
    static enter_pvh_end: u8;
}

/// That code: enters the guest at `entry` as PVH says, with paging off.
type EnterPvh = unsafe extern "efiapi" fn(start_info: u32, entry: u32) -> !;

/// Puts that code where it can run without paging: firmware may have put this program
/// above 4 GiB.
fn place_enter(below_4_gib: AllocateType) -> Option<EnterPvh> {
    let (begin, end) = (&raw const enter_pvh, &raw const enter_pvh_end);
    let bytes = end as usize - begin as usize;
    if bytes > PAGE_BYTES {
        return None;
    }
    let page = boot::allocate_pages(below_4_gib, MemoryType::LOADER_CODE, 1).ok()?;
    // SAFETY: the code lies between both; the firmware gave the page to us alone. It runs
    // from anywhere, and is of that type.
    unsafe {
        core::ptr::copy_nonoverlapping(begin, page.as_ptr(), bytes);
        Some(core::mem::transmute::<*mut u8, EnterPvh>(page.as_ptr()))
    }
}

/// The plan: the load options, else the file's text, else nothing.
fn plan(buffer: &mut [u8; PLAN_BYTES]) -> usize {
    let mut length = 0;
    if let Ok(image) = boot::open_protocol_exclusive::<LoadedImage>(image_handle())
        && let Some(options) = image.load_options_as_bytes()
    {
        // UTF-16; a boot entry of the firmware's own holds other things.
        for pair in options.chunks_exact(2).take_while(|pair| **pair != [0, 0]) {
            let Some(slot) = buffer.get_mut(length).filter(|_| pair[1] == 0) else { break };
            *slot = pair[0];
            length += 1;
        }
    }
    // A shell gives the program's own name first.
    const FIRST: &[u8] = b"vmlab-thin=";
    if let Some(at) = buffer[..length].windows(FIRST.len()).position(|part| part == FIRST) {
        buffer.copy_within(at..length, 0);
        return length - at;
    }
    let Ok(mut disk) = boot::get_image_file_system(image_handle()) else { return 0 };
    let Ok(mut root) = disk.open_volume() else { return 0 };
    let file = root.open(cstr16!("\\vmlab.txt"), FileMode::Read, FileAttribute::empty());
    let Some(mut file) = file.ok().and_then(|file| file.into_regular_file()) else { return 0 };
    file.read(&mut buffer[..PLAN_BYTES - 1]).unwrap_or(0)
}

fn word<const N: usize>(at: usize) -> Option<[u8; N]> {
    GUEST.get(at..at + N)?.try_into().ok()
}

fn u64_of(at: usize) -> Option<usize> {
    word(at).map(u64::from_le_bytes).and_then(|value| usize::try_from(value).ok())
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

/// Puts the guest where it belongs; where it is entered.
fn place() -> Option<u32> {
    let begin = segments().map(|(address, ..)| address).min()? & !(PAGE_BYTES - 1);
    let end = segments().map(|(address, _, bytes)| address + bytes).max()?;
    let pages = (end - begin).div_ceil(PAGE_BYTES);
    let at = AllocateType::Address(begin as u64);
    let memory = boot::allocate_pages(at, MemoryType::LOADER_DATA, pages).ok()?;
    // SAFETY: the firmware gave these pages to us alone; no segment ends beyond them.
    let memory = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), pages * PAGE_BYTES) };
    memory.fill(0);
    for (address, held, _) in segments() {
        memory.get_mut(address - begin..)?.get_mut(..held.len())?.copy_from_slice(held);
    }
    u64_of(24).and_then(|entry| u32::try_from(entry).ok())
}

/// The address of ACPI's root.
fn acpi() -> u64 {
    system::with_config_table(|table| {
        let find = |guid| table.iter().find(|entry| entry.guid == guid);
        find(ConfigTableEntry::ACPI2_GUID)
            .or_else(|| find(ConfigTableEntry::ACPI_GUID))
            .map_or(0, |entry| entry.address as u64)
    })
}

/// True if nobody needs memory of this kind when the firmware is left.
fn is_free(kind: MemoryType) -> bool {
    [MemoryType::CONVENTIONAL, MemoryType::BOOT_SERVICES_CODE, MemoryType::BOOT_SERVICES_DATA]
        .contains(&kind)
}

fn put(told: &mut [u8], at: usize, bytes: &[u8]) {
    told[at..at + bytes.len()].copy_from_slice(bytes);
}

#[entry]
fn main() -> Status {
    let mut buffer = [0; PLAN_BYTES];
    let length = plan(&mut buffer);
    let Some(entry) = place() else {
        println!("vmlab-thin: the memory from 1 MiB on is not free");
        return Status::OUT_OF_RESOURCES;
    };
    let below_4_gib = AllocateType::MaxAddress(u64::from(u32::MAX));
    let told_at = boot::allocate_pages(below_4_gib, MemoryType::LOADER_DATA, 2);
    let (Ok(told_at), Some(enter)) = (told_at, place_enter(below_4_gib)) else {
        println!("vmlab-thin: there is no memory below 4 GiB");
        return Status::OUT_OF_RESOURCES;
    };
    // SAFETY: the firmware gave these pages to us alone.
    let told = unsafe { core::slice::from_raw_parts_mut(told_at.as_ptr(), 2 * PAGE_BYTES) };
    told.fill(0);
    let start = told_at.as_ptr() as u64;
    put(told, PAGE_BYTES, &buffer[..length]);
    put(told, 0, &START_MAGIC.to_le_bytes());
    put(told, 4, &1_u32.to_le_bytes());
    put(told, 24, &(start + PAGE_BYTES as u64).to_le_bytes());
    put(told, 32, &acpi().to_le_bytes());
    put(told, 40, &(start + MAP_AT as u64).to_le_bytes());
    // SAFETY: nothing of the firmware is used from here on.
    let map = unsafe { boot::exit_boot_services(None) };
    let mut entries = 0;
    let mut last: Option<(u64, u64, u32)> = None;
    let mut write = |(begin, end, kind): (u64, u64, u32)| {
        if entries < MAP_ENTRIES {
            let at = MAP_AT + entries * 24;
            put(told, at, &begin.to_le_bytes());
            put(told, at + 8, &(end - begin).to_le_bytes());
            put(told, at + 16, &kind.to_le_bytes());
            entries += 1;
        }
    };
    // What lies side by side and is the same is one piece.
    for piece in map.entries() {
        let begin = piece.phys_start;
        let end = begin + piece.page_count * PAGE_BYTES as u64;
        let kind = if is_free(piece.ty) { RAM } else { RESERVED };
        last = match last {
            Some((first, until, same)) if until == begin && same == kind => {
                Some((first, end, kind))
            }
            other => {
                if let Some(whole) = other {
                    write(whole);
                }
                Some((begin, end, kind))
            }
        };
    }
    if let Some(whole) = last {
        write(whole);
    }
    put(told, 48, &(entries as u32).to_le_bytes());
    // The map lies in the firmware's memory, which is the guest's now.
    core::mem::forget(map);
    // SAFETY: the guest is in place, and what it is told too; firmware maps memory one to
    // one, so that paging can be switched off below 4 GiB, where this runs.
    unsafe { enter(start as u32, entry) }
}

/// Its program fails where firmware broke its promises: nothing is left to be told.
#[panic_handler]
fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
