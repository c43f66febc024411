//! sysbench-cpu: every event tests all numbers up to a limit for being prime.
//!
//! Source: sysbench 1.0 `src/tests/cpu/sb_cpu.c`, `src/sysbench.c`.

use crate::entry::{
    CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, quantile, rate, time,
};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, above_zero, line_of, pick, take};
use crate::roles::RoleCommands;
use crate::sysbench;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "sysbench-cpu",
    summary: "Pure computing: prime numbers on every vCPU (sysbench cpu)",
    about: "The threads share nothing and make no system calls, so a well-pinned VM should be \
            as fast as its pCPUs: what is lost here is lost to steal, to sibling threads, or to \
            the clock of the pCPUs. Latencies are those of one event and grow with \
            `cpu_max_prime`; sysbench prints them in steps of 10 us, and its percentile comes \
            from a histogram with steps of a few percent.",
    measures: "Events per second: how much computing time the vCPUs get.",
    needs: &["sysbench"],
    beside: RoleCommands::NOTHING,
    params: PARAMS,
    metrics: METRICS,
    repeats: "One run prints one rate and one set of latencies over all its threads, which are \
              the samples; repeat it by the study's `invocations`.",
    example: &[("time_s", DefaultValue::Int(5)), ("threads", DefaultValue::Int(2))],
    command,
    parse,
    duration_s,
};

const PARAMS: &[Param] = &[
    Param::per_vcpu("threads", 4096, "Threads that compute"),
    Param::int("time_s", (1, 86_400), 10, "How long it computes, unless `events` says otherwise")
        .unit("s"),
    Param::int(
        "events",
        (0, 1_000_000_000),
        0,
        "Events in all threads together after which it ends, however long they take; 0 to \
               end by time",
    ),
    Param::int(
        "cpu_max_prime",
        (3, 10_000_000),
        10_000,
        "The number up to which one event tests for primes",
    ),
];

const METRICS: &[MetricDef] = &[
    rate("events-per-s", "Events per second of all threads together").primary(),
    time("latency-avg", "Mean time of one event; absent below 5 us").optional(),
    quantile("latency-p95", "Time within which 95 % of the events ended; absent below 5 us")
        .optional(),
    quantile("latency-max", "Time of the longest event; absent below 5 us").optional(),
];

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let events = params.int("events");
    let time_s = if events > 0 { 0 } else { params.int("time_s") };
    vec![
        "sysbench".to_owned(),
        "cpu".to_owned(),
        format!("--threads={}", params.int_or_vcpus("threads", facts)),
        format!("--time={time_s}"),
        format!("--events={events}"),
        format!("--cpu-max-prime={}", params.int("cpu_max_prime")),
        "run".to_owned(),
    ]
}

fn duration_s(params: &Params, facts: &GuestFacts) -> f64 {
    match params.int("events") {
        0 => params.int("time_s") as f64 + facts.computing_s(0.05),
        events => {
            // Trial division up to the root: an event takes about
            // 0.4 ms for 10000, and grows with the limit's power of 1.5.
            let event_s = 4e-4 * (params.int("cpu_max_prime") as f64 / 1e4).powf(1.5);
            let at_once = params.int_or_vcpus("threads", facts).min(i64::from(facts.vcpus)).max(1);
            facts.computing_s(0.05 + event_s * events as f64 / at_once as f64)
        }
    }
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[
        pick("events-per-s", "events-per-s"),
        pick("latency-avg", "latency-avg"),
        pick("latency-p95", "latency").with("percentile", "95"),
        pick("latency-max", "latency-max"),
    ];
    let log = sysbench::whole_log(output, params, facts)?;
    let (events, time_s) = (params.int("events") as f64, params.int("time_s") as f64);
    let (done, least, wanted) = match params.int("events") {
        0 => ("total-time", 0.9 * time_s, format!("a run of {time_s} s")),
        _ => ("events", events, format!("all {events} events")),
    };
    let done = log.values.iter().find(|value| value.metric == done);
    if let Some(done) = done.filter(|done| done.value < least) {
        let wanted = format!("{wanted}: it ended too early");
        return Err(line_of(output, done).expected(wanted));
    }
    above_zero(output, &log, "events-per-s")?;
    let mut parsed = take(output, &log, PICKS)?;
    let warned = output.stdout_lines().filter(|line| line.text.trim().starts_with("WARNING"));
    parsed.warnings.extend(warned.map(|line| format!("sysbench says: {}", line.text.trim())));
    // 0.00 ms is less than it prints, not no time.
    parsed.samples.retain(|sample| sample.value > 0.0);
    Ok(parsed)
}
