//! A VM as JSON: every field that isn't a default, nothing lost.

use std::collections::BTreeMap;

use crate::{EmittedText, Parsed, VmSettings, VmSpec};

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
    let settings = serde_json::from_str(text).map_err(|error| NotJson(error.to_string()))?;
    Ok(Parsed { settings, kept: Vec::new(), lines: BTreeMap::new() }.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::tests::{any_spec, check_round_trip};

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
