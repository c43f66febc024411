//! What holds where nobody wrote anything: every default of a VM stands here.

use crate::{Accel, Arch};

/// The image: the small Debian guest that vmlab builds.
pub const IMAGE: &str = "builtin:debian-12";

/// vCPUs: one, the smallest VM that there is.
pub const VCPUS: u32 = 1;

/// Guest memory: enough for every workload of the catalogue at its default
/// parameters, and little enough for a laptop.
pub const MEMORY_MIB: u64 = 1024;

/// Below this much memory the Debian guest may not get up: its kernel and
/// initial RAM disk unpacked take most of it.
pub const LITTLE_MEMORY_MIB: u64 = 128;

/// The machine type: what the architecture's VMs use since PCI Express.
#[must_use]
pub fn machine(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "q35",
        // The newest interrupt controller: the oldest stops at 8 vCPUs.
        Arch::Aarch64 => "virt,gic-version=max",
    }
}

/// The CPU model: all that the accelerator can give.
#[must_use]
pub fn cpu_model(accel: Accel) -> &'static str {
    match accel {
        Accel::Kvm => "host",
        Accel::Tcg => "max",
    }
}
