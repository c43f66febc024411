//! Scenarios: what a user writes, read into [`SimModel`]s.
//!
//! The format is versioned (`sim = 1`) and documented key by key in
//! `docs/sim.md`. All that is wrong with a file is told at once, with its line.

mod host;
mod node;
mod planned;
mod vary;
mod vm;
mod workload;

use std::cell::RefCell;

use topology::Host;
use topology::bounded::{FileProblems, LineProblem};

use crate::costs::{CostModel, MeasuredConstant, PRIORS, Prior};
use crate::model::{SimModel, SimStart, SimVm};
use crate::random::Random;
pub(crate) use node::{ScenarioNode, ScenarioValue, TableReader};

/// The version of the scenario format that this crate reads.
pub const SCENARIO_FORMAT_VERSION: u64 = 1;

/// How many draws of the priors an answer takes where a scenario says nothing.
pub const DEFAULT_DRAWS: u32 = 64;

/// The most variants times points of a sweep.
const MOST_CELLS: usize = 1_000;
/// The most steps of the tasks' programs in all of them: some hundreds of MB.
const MOST_STEPS: u64 = 10_000_000;

/// A scenario that was read and found to be sound.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// One line for people.
    pub title: String,
    /// The seed of all draws.
    pub seed: u64,
    /// Draws of the priors.
    pub draws: u32,
    /// The variant that others are compared with.
    pub baseline: String,
    /// What the meters are counted in.
    pub unit: CountUnit,
    /// What its VMs say that has no meaning here, by VM.
    pub left_out: Vec<String>,
    /// Every variant at every point of the sweep, the sweep's first point first.
    pub cells: Vec<SweepCell>,
}

/// What one count of a meter stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct CountUnit {
    /// `ops/s`, `MB/s`.
    pub name: String,
    /// How the number is found.
    pub scale: CountScale,
}

/// How counts become a number in a unit.
#[derive(Debug, Clone, PartialEq)]
pub enum CountScale {
    /// So much a count, a second.
    PerCount(f64),
    /// So that this variant's median is this value: the one number that is
    /// fitted.
    Fitted {
        /// The variant.
        variant: String,
        /// Its value.
        value: f64,
    },
    /// Seconds that so many counts take.
    SecondsFor(f64),
}

/// One variant at one point of the sweep.
#[derive(Debug, Clone)]
pub struct SweepCell {
    /// The variant's name.
    pub variant: String,
    /// `vm.vcpus = 8`; empty without a sweep.
    pub point: String,
    /// The model, with the costs' medians.
    pub model: SimModel,
    /// What is known of the costs.
    priors: Vec<Prior>,
}

impl SweepCell {
    /// The model of one draw. Draw 0 has the medians. Cells share their draws, so
    /// that they are compared with the same costs and the same chance.
    #[must_use]
    pub fn draw(&self, seed: u64, draw: u32) -> SimModel {
        let mut model = self.model.clone();
        model.seed = seed ^ u64::from(draw).wrapping_mul(0xd134_2543_de82_ef95);
        if draw > 0 {
            let mut random = Random::new(seed, 1_000 + u64::from(draw));
            let mut priors = self.priors.iter();
            model.costs = CostModel::from_each(|_| {
                priors.next().map_or(0.0, |prior| prior.draw(&mut random))
            });
        }
        model
    }
}

impl Scenario {
    /// Takes what was measured instead of the priors; what the scenario itself says of
    /// a constant stays.
    pub fn calibrate(&mut self, measured: &[MeasuredConstant]) {
        for cell in &mut self.cells {
            for (prior, default) in cell.priors.iter_mut().zip(PRIORS) {
                let found = measured.iter().find(|found| found.name == prior.name);
                if let Some(found) = found.filter(|_| prior == default) {
                    let MeasuredConstant { low, median, high, .. } = *found;
                    *prior = Prior { low, median, high, ..*prior };
                }
            }
            let mut medians = cell.priors.iter();
            cell.model.costs = CostModel::from_each(|prior| medians.next().unwrap_or(prior).median);
        }
    }
}

impl Scenario {
    /// Reads a scenario from `text`; `file` is the name that errors carry.
    /// `load_host` reads the host description that `host.file` names.
    ///
    /// # Errors
    /// [`FileProblems`] lists every problem with its line and value.
    pub fn parse(
        file: &str,
        text: &str,
        load_host: impl Fn(&str) -> Result<Host, String>,
    ) -> Result<Self, FileProblems> {
        let problems = RefCell::new(Vec::new());
        let scenario = match ScenarioNode::parse(text) {
            Ok(root) => read(&root, &load_host, &problems),
            Err(problem) => {
                problems.borrow_mut().push(problem);
                None
            }
        };
        let mut problems = problems.into_inner();
        problems.sort_by_key(|problem| problem.line);
        problems.dedup();
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(FileProblems { file: file.to_owned(), problems }),
        }
    }
}

type LoadHost<'a> = dyn Fn(&str) -> Result<Host, String> + 'a;

fn read(
    root: &ScenarioNode,
    load_host: &LoadHost<'_>,
    problems: &node::Problems,
) -> Option<Scenario> {
    let top = TableReader::new(root, "the scenario", problems);
    match top.get("sim") {
        None => {
            top.problem(1, "No version of the format: begin the scenario with `sim = 1`");
            return None;
        }
        Some(_) => {
            let version = top.whole("sim", 0, 0, u64::from(u32::MAX));
            if version != SCENARIO_FORMAT_VERSION {
                let line = top.get("sim").map_or(1, |node| node.line);
                top.problem(
                    line,
                    format!(
                        "Scenario format {version} is not known: this vmlab reads version \
                         {SCENARIO_FORMAT_VERSION}: use a newer vmlab"
                    ),
                );
                return None;
            }
        }
    }
    let title = top.text("title").map_or("", |(text, _)| text).to_owned();
    let seed = top.whole("seed", 1, 0, i64::MAX as u64);
    let draws = top.whole("draws", u64::from(DEFAULT_DRAWS), 1, 1_000) as u32;
    let variants = vary::variants(&top);
    let points = vary::points(&top);
    let baseline = match top.text("baseline") {
        None => variants.first().map(|variant| variant.name.clone()).unwrap_or_default(),
        Some((name, line)) => {
            if variants.iter().all(|variant| variant.name != name) {
                top.problem(line, format!("baseline = {name:?}: there is no such [[variant]]"));
            }
            name.to_owned()
        }
    };
    let unit = unit(&top, &variants);
    // All keys are known by now but for those that models are made from.
    for key in ["host", "vm", "workload", "duration_ms", "warmup_ms", "start"] {
        top.get(key);
    }
    top.finish();
    if variants.len() * points.len() > MOST_CELLS {
        let message = format!(
            "{} variants at {} points are more than {MOST_CELLS} cells",
            variants.len(),
            points.len()
        );
        problems.borrow_mut().push(LineProblem { line: 1, message });
        return None;
    }
    let mut cells = Vec::new();
    let mut left_out = Vec::new();
    let mut steps = 0u64;
    for point in &points {
        for variant in &variants {
            let mut tree = root.clone();
            for (key, value) in point.changes.iter().chain(&variant.changes) {
                if let Err(message) = vary::set(&mut tree, key, value) {
                    problems.borrow_mut().push(LineProblem { line: value.line, message });
                }
            }
            let (model, priors, unused) = model(&tree, load_host, problems);
            left_out.extend(unused);
            let (variant, point) = (variant.name.clone(), point.label.clone());
            steps += model.vms.iter().map(SimVm::steps).sum::<u64>();
            if steps > MOST_STEPS {
                let message = format!(
                    "The tasks of all variants at all points have more than {MOST_STEPS} steps"
                );
                problems.borrow_mut().push(LineProblem { line: 1, message });
                return None;
            }
            cells.push(SweepCell { variant, point, model, priors });
        }
        if !problems.borrow().is_empty() {
            return None;
        }
    }
    left_out.sort_unstable();
    left_out.dedup();
    Some(Scenario { title, seed, draws, baseline, unit, left_out, cells })
}

fn unit(top: &TableReader<'_>, variants: &[vary::Variant]) -> CountUnit {
    let table = top.table("unit");
    let per_count = table.number("per_count", 1e-12, 1e12);
    let seconds_for = table.number("seconds_for", 1.0, 1e15);
    let fitted = table.number("value", 1e-12, 1e15);
    let variant = table.text("variant");
    if let Some((name, line)) = variant
        && variants.iter().all(|known| known.name != name)
    {
        table.problem(line, format!("variant = {name:?}: there is no such [[variant]]"));
    }
    let given = [per_count.is_some(), seconds_for.is_some(), fitted.is_some()];
    if given.iter().filter(|given| **given).count() > 1 || fitted.is_some() != variant.is_some() {
        table.problem(
            table.line,
            "A unit has one of: per_count; seconds_for; value together with variant",
        );
    }
    let scale = match (per_count, seconds_for, fitted, variant) {
        (_, Some(counts), ..) => CountScale::SecondsFor(counts),
        (_, _, Some(value), Some((variant, _))) => {
            CountScale::Fitted { variant: variant.to_owned(), value }
        }
        (per_count, ..) => CountScale::PerCount(per_count.unwrap_or(1.0)),
    };
    let default = if seconds_for.is_some() { "s" } else { "1/s" };
    let name = table.text("name").map_or(default, |(name, _)| name).to_owned();
    table.finish();
    CountUnit { name, scale }
}

/// One cell's model, what is known of its costs, and what VMs say that has no meaning.
fn model(
    root: &ScenarioNode,
    load_host: &LoadHost<'_>,
    problems: &node::Problems,
) -> (SimModel, Vec<Prior>, Vec<String>) {
    let top = TableReader::new(root, "the scenario", problems);
    /// Ten minutes: what is simulated lasts seconds, of which each takes seconds to minutes.
    const LONGEST_MS: f64 = 600_000.0;
    let simulated = |key, default_ms: f64| {
        let ms = top.number(key, 0.0, LONGEST_MS).unwrap_or(default_ms);
        (ms * 1e6).round() as u64
    };
    let duration_ns = simulated("duration_ms", 1_500.0);
    let warmup_ns = simulated("warmup_ms", 200.0);
    if duration_ns == 0 {
        let line = top.get("duration_ms").map_or(1, |node| node.line);
        top.problem(line, "duration_ms = 0: nothing would be counted");
    }
    let start = [("random", SimStart::Random), ("aligned", SimStart::Aligned)];
    let start = top.choice("start", &start, SimStart::Random);
    let mut host = host::read(&top, load_host);
    let mut groups = std::mem::take(&mut host.groups);
    let mut left_out = Vec::new();
    let (vms, meters) = vm::read(&top, &host, &mut groups, &mut left_out);
    /// Each has a queue on each pCPU.
    const MOST_GROUP_QUEUES: usize = 1_000_000;
    if groups.len().saturating_mul(host.machine.len()) > MOST_GROUP_QUEUES {
        let message = format!(
            "{} cgroups on {} pCPUs have more than {MOST_GROUP_QUEUES} run queues",
            groups.len(),
            host.machine.len()
        );
        top.problem(1, message);
    }
    if top
        .get("vm")
        .is_none_or(|node| matches!(&node.value, ScenarioValue::List(all) if all.is_empty()))
    {
        top.problem(1, "No [[vm]]: name at least one VM to simulate");
    }
    let priors = std::mem::take(&mut host.priors);
    let mut medians = priors.iter();
    let model = SimModel {
        machine: host.machine,
        policy: host.policy,
        gang_ns: host.gang_ns,
        kvm: host.kvm,
        costs: CostModel::from_each(|prior| medians.next().unwrap_or(prior).median),
        mechanisms: host.mechanisms,
        vms,
        groups,
        host_tasks: host.tasks,
        meters,
        warmup_ns,
        duration_ns,
        seed: 0,
        start,
        map_from_ns: None,
    };
    (model, priors, left_out)
}

/// The known priors, with those that a scenario sets.
fn priors(table: &TableReader<'_>) -> Vec<Prior> {
    let read = |prior: &Prior| {
        let Some(node) = table.get(prior.name) else { return *prior };
        let known = |node: &ScenarioNode| {
            node::number_of(node).filter(|value| (0.0..=1e12).contains(value))
        };
        let bounds = match &node.value {
            node::ScenarioValue::List(items) => match items.as_slice() {
                [low, median, high] => match (known(low), known(median), known(high)) {
                    (Some(low), Some(median), Some(high)) if low <= median && median <= high => {
                        Some((low, median, high))
                    }
                    _ => None,
                },
                _ => None,
            },
            _ => known(node).map(|value| (value, value, value)),
        };
        let Some((low, median, high)) = bounds else {
            table.wrong(
                prior.name,
                node,
                "must be a number, or [low, median, high] with a tenth of the draws below and above",
            );
            return *prior;
        };
        Prior { low, median, high, ..*prior }
    };
    PRIORS.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
