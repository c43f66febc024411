//! KubeVirt's YAML: a tree in which every key and value knows its place.

pub(crate) use topology::bounded::{YamlKey as Key, YamlKind as Kind, YamlValue as Node};
use vmconfig::kubevirt::Quantity;

/// Kubernetes quantities among the values: `4`, `500m`, `8Gi`, `2G`, `1e3`.
///
/// Source: Kubernetes API, `resource.Quantity`.
pub(crate) trait QuantityValue {
    fn quantity(&self) -> Option<f64>;

    /// The same in bytes.
    fn bytes(&self) -> Option<u64>;
}

impl QuantityValue for Node {
    fn quantity(&self) -> Option<f64> {
        self.text()?.parse::<Quantity>().ok().map(Quantity::as_f64)
    }

    fn bytes(&self) -> Option<u64> {
        self.text()?.parse::<Quantity>().ok()?.round_down()
    }
}
