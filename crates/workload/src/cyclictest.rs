//! cyclictest: how late a timer wakes a thread.
//!
//! Source: rt-tests `src/cyclictest/cyclictest.c` and its manual page. The
//! results are read from its JSON (`--json`, since rt-tests 2.0), which has
//! every thread's whole histogram; its text output interleaves with it, so it
//! is sent elsewhere.

use std::collections::BTreeMap;

use record::{Better, Histogram, MetricKind};
use serde::Deserialize;

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, ParamKind, Scope};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputLine, ParseError, ParsedOutput};
use crate::roles::RoleCommands;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "cyclictest",
    summary: "Wake-up latency: threads that sleep until a moment and see how late it is",
    about: "Every thread sleeps for one interval, notes how late it woke, and starts over. Timer \
            programming, halt exits, halt polling, steal and host scheduling all show here. \
            Latencies have steps of 1 us. A quantile p is only given from N wake-ups with N(1-p) \
            of at least 20, and only if it lies inside the histogram; wake-ups beyond it are \
            counted, never guessed. While it runs, cyclictest asks the guest's kernel to stay out \
            of deep idle states (`/dev/cpu_dma_latency`).",
    measures: "How late a timer wakes a thread, as quantiles, mean and maximum.",
    needs: &["cyclictest"],
    beside: RoleCommands::NOTHING,
    params: PARAMS,
    metrics: METRICS,
    repeats: "One run merges the wake-ups of all its threads into one histogram, which is kept, and \
              from which come one sample of every metric; `thread-*` has one sample a thread. Repeat it by the \
              study's number of runs, or take more `loops`.",
    example: &[("loops", DefaultValue::Int(20_000)), ("priority", DefaultValue::Int(80))],
    command,
    parse,
    // Intervals are skipped where a wake-up comes later than the next one's moment:
    // often in emulated guests, hardly ever elsewhere.
    duration_s: |params, facts| {
        let loops = params.int("loops") as f64;
        loops * (params.int("interval_us") as f64 * 1e-6 + facts.computing_s(100e-6))
            + facts.computing_s(0.05)
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "threads",
        kind: ParamKind::Int(1, 4096),
        default: DefaultValue::PerVcpu,
        unit: None,
        help: "Threads that sleep and wake",
    },
    Param {
        name: "pinned",
        kind: ParamKind::Bool,
        default: DefaultValue::Bool(true),
        unit: None,
        help: "Every thread on one vCPU, in turn; otherwise wherever the guest puts it",
    },
    Param {
        name: "interval_us",
        kind: ParamKind::Int(50, 1_000_000),
        default: DefaultValue::Int(1000),
        unit: Some("us"),
        help: "Time from one wake-up to the next",
    },
    Param {
        name: "priority",
        kind: ParamKind::Int(0, 99),
        default: DefaultValue::Int(80),
        unit: None,
        help: "SCHED_FIFO priority of the threads; 0 for ordinary threads",
    },
    Param {
        name: "loops",
        kind: ParamKind::Int(500, 100_000_000),
        default: DefaultValue::Int(5000),
        unit: None,
        help: "Wake-ups of a thread; the run ends when the first thread had so many",
    },
    Param {
        name: "histogram_us",
        kind: ParamKind::Int(100, 1_000_000),
        default: DefaultValue::Int(100_000),
        unit: Some("us"),
        help: "Where the histogram ends; a quantile beyond it is not given",
    },
];

/// A latency of all threads together.
const fn latency(
    name: &'static str,
    kind: MetricKind,
    optional: bool,
    help: &'static str,
) -> MetricDef {
    MetricDef {
        name,
        unit: "s",
        better: Better::Lower,
        kind,
        primary: false,
        scope: Scope::Total,
        optional,
        only_with: None,
        help,
    }
}

const METRICS: &[MetricDef] = &[
    MetricDef {
        primary: true,
        ..latency(
            "latency-p99",
            MetricKind::Quantile,
            true,
            "Lateness that 99 % of the wake-ups keep; absent beyond the histogram and below 2000 \
             wake-ups",
        )
    },
    latency(
        "latency-p50",
        MetricKind::Quantile,
        true,
        "Lateness that half of the wake-ups keep; absent beyond the histogram",
    ),
    latency(
        "latency-p99.9",
        MetricKind::Quantile,
        true,
        "Lateness that 99.9 % of the wake-ups keep; absent beyond the histogram and below 20000 \
         wake-ups",
    ),
    latency("latency-max", MetricKind::Quantile, false, "Lateness of the latest wake-up"),
    latency("latency-avg", MetricKind::Time, false, "Mean lateness of all wake-ups"),
    MetricDef {
        scope: Scope::Thread,
        ..latency("thread-latency-avg", MetricKind::Time, false, "Mean lateness of a thread")
    },
    MetricDef {
        scope: Scope::Thread,
        ..latency(
            "thread-latency-max",
            MetricKind::Quantile,
            false,
            "Lateness of a thread's latest wake-up",
        )
    },
    MetricDef {
        unit: "count",
        ..latency("overflows", MetricKind::Count, false, "Wake-ups later than the histogram's end")
    },
];

/// The quantiles: metric, and how many wake-ups of 1000 are later.
const QUANTILES: [(&str, u64); 3] =
    [("latency-p50", 500), ("latency-p99", 10), ("latency-p99.9", 1)];

/// A quantile needs so many wake-ups beyond it.
const BEYOND_QUANTILE: u64 = 20;

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let mut argv = vec![
        "cyclictest".to_owned(),
        "--quiet".to_owned(),
        "--mlockall".to_owned(),
        format!("--threads={}", params.int_or_vcpus("threads", facts)),
        format!("--interval={}", params.int("interval_us")),
        format!("--loops={}", params.int("loops")),
        format!("--histogram={}", params.int("histogram_us")),
        "--histfile=/dev/null".to_owned(),
        "--json=/dev/stdout".to_owned(),
    ];
    match params.int("priority") {
        // With a histogram, cyclictest takes a missing priority for a wish
        // to have one; only the policy says otherwise.
        0 => argv.push("--policy=other".to_owned()),
        priority => argv.push(format!("--priority={priority}")),
    }
    if params.bool("pinned") {
        argv.push("--affinity".to_owned());
    }
    argv
}

/// What is used of the JSON; its keys are spelled as the tool spells them.
#[derive(Deserialize)]
struct Json {
    #[serde(rename = "rt_test_version:", alias = "rt_test_version")]
    version: Option<String>,
    return_code: i64,
    num_threads: u64,
    /// Not 0 if all values are ns instead of us (`--nsecs`).
    resolution_in_ns: i64,
    thread: BTreeMap<u32, Thread>,
}

/// One thread's wake-ups; all values are in us.
#[derive(Deserialize)]
struct Thread {
    /// Lateness to wake-ups; rows without wake-ups are left out.
    histogram: BTreeMap<u64, u64>,
    cycles: u64,
    max: u64,
    avg: f64,
}

impl Thread {
    /// Wake-ups beyond the histogram, which is all that isn't in it; nothing
    /// if the thread's numbers contradict each other.
    fn overflows(&self, histogram_us: u64) -> Option<u64> {
        let inside = self.histogram.values().try_fold(0_u64, |sum, n| sum.checked_add(*n))?;
        let beyond = self.cycles.checked_sub(inside)?;
        let latest_inside = self.histogram.keys().next_back().copied().unwrap_or(0);
        let max_fits = self.max >= latest_inside && (beyond == 0 || self.max >= histogram_us);
        (self.cycles > 0 && self.avg >= 0.0 && max_fits).then_some(beyond)
    }
}

const US_PER_S: f64 = 1e6;

const NS_PER_US: u64 = 1000;

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let json = read_json(output)?;
    check(&json, output, params, facts)?;

    let mut parsed = ParsedOutput { tool_version: json.version, ..ParsedOutput::default() };
    let histogram_us = params.int("histogram_us") as u64;
    let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut wakeups, mut overflows, mut sum, mut max) = (0_u64, 0_u64, 0.0, 0);
    for (number, thread) in &json.thread {
        let Some(beyond) = thread.overflows(histogram_us) else {
            let line = line_of(output, &format!("\"{number}\""));
            return Err(line.expected("a thread whose histogram fits its cycles and max"));
        };
        overflows = overflows.saturating_add(beyond);
        wakeups = wakeups.saturating_add(thread.cycles);
        sum += thread.avg * thread.cycles as f64;
        max = max.max(thread.max);
        for (lateness, count) in &thread.histogram {
            let merged = merged.entry(*lateness).or_default();
            *merged = merged.saturating_add(*count);
        }
    }
    for (metric, later_of_1000) in QUANTILES {
        if wakeups.saturating_mul(later_of_1000) < BEYOND_QUANTILE * 1000 {
            continue;
        }
        match quantile(&merged, wakeups, later_of_1000) {
            Some(lateness) => parsed.push(metric, lateness as f64 / US_PER_S),
            None => parsed.warnings.push(format!(
                "{metric} lies beyond the histogram: raise histogram_us ({histogram_us})"
            )),
        }
    }
    parsed.push("latency-max", max as f64 / US_PER_S);
    parsed.push("latency-avg", sum / wakeups as f64 / US_PER_S);
    for thread in json.thread.values() {
        parsed.push("thread-latency-avg", thread.avg / US_PER_S);
    }
    for thread in json.thread.values() {
        parsed.push("thread-latency-max", thread.max as f64 / US_PER_S);
    }
    parsed.push("overflows", overflows as f64);
    let buckets = merged.iter().map(|(us, count)| (us.saturating_mul(NS_PER_US), *count));
    parsed.histograms.push(Histogram::new("latency", buckets, overflows));
    for line in output.stderr_lines().filter(|line| !line.text.trim().is_empty()) {
        parsed.warnings.push(format!("cyclictest says: {}", line.text.trim()));
    }
    Ok(parsed)
}

/// Refuses a run that isn't the one that was asked for, or not all of it.
fn check(
    json: &Json,
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<(), ParseError> {
    let line = |key: &str| line_of(output, &format!("\"{key}\""));
    if json.return_code != 0 {
        return Err(line("return_code").expected("0"));
    }
    if json.resolution_in_ns != 0 {
        return Err(line("resolution_in_ns").expected("0, for values in us"));
    }
    let threads = params.int_or_vcpus("threads", facts);
    let listed = json.thread.len();
    if json.num_threads != listed as u64 || i64::try_from(listed) != Ok(threads) {
        let expected = format!("{threads} threads, of which {listed} follow");
        return Err(line("num_threads").expected(expected));
    }
    let loops = params.int("loops") as u64;
    let most = json.thread.values().map(|thread| thread.cycles).max().unwrap_or(0);
    if most < loops {
        let expected = format!("{loops} wake-ups of a thread, but {most} were most");
        return Err(line("cycles").expected(expected));
    }
    Ok(())
}

/// The first line that starts with `key`, which is there: it has been read.
fn line_of<'a>(output: CommandOutput<'a>, key: &str) -> OutputLine<'a> {
    output
        .stdout_lines()
        .find(|line| line.text.trim_start().starts_with(key))
        .unwrap_or_else(|| output.first_line())
}

/// Finds and reads the JSON object between the lines that cyclictest prints
/// around it.
fn read_json(output: CommandOutput<'_>) -> Result<Json, ParseError> {
    let mut start = None;
    let mut text = String::new();
    let mut closed = false;
    for line in output.stdout_lines() {
        match (start, closed) {
            (None, _) if line.text == "{" => start = Some(line),
            (Some(_), false) => closed = line.text == "}",
            _ if line.text.trim().is_empty() || line.text.starts_with('#') => continue,
            _ => return Err(output.stderr_or(&line, "cyclictest's JSON")),
        }
        text.push_str(line.text);
        text.push('\n');
    }
    let start = start.ok_or_else(|| output.ended("cyclictest's JSON"))?;
    if !closed {
        return Err(output.ended("the end of cyclictest's JSON"));
    }
    serde_json::from_str(&text).map_err(|error| {
        let number = start.number + error.line().max(1) - 1;
        let line = output.stdout_lines().nth(number - 1).unwrap_or(start);
        line.expected(format!("cyclictest's JSON ({error})"))
    })
}

/// The lowest lateness that leaves at most so many of 1000 wake-ups later;
/// nothing if that one overflowed the histogram.
fn quantile(histogram: &BTreeMap<u64, u64>, wakeups: u64, later_of_1000: u64) -> Option<u64> {
    let later = u128::from(wakeups) * u128::from(later_of_1000) / 1000;
    let rank = u128::from(wakeups) - later;
    let mut seen = 0_u128;
    histogram.iter().find_map(|(lateness, count)| {
        seen += u128::from(*count);
        (seen >= rank).then_some(*lateness)
    })
}
