//! Comparison of anybody's numbers: readers of the formats that people have,
//! grouping, the analysis that fits what is known, and how the result looks.
//!
//! Pure: bytes in, data and text out. [`Data`] reads, [`analyse::analyse`]
//! compares, [`output`] shows; [`benchstat`] is the table that Go's tool of
//! that name prints, with its numbers.
//!
//! What is not here: the statistics themselves (`stats`), logs of single
//! benchmarks (`workload`), files (`vmlab`).

pub mod analyse;
pub mod benchstat;
mod data;
mod decimal;
mod filter;
mod memo;
pub mod output;
mod read;
mod units;
mod words;

pub use data::{Data, Dataset, ReadProblem};
pub use filter::{Filter, FilterError};
pub use read::{ColumnNames, TableColumn, TableError};
