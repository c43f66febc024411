//! The thin guest: a program that is a VM's whole software, and measures what the
//! VM's host charges for exits, interrupts and wake-ups.
//!
//! This library is what the guest and whoever boots it agree on: which
//! [`Operation`]s there are, the [`Plan`] on the kernel's command line, and the
//! [`Record`]s on the serial line. It is pure and needs neither `std` nor a heap.
//! The guest itself is the program beside it (`src/bare`), built by
//! `scripts/build-thinguest`.

#![cfg_attr(not(test), no_std)]

#[macro_use]
mod names;

mod crc;
mod digits;
mod operation;
mod plan;
mod queue;
mod record;

pub use operation::{Apic, Calls, MAX_IO_BYTES, MAX_N, Operation, VirtioDevice, Wait};
pub use plan::{BadPlan, Item, Plan, Provoked, read_items};
pub use queue::{Piece, QUEUE_SIZE, Queue, Used};
pub use record::{
    BadRecord, ClockSource, Done, Fault, Hello, LINE_BYTES, Record, Skip, read_record, write_record,
};

/// Version of what the guest and its host say to each other: the plan's words and
/// the records' fields.
pub const FORMAT_VERSION: u32 = 1;
