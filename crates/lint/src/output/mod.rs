//! Findings and rules as texts.

mod docs;
mod json;
mod sarif;
mod text;

pub(crate) use docs::capital;
pub use docs::{explain, list, markdown};
pub use json::json;
pub use sarif::sarif;
pub use text::{summary, text};

use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::site;

/// What is to be said besides the findings.
#[derive(Debug, Default)]
pub struct Beside<'a> {
    /// Findings that somebody suppressed.
    pub suppressed: &'a [site::Suppressed],
    /// Rules files that were applied.
    pub rules: &'a [RulesUsed<'a>],
}

/// A rules file and how many files it was applied to.
#[derive(Debug, Serialize)]
pub struct RulesUsed<'a> {
    /// Its name.
    pub file: &'a str,
    /// So many files.
    pub files: usize,
    /// It.
    #[serde(skip)]
    pub rules: &'a site::Rules,
}

/// Findings by severity.
fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}
