//! Who ran where, whoever saw it: the simulator or a recording of a real machine.

use crate::engine::{SimOutcome, TraceSegment};
use crate::model::SimModel;

/// A stretch of time on a machine: which thread was on which pCPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// One line for people.
    pub title: String,
    /// Whether it was simulated or recorded.
    pub origin: Origin,
    /// Its beginning, ns.
    pub from_ns: u64,
    /// Its end, ns.
    pub to_ns: u64,
    /// The machine's number of each pCPU.
    pub pcpus: Vec<u32>,
    /// The VMs.
    pub vms: Vec<MapVm>,
    /// Names of other threads.
    pub tasks: Vec<String>,
    /// What was seen.
    pub segments: Vec<TraceSegment>,
}

/// Where a [`Map`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The simulator.
    Simulated,
    /// A recording of a real machine.
    Recorded,
}

impl Origin {
    /// One word, a sentence of its own.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Simulated => "Simulated.",
            Self::Recorded => "Recorded.",
        }
    }
}

/// A VM of a [`Map`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapVm {
    /// Its name.
    pub name: String,
    /// How many vCPUs it has.
    pub vcpus: u32,
}

impl Map {
    /// The last part of a run, from [`SimModel::map_from_ns`] on, as far as it was kept.
    #[must_use]
    pub fn of_run(model: &SimModel, outcome: SimOutcome, title: &str) -> Self {
        let end_ns = model.warmup_ns + model.duration_ns;
        let to_ns = outcome.map_until_ns.unwrap_or(end_ns).min(end_ns);
        Self {
            title: title.to_owned(),
            origin: Origin::Simulated,
            from_ns: model.map_from_ns.unwrap_or(0).min(to_ns.saturating_sub(1)),
            to_ns,
            pcpus: (0..model.machine.len() as u32).map(|cpu| model.machine.number(cpu)).collect(),
            vms: model
                .vms
                .iter()
                .map(|vm| MapVm { name: vm.name.clone(), vcpus: vm.machine.len() as u32 })
                .collect(),
            tasks: model.host_tasks.iter().map(|task| task.name.clone()).collect(),
            segments: outcome.map,
        }
    }
}
