//! How the guest sees its vCPUs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the guest sees its vCPUs. Every level counts what one unit of the level
/// above holds, so the vCPUs are the product.
///
/// Source: QEMU's manual page, option `-smp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct GuestTopology {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Dies in a socket (x86).
    pub dies: u32,
    /// Clusters in a die (Arm).
    pub clusters: u32,
    /// Cores in a cluster.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

impl GuestTopology {
    /// One socket with so many cores of one thread.
    #[must_use]
    pub fn of_cores(cores: u32) -> Self {
        Self { sockets: 1, dies: 1, clusters: 1, cores, threads: 1 }
    }

    /// Number of vCPUs: the product of the levels, or the greatest number
    /// there is if it would be greater.
    #[must_use]
    pub fn vcpus(&self) -> u32 {
        self.levels().iter().fold(1, |product: u32, (_, count)| product.saturating_mul(*count))
    }

    /// The levels with their names, outermost first.
    #[must_use]
    pub fn levels(&self) -> [(&'static str, u32); 5] {
        [
            ("sockets", self.sockets),
            ("dies", self.dies),
            ("clusters", self.clusters),
            ("cores", self.cores),
            ("threads", self.threads),
        ]
    }
}

impl fmt::Display for GuestTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels().map(|(name, count)| format!("{name}={count}"));
        f.write_str(&levels.join(","))
    }
}
