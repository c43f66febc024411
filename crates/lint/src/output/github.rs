//! For GitHub Actions: workflow commands, of which it makes annotations.
//!
//! Source: GitHub Docs, "Workflow commands for GitHub Actions"; escaping as in
//! actions/toolkit, `packages/core/src/command.ts`.

use std::fmt::Write as _;

use crate::finding::{Finding, Severity};
use crate::output::{LintNotes, whole_message};

/// One line for each finding, and for each file that was not linted.
#[must_use]
pub fn github(findings: &[Finding], beside: &LintNotes<'_>) -> String {
    let mut text = String::new();
    for finding in findings {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Hint => "notice",
        };
        let place = &finding.place;
        let _ = writeln!(
            text,
            "::{command} file={},line={},col={},endColumn={},title={}::{}",
            property(&finding.file),
            place.line,
            place.column,
            place.column + place.length,
            property(&finding.rule),
            data(&whole_message(finding)),
        );
    }
    for message in beside.failed {
        let _ = writeln!(text, "::error title=vmlab lint::{}", data(message));
    }
    text
}

/// What stands behind `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// What stands behind `=`.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
