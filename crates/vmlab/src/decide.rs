//! `vmlab decide`: the statistics as a program, for other harnesses: they boot
//! and measure, vmlab says what to measure next and when that is enough.
//!
//! One JSON object a line, in and out. A line that makes no sense is answered
//! with an error, and the session goes on as if it had not been there.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use record::BetterDirection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stats::{
    AdaptiveAnswer, AdaptiveClaim, AdaptiveComparison, AdaptivePolicy, AdaptiveQuestion,
    AdaptiveStep, AdaptiveTrial, Arm, RepetitionCosts,
};

use crate::input;

const EXAMPLES: &str = "\
Examples:
  vmlab decide < session.jsonl     answer a session that was written before
  your-harness | vmlab decide      or talk to it over pipes, line by line

In:   {\"op\":\"start\",\"case\":1,\"meta\":{\"better\":\"lower\",\"margin\":0.03,\"max_blocks\":40}}
Out:  {\"run\":[{\"config\":\"A\",\"invocations\":1,\"iterations\":8},{\"config\":\"B\",...}]}
In:   {\"op\":\"data\",\"trials\":[{\"config\":\"A\",\"values\":[[1.02,1.01,...]]},{\"config\":\"B\",...}]}
Out:  {\"run\":[...]} or {\"verdict\":\"B_better\",\"ratio\":0.95,\"lo\":0.93,\"hi\":0.97,...}
(\"max_seconds\" in meta is a limit of time; \"t\" of a trial says when it began)
In:   {\"op\":\"quit\"}";

/// Plan another harness's trials and judge them, over JSON lines
///
/// Compares B with A. Each answer asks for a block (boot both, in the order
/// given) or is the verdict: B_better, B_worse, equivalent (no difference
/// larger than the margin) or inconclusive. See docs/decide.md.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DecideArgs {}

pub(crate) fn run(_: &DecideArgs) -> anyhow::Result<ExitCode> {
    let mut session = DecideSession::default();
    let mut out = io::stdout().lock();
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input::line(&mut input, &mut line).context("Cannot read standard input")?;
        if read == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        let Some(reply) = session.reply(text.trim()) else { return Ok(ExitCode::SUCCESS) };
        let reply = serde_json::to_string(&reply).context("Cannot write a reply")?;
        writeln!(out, "{reply}")?;
        out.flush()?;
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum DecideMessage {
    Start {
        #[serde(default)]
        case: Value,
        #[serde(default)]
        meta: Option<Meta>,
    },
    Data {
        trials: Vec<TrialMessage>,
    },
    Quit,
}

/// What a case is about. Everything has a default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Meta {
    better: Option<BetterDirection>,
    alpha: Option<f64>,
    margin: Option<f64>,
    max_blocks: Option<f64>,
    max_seconds: Option<f64>,
    cost: Option<CostMessage>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CostMessage {
    boot: Option<f64>,
    invocation: Option<f64>,
    iteration: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TrialMessage {
    config: Arm,
    #[serde(default)]
    t: Option<f64>,
    #[serde(default)]
    values: Option<InvocationValues>,
    #[serde(default)]
    steal: Option<Vec<Option<f64>>>,
}

/// A list for each invocation; a single list is one invocation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum InvocationValues {
    Invocations(Vec<Vec<Option<f64>>>),
    Single(Vec<Option<f64>>),
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Reply {
    Run { run: Vec<BootLine> },
    Verdict(VerdictLine),
    Error { error: String },
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BootLine {
    config: Arm,
    invocations: u32,
    iterations: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerdictLine {
    verdict: &'static str,
    ratio: f64,
    lo: f64,
    hi: f64,
    blocks: u32,
    /// Machine time that the case took.
    seconds: f64,
    /// Share of the time of A's boots and of B's that others took.
    #[serde(skip_serializing_if = "Option::is_none")]
    steal: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// Used where a case says nothing else.
const ALPHA: f64 = 0.05;
const MARGIN: f64 = 0.03;
const MAX_BLOCKS: f64 = 40.0;
const COSTS: RepetitionCosts = RepetitionCosts { boot: 8.0, invocation: 1.0, iteration: 1.0 };

#[derive(Default)]
struct DecideSession {
    open: Option<AdaptiveComparison>,
}

impl DecideSession {
    /// The answer to a line, or none if the session is over.
    fn reply(&mut self, line: &str) -> Option<Reply> {
        let message = match parse(line) {
            Ok(DecideMessage::Quit) => return None,
            Ok(message) => message,
            Err(error) => return Some(Reply::Error { error: format!("Not a message: {error}") }),
        };
        let stepped = match message {
            DecideMessage::Start { case, meta } => self.start(&case, meta.unwrap_or_default()),
            DecideMessage::Data { trials } => self.data(trials),
            DecideMessage::Quit => return None,
        };
        Some(stepped.unwrap_or_else(|error| Reply::Error { error }))
    }

    fn start(&mut self, case: &Value, meta: Meta) -> Result<Reply, String> {
        let cost = meta.cost.unwrap_or_default();
        let costs = RepetitionCosts {
            boot: cost_of("boot", cost.boot, COSTS.boot)?,
            invocation: cost_of("invocation", cost.invocation, COSTS.invocation)?,
            iteration: cost_of("iteration", cost.iteration, COSTS.iteration)?,
        };
        let question = AdaptiveQuestion {
            better: meta.better.unwrap_or(BetterDirection::Lower),
            alpha: meta.alpha.unwrap_or(ALPHA),
            margin: meta.margin.unwrap_or(MARGIN),
            // The cast saturates: a huge number means "as many as you like".
            max_blocks: meta.max_blocks.unwrap_or(MAX_BLOCKS) as u32,
            max_s: meta.max_seconds,
            costs,
            seed: seed(case),
        };
        let case = AdaptiveComparison::new(question, AdaptivePolicy::default())
            .map_err(|error| error.to_string())?;
        Ok(self.step(case))
    }

    fn data(&mut self, trials: Vec<TrialMessage>) -> Result<Reply, String> {
        let Some(mut case) = self.open.take() else {
            return Err("No case is open: begin one with op \"start\"".to_owned());
        };
        let trials: Vec<AdaptiveTrial> = trials.into_iter().map(AdaptiveTrial::from).collect();
        case.record(&trials);
        Ok(self.step(case))
    }

    fn step(&mut self, case: AdaptiveComparison) -> Reply {
        match case.step() {
            AdaptiveStep::Block { order, allocation } => {
                self.open = Some(case);
                let boot = |config| BootLine {
                    config,
                    invocations: allocation.invocations,
                    iterations: allocation.iterations,
                };
                Reply::Run { run: order.map(boot).into() }
            }
            AdaptiveStep::Answer(answer) => {
                self.open = None;
                Reply::Verdict(verdict(answer, case.used_s()))
            }
        }
    }
}

/// Reads a message. Python writes numbers that JSON does not have; they are
/// values that were not measured.
fn parse(line: &str) -> Result<DecideMessage, serde_json::Error> {
    serde_json::from_str(line).or_else(|error| {
        let without = ["-Infinity", "Infinity", "NaN"]
            .iter()
            .fold(line.to_owned(), |line, word| line.replace(word, "null"));
        if without == line { Err(error) } else { serde_json::from_str(&without) }
    })
}

fn cost_of(name: &str, cost: Option<f64>, default: f64) -> Result<f64, String> {
    match cost {
        None => Ok(default),
        Some(cost) if cost >= 0.0 && cost.is_finite() => Ok(cost),
        Some(cost) => Err(format!("Cost of {name} {cost} is not a number from 0 up")),
    }
}

/// The order of the trials follows from the case's name alone.
fn seed(case: &Value) -> u64 {
    // FNV-1a.
    case.to_string().bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

impl From<TrialMessage> for AdaptiveTrial {
    fn from(message: TrialMessage) -> Self {
        let numbers = |values: Vec<Option<f64>>| -> Vec<f64> {
            values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect()
        };
        let invocations = match message.values {
            None => Vec::new(),
            Some(InvocationValues::Invocations(lists)) => lists.into_iter().map(numbers).collect(),
            Some(InvocationValues::Single(list)) => vec![numbers(list)],
        };
        let steal = message.steal.map(numbers).unwrap_or_default();
        Self { arm: message.config, started_s: message.t, invocations, steal }
    }
}

fn verdict(answer: AdaptiveAnswer, seconds: f64) -> VerdictLine {
    let AdaptiveAnswer { claim, ratio, lo, hi, blocks, steal, why } = answer;
    let verdict = match claim {
        AdaptiveClaim::BBetter => "B_better",
        AdaptiveClaim::BWorse => "B_worse",
        AdaptiveClaim::Equivalent => "equivalent",
        AdaptiveClaim::Inconclusive => "inconclusive",
    };
    VerdictLine { verdict, ratio, lo, hi, blocks, seconds, steal, why }
}

#[cfg(test)]
mod tests;
