//! What is told of tasks that can never go on.

use std::fmt;

/// A guest that can't go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// When that was seen, ns.
    pub at_ns: u64,
    /// The VM.
    pub vm: String,
    /// Its tasks that can never run again.
    pub tasks: Vec<WaitingTask>,
}

/// One task of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTask {
    /// Its name.
    pub task: String,
    /// What it waits for.
    pub waits: String,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The guest {:?} can't go on after {} ns:", self.vm, self.at_ns)?;
        for (index, WaitingTask { task, waits }) in self.tasks.iter().take(8).enumerate() {
            let separator = if index == 0 { " " } else { "; " };
            write!(f, "{separator}{task} {waits}")?;
        }
        if self.tasks.len() > 8 {
            write!(f, "; and {} more", self.tasks.len() - 8)?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}
