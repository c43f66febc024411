//! For programs: the findings with all that is known of them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::output::{LintNotes, RulesFileUse, count};
use crate::site::SuppressedFinding;

/// What [`json`] gives.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonReport<'a> {
    files: usize,
    errors: usize,
    warnings: usize,
    hints: usize,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    suppressed: &'a [SuppressedFinding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: &'a [RulesFileUse<'a>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    failed: &'a [String],
}

/// One JSON object with counts and findings, and a final newline.
#[must_use]
pub fn json(findings: &[Finding], files: usize, beside: &LintNotes<'_>) -> String {
    let report = JsonReport {
        files,
        errors: count(findings, Severity::Error),
        warnings: count(findings, Severity::Warning),
        hints: count(findings, Severity::Hint),
        findings,
        suppressed: beside.suppressed,
        rules: beside.rules,
        failed: beside.failed,
    };
    let mut text =
        serde_json::to_string_pretty(&report).expect("findings are texts, numbers and lists");
    text.push('\n');
    text
}
