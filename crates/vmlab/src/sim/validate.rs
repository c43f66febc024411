//! `vmlab sim --validate`: the scoreboard.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use guest::Cancel;
use host::micro::{self, SharingTask};
use runner::simulated::constants;
use schemars::JsonSchema;
use serde::Serialize;
use sim::answer::{self, DrawEstimate};
use sim::scenario::Scenario;
use sim::scoreboard::{self, JudgedRow, LocalRow, PublishedResult, RowVerdict};
use topology::Host;

use super::draw::{DrawPlan, simulate};
use super::output::{digits, interval};
use crate::terminal;

/// Draws of the costs for each row: enough for tenths of a probability.
const DRAWS: u32 = 20;

/// How often and how long each case is measured on this machine.
const REPEATS: u32 = 7;
const LENGTH: Duration = Duration::from_millis(500);

/// One case of this machine, measured and simulated.
pub(super) struct CaseVerdict {
    here: LocalRow,
    measured: DrawEstimate,
    simulated: DrawEstimate,
}

impl CaseVerdict {
    fn verdict(&self) -> RowVerdict {
        let ratio = self.simulated.median / self.measured.median;
        let factor = self.here.factor;
        let right = (1.0 / factor..=factor).contains(&ratio);
        if right { RowVerdict::Right } else { RowVerdict::Wrong }
    }
}

/// The result.
pub(super) struct Scores {
    pub(super) judged: Vec<JudgedRow>,
    /// The machine at hand; why not, if it has no part.
    here: Result<Vec<CaseVerdict>, String>,
    pub(super) interrupted: bool,
}

/// Simulates and judges all rows.
pub(super) fn run(draws: Option<u32>, cancel: &Cancel) -> anyhow::Result<Scores> {
    let rows = scoreboard::rows();
    // While nothing is simulated on the same pCPUs.
    let measured = measure(cancel)?;
    let mut judged = Vec::new();
    for (name, mut scenario) in scoreboard::scenarios()? {
        scenario.draws = draws.unwrap_or_else(|| scenario.draws.min(DRAWS));
        let plan = DrawPlan::new(&scenario, false);
        if terminal::is_watched() {
            terminal::note(&format!("{name}: {} runs", plan.jobs.len()));
        }
        let done = plan.run(&scenario, cancel);
        if let Some((_, stuck)) = done.stuck {
            anyhow::bail!("{name}: {stuck}");
        }
        if done.interrupted {
            let here = Err("interrupted".to_owned());
            return Ok(Scores { judged, here, interrupted: true });
        }
        judged.extend(scoreboard::judge(&rows, name, &scenario, &done.drawn));
    }
    judged.extend(scoreboard::not_predicted(&rows));
    let place = |judged: &JudgedRow| rows.iter().position(|row| row.id == judged.row.id);
    judged.sort_by_key(place);
    let here = match measured {
        Ok(measured) => Ok(played(&measured, draws.unwrap_or(DRAWS), cancel)?),
        Err(why) => Err(why),
    };
    Ok(Scores { judged, here, interrupted: cancel.is_cancelled() })
}

/// What was measured of this machine.
struct MeasuredHost {
    host: Host,
    found: micro::MicroBenchmarks,
    cases: Vec<(LocalRow, DrawEstimate)>,
}

/// Measures the cases of this machine; the inner error says why there are none.
fn measure(cancel: &Cancel) -> anyhow::Result<Result<MeasuredHost, String>> {
    let host = runner::machine::this_host();
    let pcpus = host.allowed.clone().unwrap_or_else(|| host.online());
    let two: Vec<u32> = pcpus.iter().take(2).collect();
    if two.len() < 2 {
        return Ok(Err("needs two pCPUs".to_owned()));
    }
    if terminal::is_watched() {
        terminal::note("this machine: pinned threads, some 20 s");
    }
    let found = micro::measure(&pcpus).context("Cannot measure this machine")?;
    let mut cases = Vec::new();
    for here in scoreboard::here() {
        let shared = match here.lock {
            true => SharingTask::TicketLock { work_us: here.work_us, hold_us: here.hold_us },
            false => SharingTask::Barrier { work_us: here.work_us },
        };
        let rates = micro::rates(shared, &two, here.threads_per_pcpu, LENGTH, REPEATS);
        let rates = rates.context("Cannot measure this machine")?;
        if cancel.is_cancelled() {
            return Ok(Err("interrupted".to_owned()));
        }
        let Some(measured) = DrawEstimate::of(&rates) else { continue };
        cases.push((here, measured));
    }
    Ok(Ok(MeasuredHost { host, found, cases }))
}

/// Simulates the cases that were measured.
fn played(of: &MeasuredHost, draws: u32, cancel: &Cancel) -> anyhow::Result<Vec<CaseVerdict>> {
    let constants = constants::of_micro(&of.found);
    let release = of.host.kernel.as_deref().unwrap_or("6.12");
    let mut all = Vec::new();
    for (here, measured) in &of.cases {
        let shared = constants::share_a_core(&of.found);
        let text = here.scenario(release, of.found.turn.median, shared);
        let no_host = |_: &str| Err("no file is named".to_owned());
        let mut scenario = Scenario::parse(&here.id, &text, no_host)?;
        scenario.draws = draws;
        scenario.calibrate(&constants);
        let drawn = simulate(&scenario, cancel)?;
        let Some(simulated) = DrawEstimate::of(&answer::values(&scenario, &drawn, 0)) else {
            continue;
        };
        all.push(CaseVerdict { here: here.clone(), measured: *measured, simulated });
    }
    Ok(all)
}

impl Scores {
    pub(super) fn wrong(&self) -> usize {
        self.count(&RowVerdict::Wrong)
    }

    fn count(&self, verdict: &RowVerdict) -> usize {
        let here = self.here.iter().flatten().filter(|here| here.verdict() == *verdict);
        self.judged.iter().filter(|judged| judged.verdict == *verdict).count() + here.count()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::from(
            "Published results beside simulated ones. Tolerances were fixed before the first run.\n",
        );
        if self.interrupted {
            text.push_str("Interrupted: these rows are done.\n");
        }
        text.push_str("\n| row | published | simulated | |\n|---|---|---|---|\n");
        for judged in &self.judged {
            let row = &judged.row;
            let _ = writeln!(
                text,
                "| {} | {} ({}) | {} | {} |",
                row.id,
                published(&row.claim),
                row.source,
                predicted(judged),
                word(&judged.verdict)
            );
        }
        text.push_str(
            "\nThis machine: pinned threads on two pCPUs, times a second.\n\n\
             | row | measured | simulated | |\n|---|---|---|---|\n",
        );
        match &self.here {
            Err(why) => {
                let _ = writeln!(text, "| here | {why} | - | not measured |");
            }
            Ok(here) => {
                for judged in here {
                    let _ = writeln!(
                        text,
                        "| {} (within x{}) | {} | {} | {} |",
                        judged.here.id,
                        judged.here.factor,
                        interval(&judged.measured),
                        interval(&judged.simulated),
                        word(&judged.verdict())
                    );
                }
            }
        }
        let (right, wrong) = (self.count(&RowVerdict::Right), self.wrong());
        let silent = self.count(&RowVerdict::NotPredicted);
        let _ = writeln!(text, "\n{right} right, {wrong} WRONG, {silent} not predicted");
        text
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        let row = |judged: &JudgedRow| RowJson {
            id: judged.row.id.clone(),
            scenario: judged.row.scenario.clone(),
            point: judged.row.point.clone(),
            published: published(&judged.row.claim),
            source: judged.row.source.clone(),
            median: judged.predicted.map(|value| value.median),
            low: judged.predicted.map(|value| value.low),
            high: judged.predicted.map(|value| value.high),
            held: judged.held,
            verdict: word(&judged.verdict),
        };
        let range = |of: &DrawEstimate| RangeJson { low: of.low, median: of.median, high: of.high };
        let here = |judged: &CaseVerdict| HereJson {
            id: judged.here.id.clone(),
            factor: judged.here.factor,
            measured: range(&judged.measured),
            simulated: range(&judged.simulated),
            verdict: word(&judged.verdict()),
        };
        let all = ScoresJson {
            format: "vmlab-scoreboard",
            version: 1,
            environment: record::Environment::Simulated,
            interrupted: self.interrupted,
            rows: self.judged.iter().map(row).collect(),
            here: self.here.iter().flatten().map(here).collect(),
        };
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

/// What `--validate --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ScoresJson {
    format: &'static str,
    version: u32,
    environment: record::Environment,
    /// True if rows are missing.
    interrupted: bool,
    rows: Vec<RowJson>,
    /// Cases of this machine, if it has a part in it.
    here: Vec<HereJson>,
}

/// A case of this machine, measured and simulated.
#[derive(Serialize, JsonSchema)]
struct HereJson {
    id: String,
    /// How near the simulated rate must be to the measured one.
    factor: f64,
    measured: RangeJson,
    simulated: RangeJson,
    /// `right` or `WRONG`.
    verdict: &'static str,
}

/// What values have in common.
#[derive(Serialize, JsonSchema)]
struct RangeJson {
    low: f64,
    median: f64,
    high: f64,
}

/// A published result beside the simulated one.
#[derive(Serialize, JsonSchema)]
struct RowJson {
    id: String,
    scenario: String,
    point: String,
    /// What was published, in words.
    published: String,
    source: String,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    /// Probability with which the claim holds in the simulation.
    held: Option<f64>,
    /// `right`, `WRONG` or `not predicted`.
    verdict: &'static str,
}

fn word(verdict: &RowVerdict) -> &'static str {
    match verdict {
        RowVerdict::Right => "right",
        RowVerdict::Wrong => "WRONG",
        RowVerdict::NotPredicted => "not predicted",
    }
}

fn published(claim: &PublishedResult) -> String {
    match claim {
        PublishedResult::Order { ascending, probability, strict } => {
            let sign = if *strict { " < " } else { " <= " };
            format!("{}; P >= {probability}", ascending.join(sign))
        }
        PublishedResult::OrderOfMeans { ascending } => format!("means: {}", ascending.join(" <= ")),
        PublishedResult::Value { variant, published, factor } => {
            format!("{variant}: {}, within x{factor}", digits(*published))
        }
        PublishedResult::Ratio { variant, of, published, factor } => {
            format!("{variant} / {of}: {}, within x{factor}", digits(*published))
        }
        PublishedResult::AtLeast { variant, of, published } => {
            format!("{variant} / {of}: at least {published}")
        }
        PublishedResult::NotPredicted { reason } => reason.clone(),
    }
}

fn predicted(judged: &JudgedRow) -> String {
    match (&judged.row.claim, judged.held, &judged.predicted) {
        (PublishedResult::OrderOfMeans { .. }, Some(held), _) => {
            if held > 0.0 {
                "so".to_owned()
            } else {
                "not so".to_owned()
            }
        }
        (_, Some(held), _) => format!("P = {held:.2}"),
        (_, _, Some(value)) => interval(value),
        _ => "-".to_owned(),
    }
}
