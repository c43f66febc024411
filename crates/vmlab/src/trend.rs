//! `vmlab trend DIR...`: the same study over time, and since when it changed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use report::TerminalStyle;
use report::trend::{self, Trend, TrendSubject};
use runner::{store, summary};
use stats::ChangeRule;

use crate::exit::FINDINGS;
use crate::{results_folder, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab trend results/nightly-*
  vmlab trend results                 every results folder in it
  vmlab trend results --ratio         follow ratios to the baseline: what the
                                      host itself did cancels out
  vmlab trend results --html trend.html
  vmlab trend results --json | jq '.series[] | select(.changes != [])'

A change is named where the results before it and after it differ by more than
--min-percent and by Student's t at --p, together with what else changed then:
kernel, QEMU, guest image. It takes three results on each side.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrendArgs {
    /// Results folders, or folders that hold some.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Follow the ratios to the baseline instead of the values.
    #[arg(long)]
    ratio: bool,
    /// Smallest change that is of interest, percent.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    min_percent: f64,
    /// Greatest p value of a change.
    #[arg(long, value_name = "P", default_value = "0.001", value_parser = p_value)]
    p: f64,
    /// Write a page with a picture of each series.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if something has become worse.
    #[arg(long)]
    gate: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "must be a number of at least 0".to_owned())
}

fn p_value(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value < 1.0);
    value.ok_or_else(|| "must be between 0 and 1".to_owned())
}

pub(crate) fn run(args: &TrendArgs) -> anyhow::Result<ExitCode> {
    let (mut results, mut damaged) = (BTreeMap::new(), false);
    for dir in folders(&args.dirs)? {
        let contents = results_folder::read(&dir)?;
        damaged |= !contents.damage.is_empty();
        let events = contents.events.len();
        let report = summary::report(&dir, &contents);
        let dir = dir.display().to_string();
        // A plan is one run's: another folder with it is a copy, perhaps of an earlier state.
        match results.entry(contents.plan.hash()) {
            Entry::Vacant(place) => {
                place.insert((events, dir, report));
            }
            Entry::Occupied(mut known) => {
                let (first, held) = (&known.get().1, known.get().0);
                terminal::note(&format!(
                    "vmlab: {first} and {dir} hold the same run, which counts once"
                ));
                if events > held {
                    known.insert((events, dir, report));
                }
            }
        }
    }
    let reports = results.into_values().map(|(_, dir, report)| (dir, report)).collect();
    let of = if args.ratio { TrendSubject::Ratio } else { TrendSubject::Value };
    let rule = ChangeRule { max_p: args.p, min_change: (args.min_percent / 100.0).ln_1p() };
    let trend = Trend::new(reports, of, &rule);
    if let Some(file) = &args.html {
        fs::write(file, trend::html(&trend))
            .with_context(|| format!("Cannot write {}", file.display()))?;
    }
    let text = if args.json {
        trend.to_json()
    } else {
        trend::terminal(&trend, terminal::width(), TerminalStyle { colour: true })
    };
    terminal::print(&text)?;
    let found = damaged || args.gate && trend.is_worse_now();
    Ok(if found { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

/// The results folders that `dirs` are or hold, each once.
fn folders(dirs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for dir in dirs {
        if store::is_results(dir) {
            folders.push(dir.clone());
            continue;
        }
        let inside = results_in(dir)?;
        if inside.is_empty() {
            bail!(
                "{} is no results folder and holds none: name folders that `vmlab run` made",
                dir.display()
            );
        }
        folders.extend(inside);
    }
    folders.sort();
    folders.dedup();
    Ok(folders)
}

fn results_in(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("Cannot read {}", dir.display()))?;
    let mut inside = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("Cannot read {}", dir.display()))?.path();
        if store::is_results(&path) {
            inside.push(path);
        }
    }
    Ok(inside)
}
