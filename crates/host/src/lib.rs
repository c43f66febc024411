//! This machine, live: who owns which process, where threads may run, what
//! counters say, load on the host, and host settings that roll back.
//!
//! What a host looks like is `topology`'s; how a VM is started is `guest`'s.
//! Everything here reads and writes `/proc`, `/sys` and processes; nothing
//! prints.

pub mod affinity;
pub mod audit;
pub mod counters;
pub mod dpdk;
pub mod ground;
pub mod kernel_disk;
mod kvm_extensions;
pub mod load;
pub mod micro;
pub mod network;
pub mod owner;
pub mod pci_disk;
pub mod perf;
pub mod program;
pub mod sandbox;
pub mod scheduler;
pub mod scratch;
pub mod settings;
pub mod snapshot;
pub mod state_dir;
pub mod watch;

mod holder;
mod proc;
