//! dbench and tbench: the calls of a file server's clients, on a disk or over
//! the network.
//!
//! Source: dbench 4 `dbench.c`, `loadfiles/client.txt`, and its manual page.

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, bytes, quantile};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, line_of, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, SCRATCH, ServerRole, UnderTest};

/// tbench's own.
const PORT: u16 = 7003;

const METRICS: &[MetricDef] = &[
    bytes("throughput", "Bytes that all clients moved a second").primary(),
    quantile("latency-max", "Time of the longest operation"),
];

const CLIENTS: Param = Param::per_vcpu("clients", 4096, "Clients that replay the calls");

const TIME: Param = Param::int("time_s", (1, 86_400), 60, "How long").unit("s");

const REPEATS: &str = "One run lasts `time_s`, after a warm-up of a fifth of that, and brings one \
                       sample of every metric.";

/// A tmpfs that every Linux guest has.
const TMPFS: &str = "/dev/shm";

pub(crate) static DBENCH: CatalogueEntry = CatalogueEntry {
    name: "dbench",
    summary: "A file server's work on a scratch disk: small files, metadata, flushes (dbench 4)",
    about: "Every client replays the file calls of a recorded NetBench session: mostly metadata \
            and small writes, with flushes. On a disk it shows the disk's flushes as well as the \
            guest's file system and its locks; in a tmpfs the guest's locks alone, where the \
            files of all clients have to fit into the guest's memory.",
    measures: "File calls over the virtual disk: flushes, cache mode, lock contention.",
    needs: &["dbench"],
    beside: RoleCommands {
        scratch_mib: |params, _| if params.text("files") == "tmpfs" { 0 } else { 2048 },
        ..RoleCommands::NOTHING
    },
    params: &[
        CLIENTS,
        TIME,
        Param::choice("files", &["disk", "tmpfs"], "disk", "Where the clients' files are"),
    ],
    metrics: METRICS,
    repeats: REPEATS,
    example: &[("clients", DefaultValue::Int(4)), ("time_s", DefaultValue::Int(10))],
    command: |params, facts| {
        let folder = if params.text("files") == "tmpfs" { TMPFS } else { SCRATCH };
        argv("dbench", &["--directory", folder], params, facts)
    },
    parse,
    duration_s,
};

pub(crate) static TBENCH: CatalogueEntry = CatalogueEntry {
    name: "tbench",
    summary: "The traffic of dbench alone, between two guests (tbench 4)",
    about: "The clients send what a file server's would, and the server answers with as many \
            bytes as it should, without a disk.",
    measures: "Many small requests and answers over TCP between two VMs.",
    needs: &["tbench"],
    beside: RoleCommands {
        server: Some(ServerRole {
            needs: &["tbench_srv"],
            setup: |_, _| {
                let argv = vec!["tbench_srv".to_owned()];
                vec![GuestStep::Start(Daemon { argv, ready: Readiness::Tcp(PORT) })]
            },
            under_test: UnderTest::Server,
        }),
        ..RoleCommands::NOTHING
    },
    params: &[CLIENTS, TIME],
    metrics: METRICS,
    repeats: REPEATS,
    example: &[("clients", DefaultValue::Int(4)), ("time_s", DefaultValue::Int(10))],
    command: |params, facts| {
        let mut argv = argv("tbench", &[], params, facts);
        argv.push(facts.peer.to_string());
        argv
    },
    parse,
    duration_s,
};

fn argv(program: &str, more: &[&str], params: &Params, facts: &GuestFacts) -> Vec<String> {
    let mut argv = vec![
        program.to_owned(),
        "--loadfile=/usr/share/dbench/client.txt".to_owned(),
        format!("--timelimit={}", params.int("time_s")),
    ];
    argv.extend(more.iter().map(|word| (*word).to_owned()));
    argv.push(params.int_or_vcpus("clients", facts).to_string());
    argv
}

fn duration_s(params: &Params, facts: &GuestFacts) -> f64 {
    params.int("time_s") as f64 * 1.3 + facts.computing_s(1.0)
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    facts: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[pick("throughput", "throughput")];
    let log = one_log(output, "dbench")?;
    let result = log.values.iter().find(|value| value.metric == "throughput");
    let result = result.ok_or_else(|| output.ended("the line `Throughput`"))?;
    let line = line_of(output, result);
    line.whole()?;
    if result.value <= 0.0 {
        return Err(line.expected("a throughput above 0"));
    }
    let clients = params.int_or_vcpus("clients", facts).to_string();
    if result.labels.get("clients").is_some_and(|found| *found != clients) {
        return Err(line.expected(format!("{clients} clients")));
    }
    let mut parsed = take(output, &log, PICKS)?;
    // The operations have their own; this one is of all.
    let same_line =
        |value: &&record::LogValue| value.metric == "latency-max" && value.line == result.line;
    let latency = log.values.iter().find(same_line);
    let latency = latency.ok_or_else(|| output.ended("max_latency"))?;
    parsed.push("latency-max", latency.value);
    Ok(parsed)
}
