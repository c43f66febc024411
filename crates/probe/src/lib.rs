//! Workloads that no distribution ships, as one static program for guests.
//!
//! `vmlab-probe NAME [--option value ...]` runs one probe and prints one JSON
//! [document](document::RunDocument): what was asked for, whether the result was
//! checked and right, the metrics of every repeat, and what the run cost the
//! guest in context switches and interrupts. A probe is one file with one row
//! ([`spec::Probe`]) of the table [`PROBES`]; help, `list` and `docs/probe.md`
//! are generated from it.
//!
//! It runs inside guests that may hold nothing else, so it has no edge to the
//! other crates, calls no program (the shell tests of [`probes::unixbench`]
//! apart), and needs no library: system calls go through `rustix`.

pub mod args;
mod chase;
pub mod cli;
mod costs;
mod disk;
mod docs;
pub mod document;
mod error;
mod machine;
mod memory;
mod metric;
mod option;
mod pace;
pub mod probes;
mod scratch_file;
mod semaphore;
pub mod spec;
mod stat;
mod team;
mod vcpus;

#[cfg(test)]
mod tests;

pub use docs::markdown;

use spec::Probe;

/// Every probe, in the order of the documentation.
pub static PROBES: &[&Probe] = &[
    &probes::syscalls::PROBE,
    &probes::sem::PROBE,
    &probes::stream::PROBE,
    &probes::wakeup::PROBE,
    &probes::ipi::PROBE,
    &probes::lock::PROBE,
    &probes::clock::PROBE,
    &probes::malloc::PROBE,
    &probes::tlb::PROBE,
    &probes::pagecache::PROBE,
    &probes::shuffle::PROBE,
    &probes::numa::PROBE,
    &probes::net::server::PROBE,
    &probes::net::PROBE,
    &probes::net::udp::PROBE,
    &probes::unixbench::PROBE,
    &probes::npb::PROBE,
];
