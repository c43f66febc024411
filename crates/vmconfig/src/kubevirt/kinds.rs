//! Kinds of objects, and where in them VMs are.

/// Kinds of objects that hold a VM, and the path of what has the VMI's `metadata` and
/// `spec`.
const TEMPLATES: [(&str, &str); 4] = [
    ("VirtualMachineInstance", ""),
    ("VirtualMachine", "spec.template"),
    ("VirtualMachineInstanceReplicaSet", "spec.template"),
    ("VirtualMachinePool", "spec.virtualMachineTemplate.spec.template"),
];

/// The path below an object of this kind at which the `metadata` and `spec` of a
/// VirtualMachineInstance stand; `None`: it holds none.
#[must_use]
pub fn template_of(kind: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|(known, _)| *known == kind).map(|(_, path)| *path)
}

/// Whether an object of this kind is a list of objects, its `items`.
#[must_use]
pub fn is_list(kind: &str) -> bool {
    kind.ends_with("List")
}
