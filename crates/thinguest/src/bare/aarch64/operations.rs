//! The operations that arm64 alone has, or has in its own way.

use thinguest::{ClockSource, Measurement, Operation, Skip};

use super::firmware::Devices;
use super::serial;
use crate::metal::PAGE_BYTES;
use crate::metal::instruction::{self, Function};
use crate::sampler::{Sampler, read_register};

/// What of the machine is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    devices: Devices,
    /// A register of a device in QEMU.
    mmio: u64,
}

// What is done once, each a function that has a name in a profile.

fn write_tpidrro() {
    instruction::write_tpidrro(1);
}

fn tlbi_page() {
    instruction::invalidate_own(PAGE_BYTES);
}

impl Machine {
    /// That of `devices`; `mmio` is a register that the plan names.
    pub(crate) fn begin(devices: Devices, mmio: Option<u64>) -> Self {
        Self { devices, mmio: mmio.unwrap_or(serial::identity()) }
    }

    /// The clock's rate, kHz, and how it is known.
    pub(crate) fn clock_rate(&self) -> (u64, ClockSource) {
        match instruction::clock_hz() / 1000 {
            0 => (0, ClockSource::Unknown),
            khz => (khz, ClockSource::Cntfrq),
        }
    }

    /// Measures the sampler's operation.
    pub(crate) fn measure(&self, sampler: Sampler<'_>) -> Result<Measurement, Skip> {
        match sampler.item.operation {
            Operation::Tsc => sampler.timed(instruction::clock_unordered),
            Operation::Hypercall if instruction::call(Function::PsciVersion).is_none() => {
                Err(Skip::Faulted)
            }
            Operation::Hypercall => sampler.timed(instruction::hypercall),
            Operation::SysregTrap => sampler.timed(instruction::feature_register),
            Operation::SysregDirect => sampler.timed(write_tpidrro),
            Operation::MmioKernel => {
                read_register(sampler, self.devices.distributor.map(|at| at + 4))
            }
            Operation::MmioQemu => read_register(sampler, Some(self.mmio)),
            Operation::Pause => sampler.timed(instruction::relax),
            Operation::Wfe => sampler.timed(instruction::wait_for_event),
            Operation::TlbiPage => sampler.timed(tlbi_page),
            _ => Err(Skip::OtherArch),
        }
    }
}
