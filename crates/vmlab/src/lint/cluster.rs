//! Which VMs of a cluster are linted, and for which node.

use std::collections::{BTreeMap, HashMap, HashSet};

use ::cluster::{ClusterNode, ClusterObject};

use crate::kubernetes::ClusterView;

/// VMs that are linted for one node.
pub(super) struct NodeGroup<'a> {
    /// `None`: they run nowhere.
    pub(super) node: Option<&'a ClusterNode>,
    pub(super) objects: Vec<&'a ClusterObject>,
}

/// Every VM of the cluster, by the node that it runs on. An instance that a VM made is
/// linted as that VM, whose text is the one that people write.
pub(super) fn groups(view: &ClusterView) -> Vec<NodeGroup<'_>> {
    let facts = &view.facts;
    let key = |object: &ClusterObject| (object.namespace.clone(), object.name.clone());
    let vms: HashSet<_> = facts.vms.iter().map(key).collect();
    let running: HashMap<_, &str> = facts
        .instances
        .iter()
        .filter(|instance| !instance.is_over)
        .filter_map(|instance| Some((key(instance), instance.node.as_deref()?)))
        .collect();
    let is_a_vms = |instance: &&ClusterObject| {
        let owner = instance.owner.as_ref().filter(|(kind, _)| kind == "VirtualMachine");
        owner.is_some_and(|(_, name)| vms.contains(&(instance.namespace.clone(), name.clone())))
    };
    let alone = facts.instances.iter().filter(|instance| !is_a_vms(instance));
    let mut by_node: BTreeMap<Option<&str>, Vec<&ClusterObject>> = BTreeMap::new();
    for object in facts.vms.iter().chain(alone) {
        let node = running.get(&key(object)).copied();
        by_node.entry(node.filter(|name| view.node(name).is_some())).or_default().push(object);
    }
    by_node
        .into_iter()
        .map(|(node, objects)| NodeGroup { node: node.and_then(|name| view.node(name)), objects })
        .collect()
}

/// How findings name an object: `NAMESPACE/virtualmachine/NAME`.
pub(super) fn name(object: &ClusterObject) -> String {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}/{}", object.kind.to_lowercase(), object.name)
}
