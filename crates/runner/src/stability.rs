//! Was the host steady during a block? The rules are fixed in the plan, before
//! anything is measured, and know nothing of what the benchmark said.
//!
//! A block in which they find something is repeated whole: repeating one trial
//! of it would keep the quiet boots of one variant and not those of another.

use record::HostWatch;
use record::journal::{Event, TrialResult};
use serde::{Deserialize, Serialize};

use crate::plan::{Block, Plan};
use crate::study::Load;

/// Limits beyond which a block is not counted. Percent throughout.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Whether an unsteady block is done again.
    pub repeat: bool,
    /// Time that the host's own hypervisor took, of the VM's pCPUs' time.
    pub steal_percent: f64,
    /// Time that others used on an idle host, of the VM's pCPUs' time.
    pub foreign_percent: f64,
    /// Time that vCPUs waited for a pCPU on an idle host, of the time that
    /// they wanted to run.
    pub run_delay_percent: f64,
    /// Time in which something waited for memory.
    pub memory_pressure_percent: f64,
    /// Change of the pCPUs' clock from before to after a trial.
    pub clock_percent: f64,
    /// Difference of a canary from the median of all before it.
    pub canary_percent: f64,
    /// Part of all blocks that may be unsteady before nothing is claimed.
    pub unsteady_blocks_percent: f64,
}

impl Default for Rules {
    /// Wide enough for a machine that does a little else, so that what they
    /// find is worth a block.
    fn default() -> Self {
        Self {
            repeat: true,
            steal_percent: 2.0,
            foreign_percent: 10.0,
            run_delay_percent: 20.0,
            memory_pressure_percent: 5.0,
            clock_percent: 10.0,
            canary_percent: 15.0,
            unsteady_blocks_percent: 20.0,
        }
    }
}

impl Rules {
    /// The limits by their keys, percent.
    #[must_use]
    pub fn limits(&self) -> [(&'static str, f64); 7] {
        [
            ("steal_percent", self.steal_percent),
            ("foreign_percent", self.foreign_percent),
            ("run_delay_percent", self.run_delay_percent),
            ("memory_pressure_percent", self.memory_pressure_percent),
            ("clock_percent", self.clock_percent),
            ("canary_percent", self.canary_percent),
            ("unsteady_blocks_percent", self.unsteady_blocks_percent),
        ]
    }
}

/// Canaries that must have been seen before one can be out of line.
const CANARIES_NEEDED: usize = 8;

/// Robust standard deviations by which a canary must differ from the others.
const CANARY_DEVIATIONS: f64 = 3.0;

/// What was over one limit in the trials of a block.
struct Over {
    what: &'static str,
    after: &'static str,
    limit: f64,
    /// The variant of each such trial, and by how many percent it was off.
    trials: Vec<(String, f64)>,
}

impl Over {
    /// One trial is named; many are told by their range.
    fn text(&self, trials_in_block: usize) -> String {
        let Self { what, after, limit, trials } = self;
        let percents = || trials.iter().map(|(_, percent)| *percent);
        let least = percents().fold(f64::INFINITY, f64::min).round();
        let most = percents().fold(0.0, f64::max).round();
        let range = if least < most { format!("{least} to {most} %") } else { format!("{most} %") };
        match &trials[..] {
            [(variant, _)] => format!("{variant}: {what} {range}{after} (limit {limit} %)"),
            _ => format!(
                "{what} {range}{after} (limit {limit} %) in {} of {trials_in_block} trials",
                trials.len()
            ),
        }
    }
}

/// Says by how much the canaries of some trials were off; nothing of none.
fn canaries_text(mut off: Vec<(&str, f64)>, trials_in_block: usize) -> Option<String> {
    let word = |change: f64| {
        let word = if change > 0.0 { "longer" } else { "less" };
        format!("{:.0} % {word}", change.abs() * 100.0)
    };
    off.sort_by(|a, b| a.1.total_cmp(&b.1));
    match off[..] {
        [] => None,
        [(variant, change)] => {
            Some(format!("{variant}: a canary took {} than usual", word(change)))
        }
        [(_, least), .., (_, most)] => Some(format!(
            "canaries took from {} to {} than usual in {} of {trials_in_block} trials",
            word(least),
            word(most),
            off.len()
        )),
    }
}

/// What was unsteady in `block`, one short text each; empty if it was steady.
///
/// `earlier` are the trials before it under the same load, counted or not.
fn unsteady(
    rules: &Rules,
    load: &Load,
    block: &[&TrialResult],
    earlier: &[&TrialResult],
) -> Vec<String> {
    let canaries: Vec<f64> = earlier.iter().copied().flat_map(canaries).collect();
    let mut found = Vec::new();
    let mut over: Vec<Over> = Vec::new();
    let mut off: Vec<(&str, f64)> = Vec::new();
    for trial in block {
        let Some(watch) = &trial.watch else { continue };
        let mut exceeds = |what, after, limit, part: Option<f64>| {
            let Some(percent) = part.map(|part| part * 100.0).filter(|part| *part > limit) else {
                return;
            };
            let one = (trial.trial.variant.clone(), percent);
            match over.iter_mut().find(|known| known.what == what) {
                Some(known) => known.trials.push(one),
                None => over.push(Over { what, after, limit, trials: vec![one] }),
            }
        };
        // What a load level does to the VM is what it is there for.
        if load.is_quiet() {
            exceeds("others used", " of the time", rules.foreign_percent, foreign(watch));
            let delay = run_delay(trial);
            exceeds("vCPUs waited for a pCPU for", " of the time", rules.run_delay_percent, delay);
        }
        exceeds("the host's hypervisor took", "", rules.steal_percent, steal(watch));
        let limit = rules.memory_pressure_percent;
        exceeds("something waited for memory for", "", limit, memory(watch));
        exceeds("the clock changed by", "", rules.clock_percent, clock_change(watch));
        let mut say = |what: String| found.push(format!("{}: {what}", trial.trial.variant));
        if let Some(events) = watch.throttles.filter(|events| *events > 0.0) {
            say(format!("the pCPUs were throttled {events} time(s)"));
        }
        let change = worst_canary(rules, watch, &canaries);
        off.extend(change.map(|change| (&*trial.trial.variant, change)));
    }
    let mut texts: Vec<String> = over.iter().map(|over| over.text(block.len())).collect();
    texts.append(&mut found);
    texts.extend(canaries_text(off, block.len()));
    texts
}

/// Unsteady blocks that are borne with, however few blocks there are.
const FEW: u32 = 2;

/// True if more of the `finished` blocks were unsteady than the rules bear.
#[must_use]
pub fn is_host_unsteady(rules: &Rules, unsteady: u32, finished: u32) -> bool {
    let limit = f64::from(finished) * rules.unsteady_blocks_percent / 100.0;
    unsteady > FEW && f64::from(unsteady) > limit
}

/// What was unsteady in `block`, whose trials brought `results`; `events` are
/// the journal's before it.
#[must_use]
pub fn of_block(
    plan: &Plan,
    block: &Block,
    results: &[TrialResult],
    events: &[Event],
) -> Vec<String> {
    if plan.environment().is_deterministic() {
        // Whatever disturbs does so in every run, at the same instruction.
        return Vec::new();
    }
    let load = &plan.loads[block.load];
    let earlier = events.iter().filter_map(|event| match event {
        Event::TrialEnded(result) if result.trial.load == load.name => Some(&**result),
        _ => None,
    });
    let results: Vec<&TrialResult> = results.iter().collect();
    unsteady(&plan.stability, load, &results, &earlier.collect::<Vec<_>>())
}

fn foreign(watch: &HostWatch) -> Option<f64> {
    watch.foreign_s.map(|seconds| watch.part_of_pcpus(seconds))
}

fn steal(watch: &HostWatch) -> Option<f64> {
    watch.steal_s.map(|seconds| watch.part_of_pcpus(seconds))
}

fn memory(watch: &HostWatch) -> Option<f64> {
    watch.pressure_memory_s.filter(|_| watch.wall_s > 0.0).map(|seconds| seconds / watch.wall_s)
}

fn clock_change(watch: &HostWatch) -> Option<f64> {
    Some((watch.clock_after_hz? / watch.clock_before_hz? - 1.0).abs()).filter(|x| x.is_finite())
}

/// The part of the time that vCPUs wanted to run in which they could not.
fn run_delay(trial: &TrialResult) -> Option<f64> {
    let sum = |name: &str| trial.runs.iter().map(|run| run.counters.get(name)).sum::<Option<f64>>();
    let (run_s, wait_s) = (sum("vcpu.run_s")?, sum("vcpu.wait_s")?);
    (run_s + wait_s > 0.0).then(|| wait_s / (run_s + wait_s))
}

fn canaries(trial: &TrialResult) -> Vec<f64> {
    let watch = trial.watch.iter();
    watch.flat_map(|watch| [watch.canary_before_s, watch.canary_after_s]).flatten().collect()
}

/// By what part of the usual the worst of the trial's canaries is off, if it is
/// too far off.
fn worst_canary(rules: &Rules, watch: &HostWatch, earlier: &[f64]) -> Option<f64> {
    if earlier.len() < CANARIES_NEEDED {
        return None;
    }
    let usual = median(earlier)?;
    let distances: Vec<f64> = earlier.iter().map(|value| (value - usual).abs()).collect();
    // 1.4826 median distances are a standard deviation of normal values.
    let spread = 1.4826 * median(&distances)?;
    let limit = (CANARY_DEVIATIONS * spread).max(rules.canary_percent / 100.0 * usual);
    [watch.canary_before_s?, watch.canary_after_s?]
        .into_iter()
        .map(|value| value - usual)
        .filter(|off| off.abs() > limit)
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
        .map(|off| off / usual)
}

/// None of no values.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { (values[middle - 1] + upper) / 2.0 } else { *upper })
}
