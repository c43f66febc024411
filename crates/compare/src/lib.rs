//! Comparison of anybody's numbers.

pub mod benchstat;
mod data;
mod filter;
mod memo;
mod read;
mod units;
mod words;

pub use data::{Data, Dataset, Problem};
pub use filter::{Filter, FilterError};
pub use read::ReadError;
