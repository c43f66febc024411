//! What differs between two descriptions of a host: `vmlab host --diff`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use topology::Host;

use crate::input;

/// Parts of a description that change by themselves, or that tell of the
/// description and not of the host.
const VOLATILE: &[&str] =
    &["format", "version", "available_bytes", "free_bytes", "free", "warnings", "qemu"];

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Drift {
    /// Where it stands in the host format.
    pub(crate) what: String,
    /// The value before; none where there was none.
    pub(crate) before: Option<String>,
    /// The value after.
    pub(crate) after: Option<String>,
}

/// Reads a host that `vmlab host --json` saved.
pub(crate) fn read(path: &Path) -> anyhow::Result<Host> {
    let text = input::text(path).with_context(|| format!("Cannot read {}", path.display()))?;
    Host::from_json(&text)
        .with_context(|| format!("{} is not what `vmlab host --json` saves", path.display()))
}

/// All that differs between two hosts, in the order of the host format.
pub(crate) fn drift(before: &Host, after: &Host) -> Vec<Drift> {
    let (before, after) = (leaves(before), leaves(after));
    let mut names: Vec<&String> = before.iter().map(|(name, _)| name).collect();
    let known: std::collections::BTreeSet<&String> = names.iter().copied().collect();
    names.extend(after.iter().map(|(name, _)| name).filter(|name| !known.contains(name)));
    let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (before.iter().cloned().collect(), after.iter().cloned().collect());
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| Drift {
            what: name.clone(),
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
        })
        .collect()
}

/// A line for each.
pub(crate) fn text(drift: &[Drift]) -> String {
    if drift.is_empty() {
        return "Nothing differs.\n".to_owned();
    }
    let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let line =
        |one: &Drift| format!("{}: {} -> {}\n", one.what, word(&one.before), word(&one.after));
    drift.iter().map(line).collect()
}

fn leaves(host: &Host) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&host.to_json()).unwrap_or_default();
    let mut all = Vec::new();
    walk("", &value, &mut all);
    all
}

fn walk(path: &str, value: &Value, all: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in
                fields.iter().filter(|(name, _)| !VOLATILE.contains(&name.as_str()))
            {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(&path, value, all);
            }
        }
        Value::Array(items) if items.iter().all(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                walk(&format!("{path}[{}]", key(item, index)), item, all);
            }
        }
        // Words of a command line belong together.
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(show).collect();
            all.push((path.to_owned(), words.join(" ")));
        }
        leaf => all.push((path.to_owned(), show(leaf))),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What an item of a list is called, so that a new one among them does not
/// shift the others.
fn key(item: &Value, index: usize) -> String {
    let field = |name: &str| item.get(name).map(show);
    let cache = || Some(format!("L{} {} {}", field("level")?, field("kind")?, field("pcpus")?));
    field("id")
        .or_else(|| field("name"))
        .or_else(|| field("page_bytes"))
        .or_else(cache)
        .or_else(|| field("pcpus"))
        .unwrap_or_else(|| index.to_string())
}

#[cfg(test)]
mod tests {
    use topology::{HugePagePool, Pcpu};

    use super::*;

    #[test]
    fn what_differs_is_named_and_what_flutters_is_not() {
        let pcpu = |id| Pcpu { id, online: true, ..Pcpu::default() };
        let pool = |total, free| HugePagePool { page_bytes: 2 << 20, total, free };
        let before = Host {
            cmdline: vec!["quiet".into()],
            pcpus: vec![pcpu(0), pcpu(1)],
            huge_pages: vec![pool(8, 8)],
            available_bytes: Some(1),
            tunables: BTreeMap::from([("thp".to_owned(), "madvise".to_owned())]),
            ..Host::default()
        };
        let mut after = before.clone();
        after.available_bytes = Some(2);
        after.huge_pages = vec![pool(8, 3)];
        after.warnings.push("new".into());
        assert_eq!(text(&drift(&before, &after)), "Nothing differs.\n");
        after.cmdline.push("nosmt".into());
        after.pcpus.remove(0);
        after.tunables.insert("thp".to_owned(), "never".to_owned());
        after.tunables.insert("ksm".to_owned(), "1".to_owned());
        let lines = text(&drift(&before, &after));
        assert_eq!(
            lines,
            "cmdline: quiet -> quiet nosmt\n\
             pcpus[0].id: 0 -> absent\n\
             pcpus[0].online: true -> absent\n\
             tunables.thp: madvise -> never\n\
             tunables.ksm: absent -> 1\n"
        );
        assert_eq!(drift(&after, &after), []);
    }
}
