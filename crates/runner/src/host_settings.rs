//! The host's part of a study: settings that hold for all of it, for a load's
//! blocks, or for a variant's trials.
//!
//! A setting that any variant names is made before each trial and put back
//! after it, so that all trials are alike in that; one that only loads name is
//! made for the block; the others hold for the whole study. Where several name
//! it, the variant counts before the load, and the load before the study.

use std::collections::{BTreeMap, BTreeSet};

use host::audit::thread::Policy;
use host::scheduler::{self, Scheduling};
use host::settings::{self, Change, ChangeError, Tree, Wish, setting};
use topology::PcpuSet;
use vmconfig::{Scheduler, VmSpec};

use crate::plan::{Plan, PlanVariant};
use crate::study::{Load, Problem, Study};

/// Settings by id.
pub type HostSettings = BTreeMap<String, String>;

/// The settings that make a partition, on whose pCPUs nothing runs that was not
/// taken in.
const PARTITIONS: [&str; 2] = ["partition_pcpus", "isolated_pcpus"];

/// What `spec` wishes of the host, as settings.
pub(crate) fn wishes_of(spec: &VmSpec) -> HostSettings {
    let plain = |value: String| match value.as_str() {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        _ => value,
    };
    spec.host.set().into_iter().map(|(id, value)| (id.to_owned(), plain(value))).collect()
}

impl Plan {
    /// The settings for the whole study.
    #[must_use]
    pub fn study_settings(&self) -> HostSettings {
        let (by_load, by_variant) = (self.ids_of_loads(), self.ids_of_variants());
        let all = self.host_settings.iter();
        all.filter(|(id, _)| !by_load.contains(id) && !by_variant.contains(id))
            .map(|(id, value)| (id.clone(), value.clone()))
            .collect()
    }

    /// The settings for a block under `load`, beside those of the study.
    #[must_use]
    pub fn block_settings(&self, load: &Load) -> HostSettings {
        let by_variant = self.ids_of_variants();
        let ids = self.ids_of_loads().into_iter().filter(|id| !by_variant.contains(id));
        self.choose(ids, &[&load.host, &self.host_settings])
    }

    /// The settings for a trial of `variant` under `load`, beside those of the
    /// block.
    #[must_use]
    pub fn trial_settings(&self, load: &Load, variant: &PlanVariant) -> HostSettings {
        let ids = self.ids_of_variants().into_iter();
        self.choose(ids, &[&variant.host_settings, &load.host, &self.host_settings])
    }

    fn ids_of_loads(&self) -> BTreeSet<&String> {
        self.loads.iter().flat_map(|load| load.host.keys()).collect()
    }

    fn ids_of_variants(&self) -> BTreeSet<&String> {
        self.variants.iter().flat_map(|variant| variant.host_settings.keys()).collect()
    }

    /// The value of each id by the first who names it; ids that nobody names
    /// stay as the host has them.
    fn choose<'a>(
        &self,
        ids: impl Iterator<Item = &'a String>,
        by: &[&HostSettings],
    ) -> HostSettings {
        ids.filter_map(|id| {
            let value = by.iter().find_map(|settings| settings.get(id))?;
            Some((id.clone(), value.clone()))
        })
        .collect()
    }

    /// What makes `settings` so.
    ///
    /// # Errors
    /// When a plan that was edited names what there is not.
    pub fn wish(&self, settings: &HostSettings) -> Result<Wish, ChangeError> {
        let changes = settings.iter().map(|(id, value)| Change::new(id, value));
        Ok(Wish { changes: changes.collect::<Result<_, _>>()?, reload: self.reload })
    }
}

/// What of `plan` can't be had on the machine of `tree`: settings and
/// scheduling, by line of the study. Nothing is changed.
#[must_use]
pub fn refusals(study: &Study, plan: &Plan, tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut check = |line: usize, whose: &str, settings: &HostSettings| {
        for (id, value) in settings {
            let refused = match Change::new(id, value) {
                Ok(change) => {
                    let wish = Wish { changes: vec![change], reload: plan.reload };
                    settings::plan(tree, &wish).err().map(|error| with_causes(&error))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(refused) = refused {
                problems.push(Problem { line, message: format!("{whose}{refused}") });
            }
        }
    };
    check(study.line_of_host(), "", &plan.host_settings);
    for load in &plan.loads {
        check(study.line_of_load(&load.name), &format!("{}: ", load.name), &load.host);
    }
    for variant in plan.variants.iter().filter(|variant| variant.aa_of.is_none()) {
        let line = study.line_of_variant(&variant.name);
        let whose = format!("{}: ", variant.name);
        check(line, &whose, &variant.host_settings);
    }
    for variant in plan.variants.iter().filter(|variant| variant.aa_of.is_none()) {
        let line = study.line_of(&variant.name, "scheduler");
        let mut say = |message: String| {
            problems.push(Problem { line, message: format!("{}: {message}", variant.name) });
        };
        for scheduler in schedulers(&variant.spec) {
            if let Err(error) = scheduler::check(scheduling(scheduler)) {
                say(format!("scheduler {scheduler} can't be had here: {}", with_causes(&error)));
            }
        }
        if let Some(message) =
            plan.loads.iter().find_map(|load| empty_partition(plan, load, variant))
        {
            say(message);
        }
    }
    problems
}

/// A partition into which no thread of the VM goes takes pCPUs from everybody
/// and gives them to nobody.
fn empty_partition(plan: &Plan, load: &Load, variant: &PlanVariant) -> Option<String> {
    let settings =
        [plan.study_settings(), plan.block_settings(load), plan.trial_settings(load, variant)];
    let pins = &variant.spec.pins;
    let pinned: Vec<&PcpuSet> =
        pins.vcpus.values().chain(&pins.emulator).chain(pins.iothreads.values()).collect();
    let (id, pcpus) = settings.iter().flatten().find_map(|(id, value)| {
        let pcpus: PcpuSet = value.parse().ok()?;
        let inside = |pin: &&PcpuSet| !pin.is_empty() && pin.is_subset(&pcpus);
        let empty = PARTITIONS.contains(&id.as_str()) && !pinned.iter().any(inside);
        empty.then_some((id, value))
    })?;
    Some(format!("{id} = {pcpus}, but no thread is pinned there: pin vCPUs to it (vm.pins)"))
}

fn schedulers(spec: &VmSpec) -> BTreeSet<Scheduler> {
    let all = &spec.scheduler;
    all.vcpus.values().chain(&all.emulator).chain(all.iothreads.values()).copied().collect()
}

/// The kernel's word for a scheduler.
pub(crate) fn scheduling(scheduler: Scheduler) -> Scheduling {
    let (policy, priority) = match scheduler {
        Scheduler::Fifo(priority) => (Policy::Fifo, priority),
        Scheduler::Rr(priority) => (Policy::RoundRobin, priority),
        Scheduler::Batch => (Policy::Batch, 0),
        Scheduler::Idle => (Policy::Idle, 0),
    };
    Scheduling { policy, priority }
}

/// An error with its causes, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

/// What is set, with units: `halt_poll_ns = 0 ns`.
#[must_use]
pub fn describe(settings: &HostSettings) -> Vec<String> {
    let one = |(id, value): (&String, &String)| {
        let unit = setting(id).map_or("", |setting| setting.unit);
        format!("{id} = {value} {unit}").trim_end().to_owned()
    };
    settings.iter().map(one).collect()
}
