//! The guest's IOMMU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arch, InvalidVm, Irqchip};

/// Intel's IOMMU as the guest sees it, in a q35 machine. QEMU `-device
/// intel-iommu`, libvirt `<iommu model='intel'>`; KubeVirt has no word for it.
/// What is not set is QEMU's own choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Iommu {
    /// It remaps interrupts. QEMU and libvirt `intremap=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_remapping: Option<bool>,
    /// Interrupts reach APIC ids beyond 255 (extended interrupt mode). QEMU and
    /// libvirt `eim=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_interrupts: Option<bool>,
}

impl Iommu {
    /// Properties with their values, by the names that QEMU and libvirt share.
    pub(crate) fn switches(&self) -> [(&'static str, Option<&'static str>); 2] {
        let word = |on: bool| if on { "on" } else { "off" };
        [
            ("intremap", self.interrupt_remapping.map(word)),
            ("eim", self.extended_interrupts.map(word)),
        ]
    }

    pub(crate) fn check(
        &self,
        arch: Arch,
        machine: &str,
        irqchip: Option<Irqchip>,
    ) -> Result<(), InvalidVm> {
        let refuse = |message: &str| {
            Err(InvalidVm::Contradiction { field: "iommu", message: message.to_owned() })
        };
        if !is_q35(arch, machine) {
            return refuse("is Intel's, which only a q35 machine has");
        }
        let remaps = self.interrupt_remapping == Some(true);
        if self.extended_interrupts == Some(true) && self.interrupt_remapping == Some(false) {
            return refuse("has extended_interrupts without interrupt_remapping");
        }
        // An emulator's controller is QEMU's own, too, and libvirt wants to hear it.
        if remaps && irqchip != Some(Irqchip::Split) {
            return refuse("remaps interrupts, which needs hints.irqchip = \"split\"");
        }
        Ok(())
    }
}

/// Whether it is a q35 machine, which alone has Intel's IOMMU.
pub(crate) fn is_q35(arch: Arch, machine: &str) -> bool {
    arch == Arch::X86_64
        && (machine.split(',').next() == Some("q35") || machine.starts_with("pc-q35"))
}
