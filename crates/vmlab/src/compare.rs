//! `vmlab compare A B`: what differs, by how much, how sure is that.

mod inputs;
mod study;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use compare::analyse::{CompareOptions, ComparedData, DataWarning, analyse};
use compare::output::{self, TextStyle};
use compare::{ColumnNames, Filter, TableColumn, benchstat};
use record::BetterDirection;

use crate::exit::FINDINGS;
use crate::{across, results_folder, terminal};

/// Code of the warnings that tell what is missing from a results folder.
const DAMAGED: &str = "damaged-results";
/// Of a run in a log that failed, and is left out.
const FAILED_RUN: &str = "failed-run";

const EXAMPLES: &str = "\
Examples:
  vmlab compare old.txt new.txt                      two files of `go test -bench`
  vmlab compare --benchstat old.txt new.txt          benchstat's own table
  vmlab compare results/A results/B                  two studies of vmlab
  vmlab compare results/A                            one study: its verdicts again
  vmlab compare results/NODES                        on many nodes: does it hold on all?
  vmlab compare times.csv --variant kernel --block round
  vmlab compare runs.json                            hyperfine's commands
  vmlab compare --by workload --metric p99 A.csv B.csv --format html > page.html
  vmlab compare --gate --margin 5 base.txt new.txt   for CI: exit code 1 if worse by 5 %";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// Files or folders; NAME=FILE gives one another name, - is standard input.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// The label whose values are compared [default: variant, else the files].
    #[arg(long, value_name = "LABEL")]
    variant: Option<String>,
    /// The label that says what was measured beside each other.
    #[arg(long, value_name = "LABEL")]
    block: Option<String>,
    /// The label that says which values come from one boot.
    #[arg(long, value_name = "LABEL")]
    boot: Option<String>,
    /// Labels that make the rows [default: all that are left].
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    by: Vec<String>,
    /// The variant that the others are compared with [default: the first].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Only these metrics.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    metric: Vec<String>,
    /// Only what matches: `name:Encode /format:(json OR gob) -goos:/^plan/`.
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Which direction of a metric is better, where the data do not say.
    #[arg(long, value_name = "METRIC=lower|higher", value_delimiter = ',')]
    better: Vec<String>,
    /// A CSV file's column that is called otherwise: value, metric, unit,
    /// better or kind.
    #[arg(long, value_name = "WHAT=NAME", value_delimiter = ',')]
    column: Vec<String>,
    /// The smallest difference that matters, per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    margin: f64,
    /// The rate of false claims.
    #[arg(long, value_name = "RATE", default_value_t = 0.05)]
    alpha: f64,
    /// What to print; text and csv with --benchstat.
    #[arg(long, value_enum, default_value_t)]
    format: CompareFormat,
    /// Exit code 1 if something got worse by more than the margin.
    #[arg(long, conflicts_with = "benchstat")]
    gate: bool,
    /// Print benchstat's table with its numbers.
    #[arg(long, conflicts_with_all = ["variant", "block", "boot", "by", "baseline", "metric", "better", "column"])]
    benchstat: bool,
    /// Level of the intervals of medians, with --benchstat.
    #[arg(long, value_name = "LEVEL", default_value_t = 0.95, requires = "benchstat")]
    confidence: f64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Text for a terminal.
    #[default]
    Text,
    /// For issues and pull requests.
    Markdown,
    /// One comparison a line.
    Csv,
    /// Everything.
    Json,
    /// One self-contained page.
    Html,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    if args.benchstat {
        return run_benchstat(args);
    }
    if let Some(folder) = study::node_set(args) {
        return of_nodes(args, &folder);
    }
    let comparison = match study::folder(args) {
        Some(folder) => study::comparison(&folder)?,
        None => {
            let (set, missing) = inputs::read(&args.inputs, &columns(&args.column)?)?;
            for problem in set.data().problems() {
                terminal::note(&format!("{}:{}: {}", problem.input, problem.line, problem.text));
            }
            let mut comparison = analyse(&set, &ask(args)?)?;
            comparison.warnings.splice(0..0, missing);
            comparison
        }
    };
    print(&comparison, args.format)?;
    let is_of_less = |warning: &DataWarning| [DAMAGED, FAILED_RUN].contains(&warning.code);
    let of_less = comparison.warnings.iter().any(is_of_less);
    if args.gate && !comparison.gate.passed {
        for failure in &comparison.gate.failures {
            terminal::note(failure);
        }
        return Ok(ExitCode::from(FINDINGS));
    }
    Ok(results_folder::exit_code(of_less, ExitCode::SUCCESS))
}

/// One study on many nodes: what its report says, too, with the node as a factor.
fn of_nodes(args: &CompareArgs, folder: &Path) -> anyhow::Result<ExitCode> {
    let report = across::read(folder)?;
    let text = match args.format {
        CompareFormat::Text => across::text(&report),
        CompareFormat::Json => report.to_json(),
        CompareFormat::Markdown | CompareFormat::Csv | CompareFormat::Html => {
            bail!("{} holds many nodes: they have --format text and json", folder.display())
        }
    };
    terminal::print(&text)?;
    let groups = || report.groups.iter().flat_map(|group| &group.variants);
    // What is worse by less than the margin is no reason to stop.
    let worse = |one: &report::AcrossVariant| one.verdict == report::ShownVerdict::Worse;
    if args.gate && groups().any(worse) {
        return Ok(ExitCode::from(FINDINGS));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a comparison.
pub(crate) fn print(comparison: &ComparedData, format: CompareFormat) -> anyhow::Result<()> {
    let text = match format {
        CompareFormat::Text => {
            // Escape codes are taken out again where colours are not wanted.
            let width = terminal::is_terminal().then(terminal::width);
            return output::write_text(
                comparison,
                TextStyle { colour: true, width },
                terminal::print,
            );
        }
        CompareFormat::Markdown => output::markdown(comparison),
        CompareFormat::Csv => output::csv(comparison),
        CompareFormat::Json => output::json(comparison),
        CompareFormat::Html => output::html(comparison),
    };
    terminal::print(&text)
}

fn run_benchstat(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    if !(0.0..=1.0).contains(&args.alpha) || !(0.0..=1.0).contains(&args.confidence) {
        bail!("--alpha and --confidence lie between 0 and 1");
    }
    let set = inputs::read_benchfmt(&args.inputs)?;
    for problem in set.data().problems() {
        terminal::note(&format!("{}:{}: {}", problem.input, problem.line, problem.text));
    }
    let options = benchstat::BenchstatOptions {
        alpha: args.alpha,
        confidence: args.confidence,
        filter: filter(args)?,
    };
    let tables = benchstat::tables(&set, &options);
    drop(set);
    match args.format {
        CompareFormat::Text => terminal::print(&tables.to_text())?,
        CompareFormat::Csv => {
            let output = tables.to_csv();
            terminal::print(&output.text)?;
            output.warnings.iter().for_each(|warning| terminal::note(warning));
        }
        _ => bail!("--benchstat has --format text and csv"),
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(args: &CompareArgs) -> anyhow::Result<Option<Filter>> {
    Ok(args.filter.as_deref().map(Filter::parse).transpose()?)
}

fn ask(args: &CompareArgs) -> anyhow::Result<CompareOptions> {
    let better: anyhow::Result<BTreeMap<String, BetterDirection>> = args
        .better
        .iter()
        .map(|text| {
            let (metric, word) = text
                .rsplit_once('=')
                .with_context(|| format!("--better {text}: write METRIC=lower or METRIC=higher"))?;
            match word {
                "lower" => Ok((metric.to_owned(), BetterDirection::Lower)),
                "higher" => Ok((metric.to_owned(), BetterDirection::Higher)),
                other => bail!("--better {text}: {other:?} is neither lower nor higher"),
            }
        })
        .collect();
    Ok(CompareOptions {
        variant: args.variant.clone(),
        block: args.block.clone(),
        boot: args.boot.clone(),
        by: args.by.clone(),
        baseline: args.baseline.clone(),
        metrics: args.metric.clone(),
        filter: filter(args)?,
        better: better?,
        margin: args.margin / 100.0,
        alpha: args.alpha,
        advise_options: true,
    })
}

fn columns(texts: &[String]) -> anyhow::Result<ColumnNames> {
    texts
        .iter()
        .map(|text| {
            let (what, name) = text
                .split_once('=')
                .with_context(|| format!("--column {text}: write WHAT=NAME, e.g. value=elapsed"))?;
            let column = match what {
                "value" => TableColumn::Value,
                "metric" => TableColumn::Metric,
                "unit" => TableColumn::Unit,
                "better" => TableColumn::Better,
                "kind" => TableColumn::Kind,
                other => bail!(
                    "--column {text}: {other:?} is none of value, metric, unit, better and kind; other columns are labels by their own names"
                ),
            };
            Ok((column, name.to_owned()))
        })
        .collect()
}
