//! What belongs to a VM's plan, but is for somebody else to do: the host, or
//! whoever places the VM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the host that belong to the VM's plan. No format of a VM has
/// them: they are for the whole host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostWishes {
    /// How long KVM polls before a halted vCPU gives its pCPU away; parameter
    /// `halt_poll_ns` of module `kvm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt_poll_ns: Option<u64>,
    /// Transparent huge pages, `/sys/kernel/mm/transparent_hugepage/enabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thp: Option<Thp>,
    /// Same-page merging, `/sys/kernel/mm/ksm/run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ksm: Option<bool>,
    /// Longest pause between two PAUSEs of one spinning loop, cycles; parameter
    /// `ple_gap` of module `kvm_intel`, `pause_filter_thresh` of `kvm_amd`. 0
    /// switches the detection off.
    ///
    /// Source: Linux `vmx_vm_init()`, `svm_vm_init()`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ple_gap: Option<u64>,
    /// Cycles of spinning that make a guest exit; parameter `ple_window` of
    /// module `kvm_intel`. With 0 every spin exits there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ple_window: Option<u64>,
    /// Automatic NUMA balancing, `/proc/sys/kernel/numa_balancing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_balancing: Option<bool>,
}

/// When the kernel makes huge pages of ordinary memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Thp {
    /// Everywhere.
    Always,
    /// Where a program asks, as QEMU does.
    Madvise,
    /// Nowhere.
    Never,
}

/// What is left to whoever places the VM, as KubeVirt leaves it to the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DelegatedPlacement {
    /// Every vCPU gets a pCPU for itself. KubeVirt `dedicatedCpuPlacement`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_vcpus: Option<bool>,
    /// So does the emulator thread. KubeVirt `isolateEmulatorThread`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_emulator: Option<bool>,
    /// Guest nodes like the host nodes that were given. KubeVirt
    /// `numa.guestMappingPassthrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_numa: Option<bool>,
}

impl HostWishes {
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(
            self,
            over,
            halt_poll_ns,
            thp,
            ksm,
            ple_gap,
            ple_window,
            numa_balancing
        )
    }

    /// The wishes that are set, as fields with their values.
    #[must_use]
    pub fn set(&self) -> Vec<(&'static str, String)> {
        let thp = self.thp.map(|thp| format!("{thp:?}").to_lowercase());
        [
            ("halt_poll_ns", self.halt_poll_ns.map(|value| value.to_string())),
            ("thp", thp),
            ("ksm", self.ksm.map(|value| value.to_string())),
            ("ple_gap", self.ple_gap.map(|value| value.to_string())),
            ("ple_window", self.ple_window.map(|value| value.to_string())),
            ("numa_balancing", self.numa_balancing.map(|value| value.to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

impl DelegatedPlacement {
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(self, over, dedicated_vcpus, dedicated_emulator, mirror_numa)
    }

    pub(crate) fn normalise(&mut self) {
        for flag in [&mut self.dedicated_vcpus, &mut self.dedicated_emulator, &mut self.mirror_numa]
        {
            *flag = flag.filter(|on| *on);
        }
    }

    /// The wishes that are set.
    pub(crate) fn set(&self) -> Vec<&'static str> {
        [
            ("dedicated_vcpus", self.dedicated_vcpus),
            ("dedicated_emulator", self.dedicated_emulator),
            ("mirror_numa", self.mirror_numa),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.is_some_and(|on| on).then_some(name))
        .collect()
    }
}
