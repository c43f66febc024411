//! What KubeVirt's admission webhook refuses, by the part of the object that it is
//! about. The CRD's schema knows none of this.
//!
//! Only what the object's own text decides is here: what depends on the cluster's
//! feature gates, on quotas or on other objects is not.
//!
//! Source: kubevirt/kubevirt, `pkg/virt-api/webhooks/validating-webhook/admitters`,
//! `pkg/network/admitter`, `pkg/storage/admitters`; 0.44 to 1.9.

pub(super) mod claims;
pub(super) mod disks;
pub(super) mod domain;
pub(super) mod firmware;
pub(super) mod gates;
pub(super) mod instancetypes;
pub(super) mod interfaces;
mod labels;
pub(super) mod machine;
pub(super) mod networks;
pub(super) mod objects;
pub(super) mod placement;
pub(super) mod pod;
pub(super) mod sets;
pub(super) mod volumes;

use std::collections::{HashMap, HashSet};

use vmconfig::source::Span;

use crate::finding::Drafts;
use crate::read::yaml::Node;
use crate::vm::Vm;

pub(super) const ADMITTERS: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/\
                                    webhooks/validating-webhook/admitters/vmi-create-admitter.go";
pub(super) const STORAGE: &str =
    "https://github.com/kubevirt/kubevirt/blob/main/pkg/storage/admitters/disks.go";
pub(super) const NETWORK: &str =
    "https://github.com/kubevirt/kubevirt/tree/main/pkg/network/admitter";
pub(super) const REFUSED: &str = "The admission webhook refuses the object; the schema lets it \
                                  pass, so a dry run against the CRD alone does not tell.";

/// The items of a list below the VMI's `spec`.
fn list<'a>(vm: &'a Vm, path: &str) -> &'a [Node] {
    vm.kube(path).map(Node::items).unwrap_or_default()
}

fn disks_of(vm: &Vm) -> &[Node] {
    list(vm, "domain.devices.disks")
}

fn interfaces_of(vm: &Vm) -> &[Node] {
    list(vm, "domain.devices.interfaces")
}

fn volumes_of(vm: &Vm) -> &[Node] {
    list(vm, "volumes")
}

fn networks_of(vm: &Vm) -> &[Node] {
    list(vm, "networks")
}

/// The volumes that neither a disk nor a file system has the name of.
fn volumes_without_device(vm: &Vm) -> impl Iterator<Item = &Node> {
    let devices = disks_of(vm).iter().chain(list(vm, "domain.devices.filesystems"));
    let known: HashSet<&str> = devices.map(name).collect();
    // What dumps are written to is no disk of the guest.
    let all = volumes_of(vm).iter().filter(|volume| volume.given("memoryDump").is_none());
    all.filter(move |volume| !known.contains(name(volume)))
}

fn volumes_by_name(vm: &Vm) -> HashMap<&str, &Node> {
    by_name(volumes_of(vm))
}

/// Items by their names; of two of one name the last, as KubeVirt has it.
fn by_name(items: &[Node]) -> HashMap<&str, &Node> {
    items.iter().map(|item| (name(item), item)).collect()
}

/// The name of a list's item; empty if it has none.
fn name(item: &Node) -> &str {
    item.get("name").and_then(Node::text).unwrap_or_default()
}

/// Where to point at an item.
fn place(item: &Node) -> Span {
    item.given("name").map_or(item.span, |node| node.span)
}

/// A text that is not empty, which is the same as none.
fn word<'a>(item: &'a Node, path: &str) -> Option<(&'a str, Span)> {
    let node = item.given(path)?;
    let text = node.text().filter(|text| !text.is_empty())?;
    Some((text, node.span))
}

/// Complains of a value that is none of these; with another case it is mended.
fn one_of(item: &Node, path: &str, known: &[&str], out: &mut Drafts) {
    if let Some((text, span)) = word(item, path).filter(|(text, _)| !known.contains(text)) {
        let key = path.rsplit('.').next().unwrap_or(path);
        let draft = out.at(span, format!("{key} {text:?} is none of {}", known.join(", ")));
        if let Some(near) = known.iter().find(|name| name.eq_ignore_ascii_case(text)) {
            draft.fix(span, *near);
        }
    }
}

/// Complains of names that stood before.
fn repeated(items: &[Node], what: &str, out: &mut Drafts) {
    let mut seen = HashSet::new();
    for item in items {
        if !seen.insert(name(item)) {
            out.at(place(item), format!("A second {what} of the name {:?}", name(item)));
        }
    }
}

/// Whether the API server takes it as the name of a label (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.is_empty()
}

/// Whether the API server takes it as a subdomain (RFC 1123).
fn is_subdomain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| {
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// Whether a path of a file in a container is absolute and has no `..`, `.` or
/// empty part.
fn is_clean_path(path: &str) -> bool {
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    trimmed.strip_prefix('/').is_some_and(|inner| {
        !inner.is_empty() && inner.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

/// `0000:3b:00.0`.
fn is_pci_address(text: &str) -> bool {
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit())
    };
    let function = |part: &str| matches!(part.as_bytes(), [b'0'..=b'7']);
    let Some((slot, last)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = slot.split(':').collect();
    matches!(parts.as_slice(), [domain, bus, device]
        if hex(domain, 4) && hex(bus, 2) && hex(device, 2))
        && function(last)
}

/// What a [switch of a feature](https://kubevirt.io/api-reference/) says: on where
/// it is named and not switched off.
fn is_on(node: Option<&Node>) -> bool {
    node.is_some_and(|node| !node.is_null() && node.given("enabled").is_none_or(Node::is_true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_those_of_the_api_server() {
        for (text, label, subdomain) in [
            ("web-1", true, true),
            ("a.b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("A", false, false),
            ("a_b", false, false),
            ("a..b", false, false),
        ] {
            assert_eq!((is_label(text), is_subdomain(text)), (label, subdomain), "{text}");
        }
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
        for (text, right) in [
            ("0000:3b:00.0", true),
            ("0000:3b:00.8", false),
            ("3b:00.0", false),
            ("0000.3b:00:0", false),
        ] {
            assert_eq!(is_pci_address(text), right, "{text}");
        }
        for (path, right) in [
            ("/disk/a.img", true),
            ("/boot/", true),
            ("/", false),
            ("disk", false),
            ("/a/../b", false),
            ("//a", false),
        ] {
            assert_eq!(is_clean_path(path), right, "{path}");
        }
    }
}
