//! redis: requests to a database in memory.
//!
//! Source: redis-benchmark's help (`--csv` since Redis 6.2 has latencies).

use std::fmt::Write as _;

use record::{Better, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::roles::{Daemon, GuestStep, Ready, RoleCommands, Server, UnderTest};

const PORT: u16 = 6379;

/// A latency of one request, in redis-benchmark's order.
const fn latency(name: &'static str, kind: MetricKind, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", Better::Lower, kind, help)
}

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "redis",
    summary: "Requests to a database in memory (Redis, redis-benchmark)",
    about: "The server answers with one thread and keeps everything in memory; nothing is written \
            to a disk. With `pipeline` 1 the round trip is what is measured, with more the \
            server's own work.",
    measures: "Small requests over TCP: wake-ups on both sides, and one busy vCPU at the server.",
    needs: &["redis-benchmark", "redis-cli", "timeout", "sh"],
    beside: RoleCommands {
        server: Some(Server {
            needs: &["redis-server"],
            setup: |_, _| {
                let options = ["--save", "", "--appendonly", "no", "--protected-mode", "no"];
                let argv = ["redis-server", "--port", &PORT.to_string(), "--dir", "/tmp"]
                    .into_iter()
                    .chain(options)
                    .map(str::to_owned)
                    .collect();
                vec![GuestStep::Start(Daemon { argv, ready: Ready::Tcp(PORT) })]
            },
            under_test: UnderTest::Server,
        }),
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::choice(
            "test",
            &["get", "set", "incr", "lpush", "ping_mbulk"],
            "get",
            "What is asked for",
        ),
        Param::int("requests", (1, 1_000_000_000), 100_000, "Requests of a run"),
        Param::int("clients", (1, 10_000), 50, "Connections"),
        Param::int("pipeline", (1, 10_000), 1, "Requests on the way in one connection"),
        Param::int("value_bytes", (1, 1 << 24), 64, "Size of a value").unit("B"),
    ],
    metrics: &[
        MetricDef::new(
            "requests-per-s",
            "1/s",
            Better::Higher,
            MetricKind::Rate,
            "Requests that were answered a second",
        )
        .primary(),
        latency("latency-avg", MetricKind::Time, "Mean latency"),
        latency("latency-p50", MetricKind::Quantile, "Latency that half of the requests keep"),
        latency("latency-p95", MetricKind::Quantile, "Latency that 95 % keep"),
        latency("latency-p99", MetricKind::Quantile, "Latency that 99 % keep"),
        latency("latency-max", MetricKind::Quantile, "The greatest latency"),
    ],
    repeats: "One run makes `requests` and brings one sample of every metric.",
    example: &[("test", DefaultValue::Text("set")), ("clients", DefaultValue::Int(10))],
    command,
    parse,
    duration_s: |params, facts| facts.computing_s(0.2 + params.int("requests") as f64 * 2e-5),
};

/// redis-benchmark knocks for ever at a door that nobody opens; so the server
/// is asked for a sign of life first.
fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let server = format!("-h {} -p {PORT}", facts.peer);
    let mut script = format!(
        "timeout 30 redis-cli {server} ping >/dev/null && exec redis-benchmark --csv {server} -t {}",
        params.text("test")
    );
    for (option, name) in
        [("-n", "requests"), ("-c", "clients"), ("-P", "pipeline"), ("-d", "value_bytes")]
    {
        let _ = write!(script, " {option} {}", params.int(name));
    }
    ["sh", "-c", &script].map(str::to_owned).into()
}

/// The columns of the table, and whether each is a time in ms.
const HEAD: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let mut lines = output.stdout_lines().skip_while(|line| line.text.trim() != HEAD);
    lines.next().ok_or_else(|| output.ended("the head of redis-benchmark's table"))?;
    let row = lines.next().ok_or_else(|| output.ended("a row of redis-benchmark's table"))?;
    if let Some(second) = lines.next() {
        return Err(second.expected("one row"));
    }
    let cells: Vec<&str> = row.text.trim().split(',').map(|cell| cell.trim_matches('"')).collect();
    let [_, rate, mean, _, p50, p95, p99, max] = cells.as_slice() else {
        return Err(row.expected("8 cells"));
    };
    let mut parsed = ParsedOutput::default();
    let rate = row.number(rate, "a rate")?;
    if rate == 0.0 {
        return Err(row.expected("a rate above 0"));
    }
    parsed.push("requests-per-s", rate);
    for (metric, cell) in [
        ("latency-avg", mean),
        ("latency-p50", p50),
        ("latency-p95", p95),
        ("latency-p99", p99),
        ("latency-max", max),
    ] {
        parsed.push(metric, row.number(cell, "a latency in ms")? * 1e-3);
    }
    Ok(parsed)
}
