//! YAML as a tree with lines, and a note of what was understood.

use std::cell::Cell;

use topology::bounded::{YamlKey, YamlKind, YamlValue};

/// One value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: u32,
    value: Value,
    used: Cell<bool>,
}

#[derive(Debug, Clone)]
enum Value {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn new(yaml: YamlValue) -> Self {
        let value = match yaml.kind {
            YamlKind::Scalar(text) => Value::Scalar(text),
            YamlKind::List(items) => Value::List(items.into_iter().map(Node::new).collect()),
            YamlKind::Map(entries) => {
                let entry = |(key, value): (YamlKey, YamlValue)| (key.text, Node::new(value));
                Value::Map(entries.into_iter().map(entry).collect())
            }
        };
        let line = u32::try_from(yaml.line).unwrap_or(u32::MAX);
        Self { line, value, used: Cell::new(false) }
    }
}

impl Node {
    /// The text of a scalar; looking does not mean understanding.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// A value of a map, without understanding it; the last of that name.
    pub(super) fn peek(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(map) => map.iter().rev().find(|(name, _)| name == key).map(|row| &row.1),
            _ => None,
        }
    }

    /// A value of a map; it is understood if it is a container, of which what
    /// is inside is asked for one by one.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let node = self.peek(key)?;
        node.used.set(true);
        Some(node)
    }

    /// Understands a value of a map with all that is in it.
    pub(super) fn get_whole(&self, key: &str) {
        if let Some(node) = self.get(key) {
            node.use_all();
        }
    }

    fn use_all(&self) {
        self.used.set(true);
        match &self.value {
            Value::Scalar(_) => {}
            Value::List(list) => list.iter().for_each(Node::use_all),
            Value::Map(map) => map.iter().for_each(|(_, node)| node.use_all()),
        }
    }

    /// A scalar of a map if it means something.
    pub(super) fn read<T>(&self, key: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let node = self.peek(key)?;
        let value = read(node.text()?)?;
        node.used.set(true);
        Some(value)
    }

    /// Understands one value inside a map of this map.
    pub(super) fn used_path(&self, outer: &str, inner: &str) {
        if let Some(node) = self.get(outer) {
            node.get(inner);
        }
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.read(key, |text| text.parse().ok())
    }

    /// The values of a list, each understood as a container.
    pub(super) fn items(&self, key: &str) -> Vec<&Node> {
        match self.get(key).map(|node| &node.value) {
            Some(Value::List(list)) => {
                list.iter().for_each(|node| node.used.set(true));
                list.iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// The keys of a map.
    pub(super) fn keys(&self) -> Vec<&str> {
        match &self.value {
            Value::Map(map) => map.iter().map(|(key, _)| key.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    /// The values of a list, without understanding them.
    #[cfg(test)]
    pub(super) fn list(&self) -> &[Node] {
        match &self.value {
            Value::List(list) => list,
            _ => &[],
        }
    }

    #[cfg(test)]
    pub(super) fn is_list(&self) -> bool {
        matches!(self.value, Value::List(_))
    }

    /// The value is not understood after all.
    pub(super) fn reject(&self) {
        self.used.set(false);
    }

    /// All that was not understood, as line, path and text.
    pub(super) fn rest(&self, path: &str, rest: &mut Vec<(u32, String, String)>) {
        let mut inner = |key: &str, node: &Node| {
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            if node.used.get() {
                node.rest(&path, rest);
            } else {
                rest.push((node.line, path, node.flow()));
            }
        };
        match &self.value {
            Value::Scalar(_) => {}
            Value::List(list) => {
                for (number, node) in list.iter().enumerate() {
                    inner(&number.to_string(), node);
                }
            }
            Value::Map(map) => {
                for (key, node) in map {
                    inner(key, node);
                }
            }
        }
    }

    /// As YAML on one line.
    fn flow(&self) -> String {
        match &self.value {
            Value::Scalar(text) => text.clone(),
            Value::List(list) => {
                let all: Vec<String> = list.iter().map(Node::flow).collect();
                format!("[{}]", all.join(", "))
            }
            Value::Map(map) => {
                let all: Vec<String> =
                    map.iter().map(|(key, node)| format!("{key}: {}", node.flow())).collect();
                format!("{{{}}}", all.join(", "))
            }
        }
    }
}

/// YAML to be written, keys in order.
#[derive(Debug, Clone)]
pub(super) enum Yaml {
    Text(String),
    /// A number or a switch, never quoted.
    Plain(String),
    List(Vec<Yaml>),
    Map(Vec<(&'static str, Yaml)>),
}

impl Yaml {
    pub(super) fn map() -> Self {
        Self::Map(Vec::new())
    }

    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    pub(super) fn plain(value: impl ToString) -> Self {
        Self::Plain(value.to_string())
    }

    /// Adds a key to a map.
    pub(super) fn put(&mut self, key: &'static str, value: Yaml) {
        if let Self::Map(map) = self {
            map.push((key, value));
        }
    }

    pub(super) fn with(mut self, key: &'static str, value: Yaml) -> Self {
        self.put(key, value);
        self
    }

    pub(super) fn maybe(self, key: &'static str, value: Option<Yaml>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Map(map) => map.is_empty(),
            Self::List(list) => list.is_empty(),
            _ => false,
        }
    }

    pub(super) fn write(&self, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        match self {
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Plain(text) => out.push_str(text),
            Self::List(list) => {
                for one in list {
                    out.push_str(&format!("{indent}- "));
                    let mut inner = String::new();
                    one.write(depth + 1, &mut inner);
                    out.push_str(inner.trim_start());
                    if !inner.ends_with('\n') {
                        out.push('\n');
                    }
                }
            }
            Self::Map(map) => {
                for (key, value) in map {
                    out.push_str(&format!("{indent}{key}:"));
                    match value {
                        Self::Map(inner) if inner.is_empty() => out.push_str(" {}\n"),
                        Self::List(inner) if inner.is_empty() => out.push_str(" []\n"),
                        Self::Map(_) => {
                            out.push('\n');
                            value.write(depth + 1, out);
                        }
                        Self::List(_) => {
                            out.push('\n');
                            value.write(depth, out);
                        }
                        _ => {
                            out.push(' ');
                            value.write(depth, out);
                            out.push('\n');
                        }
                    }
                }
            }
        }
    }
}

/// Plain only if every reader takes it for a text.
fn quoted(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(word)
        && !["true", "false", "yes", "no", "on", "off", "null", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    // JSON's texts are YAML's.
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
