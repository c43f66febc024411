//! What was measured: metrics, samples, outcomes, counters, and the journal's
//! line format.
//!
//! This crate holds the *vocabulary of results* and is pure: it reads and
//! writes text, never files. A measured, a simulated and an imported value are
//! the same type, [`SampleRow`]; only [`Environment`] tells them apart, and it
//! travels with every value so that emulated time can never read as speed.
//!
//! What is not here: how a benchmark's output becomes samples (`workload`),
//! what samples mean (`stats`), how they look (`report`), where the journal
//! lies on disk (`runner`).

mod counters;
mod cpu_pm;
mod environment;
mod ground;
mod histogram;
mod imported;
pub mod journal;
mod metric;
mod outcome;
mod profile;
mod row;
mod watch;

pub use counters::{
    ARM64_IRQ, COUNTERS, Counter, CounterSet, EXITS, ExitCodes, LOCK_WAIT, LOCK_WAITS, PEER,
    counter, is_level,
};
pub use cpu_pm::{CpuPmDeviation, CpuPmFinding};
pub use environment::Environment;
pub use ground::Ground;
pub use histogram::Histogram;
pub use imported::{ImportedValue, Labels, LogMetric, LogValue, Name};
pub use metric::{BetterDirection, Metric, MetricKind, Unit, show_value};
pub use outcome::{Failure, FailureCause, FailureKind, Outcome};
pub use profile::{FoldedStacks, ProfileSide, SideProfile, TrialProfile};
pub use row::{RecordSource, Sample, SampleRow};
pub use watch::{HostSign, HostWatch, UnsteadyCause};

/// Version of the record format: the rows of `samples.csv` and
/// `samples.json`, and the journal's events.
pub const RECORD_FORMAT_VERSION: u32 = 1;
