//! sockperf: latency and throughput of single messages between two guests.
//!
//! Source: sockperf's manual page and `src/client.cpp` (`log_histogram`,
//! `stream_statistics`).

use crate::entry::{
    CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, count, quantile, rate,
};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, above_zero, line_of, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, ServerRole, UnderTest};

const PORT: u16 = 11_111;

/// sockperf drops what it measured in the first and the last 400 ms.
const TRIMMED_S: f64 = 0.8;

/// A quantile of the messages' latencies, of the modes that have any.
const fn latency(name: &'static str, help: &'static str) -> MetricDef {
    quantile(name, help).only_with("mode", &["ping-pong", "under-load"])
}

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "sockperf",
    summary: "Latency and rate of single messages between two guests (sockperf)",
    about: "`ping-pong` waits for the answer to each message before the next, so it shows what a \
            wake-up through the virtual network costs. `under-load` sends `messages_per_s` and \
            has every hundredth answered. `throughput` only sends, as fast as it can, and nothing \
            is answered. Latencies are half of the round trip.",
    measures: "Notifications, interrupts and wake-ups on the way between two VMs.",
    needs: &["sockperf"],
    beside: RoleCommands {
        server: Some(ServerRole {
            needs: &["sockperf"],
            setup: |params, _| {
                let mut argv: Vec<String> =
                    ["sockperf", "server", "--ip", "0.0.0.0", "--port"].map(str::to_owned).into();
                argv.push(PORT.to_string());
                let tcp = params.text("protocol") == "tcp";
                argv.extend(tcp.then(|| "--tcp".to_owned()));
                let ready = if tcp { Readiness::Tcp(PORT) } else { Readiness::Udp(PORT) };
                vec![GuestStep::Start(Daemon { argv, ready })]
            },
            under_test: UnderTest::Server,
        }),
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::choice(
            "mode",
            &["ping-pong", "under-load", "throughput"],
            "ping-pong",
            "What the client does",
        ),
        Param::choice("protocol", &["udp", "tcp"], "udp", "What carries the messages"),
        Param::int("size", (14, 65_507), 64, "Size of a message").unit("B"),
        Param::int("time_s", (1, 86_400), 10, "How long").unit("s"),
        Param::int(
            "messages_per_s",
            (1, 10_000_000),
            10_000,
            "What `under-load` sends; the other modes send as fast as they can",
        ),
    ],
    metrics: &[
        rate("messages-per-s", "Messages that the client sent a second").primary(),
        latency("latency-p50", "Latency that half of the messages keep"),
        latency("latency-p99", "Latency that 99 % keep"),
        latency("latency-p99.9", "Latency that 99.9 % keep"),
        latency("latency-max", "The greatest latency"),
        count("lost", "Answers that did not come").only_with("mode", &["ping-pong", "under-load"]),
    ],
    repeats: "One run lasts `time_s` and brings one sample of every metric. The first and last \
              400 ms of it do not count.",
    example: &[("protocol", DefaultValue::Text("tcp")), ("time_s", DefaultValue::Int(5))],
    command,
    parse,
    duration_s: |params, facts| params.int("time_s") as f64 + facts.computing_s(0.5),
};

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let mode = params.text("mode");
    let mut argv: Vec<String> = ["sockperf", mode, "--ip"].map(str::to_owned).into();
    argv.push(facts.peer.to_string());
    for (option, value) in [
        ("--port", i64::from(PORT)),
        ("--msg-size", params.int("size")),
        ("--time", params.int("time_s")),
    ] {
        argv.extend([option.to_owned(), value.to_string()]);
    }
    if params.text("protocol") == "tcp" {
        argv.push("--tcp".to_owned());
    }
    if mode == "under-load" {
        argv.extend(["--mps".to_owned(), params.int("messages_per_s").to_string()]);
    }
    argv
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const THROUGHPUT: &[Pick] = &[pick("messages-per-s", "messages-per-s")];
    const VALID: &[Pick] = &[pick("time", "valid-time"), pick("sent", "valid-sent")];
    const LATENCIES: &[Pick] = &[
        pick("latency-p50", "latency").with("percentile", "50"),
        pick("latency-p99", "latency").with("percentile", "99"),
        pick("latency-p99.9", "latency").with("percentile", "99.9"),
        pick("latency-max", "latency-max"),
        pick("lost", "dropped-messages"),
    ];
    let log = one_log(output, "sockperf")?;
    if params.text("mode") == "throughput" {
        above_zero(output, &log, "messages-per-s")?;
        return take(output, &log, THROUGHPUT);
    }
    for from in ["valid-time", "valid-sent"] {
        above_zero(output, &log, from)?;
    }
    let valid = take(output, &log, VALID)?;
    let [time_s, sent] = [valid.samples[0].value, valid.samples[1].value];
    let wanted_s = params.int("time_s");
    if time_s + TRIMMED_S < 0.7 * wanted_s as f64
        && let Some(value) = log.values.iter().find(|value| VALID[0].fits(value))
    {
        return Err(line_of(output, value).expected(format!("a run of {wanted_s} s")));
    }
    let mut parsed = ParsedOutput { samples: Vec::new(), ..valid };
    parsed.push("messages-per-s", sent / time_s);
    parsed.samples.extend(take(output, &log, LATENCIES)?.samples);
    Ok(parsed)
}
