//! The operations that x86-64 alone has, or has in its own way.

use thinguest::{Measurement, Operation, Skip};

use super::firmware::Devices;
use super::{clock, interrupts, serial};
use crate::metal::PAGE_BYTES;
use crate::metal::instruction::{self, Caller, Msr, Port, cpuid};
use crate::sampler::{Sampler, read_register};

/// What of the machine is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    devices: Devices,
    /// A register of a device in QEMU.
    mmio: Option<u64>,
    /// KVM's clock is there.
    pvclock: bool,
}

/// The instruction by which this processor calls its hypervisor.
fn caller() -> Caller {
    let [_, b, c, d] = cpuid(0, 0);
    // AuthenticAMD and HygonGenuine.
    let amd = [[0x6874_7541, 0x444d_4163, 0x6974_6e65], [0x6f67_7948, 0x656e_6975, 0x6e65_476e]];
    if amd.contains(&[b, c, d]) { Caller::Amd } else { Caller::Intel }
}

// What is done once, each a function that has a name in a profile.

fn vendor() -> [u32; 4] {
    cpuid(0, 0)
}

fn read_apic_base() -> u64 {
    instruction::read_msr(Msr::ApicBase)
}

fn write_kernel_gs_base() {
    instruction::write_kernel_gs_base(1);
}

fn read_core_c3_residency() -> u64 {
    instruction::read_msr(Msr::CoreC3Residency)
}

fn read_pic_levels() -> u8 {
    Port::PIC_LEVELS.read()
}

fn read_serial_scratch() -> u8 {
    serial::SCRATCH.read()
}

fn invlpg() {
    instruction::invalidate(PAGE_BYTES);
}

fn hypercall(sampler: Sampler<'_>) -> Result<Measurement, Skip> {
    let caller = caller();
    sampler.timed(|| instruction::hypercall(caller))
}

fn write_apic_base(sampler: Sampler<'_>) -> Result<Measurement, Skip> {
    let value = instruction::read_msr(Msr::ApicBase);
    sampler.timed(|| instruction::write_apic_base(value))
}

impl Machine {
    /// That of `devices`; `mmio` is a register that the plan names. KVM's clock is
    /// started, where there is one.
    pub(crate) fn begin(devices: Devices, mmio: Option<u64>) -> Self {
        Self { devices, mmio: mmio.or(devices.hpet), pvclock: clock::start_pvclock() }
    }

    /// The clock's rate, kHz, and how it is known.
    pub(crate) fn clock_rate(&self) -> (u64, thinguest::ClockSource) {
        clock::rate(self.pvclock)
    }

    /// Measures the sampler's operation.
    pub(crate) fn measure(&self, sampler: Sampler<'_>) -> Result<Measurement, Skip> {
        match sampler.item.operation {
            Operation::Tsc => sampler.timed(instruction::clock_unordered),
            Operation::Pvclock if !self.pvclock => Err(Skip::NotExposed),
            Operation::Pvclock => sampler.timed(clock::read_pvclock),
            Operation::Cpuid => sampler.timed(vendor),
            Operation::Hypercall if !clock::is_kvm() => Err(Skip::NotExposed),
            Operation::Hypercall if !instruction::try_hypercall(caller()) => Err(Skip::Faulted),
            Operation::Hypercall => hypercall(sampler),
            Operation::MsrRead => sampler.timed(read_apic_base),
            Operation::MsrWrite => write_apic_base(sampler),
            Operation::MsrDirect => sampler.timed(write_kernel_gs_base),
            Operation::MsrCstate if !instruction::try_msr(Msr::CoreC3Residency) => {
                Err(Skip::Faulted)
            }
            Operation::MsrCstate => sampler.timed(read_core_c3_residency),
            Operation::PioKernel => sampler.timed(read_pic_levels),
            Operation::PioQemu => sampler.timed(read_serial_scratch),
            Operation::MmioKernel => read_register(sampler, self.devices.io_apic),
            Operation::MmioQemu => read_register(sampler, self.mmio),
            Operation::ApicRead => sampler.timed(interrupts::read_version),
            Operation::Pause => sampler.timed(instruction::relax),
            Operation::Invlpg => sampler.timed(invlpg),
            _ => Err(Skip::OtherArch),
        }
    }
}
