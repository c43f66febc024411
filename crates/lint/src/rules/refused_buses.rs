//! Controllers, buses and IOMMUs that libvirt refuses.

use std::collections::HashSet;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, xml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use vmconfig::libvirt::DomainElement;

const CONTROLLERS: &str = "https://libvirt.org/formatdomain.html#controllers";
const IOMMU: &str = "https://libvirt.org/formatdomain.html#iommu-devices";
const PLACEMENT: &str = "https://libvirt.org/pci-hotplug.html";

/// Kinds of x86 machines by their root bus.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Chipset {
    Pc,
    Q35,
}

pub(super) fn chipset(domain: &DomainElement) -> Option<Chipset> {
    let machine = domain.first("os/type")?.get("machine")?;
    match machine {
        "pc" => Some(Chipset::Pc),
        "q35" => Some(Chipset::Q35),
        name if name.starts_with("pc-i440fx") => Some(Chipset::Pc),
        name if name.starts_with("pc-q35") => Some(Chipset::Q35),
        _ => None,
    }
}

pub(crate) const CONTROLLER_IMPOSSIBLE: Rule = Rule {
    id: "controller-impossible",
    severity: Severity::Error,
    summary: "controllers that this machine does not have, of one number, or on the wrong bus",
    why: "The root bus is PCI on pc and PCI Express on q35, has the number 0 and no address; numbers \
          are given once for each type; expander buses and the bridge to PCI hang off the root bus, \
          and expanders of PCI Express need q35. libvirt refuses the rest.",
    mend: "Leave controllers to libvirt, or use those of the machine type",
    sources: &[CONTROLLERS, PLACEMENT],
    affected: &[],
    check: Check::Vm(controller_impossible),
    fires: &[
        xml(
            ANY,
            "\
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><controller type='pci' index='0' model='pci-root'/></devices>
",
        ),
        xml(
            ANY,
            "\
<devices>
  <controller type='pci' index='1' model='pcie-root-port'/>
  <controller type='pci' index='1' model='pcie-root-port'/>
</devices>
",
        ),
        xml(
            ANY,
            "<devices><controller type='virtio-serial' index='0'><driver iothread='1'/></controller></devices>\n",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices>
  <controller type='pci' index='0' model='pcie-root'/>
  <controller type='pci' index='1' model='pcie-root-port'/>
  <controller type='pci' index='2' model='pcie-expander-bus'/>
  <controller type='scsi' index='0' model='virtio-scsi'/>
  <controller type='scsi' index='1' model='virtio-scsi'/>
</devices>
",
    )],
};

fn controller_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let chipset = chipset(domain);
    // A machine of POWER has several roots.
    let one_root = vm.arch.as_ref().is_none_or(|arch| !arch.value.starts_with("ppc"));
    let mut seen = HashSet::new();
    for controller in domain.all("devices/controller") {
        let kind = controller.get("type").unwrap_or_default();
        let model = controller.get("model").unwrap_or_default();
        let index = controller.number::<u32>("index").map(|at| (at.span, at.value));
        // Companions of a USB controller share its number.
        if let Some((span, index)) = index.filter(|_| kind != "usb")
            && !seen.insert((kind, index))
        {
            out.at(span, format!("There is a {kind} controller {index} already"));
        }
        if let Some(driver) = controller.first("driver").filter(|one| one.at("iothread").is_some())
            && !(kind == "scsi" && (model.is_empty() || model.starts_with("virtio")))
        {
            out.at(
                driver.place("iothread"),
                "Only virtio-scsi controllers are served by iothreads",
            );
        }
        if kind == "pci" && one_root {
            pci(controller, model, index.map(|(_, index)| index), chipset, out);
        }
    }
}

fn pci(
    controller: &DomainElement,
    model: &str,
    index: Option<u32>,
    chipset: Option<Chipset>,
    out: &mut Drafts,
) {
    let at = controller.place("model");
    let address = controller.named("address").find(|one| one.get("type") == Some("pci"));
    if matches!(model, "pci-root" | "pcie-root") {
        if index.is_some_and(|index| index != 0) {
            out.at(controller.place("index"), "The root bus has the number 0");
        }
        if let Some(address) = address {
            out.at(address.tag, "The root bus has no address");
        }
        let expected = match chipset {
            Some(Chipset::Pc) => "pci-root",
            Some(Chipset::Q35) => "pcie-root",
            None => model,
        };
        if index == Some(0) && model != expected {
            out.at(at, format!("This machine's root bus is {expected}, not {model}"));
        }
    }
    if matches!((model, chipset), ("pcie-expander-bus", Some(Chipset::Pc))) {
        out.at(at, "An expander of PCI Express needs q35");
    }
    let bus = address.and_then(|address| address.at("bus"));
    let digits = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    if let Some(bus) = bus
        && matches!(model, "pcie-expander-bus" | "pci-expander-bus" | "dmi-to-pci-bridge")
        && digits(&bus.value).is_some_and(|bus| bus != 0)
        // The bridge to PCI may hang off an expander's bus.
        && (model != "dmi-to-pci-bridge" || index.is_some())
    {
        out.at(bus.span, format!("{model} hangs off the root bus, not off bus {}", bus.value));
    }
}

pub(crate) const IOMMU_IMPOSSIBLE: Rule = Rule {
    id: "iommu-impossible",
    severity: Severity::Error,
    summary: "an IOMMU that this machine can't have",
    why: "Intel's IOMMU is part of q35; virtio's works on q35 and on Arm's virt, is found through \
          ACPI, and has no settings but its place on the PCI bus. libvirt refuses the rest.",
    mend: "Use machine='q35', and <features><acpi/></features> for virtio's",
    sources: &[IOMMU],
    affected: &[],
    check: Check::Vm(iommu_impossible),
    fires: &[
        xml(
            ANY,
            "\
<os><type arch='x86_64' machine='pc'>hvm</type></os>
<devices><iommu model='intel'/></devices>
",
        ),
        xml(
            ANY,
            "\
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><iommu model='virtio'><driver intremap='on'/></iommu></devices>
",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<features><acpi/></features>
<devices><iommu model='virtio'/></devices>
",
    )],
};

fn iommu_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    for iommu in domain.all("devices/iommu") {
        let model = iommu.get("model").unwrap_or_default();
        if chipset(domain) == Some(Chipset::Pc) && matches!(model, "intel" | "virtio" | "amd") {
            out.at(iommu.place("model"), format!("The machine pc has no IOMMU of model {model}"));
        }
        if model != "virtio" {
            continue;
        }
        if let Some(driver) = iommu.first("driver") {
            out.at(driver.tag, "virtio's IOMMU has no settings");
        }
        if let Some(address) = iommu.first("address")
            && address.get("type") != Some("pci")
        {
            out.at(address.tag, "virtio's IOMMU is on the PCI bus");
        } else if let Some(bus) = iommu.first("address").and_then(|one| one.at("bus"))
            && !bus.value.trim_start_matches("0x").trim_matches('0').is_empty()
        {
            out.at(bus.span, "virtio's IOMMU is on bus 0");
        }
        if domain.first("features/acpi").is_none() && !vm.name.is_empty() {
            out.at(iommu.tag, "virtio's IOMMU is found through ACPI, which is off");
        }
    }
}
