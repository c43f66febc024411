//! Runs studies: from a study file to a frozen plan, from the plan to trials
//! in real VMs, from the trials' journal to the report's data.
//!
//! Every stage reads what the one before left in the results folder, so each
//! can be run again alone. What is not here: how a VM boots (`guest`), how the
//! host is read and loaded (`host`), what numbers mean (`stats`), how results
//! look (`report`), and everything that is printed (`vmlab`).

pub mod across;
pub mod agenda;
pub mod calibration;
pub mod domains;
pub mod execute;
pub mod follow;
pub mod freeze;
pub mod host_settings;
pub mod hosting;
pub mod instances;
pub mod kubevirt_facts;
pub mod limits;
pub mod local;
pub mod machine;
pub mod node_set;
pub mod pilot;
pub mod plan;
pub mod probe;
pub mod results;
mod shown;
pub mod simulated;
pub mod stability;
pub mod state;
pub mod store;
pub mod study;
pub mod summary;
#[cfg(test)]
mod testing;
mod thin;
pub mod trials;
pub mod verify;

/// Seconds since the Unix epoch.
#[must_use]
pub fn unix_s() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}
