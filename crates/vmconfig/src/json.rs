//! A VM as JSON: every field that isn't a default, nothing lost.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use topology::bounded::{self, KnownFields, YamlKind, YamlValue};

use crate::{EmittedText, ParsedVm, UnmodelledSetting, VmSettings, VmSpec};

/// Why a text is no VM in JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not a VM in JSON: {0}")]
pub struct NotJson(String);

/// The VM, which loses nothing.
#[must_use]
pub fn emit(spec: &VmSpec) -> EmittedText {
    let settings: VmSettings = spec.clone().into();
    // Texts, numbers and lists of them: there is nothing that JSON can't have,
    // but for a path that isn't UTF-8.
    let text = serde_json::to_string_pretty(&settings)
        .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    EmittedText { text: text + "\n", losses: Vec::new() }
}

/// The VM of what [`emit`] gives.
///
/// # Errors
/// [`NotJson`] with the line at fault.
pub fn parse(text: &str) -> Result<ParsedVm, NotJson> {
    let KnownFields { value: settings, unknown } =
        bounded::json(text.as_bytes()).map_err(|error| NotJson(error.to_string()))?;
    let kept = if unknown.is_empty() { Vec::new() } else { kept(text, &unknown)? };
    Ok(ParsedVm { settings, kept, lines: BTreeMap::new(), files: BTreeMap::new() }.finish())
}

/// What stands at these paths of a JSON text that is sound, with its lines.
fn kept(text: &str, paths: &[String]) -> Result<Vec<UnmodelledSetting>, NotJson> {
    let all: Value = serde_json::from_str(text).map_err(|error| NotJson(error.to_string()))?;
    let mut texts: HashMap<&str, Option<String>> =
        paths.iter().map(|path| (path.as_str(), None)).collect();
    add_texts("", &all, &mut texts);
    // All JSON is YAML, if it is not indented by tabs.
    let mut lines = HashMap::new();
    if let Some(document) = bounded::yaml(text).ok().as_ref().and_then(|all| all.first()) {
        add_lines("", document, &texts, &mut lines);
    }
    let kept = paths.iter().map(|path| UnmodelledSetting {
        line: lines.get(path).copied().unwrap_or(1),
        file: None,
        text: texts.get(path.as_str()).cloned().flatten().unwrap_or_default(),
        path: path.clone(),
    });
    Ok(kept.collect())
}

/// The path of a member, as [`bounded::json`] has it.
fn member(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn add_texts(path: &str, value: &Value, texts: &mut HashMap<&str, Option<String>>) {
    if let Some(text) = texts.get_mut(path) {
        *text = Some(value.to_string());
        return;
    }
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| add_texts(&member(path, name), value, texts));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, value)| add_texts(&format!("{path}[{at}]"), value, texts));
        }
        _ => {}
    }
}

fn add_lines(
    path: &str,
    value: &YamlValue,
    wanted: &HashMap<&str, Option<String>>,
    lines: &mut HashMap<String, u32>,
) {
    if wanted.contains_key(path) {
        lines.insert(path.to_owned(), u32::try_from(value.line).unwrap_or(u32::MAX));
        return;
    }
    match &value.kind {
        YamlKind::Map(members) => members
            .iter()
            .for_each(|(key, value)| add_lines(&member(path, &key.text), value, wanted, lines)),
        YamlKind::List(items) => items
            .iter()
            .enumerate()
            .for_each(|(at, value)| add_lines(&format!("{path}[{at}]"), value, wanted, lines)),
        YamlKind::Scalar(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::tests::{any_spec, check_round_trip};

    #[test]
    fn what_a_later_version_says_is_kept() {
        let text =
            super::emit(&crate::tests::resolve("vcpus = 2\npins = ['0', '1']").unwrap()).text;
        let later = text.replacen('{', "{\n  \"colour\": {\"hue\": 1},", 1);
        let later = later.replacen("\"pins\": {", "\"pins\": {\n    \"ink\": \"blue\",", 1);
        let parsed = super::parse(&later).unwrap();
        let kept: Vec<_> =
            parsed.kept.iter().map(|one| (one.path.as_str(), one.text.as_str())).collect();
        assert_eq!(kept, [("colour", "{\"hue\":1}"), ("pins.ink", "\"blue\"")]);
        let lines: Vec<_> = later.lines().collect();
        for one in &parsed.kept {
            let name = one.path.rsplit('.').next().unwrap();
            assert!(lines[one.line as usize - 1].contains(name), "{one:?}");
        }
        assert_eq!(parsed.spec().unwrap(), super::parse(&text).unwrap().spec().unwrap());
    }

    proptest! {
        #[test]
        fn nothing_is_lost(spec in any_spec()) {
            let text = super::emit(&spec).text;
            let parsed = super::parse(&text).unwrap();
            check_round_trip(&spec, &text, &[], &parsed);
            prop_assert_eq!(parsed.spec().unwrap(), spec);
        }
    }
}
