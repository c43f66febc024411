//! What a cluster's own KubeVirt object tells: its version and its feature gates.

use std::collections::BTreeSet;

use placement::predict::KubevirtVersion;
use topology::bounded;

use crate::read::yaml::Node;

/// A cluster's KubeVirt, as far as it bears on what it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Feature gates that are on.
    pub gates: BTreeSet<String>,
    /// Feature gates that are off where they would be on (since 1.8).
    pub disabled_gates: BTreeSet<String>,
    /// Its version, where the object has a status.
    pub version: Option<KubevirtVersion>,
}

impl Cluster {
    /// What the objects of kind KubeVirt in a text tell; `None`: it has none, as a text
    /// that is no YAML.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut found = None;
        if text.contains("KubeVirt") {
            let documents = bounded::yaml(text).ok()?;
            documents.into_iter().for_each(|document| add(&document, &mut found));
        }
        found
    }

    /// Adds what another object tells.
    pub fn extend(&mut self, other: Self) {
        self.gates.extend(other.gates);
        self.disabled_gates.extend(other.disabled_gates);
        self.version = other.version.or(self.version);
    }
}

fn add(object: &Node, found: &mut Option<Cluster>) {
    let text = |path: &str| object.get(path).and_then(Node::text).unwrap_or_default();
    if text("kind").ends_with("List") {
        let items = object.get("items").map(Node::items).unwrap_or_default();
        items.iter().for_each(|item| add(item, found));
    }
    if text("kind") != "KubeVirt" {
        return;
    }
    let gates = |name: &str| {
        let path = format!("spec.configuration.developerConfiguration.{name}");
        let gates = object.get(&path).map(Node::items).unwrap_or_default();
        gates.iter().filter_map(|gate| Some(gate.text()?.to_owned())).collect()
    };
    let version = text("status.observedKubeVirtVersion").trim_start_matches('v').parse().ok();
    let cluster = Cluster {
        gates: gates("featureGates"),
        disabled_gates: gates("disabledFeatureGates"),
        version,
    };
    found.get_or_insert_default().extend(cluster);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_tells_its_gates_and_version() {
        let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: kubevirt.io/v1
  kind: KubeVirt
  metadata: {name: kubevirt}
  spec:
    configuration:
      developerConfiguration:
        featureGates: [HostDisk, NUMA]
        disabledFeatureGates: [VideoConfig]
  status: {observedKubeVirtVersion: v1.8.2}
";
        let cluster = Cluster::read(text).unwrap_or_default();
        assert_eq!(cluster.gates, ["HostDisk", "NUMA"].map(str::to_owned).into());
        assert_eq!(cluster.disabled_gates, ["VideoConfig".to_owned()].into());
        assert_eq!(cluster.version, Some(KubevirtVersion::new(1, 8, 2)));
        // None of them is on, which is more than not to know.
        let bare = "kind: KubeVirt\nspec: {}\n";
        assert_eq!(Cluster::read(bare), Some(Cluster::default()));
        for none in ["kind: VirtualMachine\nmetadata: {name: KubeVirt}\n", "KubeVirt: [", ""] {
            assert_eq!(Cluster::read(none), None, "{none}");
        }
    }
}
