//! `vmlab sim --validate`: the scoreboard.

use std::fmt::Write as _;

use guest::Cancel;
use serde_json::{Value, json};
use sim::scoreboard::{self, Claim, Judged, Verdict};

use super::draw::Plan;
use super::output::{digits, interval};
use crate::terminal;

/// Draws of the costs for each row: enough for tenths of a probability.
const DRAWS: u32 = 20;

/// What came of it.
pub(super) struct Scores {
    pub(super) judged: Vec<Judged>,
    pub(super) interrupted: bool,
}

/// Simulates and judges all rows.
pub(super) fn run(draws: Option<u32>, cancel: &Cancel) -> anyhow::Result<Scores> {
    let rows = scoreboard::rows();
    let mut judged = Vec::new();
    for (name, mut scenario) in scoreboard::scenarios()? {
        scenario.draws = draws.unwrap_or_else(|| scenario.draws.min(DRAWS));
        let plan = Plan::new(&scenario, false);
        if terminal::is_watched() {
            terminal::note(&format!("{name}: {} runs", plan.jobs.len()));
        }
        let done = plan.run(&scenario, cancel);
        if let Some((_, stuck)) = done.stuck {
            anyhow::bail!("{name}: {stuck}");
        }
        if done.interrupted {
            return Ok(Scores { judged, interrupted: true });
        }
        judged.extend(scoreboard::judge(&rows, name, &scenario, &done.drawn));
    }
    judged.extend(scoreboard::not_predicted(&rows));
    let place = |judged: &Judged| rows.iter().position(|row| row.id == judged.row.id);
    judged.sort_by_key(place);
    Ok(Scores { judged, interrupted: false })
}

impl Scores {
    pub(super) fn wrong(&self) -> usize {
        self.count(&Verdict::Wrong)
    }

    fn count(&self, verdict: &Verdict) -> usize {
        self.judged.iter().filter(|judged| judged.verdict == *verdict).count()
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
        let (right, wrong) = (self.count(&Verdict::Right), self.wrong());
        let silent = self.count(&Verdict::NotPredicted);
        let _ = writeln!(text, "\n{right} right, {wrong} WRONG, {silent} not predicted");
        text
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        let rows: Vec<Value> = self
            .judged
            .iter()
            .map(|judged| {
                json!({
                    "id": judged.row.id,
                    "scenario": judged.row.scenario,
                    "point": judged.row.point,
                    "published": published(&judged.row.claim),
                    "source": judged.row.source,
                    "median": judged.predicted.map(|value| value.median),
                    "low": judged.predicted.map(|value| value.low),
                    "high": judged.predicted.map(|value| value.high),
                    "held": judged.held,
                    "verdict": word(&judged.verdict),
                })
            })
            .collect();
        let all = json!({
            "format": "vmlab-scoreboard",
            "version": 1,
            "environment": record::Environment::Simulated,
            "interrupted": self.interrupted,
            "rows": rows,
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Wrong => "WRONG",
        Verdict::NotPredicted => "not predicted",
    }
}

fn published(claim: &Claim) -> String {
    match claim {
        Claim::Order { ascending, probability } => {
            format!("{}; P >= {probability}", ascending.join(" <= "))
        }
        Claim::OrderOfMeans { ascending } => format!("means: {}", ascending.join(" <= ")),
        Claim::Value { variant, published, factor } => {
            format!("{variant}: {}, within x{factor}", digits(*published))
        }
        Claim::Ratio { variant, of, published, factor } => {
            format!("{variant} / {of}: {}, within x{factor}", digits(*published))
        }
        Claim::AtLeast { variant, of, published } => {
            format!("{variant} / {of}: at least {published}")
        }
        Claim::NotPredicted { reason } => reason.clone(),
    }
}

fn predicted(judged: &Judged) -> String {
    match (&judged.row.claim, judged.held, &judged.predicted) {
        (Claim::OrderOfMeans { .. }, Some(held), _) => {
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
