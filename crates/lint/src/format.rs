//! The formats that are read.

use schemars::JsonSchema;
use serde::Serialize;

/// Format of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFormat {
    /// libvirt's domain XML.
    Libvirt,
    /// A QEMU command line.
    Qemu,
    /// KubeVirt's VirtualMachineInstance, VirtualMachine and what holds them.
    Kubevirt,
    /// Proxmox VE's configuration of a VM.
    Proxmox,
    /// VMs that run: see [`ObservedVm`](crate::ObservedVm).
    Running,
}

impl ConfigFormat {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Libvirt => "libvirt domain XML",
            Self::Qemu => "QEMU command line",
            Self::Kubevirt => "KubeVirt YAML",
            Self::Proxmox => "Proxmox configuration",
            Self::Running => "running VM",
        }
    }

    /// Language of a Markdown code block.
    #[must_use]
    pub fn language(self) -> &'static str {
        match self {
            Self::Libvirt => "xml",
            Self::Qemu | Self::Running => "sh",
            Self::Kubevirt => "yaml",
            Self::Proxmox => "ini",
        }
    }
}
