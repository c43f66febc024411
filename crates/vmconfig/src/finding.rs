//! What the reader of a VM should know before it starts.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SpecSeverity {
    /// It works, but hardly as meant.
    Warning,
    /// It can't work.
    Error,
}

/// Something about a VM that the reader should know before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpecFinding {
    /// How bad it is.
    pub severity: SpecSeverity,
    /// The field, as studies write it.
    pub field: String,
    /// What is wrong with which value, and what to do.
    pub message: String,
}

impl fmt::Display for SpecFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl SpecFinding {
    pub(crate) fn error(field: &str, message: String) -> Self {
        Self { severity: SpecSeverity::Error, field: field.to_owned(), message }
    }

    pub(crate) fn warning(field: &str, message: String) -> Self {
        Self { severity: SpecSeverity::Warning, field: field.to_owned(), message }
    }
}
