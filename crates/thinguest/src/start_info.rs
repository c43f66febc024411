//! PVH's `hvm_start_info`: what the loader hands over. On x86-64 every loader with PVH has
//! it; on arm64 the loader for UEFI alone, in the place of the device tree, which is then
//! its module.
//!
//! Source: Xen `xen/include/public/arch-x86/hvm/start_info.h`.

use crate::PhysicalMemory;

const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;
/// The kind of memory that is used by nobody, and one that is.
const RAM: u32 = 1;
const RESERVED: u32 = 2;
const MAP_ENTRY_BYTES: usize = 24;
/// Where the writer puts the entry of the module, and the memory map.
const MODULE_AT: usize = 64;
const MAP_AT: usize = 96;
/// Longest memory map that is read, entries.
const MAX_MAP_ENTRIES: u64 = 512;

/// What was handed over.
#[derive(Debug, Clone, Copy)]
pub struct StartInfo<M> {
    memory: M,
    at: u64,
}

impl<M: PhysicalMemory> StartInfo<M> {
    /// That at `at`, if one is there.
    pub fn at(memory: M, at: u64) -> Option<Self> {
        at.checked_add(MODULE_AT as u64)?;
        (memory.u32_at(at)? == MAGIC).then_some(Self { memory, at })
    }

    fn address(&self, offset: u64) -> Option<u64> {
        self.memory.u64_at(self.at + offset).filter(|at| *at != 0)
    }

    /// The command line, in `buffer`; empty if it is too long or no text.
    pub fn cmdline<'a>(&self, buffer: &'a mut [u8]) -> &'a str {
        let Some(address) = self.address(24) else { return "" };
        let mut length = 0;
        for (offset, byte) in (0..).zip(buffer.iter_mut()) {
            let at = address.checked_add(offset);
            match at.and_then(|at| self.memory.read::<1>(at)) {
                None | Some([0]) => break,
                Some([found]) => *byte = found,
            }
            length += 1;
        }
        if length == buffer.len() {
            return "";
        }
        core::str::from_utf8(&buffer[..length]).unwrap_or_default()
    }

    /// Where ACPI's root system description pointer is.
    pub fn acpi_root(&self) -> Option<u64> {
        self.address(32)
    }

    /// Where the first module begins.
    pub fn module(&self) -> Option<u64> {
        let modules = self.memory.u32_at(self.at + 12)?;
        let first = self.address(16).filter(|_| modules > 0)?;
        self.memory.u64_at(first).filter(|at| *at != 0)
    }

    /// The largest piece of memory within `begin..end` that nobody uses.
    pub fn largest_memory(&self, begin: u64, end: u64) -> Option<(u64, u64)> {
        let (map, entries) = (self.address(40)?, u64::from(self.memory.u32_at(self.at + 48)?));
        let piece = |index: u64| {
            let at = map.checked_add(MAP_ENTRY_BYTES as u64 * index)?;
            let (first, bytes) = (self.memory.u64_at(at)?, self.memory.u64_at(at + 8)?);
            let piece = (first.max(begin), first.saturating_add(bytes).min(end));
            (self.memory.u32_at(at + 16)? == RAM && piece.0 < piece.1).then_some(piece)
        };
        let pieces = (0..entries.min(MAX_MAP_ENTRIES)).filter_map(piece);
        pieces.max_by_key(|(begin, end)| end - begin)
    }
}

/// A part of the memory map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPiece {
    /// Where it begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
    /// True if nobody uses it.
    pub is_free: bool,
}

/// What a loader tells: physical addresses, 0 where there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootAddresses {
    /// The command line, which ends with 0.
    pub cmdline: u64,
    /// ACPI's root system description pointer.
    pub acpi_root: u64,
    /// The module, and its bytes.
    pub module: (u64, u64),
}

/// Writes it to the page that lies at `at`, with the memory map, of which pieces that lie
/// side by side and are the same become one. What of it finds no room is left out.
pub fn write_start_info(
    page: &mut [u8],
    at: u64,
    told: &BootAddresses,
    map: impl Iterator<Item = MapPiece>,
) {
    let mut put = |offset: usize, bytes: &[u8]| {
        let place = page.get_mut(offset..offset + bytes.len());
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    };
    let mut entries = 0;
    let mut write = |piece: MapPiece| {
        let mut entry = [0; MAP_ENTRY_BYTES];
        entry[..8].copy_from_slice(&piece.begin.to_le_bytes());
        entry[8..16].copy_from_slice(&(piece.end - piece.begin).to_le_bytes());
        let kind = if piece.is_free { RAM } else { RESERVED };
        entry[16..20].copy_from_slice(&kind.to_le_bytes());
        entries += u32::from(put(MAP_AT + entries as usize * MAP_ENTRY_BYTES, &entry));
    };
    let mut last: Option<MapPiece> = None;
    for piece in map.filter(|piece| piece.begin < piece.end) {
        last = Some(match last {
            Some(last) if last.end == piece.begin && last.is_free == piece.is_free => {
                MapPiece { end: piece.end, ..last }
            }
            other => {
                other.into_iter().for_each(&mut write);
                piece
            }
        });
    }
    last.into_iter().for_each(&mut write);
    let has_module = u32::from(told.module.0 != 0);
    let words = [(0, MAGIC), (4, VERSION), (12, has_module), (48, entries)];
    words.iter().for_each(|(offset, word)| _ = put(*offset, &word.to_le_bytes()));
    for (offset, word) in [
        (16, at + MODULE_AT as u64),
        (24, told.cmdline),
        (32, told.acpi_root),
        (40, at + MAP_AT as u64),
        (MODULE_AT, told.module.0),
        (MODULE_AT + 8, told.module.1),
    ] {
        put(offset, &word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::TestMemory;

    const AT: u64 = 0x4_0000;

    fn piece(begin: u64, end: u64, is_free: bool) -> MapPiece {
        MapPiece { begin, end, is_free }
    }

    fn written(told: &BootAddresses, map: &[MapPiece]) -> Vec<u8> {
        let mut page = vec![0; 4096];
        write_start_info(&mut page, AT, told, map.iter().copied());
        page
    }

    #[test]
    fn what_is_written_is_read() {
        let told = BootAddresses { cmdline: AT + 4000, acpi_root: 0x1234, module: (0x5000, 0x600) };
        let map = [
            piece(0x1000, 0x2000, true),
            piece(0x2000, 0x4000, true),
            piece(0x4000, 0x9000, false),
            piece(0x9000, 0x9000, true),
            piece(0x10_0000, 0x10_2000, true),
        ];
        let mut page = written(&told, &map);
        page[4000..4006].copy_from_slice(b"run=x\0");
        let start = StartInfo::at(TestMemory { begin: AT, bytes: &page }, AT).unwrap();
        assert_eq!(start.cmdline(&mut [0; 64]), "run=x");
        assert_eq!((start.acpi_root(), start.module()), (Some(0x1234), Some(0x5000)));
        // Those side by side are one.
        assert_eq!(page[48], 3);
        assert_eq!(start.largest_memory(0, u64::MAX), Some((0x1000, 0x4000)));
        assert_eq!(start.largest_memory(0x2800, u64::MAX), Some((0x10_0000, 0x10_2000)));
        assert_eq!(start.largest_memory(0, 0x2000), Some((0x1000, 0x2000)));
        assert_eq!(start.largest_memory(0x4000, 0x9000), None);
        // A command line for which the buffer is too small.
        assert_eq!(start.cmdline(&mut [0; 5]), "");
    }

    #[test]
    fn what_was_not_told_is_not_there() {
        let told = BootAddresses { cmdline: 0, acpi_root: 0, module: (0, 0) };
        let page = written(&told, &[]);
        let memory = TestMemory { begin: AT, bytes: &page };
        let start = StartInfo::at(memory, AT).unwrap();
        assert_eq!(start.cmdline(&mut [0; 8]), "");
        assert_eq!((start.acpi_root(), start.module()), (None, None));
        assert_eq!(start.largest_memory(0, u64::MAX), None);
        assert!(StartInfo::at(memory, AT + 4).is_none());
        assert!(StartInfo::at(memory, u64::MAX).is_none());
    }

    #[test]
    fn a_map_that_is_too_long_keeps_what_fits() {
        let told = BootAddresses { cmdline: 0, acpi_root: 0, module: (0, 0) };
        let pieces: Vec<_> = (0..1000).map(|n| piece(n * 2, n * 2 + 1, true)).collect();
        let page = written(&told, &pieces);
        let entries = u32::from_le_bytes(page[48..52].try_into().unwrap());
        assert_eq!(entries as usize, (4096 - MAP_AT) / MAP_ENTRY_BYTES);
    }

    #[test]
    fn a_map_that_lies_is_bounded() {
        let told = BootAddresses { cmdline: u64::MAX, acpi_root: 0, module: (0, 0) };
        let mut page = written(&told, &[piece(0x1000, 0x2000, true)]);
        // It claims four thousand millions of entries, and one that wraps around.
        page[48..52].copy_from_slice(&u32::MAX.to_le_bytes());
        page[MAP_AT + 8..MAP_AT + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        let start = StartInfo::at(TestMemory { begin: AT, bytes: &page }, AT).unwrap();
        assert_eq!(start.largest_memory(0, 0x8000), Some((0x1000, 0x8000)));
        assert_eq!(start.cmdline(&mut [0; 8]), "");
        page[40..48].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        let start = StartInfo::at(TestMemory { begin: AT, bytes: &page }, AT).unwrap();
        assert_eq!(start.largest_memory(0, 0x8000), None);
    }
}
