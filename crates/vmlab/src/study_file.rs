//! From a study file's path to a frozen plan: shared by `check` and `run`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use guest::Cancel;
use host::settings::Tree;
use runner::freeze::{Frozen, Machine, freeze};
use runner::host_settings;
use runner::machine::{self, Need};
use runner::study::{ParseStudyError, Problem, Study, Until};

use crate::progress::Spinner;
use crate::terminal;

/// What a command line changes of a study's budget.
#[derive(Debug, Default, Clone, clap::Args)]
pub(crate) struct BudgetArgs {
    /// Blocks for each load level, instead of the study's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    /// Minutes for the whole study, instead of the study's.
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<f64>,
    /// When to end: `decided`, as soon as every comparison is, or `budget`,
    /// when it is used up.
    #[arg(long, value_name = "WHEN", value_parser = until)]
    until: Option<Until>,
    /// The size of the study, one of its `[scale.NAME]`; in full if not given.
    #[arg(long, value_name = "NAME")]
    scale: Option<String>,
    /// Order the trials by this seed, instead of the study's or a fresh one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl BudgetArgs {
    /// The blocks that the command line names.
    pub(crate) fn blocks(&self) -> Option<u32> {
        self.blocks
    }
}

fn until(text: &str) -> Result<Until, String> {
    match text {
        "decided" => Ok(Until::Decided),
        "budget" => Ok(Until::Budget),
        _ => Err("must be decided or budget".to_owned()),
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes.is_finite() && minutes > 0.0 => Ok(minutes),
        _ => Err("must be a number above 0".to_owned()),
    }
}

/// A study, the machine and the plan.
pub(crate) struct Prepared {
    pub(crate) machine: Machine,
    pub(crate) plan: runner::plan::Plan,
}

/// Reads, checks and freezes the study in `path`; warnings go to standard
/// error.
pub(crate) fn prepare(
    path: &Path,
    budget: &BudgetArgs,
    need: Need,
    cancel: &Cancel,
) -> anyhow::Result<Prepared> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("Cannot read the study {file}"))?;
    let mut study = match &budget.scale {
        Some(scale) => Study::parse_scaled(&file, &text, scale)?,
        None => Study::parse(&file, &text)?,
    };
    if budget.blocks.is_some() || budget.minutes.is_some() {
        study.budget.blocks = budget.blocks;
        study.budget.minutes = budget.minutes;
    }
    if let Some(until) = budget.until {
        study.budget.until = until;
    }
    // Images are named from the study's folder, wherever vmlab is started.
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let spinner = Spinner::start();
    let found = machine::discover(&study, &folder, need, cancel, &mut |step| spinner.say(&step));
    drop(spinner);
    let machine = found?;
    let seed = match budget.seed.or(study.seed) {
        Some(seed) => seed,
        None => machine::fresh_seed(),
    };
    match freeze(&study, &machine, seed, runner::unix_s()) {
        Ok(Frozen { plan, warnings }) => {
            for Problem { line, message } in warnings {
                terminal::note(&format!("{file}:{line}: warning: {message}"));
            }
            let refusals = host_settings::refusals(&study, &plan, &Tree::live());
            // A plan may be looked at where it can't be run.
            if need == Need::Run && !refusals.is_empty() {
                bail!(ParseStudyError { file, problems: refusals });
            }
            for Problem { line, message } in refusals {
                terminal::note(&format!(
                    "{file}:{line}: warning: a run would be refused: {message}"
                ));
            }
            Ok(Prepared { machine, plan })
        }
        Err(problems) => bail!(ParseStudyError { file, problems }),
    }
}
