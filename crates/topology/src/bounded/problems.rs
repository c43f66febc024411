//! What is wrong with a file that somebody wrote, by line.

use std::fmt;

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineProblem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, with the value, and what to do.
    pub message: String,
}

/// A file that can't be used: everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileProblems {
    /// The file's name, as the user gave it.
    pub file: String,
    /// What is wrong, by line.
    pub problems: Vec<LineProblem>,
}

impl fmt::Display for FileProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{}: {}", self.file, problem.line, problem.message)?;
        }
        Ok(())
    }
}
