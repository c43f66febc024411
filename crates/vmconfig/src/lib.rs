//! What a VM is: its vCPUs and their topology, memory, pins and boot, and how
//! that is said to QEMU.
//!
//! [`VmSpec`] is where all formats meet; its constructor holds the invariants.
//! People write a [`VmPatch`], everything optional, both for a study's `[vm]`
//! and for each of its variants; what nobody wrote stands in [`defaults`].
//! [`qemu::emit`] turns a `VmSpec` into QEMU's arguments, and says what a
//! command line can't say. [`check_against`] asks whether a host can hold it.
//!
//! All of it is pure: paths are carried, never opened.
//!
//! What is not here: starting QEMU (`guest`), setting pins on its threads
//! (`runner`).

pub mod defaults;
mod fits;
mod patch;
mod pins;
pub mod qemu;
mod spec;

pub use fits::{Finding, Severity, check_against};
pub use patch::{
    AccelChoice, Image, ParseImageError, Resolve, ResolveError, TopologyPatch, VmPatch,
};
pub use pins::{Pins, VcpuPins};
pub use spec::{Accel, Arch, Boot, DiskFormat, GuestTopology, InvalidVm, VmSettings, VmSpec};

#[cfg(test)]
mod tests;
