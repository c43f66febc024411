//! `vmlab report DIR`: the verdicts of a results folder, computed anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use report::{CellResults, Report, ReportVariant, ShownVerdict, TerminalStyle, VariantRole};
use runner::store::{self, Contents};
use runner::verify::Verification;
use runner::{node_set, summary};

use crate::exit::{FINDINGS, NOT_FINAL};
use crate::results_folder::{self, records};
use crate::{across, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab report results/quickstart-20260101-120000
  vmlab report DIR --format csv > samples.csv
  vmlab report DIR --format html > report.html
  vmlab report DIR --prices prices.json      differences in seconds, by vmlab calibrate
  vmlab report DIR --verify
  vmlab report NODES                         of many nodes (`vmlab run --on k8s`)
  vmlab report DIR --format json | jq '.groups[].cells[].judgement'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// The results folder, or that of many nodes.
    dir: PathBuf,
    /// What to print.
    #[arg(long, value_enum, default_value_t)]
    format: ReportFormat,
    /// Only check that the folder is what was written: plan, journal, and every
    /// text that the journal names. With --format text or json.
    #[arg(long)]
    verify: bool,
    /// The price list of the study's host, as `vmlab calibrate` writes it: what the
    /// counters that moved make in seconds [default: calibration.json in DIR].
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    demand: Demand,
}

/// What a script needs of a study's answer.
#[derive(Debug, Args)]
pub(crate) struct Demand {
    /// Exit code 3 if a comparison of a primary metric is not decided yet, or
    /// not valid.
    #[arg(long)]
    pub(crate) require_decision: bool,
}

#[derive(Debug, Default, Clone, Copy, ValueEnum)]
enum ReportFormat {
    /// Text for a terminal.
    #[default]
    Text,
    /// One self-contained page.
    Html,
    /// Everything that the report shows.
    Json,
    /// All samples, one a line.
    Csv,
    /// All samples as a JSON array.
    SamplesJson,
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    if args.verify {
        return verify(args);
    }
    if node_set::is_node_set(&args.dir) {
        return of_nodes(args);
    }
    let mut contents = results_folder::read(&args.dir)?;
    if let Some(prices) = &args.prices {
        contents.prices = Some(store::read_prices(prices)?);
    }
    let report = summary::report(&args.dir, &contents);
    let text = match args.format {
        ReportFormat::Text => text(&report),
        ReportFormat::Html => report::html(&report),
        ReportFormat::Json => report.to_json(),
        ReportFormat::Csv => report::csv(&records(&contents)),
        ReportFormat::SamplesJson => report::json(&records(&contents)),
    };
    terminal::print(&text)?;
    Ok(exit_code(&report, &args.demand))
}

/// The report of a study on many nodes.
fn of_nodes(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    if args.prices.is_some() {
        bail!("--prices: {} holds many hosts, and each has prices of its own", args.dir.display());
    }
    let report = across::read(&args.dir)?;
    let text = match args.format {
        ReportFormat::Text => across::text(&report),
        ReportFormat::Json => report.to_json(),
        ReportFormat::Html | ReportFormat::Csv | ReportFormat::SamplesJson => bail!(
            "{} holds many nodes: --format text and json are of all, the others of each folder in {}/nodes",
            args.dir.display(),
            args.dir.display()
        ),
    };
    terminal::print(&text)?;
    Ok(across::exit_code(&report, args.demand.require_decision))
}

fn verify(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let verified = runner::verify::verify(&args.dir)?;
    let text = match args.format {
        ReportFormat::Text => {
            let Verification { events, trials, texts, findings, .. } = &verified;
            let lines = findings.iter().map(|finding| format!("{finding}\n"));
            let end = match findings.len() {
                0 => "all is as it was written".to_owned(),
                1 => "1 finding".to_owned(),
                many => format!("{many} findings"),
            };
            let sum = format!("{events} events, {trials} trials, {texts} texts: {end}\n");
            lines.chain([sum]).collect()
        }
        ReportFormat::Json => serde_json::to_string_pretty(&verified)? + "\n",
        ReportFormat::Html | ReportFormat::Csv | ReportFormat::SamplesJson => {
            bail!("--verify has --format text and json")
        }
    };
    terminal::print(&text)?;
    Ok(results_folder::exit_code(!verified.findings.is_empty(), ExitCode::SUCCESS))
}

/// The report for the terminal.
pub(crate) fn text(report: &Report) -> String {
    // Escape codes are taken out again where colours are not wanted.
    report::terminal(report, terminal::width(), TerminalStyle { colour: true })
}

/// Writes the report and the exports beside the journal.
pub(crate) fn write_files(dir: &Path, contents: &Contents, report: &Report) -> anyhow::Result<()> {
    let rows = records(contents);
    store::write_derived(dir, "samples.csv", report::csv(&rows).as_bytes())?;
    store::write_derived(dir, "samples.json", report::json(&rows).as_bytes())?;
    store::write_derived(dir, "report.json", report.to_json().as_bytes())?;
    store::write_derived(dir, "report.html", report::html(report).as_bytes())?;
    Ok(())
}

/// Findings are failed trials, a baseline that differs from itself and a damaged
/// journal. That
/// nothing was decided is an answer, too, unless a decision is demanded.
pub(crate) fn exit_code(report: &Report, demand: &Demand) -> ExitCode {
    if has_findings(report) {
        ExitCode::from(FINDINGS)
    } else if demand.require_decision && !is_final(report) {
        ExitCode::from(NOT_FINAL)
    } else {
        ExitCode::SUCCESS
    }
}

fn has_findings(report: &Report) -> bool {
    let differs = |verdict| match verdict {
        ShownVerdict::Better
        | ShownVerdict::Worse
        | ShownVerdict::SlightlyBetter
        | ShownVerdict::SlightlyWorse => true,
        ShownVerdict::Equivalent | ShownVerdict::NotDecided | ShownVerdict::Invalid => false,
    };
    let alarms = report.groups.iter().flat_map(|group| &group.cells).any(|cell| {
        is_aa_arm(report, cell) && cell.judgement.as_ref().is_some_and(|j| differs(j.verdict))
    });
    alarms || !report.failures.is_empty() || !report.damage.is_empty()
}

/// True if more blocks, or a quieter host, would change no primary metric's verdict.
fn is_final(report: &Report) -> bool {
    let open = |cell: &CellResults| match cell.judgement.as_ref().map(|judgement| judgement.verdict)
    {
        Some(ShownVerdict::Invalid) => true,
        // An A/A arm that shows no difference is what it shall be.
        Some(ShownVerdict::NotDecided) => !is_aa_arm(report, cell),
        Some(_) | None => false,
    };
    !report.groups.iter().filter(|group| group.primary).flat_map(|group| &group.cells).any(open)
}

fn is_aa_arm(report: &Report, cell: &CellResults) -> bool {
    let is_it =
        |known: &ReportVariant| known.name == cell.variant && known.role == VariantRole::AaArm;
    report.variants.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use ::report::TrialFailure;
    use record::journal::TrialKey;
    use record::{Failure, FailureKind};

    use super::*;

    /// A report with one variant beside its baseline, of `role`.
    fn report(verdict: &str, role: &str, primary: bool) -> Report {
        let span = r#"{"centre": 0.9, "interval": null}"#;
        let variant = |name: &str, role: &str| {
            format!(
                r#"{{"name": "{name}", "summary": "", "role": "{role}", "qemu_lines": [],
                    "losses": []}}"#
            )
        };
        let text = format!(
            r#"{{"version": 1, "study": "s", "title": "s", "question": null,
                "environment": "kvm", "environment_why": null, "about": [], "host": null,
                "method": {{"seed": 1, "blocks_planned": 6, "blocks_done": 6, "test": "",
                            "level": 0.95, "ended": null, "wall_s": null}},
                "variants": [{}, {}], "loads": [], "workloads": [],
                "groups": [{{"load": "idle", "workload": "hackbench",
                    "metric": {{"name": "time", "unit": "s", "better": "lower", "kind": "time"}},
                    "primary": {primary}, "margin": null,
                    "cells": [{{"variant": "b", "boots": [], "estimate": null, "judgement": {{
                        "ratio": {span}, "blocks": 6, "p": null, "verdict": "{verdict}",
                        "notes": []}}}}],
                    "movers": [], "published": []}}],
                "failures": [], "warnings": [], "reproduce": [], "files": []}}"#,
            variant("a", "baseline"),
            variant("b", role)
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_decision_is_missed_only_where_it_is_demanded() {
        let check = |verdict, role, primary, expected, demanded| {
            let report = report(verdict, role, primary);
            let code = |require_decision| exit_code(&report, &Demand { require_decision });
            let said = format!("{verdict} {role} {primary}");
            assert_eq!(code(false), ExitCode::from(expected), "{said}");
            assert_eq!(code(true), ExitCode::from(demanded), "{said}, demanded");
        };
        check("better", "candidate", true, 0, 0);
        check("equivalent", "candidate", true, 0, 0);
        check("not-decided", "candidate", true, 0, NOT_FINAL);
        check("invalid", "candidate", true, 0, NOT_FINAL);
        check("not-decided", "candidate", false, 0, 0);
        check("not-decided", "aa-arm", true, 0, 0);
        check("invalid", "aa-arm", true, 0, NOT_FINAL);
        check("slightly-worse", "aa-arm", true, FINDINGS, FINDINGS);
    }

    #[test]
    fn failed_trials_are_findings_whatever_was_decided() {
        let mut failed = report("better", "candidate", true);
        failed.failures.push(TrialFailure {
            trial: TrialKey {
                id: "0".to_owned(),
                block: 0,
                attempt: 0,
                load: "idle".to_owned(),
                workload: "hackbench".to_owned(),
                variant: "b".to_owned(),
                order: 0,
            },
            failure: Failure::new(FailureKind::VmDied, String::new()),
            console_tail: None,
            console_file: None,
            state_file: None,
        });
        for require_decision in [false, true] {
            let code = exit_code(&failed, &Demand { require_decision });
            assert_eq!(code, ExitCode::from(FINDINGS));
        }
    }
}
