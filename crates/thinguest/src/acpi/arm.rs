//! What ACPI says of arm64 machines alone.

use core::ops::Range;

use super::Tables;
use crate::PhysicalMemory;

/// Most regions of redistributors that are remembered.
pub const MAX_REDISTRIBUTORS: usize = 64;

/// The virtual timer's interrupt wherever Arm's Base System Architecture (DEN 0094, PPI
/// assignments) is followed.
pub const VIRTUAL_TIMER: u32 = 27;

/// The interrupts that each vCPU has for itself (PPIs), of which timers have theirs.
pub const PRIVATE_INTERRUPTS: Range<u32> = 16..32;

/// Where the interrupt controller's registers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one, and no heap")]
pub enum Gic {
    /// Version 2.
    V2 {
        /// The distributor's address.
        distributor: u64,
        /// That of each vCPU's own interface.
        interface: u64,
    },
    /// Version 3, and 4 as far as both are the same.
    V3 {
        /// The distributor's address.
        distributor: u64,
        /// The regions of redistributors, address and bytes; 0 bytes where there are no
        /// more.
        redistributors: [(u64, u64); MAX_REDISTRIBUTORS],
    },
}

impl Gic {
    /// Version 3, with as many regions as there is room for.
    pub fn v3(distributor: u64, regions: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut redistributors = [(0, 0); MAX_REDISTRIBUTORS];
        redistributors.iter_mut().zip(regions).for_each(|(slot, region)| *slot = region);
        Self::V3 { distributor, redistributors }
    }

    /// The distributor's address.
    pub fn distributor(&self) -> u64 {
        match self {
            Self::V2 { distributor, .. } | Self::V3 { distributor, .. } => *distributor,
        }
    }
}

// Kinds of the MADT's entries.
const CPU: u8 = 0xb;
const DISTRIBUTOR: u8 = 0xc;
const REDISTRIBUTORS: u8 = 0xe;
/// A flag of vCPUs.
const ENABLED: u32 = 1;

impl<M: PhysicalMemory> Tables<M> {
    /// The affinities of the vCPUs, as interrupts and PSCI name them.
    pub fn gic_cpus(&self) -> impl Iterator<Item = u64> {
        let all = self.interrupt_controllers().filter(|(kind, _)| *kind == CPU);
        all.filter_map(|(_, entry)| {
            (entry.u32(12)? & ENABLED != 0).then_some(entry.u64(68)? & 0xff_00ff_ffff)
        })
    }

    /// The interrupt controller.
    pub fn gic(&self) -> Option<Gic> {
        /// Both pages of one redistributor.
        const REDISTRIBUTOR_BYTES: u64 = 2 << 16;
        let of_kind = |wanted: u8| {
            self.interrupt_controllers()
                .filter_map(move |(kind, entry)| (kind == wanted).then_some(entry))
        };
        let (distributor, version) =
            of_kind(DISTRIBUTOR).find_map(|entry| Some((entry.u64(8)?, entry.u8(20)?)))?;
        let cpus = || of_kind(CPU).filter(|entry| entry.u32(12).unwrap_or(0) & ENABLED != 0);
        let regions = of_kind(REDISTRIBUTORS)
            .filter_map(|entry| Some((entry.u64(4)?, u64::from(entry.u32(12)?))));
        // Where those of the vCPUs lie apart, their own entries name them.
        let own = cpus().filter_map(|entry| Some((entry.u64(60)?, REDISTRIBUTOR_BYTES)));
        let mut regions =
            regions.chain(own).filter(|(begin, bytes)| *begin != 0 && *bytes != 0).peekable();
        // Version 0 is one that nobody names.
        if version >= 3 || version == 0 && regions.peek().is_some() {
            return Some(Gic::v3(distributor, regions));
        }
        let interface = cpus().find_map(|entry| entry.u64(32).filter(|at| *at != 0))?;
        Some(Gic::V2 { distributor, interface })
    }

    /// The interrupt of the virtual timer, as the GTDT has it; none where that is no
    /// vCPU's own. Its mode and polarity are not asked for: a GIC takes no interrupt that
    /// is active low, and this timer is switched off before its interrupt is ended, so that
    /// it comes once whether by its level or its edge.
    ///
    /// Source: ACPI 6.5, section 5.2.25.
    pub fn virtual_timer(&self) -> Option<u32> {
        let number = self.find(*b"GTDT")?.u32(64)?;
        PRIVATE_INTERRUPTS.contains(&number).then_some(number)
    }

    /// Whether PSCI is called by SMC, not HVC; none where there is no PSCI.
    pub fn psci_by_smc(&self) -> Option<bool> {
        const COMPLIANT: u16 = 1;
        const BY_HVC: u16 = 2;
        let flags = self.fixed()?.u16(129).filter(|flags| flags & COMPLIANT != 0)?;
        Some(flags & BY_HVC == 0)
    }

    /// The first serial port, if it is a PL011, or what of one Arm's SBSA asks for.
    ///
    /// Source: Microsoft, Serial Port Console Redirection table 1.10.
    pub fn pl011(&self) -> Option<u64> {
        const KINDS: [u8; 3] = [3, 0xd, 0xe];
        const IN_MEMORY: u8 = 0;
        let table = self.find(*b"SPCR")?;
        let fits = KINDS.contains(&table.u8(36)?) && table.u8(40)? == IN_MEMORY;
        fits.then(|| table.u64(44))?.filter(|at| *at != 0)
    }
}
