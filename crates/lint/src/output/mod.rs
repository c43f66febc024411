//! Findings and rules as texts.

mod docs;
mod github;
mod json;
mod sarif;
mod text;

pub(crate) use docs::capital;
pub use docs::{explain, list, markdown};
pub use github::github;
pub use json::{JsonReport, json};
pub use sarif::sarif;
pub use text::{summary, text, texts};

use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::site;

/// What is to be said besides the findings.
#[derive(Debug, Default)]
pub struct LintNotes<'a> {
    /// Findings that somebody suppressed.
    pub suppressed: &'a [site::SuppressedFinding],
    /// Rules files that were applied.
    pub rules: &'a [RulesFileUse<'a>],
    /// What could not be linted, each with its file and why.
    pub failed: &'a [String],
}

/// A rules file and how many files it was applied to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RulesFileUse<'a> {
    /// Its name.
    pub file: &'a str,
    /// Number of files.
    pub files: usize,
    /// It.
    #[serde(skip)]
    pub rules: &'a site::SiteRules,
}

/// All that is said of a finding, as sentences on one line.
fn whole_message(finding: &Finding) -> String {
    let live = finding
        .live
        .iter()
        .flat_map(|live| [format!("Asked: {}", live.asked), format!("Is: {}", live.is)]);
    let notes = finding.notes.iter().cloned().chain([finding.help.to_string()]);
    live.chain(notes).fold(finding.message.clone(), |mut message, note| {
        message.push_str(". ");
        message.push_str(note.trim_end_matches('.'));
        message
    })
}

/// Findings by severity.
fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}
