//! Labels and what selects by them, as Kubernetes takes them.
//!
//! Source: k8s.io/apimachinery, `pkg/util/validation/validation.go` and
//! `pkg/apis/meta/v1/validation/validation.go`.

use super::{is_subdomain, word};
use crate::finding::Drafts;
use crate::read::yaml::Node;

/// A label's key: a name of at most 63 letters, digits, `-`, `_` and `.`, with a
/// domain and `/` before it or not.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name),
        None => is_name(text),
    }
}

/// A label's value: the same as a name, or nothing.
pub(super) fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let edge = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// How many values a requirement's operator takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueCount {
    Some,
    One,
    None,
}

/// Operators of a selector of labels, and of one of nodes.
const OF_LABELS: [(&str, ValueCount); 4] = [
    ("In", ValueCount::Some),
    ("NotIn", ValueCount::Some),
    ("Exists", ValueCount::None),
    ("DoesNotExist", ValueCount::None),
];
const OF_NODES: [(&str, ValueCount); 6] = [
    ("In", ValueCount::Some),
    ("NotIn", ValueCount::Some),
    ("Exists", ValueCount::None),
    ("DoesNotExist", ValueCount::None),
    ("Gt", ValueCount::One),
    ("Lt", ValueCount::One),
];
const OF_FIELDS: [(&str, ValueCount); 2] = [("In", ValueCount::One), ("NotIn", ValueCount::One)];

/// Complains of an operator that does not exist, or has values that it does not take.
fn check_operator(requirement: &Node, known: &[(&str, ValueCount)], out: &mut Drafts) {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    super::one_of(requirement, "operator", &names, out);
    let Some((operator, span)) = word(requirement, "operator") else {
        out.at(requirement.span, format!("A requirement needs an operator: {}", names.join(", ")));
        return;
    };
    let count = requirement.get("values").map_or(0, |values| values.items().len());
    match known.iter().find(|(name, _)| *name == operator).map(|(_, values)| *values) {
        Some(ValueCount::Some) if count == 0 => out.at(span, format!("{operator} needs values")),
        Some(ValueCount::One) if count != 1 => {
            out.at(span, format!("{operator} takes one value, not {count}"))
        }
        Some(ValueCount::None) if count > 0 => out.at(span, format!("{operator} takes no values")),
        _ => return,
    };
}

fn check_key(requirement: &Node, out: &mut Drafts) {
    let key = requirement.given("key");
    let text = key.and_then(Node::text).unwrap_or_default();
    if !is_key(text) {
        let span = key.map_or(requirement.span, |key| key.span);
        out.at(span, format!("{text:?} is no key of a label"));
    }
}

/// Complains of keys and values that no label has.
pub(super) fn check_labels(labels: Option<&Node>, out: &mut Drafts) {
    for (key, value) in labels.map(Node::entries).unwrap_or_default() {
        if !is_key(&key.text) {
            out.at(key.span, format!("{:?} is no key of a label", key.text));
        }
        if value.text().is_some_and(|text| !is_value(text)) {
            let text = value.text().unwrap_or_default();
            out.at(value.span, format!("{text:?} is no value of a label"));
        }
    }
}

/// Complains of a `labelSelector` that Kubernetes refuses.
pub(super) fn check_selector(selector: Option<&Node>, out: &mut Drafts) {
    let Some(selector) = selector else { return };
    check_labels(selector.get("matchLabels"), out);
    for requirement in items(selector, "matchExpressions") {
        check_operator(requirement, &OF_LABELS, out);
        check_key(requirement, out);
        for value in items(requirement, "values") {
            let text = value.text().unwrap_or_default();
            if !is_value(text) {
                out.at(value.span, format!("{text:?} is no value of a label"));
            }
        }
    }
}

/// Complains of a `nodeSelectorTerm` that Kubernetes refuses.
pub(super) fn check_node_term(term: &Node, out: &mut Drafts) {
    for requirement in items(term, "matchExpressions") {
        check_operator(requirement, &OF_NODES, out);
        check_key(requirement, out);
    }
    for requirement in items(term, "matchFields") {
        check_operator(requirement, &OF_FIELDS, out);
        let key = requirement.get("key").and_then(Node::text).unwrap_or_default();
        if key != "metadata.name" {
            let span = requirement.get("key").map_or(requirement.span, |key| key.span);
            out.at(span, format!("{key:?} is no field of a node to match: metadata.name"));
            continue;
        }
        for value in items(requirement, "values") {
            let text = value.text().unwrap_or_default();
            if !is_subdomain(text) {
                out.at(value.span, format!("{text:?} is no name of a node"));
            }
        }
    }
}

/// Whether a selector that Kubernetes takes matches these labels.
pub(super) fn matches(selector: &Node, labels: Option<&Node>) -> bool {
    let label = |key: &str| {
        let labels = labels.map(Node::entries).unwrap_or_default();
        labels.iter().find(|(name, _)| name.text == key).and_then(|(_, value)| value.text())
    };
    let equal = selector.get("matchLabels").map(Node::entries).unwrap_or_default();
    equal.iter().all(|(key, value)| label(&key.text) == value.text())
        && items(selector, "matchExpressions").iter().all(|requirement| {
            let has = label(requirement.get("key").and_then(Node::text).unwrap_or_default());
            let among = || items(requirement, "values").iter().any(|value| value.text() == has);
            match requirement.get("operator").and_then(Node::text) {
                Some("In") => has.is_some() && among(),
                Some("NotIn") => has.is_none() || !among(),
                Some("Exists") => has.is_some(),
                Some("DoesNotExist") => has.is_none(),
                // Told elsewhere.
                _ => true,
            }
        })
}

/// The items of a list below these keys.
pub(super) fn items<'a>(node: &'a Node, path: &str) -> &'a [Node] {
    node.get(path).map(Node::items).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_of_kubernetes() {
        for (text, key, value) in [
            ("app", true, true),
            ("kubevirt.io/domain", true, false),
            ("", false, true),
            ("a/b/c", false, false),
            ("-a", false, false),
            ("A_b.c", true, true),
            ("Example.com/a", false, false),
            ("example.com/", false, false),
        ] {
            assert_eq!((is_key(text), is_value(text)), (key, value), "{text}");
        }
        assert!(is_key(&"a".repeat(63)) && !is_key(&"a".repeat(64)));
    }

    #[test]
    fn selectors_match_as_kubernetes_does() {
        let node = |text: &str| topology::bounded::yaml(text).unwrap_or_default().remove(0);
        let labels = node("{app: web, tier: '1'}");
        for (selector, expected) in [
            ("{}", true),
            ("{matchLabels: {app: web}}", true),
            ("{matchLabels: {app: db}}", false),
            ("{matchExpressions: [{key: tier, operator: In, values: ['1', '2']}]}", true),
            ("{matchExpressions: [{key: zone, operator: In, values: [a]}]}", false),
            ("{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}", true),
            ("{matchExpressions: [{key: app, operator: DoesNotExist}]}", false),
        ] {
            assert_eq!(matches(&node(selector), Some(&labels)), expected, "{selector}");
        }
        assert!(!matches(&node("{matchLabels: {app: web}}"), None));
    }
}
