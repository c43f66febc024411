//! The thin guest: a program that is a VM's whole software, and measures what the
//! VM's host charges for exits, interrupts and wake-ups.
//!
//! This library is what the guest and whoever boots it agree on: which
//! [`Operation`]s there are, the [`Plan`] on the kernel's command line, and the
//! [`Record`]s on the serial line; and what of the guest and its loader can be had
//! without a machine: how ACPI's tables ([`acpi`]) and what the loader told
//! ([`StartInfo`]) are read. It is pure and needs neither `std` nor a heap.
//! The guest itself is the program beside it (`src/bare`), built by
//! `scripts/build-thinguest`.

#![cfg_attr(not(test), no_std)]

#[macro_use]
mod names;

pub mod acpi;
mod crc;
mod digits;
mod node;
mod operation;
mod physical;
mod plan;
mod queue;
mod record;
mod start_info;

pub use node::{MAX_FAR_NODES, MAX_NODES, NodeMap, NodePieces, PhysicalRange};
pub use operation::{Apic, Calls, MAX_IO_BYTES, MAX_N, Operation, VirtioDevice, Wait};
pub use physical::PhysicalMemory;
pub use plan::{BadPlan, InjectedFault, Item, Plan, read_items};
pub use queue::{Piece, QUEUE_SIZE, Queue, UsedRingState};
pub use record::{
    BadRecord, ClockSource, Fault, Hello, LINE_BYTES, Measurement, Record, Skip, TimerIrq,
    read_record, write_record,
};
pub use start_info::{BootAddresses, MapPiece, StartInfo, write_start_info};

/// Version of what the guest and its host say to each other: the plan's words and
/// the records' fields.
pub const FORMAT_VERSION: u32 = 1;

/// Most vCPUs that the guest starts.
pub const MAX_VCPUS: usize = 64;
