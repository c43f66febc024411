//! What of a YAML tree was understood, and YAML to be written.

use std::cell::Cell;

use topology::bounded::{YamlKind, YamlValue};

/// One value, and whether it was understood.
#[derive(Debug)]
pub(super) struct ManifestNode<'a> {
    value: &'a YamlValue,
    used: Cell<bool>,
    /// Those of a list's or a map's values, in their order.
    inner: Vec<ManifestNode<'a>>,
}

impl<'a> ManifestNode<'a> {
    pub(super) fn new(value: &'a YamlValue) -> Self {
        let inner = match &value.kind {
            YamlKind::Scalar(_) => Vec::new(),
            YamlKind::List(items) => items.iter().map(ManifestNode::new).collect(),
            YamlKind::Map(entries) => {
                entries.iter().map(|(_, value)| ManifestNode::new(value)).collect()
            }
        };
        Self { value, used: Cell::new(false), inner }
    }

    /// The line where it begins, from 1.
    pub(super) fn line(&self) -> u32 {
        u32::try_from(self.value.line).unwrap_or(u32::MAX)
    }

    /// The text of a scalar; looking does not mean understanding.
    pub(super) fn text(&self) -> Option<&'a str> {
        self.value.text()
    }

    /// A value of a map, without understanding it; the last of that name.
    pub(super) fn peek(&self, key: &str) -> Option<&ManifestNode<'a>> {
        let place = self.value.entries().iter().rposition(|(name, _)| name.text == key)?;
        self.inner.get(place)
    }

    /// A value of a map; it is understood if it is a container, of which what
    /// is inside is asked for one by one.
    pub(super) fn get(&self, key: &str) -> Option<&ManifestNode<'a>> {
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
        self.inner.iter().for_each(ManifestNode::use_all);
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
    pub(super) fn items(&self, key: &str) -> &[ManifestNode<'a>] {
        let Some(node) = self.get(key).filter(|node| matches!(node.value.kind, YamlKind::List(_)))
        else {
            return &[];
        };
        node.inner.iter().for_each(|node| node.used.set(true));
        &node.inner
    }

    /// The keys of a map.
    pub(super) fn keys(&self) -> Vec<&'a str> {
        self.value.entries().iter().map(|(key, _)| key.text.as_str()).collect()
    }

    /// The value is not understood after all.
    pub(super) fn reject(&self) {
        self.used.set(false);
    }

    /// All that was not understood, as line, path and text.
    pub(super) fn rest(&self, path: &str, rest: &mut Vec<(u32, String, String)>) {
        let entries = self.value.entries();
        for (number, node) in self.inner.iter().enumerate() {
            let key =
                entries.get(number).map_or_else(|| number.to_string(), |(key, _)| key.text.clone());
            let path = if path.is_empty() { key } else { format!("{path}.{key}") };
            if node.used.get() {
                node.rest(&path, rest);
            } else {
                rest.push((node.line(), path, flow(node.value)));
            }
        }
    }
}

/// As YAML on one line.
fn flow(value: &YamlValue) -> String {
    match &value.kind {
        YamlKind::Scalar(text) => text.clone(),
        YamlKind::List(items) => {
            let all: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", all.join(", "))
        }
        YamlKind::Map(entries) => {
            let all = entries.iter().map(|(key, value)| format!("{}: {}", key.text, flow(value)));
            format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
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
