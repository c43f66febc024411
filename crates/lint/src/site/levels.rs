//! Levels of rules, by rule, file and VM.

use schemars::JsonSchema;
use serde::Serialize;

use super::file::{LevelChange, RuleLevel, SiteRules};
use super::glob;
use crate::finding::{Finding, Severity};

/// Who suppressed a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Suppressor {
    /// A comment in the configuration itself.
    Comment,
    /// A `[[level]]` of a rules file.
    Level,
}

/// A finding that is not to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SuppressedFinding {
    /// It.
    #[serde(flatten)]
    pub finding: Finding,
    /// Who.
    pub by: Suppressor,
    /// Why.
    pub reason: String,
}

impl SuppressedFinding {
    /// One that a comment in its own file silences.
    pub(crate) fn by_comment(finding: Finding) -> Self {
        let reason = "a comment in the file allows it".to_owned();
        Self { finding, by: Suppressor::Comment, reason }
    }
}

impl LevelChange {
    fn covers(&self, finding: &Finding, path: &str) -> bool {
        let any = |patterns: &[String], fits: &dyn Fn(&str) -> bool| {
            patterns.is_empty() || patterns.iter().any(|pattern| fits(pattern))
        };
        (self.rule == "*" || finding.rule == self.rule)
            && any(&self.files, &|pattern| glob::path(pattern, path))
            && any(&self.vms, &|pattern| glob::name(pattern, &finding.vm))
    }
}

/// A finding with the level that the last fitting `[[level]]` gives it. Beside each
/// rules file stands the path of the finding's file below the folder of that.
///
/// # Errors
/// The finding that is allowed, and why.
pub fn settle(
    mut finding: Finding,
    sets: &[(&SiteRules, &str)],
) -> Result<Finding, Box<SuppressedFinding>> {
    let mut changes = sets.iter().flat_map(|(set, path)| {
        set.levels.iter().map(move |change| (set.file.as_str(), change, *path))
    });
    let last = changes.rfind(|(_, change, path)| change.covers(&finding, path));
    let Some((file, change, _)) = last else { return Ok(finding) };
    let (severity, word) = match change.level {
        RuleLevel::Allow => {
            let reason = change.reason.clone();
            return Err(Box::new(SuppressedFinding { finding, by: Suppressor::Level, reason }));
        }
        RuleLevel::Warn => (Severity::Warning, "warn"),
        RuleLevel::Deny => (Severity::Error, "deny"),
    };
    if finding.severity != severity {
        let reason = match change.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        finding.notes.push(format!("level {word} by {file}{reason}"));
        finding.severity = severity;
    }
    Ok(finding)
}
