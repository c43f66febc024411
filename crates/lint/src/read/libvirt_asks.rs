//! What a domain asks of the host's QEMU.
//!
//! Source: libvirt documentation, "Domain XML format" and "PCI addresses in domain
//! XML and guest OS".

use std::collections::BTreeSet;

use vmconfig::libvirt::DomainElement;
use vmconfig::offers::feature_name;
use vmconfig::source::LocatedValue;

use crate::requirements::{OfferedValue, Ports, Requirements};

/// Where values stand of which libvirt tells a list: the element below `<devices>`
/// and in it, the attribute, the list, and what it is.
const VALUES: &[(&str, &str, &str, &str, &str)] = &[
    ("disk", "", "device", "disk.diskDevice", "kind of disk"),
    ("disk", "target", "bus", "disk.bus", "disk bus"),
    ("graphics", "", "type", "graphics.type", "kind of display"),
    ("video", "model", "type", "video.modelType", "video model"),
    ("rng", "", "model", "rng.model", "model of random number generator"),
    ("rng", "backend", "model", "rng.backendModel", "source of random numbers"),
    ("tpm", "", "model", "tpm.model", "TPM model"),
    ("tpm", "backend", "type", "tpm.backendModel", "kind of TPM"),
    ("redirdev", "", "bus", "redirdev.bus", "bus of a redirected device"),
    ("hostdev", "", "mode", "hostdev.mode", "kind of host device"),
];

pub(crate) fn read(domain: &DomainElement) -> Requirements {
    let mut asks = Requirements::default();
    let emulated = domain.get("type") == Some("qemu");
    for node in &domain.children {
        match node.name.as_str() {
            "os" => os(node, &mut asks),
            "cpu" => cpu(node, emulated, &mut asks),
            "memoryBacking" => {
                for source in node.named("source") {
                    let list = "memoryBacking.sourceType";
                    let found = source.at("type").cloned();
                    let what = "source of memory";
                    asks.values.extend(found.map(|at| OfferedValue { list, what, at }));
                }
            }
            "features" => {
                let all = node.named("hyperv").flat_map(|hyperv| &hyperv.children);
                let on = all.filter(|node| node.get("state") == Some("on"));
                asks.enlightenments
                    .extend(on.map(|node| LocatedValue::new(node.name.clone(), node.span)));
            }
            "launchSecurity" => asks.launch_security = node.at("type").cloned(),
            "devices" => devices(node, &mut asks),
            _ => {}
        }
    }
    asks
}

fn os(os: &DomainElement, asks: &mut Requirements) {
    let machine = os.first("type");
    asks.machine = machine.and_then(|node| node.at("machine").cloned());
    if os.get("firmware") != Some("efi") {
        return;
    }
    asks.efi = Some(os.tag);
    let secure = os
        .named("firmware")
        .flat_map(|firmware| firmware.named("feature"))
        .filter(|feature| feature.get("name") == Some("secure-boot"))
        .find(|feature| feature.get("enabled") == Some("yes"))
        .or_else(|| os.named("loader").find(|one| one.get("secure") == Some("yes")));
    asks.secure_boot = secure.map(|node| node.tag);
}

fn cpu(node: &DomainElement, emulated: bool, asks: &mut Requirements) {
    let mode = node.at("mode").cloned();
    let model = node.first("model");
    asks.no_fallback = model.is_some_and(|one| one.get("fallback") == Some("forbid"));
    let custom = mode.as_ref().is_none_or(|mode| mode.value == "custom");
    asks.model = if custom { model.and_then(|one| one.text.clone()) } else { mode.clone() };
    // Under TCG, and for the host's own processor, libvirt looks only when asked to.
    let looks = custom || mode.is_some_and(|mode| mode.value == "host-model");
    asks.exact = match node.get("check") {
        Some("none") => false,
        Some("full") => true,
        _ => looks && !emulated,
    };
    for feature in node.named("feature") {
        let Some(name) = feature.at("name") else { continue };
        let canonical = feature_name(&name.value);
        match feature.get("policy") {
            None | Some("require") => asks.features.push(LocatedValue::new(canonical, name.span)),
            Some("disable" | "forbid") => {
                asks.disabled.insert(canonical);
            }
            _ => {}
        }
    }
}

fn devices(devices: &DomainElement, asks: &mut Requirements) {
    for node in &devices.children {
        let name = node.name.as_str();
        for (_, inside, attribute, list, what) in VALUES.iter().filter(|one| one.0 == name) {
            let element = if inside.is_empty() { Some(node) } else { node.first(inside) };
            let found = element.and_then(|element| element.at(attribute).cloned());
            asks.values.extend(found.map(|at| OfferedValue { list, what, at }));
        }
        if name == "interface" {
            let model = node.first("model");
            let model = model.and_then(|model| model.at("type").cloned());
            // What is no virtio is passed on to QEMU as it stands.
            asks.types.extend(model.filter(|model| !model.value.starts_with("virtio")));
        }
    }
    asks.ports = ports(devices);
}

/// The ports of a domain whose addresses libvirt has given out; before that, it will
/// add one that is free.
fn ports(devices: &DomainElement) -> Option<Ports> {
    let mut taken = BTreeSet::new();
    let mut ports = Vec::new();
    for device in &devices.children {
        let is = |value: &str| device.get("type") == Some(value);
        let address = device.named("address").find(|at| at.get("type") == Some("pci"));
        let bus = address.and_then(|at| at.c_number("bus")).map(|at| at.value);
        taken.extend(bus);
        let model = device.get("model").unwrap_or_default();
        if device.name == "controller" && is("pci") {
            // A port that has no address yet: libvirt is still to give them out.
            if bus.is_none() && !model.ends_with("-root") {
                return None;
            }
            if matches!(model, "pcie-root-port" | "pcie-switch-downstream-port") {
                ports.push((device.number::<u32>("index")?.value, device.tag));
            }
        }
    }
    if taken.is_empty() {
        return None;
    }
    let free = ports.iter().filter(|(index, _)| !taken.contains(index)).count();
    Some(Ports { all: ports.len(), free, span: ports.last().map(|(_, span)| *span) })
}
