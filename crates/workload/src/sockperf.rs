//! sockperf: latency and throughput of single messages between two guests.
//!
//! Source: sockperf's manual page and `src/client.cpp` (`log_histogram`,
//! `stream_statistics`).

use record::{Better, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param};
use crate::params::Params;
use crate::parse::{CommandOutput, OutputLine, ParseError, ParsedOutput};
use crate::roles::{Daemon, GuestStep, Ready, RoleCommands, Server, UnderTest};

const PORT: u16 = 11_111;

/// sockperf drops what it measured in the first and the last 400 ms.
const TRIMMED_S: f64 = 0.8;

/// A quantile of the messages' latencies, of the modes that have any.
const fn latency(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", Better::Lower, MetricKind::Quantile, help)
        .only_with("mode", &["ping-pong", "under-load"])
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
        server: Some(Server {
            needs: &["sockperf"],
            setup: |params, _| {
                let mut argv: Vec<String> =
                    ["sockperf", "server", "--ip", "0.0.0.0", "--port"].map(str::to_owned).into();
                argv.push(PORT.to_string());
                let tcp = params.text("protocol") == "tcp";
                argv.extend(tcp.then(|| "--tcp".to_owned()));
                let ready = if tcp { Ready::Tcp(PORT) } else { Ready::Udp(PORT) };
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
        MetricDef::new(
            "messages-per-s",
            "1/s",
            Better::Higher,
            MetricKind::Rate,
            "Messages that the client sent a second",
        )
        .primary(),
        latency("latency-p50", "Latency that half of the messages keep"),
        latency("latency-p99", "Latency that 99 % keep"),
        latency("latency-p99.9", "Latency that 99.9 % keep"),
        latency("latency-max", "The greatest latency"),
        MetricDef::new(
            "lost",
            "count",
            Better::Lower,
            MetricKind::Count,
            "Answers that did not come",
        )
        .only_with("mode", &["ping-pong", "under-load"]),
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

/// A number behind `label`, up to white space or a bracket.
fn behind<'a>(line: &OutputLine<'a>, label: &str) -> Option<&'a str> {
    let (_, rest) = line.text.split_once(label)?;
    rest.trim_start().split([' ', ';', '[', ',']).next()
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let mut parsed = ParsedOutput::default();
    let mut quantiles: [Option<f64>; 4] = [None; 4];
    let labels = [
        "---> percentile 50.000 =",
        "---> percentile 99.000 =",
        "---> percentile 99.900 =",
        "---> <MAX> observation =",
    ];
    let (mut rate, mut lost) = (None, None);
    for line in output.stdout_lines() {
        let text = line.text;
        if let Some(rest) = text.split("== version #").nth(1) {
            parsed.tool_version = rest.split(['-', ' ']).next().map(str::to_owned);
        }
        for (label, quantile) in labels.iter().zip(&mut quantiles) {
            if let Some(value) = behind(&line, label) {
                *quantile = Some(line.number(value, "a latency in us")?);
            }
        }
        if let Some(value) = behind(&line, "Summary: Message Rate is ") {
            rate = Some(line.number(value, "a rate")?);
        } else if text.contains("[Valid Duration]")
            && let (Some(time), Some(sent)) =
                (behind(&line, "RunTime="), behind(&line, "SentMessages="))
        {
            let time_s = line.number(time.trim_end_matches("sec"), "seconds")?;
            let sent = line.number(sent, "messages")?;
            if time_s + TRIMMED_S < 0.7 * params.int("time_s") as f64 {
                return Err(line.expected(format!("a run of {} s", params.int("time_s"))));
            }
            rate = Some(sent / time_s);
        } else if let Some(value) = behind(&line, "# dropped messages =") {
            lost = Some(line.number(value, "dropped messages")?);
        } else if text.contains("ERROR:") {
            return Err(line.expected("no error"));
        }
    }
    let rate = rate.filter(|rate| *rate > 0.0);
    parsed.push("messages-per-s", rate.ok_or_else(|| output.ended("the rate of messages"))?);
    if params.text("mode") == "throughput" {
        return Ok(parsed);
    }
    let names = ["latency-p50", "latency-p99", "latency-p99.9", "latency-max"];
    for (name, value) in names.iter().zip(quantiles) {
        let us = value.ok_or_else(|| output.ended(*name))?;
        parsed.push(name, us * 1e-6);
    }
    parsed.push("lost", lost.ok_or_else(|| output.ended("# dropped messages"))?);
    Ok(parsed)
}
