//! The machine: all that is `unsafe` of the guest, behind functions that are not.
//!
//! The rule: what is here hands out nothing by which the rest could break Rust's
//! promises. Memory is given away once ([`memory::Pool`]), registers of devices lie
//! where no memory is given away, registers of the processor and ports are named one
//! by one, and each `unsafe` block says why it holds. What an instruction does to
//! the VM, such as ending it, is no matter of memory safety.
//!
//! Each architecture's `boot.s` brings a vCPU from the loader to here; its
//! `interrupt.s` holds what runs between the processor and Rust.

/// A small page.
pub(crate) const PAGE_BYTES: u64 = 4096;

pub(crate) mod device_memory;
mod file_call;
mod handshake;
pub(crate) mod memory;
pub(crate) mod vcpu;
pub(crate) mod virtio_mmio;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{instruction, start};
#[cfg(target_arch = "aarch64")]
pub(crate) use virtio_mmio as virtio;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{instruction, kvm_clock, start, virtio};
