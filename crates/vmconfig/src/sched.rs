//! How the host schedules QEMU's threads.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InvalidVm;

/// Scheduling policies of QEMU's threads. A thread that isn't named has the
/// usual one. libvirt `<cputune><vcpusched>`, `<emulatorsched>`,
/// `<iothreadsched>`; KubeVirt `realtime` (vCPUs, FIFO of priority 1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Schedulers {
    /// By vCPU number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vcpus: BTreeMap<u32, Scheduler>,
    /// The emulator thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator: Option<Scheduler>,
    /// By the iothread's number, from 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub iothreads: BTreeMap<u32, Scheduler>,
}

/// What a patch says about scheduling: the same for all of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerPatch {
    /// All vCPUs: `"fifo:1"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<Scheduler>,
    /// The emulator thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator: Option<Scheduler>,
    /// All iothreads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothreads: Option<Scheduler>,
}

/// A scheduling policy: `fifo:1`, `rr:5` (real-time, with a priority of 1 to
/// 99), `batch`, `idle`.
///
/// Source: sched(7).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub enum Scheduler {
    /// Runs until it waits or something of higher priority runs.
    Fifo(u32),
    /// The same, in turns with others of its priority.
    Rr(u32),
    /// Takes itself for a batch job.
    Batch,
    /// Runs when nothing else does.
    Idle,
}

/// Why a text is no scheduling policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Not a scheduler: {0:?}; write \"fifo:1\" (or rr, priority 1 to 99), \"batch\" or \"idle\""
)]
pub struct ParseSchedulerError(String);

impl Scheduler {
    /// The policy's name and its priority, if it has one.
    #[must_use]
    pub fn parts(self) -> (&'static str, Option<u32>) {
        match self {
            Self::Fifo(priority) => ("fifo", Some(priority)),
            Self::Rr(priority) => ("rr", Some(priority)),
            Self::Batch => ("batch", None),
            Self::Idle => ("idle", None),
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, Some(priority)) => write!(f, "{name}:{priority}"),
            (name, None) => f.write_str(name),
        }
    }
}

impl FromStr for Scheduler {
    type Err = ParseSchedulerError;

    fn from_str(text: &str) -> Result<Self, ParseSchedulerError> {
        let wrong = || ParseSchedulerError(text.to_owned());
        let (name, priority) = match text.split_once(':') {
            Some((name, priority)) => (name, Some(priority.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        match (name, priority) {
            ("fifo", Some(priority @ 1..=99)) => Ok(Self::Fifo(priority)),
            ("rr", Some(priority @ 1..=99)) => Ok(Self::Rr(priority)),
            ("batch", None) => Ok(Self::Batch),
            ("idle", None) => Ok(Self::Idle),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Scheduler {
    type Error = ParseSchedulerError;

    fn try_from(text: String) -> Result<Self, ParseSchedulerError> {
        text.parse()
    }
}

impl From<Scheduler> for String {
    fn from(scheduler: Scheduler) -> Self {
        scheduler.to_string()
    }
}

impl SchedulerPatch {
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(self, over, vcpus, emulator, iothreads)
    }

    /// The same for every thread that there is.
    pub(crate) fn resolve(self, vcpus: u32, iothreads: u32) -> Schedulers {
        let all = |scheduler: Option<Scheduler>, range: std::ops::Range<u32>| {
            scheduler.iter().flat_map(|one| range.clone().map(|thread| (thread, *one))).collect()
        };
        Schedulers {
            vcpus: all(self.vcpus, 0..vcpus),
            emulator: self.emulator,
            iothreads: all(self.iothreads, 1..iothreads.saturating_add(1)),
        }
    }
}

impl Schedulers {
    /// True if every thread has the usual policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self, max_vcpus: u32, iothreads: u32) -> Result<(), InvalidVm> {
        let refuse = |message| Err(InvalidVm::Contradiction { field: "scheduler", message });
        if let Some(vcpu) = self.vcpus.keys().find(|vcpu| **vcpu >= max_vcpus) {
            return refuse(format!("names vCPU {vcpu}, but the VM has {max_vcpus}"));
        }
        if let Some(number) = self.iothreads.keys().find(|one| **one == 0 || **one > iothreads) {
            return refuse(format!("names iothread {number}, but the VM has {iothreads}"));
        }
        let all = self.vcpus.values().chain(&self.emulator).chain(self.iothreads.values());
        for scheduler in all {
            if let (_, Some(priority)) = scheduler.parts()
                && !(1..=99).contains(&priority)
            {
                return refuse(format!("has priority {priority}: 1 to 99"));
            }
        }
        Ok(())
    }
}
