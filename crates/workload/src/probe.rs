//! The probes: workloads that no distribution ships, each a command of the
//! guests' own program `vmlab-probe`.
//!
//! Every probe prints one JSON document, checks its own result, and says so;
//! `docs/probe.md` describes both.

mod memory;
mod network;
mod sched;
mod suites;
mod thin;

pub(crate) use memory::{MALLOC, NUMA, PAGECACHE, SHUFFLE, STREAM, TLB};
pub(crate) use network::{NET, UDP};
pub(crate) use sched::{CLOCK, IPI, LOCK, SEM, SYSCALLS, WAKEUP};
pub(crate) use suites::{NPB, UNIXBENCH};
pub(crate) use thin::THIN;

use std::collections::BTreeMap;

use record::Histogram;
use serde::Deserialize;

use crate::entry::{CatalogueEntry, GuestFacts, Param};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};

const PROGRAM: &str = "vmlab-probe";

const TIME: Param =
    Param::int("time_ms", (1, 86_400_000), 1000, "How long one repeat measures").unit("ms");

const REPEATS: Param = Param::int("repeats", (1, 100_000), 3, "Samples of a run");

const REPEATED: &str = "One run measures `repeats` times after a warm-up; each brings one sample \
                        of every metric.";

/// The command of a probe with these options, and how long and often it
/// measures, as far as it has such parameters.
fn argv(probe: &str, params: &Params, options: &[(&str, String)]) -> Vec<String> {
    let mut argv = vec![PROGRAM.to_owned(), probe.to_owned()];
    for (name, value) in options.iter().filter(|(_, value)| !value.is_empty()) {
        argv.extend([format!("--{name}"), value.clone()]);
    }
    if params.has("time_ms") {
        let seconds = params.int("time_ms") as f64 / 1000.0;
        argv.extend(["--seconds".to_owned(), seconds.to_string()]);
    }
    argv.extend(["--repeat".to_owned(), params.int("repeats").to_string()]);
    argv
}

/// Rough duration of a probe that measures `parts` things one after the other.
fn timed_s(params: &Params, facts: &GuestFacts, parts: f64) -> f64 {
    let one_s = params.int("time_ms") as f64 / 1000.0;
    (one_s * params.int("repeats") as f64 + 0.1) * parts + facts.computing_s(0.1)
}

#[derive(Deserialize)]
struct ProbeDocument {
    version: String,
    verified: bool,
    checks: Vec<ProbeCheck>,
    metrics: Vec<ProbeValue>,
    #[serde(default)]
    histograms: Vec<ProbeHistogram>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct ProbeCheck {
    name: String,
    ok: bool,
    detail: String,
}

#[derive(Deserialize)]
struct ProbeValue {
    name: String,
    value: f64,
    unit: String,
    #[serde(default)]
    thread: Option<u32>,
    #[serde(default)]
    repeat: u32,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// A distribution of times of the whole run.
#[derive(Deserialize)]
struct ProbeHistogram {
    name: String,
    unit: String,
    count: u64,
    /// Upper end of each bucket that holds something, and how many it holds.
    buckets: Vec<(f64, u64)>,
}

impl ProbeHistogram {
    /// As records hold it; nothing if it contradicts itself.
    fn to_histogram(&self) -> Option<Histogram> {
        let is_time = |(s, _): &(f64, u64)| s.is_finite() && *s >= 0.0;
        if self.unit != "s" || !self.buckets.iter().all(is_time) {
            return None;
        }
        let in_ns = self.buckets.iter().map(|(s, count)| ((s * 1e9).round() as u64, *count));
        Some(Histogram::new(&self.name, in_ns, 0)).filter(|found| found.count() == self.count)
    }
}

/// Takes the metrics of `entry` from a probe's document, those of the whole
/// run in their order, and its histograms.
fn read(
    output: CommandOutput<'_>,
    params: &Params,
    entry: &CatalogueEntry,
) -> Result<ParsedOutput, ParseError> {
    take(output, document(output)?, params, entry)
}

fn document(output: CommandOutput<'_>) -> Result<ProbeDocument, ParseError> {
    output.json("a probe's document")
}

fn take(
    output: CommandOutput<'_>,
    document: ProbeDocument,
    params: &Params,
    entry: &CatalogueEntry,
) -> Result<ParsedOutput, ParseError> {
    output.stdout_lines().last().unwrap_or_else(|| output.first_line()).whole()?;
    if !document.verified {
        let wrong = document.checks.iter().find(|check| !check.ok);
        let said = wrong.map_or("it checked nothing".to_owned(), |check| {
            format!("{}: {}", check.name, check.detail)
        });
        return Err(output.ended(format!("a verified result ({said})")));
    }
    let mut histograms = Vec::new();
    for counted in document.histograms.iter().filter(|counted| counted.count > 0) {
        let histogram = counted.to_histogram();
        let missing = || output.ended(format!("a histogram {} that adds up, in s", counted.name));
        histograms.push(histogram.ok_or_else(missing)?);
    }
    let mut parsed = ParsedOutput {
        histograms,
        tool_version: Some(document.version),
        warnings: document.warnings,
        ..ParsedOutput::default()
    };
    for metric in entry.metrics(params) {
        let values = document.metrics.iter();
        let values = values.filter(|value| value.name == metric.name && value.thread.is_none());
        let before = parsed.samples.len();
        let mut labels = None;
        for value in values {
            // One metric is one thing: sizes are not mixed.
            if *labels.get_or_insert(&value.labels) != &value.labels {
                return Err(output.ended(format!("one {}, not of several kinds", metric.name)));
            }
            // The probes of earlier images called events by what was done a count.
            let is_unit =
                value.unit == metric.unit || (metric.unit == "ratio" && value.unit == "count");
            if !is_unit || !value.value.is_finite() || value.value < 0.0 {
                let found = format!("{} in {}", metric.name, metric.unit);
                return Err(output.ended(found));
            }
            parsed.push(metric.name, value.value);
        }
        if parsed.samples.len() == before && !metric.optional {
            return Err(output.ended(metric.name));
        }
    }
    Ok(parsed)
}
