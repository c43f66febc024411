//! A VM as JSON: every field that isn't a default, nothing lost.

use std::collections::BTreeMap;

use serde_json::Value;
use topology::bounded::{self, KnownFields, YamlKind};

use crate::{EmittedText, Parsed, UnmodelledSetting, VmSettings, VmSpec};

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
pub fn parse(text: &str) -> Result<Parsed, NotJson> {
    let KnownFields { value: settings, unknown } =
        bounded::json(text.as_bytes()).map_err(|error| NotJson(error.to_string()))?;
    let all: Value = serde_json::from_str(text).map_err(|error| NotJson(error.to_string()))?;
    let kept = unknown.into_iter().map(|path| {
        let steps: Vec<&str> =
            path.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect();
        let value = all.pointer(&format!("/{}", steps.join("/")));
        UnmodelledSetting {
            line: line_of(text, &steps).unwrap_or(1),
            text: value.map(Value::to_string).unwrap_or_default(),
            path,
        }
    });
    Ok(Parsed { settings, kept: kept.collect(), lines: BTreeMap::new() }.finish())
}

/// The line of what stands below these keys and numbers in a JSON text that is sound.
fn line_of(text: &str, steps: &[&str]) -> Option<u32> {
    // All JSON is YAML, if it is not indented by tabs.
    let documents = bounded::yaml(text).ok()?;
    let mut value = documents.first()?;
    for step in steps {
        value = match &value.kind {
            YamlKind::List(items) => items.get(step.parse::<usize>().ok()?)?,
            YamlKind::Map(members) => &members.iter().find(|(key, _)| key.text == *step)?.1,
            YamlKind::Scalar(_) => return None,
        };
    }
    u32::try_from(value.line).ok()
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
