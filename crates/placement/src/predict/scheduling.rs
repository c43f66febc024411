//! What a node says of who may come, and what a pod says of where it may go: taints and
//! tolerations, labels that node affinity requires.
//!
//! Source: Kubernetes 1.36, `staging/src/k8s.io/component-helpers/scheduling/corev1`
//! (`helpers.go`, `nodeaffinity/nodeaffinity.go`) and `api/core/v1/toleration.go`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// A taint of a node: pods that don't tolerate it stay away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty if it has none.
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule`.
    pub effect: String,
}

/// Taints that say again what a node's conditions and its cordon say.
const OF_CONDITIONS: &str = "node.kubernetes.io/";

impl Taint {
    /// Whether pods that don't tolerate it are kept away; `PreferNoSchedule` is a wish.
    #[must_use]
    pub fn keeps_away(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// Whether it only repeats that the node is cordoned, not ready or short of something.
    #[must_use]
    pub fn is_of_condition(&self) -> bool {
        self.key.starts_with(OF_CONDITIONS)
    }
}

impl fmt::Display for Taint {
    /// As `kubectl taint` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{equals}{value}:{effect}")
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint's key; none tolerates all keys, with the operator `Exists`.
    pub key: Option<String>,
    /// `Equal`, which is the default, or `Exists`.
    pub operator: Option<String>,
    /// The taint's value.
    pub value: Option<String>,
    /// The taint's effect; none tolerates all.
    pub effect: Option<String>,
}

impl Toleration {
    /// Whether it tolerates the taint. Operators that compare numbers, which
    /// are behind a feature gate, tolerate nothing.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let is = |said: &Option<String>, meant: &str| {
            said.as_deref().is_none_or(|said| said.is_empty() || said == meant)
        };
        is(&self.effect, &taint.effect)
            && is(&self.key, &taint.key)
            && match self.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => self.value.as_deref().unwrap_or_default() == taint.value,
                "Exists" => true,
                _ => false,
            }
    }
}

/// `spec.affinity`, of which the part that nodes decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    /// Affinity to nodes.
    pub node_affinity: Option<NodeAffinity>,
}

/// Affinity to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAffinity {
    /// What a node must be.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

/// Terms of which one must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that must hold together; a term without any holds nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Of labels.
    pub match_expressions: Vec<NodeRequirement>,
    /// Of fields, which is the node's name alone: `metadata.name`.
    pub match_fields: Vec<NodeRequirement>,
}

/// A requirement of a label or a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct NodeRequirement {
    /// The label, or the field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// What it is compared with; one whole number for `Gt` and `Lt`.
    pub values: Vec<String>,
}

impl NodeSelector {
    /// Whether a node with this name and these labels is selected.
    #[must_use]
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector_terms.iter().any(|term| term.holds(name, labels))
    }
}

impl NodeSelectorTerm {
    fn holds(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        let label = |key: &str| labels.get(key).map(String::as_str);
        let Self { match_expressions, match_fields } = self;
        !(match_expressions.is_empty() && match_fields.is_empty())
            && match_expressions.iter().all(|one| one.holds(label(&one.key)))
            && match_fields.iter().all(|one| one.holds(field(&one.key)))
    }
}

impl NodeRequirement {
    fn holds(&self, found: Option<&str>) -> bool {
        let is_listed = || self.values.iter().any(|value| Some(value.as_str()) == found);
        let numbers = || -> Option<(i64, i64)> {
            let [bound] = &self.values[..] else { return None };
            Some((found?.parse().ok()?, bound.parse().ok()?))
        };
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" => numbers().is_some_and(|(found, bound)| found > bound),
            "Lt" => numbers().is_some_and(|(found, bound)| found < bound),
            _ => false,
        }
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.node_selector_terms.iter().enumerate() {
            f.write_str(if number > 0 { " or " } else { "" })?;
            let all = term.match_expressions.iter().chain(&term.match_fields);
            let all: Vec<String> = all.map(ToString::to_string).collect();
            f.write_str(&if all.is_empty() { "nothing".to_owned() } else { all.join(" and ") })?;
        }
        if self.node_selector_terms.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

impl fmt::Display for NodeRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        write!(f, "{key} {operator}")?;
        if values.is_empty() { Ok(()) } else { write!(f, " ({})", values.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    fn tolerates(toleration: serde_json::Value, taint: &Taint) -> bool {
        let toleration: Toleration = serde_json::from_value(toleration).unwrap();
        toleration.tolerates(taint)
    }

    #[test]
    fn tolerations_are_read_as_the_scheduler_does() {
        let gpu = taint("dedicated", "gpu", "NoSchedule");
        assert_eq!(gpu.to_string(), "dedicated=gpu:NoSchedule");
        assert_eq!(taint("a", "", "NoExecute").to_string(), "a:NoExecute");
        assert!(tolerates(json!({ "key": "dedicated", "value": "gpu" }), &gpu));
        assert!(tolerates(json!({ "key": "dedicated", "operator": "Exists" }), &gpu));
        assert!(tolerates(json!({ "operator": "Exists" }), &gpu));
        assert!(tolerates(json!({ "operator": "Exists", "effect": "NoSchedule" }), &gpu));
        assert!(!tolerates(json!({ "key": "dedicated", "value": "vm" }), &gpu));
        assert!(!tolerates(json!({ "key": "dedicated" }), &gpu));
        assert!(!tolerates(json!({ "key": "other", "operator": "Exists" }), &gpu));
        assert!(!tolerates(json!({ "operator": "Exists", "effect": "NoExecute" }), &gpu));
        assert!(!tolerates(json!({ "key": "dedicated", "operator": "Gt", "value": "1" }), &gpu));
        assert!(!taint("a", "", "PreferNoSchedule").keeps_away());
        assert!(taint("node.kubernetes.io/not-ready", "", "NoExecute").is_of_condition());
    }

    #[test]
    fn requirements_of_nodes_are_read_as_the_scheduler_does() {
        let labels = [("zone", "a"), ("slots", "12")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let selects = |terms: serde_json::Value| {
            let selector: NodeSelector =
                serde_json::from_value(json!({ "nodeSelectorTerms": terms })).unwrap();
            selector.selects("one", &labels)
        };
        let label = |key: &str, operator: &str, values: &[&str]| {
            selects(json!([{ "matchExpressions": [
                { "key": key, "operator": operator, "values": values }] }]))
        };
        assert!(label("zone", "In", &["b", "a"]) && !label("zone", "In", &["b"]));
        assert!(label("zone", "NotIn", &["b"]) && label("none", "NotIn", &["b"]));
        assert!(!label("zone", "NotIn", &["a"]));
        assert!(label("zone", "Exists", &[]) && !label("none", "Exists", &[]));
        assert!(label("none", "DoesNotExist", &[]) && !label("zone", "DoesNotExist", &[]));
        assert!(label("slots", "Gt", &["11"]) && !label("slots", "Gt", &["12"]));
        assert!(label("slots", "Lt", &["13"]) && !label("zone", "Lt", &["13"]));
        assert!(!label("none", "Gt", &["1"]) && !label("slots", "Gt", &["1", "2"]));
        assert!(!label("zone", "Like", &["a"]));
        // One term of several is enough; all of a term must hold, and none holds nowhere.
        let exists = |key: &str| json!({ "key": key, "operator": "Exists" });
        let both = json!({ "matchExpressions": [exists("zone"), exists("none")] });
        assert!(!selects(json!([both])));
        assert!(selects(json!([both, { "matchExpressions": [exists("zone")] }])));
        assert!(!selects(json!([{}])) && !selects(json!([])));
        let named = |name: &str| {
            selects(json!([{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": [name] }] }]))
        };
        assert!(named("one") && !named("two"));
    }
}
