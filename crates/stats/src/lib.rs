//! From samples to verdicts: one number a boot, ratios inside blocks, an
//! interval, and what may be said.
//!
//! The replicate is the *boot*. Everything below a boot is reduced to one
//! number ([`boot_statistic`]); everything above is compared inside a block,
//! where every variant was booted once in random order ([`PairedBlocks`]).
//! Whether another block is needed and what the blocks say is an [`Engine`]'s
//! business; [`FixedBlocks`] is the plain one: a number of blocks fixed in
//! advance and Student's t on the within-block log ratios.
//!
//! All of it is pure and knows no unit: multiplying every value by a constant
//! changes nothing but the centres of [`describe`].
//!
//! What is not here: where values come from (`workload`), which trials make a
//! block (`runner`), tables and figures (`report`).
//!
//! Sources: T. Kalibera, R. Jones, "Rigorous Benchmarking in Reasonable Time",
//! ISMM 2013 (the boot as the replicate); A. Abedi, T. Brecht, "Conducting
//! Repeatable Experiments in Highly Variable Cloud Computing Environments",
//! ICPE 2017 (randomised interleaved trials).

mod boot;
mod describe;
mod engine;
mod judgement;
mod signed_rank;
mod student;

pub use boot::{BootStatistic, Kind, UnusableSamples, boot_statistic};
pub use describe::{Estimate, describe};
pub use engine::{Comparison, Engine, FixedBlocks, InvalidPlan, Next, PairedBlocks, Progress};
pub use judgement::{Better, HodgesLehmann, Judgement, Verdict, Warning};
pub use student::{Interval, TTest, t_test};

#[cfg(test)]
mod tests;
