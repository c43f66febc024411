//! ACPI's tables, as firmware leaves them in memory. A table whose checksum is wrong is
//! none, nothing is read behind a table's end, and a walk ends where an entry's length
//! can't be.
//!
//! Source: ACPI 6.5, chapter 5.

mod arm;
mod x86;

pub use arm::{Gic, MAX_REDISTRIBUTORS, PRIVATE_INTERRUPTS, VIRTUAL_TIMER};
pub use x86::PowerOff;

use crate::{NodeMap, NodePieces, PhysicalMemory};

/// What a table begins with, bytes.
const HEADER_BYTES: u64 = 36;
/// Longest table, bytes.
const MAX_TABLE_BYTES: u64 = 1 << 20;
const MAX_TABLES: u64 = 128;

/// True if these bytes are there and their sum is 0.
fn sum_is_0<M: PhysicalMemory>(memory: M, begin: u64, bytes: u64) -> bool {
    let sum = (begin..begin.saturating_add(bytes))
        .try_fold(0_u8, |sum, at| memory.read(at).map(|[byte]| sum.wrapping_add(byte)));
    sum == Some(0)
}

/// A table, or one of its entries: a place in memory.
#[derive(Debug, Clone, Copy)]
pub struct Table<M> {
    memory: M,
    begin: u64,
    bytes: u64,
}

impl<M: PhysicalMemory> Table<M> {
    /// The table of this name at `begin`, if one is there that is whole.
    fn at(memory: M, begin: u64, name: [u8; 4]) -> Option<Self> {
        if memory.read(begin)? != name {
            return None;
        }
        let bytes = u64::from(memory.u32_at(begin.checked_add(4)?)?);
        let fits = (HEADER_BYTES..=MAX_TABLE_BYTES).contains(&bytes);
        (fits && sum_is_0(memory, begin, bytes)).then_some(Self { memory, begin, bytes })
    }

    /// Its bytes from `offset` on; none beyond its end.
    fn get<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let fits = offset.checked_add(N as u64)? <= self.bytes;
        fits.then(|| self.memory.read(self.begin + offset))?
    }

    fn u8(&self, offset: u64) -> Option<u8> {
        self.get(offset).map(u8::from_le_bytes)
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        self.get(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        self.get(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.get(offset).map(u64::from_le_bytes)
    }

    /// The entries from `first` on, each with its kind, which its first two bytes say
    /// with its length: up to one that is not whole.
    fn entries(self, first: u64) -> impl Iterator<Item = (u8, Self)> {
        let mut at = first;
        core::iter::from_fn(move || {
            let [kind, length] = self.get(at)?;
            let entry =
                Self { begin: self.begin + at, bytes: u64::from(length), memory: self.memory };
            at += entry.bytes;
            (entry.bytes >= 2 && at <= self.bytes).then_some((kind, entry))
        })
    }
}

/// All tables.
#[derive(Debug, Clone, Copy)]
pub struct Tables<M> {
    /// The table of their addresses, and how wide these are.
    root: Table<M>,
    width: u64,
}

impl<M: PhysicalMemory> Tables<M> {
    /// Those that the root system description pointer at `pointer` leads to.
    pub fn at(memory: M, pointer: u64) -> Option<Self> {
        /// Of its first version, and the least that later ones have.
        const BYTES: u64 = 20;
        const EXTENDED_BYTES: u64 = 36;
        if memory.read(pointer)? != *b"RSD PTR " || !sum_is_0(memory, pointer, BYTES) {
            return None;
        }
        let [revision] = memory.read(pointer + 15)?;
        let extended = || {
            let bytes = u64::from(memory.u32_at(pointer + 20)?);
            let fits = (EXTENDED_BYTES..=4096).contains(&bytes);
            (fits && sum_is_0(memory, pointer, bytes)).then_some(())?;
            let root = Table::at(memory, memory.u64_at(pointer + 24)?, *b"XSDT")?;
            Some(Self { root, width: 8 })
        };
        let first = || {
            let root = u64::from(memory.u32_at(pointer + 16)?);
            Some(Self { root: Table::at(memory, root, *b"RSDT")?, width: 4 })
        };
        (revision >= 2).then(extended).flatten().or_else(first)
    }

    /// The first table of this name.
    fn find(&self, name: [u8; 4]) -> Option<Table<M>> {
        let count = (self.root.bytes - HEADER_BYTES) / self.width;
        (0..count.min(MAX_TABLES)).find_map(|index| {
            let offset = HEADER_BYTES + index * self.width;
            let address = match self.width {
                8 => self.root.u64(offset)?,
                _ => u64::from(self.root.u32(offset)?),
            };
            Table::at(self.root.memory, address, name)
        })
    }

    /// The entries of the MADT, which names interrupt controllers.
    fn interrupt_controllers(&self) -> impl Iterator<Item = (u8, Table<M>)> {
        self.find(*b"APIC").into_iter().flat_map(|table| table.entries(44))
    }

    /// The memory of the nodes: their largest pieces below `limit`, if there are several.
    pub fn node_memory(&self, limit: u64) -> Option<NodePieces> {
        const MEMORY: u8 = 1;
        const ENABLED: u32 = 1;
        let mut memory = NodeMap::below(limit);
        for (kind, entry) in self.find(*b"SRAT")?.entries(48) {
            if kind == MEMORY && entry.u32(28)? & ENABLED != 0 {
                memory.add(entry.u32(2)?, entry.u64(8)?, entry.u64(16)?);
            }
        }
        memory.pieces()
    }

    /// The fixed description: what of the machine has registers of its own.
    fn fixed(&self) -> Option<Table<M>> {
        self.find(*b"FACP")
    }

    /// The definition block: code, behind a table's header.
    fn definition_block(&self) -> Option<Table<M>> {
        let fixed = self.fixed()?;
        let wide = fixed.u64(140).filter(|at| *at != 0);
        let address = wide.or_else(|| fixed.u32(40).map(u64::from))?;
        Table::at(self.root.memory, address, *b"DSDT")
    }

    /// Each virtio device that the definition block names: the address of its registers,
    /// and its interrupt. No code is executed: the resources of such a device stand
    /// behind its name.
    ///
    /// Source: ACPI 6.5, sections 6.4.3.4 (32-bit fixed memory) and 6.4.3.6 (extended
    /// interrupt).
    pub fn virtio_devices(&self) -> impl Iterator<Item = (u64, u32)> {
        const NAME: [u8; 8] = *b"LNRO0005";
        /// How far behind its name they begin.
        const BEHIND: u64 = 96;
        let block = self.definition_block();
        block.into_iter().flat_map(|block| {
            let names = (HEADER_BYTES..block.bytes).filter(move |at| block.get(*at) == Some(NAME));
            names.filter_map(move |name| {
                let mut behind = name..name + BEHIND;
                let memory = behind.find(|at| block.get(*at) == Some([0x86, 9, 0]))?;
                // Its length, its flags, and that one number follows.
                let interrupt =
                    behind.find(|at| matches!(block.get(*at), Some([0x89, 6, 0, _, 1])))?;
                Some((u64::from(block.u32(memory + 4)?), block.u32(interrupt + 5)?))
            })
        })
    }
}

#[cfg(test)]
mod tests;
