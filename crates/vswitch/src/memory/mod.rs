//! Memory of guests as this process maps it: regions, spans, rings' areas.
//!
//! The only module of the workspace's host programs with `unsafe`. What it hands
//! out is safe to use whatever the guest does at the same time:
//!
//! - every address is checked against a region, length included, before a
//!   pointer is made of it, and the pointer borrows the mapping;
//! - what decisions are taken from is read once, by volatile or atomic loads,
//!   into memory of our own; payload is copied without being looked at;
//! - a region whose file was made shorter under us reads as zeros from then on
//!   and says so ([`Region::is_lost`]), instead of ending the process by SIGBUS;
//! - an event of a guest's is told by the kernel, which does not wait ([`AioContext`]).
//!
//! What else only a raw system call does stands here, too: tap interfaces (`tun`).
//!
//! No reference (`&T`, `&[u8]`) to guest memory is ever made: other processes
//! write to it, so only raw pointers may point there.

#![allow(unsafe_code)]

mod area;
mod caller;
mod fault;
mod region;
mod span;
pub(crate) mod tun;

pub use area::{Area, AreaError, Entries};
pub use caller::AioContext;
pub use fault::{install as survive_shrunk_files, losses};
pub(crate) use region::is_in_memory;
pub use region::{GuestMemory, MapError, Region, RegionAddresses};
pub use span::{ByteRange, GuestBuffer};

#[cfg(test)]
mod tests;
