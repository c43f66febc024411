//! One trial: boot, pin, run, count, end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use guest::{Cancel, ExecStatusCode, GuestCommand, GuestFailure, Launch, Vm};
use host::counters::{self, VmThreads};
use record::journal::{RunResult, TrialKey, TrialResult};
use record::{CounterSet, Failure, FailureKind, Outcome};
use vmconfig::{VmSpec, qemu};
use workload::{Entry, GuestFacts, Output, Params};

use super::{LocalLab, load_failure, placement};
use crate::execute::{Progress, TrialRecord};
use crate::plan::{PlanVariant, PlanWorkload};
use crate::unix_s;

/// Lines of the console that a failure shows: a panic and its trace.
const CONSOLE_TAIL_LINES: usize = 60;

/// Lines of a failed benchmark's output that its failure shows.
const LAST_WORDS_LINES: usize = 5;

/// Most of a console that is kept, bytes.
const CONSOLE_KEPT_BYTES: usize = 1 << 20;

/// Time limit for reading the guest's counters.
const COUNTERS_LIMIT: Duration = Duration::from_secs(30);

/// A load that reaches less than this part of what was asked is worth a word.
const LOAD_SHORTFALL: f64 = 0.9;

pub(super) fn run(
    lab: &mut LocalLab<'_>,
    key: &TrialKey,
    variant: &PlanVariant,
    workload: &PlanWorkload,
    observe: &mut dyn FnMut(Progress<'_>),
) -> TrialRecord {
    let started = Instant::now();
    let mut record = TrialRecord::failed(
        key.clone(),
        Failure { kind: FailureKind::Aborted, detail: "The trial did not begin".to_owned() },
    );
    let console_log = lab.runtime.path().join("trial.console");
    let outcome = measure(lab, variant, workload, observe, &console_log, &mut record);
    record.result.outcome = match outcome {
        Ok(()) => Outcome::Completed,
        Err(failure) => Outcome::Failed(failure),
    };
    record.console = read_tail(&console_log, CONSOLE_KEPT_BYTES);
    // Gone already if the runtime folder was taken away: nothing to remove.
    drop(std::fs::remove_file(&console_log));
    if !record.result.outcome.is_completed() {
        let text = String::from_utf8_lossy(&record.console);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(CONSOLE_TAIL_LINES)..].join("\n");
        record.result.console_tail = (!tail.trim().is_empty()).then_some(tail);
    }
    record.result.wall_s = started.elapsed().as_secs_f64();
    record.result.unix_s = unix_s();
    record
}

fn measure(
    lab: &mut LocalLab<'_>,
    variant: &PlanVariant,
    workload: &PlanWorkload,
    observe: &mut dyn FnMut(Progress<'_>),
    console_log: &Path,
    record: &mut TrialRecord,
) -> Result<(), Failure> {
    let (entry, params) = workload.resolve().map_err(|error| Failure {
        kind: FailureKind::WorkloadMissing,
        detail: error.to_string(),
    })?;
    lab.check_load(&mut record.result.warnings)?;
    let cancel = lab.cancel.clone();
    let (mut vm, args) = start(lab, &variant.spec, "trial", console_log)?;
    record.result.qemu_args = args;
    placement::pin(&vm, &variant.spec)?;
    let boot_limit = Duration::from_secs_f64(lab.plan.budget.boot_limit_s);
    let boot = vm.wait_ready(boot_limit, &cancel).map_err(failure)?;
    record.result.boot_s = Some(boot.as_secs_f64());
    record.result.vcpu_affinity = placement::check(&vm, &variant.spec)?;
    observe(Progress::Booted(boot.as_secs_f64()));
    let facts = GuestFacts {
        vcpus: variant.spec.vcpus(),
        emulated: variant.environment.is_emulated_time(),
    };
    let mut bench = Bench { vm: &mut vm, entry, params: &params, facts, workload, cancel: &cancel };
    let outcome = invocations(lab, &mut bench, observe, record);
    vm.shutdown();
    outcome?;
    lab.check_load(&mut record.result.warnings)
}

/// Starts the VM of `spec`; `name` tells its sockets apart.
pub(super) fn start(
    lab: &LocalLab<'_>,
    spec: &VmSpec,
    name: &str,
    console_log: &Path,
) -> Result<(Vm, Vec<String>), Failure> {
    let folder = lab.runtime.path();
    let channels = qemu::Channels {
        qmp_socket: folder.join(format!("{name}.qmp")),
        agent_socket: folder.join(format!("{name}.agent")),
        done_socket: folder.join(format!("{name}.done")),
        console_log: console_log.to_owned(),
    };
    let emitted = qemu::emit(spec, &channels, &lab.capabilities);
    let launch = Launch {
        qemu: lab.qemu(),
        args: emitted.args.clone(),
        channels,
        env: lab.owner.env().to_vec(),
    };
    let vm = Vm::start(&launch, &lab.cancel).map_err(failure)?;
    Ok((vm, emitted.args))
}

/// A benchmark in a booted guest.
struct Bench<'a> {
    vm: &'a mut Vm,
    entry: &'static Entry,
    params: &'a Params,
    facts: GuestFacts,
    workload: &'a PlanWorkload,
    cancel: &'a Cancel,
}

fn invocations(
    lab: &LocalLab<'_>,
    bench: &mut Bench<'_>,
    observe: &mut dyn FnMut(Progress<'_>),
    record: &mut TrialRecord,
) -> Result<(), Failure> {
    let mut before = bench.counters(lab)?;
    for run in 0..bench.workload.invocations {
        observe(Progress::RunStarted(run, bench.workload.invocations));
        let mut result = RunResult {
            run,
            outcome: Outcome::Completed,
            command: bench.entry.command(bench.params, &bench.facts),
            wall_s: 0.0,
            started_unix_s: unix_s(),
            tool_version: None,
            samples: Vec::new(),
            counters: CounterSet::default(),
            blobs: BTreeMap::new(),
        };
        let mut texts = BTreeMap::new();
        let outcome = bench.invoke(&mut result, &mut texts, &mut record.result);
        if let Err(failure) = &outcome {
            result.outcome = Outcome::Failed(failure.clone());
        } else {
            let after = bench.counters(lab)?;
            result.counters = after.since(&before);
            before = after;
        }
        record.result.runs.push(result);
        record.texts.push(texts);
        outcome?;
    }
    Ok(())
}

impl Bench<'_> {
    /// One invocation: its output, understood.
    fn invoke(
        &mut self,
        run: &mut RunResult,
        texts: &mut BTreeMap<String, Vec<u8>>,
        trial: &mut TrialResult,
    ) -> Result<(), Failure> {
        let limit = Duration::from_secs_f64(self.workload.limit_s);
        let command = GuestCommand::new(run.command.clone(), limit);
        let output = match self.vm.exec(&command, self.cancel) {
            Ok(output) => output,
            Err(error) => {
                if let GuestFailure::TimeLimit { output, .. } = &error
                    && let Some(output) = output.as_ref()
                {
                    texts.insert("stdout".to_owned(), output.stdout.clone());
                    texts.insert("stderr".to_owned(), output.stderr.clone());
                }
                return Err(failure(error));
            }
        };
        run.wall_s = output.wall.as_secs_f64();
        let (stdout, stderr) = (output.stdout_text(), output.stderr_text());
        let (status, success) = (output.status, output.success());
        texts.insert("stdout".to_owned(), output.stdout);
        texts.insert("stderr".to_owned(), output.stderr);
        if !success {
            let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
            return Err(Failure {
                kind: FailureKind::WorkloadFailed,
                detail: format!("{} {}: {}", self.entry.name, how(status), last_words(said)),
            });
        }
        let output = Output { stdout: &stdout, stderr: &stderr };
        let parsed = self.entry.parse(output, self.params, &self.facts).map_err(|error| {
            let detail = format!("{}: {error}", self.entry.name);
            Failure { kind: FailureKind::OutputNotUnderstood, detail }
        })?;
        run.samples = parsed.samples;
        run.tool_version = parsed.tool_version;
        trial.warnings.extend(parsed.warnings);
        Ok(())
    }

    /// All counters now: the guest's first and last around the run.
    fn counters(&mut self, lab: &LocalLab<'_>) -> Result<CounterSet, Failure> {
        let command = GuestCommand::new(["cat", "/proc/stat", "/proc/interrupts"], COUNTERS_LIMIT);
        let text = self.vm.exec(&command, self.cancel).map_err(failure)?.stdout_text();
        // The table of interrupts begins with the row of vCPU names.
        let split = text.find("\n  ").map_or(text.len(), |at| at + 1);
        let (stat, interrupts) = text.split_at(split);
        let mut all = counters::parse_guest(stat, interrupts, self.facts.vcpus);
        let threads = VmThreads { pid: self.vm.pid(), vcpu_tids: self.vm.vcpu_tids().to_vec() };
        all.merge(counters::read_vm(&threads));
        all.merge(counters::read_host());
        let kvm = self.vm.query_stats(self.cancel).map_err(failure)?;
        all.merge(CounterSet(kvm));
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
        }
        Ok(())
    }
}

/// The end of what a program said; its last line alone is often but a hint to
/// look at its help.
pub(super) fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "no output".to_owned();
    }
    lines[lines.len().saturating_sub(LAST_WORDS_LINES)..].join("\n")
}

fn how(status: ExecStatusCode) -> String {
    match status {
        ExecStatusCode::Exited(status) => format!("ended with status {status}"),
        ExecStatusCode::Signalled(signal) => format!("was ended by signal {signal}"),
    }
}

/// A guest's failure as records hold it.
pub(super) fn failure(error: GuestFailure) -> Failure {
    let kind = match &error {
        GuestFailure::Refused { .. } => FailureKind::VmRefused,
        GuestFailure::NeverAnswered { .. } => FailureKind::GuestNeverAnswered,
        GuestFailure::Panicked { .. } => FailureKind::GuestPanicked,
        GuestFailure::Shutdown { .. } => FailureKind::GuestShutdown,
        GuestFailure::Hung { .. } | GuestFailure::Agent { .. } => FailureKind::GuestHung,
        GuestFailure::Died { .. } => FailureKind::VmDied,
        GuestFailure::TimeLimit { .. } => FailureKind::TimeLimit,
        GuestFailure::OutputTooLarge { .. } => FailureKind::OutputTooLarge,
        GuestFailure::ProgramMissing { .. } => FailureKind::WorkloadMissing,
        GuestFailure::Cancelled(_) => FailureKind::Aborted,
    };
    let detail = error.to_string();
    // Shown behind its kind, which is not said twice.
    let detail = detail.strip_prefix(&format!("{kind}: ")).unwrap_or(&detail).to_owned();
    Failure { kind, detail }
}

fn read_tail(path: &Path, bytes: usize) -> Vec<u8> {
    // A VM that never started has no console: that is no console, not an error.
    let mut text = std::fs::read(path).unwrap_or_default();
    let cut = text.len().saturating_sub(bytes);
    text.drain(..cut);
    text
}
