//! A site's rules for people, as built-in ones are told.

use std::fmt::Write as _;

use super::file::{SiteRule, SiteRules};

/// One line a rule.
#[must_use]
pub fn list(sets: &[&SiteRules]) -> String {
    let rules = || sets.iter().flat_map(|set| &set.rules);
    let width = rules().map(|rule| rule.id.len()).max().unwrap_or(0);
    rules().fold(String::new(), |mut text, rule| {
        let (id, severity) = (&rule.id, rule.severity.name());
        let _ = writeln!(text, "{id:width$}  {severity:7}  {} ({})", rule.text, rule.file);
        text
    })
}

/// All about one rule, as Markdown that reads well as plain text.
#[must_use]
pub fn explain(rule: &SiteRule) -> String {
    let mut text = format!(
        "## {}\n\n{}: {}.\n",
        rule.id,
        crate::output::capital(rule.severity.name()),
        rule.text.trim_end_matches('.')
    );
    if !rule.why.is_empty() {
        let _ = write!(text, "\n{}\n", rule.why);
    }
    let _ = write!(text, "\nWhat to do: {}.\n", rule.help.trim_end_matches('.'));
    if let Some(each) = &rule.each {
        let _ = write!(text, "\nFor each item of `{each}`, it fires when\n");
    } else {
        text.push_str("\nIt fires when\n");
    }
    let _ = write!(text, "\n```cel\n{}\n```\n", rule.when.trim());
    let _ = write!(text, "\nSource: {}:{}.\n", rule.file, rule.line);
    for example in &rule.examples {
        let what = if example.bad { "Fires" } else { "Does not fire" };
        let _ = write!(text, "\n{what}:\n\n```\n{}\n```\n", example.text.trim());
    }
    text
}
