//! `vmlab facts PATH...`: what was found of VMs, host by host: whether what was
//! asked for is in force, was refused, or was ignored without a word. Of trials,
//! of VMs that ran (`vmlab audit --json`), and of starts that libvirt noted.

mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use host::audit::cpu_pm::CpuPmState;
use record::journal::{JournalEvent, TrialKey, TrialResult};
use record::{CpuPmFinding, FailureCause, FailureKind, Outcome};
use runner::store::{self, Contents};
use schemars::JsonSchema;
use serde::Serialize;
use vmconfig::VmSpec;

use crate::{results_folder, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab facts results/*                   all facts, by host and variant
  vmlab facts --fact cpu_pm results/*     where cpu_pm is in force
  vmlab facts results/* audit.json /var/log/libvirt/qemu/*.log
                                          trials, VMs that ran, libvirt's starts
  vmlab facts --json results/* | jq '.[] | select(.state == \"silently ignored\")'

States: in force; accepted, not proven; silently ignored; refused by KVM (QEMU
says so and goes on); refused by QEMU (it does not start); the VM stopped; not
asked for; not known (the trial or the start failed for another reason). Other
facts are told as they are, other failures as the fact `trial`, and what is missing
from a results folder as the fact `journal`.

The column libvirt says which one started the VM, - that none did.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FactsArgs {
    /// Results folders, of any studies and hosts; what `vmlab audit --json`
    /// printed; libvirt's logs of VMs.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// This fact alone.
    #[arg(long, value_name = "NAME")]
    fact: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was found of a variant, or a VM, on a host.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
pub(crate) struct HostFactRow {
    fact: String,
    /// The variant's name, or the VM's.
    variant: String,
    /// Whether the guest began elsewhere and was taken over here. What it had there is in
    /// another row.
    migrated: bool,
    kernel: String,
    qemu: String,
    /// Version of the libvirt that started the VM.
    libvirt: Option<String>,
    state: String,
    /// What shows it; empty where the state says all.
    evidence: String,
    /// Trials or VMs.
    trials: usize,
}

/// The fact that tells of cpu-pm.
const CPU_PM: &str = "cpu_pm";
/// Its state where it was not asked for; the evidence says how the VM halts.
const NOT_ASKED_FOR: &str = "not asked for";
const UNKNOWN: &str = "unknown";
/// The fact that tells what is wrong with a results folder, and its state.
const JOURNAL: &str = "journal";
const DAMAGED: &str = "damaged";

pub(crate) fn run(args: &FactsArgs) -> anyhow::Result<ExitCode> {
    let mut rows: Vec<HostFactRow> = Vec::new();
    let mut read = BTreeSet::new();
    for path in &args.paths {
        rows.extend(if path.is_dir() { rows_of(path, &mut read)? } else { saved::rows_of(path)? });
    }
    // Whatever is asked for may stand in what is missing.
    let wanted = |row: &HostFactRow| args.fact.as_ref().is_none_or(|only| row.fact == *only);
    rows.retain(|row| wanted(row) || row.fact == JOURNAL);
    let damaged = rows.iter().any(|row| row.fact == JOURNAL);
    let rows = saved::without_surpassed(rows);
    let text =
        if args.json { serde_json::to_string_pretty(&rows)? + "\n" } else { table(&rows, args) };
    terminal::print(&text)?;
    Ok(results_folder::exit_code(damaged, ExitCode::SUCCESS))
}

/// A trial, and when it began: the bits of seconds since the Unix epoch.
type TrialRun = (TrialKey, u64);

/// The rows of a results folder; a trial that is among those `read` before, from a copy of
/// the folder, counts once.
fn rows_of(dir: &Path, read: &mut BTreeSet<TrialRun>) -> anyhow::Result<Vec<HostFactRow>> {
    let Contents { plan, host, events, damage, .. } = results_folder::read(dir)?;
    let mut trials: Vec<&TrialResult> = Vec::new();
    let mut began = BTreeMap::new();
    for event in &events {
        match event {
            JournalEvent::TrialStarted { trial, unix_s } => {
                began.insert(trial, unix_s.to_bits());
            }
            JournalEvent::TrialEnded(result) => {
                let run = began.get(&result.trial).map(|unix_s| (result.trial.clone(), *unix_s));
                if run.is_none_or(|run| read.insert(run)) {
                    trials.push(result);
                }
            }
            _ => {}
        }
    }
    let wishes_cpu_pm = |spec: &VmSpec| spec.hints.cpu_pm == Some(true);
    let study_of_cpu_pm = plan.variants.iter().any(|variant| wishes_cpu_pm(&variant.spec));
    let kernel = host.kernel.unwrap_or_else(|| UNKNOWN.to_owned());
    let qemu = plan.qemu.version.trim_start_matches("QEMU emulator version ").to_owned();
    let missing = |evidence| HostFactRow {
        fact: JOURNAL.to_owned(),
        variant: plan.study.clone(),
        migrated: false,
        kernel: kernel.clone(),
        qemu: qemu.clone(),
        libvirt: None,
        state: DAMAGED.to_owned(),
        evidence,
        trials: 0,
    };
    let mut rows: Vec<HostFactRow> = store::damage_lines(dir, &damage).map(missing).collect();
    for variant in &plan.variants {
        let wished = wishes_cpu_pm(&variant.spec);
        let mut states: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
        let mut count = |fact: &str, state: String, evidence: String| {
            states.entry((fact.to_owned(), state)).or_insert((evidence, 0)).1 += 1;
        };
        for result in trials.iter().copied().filter(|result| result.trial.variant == variant.name) {
            if let Some((fact, state, evidence)) = failed(result, wished) {
                count(fact, state, evidence);
                continue;
            }
            if study_of_cpu_pm
                && !wished
                && let Some(evidence) = halts(result)
            {
                count(CPU_PM, NOT_ASKED_FOR.to_owned(), evidence);
            }
            if let Some(finding) = CpuPmFinding::read(&result.facts) {
                let (state, evidence) = state(finding);
                count(CPU_PM, state.to_string(), evidence);
            }
            let others = result.facts.iter().filter(|(fact, _)| !CpuPmFinding::is_told_by(fact));
            for (fact, value) in others {
                count(fact, value.clone(), String::new());
            }
        }
        rows.extend(states.into_iter().map(|((fact, state), (evidence, trials))| HostFactRow {
            fact,
            variant: variant.name.clone(),
            migrated: false,
            kernel: kernel.clone(),
            qemu: qemu.clone(),
            libvirt: None,
            state,
            evidence,
            trials,
        }));
    }
    Ok(rows)
}

/// What a VM did that may halt into the host: what the same with cpu-pm is
/// compared with.
fn halts(result: &TrialResult) -> Option<String> {
    let total = |name| -> Option<f64> {
        let runs = result.runs.iter().map(|run| run.counters.get(name));
        runs.sum::<Option<f64>>().filter(|_| !result.runs.is_empty())
    };
    let (exits, idle_s) = (total("kvm.halt_exits")?, total("guest.idle_s")?);
    Some(format!("{exits:.0} halt exits in {idle_s:.1} s of idle vCPUs"))
}

/// What a trial says that came to nothing: of `cpu_pm` where it was wished and the
/// failure may be its own, else of the trial.
fn failed(result: &TrialResult, cpu_pm: bool) -> Option<(&'static str, String, String)> {
    let Outcome::Failed(failure) = &result.outcome else { return None };
    let known = match failure.cause() {
        Some(FailureCause::CpuPmRefusedByQemu) if cpu_pm => Some(CpuPmState::RefusedByQemu),
        Some(FailureCause::CpuPmRefusedByKvm) => Some(CpuPmState::RefusedByKvm),
        Some(FailureCause::CpuPmIgnored) => Some(CpuPmState::SilentlyIgnored),
        _ => None,
    };
    let (fact, state) = match (failure.kind, known) {
        (FailureKind::Aborted, _) => return None,
        (_, Some(state)) => (CPU_PM, state.to_string()),
        (other, None) if cpu_pm => (CPU_PM, format!("not known: {other}")),
        (other, None) => ("trial", format!("failed: {other}")),
    };
    Some((fact, state, failure.detail.lines().next().unwrap_or_default().to_owned()))
}

/// What a trial found of `cpu_pm` as a state and what else it says.
fn state(finding: CpuPmFinding) -> (CpuPmState, String) {
    match finding {
        CpuPmFinding::InForce { evidence } => (CpuPmState::InForce, evidence),
        CpuPmFinding::NotProven { why } => (CpuPmState::NotProven, why),
        CpuPmFinding::NotInForce { why } => (CpuPmState::SilentlyIgnored, why),
    }
}

fn table(rows: &[HostFactRow], args: &FactsArgs) -> String {
    if rows.is_empty() {
        return match &args.fact {
            Some(fact) => format!("No trial and no VM told of {fact}.\n"),
            None => "No trial and no VM told of any fact.\n".to_owned(),
        };
    }
    let cells = |row: &HostFactRow| {
        let libvirt = row.libvirt.clone().unwrap_or_else(|| "-".to_owned());
        let state = format!("{} ({})", row.state, row.trials);
        let from = if row.migrated { ", migrated" } else { "" };
        let variant = format!("{}{from}", row.variant);
        [row.fact.clone(), variant, row.kernel.clone(), row.qemu.clone(), libvirt, state]
    };
    let head =
        ["fact", "variant", "host kernel", "QEMU", "libvirt", "state (trials)"].map(str::to_owned);
    let all: Vec<[String; 6]> = [head].into_iter().chain(rows.iter().map(cells)).collect();
    let width = |i: usize| all.iter().map(|cells| cells[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for (i, cells) in all.iter().enumerate() {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
        let evidence = i.checked_sub(1).and_then(|i| rows.get(i)).map(|row| &row.evidence);
        if let Some(evidence) = evidence.filter(|evidence| !evidence.is_empty()) {
            text.push_str(&format!("    {evidence}\n"));
        }
    }
    text
}
