//! `vmlab facts DIR...`: what was found of the VMs, host by host: whether what
//! was asked for is in force, was refused, or was ignored without a word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use record::journal::{Event, TrialResult};
use record::{FailureKind, Outcome};
use runner::store::{self, Contents};
use serde::Serialize;

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab facts results/*                   all facts, by host and variant
  vmlab facts --fact cpu_pm results/*     where cpu_pm is in force
  vmlab facts --json results/* | jq '.[] | select(.state == \"silently ignored\")'

States: in force; accepted, not proven; silently ignored; refused by KVM (QEMU
says so and goes on); refused by QEMU (it does not start); not known (the trial
failed for another reason). Other facts are told as they are, other failures as
the fact `trial`.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FactsArgs {
    /// Results folders, of any studies and hosts.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// This fact alone.
    #[arg(long, value_name = "NAME")]
    fact: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was found of a variant on a host.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    fact: String,
    variant: String,
    kernel: String,
    qemu: String,
    state: String,
    /// What shows it; empty where the state says all.
    evidence: String,
    trials: usize,
}

pub(crate) fn run(args: &FactsArgs) -> anyhow::Result<ExitCode> {
    let mut rows: Vec<Row> = Vec::new();
    for dir in &args.dirs {
        rows.extend(rows_of(dir, args.fact.as_deref())?);
    }
    rows.sort();
    let text =
        if args.json { serde_json::to_string_pretty(&rows)? + "\n" } else { table(&rows, args) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn rows_of(dir: &Path, only: Option<&str>) -> anyhow::Result<Vec<Row>> {
    let Contents { plan, host, events, .. } = store::read(dir)?;
    let trial = |event: &Event| match event {
        Event::TrialEnded(result) => Some((**result).clone()),
        _ => None,
    };
    let trials: Vec<TrialResult> = events.iter().filter_map(trial).collect();
    let mut rows = Vec::new();
    for variant in &plan.variants {
        let wishes_cpu_pm = variant.spec.hints.cpu_pm == Some(true);
        let mut states: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
        let mut count = |fact: &str, state: String, evidence: String| {
            states.entry((fact.to_owned(), state)).or_insert((evidence, 0)).1 += 1;
        };
        for result in trials.iter().filter(|result| result.trial.variant == variant.name) {
            if let Some((fact, state, evidence)) = failed(result, wishes_cpu_pm) {
                count(fact, state, evidence);
                continue;
            }
            for (fact, value) in &result.facts {
                let more = result.facts.get(&format!("{fact}.evidence"));
                let (state, evidence) = state(value);
                let evidence = more.cloned().unwrap_or(evidence);
                if !fact.ends_with(".evidence") {
                    count(fact, state, evidence);
                }
            }
        }
        rows.extend(states.into_iter().map(|((fact, state), (evidence, trials))| Row {
            fact,
            variant: variant.name.clone(),
            kernel: host.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: plan.qemu.version.trim_start_matches("QEMU emulator version ").to_owned(),
            state,
            evidence,
            trials,
        }));
    }
    rows.retain(|row| only.is_none_or(|only| row.fact == only));
    Ok(rows)
}

/// What a trial says that came to nothing: of `cpu_pm` where it was wished and the
/// failure may be its own, else of the trial.
fn failed(result: &TrialResult, cpu_pm: bool) -> Option<(&'static str, String, String)> {
    let Outcome::Failed(failure) = &result.outcome else { return None };
    // By QEMU's names for it, and by vmlab's.
    let named = ["cpu_pm", "cpu-pm", "overcommit"].iter().any(|name| failure.detail.contains(name));
    let (fact, state) = match failure.kind {
        FailureKind::Aborted => return None,
        FailureKind::VmRefused if cpu_pm && named => ("cpu_pm", "refused by QEMU".to_owned()),
        FailureKind::NotAsClaimed if named => {
            let by_kvm = failure.detail.contains("QEMU said");
            ("cpu_pm", if by_kvm { "refused by KVM" } else { "silently ignored" }.to_owned())
        }
        other if cpu_pm => ("cpu_pm", format!("not known: {other}")),
        other => ("trial", format!("failed: {other}")),
    };
    Some((fact, state, failure.detail.lines().next().unwrap_or_default().to_owned()))
}

/// A fact's value as a state and what else it says.
fn state(value: &str) -> (String, String) {
    for (begin, state) in
        [("not proven", "accepted, not proven"), ("not in force", "silently ignored")]
    {
        if let Some(why) = value.strip_prefix(begin) {
            return (state.to_owned(), why.trim_start_matches(": ").to_owned());
        }
    }
    (value.to_owned(), String::new())
}

fn table(rows: &[Row], args: &FactsArgs) -> String {
    if rows.is_empty() {
        return match &args.fact {
            Some(fact) => format!("No trial told of {fact}.\n"),
            None => "No trial told of any fact.\n".to_owned(),
        };
    }
    let cells = |row: &Row| {
        let state = format!("{} ({})", row.state, row.trials);
        [row.fact.clone(), row.variant.clone(), row.kernel.clone(), row.qemu.clone(), state]
    };
    let head = ["fact", "variant", "host kernel", "QEMU", "state (trials)"].map(str::to_owned);
    let all: Vec<[String; 5]> = [head].into_iter().chain(rows.iter().map(cells)).collect();
    let width = |i: usize| all.iter().map(|cells| cells[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
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
