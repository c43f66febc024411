//! Runs a plan: block after block, trial after trial, each acknowledged in
//! the journal before the next begins.
//!
//! What a trial does is the [`Lab`]'s business; this module owns the order,
//! the journal, the budget and the way back after a crash. The state is
//! rebuilt from the journal alone ([`JournalState::from_events`]), so a run that was
//! killed goes on exactly where its last acknowledged block ended.

use std::collections::BTreeMap;
use std::time::Instant;

use guest::Cancel;
use host::watch::Moment;
use record::journal::{Event, TrialKey, TrialResult};
use record::{Failure, FailureKind, Outcome, ProfileSide, Unsteady};

use crate::agenda::Agenda;
use crate::plan::{Block, Plan, PlanVariant, PlanWorkload};
use crate::state::JournalState;
use crate::store::{StoreError, TrialSink};
use crate::study::{Load, Until};
use crate::unix_s;
use crate::{pilot, results, stability};

/// Where trials happen.
pub trait Lab {
    /// Brings the host to `load` for the trials of one block.
    ///
    /// # Errors
    /// Why the load can't be had; the block's trials are then recorded as
    /// failed for that reason.
    fn begin_block(&mut self, load: &Load) -> Result<(), Failure>;

    /// Boots `variant`, runs `workload` in it, ends it. Never fails: what goes
    /// wrong is the result's outcome.
    fn trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
        observe: &mut dyn FnMut(ExecutionEvent<'_>),
    ) -> TrialRecord;

    /// Looks at the host just before a trial of `variant`; what is returned
    /// tells after the trial what the host did meanwhile.
    fn watch(&mut self, variant: &PlanVariant) -> Option<Moment>;

    /// Takes the host load away and puts the host back as it was before the
    /// block; what could not be put back is returned, a sentence each.
    fn end_block(&mut self) -> Vec<String>;
}

/// A trial's result, with the texts that are kept apart as blobs.
#[derive(Debug)]
pub struct TrialRecord {
    /// The result; its blob fields are filled in when the texts are stored.
    pub result: TrialResult,
    /// The console's text.
    pub console: Vec<u8>,
    /// The devices' state of a guest that hung or panicked; mostly empty.
    pub device_state: Vec<u8>,
    /// For each run the texts by role.
    pub texts: Vec<BTreeMap<String, Vec<u8>>>,
    /// The folded stacks of a profile, by its sides.
    pub profiles: BTreeMap<ProfileSide, Vec<u8>>,
}

/// What is going on, for whoever shows it.
#[derive(Debug)]
pub enum ExecutionEvent<'a> {
    /// A block begins.
    BlockStarted {
        /// The block.
        block: &'a Block,
        /// Its load level.
        load: &'a Load,
        /// 0, or more if it is done again.
        attempt: u32,
    },
    /// A trial begins.
    TrialStarted(&'a TrialKey),
    /// The guest's agent answered, after so many seconds.
    Booted(f64),
    /// Benchmark invocation number, from 0, of so many.
    RunStarted(u32, u32),
    /// A trial ended.
    TrialEnded(&'a TrialResult),
    /// What of the host could not be put back when a block ended, a sentence
    /// each.
    NotRestored(&'a [String]),
    /// A block does not count, as the host was not steady.
    BlockRejected(&'a [Unsteady]),
    /// Another block follows.
    Progress {
        /// Blocks that are complete now.
        done: u32,
        /// Seconds that the study probably still needs, if that can be said.
        remaining_s: Option<f64>,
        /// What is not decided yet.
        agenda: &'a Agenda,
    },
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// The study is complete.
    Complete,
    /// It was cancelled; what is done is kept and can be resumed.
    Cancelled,
}

/// Runs what `plan` still asks for; `earlier` are the journal's events so far.
///
/// # Errors
/// [`StoreError`] when the journal can't be written; everything acknowledged
/// before is safe.
pub fn execute(
    plan: &Plan,
    earlier: &[Event],
    store: &mut dyn TrialSink,
    lab: &mut dyn Lab,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> Result<ExecutionEnd, StoreError> {
    let mut events = earlier.to_vec();
    let mut state = JournalState::from_events(&events);
    store.append(&Event::SessionStarted {
        vmlab_version: env!("CARGO_PKG_VERSION").to_owned(),
        plan_hash: plan.hash(),
        environment: plan.environment(),
        unix_s: unix_s(),
    })?;
    loop {
        let agenda = Agenda::of(plan, &state, &events);
        let repeated = repeated(plan, &state, &events);
        if let Some(reason) = end_reason(plan, &state, &agenda) {
            store.append(&Event::StudyEnded { reason, unix_s: unix_s() })?;
            return Ok(ExecutionEnd::Complete);
        }
        let done = u32::try_from(state.complete.len()).unwrap_or(u32::MAX);
        let remaining_s = remaining_s(plan, &state, &agenda);
        observe(ExecutionEvent::Progress { done, remaining_s, agenda: &agenda });
        let block = agenda.block(plan, &state, state.next_block());
        let started = Instant::now();
        let end = run_block(plan, &repeated, &state, &block, store, lab, cancel, observe)?;
        let BlockEnd::Complete { results, attempt, not_restored } = end else {
            return Ok(ExecutionEnd::Cancelled);
        };
        let reasons = stability::of_block(plan, &block, &results, &events);
        let wall_s = started.elapsed().as_secs_f64();
        state.begun.insert(block.number, attempt);
        if !reasons.is_empty() && state.may_repeat(plan) {
            events.extend(results.into_iter().map(|result| Event::TrialEnded(Box::new(result))));
            observe(ExecutionEvent::BlockRejected(&reasons));
            store.append(&Event::BlockRejected {
                block: block.number,
                attempt,
                reasons: reasons.clone(),
                not_restored,
                unix_s: unix_s(),
            })?;
            state.reject(block.number, attempt, reasons, wall_s);
            continue;
        }
        store.append(&Event::BlockEnded {
            block: block.number,
            attempt,
            unsteady: reasons.clone(),
            not_restored,
            unix_s: unix_s(),
        })?;
        for result in results {
            state.count(&result);
            events.push(Event::TrialEnded(Box::new(result)));
        }
        state.complete(block.number, attempt, &reasons, wall_s);
    }
}

enum BlockEnd {
    Complete { results: Vec<TrialResult>, attempt: u32, not_restored: Vec<String> },
    Cancelled,
}

/// The plan's workloads with the repetitions that the next block has.
fn repeated(plan: &Plan, state: &JournalState, events: &[Event]) -> Vec<PlanWorkload> {
    let trials = results::trials(events, state);
    let mut workloads = plan.workloads.clone();
    for workload in &mut workloads {
        workload.invocations = pilot::repeats(plan, &trials, workload).invocations;
    }
    workloads
}

#[allow(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
fn run_block(
    plan: &Plan,
    workloads: &[PlanWorkload],
    state: &JournalState,
    block: &Block,
    store: &mut dyn TrialSink,
    lab: &mut dyn Lab,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> Result<BlockEnd, StoreError> {
    if cancel.is_cancelled() {
        return Ok(BlockEnd::Cancelled);
    }
    let attempt = state.begun.get(&block.number).map_or(0, |attempt| attempt + 1);
    let load = &plan.loads[block.load];
    store.append(&Event::BlockStarted {
        block: block.number,
        attempt,
        load: load.name.clone(),
        unix_s: unix_s(),
    })?;
    observe(ExecutionEvent::BlockStarted { block, load, attempt });
    // A load level at which all is decided has nothing to disturb.
    let ready = if block.trials.is_empty() { Ok(()) } else { lab.begin_block(load) };
    let results = run_trials(plan, workloads, block, attempt, ready, store, lab, cancel, observe);
    // The host load ends before anything else can go wrong.
    let not_restored = lab.end_block();
    if !not_restored.is_empty() {
        observe(ExecutionEvent::NotRestored(&not_restored));
    }
    let Some(results) = results? else { return Ok(BlockEnd::Cancelled) };
    Ok(BlockEnd::Complete { results, attempt, not_restored })
}

/// The results of all trials of the block, or none if it was cancelled.
#[allow(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
fn run_trials(
    plan: &Plan,
    workloads: &[PlanWorkload],
    block: &Block,
    attempt: u32,
    ready: Result<(), Failure>,
    store: &mut dyn TrialSink,
    lab: &mut dyn Lab,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> Result<Option<Vec<TrialResult>>, StoreError> {
    let mut results = Vec::with_capacity(block.trials.len());
    for (position, (workload, variant)) in block.trials.iter().enumerate() {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let key = plan.trial_key(block, attempt, position);
        store.append(&Event::TrialStarted { trial: key.clone(), unix_s: unix_s() })?;
        observe(ExecutionEvent::TrialStarted(&key));
        let record = match &ready {
            Ok(()) => {
                let variant = &plan.variants[*variant];
                let before = lab.watch(variant);
                let mut record = lab.trial(&key, variant, &workloads[*workload], observe);
                if let Some(before) = before {
                    record.result.watch = Some(before.watched_until_now());
                }
                record
            }
            Err(failure) => TrialRecord::failed(key, failure.clone()),
        };
        let result = keep(store, record)?;
        let aborted =
            matches!(&result.outcome, Outcome::Failed(Failure { kind: FailureKind::Aborted, .. }));
        store.append(&Event::TrialEnded(Box::new(result.clone())))?;
        observe(ExecutionEvent::TrialEnded(&result));
        if aborted {
            return Ok(None);
        }
        results.push(result);
    }
    Ok(Some(results))
}

/// Stores the texts of `record` and names them in its result.
fn keep(store: &mut dyn TrialSink, record: TrialRecord) -> Result<TrialResult, StoreError> {
    let TrialRecord { mut result, console, device_state, texts, mut profiles } = record;
    if !console.is_empty() {
        result.console = Some(store.keep(&console)?);
    }
    if !device_state.is_empty() {
        result.device_state = Some(store.keep(&device_state)?);
    }
    for (run, texts) in result.runs.iter_mut().zip(texts) {
        for (role, text) in texts {
            if !text.is_empty() {
                run.blobs.insert(role, store.keep(&text)?);
            }
        }
    }
    for side in result.profile.iter_mut().flat_map(|profile| &mut profile.sides) {
        side.blob = profiles.remove(&side.side).map(|text| store.keep(&text)).transpose()?;
    }
    Ok(result)
}

impl TrialRecord {
    /// A trial that failed before there was anything to record.
    #[must_use]
    pub fn failed(trial: TrialKey, failure: Failure) -> Self {
        Self {
            result: TrialResult {
                trial,
                outcome: Outcome::Failed(failure),
                boot_s: None,
                wall_s: 0.0,
                runs: Vec::new(),
                qemu_args: Vec::new(),
                vcpu_affinity: Vec::new(),
                vcpu_scheduler: Vec::new(),
                host_settings: BTreeMap::new(),
                ground: None,
                facts: BTreeMap::new(),
                console: None,
                console_tail: None,
                device_state: None,
                watch: None,
                profile: None,
                warnings: Vec::new(),
                unix_s: unix_s(),
            },
            console: Vec::new(),
            device_state: Vec::new(),
            texts: Vec::new(),
            profiles: BTreeMap::new(),
        }
    }
}

/// Why no further block follows, or none if one does.
fn end_reason(plan: &Plan, state: &JournalState, agenda: &Agenda) -> Option<String> {
    if agenda.is_done() {
        return nothing_left(plan, state)
            .or_else(|| Some("every comparison is decided".to_owned()));
    }
    let done = u32::try_from(state.complete.len()).unwrap_or(u32::MAX);
    // Whole rounds only, so that all load levels get the same blocks.
    let levels = plan.levels();
    if done.is_multiple_of(levels) {
        let blocks_done = done / levels;
        let most = state.extended_to.or(plan.budget.blocks);
        if most.is_some_and(|most| blocks_done >= most) {
            return Some(format!("all {blocks_done} planned blocks are done"));
        }
        let round_s = if done == 0 { 0.0 } else { state.block_s() * f64::from(levels) };
        if let Some(minutes) = plan.budget.minutes.filter(|_| state.extended_to.is_none())
            && state.blocks_wall_s + round_s > minutes * 60.0
        {
            return Some(format!("the next round would not fit into {minutes} minutes"));
        }
    }
    nothing_left(plan, state)
}

/// A comparison needs its baseline and somebody to compare with it.
fn nothing_left(plan: &Plan, state: &JournalState) -> Option<String> {
    let alive = |load: &Load, workload: &PlanWorkload, variant: &PlanVariant| {
        !state.is_hopeless(&load.name, &workload.label, &variant.name)
    };
    let comparable = plan.loads.iter().any(|load| {
        plan.workloads.iter().any(|workload| {
            let mut others = plan.variants.iter().filter(|variant| variant.name != plan.baseline);
            let baseline = plan
                .variants
                .iter()
                .any(|variant| variant.name == plan.baseline && alive(load, workload, variant));
            let single = plan.variants.len() == 1;
            baseline && (single || others.any(|variant| alive(load, workload, variant)))
        })
    });
    (!comparable).then(|| {
        "every comparison has a side that only failed: there is nothing left to compare".to_owned()
    })
}

/// Seconds that the study probably still needs, if that can be said.
pub(crate) fn remaining_s(plan: &Plan, state: &JournalState, agenda: &Agenda) -> Option<f64> {
    if state.finished() == 0 {
        return None;
    }
    let levels = f64::from(plan.levels());
    let round_s = state.block_s() * levels;
    let rounds_done = state.complete.len() as f64 / levels;
    let most = state.extended_to.or(plan.budget.blocks).map(f64::from);
    let by_blocks = most.map(|most| (most - rounds_done) * round_s);
    let by_minutes = plan.budget.minutes.map(|minutes| minutes * 60.0 - state.blocks_wall_s);
    let until_decided = (plan.budget.until == Until::Decided).then(|| agenda.more_blocks());
    let by_verdicts = until_decided.flatten().map(|blocks| f64::from(blocks) * round_s);
    let all = [by_blocks, by_minutes, by_verdicts];
    all.into_iter().flatten().reduce(f64::min).map(|seconds| seconds.max(0.0))
}

#[cfg(test)]
mod tests;
