//! redis: requests to a database in memory.
//!
//! Source: redis-benchmark's help (`--csv` since Redis 6.2 has latencies).

use std::fmt::Write as _;

use record::{BetterDirection, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, rate};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, above_zero, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, ServerRole, UnderTest};

const PORT: u16 = 6379;

/// A latency of one request, in redis-benchmark's order.
const fn latency(name: &'static str, kind: MetricKind, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", BetterDirection::Lower, kind, help)
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
        server: Some(ServerRole {
            needs: &["redis-server"],
            setup: |_, _| {
                let options = ["--save", "", "--appendonly", "no", "--protected-mode", "no"];
                let argv = ["redis-server", "--port", &PORT.to_string(), "--dir", "/tmp"]
                    .into_iter()
                    .chain(options)
                    .map(str::to_owned)
                    .collect();
                vec![GuestStep::Start(Daemon { argv, ready: Readiness::Tcp(PORT) })]
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
        rate("requests-per-s", "Requests that were answered a second").primary(),
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

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[
        pick("requests-per-s", "requests-per-s"),
        pick("latency-avg", "latency-avg"),
        pick("latency-p50", "latency").with("percentile", "50"),
        pick("latency-p95", "latency").with("percentile", "95"),
        pick("latency-p99", "latency").with("percentile", "99"),
        pick("latency-max", "latency-max"),
    ];
    let log = one_log(output, "redis-benchmark")?;
    above_zero(output, &log, "requests-per-s")?;
    take(output, &log, PICKS)
}
