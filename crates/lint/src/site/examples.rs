//! Rules held to their own examples.

use super::file::{SiteRule, SiteRules};
use crate::context::Context;
use crate::{CheckedText, check_text_by};

/// The result of one example.
#[derive(Debug)]
pub struct ExampleResult {
    /// The rule's id.
    pub rule: String,
    /// The rules file.
    pub file: String,
    /// The line where the example begins, from 1.
    pub line: usize,
    /// What is wrong with it; `None`: it does what it says.
    pub wrong: Option<String>,
}

/// Asks every rule of its own examples.
#[must_use]
pub fn try_examples(rules: &SiteRules, context: &Context) -> Vec<ExampleResult> {
    let all = rules
        .rules
        .iter()
        .flat_map(|rule| rule.examples.iter().map(move |example| (rule, example)));
    all.map(|(rule, example)| {
        let name = format!("{}:{}", rules.file, example.line);
        let wrong = match check_text_by(&name, &example.text, context, &[rules]) {
            Ok(checked) => judge(rule, example.bad, &checked, context),
            Err(error) => Some(error.to_string()),
        };
        ExampleResult { rule: rule.id.clone(), file: rules.file.clone(), line: example.line, wrong }
    })
    .collect()
}

fn judge(rule: &SiteRule, bad: bool, checked: &CheckedText, context: &Context) -> Option<String> {
    if rule.condition.names_host && context.machine.is_none() {
        return Some("names the host: give --host".to_owned());
    }
    let found = checked.findings.iter().filter(|finding| finding.rule == rule.id);
    let found: Vec<_> = found.collect();
    if let Some(undecided) = found.iter().find(|finding| finding.message != rule.text) {
        return Some(undecided.message.clone());
    }
    match (bad, found.first()) {
        (true, None) => Some("is bad, and the rule does not fire on it".to_owned()),
        (false, Some(finding)) => Some(format!(
            "is good, and the rule fires on its line {}: {}",
            finding.place.line,
            finding.place.text.trim()
        )),
        _ => None,
    }
}
