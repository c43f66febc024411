//! sysbench-cpu: every event tests all numbers up to a limit for being prime.
//!
//! Source: sysbench 1.0 `src/tests/cpu/sb_cpu.c`, `src/sysbench.c`.

use record::{Better, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, ParamKind, Scope};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputLine, ParseError, ParsedOutput};
use crate::roles::RoleCommands;

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
    Param {
        name: "threads",
        kind: ParamKind::Int(1, 4096),
        default: DefaultValue::PerVcpu,
        unit: None,
        help: "Threads that compute",
    },
    Param {
        name: "time_s",
        kind: ParamKind::Int(1, 86_400),
        default: DefaultValue::Int(10),
        unit: Some("s"),
        help: "How long it computes, unless `events` says otherwise",
    },
    Param {
        name: "events",
        kind: ParamKind::Int(0, 1_000_000_000),
        default: DefaultValue::Int(0),
        unit: None,
        help: "Events in all threads together after which it ends, however long they take; 0 to \
               end by time",
    },
    Param {
        name: "cpu_max_prime",
        kind: ParamKind::Int(3, 10_000_000),
        default: DefaultValue::Int(10_000),
        unit: None,
        help: "The number up to which one event tests for primes",
    },
];

const METRICS: &[MetricDef] = &[
    MetricDef {
        name: "events-per-s",
        unit: "1/s",
        better: Better::Higher,
        kind: MetricKind::Rate,
        primary: true,
        scope: Scope::Total,
        optional: false,
        only_with: None,
        help: "Events per second of all threads together",
    },
    MetricDef {
        name: "latency-avg",
        unit: "s",
        better: Better::Lower,
        kind: MetricKind::Time,
        primary: false,
        scope: Scope::Total,
        optional: true,
        only_with: None,
        help: "Mean time of one event; absent below 5 us",
    },
    MetricDef {
        name: "latency-p95",
        unit: "s",
        better: Better::Lower,
        kind: MetricKind::Quantile,
        primary: false,
        scope: Scope::Total,
        optional: true,
        only_with: None,
        help: "Time within which 95 % of the events ended; absent below 5 us",
    },
    MetricDef {
        name: "latency-max",
        unit: "s",
        better: Better::Lower,
        kind: MetricKind::Quantile,
        primary: false,
        scope: Scope::Total,
        optional: true,
        only_with: None,
        help: "Time of the longest event; absent below 5 us",
    },
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

/// The lines with a value that must all be there, in the order of the output.
/// The last one is there to know that nothing was cut off.
const LINES: [(&str, &str); 9] = [
    ("Number of threads:", ""),
    ("events per second:", ""),
    ("total time:", "s"),
    ("total number of events:", ""),
    ("avg:", ""),
    ("max:", ""),
    ("95th percentile:", ""),
    ("sum:", ""),
    ("execution time (avg/stddev):", ""),
];

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let mut parsed = ParsedOutput::default();
    let mut found: [Option<OutputLine<'_>>; LINES.len()] = [None; LINES.len()];
    for line in output.stdout_lines() {
        let text = line.text.trim();
        if let Some(rest) = text.strip_prefix("sysbench ") {
            parsed.tool_version = rest.split_whitespace().next().map(str::to_owned);
        } else if text.starts_with("FATAL") {
            return Err(line.expected("no fatal error"));
        } else if text.starts_with("WARNING") {
            parsed.warnings.push(format!("sysbench says: {text}"));
        }
        if let Some(index) = LINES.iter().position(|(label, _)| text.starts_with(label)) {
            if found[index].is_some() {
                return Err(line.expected("one run's results, not a second one"));
            }
            line.whole()?;
            found[index] = Some(line);
        }
    }
    let value = |index: usize| -> Result<(f64, OutputLine<'_>), ParseError> {
        let (label, unit) = LINES[index];
        let line = found[index].ok_or_else(|| output.ended(format!("{label:?}")))?;
        let text = line.text.trim().strip_prefix(label).unwrap_or_default().trim();
        let text = text.strip_suffix(unit).unwrap_or(text);
        // "0.9982/0.00": the mean, and the deviation between the threads.
        Ok((line.number(text.split('/').next().unwrap_or_default(), label)?, line))
    };
    for index in 0..LINES.len() {
        value(index)?;
    }

    let threads = params.int_or_vcpus("threads", facts);
    let (ran, line) = value(0)?;
    if ran != threads as f64 {
        return Err(line.expected(format!("{threads} threads")));
    }
    let events = params.int("events");
    if events > 0 {
        let (done, line) = value(3)?;
        if done < events as f64 {
            return Err(line.expected(format!("all {events} events: it ended too early")));
        }
    } else {
        let (took_s, line) = value(2)?;
        if took_s < 0.9 * params.int("time_s") as f64 {
            let time_s = params.int("time_s");
            return Err(line.expected(format!("a run of {time_s} s: it ended too early")));
        }
    }
    let (rate, line) = value(1)?;
    if rate == 0.0 {
        return Err(line.expected("a rate above 0 (no event ended in time: a lower cpu_max_prime)"));
    }
    parsed.push("events-per-s", rate);
    for (metric, index) in [("latency-avg", 4), ("latency-p95", 6), ("latency-max", 5)] {
        let (ms, _) = value(index)?;
        if ms > 0.0 {
            parsed.push(metric, ms / 1e3);
        }
    }
    Ok(parsed)
}
