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

mod arch;
pub mod builtin;
mod clock;
pub mod command_line;
mod cpu;
pub mod defaults;
mod disk;
mod every_device;
mod extended_interrupts;
mod finding;
mod fits;
mod formats;
mod guest_topology;
mod hints;
mod host_device;
mod image_reference;
mod invalid;
mod iommu;
pub mod json;
mod keys;
pub mod kubevirt;
pub mod libvirt;
mod memory;
mod nic;
mod numa;
pub mod offers;
mod ordered_rings;
mod patch;
mod pins;
pub mod proxmox;
pub mod qemu;
mod sched;
pub mod source;
mod spec;
mod weight;
mod wishes;

pub use clock::{ClockBase, GuestClock, RtcTrack, TickPolicy};
pub use cpu::{CpuCache, CpuProperty, split_cpu_model};
pub use disk::{
    CacheMode, Discard, Disk, DiskBus, DiskFormat, DiskIo, DiskSource, QueueIothread, ZeroDetection,
};
pub use every_device::{EveryDisk, NicPatch};
pub use extended_interrupts::MOST_WITHOUT_EXTENDED_INTERRUPTS;
pub use finding::{SpecFinding, SpecSeverity};
pub use formats::{EmittedText, Loss, ParsedVm, UnmodelledSetting};
pub use guest_topology::GuestTopology;
pub use hints::{Enlightenment, Hints, Irqchip};
pub use host_device::{HostDevice, ParsePciAddressError, PciAddress};
pub use image_reference::{ImageReference, ImageReferenceError, check_image_tag};
pub use invalid::InvalidVm;
pub use iommu::Iommu;
pub use keys::keys_of;
pub use memory::{MemoryBacking, MemoryPolicy, MemorySource, PageSize, ParsePageSizeError};
pub use nic::{Binding, MacvtapMode, Nic, NicBackend, NicModel};
pub use numa::GuestNode;
pub use sched::{ParseSchedulerError, Scheduler, SchedulerPatch, Schedulers};
pub use weight::LossWeight;
pub use wishes::{DelegatedPlacement, HostWishes, Thp};

/// A set of small numbers in the kernel's list format, `0-3,8`: of vCPUs, or of
/// host nodes.
pub type NumberSet = topology::PcpuSet;

/// True for what a format need not say.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A table laid over another: what `over` has, holds.
macro_rules! overlay_fields {
    ($base:expr, $over:expr, $($field:ident),*) => {
        Self { $($field: $over.$field.or($base.$field)),* }
    };
}
use overlay_fields;
use topology::PcpuSet;

pub use arch::{Accel, Arch};
pub use fits::{check_against, with_shown_threads};
pub use patch::{
    AccelChoice, BuiltinKernel, ImagePatch, ParseImageError, ParseKernelError, PatchContext,
    ResolveError, TopologyPatch, VmPatch,
};
pub use pins::{Pins, VcpuPins};
pub use spec::{BootSource, VmSettings, VmSpec};

#[cfg(test)]
mod tests;
