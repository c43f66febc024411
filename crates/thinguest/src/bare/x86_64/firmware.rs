//! What the loader and the firmware left in memory: PVH's start_info, ACPI's tables.
//!
//! Source: Xen `xen/include/public/arch-x86/hvm/start_info.h`; ACPI 6.5, chapter 5.

use super::exit::{PowerOff, set_power_off};
use super::io_apic;
use crate::found::{CMDLINE_BYTES, Found};
use crate::metal::memory::{POOL_END, Pool, read, take_page_0_away};
use crate::metal::vcpu::MAX_VCPUS;
use crate::metal::virtio_mmio;

const START_MAGIC: u32 = 0x336e_c578;
const MAX_TABLES: u64 = 64;

fn u16_at(address: u64) -> Option<u16> {
    read(address).map(u16::from_le_bytes)
}

fn u32_at(address: u64) -> Option<u32> {
    read(address).map(u32::from_le_bytes)
}

fn u64_at(address: u64) -> Option<u64> {
    read(address).map(u64::from_le_bytes)
}

/// Devices that are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Devices {
    pub(crate) hpet: Option<u64>,
    pub(crate) io_apic: Option<u64>,
}

/// All that is known when the guest begins, with the command line in `buffer`.
pub(crate) fn find(start_info: u64, buffer: &mut [u8; CMDLINE_BYTES]) -> Found<'_, Devices> {
    let start = StartInfo::at(start_info);
    let cmdline = start.map_or("", |start| start.cmdline(buffer));
    let tables = start.and_then(|start| start.tables());
    if let Some(how) = tables.and_then(|tables| tables.power_off()) {
        set_power_off(how);
    }
    if let Some(tables) = tables {
        tables.io_apics(&mut io_apic::remember);
        tables.virtio_devices(&mut virtio_mmio::remember);
    }
    let mut pool = start.and_then(|start| start.pool());
    let far = tables.and_then(|tables| tables.far_memory());
    let far = far.and_then(|(begin, end)| pool.as_mut()?.split(begin, end));
    let mut ids = [0; MAX_VCPUS];
    let vcpus = tables.map_or(1, |tables| tables.local_apics(&mut ids));
    let devices = Devices {
        hpet: tables.and_then(|tables| tables.hpet()),
        io_apic: tables.and_then(|tables| tables.io_apic()),
    };
    take_page_0_away();
    Found { cmdline, pool, far, ids, vcpus, devices }
}

/// PVH's `hvm_start_info`.
#[derive(Debug, Clone, Copy)]
struct StartInfo(u64);

impl StartInfo {
    fn at(at: u64) -> Option<Self> {
        (u32_at(at)? == START_MAGIC).then_some(Self(at))
    }

    /// The command line, in `buffer`; empty if it is too long or no text.
    fn cmdline<'a>(&self, buffer: &'a mut [u8; CMDLINE_BYTES]) -> &'a str {
        let Some(address) = u64_at(self.0 + 24).filter(|at| *at != 0) else { return "" };
        let mut length = 0;
        for (at, byte) in (address..).zip(buffer.iter_mut()) {
            match read::<1>(at) {
                None | Some([0]) => break,
                Some([found]) => *byte = found,
            }
            length += 1;
        }
        if length == CMDLINE_BYTES {
            return "";
        }
        core::str::from_utf8(&buffer[..length]).unwrap_or_default()
    }

    /// The memory that nobody uses: the largest piece.
    fn pool(&self) -> Option<Pool> {
        const RAM: u32 = 1;
        let (map, entries) = (u64_at(self.0 + 40)?, u64::from(u32_at(self.0 + 48)?));
        let piece = |index: u64| {
            let at = map + 24 * index;
            let (begin, bytes) = (u64_at(at)?, u64_at(at + 8)?);
            let end = begin.saturating_add(bytes).min(POOL_END);
            (u32_at(at + 16)? == RAM && begin < end).then_some((begin, end))
        };
        let pieces = (0..entries.min(128)).filter_map(piece);
        let (begin, end) = pieces.max_by_key(|(begin, end)| end - begin)?;
        Pool::take(begin, end)
    }

    /// ACPI's root, where the loader says, else where old firmware puts it.
    fn tables(&self) -> Option<Tables> {
        let named = u64_at(self.0 + 32).filter(|at| *at != 0);
        let mut searched = (0xe0000..0x10_0000).step_by(16);
        let root = named.or_else(|| searched.find(|at| read(*at) == Some(*b"RSD PTR ")))?;
        let [revision] = read(root + 15)?;
        Some(if revision >= 2 && u64_at(root + 24)? != 0 {
            Tables { root: u64_at(root + 24)?, width: 8 }
        } else {
            Tables { root: u64::from(u32_at(root + 16)?), width: 4 }
        })
    }
}

/// ACPI's tables.
#[derive(Debug, Clone, Copy)]
struct Tables {
    root: u64,
    width: u64,
}

impl Tables {
    fn find(&self, signature: [u8; 4]) -> Option<u64> {
        let count = u64::from(u32_at(self.root + 4)?).checked_sub(36)? / self.width;
        (0..count.min(MAX_TABLES)).find_map(|index| {
            let entry = self.root + 36 + index * self.width;
            let table = if self.width == 8 { u64_at(entry)? } else { u64::from(u32_at(entry)?) };
            (read(table)? == signature).then_some(table)
        })
    }

    /// Calls `entry` with the kind and the address of each of the MADT's entries.
    fn interrupt_controllers(&self, entry: &mut dyn FnMut(u8, u64)) {
        let Some(table) = self.find(*b"APIC") else { return };
        let end = table + u64::from(u32_at(table + 4).unwrap_or_default().min(1 << 16));
        let mut at = table + 44;
        while at + 2 <= end {
            let Some([kind, length]) = read(at) else { return };
            entry(kind, at);
            // A length of 0 would be the table's last.
            at += u64::from(length).max(2);
        }
    }

    /// The identities of the vCPUs' local APICs, written to `found`; returns how many
    /// there are, also those for which there is no room.
    fn local_apics(&self, found: &mut [u64; MAX_VCPUS]) -> usize {
        const ENABLED: u32 = 1;
        let mut count = 0;
        self.interrupt_controllers(&mut |kind, at| {
            let (id, flags) = match kind {
                0 => (read::<1>(at + 3).map(|[id]| u32::from(id)), u32_at(at + 4)),
                9 => (u32_at(at + 4), u32_at(at + 8)),
                _ => return,
            };
            if let (Some(id), Some(flags)) = (id, flags)
                && flags & ENABLED != 0
            {
                if let Some(slot) = found.get_mut(count) {
                    *slot = u64::from(id);
                }
                count += 1;
            }
        });
        count
    }

    /// The memory of the last node below 4 GiB, if there are several: where it begins
    /// and ends.
    fn far_memory(&self) -> Option<(u64, u64)> {
        const MEMORY: u8 = 1;
        const ENABLED: u32 = 1;
        let table = self.find(*b"SRAT")?;
        let end = table + u64::from(u32_at(table + 4)?.min(1 << 16));
        let (mut at, mut first, mut last) = (table + 48, None, None);
        while at + 2 <= end {
            let [kind, length] = read(at)?;
            if kind == MEMORY && u32_at(at + 28)? & ENABLED != 0 {
                let (node, begin, bytes) = (u32_at(at + 2)?, u64_at(at + 8)?, u64_at(at + 16)?);
                first.get_or_insert(node);
                if begin < 1 << 32 && bytes > 0 {
                    last = Some((node, begin, begin.saturating_add(bytes)));
                }
            }
            at += u64::from(length).max(2);
        }
        last.filter(|(node, ..)| Some(*node) != first).map(|(_, begin, end)| (begin, end))
    }

    /// Calls `each` with the page of each I/O APIC and the interrupt at its first pin.
    fn io_apics(&self, each: &mut dyn FnMut(u64, u32)) {
        self.interrupt_controllers(&mut |kind, at| {
            if kind == 1
                && let (Some(page), Some(first)) = (u32_at(at + 4), u32_at(at + 8))
            {
                each(u64::from(page), first);
            }
        });
    }

    /// The first I/O APIC's page.
    fn io_apic(&self) -> Option<u64> {
        let mut found = None;
        self.io_apics(&mut |page, _| {
            found.get_or_insert(page);
        });
        found
    }

    /// Calls `each` with the address and the interrupt of each virtio device that the
    /// definition block names. Its code is not executed: the resources of such a device
    /// stand behind its name.
    ///
    /// Source: ACPI 6.5, sections 6.4.3.4 (32-bit fixed memory) and 6.4.3.6 (extended
    /// interrupt).
    fn virtio_devices(&self, each: &mut dyn FnMut(u64, u32)) {
        const NAME: [u8; 8] = *b"LNRO0005";
        /// How far behind its name they begin.
        const BEHIND: u64 = 96;
        let Some((begin, end)) = self.definition_block() else { return };
        for name in (begin..end).filter(|at| read(*at) == Some(NAME)) {
            let mut behind = name..(name + BEHIND).min(end);
            let Some(memory) = behind.find(|at| read(*at) == Some([0x86, 9, 0])) else { continue };
            // Its length, its flags, and that one number follows.
            let is_interrupt =
                |at: &u64| matches!(read(*at), Some([0x89, 6, 0, _, 1])) && memory < *at;
            if let Some(interrupt) = behind.find(is_interrupt)
                && let (Some(at), Some(number)) = (u32_at(memory + 4), u32_at(interrupt + 5))
            {
                each(u64::from(at), number);
            }
        }
    }

    /// Where the code of the definition block begins and ends.
    fn definition_block(&self) -> Option<(u64, u64)> {
        let table = u64::from(u32_at(self.find(*b"FACP")? + 40)?);
        let bytes = u64::from(u32_at(table + 4)?.min(1 << 20));
        Some((table + 36, table + bytes))
    }

    /// The high precision event timer's page.
    fn hpet(&self) -> Option<u64> {
        u64_at(self.find(*b"HPET")? + 44)
    }

    /// How the machine is switched off.
    fn power_off(&self) -> Option<PowerOff> {
        const REDUCED: u32 = 1 << 20;
        let table = self.find(*b"FACP")?;
        if u32_at(table + 112)? & REDUCED != 0 {
            // SLEEP_CONTROL_REG, a generic address.
            let [space] = read(table + 244)?;
            let address = u64_at(table + 248)?;
            return Some(PowerOff::Reduced { in_memory: space == 0, address });
        }
        let port = u16_at(table + 64)?;
        let sleep_type = self.sleep_type_5().unwrap_or(0);
        Some(PowerOff::Control { port, value: 1 << 13 | u16::from(sleep_type & 7) << 10 })
    }

    /// The first element of the package `_S5_` in the definition block.
    fn sleep_type_5(&self) -> Option<u8> {
        let (begin, end) = self.definition_block()?;
        let at = (begin..end).find(|at| read(*at) == Some(*b"_S5_"))?;
        // PackageOp, its length in a byte, its number of elements, then the first.
        let [package, _, _, prefix, value] = read(at + 4)?;
        (package == 0x12).then_some(if prefix == 0x0a { value } else { prefix & 1 })
    }
}
