//! What a fleet of hosts counts of its VMs over weeks, and what a change does to it.
//!
//! [`reading`] is what one look at this host counts, `store` keeps readings in a file that
//! stays small, [`hours`] makes of them what each hour had. [`plan`] is what a roll-out asks,
//! and [`rollout`] answers it from the stores of its hosts.
//!
//! What is not here: the counters and how they are read (`record`, `host`), the statistics
//! (`stats`), the commands (`vmlab`).

pub mod hours;
pub mod plan;
pub mod reading;
pub mod rollout;
#[cfg(feature = "sqlite")]
pub mod store;
pub mod stored;
