//! Findings and rules as texts.

mod docs;
mod json;
mod sarif;
mod text;

pub use docs::{explain, list, markdown};
pub use json::json;
pub use sarif::sarif;
pub use text::{summary, text};

use crate::finding::{Finding, Severity};

/// Findings by severity.
fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}
