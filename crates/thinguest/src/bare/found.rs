//! What loader and firmware told: what the guest begins with.

use thinguest::MAX_FAR_NODES;

use crate::metal::memory::Pool;
use crate::metal::vcpu::MAX_VCPUS;

/// Longest command line.
pub(crate) const CMDLINE_BYTES: usize = 4096;

/// What was found, with the architecture's own `devices`.
#[derive(Debug)]
pub(crate) struct MachineParts<'a, D> {
    /// Empty if there is none, or it is too long or no text.
    pub(crate) cmdline: &'a str,
    /// The memory that nobody uses.
    pub(crate) pool: Option<Pool>,
    /// That of the other nodes, the lowest first, if there are several.
    pub(crate) far: [Option<Pool>; MAX_FAR_NODES],
    /// By what interrupts reach the vCPUs, and how many there are, also those for which
    /// there is no room.
    pub(crate) ids: [u64; MAX_VCPUS],
    pub(crate) vcpus: usize,
    pub(crate) devices: D,
}
