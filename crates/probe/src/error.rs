//! Why a probe can't run.

use std::io;

/// Error type for a probe's run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The operating system refused.
    #[error("Cannot {what}")]
    Os {
        /// What was tried: `open /dev/null`.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Options that are each allowed but not together, or not on this machine.
    #[error("{0}")]
    Refused(String),
}

/// Names what was tried when the operating system refuses it.
pub(crate) trait ErrorContext<T> {
    /// `what` completes "Cannot ...".
    fn tried(self, what: impl Into<String>) -> Result<T, ProbeError>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, ProbeError> {
        self.map_err(|source| ProbeError::Os { what: what.into(), source: source.into() })
    }
}
