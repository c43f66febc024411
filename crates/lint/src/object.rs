//! Objects of KubeVirt that are no VM and make none.

use crate::read::yaml::Node;
use vmconfig::source::{LocatedValue, Span};

/// Kinds that rules know.
pub(crate) const KINDS: [&str; 10] = [
    "VirtualMachineInstancetype",
    "VirtualMachineClusterInstancetype",
    "VirtualMachinePreference",
    "VirtualMachineClusterPreference",
    "MigrationPolicy",
    "VirtualMachineInstanceMigration",
    "VirtualMachineClone",
    "VirtualMachineSnapshot",
    "VirtualMachineRestore",
    "VirtualMachineExport",
];

/// A KubeVirt object of one of these kinds.
#[derive(Debug)]
pub(crate) struct KubeObject {
    pub(crate) kind: LocatedValue<String>,
    pub(crate) name: String,
    /// All of it.
    pub(crate) node: Node,
}

impl KubeObject {
    pub(crate) fn is_instancetype(&self) -> bool {
        self.kind.value.ends_with("Instancetype")
    }

    /// A value below these keys that is not null, with the place to point at: its own, or
    /// where it is missing that of the nearest key around it.
    pub(crate) fn given(&self, path: &str) -> (Option<&Node>, Span) {
        let mut around = path;
        while let Some((outer, _)) = around.rsplit_once('.') {
            if let Some(node) = self.node.given(path) {
                return (Some(node), node.span);
            }
            if let Some((key, _)) = self.node.entry(outer) {
                return (None, key.span);
            }
            around = outer;
        }
        (None, self.kind.span)
    }

    /// The text there; empty where there is none.
    pub(crate) fn text(&self, path: &str) -> (&str, Span) {
        let (node, span) = self.given(path);
        (node.and_then(Node::text).unwrap_or_default(), span)
    }
}
