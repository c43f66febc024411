//! cyclictest: how late a timer wakes a thread.
//!
//! Source: rt-tests `src/cyclictest/cyclictest.c` and its manual page. The
//! results are read from its JSON (`--json`, since rt-tests 2.0), which has
//! every thread's whole histogram; its text output interleaves with it, so it
//! is sent elsewhere.

use record::{Histogram, LogValue};

use crate::entry::{
    CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, count, quantile, time,
};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputStream, ParseError, ParsedOutput};
use crate::pick::{line_of, one_whole_log, pick};
use crate::roles::RoleCommands;
use logs::Log;

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
    Param::per_vcpu("threads", 4096, "Threads that sleep and wake"),
    Param::bool(
        "pinned",
        true,
        "Every thread on one vCPU, in turn; otherwise wherever the guest puts it",
    ),
    Param::int("interval_us", (50, 1_000_000), 1000, "Time from one wake-up to the next")
        .unit("us"),
    Param::int(
        "priority",
        (0, 99),
        80,
        "SCHED_FIFO priority of the threads; 0 for ordinary threads",
    ),
    Param::int(
        "loops",
        (500, 100_000_000),
        5000,
        "Wake-ups of a thread; the run ends when the first thread had so many",
    ),
    Param::int(
        "histogram_us",
        (100, 1_000_000),
        100_000,
        "Where the histogram ends; a quantile beyond it is not given",
    )
    .unit("us"),
];

const METRICS: &[MetricDef] = &[
    quantile(
        "latency-p99",
        "Lateness that 99 % of the wake-ups keep; absent beyond the histogram and below 2000 \
             wake-ups",
    )
    .optional()
    .primary(),
    quantile("latency-p50", "Lateness that half of the wake-ups keep; absent beyond the histogram")
        .optional(),
    quantile(
        "latency-p99.9",
        "Lateness that 99.9 % of the wake-ups keep; absent beyond the histogram and below 20000 \
         wake-ups",
    )
    .optional(),
    quantile("latency-max", "Lateness of the latest wake-up"),
    time("latency-avg", "Mean lateness of all wake-ups"),
    time("thread-latency-avg", "Mean lateness of a thread").per_thread(),
    quantile("thread-latency-max", "Lateness of a thread's latest wake-up").per_thread(),
    count("overflows", "Wake-ups later than the histogram's end"),
];

/// The quantiles: metric, the percentile that the reader has, and from how many wake-ups
/// it has it.
const QUANTILES: [(&str, &str, f64); 3] = [
    ("latency-p50", "50", 40.0),
    ("latency-p99", "99", 2000.0),
    ("latency-p99.9", "99.9", 20_000.0),
];

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

/// All values of a metric of the threads, in their order.
fn of_threads<'a>(log: &'a Log, metric: &'a str) -> impl Iterator<Item = &'a LogValue> {
    log.values
        .iter()
        .filter(move |value| value.metric == *metric && value.labels.get("thread").is_some())
}

const US_PER_S: f64 = 1e6;

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let log = one_whole_log(output, "cyclictest")?;
    check(&log, output, params, facts)?;

    let mut parsed = ParsedOutput { tool_version: log.version.clone(), ..ParsedOutput::default() };
    let histogram_us = params.int("histogram_us");
    let wakeups: f64 = of_threads(&log, "cycles").map(|cycles| cycles.value).sum();
    for (metric, percentile, least) in QUANTILES {
        let known = pick(metric, "latency").with("percentile", percentile);
        match log.values.iter().find(|value| known.fits(value)) {
            Some(value) => parsed.push(metric, value.value),
            None if wakeups < least => {}
            None => parsed.warnings.push(format!(
                "{metric} lies beyond the histogram: raise histogram_us ({histogram_us})"
            )),
        }
    }
    let values = |metric| of_threads(&log, metric).map(|value| value.value);
    parsed.push("latency-max", values("latency-max").fold(0.0, f64::max));
    let all = values("cycles").zip(values("latency-avg")).map(|(cycles, avg)| cycles * avg);
    parsed.push("latency-avg", all.sum::<f64>() / wakeups);
    for metric in ["latency-avg", "latency-max"] {
        for value in values(metric) {
            parsed.push(&format!("thread-{metric}"), value);
        }
    }
    let all = log.distributions.iter().map(|thread| &thread.histogram);
    let overflows = all.clone().fold(0, |sum: u64, thread| sum.saturating_add(thread.overflows));
    parsed.push("overflows", overflows as f64);
    let buckets = all.flat_map(|thread| thread.buckets_ns.iter().copied());
    parsed.histograms.push(Histogram::new("latency", buckets, overflows));
    for line in output.stderr_lines().filter(|line| !line.text.trim().is_empty()) {
        parsed.warnings.push(format!("cyclictest says: {}", line.text.trim()));
    }
    Ok(parsed)
}

/// Refuses a run that isn't the one that was asked for, or not all of it.
fn check(
    log: &Log,
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<(), ParseError> {
    let threads = params.int_or_vcpus("threads", facts);
    for metric in ["cycles", "latency-max", "latency-avg"] {
        let listed = of_threads(log, metric).count();
        if i64::try_from(listed) != Ok(threads) {
            let first = log.values.first().map(|value| line_of(output, value));
            let line = first.unwrap_or_else(|| output.first_line());
            return Err(line.expected(format!("{threads} threads, of which {listed} follow")));
        }
    }
    let by_cycles = |a: &&LogValue, b: &&LogValue| a.value.total_cmp(&b.value);
    let loops = params.int("loops");
    if let Some(most) = of_threads(log, "cycles").max_by(by_cycles)
        && most.value < loops as f64
    {
        let expected = format!("{loops} wake-ups of a thread, but {} were most", most.value);
        return Err(line_of(output, most).expected(expected));
    }
    if log.distributions.len() != of_threads(log, "cycles").count() {
        return Err(output.ended("a histogram of each thread, in us"));
    }
    let least_beyond_s = params.int("histogram_us") as f64 / US_PER_S;
    for (thread, max) in log.distributions.iter().zip(of_threads(log, "latency-max")) {
        if thread.histogram.overflows > 0 && max.value < least_beyond_s {
            let line = output.line(OutputStream::Stdout, thread.line);
            return Err(line.expected("a thread whose histogram fits its cycles and max"));
        }
    }
    Ok(())
}
