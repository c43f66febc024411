//! The scoreboard: published results and closed forms beside what the simulator
//! says. Rows and tolerances stand in `scoreboard.toml`; failing rows stay.

use std::cell::RefCell;
use topology::bounded::FileProblems;

use crate::answer::{DrawEstimate, DrawResult};
use crate::scenario::{Scenario, ScenarioNode, ScenarioValue, TableReader};
use crate::sched::{SchedKernel, SchedPolicy};

const TEXT: &str = include_str!("scoreboard.toml");

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../studies/sim/", $name, ".toml")))),*]
    };
}

/// Names and texts of the scenarios that rows are about.
const SCENARIOS: &[(&str, &str)] = scenarios![
    "overcommit",
    "overcommit-10-way",
    "placement-stream",
    "placement-npb",
    "placement-make",
    "hackbench",
    "semaphore",
    "tcp-rr",
    "halt-poll",
    "cpu-pm",
    "law-lock",
    "law-barrier",
    "law-waiters",
    "held-boost",
    "held-boost-stress",
    "held-queue-head",
    "held-sched-yield",
    "held-pv-ipi",
    "held-pv-lock",
    "held-filter",
    "held-halt-poll",
    "held-switches",
    "held-early-halt",
    "held-tlb-flush",
    "held-calls",
    "held-ipiv",
    "held-ipiv-hackbench",
    "held-pipe",
    "held-quota",
];

/// One published result.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRow {
    /// Its name.
    pub id: String,
    /// Its scenario; empty where nothing is computed.
    pub scenario: String,
    /// The sweep's point.
    pub point: String,
    /// What was published, and how near one must come.
    pub claim: PublishedResult,
    /// Where.
    pub source: String,
}

/// What was published, and how near one must come.
#[derive(Debug, Clone, PartialEq)]
pub enum PublishedResult {
    /// These variants, from the least value to the greatest, in this share of
    /// the draws.
    Order {
        /// The variants.
        ascending: Vec<String>,
        /// The share.
        probability: f64,
        /// Values that are equal to a thousandth are no order.
        strict: bool,
    },
    /// The same of the means over the draws: where a draw is one of two things.
    OrderOfMeans {
        /// The variants.
        ascending: Vec<String>,
    },
    /// A variant's value, within a factor.
    Value {
        /// The variant.
        variant: String,
        /// The value.
        published: f64,
        /// The factor.
        factor: f64,
    },
    /// Its ratio to another's, within a factor.
    Ratio {
        /// The variant.
        variant: String,
        /// The other.
        of: String,
        /// The ratio.
        published: f64,
        /// The factor.
        factor: f64,
    },
    /// Its ratio to another's is no less.
    AtLeast {
        /// The variant.
        variant: String,
        /// The other.
        of: String,
        /// The ratio.
        published: f64,
    },
    /// The model can't say it.
    NotPredicted {
        /// Why.
        reason: String,
    },
}

/// The result of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowVerdict {
    /// Within the tolerance.
    Right,
    /// Not.
    Wrong,
    /// Nothing was predicted.
    NotPredicted,
}

/// A row, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedRow {
    /// The row.
    pub row: ScoreRow,
    /// What was predicted: a value or a ratio over the draws.
    pub predicted: Option<DrawEstimate>,
    /// How often, or for means whether, an order held.
    pub held: Option<f64>,
    /// Right or not.
    pub verdict: RowVerdict,
}

/// Pinned threads that share pCPUs of the machine at hand: measured, and simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalRow {
    /// Its name.
    pub id: String,
    /// Whether they take a fair lock; else they meet at a barrier.
    pub lock: bool,
    /// Threads pinned to each pCPU.
    pub threads_per_pcpu: u32,
    /// Work before the lock or the barrier, us.
    pub work_us: f64,
    /// Work with the lock, us.
    pub hold_us: f64,
    /// How near the simulated rate must be to the measured one.
    pub factor: f64,
}

impl LocalRow {
    /// Its scenario on two pCPUs of a machine with this kernel, on which one of two busy
    /// threads runs for `turn_ns` before the other; they may share a core.
    #[must_use]
    pub fn scenario(&self, release: &str, turn_ns: f64, share_a_core: bool) -> String {
        let pcpus = 2;
        let (cores, threads) = if share_a_core { (1, 2) } else { (2, 1) };
        let kernel = SchedKernel::of_release(release).unwrap_or(SchedKernel::V6_12);
        let policy = SchedPolicy::defaults(kernel, pcpus);
        let slice = if kernel.is_eevdf() { policy.base_slice_ns } else { policy.latency_ns / 2 };
        // A turn ends at the first tick behind the slice: the tick that fits best.
        let turn = |tick: f64| (slice as f64 / tick).ceil() * tick;
        let off = |tick: &f64| (turn(*tick) - turn_ns).abs();
        let ticks = [1e6, 1e7 / 3.0, 4e6, 1e7];
        let tick = ticks.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(4e6) / 1e6;
        let Self { threads_per_pcpu, work_us, hold_us, .. } = self;
        let tasks = *threads_per_pcpu as usize * pcpus;
        let workload = if self.lock {
            format!("class = \"spin-lock\"\nwork = {work_us}\nhold = {hold_us}\n")
        } else {
            format!("class = \"barrier\"\nspin_us = \"forever\"\nwork = {work_us}\n")
        };
        let pins: Vec<String> = (0..pcpus).map(|pcpu| format!("\"{pcpu}\"")).collect();
        format!(
            "sim = 1\ntitle = \"{}\"\ndraws = 16\nwarmup_ms = 100\nduration_ms = 1000\n\
             [host]\ncores = {cores}\nthreads = {threads}\nkernel = \"{name}\"\nscheduler = {{ tick_ms = {tick:.6} }}\n\
             [[vm]]\nmetal = true\nvcpus = {pcpus}\npins = [{pins}]\nkernel = \"{name}\"\n\
             scheduler = {{ tick_ms = {tick:.6} }}\nworkload = \"shared\"\n\
             [workload.shared]\ntasks = {tasks}\npinned = true\n{workload}",
            self.id,
            name = kernel.name(),
            pins = pins.join(", "),
        )
    }
}

/// What the machine at hand is held to.
#[must_use]
pub fn here() -> Vec<LocalRow> {
    read().1
}

/// All rows.
#[must_use]
pub fn rows() -> Vec<ScoreRow> {
    read().0
}

fn read() -> (Vec<ScoreRow>, Vec<LocalRow>) {
    let problems = RefCell::new(Vec::new());
    let root = ScenarioNode::parse(TEXT).expect("the scoreboard is tested");
    let top = TableReader::new(&root, "the scoreboard", &problems);
    top.whole("scoreboard", 0, 1, 1);
    let rows = top.tables("row").iter().map(row).collect();
    let here = top.tables("here").into_iter().map(here_row).collect();
    top.finish();
    assert!(problems.borrow().is_empty(), "the scoreboard is tested: {problems:?}");
    (rows, here)
}

fn here_row(table: TableReader<'_>) -> LocalRow {
    let number = |key| table.number(key, 0.0, 1e6);
    let here = LocalRow {
        id: table.text("id").map(|(text, _)| text.to_owned()).unwrap_or_default(),
        lock: table.flag("lock", false),
        threads_per_pcpu: table.whole("threads_per_pcpu", 1, 1, 16) as u32,
        work_us: number("work_us").unwrap_or(f64::NAN),
        hold_us: number("hold_us").unwrap_or(0.0),
        factor: number("factor").unwrap_or(f64::NAN),
    };
    table.finish();
    here
}

fn row(table: &TableReader<'_>) -> ScoreRow {
    let text = |key| table.text(key).map(|(text, _)| text.to_owned()).unwrap_or_default();
    let number = |key| table.number(key, 0.0, 1e12).unwrap_or(f64::NAN);
    let ascending = || match table.get("ascending") {
        Some(ScenarioNode { value: ScenarioValue::List(items), .. }) => items
            .iter()
            .filter_map(|item| match &item.value {
                ScenarioValue::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let (variant, of) = (text("variant"), text("of"));
    let claim = match text("claim").as_str() {
        claim @ ("order" | "strict-order") => PublishedResult::Order {
            ascending: ascending(),
            probability: number("probability"),
            strict: claim == "strict-order",
        },
        "order-of-means" => PublishedResult::OrderOfMeans { ascending: ascending() },
        "value" => PublishedResult::Value {
            variant,
            published: number("published"),
            factor: number("factor"),
        },
        "ratio" => {
            let (published, factor) = (number("published"), number("factor"));
            PublishedResult::Ratio { variant, of, published, factor }
        }
        "at-least" => PublishedResult::AtLeast { variant, of, published: number("published") },
        _ => PublishedResult::NotPredicted { reason: text("reason") },
    };
    ScoreRow {
        id: text("id"),
        scenario: text("scenario"),
        point: text("point"),
        claim,
        source: text("source"),
    }
}

/// The scenarios that rows are about, by name.
///
/// # Errors
/// Never, as a test reads them all.
pub fn scenarios() -> Result<Vec<(&'static str, Scenario)>, FileProblems> {
    let no_host = |_: &str| Err("no scenario of the scoreboard has a host's file".to_owned());
    let each = SCENARIOS.iter();
    each.map(|(name, text)| Ok((*name, Scenario::parse(name, text, no_host)?))).collect()
}

/// Judges the rows about one scenario by its draws.
#[must_use]
pub fn judge(
    rows: &[ScoreRow],
    name: &str,
    scenario: &Scenario,
    drawn: &[DrawResult],
) -> Vec<JudgedRow> {
    let about = rows.iter().filter(|row| row.scenario == name);
    about.map(|row| judge_row(row, scenario, drawn)).collect()
}

/// Rows about which nothing is computed.
#[must_use]
pub fn not_predicted(rows: &[ScoreRow]) -> Vec<JudgedRow> {
    let silent = rows.iter().filter(|row| row.scenario.is_empty());
    silent
        .map(|row| JudgedRow {
            row: row.clone(),
            predicted: None,
            held: None,
            verdict: RowVerdict::NotPredicted,
        })
        .collect()
}

/// Values that differ by less, as a share, are equal to a strict order.
const ALIKE: f64 = 0.001;

fn judge_row(row: &ScoreRow, scenario: &Scenario, drawn: &[DrawResult]) -> JudgedRow {
    let values = |variant: &str| -> Vec<f64> {
        let cells = &scenario.cells;
        let at = cells.iter().position(|cell| cell.variant == variant && cell.point == row.point);
        let Some(at) = at else { return Vec::new() };
        crate::answer::values(scenario, drawn, at)
    };
    // Equal within what a run's end cuts off is no disorder.
    let before = |one: f64, other: f64| one <= other * 1.001;
    let sorted = |each: &[f64]| each.windows(2).all(|pair| before(pair[0], pair[1]));
    let within = |estimate: &DrawEstimate, published: f64, factor: f64| {
        (published / factor..=published * factor).contains(&estimate.median)
    };
    let ratio = |variant: &str, of: &str| {
        let (mine, others) = (values(variant), values(of));
        let ratios: Vec<f64> = mine.iter().zip(&others).map(|(a, b)| a / b).collect();
        DrawEstimate::of(&ratios)
    };
    let (predicted, held, right) = match &row.claim {
        PublishedResult::Order { ascending, probability, strict } => {
            let sorted = |each: &[f64]| match strict {
                false => sorted(each),
                true => each.windows(2).all(|pair| pair[0] * (1.0 + ALIKE) < pair[1]),
            };
            let each: Vec<Vec<f64>> = ascending.iter().map(|variant| values(variant)).collect();
            let draws = each.iter().map(Vec::len).min().unwrap_or(0);
            let holds = (0..draws).filter(|draw| {
                sorted(&each.iter().map(|values| values[*draw]).collect::<Vec<_>>())
            });
            let held = holds.count() as f64 / draws.max(1) as f64;
            (None, Some(held), held >= *probability)
        }
        PublishedResult::OrderOfMeans { ascending } => {
            let means: Vec<f64> = ascending
                .iter()
                .filter_map(|variant| Some(DrawEstimate::of(&values(variant))?.mean))
                .collect();
            let held = means.len() == ascending.len() && sorted(&means);
            (None, Some(f64::from(u8::from(held))), held)
        }
        PublishedResult::Value { variant, published, factor } => {
            let predicted = DrawEstimate::of(&values(variant));
            let right = predicted.is_some_and(|value| within(&value, *published, *factor));
            (predicted, None, right)
        }
        PublishedResult::Ratio { variant, of, published, factor } => {
            let predicted = ratio(variant, of);
            let right = predicted.is_some_and(|value| within(&value, *published, *factor));
            (predicted, None, right)
        }
        PublishedResult::AtLeast { variant, of, published } => {
            let predicted = ratio(variant, of);
            (predicted, None, predicted.is_some_and(|value| value.median >= *published))
        }
        PublishedResult::NotPredicted { .. } => (None, None, false),
    };
    let verdict = if right { RowVerdict::Right } else { RowVerdict::Wrong };
    JudgedRow { row: row.clone(), predicted, held, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_about_variants_that_exist() {
        let scenarios = scenarios().unwrap();
        for row in rows() {
            let named = match &row.claim {
                PublishedResult::Order { ascending, .. }
                | PublishedResult::OrderOfMeans { ascending } => {
                    assert!(ascending.len() > 1, "{row:?}");
                    ascending.clone()
                }
                PublishedResult::Value { variant, published, factor } => {
                    assert!(*published > 0.0 && *factor >= 1.0, "{row:?}");
                    vec![variant.clone()]
                }
                PublishedResult::Ratio { variant, of, published, .. }
                | PublishedResult::AtLeast { variant, of, published } => {
                    assert!(*published > 0.0, "{row:?}");
                    vec![variant.clone(), of.clone()]
                }
                PublishedResult::NotPredicted { reason } => {
                    assert!(!reason.is_empty() && row.scenario.is_empty(), "{row:?}");
                    continue;
                }
            };
            let (_, scenario) =
                scenarios.iter().find(|(name, _)| *name == row.scenario).expect(&row.id);
            for variant in named {
                let same = |cell: &crate::scenario::SweepCell| {
                    cell.variant == variant && cell.point == row.point
                };
                assert!(scenario.cells.iter().any(same), "{}: {variant}", row.id);
            }
        }
    }

    #[test]
    fn what_is_held_to_this_machine_plays() {
        for here in here() {
            assert!(here.factor >= 1.0 && here.work_us > 0.0, "{here:?}");
            for release in ["3.10.0", "5.15.0", "6.18.44"] {
                let text = here.scenario(release, 4e6, release.starts_with('5'));
                let scenario = Scenario::parse(&here.id, &text, |_| Err(String::new()));
                let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{text}"));
                let mut model = scenario.cells[0].draw(1, 0);
                model.duration_ns = 100_000_000;
                let outcome = crate::run(&model, || true).unwrap();
                assert!(outcome.meters[0].done > 0, "{release}: {outcome:?}");
            }
        }
    }

    /// The closed forms hold, each within 1 %.
    #[test]
    fn laws_hold() {
        let rows = rows();
        for (name, scenario) in scenarios().unwrap() {
            if !name.starts_with("law-") {
                continue;
            }
            let outcome = crate::run(&scenario.cells[0].draw(1, 0), || true).unwrap();
            let drawn = DrawResult { outcomes: vec![Some(outcome)], ..DrawResult::default() };
            for judged in judge(&rows, name, &scenario, &[drawn]) {
                assert_eq!(judged.verdict, RowVerdict::Right, "{judged:?}");
            }
        }
    }
}
