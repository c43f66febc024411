//! What machine this is: sockets, dies, clusters, cores, threads, caches,
//! memory nodes, and the settings that decide how fast a VM runs on it.
//!
//! This crate is pure. It owns the model ([`Host`], also the versioned *host
//! format* that `vmlab host --json` writes), sets of pCPU numbers
//! ([`PcpuSet`]), and the reader that turns a sysfs and procfs tree into the
//! model ([`sysfs::read_host`]). The tree itself comes through
//! [`sysfs::Tree`], so a live machine, a saved folder and a tree made by a test
//! are the same to the reader. [`read_description`] reads what other tools say
//! about a machine. [`bounded`] is where every text in XML or YAML is parsed, here
//! and in the crates above: one budget for all. [`MacAddress`] is the address of a network
//! card, whoever reads one; [`bytes`] is how sizes are said and read.
//!
//! What is not here: touching files (`host`), drawing (`report`), deciding
//! where a VM should go.

pub mod bounded;
pub mod bytes;
mod describe;
mod host;
mod mac_address;
mod nesting;
mod pcpu_set;
pub mod sysfs;

pub use describe::{DescribedMachine, MergeError, ReadDescriptionError, read_description};
pub use host::{
    Cache, CacheKind, CoreKind, Cpuidle, FormatName, FormatVersion, FrequencyPolicy, HOST_FORMAT,
    HOST_FORMAT_VERSION, Host, HostVirtualisation, HugePagePool, IdleState, KernelModule,
    KernelSettings, Kvm, Node, ParseHostError, Pcpu, QemuInfo,
};
pub use mac_address::{MacAddress, ParseMacAddressError};
pub use nesting::{PcpuGroup, TopologyLevel};
pub use pcpu_set::{ParsePcpuSetError, PcpuSet};
