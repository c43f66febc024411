//! `virsh capabilities`, of which the guests are read, and `virsh domcapabilities`.
//!
//! Source: libvirt, "Driver capabilities XML format", "Domain capabilities XML
//! format".

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::Node;
use topology::bounded::{self, MalformedText};

use super::model::{CpuModel, CpuModels, DomainKind, MachineType, Offers, feature_name};
use crate::Accel;

pub(super) fn read(text: &str) -> Result<Offers, MalformedText> {
    let document = bounded::xml(text)?;
    let mut offers = Offers::default();
    for node in document.descendants() {
        match node.tag_name().name() {
            "capabilities" => capabilities(node, &mut offers)?,
            "domainCapabilities" => domain_capabilities(node, &mut offers)?,
            _ => {}
        }
    }
    Ok(offers)
}

fn children<'a, 'input: 'a>(
    node: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

fn child<'a, 'input: 'a>(node: Node<'a, 'input>, name: &'static str) -> Option<Node<'a, 'input>> {
    children(node, name).next()
}

fn text(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

fn broken(node: Node<'_, '_>, what: String) -> MalformedText {
    MalformedText { at: node.range().start, what }
}

/// A number of vCPUs in an attribute.
fn number(node: Node<'_, '_>, name: &str) -> Result<Option<u32>, MalformedText> {
    let Some(said) = node.attribute(name) else { return Ok(None) };
    let number = said.trim().parse();
    number.map(Some).map_err(|_| broken(node, format!("{name} is no number: {said:?}")))
}

fn accel(kind: &str) -> Option<Accel> {
    match kind {
        "kvm" => Some(Accel::Kvm),
        "qemu" => Some(Accel::Tcg),
        _ => None,
    }
}

fn capabilities(root: Node<'_, '_>, offers: &mut Offers) -> Result<(), MalformedText> {
    let host = child(root, "host").and_then(|host| child(host, "cpu"));
    offers.arch = host.and_then(|cpu| child(cpu, "arch")).map(text);
    for arch in children(root, "guest").flat_map(|guest| children(guest, "arch")) {
        let Some(name) = arch.attribute("name") else {
            return Err(broken(arch, "An <arch> without a name".to_owned()));
        };
        for domain in children(arch, "domain") {
            let of = offers.accels.entry(name.to_owned()).or_default();
            of.extend(domain.attribute("type").and_then(accel));
        }
        for machine in children(arch, "machine") {
            offers.machines.push(MachineType {
                arch: name.to_owned(),
                name: text(machine),
                alias: machine.attribute("canonical").map(str::to_owned),
                max_vcpus: number(machine, "maxCpus")?,
                deprecated: machine.attribute("deprecated") == Some("yes"),
            });
        }
    }
    Ok(())
}

fn domain_capabilities(root: Node<'_, '_>, offers: &mut Offers) -> Result<(), MalformedText> {
    let said = |name| child(root, name).map(text).filter(|text| !text.is_empty());
    let arch = said("arch").ok_or_else(|| broken(root, "No <arch> inside".to_owned()))?;
    let domain = said("domain").ok_or_else(|| broken(root, "No <domain> inside".to_owned()))?;
    // Those of other hypervisors tell nothing of QEMU.
    let Some(accel) = accel(&domain) else { return Ok(()) };
    let mut kind = DomainKind {
        arch: arch.clone(),
        accel,
        machine: said("machine").unwrap_or_default(),
        max_vcpus: child(root, "vcpu").map(|vcpu| number(vcpu, "max")).transpose()?.flatten(),
        supported: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    for node in root.children().filter(Node::is_element) {
        match node.tag_name().name() {
            "cpu" => {
                for mode in children(node, "mode") {
                    let name = format!("cpu.{}", mode.attribute("name").unwrap_or_default());
                    kind.supported.insert(name, mode.attribute("supported") == Some("yes"));
                }
                offers.cpus.push(cpus(node, &arch, accel));
            }
            "devices" | "features" => {
                for node in node.children().filter(Node::is_element) {
                    element(node, &mut kind);
                }
            }
            _ => element(node, &mut kind),
        }
    }
    offers.arch.get_or_insert(arch);
    offers.domains.push(kind);
    Ok(())
}

/// An element that is there or not, with lists of values that it may have.
fn element(node: Node<'_, '_>, kind: &mut DomainKind) {
    let name = node.tag_name().name();
    if let Some(supported) = node.attribute("supported") {
        kind.supported.insert(name.to_owned(), supported == "yes");
    }
    for list in children(node, "enum") {
        let values = children(list, "value").map(text).collect();
        let key = format!("{name}.{}", list.attribute("name").unwrap_or_default());
        kind.values.insert(key, values);
    }
    for node in children(node, "loader") {
        element(node, kind);
    }
}

fn cpus(cpu: Node<'_, '_>, arch: &str, accel: Accel) -> CpuModels {
    let mut models: BTreeMap<String, CpuModel> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for mode in children(cpu, "mode") {
        match mode.attribute("name") {
            // Features of the nearest model that the host lacks.
            Some("host-model") => missing.extend(
                children(mode, "feature")
                    .filter(|feature| feature.attribute("policy") == Some("disable"))
                    .filter_map(|feature| Some(feature_name(feature.attribute("name")?))),
            ),
            Some("custom") => {
                for node in children(mode, "model") {
                    let model = models.entry(text(node)).or_default();
                    model.usable = match node.attribute("usable") {
                        Some("yes") => Some(true),
                        Some("no") => Some(false),
                        _ => None,
                    };
                    model.deprecated = node.attribute("deprecated") == Some("yes");
                }
                for node in children(mode, "blockers") {
                    let named: BTreeSet<String> = children(node, "feature")
                        .filter_map(|feature| Some(feature_name(feature.attribute("name")?)))
                        .collect();
                    missing.extend(named.iter().cloned());
                    let model = node.attribute("model").unwrap_or_default();
                    models.entry(model.to_owned()).or_default().blockers = named;
                }
            }
            _ => {}
        }
    }
    CpuModels { arch: arch.to_owned(), accel, models, of_libvirt: true, missing }
}
