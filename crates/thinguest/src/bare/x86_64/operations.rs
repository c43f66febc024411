//! The operations that x86-64 alone has, or has in its own way.

use core::hint::black_box;

use thinguest::{Done, Operation, Skip};

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
    pub(crate) fn measure(&self, sampler: Sampler<'_>) -> Result<Done, Skip> {
        match sampler.item.operation {
            Operation::Tsc => sampler.timed(|| {
                black_box(instruction::clock_unordered());
            }),
            Operation::Pvclock if !self.pvclock => Err(Skip::NotExposed),
            Operation::Pvclock => sampler.timed(|| {
                black_box(clock::read_pvclock());
            }),
            Operation::Cpuid => sampler.timed(|| {
                black_box(cpuid(0, 0));
            }),
            Operation::Hypercall if !clock::is_kvm() => Err(Skip::NotExposed),
            Operation::Hypercall if !instruction::try_hypercall(caller()) => Err(Skip::Faulted),
            Operation::Hypercall => {
                let caller = caller();
                sampler.timed(|| instruction::hypercall(caller))
            }
            Operation::MsrRead => sampler.timed(|| {
                black_box(instruction::read_msr(Msr::ApicBase));
            }),
            Operation::MsrWrite => {
                let value = instruction::read_msr(Msr::ApicBase);
                sampler.timed(|| instruction::write_apic_base(value))
            }
            Operation::MsrDirect => sampler.timed(|| instruction::write_kernel_gs_base(1)),
            Operation::MsrCstate if !instruction::try_msr(Msr::CoreC3Residency) => {
                Err(Skip::Faulted)
            }
            Operation::MsrCstate => sampler.timed(|| {
                black_box(instruction::read_msr(Msr::CoreC3Residency));
            }),
            Operation::PioKernel => sampler.timed(|| {
                black_box(Port::PIC_LEVELS.read());
            }),
            Operation::PioQemu => sampler.timed(|| {
                black_box(serial::SCRATCH.read());
            }),
            Operation::MmioKernel => read_register(sampler, self.devices.io_apic),
            Operation::MmioQemu => read_register(sampler, self.mmio),
            Operation::ApicRead => sampler.timed(|| {
                black_box(interrupts::read_version());
            }),
            Operation::Pause => sampler.timed(instruction::relax),
            Operation::Invlpg => sampler.timed(|| instruction::invalidate(PAGE_BYTES)),
            _ => Err(Skip::OtherArch),
        }
    }
}
