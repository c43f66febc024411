//! What a VMI asks of the node's QEMU.
//!
//! Source: KubeVirt user guide, "Virtual hardware"; virt-handler labels nodes with
//! the processor models and features that libvirt says are usable.

use vmconfig::offers::feature_name;
use vmconfig::source::LocatedValue;

use crate::read::yaml::Node;
use crate::requirements::Requirements;

pub(crate) fn read(spec: &Node) -> Requirements {
    let text = |path: &str| {
        let node = spec.get(path)?;
        Some(LocatedValue::new(node.text()?.to_owned(), node.span))
    };
    let mut asks = Requirements {
        machine: text("domain.machine.type").filter(|machine| !machine.value.is_empty()),
        model: text("domain.cpu.model"),
        // A node without what is asked for gets no such pod.
        exact: true,
        no_fallback: true,
        ..Requirements::default()
    };
    let features = spec.get("domain.cpu.features").map(Node::items).unwrap_or_default();
    for feature in features {
        let Some(name) = feature.get("name") else { continue };
        let canonical = feature_name(name.text().unwrap_or_default());
        match feature.get("policy").and_then(Node::text) {
            None | Some("" | "require") => {
                asks.features.push(LocatedValue::new(canonical, name.span))
            }
            Some("disable" | "forbid") => {
                asks.disabled.insert(canonical);
            }
            _ => {}
        }
    }
    asks
}
