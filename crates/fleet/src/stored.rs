//! What a store holds, for who looks.

use record::{CounterSet, Environment};
use schemars::JsonSchema;
use serde::Serialize;

/// What `--json` prints is of this format.
pub const FORMAT: &str = "vmlab-watch";

/// Version of a store's tables: SQLite's `user_version`.
pub const VERSION: u32 = 1;

/// A VM in a store.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StoredVm {
    /// Its name, or its pid's.
    pub name: String,
    /// QEMU's process id; 0 for the host itself.
    pub pid: u32,
    /// vCPUs; the host's pCPUs.
    pub vcpus: u32,
    /// In what it runs.
    pub environment: Option<Environment>,
    /// First and last reading of it, seconds since 1970.
    pub read_unix_s: [i64; 2],
    /// Its counters in the last one.
    pub counters: CounterSet,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StoredReadings {
    /// `vmlab-watch`.
    pub format: String,
    /// Version of the store's tables.
    pub version: u32,
    /// The host's name.
    pub host: String,
    /// Bytes that it uses.
    pub bytes: u64,
    /// Readings.
    pub readings: u64,
    /// First and last, seconds since 1970; absent without any.
    pub read_unix_s: Option<[i64; 2]>,
    /// Boots of the host that were seen.
    pub boots: u64,
    /// VMs that were seen, the host itself not counted.
    pub vms_seen: u64,
    /// VMs of the last reading, the host first.
    pub vms: Vec<StoredVm>,
}

/// A moment for people, in UTC: `2026-03-02 06:00`.
#[must_use]
pub fn utc(unix_s: i64) -> String {
    let time = jiff::Timestamp::from_second(unix_s);
    time.map_or_else(
        |_| format!("{unix_s} s after 1970"),
        |time| time.strftime("%Y-%m-%d %H:%M").to_string(),
    )
}
