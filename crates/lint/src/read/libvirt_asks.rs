//! What a domain asks of the host's QEMU.
//!
//! Source: libvirt documentation, "Domain XML format" and "PCI addresses in domain
//! XML and guest OS".

use std::collections::BTreeSet;

use roxmltree::Node;
use vmconfig::offers::feature_name;
use vmconfig::source::Located;

use crate::read::xml::{XmlSource, children};
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

pub(crate) fn read(reader: &XmlSource<'_>, domain: Node<'_, '_>) -> Requirements {
    let mut asks = Requirements::default();
    let emulated = domain.attribute("type") == Some("qemu");
    for node in domain.children().filter(Node::is_element) {
        match node.tag_name().name() {
            "os" => os(reader, node, &mut asks),
            "cpu" => cpu(reader, node, emulated, &mut asks),
            "memoryBacking" => {
                for source in children(node, "source") {
                    let list = "memoryBacking.sourceType";
                    let found = reader.attribute(source, "type");
                    let what = "source of memory";
                    asks.values.extend(found.map(|at| OfferedValue { list, what, at }));
                }
            }
            "features" => {
                let all = children(node, "hyperv").flat_map(|hyperv| hyperv.children());
                let on = all.filter(|node| node.attribute("state") == Some("on"));
                asks.enlightenments.extend(on.map(|node| {
                    Located::new(node.tag_name().name().to_owned(), reader.whole(node))
                }));
            }
            "launchSecurity" => asks.launch_security = reader.attribute(node, "type"),
            "devices" => devices(reader, node, &mut asks),
            _ => {}
        }
    }
    asks
}

fn os(reader: &XmlSource<'_>, os: Node<'_, '_>, asks: &mut Requirements) {
    let machine = children(os, "type").next();
    asks.machine = machine.and_then(|node| reader.attribute(node, "machine"));
    if os.attribute("firmware") != Some("efi") {
        return;
    }
    asks.efi = Some(reader.tag(os));
    let secure = children(os, "firmware")
        .flat_map(|firmware| children(firmware, "feature"))
        .filter(|feature| feature.attribute("name") == Some("secure-boot"))
        .find(|feature| feature.attribute("enabled") == Some("yes"))
        .or_else(|| children(os, "loader").find(|one| one.attribute("secure") == Some("yes")));
    asks.secure_boot = secure.map(|node| reader.tag(node));
}

fn cpu(reader: &XmlSource<'_>, node: Node<'_, '_>, emulated: bool, asks: &mut Requirements) {
    let mode = reader.attribute(node, "mode");
    let model = children(node, "model").next();
    asks.no_fallback = model.is_some_and(|one| one.attribute("fallback") == Some("forbid"));
    let custom = mode.as_ref().is_none_or(|mode| mode.value == "custom");
    asks.model = if custom { model.and_then(|one| reader.content(one)) } else { mode.clone() };
    // Under TCG, and for the host's own processor, libvirt looks only when asked to.
    let looks = custom || mode.is_some_and(|mode| mode.value == "host-model");
    asks.exact = match node.attribute("check") {
        Some("none") => false,
        Some("full") => true,
        _ => looks && !emulated,
    };
    for feature in children(node, "feature") {
        let Some(name) = reader.attribute(feature, "name") else { continue };
        let canonical = feature_name(&name.value);
        match feature.attribute("policy") {
            None | Some("require") => asks.features.push(Located::new(canonical, name.span)),
            Some("disable" | "forbid") => {
                asks.disabled.insert(canonical);
            }
            _ => {}
        }
    }
}

fn devices(reader: &XmlSource<'_>, devices: Node<'_, '_>, asks: &mut Requirements) {
    for node in devices.children().filter(Node::is_element) {
        let name = node.tag_name().name();
        for (_, inside, attribute, list, what) in VALUES.iter().filter(|one| one.0 == name) {
            let element =
                if inside.is_empty() { Some(node) } else { children(node, inside).next() };
            let found = element.and_then(|element| reader.attribute(element, attribute));
            asks.values.extend(found.map(|at| OfferedValue { list, what, at }));
        }
        if name == "interface" {
            let model = children(node, "model").next();
            let model = model.and_then(|model| reader.attribute(model, "type"));
            // What is no virtio is passed on to QEMU as it stands.
            asks.types.extend(model.filter(|model| !model.value.starts_with("virtio")));
        }
    }
    asks.ports = ports(reader, devices);
}

/// The ports of a domain whose addresses libvirt has given out; before that, it will
/// add one that is free.
fn ports(reader: &XmlSource<'_>, devices: Node<'_, '_>) -> Option<Ports> {
    let hex = |node: Node<'_, '_>| {
        let text = node.attribute("bus")?.trim();
        u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let mut taken = BTreeSet::new();
    let mut ports = Vec::new();
    for device in devices.children().filter(Node::is_element) {
        let is = |value: &str| device.attribute("type") == Some(value);
        let address = children(device, "address").find(|at| at.attribute("type") == Some("pci"));
        let bus = address.and_then(hex);
        taken.extend(bus);
        let model = device.attribute("model").unwrap_or_default();
        if device.has_tag_name("controller") && is("pci") {
            // A port that has no address yet: libvirt is still to give them out.
            if bus.is_none() && !model.ends_with("-root") {
                return None;
            }
            if matches!(model, "pcie-root-port" | "pcie-switch-downstream-port") {
                ports.push((reader.number(device, "index")?.value, reader.tag(device)));
            }
        }
    }
    if taken.is_empty() {
        return None;
    }
    let free = ports.iter().filter(|(index, _)| !taken.contains(index)).count();
    Some(Ports { all: ports.len(), free, span: ports.last().map(|(_, span)| *span) })
}
