//! One trial: boot, pin, prepare, run, count, end.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Instant;

use guest::{Cancel, NOTE, met_removed_breakpoint, read_end};
use host::counters;
use record::journal::{RunResult, TrialKey, TrialResult};
use record::{CounterSet, CpuPmFinding, Failure, FailureCause, FailureKind, Outcome, TrialProfile};
use vmconfig::{Accel, VmSpec};

use super::follow_memory::{crowded, follow_memory};
use super::invocation::{self, Invocation};
use super::profile::{self, Profiling};
use super::role_guest::RoleGuest;
use super::switch::add_ratios;
use super::trial_guests::{
    PEER_VM, TrialGuests, TrialParts, UNDER_TEST_VM, console_file, further_name, state_file,
};
use super::{LocalLab, found, load_failure, placement};
use crate::execute::{ExecutionEvent, TrialRecord};
use crate::host_settings::with_causes;
use crate::hosting::{SeenVm, VmHosting};
use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::probe;
use crate::study::StudyClaimKind;
use crate::unix_s;

/// Lines of the console that a failure shows: a panic and its trace.
const CONSOLE_TAIL_LINES: usize = 60;

/// Most of a console that is kept, bytes.
const CONSOLE_KEPT_BYTES: usize = 1 << 20;

/// Instructions that an emulated host runs in a second of its clock where that
/// counts them.
const INSTRUCTIONS_PER_S: f64 = 1e9;

/// A load that reaches less than this part of what was asked is worth a word.
const LOAD_SHORTFALL: f64 = 0.9;

/// Boots `variant`, runs `workload` in it and ends it; what goes wrong is the outcome.
pub(super) fn run(
    lab: &mut LocalLab<'_>,
    key: &TrialKey,
    variant: &PlanVariant,
    workload: &PlanWorkload,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> TrialRecord {
    let started = Instant::now();
    let mut trial = Trial::new(lab, key, variant, observe);
    let outcome = trial.carry_out(variant, workload);
    trial.into_record(outcome, started)
}

/// A trial on its way: what it is made of ([`TrialParts`]), booted guests
/// ([`TrialGuests`]), a benchmark that is ready in them ([`GuestBenchmark`]), its runs, its end.
struct Trial<'a, 'lab> {
    lab: &'a mut LocalLab<'lab>,
    observe: &'a mut dyn FnMut(ExecutionEvent<'_>),
    /// What the VMs are called in files, that of the one under test first.
    vm_names: Vec<String>,
    /// All that was seen on the way.
    record: TrialRecord,
    /// What is known of `cpu_pm`, where it was asked for.
    cpu_pm: Option<CpuPmFinding>,
}

impl<'a, 'lab> Trial<'a, 'lab> {
    fn new(
        lab: &'a mut LocalLab<'lab>,
        key: &TrialKey,
        variant: &PlanVariant,
        observe: &'a mut dyn FnMut(ExecutionEvent<'_>),
    ) -> Self {
        let detail = "The trial did not begin".to_owned();
        let record = TrialRecord::failed(key.clone(), Failure::new(FailureKind::Aborted, detail));
        let further = (1..).zip(&variant.further).map(|(number, _)| further_name(number));
        let vm_names = [UNDER_TEST_VM, PEER_VM].map(str::to_owned).into_iter().chain(further);
        Self { lab, observe, vm_names: vm_names.collect(), record, cpu_pm: None }
    }

    /// The whole way, a stage a line.
    fn carry_out(&mut self, variant: &PlanVariant, workload: &PlanWorkload) -> Result<(), Failure> {
        let parts = TrialParts::new(variant, workload)?;
        self.check_load()?;
        let guests = self.boot(&parts)?;
        let mut bench = self.prepare(parts, guests)?;
        let measured = self.measure(&mut bench);
        bench.guests.shutdown();
        measured?;
        self.doubt()?;
        self.check_load()
    }

    /// Guests that are up, placed as the plan says, and counted.
    fn boot(&mut self, parts: &TrialParts<'_>) -> Result<TrialGuests, Failure> {
        let (mut guests, boot_s) = self.boot_or_once_more(parts)?;
        let Self { lab, record, .. } = self;
        let (spec, result) = (&parts.variant.spec, &mut record.result);
        result.boot_s = boot_s;
        let mut follows = BTreeMap::new();
        for (number, (guest, spec)) in guests.measured().zip(parts.variant.specs()).enumerate() {
            let follows_memory = parts.variant.follows_memory;
            let addresses = match follows_memory || placement::asks_of_nodes(spec) {
                true => guest.place.ram_addresses(&lab.cancel),
                false => BTreeMap::new(),
            };
            if let Some(vm) = guest.place.threads() {
                let mut followed = None;
                if follows_memory {
                    let mut found = placement::read(vm)?;
                    found.memory.name_backends_at(&addresses);
                    let found = follow_memory(spec, &found.memory, lab.host);
                    let (spec, told) = found.map_err(|failure| guest.named(failure))?;
                    placement::pin(vm, &spec)?;
                    result.warnings.extend(crowded(&spec, lab.host));
                    let told = told.into_iter();
                    follows.extend(told.map(|(cell, told)| {
                        (format!("memory of guest node {cell}, VM {number}"), told)
                    }));
                    followed = Some(spec);
                }
                let spec = followed.as_ref().unwrap_or(spec);
                let checked = placement::check(vm, spec, &addresses)
                    .map_err(|failure| guest.named(failure))?;
                result.vcpu_affinity.extend(checked);
                let checked = placement::schedulers(vm, spec);
                let checked = checked.map_err(|failure| guest.named(failure))?;
                result.vcpu_scheduler.extend(checked);
            }
        }
        // All are what they claim; what is told is the first one's.
        let further: Vec<&VmSpec> = parts.variant.specs().skip(1).collect();
        for (vm, spec) in guests.further.iter_mut().zip(further) {
            result.warnings.extend(vm.guest.found(spec, &lab.cancel)?.warnings);
        }
        let found = guests.under_test.found(spec, &lab.cancel)?;
        (result.facts, self.cpu_pm) = (found.facts, found.cpu_pm);
        result.warnings.extend(found.warnings);
        result.facts.extend(follows);
        if let Some(boot_s) = boot_s {
            (self.observe)(ExecutionEvent::Booted(boot_s));
        }
        self.begin_counting(spec.accel, &mut guests);
        Ok(guests)
    }

    /// Starts the guests and waits until they are up; the boot of the one under
    /// test, s.
    fn boot_or_once_more(
        &mut self,
        parts: &TrialParts<'_>,
    ) -> Result<(TrialGuests, Option<f64>), Failure> {
        let Self { lab, vm_names, record: TrialRecord { result, .. }, .. } = self;
        let limit = lab.boot_limit();
        let TrialResult { qemu_args, warnings, .. } = result;
        started_or_once_more(lab, parts.variant.spec.accel, vm_names, warnings, || {
            let mut guests = TrialGuests::start(lab, parts, qemu_args)?;
            let boot_s = guests.wait_ready(limit, &lab.cancel)?;
            Ok((guests, boot_s))
        })
    }

    /// Begins to count what the VMs do, exits by reason where there are exits.
    fn begin_counting(&mut self, accel: Accel, guests: &mut TrialGuests) {
        let Self { lab, record, .. } = self;
        let any_exits = accel == Accel::Kvm && guests.has_vm();
        let tracing = any_exits.then(|| lab.tracing());
        let (instance, mut problem) = match &tracing {
            Some(Ok(instance)) => (Some(*instance), None),
            Some(Err(why)) => (None, Some(why.clone())),
            None => (None, None),
        };
        if let Err(error) = guests.begin_counting(instance) {
            problem = Some(with_causes(&error));
        }
        if tracing.is_some() {
            let fact = problem.map_or("counted".to_owned(), |why| format!("not counted: {why}"));
            record.result.facts.insert("exits by reason".to_owned(), fact);
        }
    }

    /// A benchmark that can be invoked, with what is repeated beside it.
    fn prepare<'p>(
        &mut self,
        parts: TrialParts<'p>,
        mut guests: TrialGuests,
    ) -> Result<GuestBenchmark<'p>, Failure> {
        let cancel = self.lab.cancel.clone();
        guests.prepare(&parts, &cancel)?;
        self.record.result.facts.extend(guests.switch_facts()?);
        if let Some((entry, params)) = &parts.background {
            let prepare = |client: &mut RoleGuest| {
                if entry.needs.contains(&probe::PROGRAM) {
                    client.install_probe(parts.variant.spec.arch, &cancel)?;
                }
                let steps = entry.setup(params, &client.facts);
                client.prepare(&steps, parts.step_limit(), &cancel)
            };
            guests.in_each_client(prepare)?;
        }
        Ok(GuestBenchmark { guests, parts, cancel })
    }

    /// All invocations, and one more that is profiled.
    fn measure(&mut self, bench: &mut GuestBenchmark<'_>) -> Result<(), Failure> {
        let Self { lab, observe, record, .. } = self;
        let invocations = bench.parts.workload.invocations;
        let mut before = bench.counters(lab)?;
        for run in 0..invocations {
            observe(ExecutionEvent::RunStarted(run, invocations));
            before = bench.run(run, before, lab, record)?;
        }
        if bench.parts.workload.profile { bench.profile(lab, record) } else { Ok(()) }
    }

    /// What was counted tells whether the guest was as claimed.
    fn doubt(&mut self) -> Result<(), Failure> {
        let Some(before) = self.cpu_pm.take() else { return Ok(()) };
        let TrialResult { facts, runs, warnings, .. } = &mut self.record.result;
        let finding = found::cpu_pm_after(before, facts, runs)?;
        finding.write(facts);
        warnings.extend(found::doubt(&finding));
        Ok(())
    }

    fn check_load(&mut self) -> Result<(), Failure> {
        self.lab.check_load(&mut self.record.result.warnings)
    }

    /// The record of a trial that has ended, with what its consoles said.
    fn into_record(self, outcome: Result<(), Failure>, started: Instant) -> TrialRecord {
        let Self { lab, mut record, vm_names, .. } = self;
        // Of several guests that of the first that has left one.
        let (mut state, mut consoles) = (Vec::new(), Vec::new());
        for name in &vm_names {
            let (path, console) = (state_file(lab, name), console_file(lab, name));
            if state.is_empty() {
                state = std::fs::read(&path).unwrap_or_default();
            }
            consoles.push(read_end(&console, CONSOLE_KEPT_BYTES));
            // Gone already if the runtime folder was taken away: nothing to remove.
            drop(std::fs::remove_file(&path));
            drop(std::fs::remove_file(&console));
        }
        let mut hosted_console = Vec::new();
        for seen in lab.hosting.map(VmHosting::seen).unwrap_or_default() {
            let console = keep_seen(&mut record, seen);
            if hosted_console.is_empty() {
                hosted_console = console;
            }
        }
        if !hosted_console.is_empty() {
            consoles[0] = hosted_console;
        }
        let result = &mut record.result;
        result.outcome = match outcome {
            Ok(()) => Outcome::Completed,
            Err(failure) => Outcome::Failed(failure),
        };
        if !result.outcome.is_completed() {
            let tails: Vec<String> = consoles.iter().map(|console| tail_of(console)).collect();
            let tail = tails.join("\n");
            result.console_tail = (!tail.trim().is_empty()).then(|| tail.trim_end().to_owned());
            record.device_state = state;
        }
        result.wall_s = started.elapsed().as_secs_f64();
        result.unix_s = unix_s();
        record.console = consoles.swap_remove(0);
        record
    }
}

/// Writes down what was seen of a VM that ran elsewhere; its console.
fn keep_seen(record: &mut TrialRecord, seen: SeenVm) -> Vec<u8> {
    let is_under_test = seen.name == UNDER_TEST_VM;
    let named = |what: String| match is_under_test {
        true => what,
        false => format!("{}: {what}", seen.name),
    };
    let result = &mut record.result;
    result.facts.extend(seen.facts.into_iter().map(|(what, fact)| (named(what), fact)));
    result.warnings.extend(seen.warnings.into_iter().map(named));
    result.vcpu_affinity.extend(seen.vcpu_affinity);
    if is_under_test {
        result.qemu_args = seen.qemu_args;
    }
    if let Some(texts) = record.texts.first_mut() {
        let named = |what: String| match is_under_test {
            true => what,
            false => format!("{}-{what}", seen.name),
        };
        texts.extend(seen.texts.into_iter().map(|(what, text)| (named(what), text)));
    }
    if is_under_test { seen.console } else { Vec::new() }
}

/// The last lines of a console.
fn tail_of(console: &[u8]) -> String {
    let text = String::from_utf8_lossy(console);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(CONSOLE_TAIL_LINES)..].join("\n")
}

/// What `start` gives once its VMs, called `names`, are up. What the emulator does to a
/// booting guest is not the study's: under TCG one that never answered, panicked at a
/// breakpoint that was not there any more, or whose QEMU crashed, is started once more,
/// with a warning (docs/emulation.md). Under KVM, on an emulated host too, such a guest
/// may be what a study looks for.
pub(super) fn started_or_once_more<T>(
    lab: &LocalLab<'_>,
    accel: Accel,
    names: &[String],
    warnings: &mut Vec<String>,
    mut start: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failure = match start() {
        Err(failure) if accel == Accel::Tcg => failure,
        started => return started,
    };
    let consoles: Vec<Vec<u8>> =
        names.iter().map(|name| read_end(&console_file(lab, name), CONSOLE_KEPT_BYTES)).collect();
    let how = match failure.kind {
        FailureKind::GuestNeverAnswered => {
            format!("did not answer within {} s", lab.boot_limit().as_secs())
        }
        FailureKind::GuestPanicked if consoles.iter().any(|text| met_removed_breakpoint(text)) => {
            "panicked at a breakpoint that its kernel had taken out, as QEMU's TCG before 8.1 lets \
             it,"
            .to_owned()
        }
        // Its vCPUs may have found another map of memory than the one they knew.
        FailureKind::VmDied if failure.cause() == Some(FailureCause::QemuCrashed) => {
            format!("lost its QEMU while it booted ({})", failure.detail)
        }
        _ => return Err(failure),
    };
    let said: String = consoles.iter().map(|console| last_said(console)).collect();
    warnings.push(format!("An emulated guest {how} and was started again{said}"));
    start()
}

/// The end of a console for a warning, with what vmlab saw of the guest's vCPUs:
/// that console is written over when the guest is started again.
fn last_said(console: &[u8]) -> String {
    let text = String::from_utf8_lossy(console);
    let (ours, guests): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with(NOTE));
    let end = guests.last().map(|line| format!("; its console ends {line:?}"));
    let vcpus = ours.iter().filter_map(|line| line.strip_prefix(NOTE));
    end.into_iter().chain(vcpus.map(|line| format!("; {line}"))).collect()
}

/// A benchmark in booted guests.
struct GuestBenchmark<'a> {
    guests: TrialGuests,
    parts: TrialParts<'a>,
    cancel: Cancel,
}

impl GuestBenchmark<'_> {
    /// Invocation `run` with its counters since `before`, as it goes into the record;
    /// the counters after it.
    fn run(
        &mut self,
        run: u32,
        before: CounterSet,
        lab: &LocalLab<'_>,
        record: &mut TrialRecord,
    ) -> Result<CounterSet, Failure> {
        let mut result = self.begin(run);
        let mut texts = BTreeMap::new();
        if run == 0 {
            for (name, args) in &self.guests.other_args {
                texts.insert(format!("{name}-qemu"), args.clone().into_bytes());
            }
        }
        let outcome = self.invoke_beside(&mut result, &mut texts, &mut record.result);
        let after = match outcome {
            Ok(()) => {
                let after = self.counters(lab)?;
                result.counters = self.counted(&before, &after, lab.plan);
                Ok(after)
            }
            Err(failure) => {
                result.outcome = Outcome::Failed(failure.clone());
                Err(failure)
            }
        };
        record.result.runs.push(result);
        record.texts.push(texts);
        after
    }

    /// What was counted between two looks, and what follows from it.
    fn counted(&self, before: &CounterSet, after: &CounterSet, plan: &StudyPlan) -> CounterSet {
        let mut moved = after.since(before);
        add_ratios(&mut moved);
        let asked = plan.published_claims.iter().filter_map(|claim| match &claim.claimed {
            StudyClaimKind::CounterRatio { counter, .. } => Some(counter.as_str()),
            StudyClaimKind::Order { .. } | StudyClaimKind::FunctionShare { .. } => None,
        });
        counters::keep_longest_waits(&mut moved, asked);
        if self.parts.variant.environment.is_deterministic()
            && let Some(run_s) = moved.get("vcpu.run_s")
        {
            moved.set("vcpu.instructions", (run_s * INSTRUCTIONS_PER_S).round());
        }
        moved.merge(self.guests.memory());
        moved
    }

    /// Invocation `run`, of which nothing is known yet.
    fn begin(&mut self, run: u32) -> RunResult {
        let facts = self.guests.client().facts;
        RunResult {
            run,
            outcome: Outcome::Completed,
            command: self.parts.entry.command(&self.parts.params, &facts),
            wall_s: 0.0,
            started_unix_s: unix_s(),
            tool_version: None,
            samples: Vec::new(),
            histograms: Vec::new(),
            counters: CounterSet::default(),
            blobs: BTreeMap::new(),
        }
    }

    /// One more invocation, with perf beside it. A failure of perf's or of that
    /// invocation is told and fails no trial.
    fn profile(&mut self, lab: &LocalLab<'_>, record: &mut TrialRecord) -> Result<(), Failure> {
        let TrialParts { variant, workload, .. } = self.parts;
        let vcpus = self.guests.under_test.facts.vcpus;
        let frequency_hz = profile::frequency_hz(workload.typical_s, vcpus);
        let (guest, spec) = (&mut self.guests.under_test, &variant.spec);
        let folder = lab.runtime.path();
        let begun = Profiling::begin(guest, spec, &lab.owner, folder, frequency_hz, &self.cancel)?;
        let mut run = self.begin(workload.invocations);
        let outcome = self.invoke_beside(&mut run, &mut BTreeMap::new(), &mut record.result);
        let (sides, texts) = begun.end(&mut self.guests.under_test, &lab.owner, &self.cancel)?;
        match outcome {
            Err(failure) if self.cancel.is_cancelled() => return Err(failure),
            Err(failure) => record.result.warnings.push(format!(
                "The profiled invocation failed, which the trial's runs did not: {failure}"
            )),
            Ok(()) => {}
        }
        let samples = run.samples;
        record.result.profile = Some(TrialProfile { samples, frequency_hz, sides });
        record.profiles = texts;
        Ok(())
    }

    /// One invocation, with what runs beside it.
    fn invoke_beside(
        &mut self,
        run: &mut RunResult,
        texts: &mut BTreeMap<String, Vec<u8>>,
        trial: &mut TrialResult,
    ) -> Result<(), Failure> {
        let beside = self.parts.background.as_ref();
        let Self { guests, cancel, .. } = self;
        if let Some((entry, params)) = beside {
            guests.in_each_client(|client| {
                let argv = entry.command(params, &client.facts);
                client.beside = Some(client.repeat(argv, cancel)?);
                Ok(())
            })?;
        }
        let outcome = self.invoke(run, texts, trial);
        let Self { guests, parts, cancel } = self;
        if outcome.is_err() {
            // What the other side says of its own end tells more.
            guests.check_other(cancel)?;
        }
        outcome.map_err(|failure| guests.explain(failure))?;
        let name = parts.background.as_ref().map_or("", |(entry, _)| entry.name);
        let ended = |client: &mut RoleGuest| match client.beside.take() {
            Some(pid) => client.end(&pid, name, cancel),
            None => Ok(()),
        };
        guests.in_each_client(ended).map(drop)
    }

    /// One invocation in each guest that is measured, begun together: their output,
    /// understood.
    fn invoke(
        &mut self,
        run: &mut RunResult,
        texts: &mut BTreeMap<String, Vec<u8>>,
        trial: &mut TrialResult,
    ) -> Result<(), Failure> {
        let Self { guests, parts, cancel } = self;
        let together = Barrier::new(guests.further.len() + 1);
        // What one of them can't do ends the others: they would be measured for nothing.
        let all = cancel.of_part();
        let invocations = guests.in_each_client(|client| {
            let argv = parts.entry.command(&parts.params, &client.facts);
            together.wait();
            let invocation = Invocation::make(client, argv, parts, &all);
            if invocation.outcome.is_err() {
                all.cancel();
            }
            Ok(invocation)
        })?;
        let begun = invocations.iter().map(|one| one.begun).min();
        let ended = invocations.iter().map(|one| one.begun + one.wall).max();
        run.wall_s = begun.zip(ended).map_or(0.0, |(from, to)| (to - from).as_secs_f64());
        let overlap = invocation::overlap_percent(&invocations);
        let mut outputs = Vec::new();
        let mut failed = None;
        for (number, Invocation { texts: of_one, outcome, .. }) in (0..).zip(invocations) {
            let named = |role: String| match number {
                0 => role,
                number => format!("{}-{role}", further_name(number)),
            };
            texts.extend(of_one.into_iter().map(|(role, text)| (named(role), text)));
            match outcome {
                Ok(_) if parts.variant.left_out.contains(&number) => {}
                Ok(output) => outputs.push(output),
                Err(failure) => {
                    let is_cause = |known: &Failure| known.kind != FailureKind::Aborted;
                    failed = failed.filter(is_cause).or(Some(failure));
                }
            }
        }
        if let Some(failure) = failed {
            return Err(failure);
        }
        let parsed = invocation::together(parts, outputs);
        run.samples = parsed.samples;
        run.histograms = parsed.histograms;
        run.tool_version = parsed.tool_version;
        trial.warnings.extend(parsed.warnings);
        if overlap.is_some_and(|percent| percent < invocation::OVERLAP_WANTED) {
            trial.warnings.push(format!(
                "The VMs' workloads did not run together for {} % of the longest of them: not all \
                 that is added up was done at once. Workloads of a fixed time end together.",
                invocation::OVERLAP_WANTED
            ));
        }
        Ok(())
    }

    /// All counters now: the guests' first and last around the run.
    fn counters(&mut self, lab: &LocalLab<'_>) -> Result<CounterSet, Failure> {
        let mut all = self.guests.counters(&self.cancel)?;
        if lab.hosting.is_none() {
            all.merge(counters::read_host());
        }
        if let Some(load) = &lab.load {
            all.merge(load.counters());
        }
        Ok(all)
    }
}

impl LocalLab<'_> {
    /// Whether the host load is still what was asked for.
    fn check_load(&mut self, warnings: &mut Vec<String>) -> Result<(), Failure> {
        let online = self.online_pcpus();
        if let Some(load) = &mut self.load {
            load.check_alive().map_err(|error| load_failure(&error))?;
            let asked = load.plan().percent_of_host(online);
            if let Some(achieved) = load.achieved_percent()
                && achieved < asked * LOAD_SHORTFALL
            {
                warnings.push(format!(
                    "The host load reached less than {:.0} % of the {asked:.0} % of the host's pCPUs that were asked for.",
                    LOAD_SHORTFALL * 100.0
                ));
            }
        }
        let cancel = self.cancel.clone();
        for other in &mut self.others {
            other.check_alive(&cancel)?;
            warnings.extend_from_slice(other.warnings());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_was_started_again_leaves_where_it_was() {
        let check = |console: &str, expected: &str| {
            assert_eq!(last_said(console.as_bytes()), expected);
        };
        check("", "");
        check("[ 1.0] smp: Bringing up\n", "; its console ends \"[ 1.0] smp: Bringing up\"");
        check(
            "booting\nvmlab: it has not answered yet; its vCPUs:\nvmlab: CPU#0 RIP=81 HLT=1\n",
            "; its console ends \"booting\"; it has not answered yet; its vCPUs:; CPU#0 RIP=81 HLT=1",
        );
    }
}
