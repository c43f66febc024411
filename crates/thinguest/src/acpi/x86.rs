//! What ACPI says of x86-64 machines alone.

use super::{HEADER_BYTES, Tables};
use crate::PhysicalMemory;

/// How the machine is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerOff {
    /// The PM1 control register.
    Control {
        /// Its port.
        port: u16,
        /// What is written there.
        value: u16,
    },
    /// Hardware-reduced ACPI: the sleep control register.
    Reduced {
        /// True if it is in memory, else it is a port.
        in_memory: bool,
        /// Its address.
        address: u64,
    },
}

impl<M: PhysicalMemory> Tables<M> {
    /// The identities of the vCPUs' local APICs.
    pub fn local_apics(&self) -> impl Iterator<Item = u32> {
        const ENABLED: u32 = 1;
        self.interrupt_controllers().filter_map(|(kind, entry)| {
            let (id, flags) = match kind {
                0 => (u32::from(entry.u8(3)?), entry.u32(4)?),
                9 => (entry.u32(4)?, entry.u32(8)?),
                _ => return None,
            };
            (flags & ENABLED != 0).then_some(id)
        })
    }

    /// The page of each I/O APIC, and the interrupt at its first pin.
    pub fn io_apics(&self) -> impl Iterator<Item = (u64, u32)> {
        let all = self.interrupt_controllers().filter(|(kind, _)| *kind == 1);
        all.filter_map(|(_, entry)| Some((u64::from(entry.u32(4)?), entry.u32(8)?)))
    }

    /// The high precision event timer's page.
    pub fn hpet(&self) -> Option<u64> {
        self.find(*b"HPET")?.u64(44)
    }

    /// How the machine is switched off.
    pub fn power_off(&self) -> Option<PowerOff> {
        const REDUCED: u32 = 1 << 20;
        let fixed = self.fixed()?;
        if fixed.u32(112)? & REDUCED != 0 {
            // SLEEP_CONTROL_REG, a generic address.
            let in_memory = fixed.u8(244)? == 0;
            return Some(PowerOff::Reduced { in_memory, address: fixed.u64(248)? });
        }
        let port = fixed.u16(64)?;
        let sleep_type = self.sleep_type_5().unwrap_or(0);
        Some(PowerOff::Control { port, value: 1 << 13 | u16::from(sleep_type & 7) << 10 })
    }

    /// The first element of the package `_S5_` in the definition block.
    fn sleep_type_5(&self) -> Option<u8> {
        let block = self.definition_block()?;
        let at = (HEADER_BYTES..block.bytes).find(|at| block.get(*at) == Some(*b"_S5_"))?;
        // PackageOp, its length in a byte, its number of elements, then the first.
        let [package, _, _, prefix, value] = block.get(at + 4)?;
        (package == 0x12).then_some(if prefix == 0x0a { value } else { prefix & 1 })
    }
}
