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
use record::journal::{JournalEvent, TrialKey, TrialResult};
use record::{Failure, FailureKind, Outcome, ProfileSide, UnsteadyCause};

use crate::agenda::Agenda;
use crate::plan::{Block, PlanVariant, PlanWorkload, StudyPlan};
use crate::state::JournalState;
use crate::store::{ResultsError, TrialSink};
use crate::study::{EndCondition, HostLoad};
use crate::unix_s;
use crate::{pilot, results, stability};

/// Where trials happen.
pub trait Lab {
    /// Brings the host to `load` for the trials of one block.
    ///
    /// # Errors
    /// Why the load can't be had; the block's trials are then recorded as
    /// failed for that reason.
    fn begin_block(&mut self, load: &HostLoad) -> Result<(), Failure>;

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
        load: &'a HostLoad,
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
    BlockRejected(&'a [UnsteadyCause]),
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
/// [`ResultsError`] when the journal can't be written; everything acknowledged
/// before is safe.
pub fn execute(
    plan: &StudyPlan,
    earlier: &[JournalEvent],
    store: &mut dyn TrialSink,
    lab: &mut dyn Lab,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> Result<ExecutionEnd, ResultsError> {
    store.append(&JournalEvent::SessionStarted {
        vmlab_version: env!("CARGO_PKG_VERSION").to_owned(),
        plan_hash: plan.hash(),
        environment: plan.environment(),
        unix_s: unix_s(),
    })?;
    let events = earlier.to_vec();
    let state = JournalState::from_events(&events);
    Execution { plan, events, state, store, lab, cancel, observe }.run()
}

/// A study that runs. Its way: the agenda says which block is next ([`NextBlock`]), its
/// trials make results ([`FinishedBlock`]), and these are recorded, whereupon the agenda
/// is another one.
struct Execution<'a> {
    plan: &'a StudyPlan,
    /// All events before this run of it, and the trials that have ended since.
    events: Vec<JournalEvent>,
    state: JournalState,
    store: &'a mut dyn TrialSink,
    lab: &'a mut dyn Lab,
    cancel: &'a Cancel,
    observe: &'a mut dyn FnMut(ExecutionEvent<'_>),
}

/// A block that is to be run.
struct NextBlock {
    block: Block,
    /// 0, or more if it is done again.
    attempt: u32,
    /// The plan's workloads with the repetitions that this block has.
    workloads: Vec<PlanWorkload>,
}

/// A block that was run to its end.
struct FinishedBlock {
    results: Vec<TrialResult>,
    not_restored: Vec<String>,
    wall_s: f64,
}

impl Execution<'_> {
    fn run(mut self) -> Result<ExecutionEnd, ResultsError> {
        while let Some(next) = self.next_block()? {
            let Some(finished) = self.run_block(&next)? else {
                return Ok(ExecutionEnd::Cancelled);
            };
            self.record(&next, finished)?;
        }
        Ok(ExecutionEnd::Complete)
    }

    /// What is to be done next; none once the study is complete, which is recorded.
    fn next_block(&mut self) -> Result<Option<NextBlock>, ResultsError> {
        let Self { plan, state, events, .. } = self;
        let agenda = Agenda::of(plan, state, events);
        if let Some(reason) = end_reason(plan, state, &agenda) {
            self.store.append(&JournalEvent::StudyEnded { reason, unix_s: unix_s() })?;
            return Ok(None);
        }
        let done = u32::try_from(state.complete.len()).unwrap_or(u32::MAX);
        let remaining_s = remaining_s(plan, state, &agenda);
        (self.observe)(ExecutionEvent::Progress { done, remaining_s, agenda: &agenda });
        let block = agenda.block(plan, state, state.next_block());
        let attempt = state.begun.get(&block.number).map_or(0, |attempt| attempt + 1);
        Ok(Some(NextBlock { block, attempt, workloads: repeated(plan, state, events) }))
    }

    /// All trials of a block inside its host load; none if it was cancelled.
    fn run_block(&mut self, next: &NextBlock) -> Result<Option<FinishedBlock>, ResultsError> {
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        let started = Instant::now();
        let NextBlock { block, attempt, .. } = next;
        let (attempt, load) = (*attempt, &self.plan.loads[block.load]);
        self.store.append(&JournalEvent::BlockStarted {
            block: block.number,
            attempt,
            load: load.name.clone(),
            unix_s: unix_s(),
        })?;
        (self.observe)(ExecutionEvent::BlockStarted { block, load, attempt });
        // A load level at which all is decided has nothing to disturb.
        let ready = if block.trials.is_empty() { Ok(()) } else { self.lab.begin_block(load) };
        let results = self.run_trials(next, &ready);
        // The host load ends before anything else can go wrong.
        let not_restored = self.lab.end_block();
        if !not_restored.is_empty() {
            (self.observe)(ExecutionEvent::NotRestored(&not_restored));
        }
        let wall_s = started.elapsed().as_secs_f64();
        Ok(results?.map(|results| FinishedBlock { results, not_restored, wall_s }))
    }

    /// The results of all trials of a block whose host load is there, or why it is not;
    /// none if it was cancelled.
    fn run_trials(
        &mut self,
        next: &NextBlock,
        ready: &Result<(), Failure>,
    ) -> Result<Option<Vec<TrialResult>>, ResultsError> {
        let NextBlock { block, attempt, workloads } = next;
        let mut results = Vec::with_capacity(block.trials.len());
        for (position, (workload, variant)) in block.trials.iter().enumerate() {
            if self.cancel.is_cancelled() {
                return Ok(None);
            }
            let key = self.plan.trial_key(block, *attempt, position);
            self.store
                .append(&JournalEvent::TrialStarted { trial: key.clone(), unix_s: unix_s() })?;
            (self.observe)(ExecutionEvent::TrialStarted(&key));
            let variant = &self.plan.variants[*variant];
            let record = match ready {
                Ok(()) => self.run_trial(&key, variant, &workloads[*workload]),
                Err(failure) => TrialRecord::failed(key, failure.clone()),
            };
            let result = keep(self.store, record)?;
            self.store.append(&JournalEvent::TrialEnded(Box::new(result.clone())))?;
            (self.observe)(ExecutionEvent::TrialEnded(&result));
            if matches!(&result.outcome, Outcome::Failed(failure) if failure.kind == FailureKind::Aborted)
            {
                return Ok(None);
            }
            results.push(result);
        }
        Ok(Some(results))
    }

    /// One trial, and what the host did meanwhile.
    fn run_trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
    ) -> TrialRecord {
        let before = self.lab.watch(variant);
        let mut record = self.lab.trial(key, variant, workload, self.observe);
        if let Some(before) = before {
            record.result.watch = Some(before.watched_until_now());
        }
        record
    }

    /// Records that a block counts, or that it does not as the host was not steady.
    fn record(&mut self, next: &NextBlock, finished: FinishedBlock) -> Result<(), ResultsError> {
        let NextBlock { block, attempt, .. } = next;
        let (block, attempt) = (block, *attempt);
        let FinishedBlock { results, not_restored, wall_s } = finished;
        let unsteady = stability::of_block(self.plan, block, &results, &self.events);
        self.state.begun.insert(block.number, attempt);
        let counts = unsteady.is_empty() || !self.state.may_repeat(self.plan);
        let (block, unix_s) = (block.number, unix_s());
        let reasons = unsteady.clone();
        if counts {
            self.store.append(&JournalEvent::BlockEnded {
                block,
                attempt,
                unsteady,
                not_restored,
                unix_s,
            })?;
            results.iter().for_each(|result| self.state.count(result));
            self.state.complete(block, attempt, &reasons, wall_s);
        } else {
            (self.observe)(ExecutionEvent::BlockRejected(&reasons));
            self.store.append(&JournalEvent::BlockRejected {
                block,
                attempt,
                reasons: unsteady,
                not_restored,
                unix_s,
            })?;
            self.state.reject(block, attempt, reasons, wall_s);
        }
        self.events
            .extend(results.into_iter().map(|result| JournalEvent::TrialEnded(Box::new(result))));
        Ok(())
    }
}

/// The plan's workloads with the repetitions that the next block has.
fn repeated(plan: &StudyPlan, state: &JournalState, events: &[JournalEvent]) -> Vec<PlanWorkload> {
    let trials = results::trials(events, state);
    let mut workloads = plan.workloads.clone();
    for workload in &mut workloads {
        workload.invocations = pilot::repeats(plan, &trials, workload).invocations;
    }
    workloads
}

/// Stores the texts of `record` and names them in its result.
fn keep(store: &mut dyn TrialSink, record: TrialRecord) -> Result<TrialResult, ResultsError> {
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
            result: TrialResult::new(trial, Outcome::Failed(failure), unix_s()),
            console: Vec::new(),
            device_state: Vec::new(),
            texts: Vec::new(),
            profiles: BTreeMap::new(),
        }
    }
}

/// Why no further block follows, or none if one does.
fn end_reason(plan: &StudyPlan, state: &JournalState, agenda: &Agenda) -> Option<String> {
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
fn nothing_left(plan: &StudyPlan, state: &JournalState) -> Option<String> {
    let alive = |load: &HostLoad, workload: &PlanWorkload, variant: &PlanVariant| {
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
pub(crate) fn remaining_s(plan: &StudyPlan, state: &JournalState, agenda: &Agenda) -> Option<f64> {
    if state.finished() == 0 {
        return None;
    }
    let levels = f64::from(plan.levels());
    let round_s = state.block_s() * levels;
    let rounds_done = state.complete.len() as f64 / levels;
    let most = state.extended_to.or(plan.budget.blocks).map(f64::from);
    let by_blocks = most.map(|most| (most - rounds_done) * round_s);
    let by_minutes = plan.budget.minutes.map(|minutes| minutes * 60.0 - state.blocks_wall_s);
    let until_decided = (plan.budget.until == EndCondition::Decided).then(|| agenda.more_blocks());
    let by_verdicts = until_decided.flatten().map(|blocks| f64::from(blocks) * round_s);
    let all = [by_blocks, by_minutes, by_verdicts];
    all.into_iter().flatten().reduce(f64::min).map(|seconds| seconds.max(0.0))
}

#[cfg(test)]
mod tests;
