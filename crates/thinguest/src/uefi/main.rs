//! `vmlab-thin.efi`: brings the thin guest up on UEFI firmware. It takes the plan from its
//! load options or from `\vmlab.txt` on the disk that it was read from, puts the guest
//! into memory, leaves the firmware, and enters it as its architecture's module says.
//!
//! Source: UEFI 2.10.

#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "firmware is left and the guest entered")]

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use thinguest::{BootAddresses, MapPiece, write_start_info};
use uefi::boot::{self, AllocateType, MemoryType, image_handle};
use uefi::mem::memory_map::MemoryMap;
use uefi::prelude::*;
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::media::file::{File, FileAttribute, FileMode};
use uefi::table::cfg::ConfigTableEntry;
use uefi::{Guid, guid, println, system};

#[cfg(target_arch = "aarch64")]
use aarch64::{GUEST, NO_ROOM, PlacedGuest, WHERE};
#[cfg(target_arch = "x86_64")]
use x86_64::{GUEST, NO_ROOM, PlacedGuest, WHERE};

const PAGE_BYTES: usize = 4096;
/// Longest plan.
const PLAN_BYTES: usize = 4096;
/// Longest device tree, as the guest takes it.
const TREE_BYTES: usize = 2 << 20;
/// What names the device tree (UEFI 2.10, 4.6.1).
const TREE_GUID: Guid = guid!("b1b621d5-f19c-41a5-830b-d9152c69aae0");

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

/// Memory for so many bytes, in whole pages of zeros, which stays when the firmware is left.
fn allocate(place: AllocateType, bytes: usize) -> Option<&'static mut [u8]> {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let memory = boot::allocate_pages(place, MemoryType::LOADER_DATA, pages).ok()?;
    // SAFETY: the firmware gave these pages to us alone.
    let memory = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), pages * PAGE_BYTES) };
    memory.fill(0);
    Some(memory)
}

/// The address of the firmware's table of the first of these names that there is.
fn table(names: &[Guid]) -> Option<usize> {
    system::with_config_table(|tables| {
        let find = |name: &Guid| tables.iter().find(|entry| entry.guid == *name);
        names.iter().find_map(find).map(|entry| entry.address as usize)
    })
}

/// A copy of the device tree, if there is one, and its bytes: the firmware's lies in memory
/// that is the guest's once the firmware is left.
fn device_tree() -> Option<(u64, u64)> {
    const MAGIC: u32 = 0xd00d_feed;
    let tree = table(&[TREE_GUID])? as *const [u32; 2];
    // SAFETY: the firmware says that a tree lies there, and that begins with two words.
    let [magic, bytes] = unsafe { tree.read_unaligned() }.map(u32::from_be);
    let bytes = bytes as usize;
    if magic != MAGIC || bytes > TREE_BYTES {
        return None;
    }
    let copy = allocate(WHERE, bytes)?;
    // SAFETY: it says itself how long it is.
    unsafe { core::ptr::copy_nonoverlapping(tree.cast::<u8>(), copy.as_mut_ptr(), bytes) };
    Some((copy.as_ptr() as u64, bytes as u64))
}

/// True if nobody needs memory of this kind when the firmware is left.
fn is_free(kind: MemoryType) -> bool {
    [MemoryType::CONVENTIONAL, MemoryType::BOOT_SERVICES_CODE, MemoryType::BOOT_SERVICES_DATA]
        .contains(&kind)
}

#[entry]
fn main() -> Status {
    let mut buffer = [0; PLAN_BYTES];
    let length = plan(&mut buffer);
    let Some(placed) = PlacedGuest::new() else {
        println!("vmlab-thin: {NO_ROOM}");
        return Status::OUT_OF_RESOURCES;
    };
    // What is told, and in a page of its own the command line.
    let Some(page) = allocate(WHERE, PAGE_BYTES + PLAN_BYTES) else {
        println!("vmlab-thin: there is no memory for what the guest is told");
        return Status::OUT_OF_RESOURCES;
    };
    let at = page.as_ptr() as u64;
    let (page, cmdline) = page.split_at_mut(PAGE_BYTES);
    cmdline[..length].copy_from_slice(&buffer[..length]);
    let acpi = table(&[ConfigTableEntry::ACPI2_GUID, ConfigTableEntry::ACPI_GUID]);
    let told = BootAddresses {
        cmdline: cmdline.as_ptr() as u64,
        acpi_root: acpi.unwrap_or(0) as u64,
        module: device_tree().unwrap_or((0, 0)),
    };
    // SAFETY: nothing of the firmware is used from here on.
    let map = unsafe { boot::exit_boot_services(None) };
    let pieces = map.entries().map(|piece| MapPiece {
        begin: piece.phys_start,
        end: piece.phys_start + piece.page_count * PAGE_BYTES as u64,
        is_free: is_free(piece.ty),
    });
    write_start_info(page, at, &told, pieces);
    // The map lies in the firmware's memory, which is the guest's now.
    core::mem::forget(map);
    placed.enter(at)
}

/// Its program fails where firmware broke its promises: nothing is left to be told.
#[panic_handler]
fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
