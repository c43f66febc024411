//! `vmlab report DIR`: the verdicts of a results folder, computed anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use report::{Report, Style, Verdict};
use runner::execute::State;
use runner::store::{self, Contents};
use runner::{results, summary};

use crate::{FINDINGS, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab report results/quickstart-20260101-120000
  vmlab report DIR --format csv > samples.csv
  vmlab report DIR --format html > report.html
  vmlab report DIR --format json | jq '.groups[].cells[].judgement'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// The results folder.
    dir: PathBuf,
    /// What to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Default, Clone, Copy, ValueEnum)]
enum Format {
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
    let contents = store::read(&args.dir)?;
    let report = summary::report(&args.dir, &contents);
    let text = match args.format {
        Format::Text => text(&report),
        Format::Html => report::html(&report),
        Format::Json => report.to_json(),
        Format::Csv => report::csv(&records(&contents)),
        Format::SamplesJson => report::json(&records(&contents)),
    };
    terminal::print(&text)?;
    Ok(exit_code(&report))
}

fn records(contents: &Contents) -> Vec<record::Record> {
    let state = State::from_events(&contents.events);
    results::records(&contents.plan, &results::trials(&contents.events, &state))
}

/// The report for the terminal.
pub(crate) fn text(report: &Report) -> String {
    // Escape codes are taken out again where colours are not wanted.
    report::terminal(report, terminal::width(), Style { colour: true })
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

/// Findings are failed trials, comparisons that can't be made, and a baseline
/// that differs from itself.
pub(crate) fn exit_code(report: &Report) -> ExitCode {
    let is_aa = |variant: &str| {
        report
            .variants
            .iter()
            .any(|known| known.name == variant && known.role == report::Role::AaArm)
    };
    let found = report.groups.iter().flat_map(|group| &group.cells).any(|cell| {
        let verdict = cell.judgement.as_ref().map(|judgement| judgement.verdict);
        match verdict {
            Some(Verdict::Invalid) => true,
            Some(
                Verdict::Better | Verdict::Worse | Verdict::SlightlyBetter | Verdict::SlightlyWorse,
            ) => is_aa(&cell.variant),
            Some(Verdict::Equivalent | Verdict::NotDecided) | None => false,
        }
    });
    if found || !report.failures.is_empty() { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS }
}
