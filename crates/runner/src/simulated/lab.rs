//! The laboratory without VMs: every trial is a run of the simulator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use guest::Cancel;
use host::watch::Moment;
use record::journal::{RunResult, TrialKey, TrialResult};
use record::{CounterSet, Failure, FailureKind, Outcome, Sample};
use sim::scenario::Scenario;
use topology::Host;

use super::models::WorkloadModel;
use super::scenario::{self, CellScenario};
use super::unmodelled;
use crate::execute::{ExecutionEvent, Lab, TrialRecord};
use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::study::{HostLoad, values_over_vms};
use crate::unix_s;

/// Plays the trials of a plan on a described host.
///
/// The trials of a block share one draw of the costs, so that variants are compared
/// under the same ones. They are played on all cores when the first is asked for.
pub struct SimulatedLab<'p> {
    plan: &'p StudyPlan,
    host: &'p Host,
    cancel: Cancel,
    load: Option<HostLoad>,
    /// What was played ahead, by block, workload and variant.
    played: HashMap<(u32, String, String), PlayedTrial>,
}

/// A simulated trial's outcome, with its scenario.
#[derive(Debug, Clone)]
struct PlayedTrial {
    scenario: String,
    /// What playing it took.
    wall_s: f64,
    result: Result<SimulatedRun, Failure>,
}

/// What a simulated run brought.
#[derive(Debug, Clone)]
struct SimulatedRun {
    /// The simulated time in which all was counted.
    counted_s: f64,
    samples: Vec<Sample>,
    counters: CounterSet,
}

impl<'p> SimulatedLab<'p> {
    /// A laboratory for `plan` on `host`.
    #[must_use]
    pub fn new(plan: &'p StudyPlan, host: &'p Host, cancel: Cancel) -> Self {
        Self { plan, host, cancel, load: None, played: HashMap::new() }
    }

    /// Plays all trials of the block of `key`.
    fn play_block(&mut self, key: &TrialKey) {
        self.played.clear();
        let Some(load) = &self.load else { return };
        let this = &*self;
        let cells: Vec<(&PlanWorkload, &PlanVariant)> = self
            .plan
            .workloads
            .iter()
            .flat_map(|workload| self.plan.variants.iter().map(move |variant| (workload, variant)))
            .collect();
        let next = AtomicUsize::new(0);
        let played = Mutex::new(Vec::with_capacity(cells.len()));
        let work = || {
            while let Some((workload, variant)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                if this.cancel.is_cancelled() {
                    return;
                }
                let trial = this.play(load, key.block, variant, workload);
                let key = (key.block, workload.label.clone(), variant.name.clone());
                played.lock().expect("no thread panicked").push((key, trial));
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 1..cores.min(cells.len()) {
                scope.spawn(work);
            }
            work();
        });
        self.played = played.into_inner().expect("no thread panicked").into_iter().collect();
    }

    fn play(
        &self,
        load: &HostLoad,
        block: u32,
        variant: &PlanVariant,
        workload: &PlanWorkload,
    ) -> PlayedTrial {
        let started = Instant::now();
        let failed = |kind, detail: String| Err(Failure::new(kind, detail));
        if let Some(why) = unmodelled::cell(self.plan, self.host, load, variant, workload) {
            let result = failed(FailureKind::NotModelled, why);
            return PlayedTrial { scenario: String::new(), wall_s: 0.0, result };
        }
        let CellScenario { text, model } =
            match scenario::of_cell(self.plan, self.host, load, variant, workload) {
                Ok(cell) => cell,
                Err(why) => {
                    let result = failed(FailureKind::NotModelled, why);
                    return PlayedTrial { scenario: String::new(), wall_s: 0.0, result };
                }
            };
        let described = |_: &str| Ok(self.host.clone());
        let result = match Scenario::parse("scenario", &text, described) {
            Err(error) => failed(FailureKind::VmRefused, error.to_string()),
            Ok(scenario) => {
                // The load levels take turns; a round of them is one draw.
                let draw = block / self.plan.levels();
                let played = scenario.cells[0].draw(self.plan.seed, draw);
                match sim::run(&played, || !self.cancel.is_cancelled()) {
                    Err(None) => failed(FailureKind::Aborted, "Ctrl-C".to_owned()),
                    Err(Some(stuck)) => failed(FailureKind::GuestHung, stuck.to_string()),
                    Ok(outcome) => match outcome.meters.get(..variant.specs().count()) {
                        Some(meters) if meters.iter().all(|meter| meter.done > 0) => {
                            let counts = |number| !variant.left_out.contains(&number);
                            let counted = (0..).zip(meters).filter(|(number, _)| counts(*number));
                            let per_s: Vec<f64> = counted.map(|(_, meter)| meter.per_s).collect();
                            Ok(SimulatedRun {
                                counted_s: played.duration_ns as f64 / 1e9,
                                samples: samples(&model, workload, &per_s),
                                counters: counters(&outcome, load),
                            })
                        }
                        _ => failed(
                            FailureKind::TimeLimit,
                            "Nothing was done in the simulated time".to_owned(),
                        ),
                    },
                }
            }
        };
        PlayedTrial { scenario: text, wall_s: started.elapsed().as_secs_f64(), result }
    }
}

/// What the meters of the VMs that are measured say of the workload's metrics.
fn samples(model: &WorkloadModel, workload: &PlanWorkload, per_s: &[f64]) -> Vec<Sample> {
    let sample = |(metric, value)| Sample { metric, value };
    let value = |name: &str| {
        let (_, scale) = model.metrics.iter().find(|(known, _)| *known == name)?;
        Some(per_s.iter().map(|per_s| Some(scale.value(*per_s))).collect::<Vec<_>>())
    };
    if workload.of_several_vms.is_empty() {
        let own = workload.metrics.iter().filter_map(|metric| {
            Some((metric.name.clone(), value(&metric.name)?.into_iter().flatten().next()?))
        });
        return own.map(sample).collect();
    }
    let several = workload
        .of_several_vms
        .iter()
        .filter_map(|metric| Some(values_over_vms(metric, &value(&metric.name)?)));
    several.flatten().map(sample).collect()
}

/// What KVM would have counted of the VM, where it is alone.
fn counters(outcome: &sim::SimOutcome, load: &HostLoad) -> CounterSet {
    let mut set = CounterSet::default();
    if load.vms.is_none() {
        let sim::EventCounts { halt_exits, polls_hit, yields_tried, yields_done, .. } =
            outcome.counters;
        for (name, count) in [
            ("kvm.halt_exits", halt_exits),
            ("kvm.halt_successful_poll", polls_hit),
            ("kvm.directed_yield_attempted", yields_tried),
            ("kvm.directed_yield_successful", yields_done),
        ] {
            set.set(name, count as f64);
        }
    }
    set
}

impl Lab for SimulatedLab<'_> {
    fn begin_block(&mut self, load: &HostLoad) -> Result<(), Failure> {
        self.load = Some(load.clone());
        Ok(())
    }

    fn trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
        observe: &mut dyn FnMut(ExecutionEvent<'_>),
    ) -> TrialRecord {
        observe(ExecutionEvent::RunStarted(0, 1));
        let cell = (key.block, workload.label.clone(), variant.name.clone());
        if !self.played.contains_key(&cell) {
            self.play_block(key);
        }
        let Some(PlayedTrial { scenario, wall_s, result }) = self.played.remove(&cell) else {
            let failure = Failure::new(FailureKind::Aborted, "Ctrl-C".to_owned());
            return TrialRecord::failed(key.clone(), failure);
        };
        let SimulatedRun { counted_s, samples, counters } = match result {
            Ok(found) => found,
            Err(failure) => return TrialRecord::failed(key.clone(), failure),
        };
        let run = RunResult {
            run: 0,
            outcome: Outcome::Completed,
            command: Vec::new(),
            wall_s: counted_s,
            started_unix_s: unix_s(),
            tool_version: None,
            samples,
            histograms: Vec::new(),
            counters,
            blobs: BTreeMap::new(),
        };
        let text = BTreeMap::from([("scenario".to_owned(), scenario.into_bytes())]);
        TrialRecord {
            result: TrialResult {
                wall_s,
                runs: vec![run],
                ..TrialResult::new(key.clone(), Outcome::Completed, unix_s())
            },
            console: Vec::new(),
            device_state: Vec::new(),
            texts: vec![text],
            profiles: BTreeMap::new(),
        }
    }

    fn watch(&mut self, _variant: &PlanVariant) -> Option<Moment> {
        None
    }

    fn end_block(&mut self) -> Vec<String> {
        self.played.clear();
        Vec::new()
    }
}
