//! What a command in the guest brought.

use std::time::Duration;

/// How a command in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStatusCode {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// What a command in the guest brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub status: ExecStatusCode,
    /// From the request to the news of its end, as the host saw it.
    pub wall: Duration,
}

impl ExecOutput {
    /// True if it ended by itself with status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status == ExecStatusCode::Exited(0)
    }

    /// stdout as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// stderr as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
