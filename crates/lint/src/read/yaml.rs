//! YAML as a tree in which every key and value knows its place.

use serde_json::Value;
#[cfg(test)]
use topology::bounded::{self, Broken};
use topology::bounded::{YamlKey, YamlKind, YamlValue};

use vmconfig::kubevirt::Quantity;
use vmconfig::source::{At, Span};

/// One value.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) span: Span,
    /// Written without quotes, so that it need not be a text.
    plain: bool,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(At<String>, Node)>),
}

impl Node {
    /// The value below these keys, `domain.cpu.cores`.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.entry(path).map(|(_, value)| value)
    }

    /// The same, if it is not null, which is the same as none.
    pub(crate) fn given(&self, path: &str) -> Option<&Node> {
        self.get(path).filter(|node| !node.is_null())
    }

    /// The last key of a path and its value; of several alike the last, as for
    /// Kubernetes.
    pub(crate) fn entry(&self, path: &str) -> Option<(&At<String>, &Node)> {
        let (key, rest) = match path.split_once('.') {
            Some((key, rest)) => (key, Some(rest)),
            None => (path, None),
        };
        let found = self.entries().iter().rfind(|(name, _)| name.value == key)?;
        match rest {
            Some(rest) => found.1.entry(rest),
            None => Some((&found.0, &found.1)),
        }
    }

    pub(crate) fn entries(&self) -> &[(At<String>, Node)] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is no value at all.
    pub(crate) fn is_null(&self) -> bool {
        self.type_name() == "null"
    }

    /// Its type as JSON has it.
    ///
    /// Source: YAML 1.2, section 10.3, "Core Schema".
    pub(crate) fn type_name(&self) -> &'static str {
        let text = match &self.kind {
            Kind::List(_) => return "array",
            Kind::Map(_) => return "object",
            Kind::Scalar(_) if !self.plain => return "string",
            Kind::Scalar(text) => text.as_str(),
        };
        match text {
            "" | "~" | "null" | "Null" | "NULL" => "null",
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => "boolean",
            _ if text.parse::<i64>().is_ok() => "integer",
            _ if text.parse::<f64>().is_ok_and(f64::is_finite) => "number",
            _ => "string",
        }
    }

    /// The tree without its places.
    pub(crate) fn json(&self) -> Value {
        match &self.kind {
            Kind::List(items) => items.iter().map(Node::json).collect(),
            Kind::Map(entries) => {
                entries.iter().map(|(key, entry)| (key.value.clone(), entry.json())).collect()
            }
            Kind::Scalar(text) => match self.type_name() {
                "null" => Value::Null,
                "boolean" => Value::Bool(text.eq_ignore_ascii_case("true")),
                "integer" => text.parse::<i64>().map_or(Value::Null, Value::from),
                "number" => text.parse::<f64>().map_or(Value::Null, Value::from),
                _ => Value::String(text.clone()),
            },
        }
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.text()?.parse().ok()
    }

    /// A whole number, which may be below 0.
    pub(crate) fn integer(&self) -> Option<i64> {
        self.text()?.parse().ok()
    }

    pub(crate) fn is_true(&self) -> bool {
        self.text() == Some("true")
    }

    /// A Kubernetes quantity: `4`, `500m`, `8Gi`, `2G`, `1e3`.
    ///
    /// Source: Kubernetes API, `resource.Quantity`.
    pub(crate) fn quantity(&self) -> Option<f64> {
        self.text()?.parse::<Quantity>().ok().map(Quantity::as_f64)
    }

    /// A quantity in bytes.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.text()?.parse::<Quantity>().ok()?.round_down()
    }
}

impl Node {
    pub(crate) fn new(yaml: YamlValue) -> Self {
        let kind = match yaml.kind {
            YamlKind::Scalar(text) => Kind::Scalar(text),
            YamlKind::List(items) => Kind::List(items.into_iter().map(Node::new).collect()),
            YamlKind::Map(entries) => {
                let entry = |(key, value): (YamlKey, YamlValue)| {
                    (At::new(key.text, key.span), Node::new(value))
                };
                Kind::Map(entries.into_iter().map(entry).collect())
            }
        };
        Self { span: yaml.span.into(), plain: yaml.plain, kind }
    }
}

/// The documents of a text.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Vec<Node>, Broken> {
    Ok(bounded::yaml(text)?.into_iter().map(Node::new).collect())
}
