//! Hosts that nobody here has: a deterministic discrete-event simulator.
//!
//! [`SimModel`] says what is simulated: the host's pCPUs and its scheduler by
//! kernel version, KVM, the VMs with their guests' schedulers, and what their
//! tasks do, step by step. [`run`] plays it from one seed and gives an
//! [`SimOutcome`]: what was done, where the time went, what happened how often.
//! There is no clock, no thread and no I/O in it; the same model brings the same
//! outcome to the last bit.
//!
//! [`costs`] holds what things cost, as ranges with their sources.
//! `docs/sim-model.md` says what the model leaves out.

pub mod answer;
pub mod costs;
mod engine;
mod json;
mod machine;
pub mod map;
pub mod model;
pub mod page;
pub mod picture;
mod queue;
mod random;
pub mod recording;
pub mod scenario;
pub mod sched;
pub mod scoreboard;
pub mod tracks;

pub use engine::{
    Breakdown, Deadlock, EventCounts, Latency, MOST_SEGMENTS, MeterOutcome, PcpuUser, SimOutcome,
    TraceSegment, VmOutcome, WaitingTask, run,
};
pub use machine::{CpuPosition, PcpuNumbering, SimMachine, UniformMachine};
pub use model::SimModel;
pub use random::{Duration, Random};
