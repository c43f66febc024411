//! The table that benchstat prints, with its numbers: medians with the
//! interval between two order statistics, Mann and Whitney's p, geometric
//! means, footnotes.
//!
//! Whoever has scripts around benchstat's output can go on using them. Its
//! peculiarities are kept, because they are in the numbers: a value of zero
//! keeps the unit in which it was written, and tables are parted by every
//! `key: value` line.
//!
//! What a verdict of vmlab is better for: see [`crate::analyse`].
//!
//! Source: the documentation of `golang.org/x/perf/cmd/benchstat`.

mod csv;
mod layout;
mod number;
mod table;
mod text;

pub use table::{BenchstatOptions, BenchstatTables, tables};

/// What benchstat writes: standard output, and standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchstatOutput {
    /// The tables.
    pub text: String,
    /// Warnings, one a line.
    pub warnings: Vec<String>,
}

impl BenchstatTables {
    /// The tables as text for a fixed-width font.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::text(self)
    }

    /// The tables as comma-separated values; the warnings, which name their
    /// cells as a spreadsheet does, beside them.
    #[must_use]
    pub fn to_csv(&self) -> BenchstatOutput {
        csv::csv(self)
    }
}
