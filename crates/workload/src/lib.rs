//! The catalogue of benchmarks: what each one needs, how it is started in a
//! guest, and how its output is read.
//!
//! One file holds one benchmark, as one row ([`CatalogueEntry`]) of one table,
//! [`CATALOGUE`]. Help texts and `docs/workloads.md` are generated from that
//! table, so a benchmark is described where it is defined and nowhere else.
//! To add one: write `src/<name>.rs` with an `ENTRY`, put it into the table,
//! add outputs of the real tool to `testdata`, and run the tests with
//! `UPDATE_EXPECT=1`.
//!
//! Most benchmarks are a command and nothing else (`beside:
//! Beside::NOTHING`). One that needs more says so in [`RoleCommands`]:
//!
//! - `setup`: [`GuestStep`]s in the guest that runs the command, once a boot: files
//!   to write, commands that must succeed, daemons with the condition under
//!   which they are ready. Nothing waits for a time.
//! - `scratch_mib`: an empty disk, mounted at [`SCRATCH`], attached as the
//!   study's `[disk]` and its variants say.
//! - `server`: the second role, with its own `needs` and `setup`. The command
//!   is the client's and finds the server at [`GuestFacts::peer`]. Which role
//!   the VM under test plays is the study's choice (`under_test`); with
//!   `both`, one guest plays both over its loopback.
//! - A metric that exists only with some parameter says so
//!   (`MetricDef::only_with`).
//!
//! `iperf3.rs` is an example with two roles. What runs *beside* a benchmark in
//! its guest (hackbench beside cyclictest) is no affair of its row: a study
//! says `background = { run = "hackbench" }`.
//!
//! This crate is pure: it builds argument vectors and reads text. Starting a
//! benchmark, its time limit and its exit status are the runner's.
//!
//! A parser that does not understand all of an output says where it stopped
//! ([`ParseError`]). It never returns a part of what a run measured.

mod ab;
mod boot;
mod cyclictest;
mod dbench;
mod docs;
mod entry;
mod fio;
mod guest_facts;
mod hackbench;
mod iperf3;
mod kernbench;
mod param;
mod params;
mod parse;
mod perf_bench;
mod perf_messaging;
mod pgbench;
mod pick;
mod probe;
mod redis;
mod roles;
mod sockperf;
mod stress_ng;
mod sysbench;
mod sysbench_cpu;

#[cfg(test)]
mod tests;

pub use docs::{markdown, shell_line};
pub use entry::{
    CatalogueEntry, DefaultValue, ExampleParam, GuestFacts, MetricDef, Param, ParamKind, Scope,
};
pub use kernbench::KERNEL_SOURCE;
pub use param::ParamValue;
pub use params::{ParamError, Params, near};
pub use parse::{CommandOutput, OutputStream, ParseError, ParsedOutput};
pub use roles::{
    Daemon, FULL_IMAGE, GuestStep, RAW_DISK, Readiness, RoleCommands, SCRATCH, ServerRole,
    UnderTest,
};

/// Every benchmark, in the order of the documentation.
pub static CATALOGUE: &[&CatalogueEntry] = &[
    &hackbench::ENTRY,
    &perf_messaging::ENTRY,
    &perf_bench::PIPE,
    &perf_bench::SYSCALL,
    &perf_bench::FUTEX,
    &perf_bench::MEM,
    &perf_bench::NUMA,
    &sysbench_cpu::ENTRY,
    &sysbench::MEMORY,
    &sysbench::THREADS_ENTRY,
    &sysbench::MUTEX,
    &sysbench::FILEIO,
    &cyclictest::ENTRY,
    &stress_ng::ENTRY,
    &kernbench::ENTRY,
    &boot::ENTRY,
    &fio::ENTRY,
    &fio::IOZONE,
    &dbench::DBENCH,
    &dbench::TBENCH,
    &iperf3::ENTRY,
    &sockperf::ENTRY,
    &ab::ENTRY,
    &redis::ENTRY,
    &pgbench::ENTRY,
    &probe::SYSCALLS,
    &probe::SEM,
    &probe::WAKEUP,
    &probe::IPI,
    &probe::LOCK,
    &probe::CLOCK,
    &probe::STREAM,
    &probe::MALLOC,
    &probe::TLB,
    &probe::PAGECACHE,
    &probe::SHUFFLE,
    &probe::NUMA,
    &probe::NET,
    &probe::UDP,
    &probe::UNIXBENCH,
    &probe::NPB,
    &probe::THIN,
];

/// Error type for [`find`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown workload {name:?}{}", params::did_you_mean(near.as_deref(), known))]
pub struct UnknownWorkload {
    /// The name that was asked for.
    pub name: String,
    /// The most similar name, if one is similar.
    pub near: Option<String>,
    /// All names, for a name that resembles none.
    pub known: Vec<&'static str>,
}

/// The catalogue's row called `name`.
///
/// # Errors
/// [`UnknownWorkload`] names the nearest match, or all workloads.
pub fn find(name: &str) -> Result<&'static CatalogueEntry, UnknownWorkload> {
    CATALOGUE.iter().find(|entry| entry.name == name).copied().ok_or_else(|| UnknownWorkload {
        name: name.to_owned(),
        near: params::near(name, CATALOGUE.iter().map(|entry| entry.name)),
        known: CATALOGUE.iter().map(|entry| entry.name).collect(),
    })
}
