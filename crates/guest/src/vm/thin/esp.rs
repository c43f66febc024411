//! The disk from which UEFI firmware boots the thin guest: a FAT16 file system without
//! partitions, which removable media may have.
//!
//! Sources: Microsoft's FAT specification 1.03; UEFI 2.10, 13.3 and 3.5.1.1.

use vmconfig::Arch;

const SECTOR: usize = 512;
const SECTORS: usize = 8192;
/// A file allocation table has a word for each cluster, which is a sector.
const TABLE_SECTORS: usize = SECTORS * 2 / SECTOR;
const ROOT_ENTRIES: usize = 512;
const ROOT_AT: usize = 1 + 2 * TABLE_SECTORS;
/// Where the clusters begin; the first two have no sector.
const DATA_AT: usize = ROOT_AT + ROOT_ENTRIES * ENTRY / SECTOR;
const ENTRY: usize = 32;
const FOLDER: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
/// 1 January 2000: the disk is the same whenever it is made.
const DATE: u16 = 20 << 9 | 1 << 5 | 1;

struct Disk {
    bytes: Vec<u8>,
    next: usize,
}

impl Disk {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Clusters for `bytes` bytes, one behind the other: the first, and where it begins.
    fn clusters(&mut self, bytes: usize) -> (usize, usize) {
        let (first, count) = (self.next, bytes.div_ceil(SECTOR).max(1));
        self.next += count;
        for cluster in first..self.next {
            let next = if cluster + 1 == self.next { 0xffff } else { cluster as u16 + 1 };
            for table in [1, 1 + TABLE_SECTORS] {
                self.put(table * SECTOR + cluster * 2, &next.to_le_bytes());
            }
        }
        (first, (DATA_AT + first - 2) * SECTOR)
    }

    fn entry(&mut self, at: usize, name: &[u8; 11], kind: u8, cluster: usize, bytes: usize) {
        self.put(at, name);
        self.bytes[at + 11] = kind;
        for date in [16, 18, 24] {
            self.put(at + date, &DATE.to_le_bytes());
        }
        self.put(at + 26, &(cluster as u16).to_le_bytes());
        self.put(at + 28, &(bytes as u32).to_le_bytes());
    }

    /// A folder whose entry is `at`: its cluster, and where its next entry goes.
    fn folder(&mut self, at: usize, name: &[u8; 11], parent: usize) -> (usize, usize) {
        let (cluster, inside) = self.clusters(SECTOR);
        self.entry(at, name, FOLDER, cluster, 0);
        self.entry(inside, b".          ", FOLDER, cluster, 0);
        self.entry(inside + ENTRY, b"..         ", FOLDER, parent, 0);
        (cluster, inside + 2 * ENTRY)
    }

    fn file(&mut self, at: usize, name: &[u8; 11], bytes: &[u8]) {
        let (cluster, inside) = self.clusters(bytes.len());
        self.entry(at, name, ARCHIVE, cluster, bytes.len());
        self.put(inside, bytes);
    }
}

/// What tells such a disk from others.
const LABEL_AT: usize = 43;
const LABEL: &[u8] = b"VMLAB THIN FAT16   ";

/// True if a disk that begins so is one of ours.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.get(LABEL_AT..LABEL_AT + LABEL.len()) == Some(LABEL)
}

/// The disk of `loader`, which firmware of `arch` starts without being asked for, and `plan`.
pub(super) fn disk(arch: Arch, loader: &[u8], plan: &str) -> Vec<u8> {
    let name = match arch {
        Arch::X86_64 => b"BOOTX64 EFI",
        Arch::Aarch64 => b"BOOTAA64EFI",
    };
    let mut disk = Disk { bytes: vec![0; SECTORS * SECTOR], next: 2 };
    disk.put(0, b"\xeb\x3c\x90VMLAB   ");
    let words = [(11, SECTOR), (14, 1), (17, ROOT_ENTRIES), (19, SECTORS), (22, TABLE_SECTORS)];
    for (at, word) in words {
        disk.put(at, &(word as u16).to_le_bytes());
    }
    // Sectors a cluster, tables, what is a fixed disk.
    for (at, byte) in [(13, 1), (16, 2), (21, 0xf8), (36, 0x80), (38, 0x29)] {
        disk.bytes[at] = byte;
    }
    disk.put(LABEL_AT, LABEL);
    disk.put(510, &[0x55, 0xaa]);
    for table in [1, 1 + TABLE_SECTORS] {
        disk.put(table * SECTOR, &[0xf8, 0xff, 0xff, 0xff]);
    }
    let root = ROOT_AT * SECTOR;
    let (efi, inside) = disk.folder(root, b"EFI        ", 0);
    let (_, inside) = disk.folder(inside, b"BOOT       ", efi);
    disk.file(inside, name, loader);
    disk.file(root + ENTRY, b"VMLAB   TXT", plan.as_bytes());
    disk.bytes
}
