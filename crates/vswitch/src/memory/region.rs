//! Regions: files of guest memory, mapped, and the table of them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::Arc;

use rustix::fs::{fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::fault::Guard;
use super::span::GuestBuffer;

/// Where a region lies: in the guest, in the frontend's process, in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionAddresses {
    /// Guest physical address, which descriptors hold.
    pub guest_address: u64,
    /// Bytes.
    pub size: u64,
    /// Address in the frontend's process, which `SET_VRING_ADDR` holds.
    pub user_address: u64,
    /// Bytes from the file's beginning.
    pub file_offset: u64,
}

/// True if a file is kept in memory: of tmpfs, a memfd or of hugetlbfs. Only these have
/// seals, even if none is set or can be. The kernel says so itself, unlike `fstatfs`, which
/// asks the file system.
///
/// Source: Linux `mm/memfd.c`, `memfd_file_seals_ptr`.
pub(crate) fn is_in_memory(file: impl AsFd) -> bool {
    fcntl_get_seals(file).is_ok()
}

/// Error type for [`Region::map`].
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is of a file system that may let each access wait, for ever if it likes.
    #[error(
        "The file is no memory: it lies on a disk, a network or a file system in user space. \
             Give QEMU -object memory-backend-memfd,...,share=on or memory-backend-file with \
             mem-path= in /dev/shm or on hugetlbfs; libvirt <memoryBacking>\
             <source type='memfd'/><access mode='shared'/></memoryBacking>"
    )]
    NotMemory,
    /// A size of zero, or addresses that wrap around.
    #[error("A memory region of {size:#x} bytes at {address:#x} is no range of addresses")]
    Range {
        /// Bytes.
        size: u64,
        /// Where it begins.
        address: u64,
    },
    /// The file ends before the region does.
    #[error("A memory region needs {needed:#x} bytes of its file, which has {has:#x}")]
    Short {
        /// Bytes that the file must have.
        needed: u64,
        /// Bytes that it has.
        has: u64,
    },
    /// It overlaps another region.
    #[error("Memory regions overlap at {address:#x}")]
    Overlap {
        /// Where.
        address: u64,
    },
    /// More mappings than the process keeps.
    #[error("Too many memory regions are mapped")]
    TooMany,
    /// The file can't be mapped.
    #[error("Cannot map guest memory")]
    Map(#[source] io::Error),
}

/// One file of guest memory, or a part of one, mapped until dropped.
#[derive(Debug)]
pub struct Region {
    placement: RegionAddresses,
    /// The mapping, which begins and ends at pages.
    start: *mut u8,
    length: usize,
    /// The region's first byte in the mapping.
    first: *mut u8,
    guard: Guard,
    untouched: bool,
}

// SAFETY: the pointers are to a shared mapping that this value owns until it is
// dropped; all access through them is by volatile, atomic or raw copies, which need
// no exclusive use. Nothing in it belongs to a thread.
unsafe impl Send for Region {}
// SAFETY: as above: `&Region` gives no way to anything but such accesses.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a part of `file`.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    pub fn map(file: impl AsFd, placement: RegionAddresses) -> Result<Self, MapError> {
        let RegionAddresses { guest_address, size, user_address, file_offset } = placement;
        let wraps = |address: u64| address.checked_add(size).is_none();
        for address in [guest_address, user_address, file_offset] {
            if size == 0 || wraps(address) || usize::try_from(size).is_err() {
                return Err(MapError::Range { size, address });
            }
        }
        let os = |error: rustix::io::Errno| MapError::Map(error.into());
        // Before anything else is asked of it. A page of any other file may come late or never,
        // and the thread that touches it serves all ports.
        if !is_in_memory(&file) {
            return Err(MapError::NotMemory);
        }
        let stat = fstat(&file).map_err(os)?;
        // One page that was written is one that the file has.
        let untouched = stat.st_blocks == 0;
        let needed = file_offset + size;
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        if needed > has {
            return Err(MapError::Short { needed, has });
        }
        // A file of huge pages is mapped in whole ones; `st_blksize` is their size.
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).max(4096).next_power_of_two();
        let begin = file_offset & !(page - 1);
        let before = usize::try_from(file_offset - begin).expect("less than a page");
        let length = (needed - begin).checked_next_multiple_of(page);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(MapError::Range { size, address: file_offset })?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory
        // that anything here uses.
        let mapped = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                begin,
            )
        };
        let start = mapped.map_err(os)?.cast::<u8>();
        let Some(guard) = Guard::new(start as usize, length) else {
            // SAFETY: it was mapped just now, and nothing points into it.
            let unmapped = unsafe { munmap(start.cast(), length) };
            debug_assert_eq!(unmapped, Ok(()), "the mapping is as it was made");
            return Err(MapError::TooMany);
        };
        // SAFETY: `before + size <= length`, so the first byte lies inside the mapping.
        let first = unsafe { start.add(before) };
        Ok(Self { placement, start, length, first, guard, untouched })
    }

    /// Memory of this process's own, which other processes can be given: `size`
    /// bytes of a file without a name, at the guest and user address `address`.
    ///
    /// # Errors
    /// [`MapError::Map`], and what [`Region::map`] says.
    pub fn create(size: u64, address: u64) -> Result<(Self, File), MapError> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let os = |error: rustix::io::Errno| MapError::Map(error.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("vmlab-frontend", flags).map_err(os)?;
        ftruncate(&file, size).map_err(os)?;
        fcntl_add_seals(&file, SealFlags::GROW).map_err(os)?;
        let placement =
            RegionAddresses { guest_address: address, size, user_address: address, file_offset: 0 };
        let region = Self::map(&file, placement)?;
        Ok((region, file.into()))
    }

    /// Memory of this process alone, without a file, which Miri maps, too.
    #[cfg(test)]
    pub(crate) fn anonymous(size: u64, address: u64) -> Self {
        let length = usize::try_from(size).unwrap().next_multiple_of(4096);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE)
        };
        let start = mapped.unwrap().cast::<u8>();
        let guard = Guard::new(start as usize, length).unwrap();
        let placement =
            RegionAddresses { guest_address: address, size, user_address: address, file_offset: 0 };
        Self { placement, start, length, first: start, guard, untouched: true }
    }

    /// Where it lies.
    #[must_use]
    pub fn placement(&self) -> RegionAddresses {
        self.placement
    }

    /// True if nobody had written to its file when it was mapped: a guest that runs, and
    /// has memory there, has.
    #[must_use]
    pub fn was_untouched(&self) -> bool {
        self.untouched
    }

    /// True if its file was made shorter, or its pages could not be had: it holds
    /// zeros that no guest sees.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// `length` bytes at `offset` from its beginning.
    #[inline]
    #[must_use]
    pub fn at(&self, offset: u64, length: usize) -> Option<GuestBuffer<'_>> {
        let size = self.placement.size;
        if offset > size || length as u64 > size - offset {
            return None;
        }
        // SAFETY: `offset + length <= size`, and `size` bytes from `first` are mapped
        // until `self` is dropped, which the result's lifetime forbids.
        Some(unsafe { GuestBuffer::new(self.first.add(offset as usize), length) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.guard.release();
        // SAFETY: the mapping is this value's alone, and every pointer handed out
        // borrows it.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping is as it was made");
    }
}

/// All memory of a guest that its frontend shares, in order of guest addresses.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    regions: Vec<Arc<Region>>,
    /// Of the same order, side by side: each descriptor asks for one.
    windows: Vec<RegionWindow>,
}

/// Where a region is seen, here and in the guest.
#[derive(Debug, Clone, Copy)]
struct RegionWindow {
    guest_address: u64,
    size: u64,
    first: *mut u8,
}

// SAFETY: the pointer goes to the mapping of a `Region`, which is Send and Sync, and is
// only used beside it.
unsafe impl Send for RegionWindow {}
// SAFETY: as above.
unsafe impl Sync for RegionWindow {}

impl GuestMemory {
    /// The table without a region.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Its regions.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &Arc<Region>> {
        self.regions.iter()
    }

    /// Takes in one more region.
    ///
    /// # Errors
    /// [`MapError::Overlap`] in guest or user addresses.
    pub fn add(&mut self, region: Region) -> Result<(), MapError> {
        let new = region.placement();
        for known in &self.regions {
            let known = known.placement();
            for (a, b) in
                [(new.guest_address, known.guest_address), (new.user_address, known.user_address)]
            {
                if a < b + known.size && b < a + new.size {
                    return Err(MapError::Overlap { address: a.max(b) });
                }
            }
        }
        let after = self
            .regions
            .partition_point(|known| known.placement().guest_address < new.guest_address);
        self.regions.insert(after, Arc::new(region));
        self.open_windows();
        Ok(())
    }

    /// Lets go of the region that lies where `placement` says; false if there is none.
    pub fn remove(&mut self, placement: RegionAddresses) -> bool {
        let before = self.regions.len();
        self.regions.retain(|region| {
            let known = region.placement();
            known.guest_address != placement.guest_address
                || known.user_address != placement.user_address
                || known.size != placement.size
        });
        self.open_windows();
        self.regions.len() < before
    }

    fn open_windows(&mut self) {
        let window = |region: &Arc<Region>| RegionWindow {
            guest_address: region.placement.guest_address,
            size: region.placement.size,
            first: region.first,
        };
        self.windows = self.regions.iter().map(window).collect();
    }

    /// `length` bytes at a guest physical address, if one region holds them all.
    #[inline]
    #[must_use]
    pub fn at(&self, guest_address: u64, length: usize) -> Option<GuestBuffer<'_>> {
        for window in &self.windows {
            let offset = guest_address.wrapping_sub(window.guest_address);
            if offset <= window.size && length as u64 <= window.size - offset {
                // SAFETY: `offset + length <= size`, and `size` bytes from `first` are mapped
                // until the region is dropped. `regions` holds each region that has a window,
                // and can't let go of it while the result's lifetime borrows `self`.
                return Some(unsafe {
                    GuestBuffer::new(window.first.add(offset as usize), length)
                });
            }
        }
        None
    }

    /// The guest physical address of a buffer that came from here.
    #[must_use]
    pub fn guest_address(&self, buffer: GuestBuffer<'_>) -> Option<u64> {
        let start = buffer.start() as u64;
        self.regions.iter().find_map(|region| {
            let offset = start.checked_sub(region.first as u64)?;
            (offset < region.placement.size).then(|| region.placement.guest_address + offset)
        })
    }

    /// The region that holds `length` bytes at an address of the frontend's
    /// process, and the offset in it.
    #[must_use]
    pub fn find_user(&self, user_address: u64, length: u64) -> Option<(&Arc<Region>, u64)> {
        self.regions.iter().find_map(|region| {
            let placement = region.placement;
            let offset = user_address.checked_sub(placement.user_address)?;
            let end = offset.checked_add(length)?;
            (end <= placement.size).then_some((region, offset))
        })
    }

    /// True if a region is lost ([`Region::is_lost`]).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost())
    }
}
