//! From a study file's path to a frozen plan: shared by `check` and `run`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use guest::Cancel;
use guest::libvirt::Uri;
use host::settings::SettingsTree;
use runner::freeze::{FrozenPlan, MachineFacts, freeze};
use runner::machine::{self, Need};
use runner::plan::StudyPlan;
use runner::study::{EndCondition, Study};
use runner::{domains, host_settings, simulated};
use serde::{Deserialize, Serialize};
use topology::Host;
use topology::bounded::{FileProblems, LineProblem};

use crate::host_file::load_host;
use crate::progress::Spinner;
use crate::{input, terminal};

/// What a command line changes of a study's budget.
#[derive(Debug, Default, Clone, clap::Args, Serialize, Deserialize)]
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
    until: Option<EndCondition>,
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

    /// As they are said on a command line.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn words(&self) -> Vec<String> {
        let until = self.until.map(|until| match until {
            EndCondition::Decided => "decided".to_owned(),
            EndCondition::Budget => "budget".to_owned(),
        });
        let said = [
            ("--blocks", self.blocks.map(|blocks| blocks.to_string())),
            ("--minutes", self.minutes.map(|minutes| minutes.to_string())),
            ("--until", until),
            ("--scale", self.scale.clone()),
            ("--seed", self.seed.map(|seed| seed.to_string())),
        ];
        let pairs = said.into_iter().filter_map(|(option, value)| Some((option, value?)));
        pairs.map(|(option, value)| format!("{option}={value}")).collect()
    }

    /// The seed that the command line names.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Orders the trials by `seed` unless the command line names another.
    pub(crate) fn seed_if_none(&mut self, seed: u64) {
        self.seed.get_or_insert(seed);
    }
}

fn until(text: &str) -> Result<EndCondition, String> {
    match text {
        "decided" => Ok(EndCondition::Decided),
        "budget" => Ok(EndCondition::Budget),
        _ => Err("must be decided or budget".to_owned()),
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes.is_finite() && minutes > 0.0 => Ok(minutes),
        _ => Err("must be a number above 0".to_owned()),
    }
}

/// A study as it is written, wherever it is to be run.
#[derive(Debug, Clone)]
pub(crate) struct StudyText {
    /// The file, as it was named.
    pub(crate) file: String,
    /// What stands in it.
    pub(crate) text: String,
    /// The folder from which it names images, wherever vmlab is started.
    pub(crate) folder: PathBuf,
}

impl StudyText {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text = input::text(path).with_context(|| format!("Cannot read the study {file}"))?;
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Ok(Self { file, text, folder })
    }

    /// The study, with what `budget` changes.
    pub(crate) fn parse(&self, budget: &BudgetArgs) -> Result<Study, FileProblems> {
        let mut study = match &budget.scale {
            Some(scale) => Study::parse_scaled(&self.file, &self.text, scale)?,
            None => Study::parse(&self.file, &self.text)?,
        };
        if budget.blocks.is_some() || budget.minutes.is_some() {
            study.budget.blocks = budget.blocks;
            study.budget.minutes = budget.minutes;
        }
        if let Some(until) = budget.until {
            study.budget.until = until;
        }
        Ok(study)
    }
}

/// A study, the machine and the plan.
pub(crate) struct PreparedStudy {
    pub(crate) machine: MachineFacts,
    pub(crate) plan: StudyPlan,
}

/// The plan of the study in `path` on this machine; nothing is built or booted.
pub(crate) fn plan(
    path: &Path,
    budget: &BudgetArgs,
    libvirt: Option<&Uri>,
) -> anyhow::Result<StudyPlan> {
    // Nothing is begun that would have to be ended in order: a signal ends it at once.
    let written = StudyText::read(path)?;
    Ok(prepare_here(&written, budget, libvirt, Need::Plan, &Cancel::new())?.plan)
}

/// The plan of a study in the simulator, and the host: the one that
/// `host` describes, else this machine. What has no model is told on standard error.
pub(crate) fn prepare_simulated(
    written: &StudyText,
    budget: &BudgetArgs,
    host: Option<&Path>,
) -> anyhow::Result<(StudyPlan, Host)> {
    let study = written.parse(budget)?;
    let host = match host {
        Some(file) => load_host(file)?,
        None => machine::this_host(),
    };
    let seed = budget.seed.or(study.seed).unwrap_or_else(machine::fresh_seed);
    let folder = &written.folder;
    let file = &written.file;
    match simulated::plan(&study, folder, host.clone(), seed, runner::unix_s()) {
        Ok(FrozenPlan { plan, warnings }) => {
            for LineProblem { line, message } in warnings {
                terminal::note(&format!("{file}:{line}: warning: {message}"));
            }
            let workloads = plan.later.iter().filter(|later| !study.later.contains(later));
            for (label, why) in workloads.chain(&plan.variants_left_out) {
                terminal::note(&format!("vmlab: {label} is left out: {why}"));
            }
            Ok((plan, host))
        }
        Err(problems) => bail!(FileProblems { file: file.clone(), problems }),
    }
}

/// Prepares a study, for whoever watches a terminal.
pub(crate) fn prepare_here(
    written: &StudyText,
    budget: &BudgetArgs,
    libvirt: Option<&Uri>,
    need: Need,
    cancel: &Cancel,
) -> anyhow::Result<PreparedStudy> {
    let spinner = Spinner::start();
    prepare(written, budget, libvirt, need, cancel, &mut |step| spinner.say(&step))
}

/// Checks and freezes a study for this machine, whose VMs a libvirt runs if one is
/// named; `say` hears what takes time, warnings go to standard error.
pub(crate) fn prepare(
    written: &StudyText,
    budget: &BudgetArgs,
    libvirt: Option<&Uri>,
    need: Need,
    cancel: &Cancel,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<PreparedStudy> {
    let study = written.parse(budget)?;
    let machine = machine::discover(&study, &written.folder, libvirt, need, cancel, say)?;
    let seed = match budget.seed.or(study.seed) {
        Some(seed) => seed,
        None => machine::fresh_seed(),
    };
    let file = written.file.clone();
    match freeze(&study, &machine, seed, runner::unix_s()) {
        Ok(FrozenPlan { plan, warnings }) => {
            for LineProblem { line, message } in warnings {
                terminal::note(&format!("{file}:{line}: warning: {message}"));
            }
            let mut refusals = host_settings::refusals(&study, &plan, &SettingsTree::live());
            refusals.extend(domains::refusals(&study, &plan, cancel)?);
            // A plan may be looked at where it can't be run.
            if need == Need::Run && !refusals.is_empty() {
                bail!(FileProblems { file, problems: refusals });
            }
            for LineProblem { line, message } in refusals {
                terminal::note(&format!(
                    "{file}:{line}: warning: a run would be refused: {message}"
                ));
            }
            Ok(PreparedStudy { machine, plan })
        }
        Err(problems) => bail!(FileProblems { file, problems }),
    }
}
