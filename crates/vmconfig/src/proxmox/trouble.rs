//! What `qm` makes nothing of, or refuses.

use crate::UnmodelledSetting;

/// A setting that does not do what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// A line that is no setting.
    #[error("{0:?} is no setting (key: value)")]
    NoSetting(String),
    /// A key that `qm` does not know.
    #[error("qm knows no setting {0:?}")]
    UnknownSetting(String),
    /// The setting stands again further down.
    #[error("{0} is said again below, where it counts")]
    SaidAgain(String),
    /// A value that `qm` does not take.
    #[error("{key}: {value:?} is not {wanted}")]
    BadValue {
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// An iothread for a disk that can't have one.
    #[error("{disk}: iothread=1 counts for virtio disks and with scsihw: virtio-scsi-single only")]
    IothreadIgnored {
        /// The disk.
        disk: String,
    },
    /// Queues for a disk that can't have them.
    #[error("{disk}: queues count with scsihw: virtio-scsi-single only")]
    QueuesIgnored {
        /// The disk.
        disk: String,
    },
    /// Queues for a card that is not virtio's.
    #[error("{nic}: queues count for virtio cards only")]
    NicQueuesIgnored {
        /// The card.
        nic: String,
    },
    /// Nodes without the switch.
    #[error("{0} counts with numa: 1 only")]
    NodeIgnored(String),
    /// More vCPUs at the start than there can be.
    #[error("vcpus: {vcpus} is more than sockets x cores, {max}")]
    TooManyVcpus {
        /// vCPUs at the start.
        vcpus: u32,
        /// vCPUs at most.
        max: u32,
    },
    /// Huge pages without nodes.
    #[error("hugepages needs numa: 1")]
    HugePagesWithoutNuma,
    /// Memory that huge pages do not divide.
    #[error("hugepages of {page_mib} MiB do not divide {memory_mib} MiB")]
    HugePagesLeftOver {
        /// Memory of a node.
        memory_mib: u64,
        /// One page.
        page_mib: u64,
    },
    /// Huge pages for a node that says no host node.
    #[error("{0}: with hugepages a node says its hostnodes")]
    HugePagesWithoutHostNodes(String),
    /// A node without memory or vCPUs.
    #[error("{node}: a node says its {what}")]
    NodeWithout {
        /// The node.
        node: String,
        /// `memory` or `cpus`.
        what: &'static str,
    },
    /// Host nodes without a policy.
    #[error("{0}: hostnodes need a policy")]
    HostNodesWithoutPolicy(String),
    /// Nodes that have not the VM's memory.
    #[error("memory is {memory_mib} MiB, but the nodes have {nodes_mib}")]
    NodesAreNotMemory {
        /// The nodes' sum.
        nodes_mib: u64,
        /// The VM's memory.
        memory_mib: u64,
    },
}

impl Trouble {
    /// Whether `qm start` ends with it; it goes on without anything else.
    #[must_use]
    pub fn stops(&self) -> bool {
        matches!(
            self,
            Self::HugePagesWithoutNuma
                | Self::HugePagesLeftOver { .. }
                | Self::HugePagesWithoutHostNodes(_)
                | Self::NodeWithout { .. }
                | Self::HostNodesWithoutPolicy(_)
                | Self::NodesAreNotMemory { .. }
        )
    }

    pub(super) fn kept(&self, line: u32) -> UnmodelledSetting {
        UnmodelledSetting::of_text(line, "qm", self.to_string())
    }
}
