//! Policy over the whole table, and what holds for every parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect_file;
use proptest::prelude::*;
use suite::{Tier, needs};

use crate::docs::shell_line;
use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, ParamKind};
use crate::param::ParamValue;
use crate::params::{ParamError, Params};
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::roles::{GuestStep, Readiness};
use crate::{CATALOGUE, find, markdown};

mod forms;

const FACTS: GuestFacts = GuestFacts::alone(2, false);

fn given(params: &[(&str, DefaultValue)]) -> BTreeMap<String, ParamValue> {
    params.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.value()?))).collect()
}

fn resolve(entry: &CatalogueEntry, params: &[(&str, DefaultValue)]) -> Params {
    entry.resolve(&given(params)).unwrap()
}

// ---- The table ----

fn is_identifier(text: &str, others: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || others.contains(c))
}

#[test]
fn names_are_unique_and_of_one_charset() {
    let mut names = BTreeSet::new();
    for entry in CATALOGUE {
        assert!(names.insert(entry.name), "{} stands twice", entry.name);
        assert!(is_identifier(entry.name, "-"), "{}", entry.name);
        let params: BTreeSet<_> = entry.params.iter().map(|param| param.name).collect();
        let metrics: BTreeSet<_> = entry.metrics.iter().map(|metric| metric.name).collect();
        assert_eq!(params.len(), entry.params.len(), "{}", entry.name);
        assert_eq!(metrics.len(), entry.metrics.len(), "{}", entry.name);
        assert!(params.iter().all(|name| is_identifier(name, "_")), "{}", entry.name);
        assert!(metrics.iter().all(|name| is_identifier(name, "-.")), "{}", entry.name);
    }
}

#[test]
fn every_row_says_all_that_the_documentation_needs() {
    for entry in CATALOGUE {
        let name = entry.name;
        assert!(!entry.summary.is_empty() && !entry.summary.ends_with('.'), "{name}");
        for sentence in [entry.about, entry.measures, entry.repeats] {
            assert!(sentence.ends_with('.') && !sentence.contains("  "), "{name}: {sentence}");
        }
        let helps = entry.params.iter().map(|param| param.help);
        for help in helps.chain(entry.metrics.iter().map(|metric| metric.help)) {
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}: {help}");
            assert!(!help.contains("  "), "{name}: {help}");
        }
        assert!(!entry.needs.is_empty(), "{name}");
        assert!(entry.beside.server.as_ref().is_none_or(|server| !server.needs.is_empty()));
    }
}

#[test]
fn metrics_have_base_units_and_one_primary() {
    for entry in CATALOGUE {
        assert!(entry.primary().primary);
        for param in entry.params {
            let ParamKind::Choice(words) = param.kind else { continue };
            for word in words {
                let given = given(&[(param.name, DefaultValue::Text(word))]);
                let params = entry.resolve(&given).unwrap();
                let primary = entry.metrics(&params).any(|metric| metric.primary);
                assert!(primary, "{}, {} = {word}", entry.name, param.name);
            }
        }
        for metric in entry.metrics {
            assert!(
                ["s", "B", "1/s", "B/s", "count", "ratio", "%"].contains(&metric.unit),
                "{}",
                metric.name
            );
            assert_eq!(entry.metric(metric.name).unwrap().to_metric().name, metric.name);
        }
    }
}

#[test]
fn defaults_and_limits_of_every_parameter_are_accepted() {
    for entry in CATALOGUE {
        for param in entry.params {
            let mut values: Vec<ParamValue> = param.default.value().into_iter().collect();
            match param.kind {
                ParamKind::Int(min, max) => {
                    assert!(min <= max, "{} {}", entry.name, param.name);
                    values.extend([ParamValue::Int(min), ParamValue::Int(max)]);
                    for outside in [min - 1, max + 1] {
                        let given =
                            BTreeMap::from([(param.name.to_owned(), ParamValue::Int(outside))]);
                        assert!(entry.resolve(&given).is_err(), "{} {}", entry.name, param.name);
                    }
                }
                ParamKind::Bool => {
                    values.extend([ParamValue::Bool(false), ParamValue::Bool(true)]);
                }
                ParamKind::Choice(words) => {
                    values.extend(words.iter().map(|word| ParamValue::Text((*word).to_owned())));
                }
                ParamKind::Name => values.push(ParamValue::Text("int64-float".to_owned())),
            }
            for value in values {
                let given = BTreeMap::from([(param.name.to_owned(), value)]);
                let params = entry.resolve(&given).unwrap();
                for facts in [FACTS, GuestFacts::alone(1, true)] {
                    for step in
                        [entry.server_setup(&params, &facts), entry.setup(&params, &facts)].concat()
                    {
                        check_step(entry, &step);
                    }
                    let argv = entry.command(&params, &facts);
                    let program = argv[0].as_str();
                    assert!(program == "sh" || entry.needs.contains(&program), "{}", entry.name);
                    assert!(argv.iter().all(|argument| !argument.is_empty()), "{argv:?}");
                    let duration_s = entry.duration_s(&params, &facts);
                    assert!(duration_s > 0.0 && duration_s.is_finite(), "{}", entry.name);
                }
            }
        }
    }
}

fn check_step(entry: &CatalogueEntry, step: &GuestStep) {
    match step {
        GuestStep::Write { path, .. } => assert!(path.starts_with('/'), "{}: {path}", entry.name),
        GuestStep::Run(argv) => assert!(!argv.is_empty(), "{}", entry.name),
        GuestStep::Start(daemon) => {
            let server = entry.beside.server.iter().flat_map(|server| server.needs);
            let program = daemon.argv[0].rsplit('/').next().unwrap();
            assert!(entry.needs.iter().chain(server).any(|need| *need == program), "{program}");
            assert!(!daemon.ready.script().is_empty());
        }
    }
}

#[test]
fn ports_are_found_in_the_kernels_tables() {
    let holds = |ready: &Readiness| {
        let status = Command::new("sh").args(["-c", &ready.script()]).status().unwrap();
        status.success()
    };
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    assert!(holds(&Readiness::Tcp(tcp_port)) && holds(&Readiness::Udp(udp_port)));
    drop((tcp, udp));
    assert!(!holds(&Readiness::Tcp(tcp_port)) && !holds(&Readiness::Udp(udp_port)));
    assert!(holds(&Readiness::Succeeds("true")) && !holds(&Readiness::Succeeds("false")));
}

#[test]
fn the_documentation_is_the_table() {
    expect_file!["../../../docs/workloads.md"].assert_eq(&markdown());
    for entry in CATALOGUE {
        assert!(markdown().contains(&entry.help()));
        assert!(entry.help().contains(&entry.example_toml()));
    }
}

#[test]
fn commands_of_the_help_can_be_run_as_they_stand() {
    for entry in CATALOGUE {
        let params = entry.resolve(&BTreeMap::new()).unwrap();
        let mut commands = vec![entry.command(&params, &FACTS)];
        let steps = [entry.server_setup(&params, &FACTS), entry.setup(&params, &FACTS)].concat();
        commands.extend(steps.into_iter().filter_map(|step| match step {
            GuestStep::Run(argv) => Some(argv),
            GuestStep::Start(daemon) => Some(daemon.argv),
            GuestStep::Write { text, .. } => {
                assert!(text.lines().all(|line| line != "EOF"), "{text}");
                None
            }
        }));
        for argv in commands {
            let script =
                format!("for word in {}; do printf '%s\\0' \"$word\"; done", shell_line(&argv));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.split_terminator('\0').collect::<Vec<_>>(), argv, "{}", entry.name);
        }
    }
}

// ---- Names and parameters that don't exist ----

#[test]
fn wrong_names_and_values_are_refused_with_a_near_match() {
    let message = |name: &str| find(name).unwrap_err().to_string();
    assert_eq!(find("hackbench").unwrap().name, "hackbench");
    assert_eq!(message("hackbnech"), r#"Unknown workload "hackbnech"; did you mean "hackbench"?"#);
    let all = message("?");
    assert!(all.starts_with(r#"Unknown workload "?"; known are hackbench, perf-messaging, "#));
    assert!(CATALOGUE.iter().all(|entry| all.contains(entry.name)), "{all}");

    let check = |workload: &str, key: &str, value: ParamValue, expected: &str| {
        let given = BTreeMap::from([(key.to_owned(), value)]);
        let error: ParamError = find(workload).unwrap().resolve(&given).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let text = |text: &str| ParamValue::Text(text.to_owned());
    check(
        "hackbench",
        "group",
        ParamValue::Int(1),
        r#"hackbench has no parameter "group"; did you mean "groups"?"#,
    );
    check(
        "perf-messaging",
        "zzz",
        ParamValue::Int(1),
        r#"perf-messaging has no parameter "zzz"; known are groups, loops, transport, tasks"#,
    );
    check(
        "hackbench",
        "groups",
        ParamValue::Int(0),
        "hackbench: groups = 0 is not a whole number from 1 to 1000",
    );
    check(
        "hackbench",
        "groups",
        ParamValue::Float(2.0),
        "hackbench: groups = 2.0 is not a whole number from 1 to 1000",
    );
    check(
        "hackbench",
        "transport",
        text("sockets"),
        r#"hackbench: transport = "sockets" is not one of "socket", "pipe"; did you mean "socket"?"#,
    );
    check(
        "cyclictest",
        "pinned",
        text("yes"),
        r#"cyclictest: pinned = "yes" is not true or false"#,
    );
    check(
        "stress-ng",
        "stressor",
        text("cpu 4 --vm"),
        "stress-ng: stressor = \"cpu 4 --vm\" is not a name (lower case letters, digits, -)",
    );
}

// ---- What the tools print ----

/// An output of a real tool, below `testdata`.
struct Golden {
    path: &'static str,
    workload: &'static str,
    params: &'static [(&'static str, DefaultValue)],
    /// True if it was run by the very command that the catalogue builds.
    ours: bool,
}

const fn ours(
    path: &'static str,
    workload: &'static str,
    params: &'static [(&'static str, DefaultValue)],
) -> Golden {
    Golden { path, workload, params, ours: true }
}

const fn other(
    path: &'static str,
    workload: &'static str,
    params: &'static [(&'static str, DefaultValue)],
) -> Golden {
    Golden { path, workload, params, ours: false }
}

const fn int(value: i64) -> DefaultValue {
    DefaultValue::Int(value)
}

const fn text(value: &'static str) -> DefaultValue {
    DefaultValue::Text(value)
}

const GOLDENS: &[Golden] = &[
    ours("rt-tests-2.4/hackbench-default", "hackbench", &[("groups", int(2)), ("loops", int(200))]),
    ours(
        "rt-tests-2.4/hackbench-pipe-thread",
        "hackbench",
        &[
            ("groups", int(1)),
            ("fds", int(5)),
            ("loops", int(2000)),
            ("datasize", int(64)),
            ("transport", text("pipe")),
            ("tasks", text("thread")),
        ],
    ),
    other("rt-tests-2.4/hackbench-old-form", "hackbench", &[]),
    other("rt-tests-2.4/hackbench-too-short", "hackbench", &[]),
    other("rt-tests-2.4/hackbench-bad-option", "hackbench", &[]),
    other("rt-tests-2.4/hackbench-bad-value", "hackbench", &[]),
    other("rt-tests-2.4/hackbench-killed", "hackbench", &[]),
    other("rt-tests-2.4/hackbench-interrupted", "hackbench", &[]),
    ours(
        "rt-tests-2.4/cyclictest-default",
        "cyclictest",
        &[("interval_us", int(200)), ("loops", int(10_000))],
    ),
    ours(
        "rt-tests-2.4/cyclictest-4-threads",
        "cyclictest",
        &[
            ("threads", int(4)),
            ("interval_us", int(500)),
            ("loops", int(2000)),
            ("priority", int(0)),
            ("pinned", DefaultValue::Bool(false)),
        ],
    ),
    ours(
        "rt-tests-2.4/cyclictest-overflow",
        "cyclictest",
        &[
            ("interval_us", int(500)),
            ("loops", int(2000)),
            ("priority", int(0)),
            ("histogram_us", int(100)),
        ],
    ),
    other("rt-tests-2.4/cyclictest-interrupted", "cyclictest", &[("loops", int(20_000))]),
    other("rt-tests-2.4/cyclictest-killed", "cyclictest", &[("loops", int(20_000))]),
    other("rt-tests-2.4/cyclictest-bad-option", "cyclictest", &[]),
    other("rt-tests-2.4/cyclictest-bad-priority", "cyclictest", &[("threads", int(1))]),
    ours(
        "perf-6.1/messaging-default",
        "perf-messaging",
        &[("groups", int(2)), ("loops", int(200))],
    ),
    ours(
        "perf-6.1/messaging-pipe-thread",
        "perf-messaging",
        &[
            ("groups", int(2)),
            ("loops", int(500)),
            ("transport", text("pipe")),
            ("tasks", text("thread")),
        ],
    ),
    other("perf-6.1/messaging-simple", "perf-messaging", &[]),
    other("perf-6.1/messaging-bad-option", "perf-messaging", &[]),
    other("perf-6.1/messaging-killed", "perf-messaging", &[]),
    ours("sysbench-1.0.20/cpu-time", "sysbench-cpu", &[("time_s", int(1))]),
    ours(
        "sysbench-1.0.20/cpu-events",
        "sysbench-cpu",
        &[("threads", int(3)), ("events", int(500)), ("cpu_max_prime", int(2000))],
    ),
    ours(
        "sysbench-1.0.20/cpu-no-event-in-time",
        "sysbench-cpu",
        &[("threads", int(1)), ("time_s", int(1)), ("cpu_max_prime", int(10_000_000))],
    ),
    other("sysbench-1.0.20/cpu-bad-option", "sysbench-cpu", &[]),
    other("sysbench-1.0.20/cpu-bad-threads", "sysbench-cpu", &[]),
    other("sysbench-1.0.20/cpu-interrupted", "sysbench-cpu", &[("time_s", int(1))]),
    other("sysbench-1.0.20/cpu-killed", "sysbench-cpu", &[("time_s", int(1))]),
    ours(
        "stress-ng-0.15.06/cpu-matrixprod",
        "stress-ng",
        &[("method", text("matrixprod")), ("time_s", int(1))],
    ),
    ours("stress-ng-0.15.06/pipe", "stress-ng", &[("stressor", text("pipe")), ("time_s", int(1))]),
    other(
        "stress-ng-0.15.06/mutex-log-only",
        "stress-ng",
        &[("stressor", text("mutex")), ("time_s", int(1))],
    ),
    other(
        "stress-ng-0.15.06/switch-brief-log",
        "stress-ng",
        &[("stressor", text("switch")), ("time_s", int(1))],
    ),
    other("stress-ng-0.15.06/log-to-stdout", "stress-ng", &[("time_s", int(1))]),
    other("stress-ng-0.15.06/two-stressors", "stress-ng", &[("time_s", int(1))]),
    other("stress-ng-0.15.06/no-metrics", "stress-ng", &[("time_s", int(1))]),
    ours(
        "stress-ng-0.15.06/unknown-stressor",
        "stress-ng",
        &[("stressor", text("nonsense")), ("time_s", int(1))],
    ),
    ours(
        "stress-ng-0.15.06/unknown-method",
        "stress-ng",
        &[("method", text("nonsense")), ("time_s", int(1))],
    ),
    ours(
        "stress-ng-0.15.06/skipped-stressor",
        "stress-ng",
        &[("stressor", text("apparmor")), ("time_s", int(1))],
    ),
    other("stress-ng-0.15.06/interrupted", "stress-ng", &[("time_s", int(1))]),
    other("stress-ng-0.15.06/killed", "stress-ng", &[("time_s", int(1))]),
    ours("iperf3-3.12/tcp", "iperf3", &[("streams", int(2)), ("time_s", int(1))]),
    ours(
        "iperf3-3.12/tcp-reverse",
        "iperf3",
        &[("reverse", DefaultValue::Bool(true)), ("time_s", int(1))],
    ),
    ours(
        "iperf3-3.12/udp",
        "iperf3",
        &[("protocol", text("udp")), ("udp_mbit_s", int(50)), ("time_s", int(1))],
    ),
    other("iperf3-3.12/refused", "iperf3", &[]),
    other("iperf3-3.12/interrupted", "iperf3", &[]),
    ours(
        "sysbench-1.0.20/memory",
        "sysbench-memory",
        &[("time_s", int(1)), ("block_kib", int(64))],
    ),
    other("sysbench-1.0.20/memory-killed", "sysbench-memory", &[]),
    ours("sysbench-1.0.20/threads", "sysbench-threads", &[("threads", int(8)), ("time_s", int(1))]),
    ours("sysbench-1.0.20/mutex", "sysbench-mutex", &[("threads", int(4)), ("locks", int(1000))]),
    ours("perf-6.1/pipe", "perf-pipe", &[("loops", int(2000))]),
    ours("perf-6.1/pipe-threads", "perf-pipe", &[("loops", int(2000)), ("tasks", text("thread"))]),
    ours("perf-6.1/syscall-basic", "perf-syscall", &[("loops", int(100_000))]),
    ours("perf-6.1/futex-hash", "perf-futex", &[("time_s", int(1))]),
    ours("perf-6.1/futex-wake", "perf-futex", &[("test", text("wake")), ("threads", int(4))]),
    ours("perf-6.1/memcpy", "perf-mem", &[("size_mib", int(4)), ("loops", int(2))]),
    ours("perf-6.1/numa-mem", "perf-numa", &[("memory_mib", int(32)), ("time_s", int(1))]),
    ours("sockperf-3.7/ping-pong", "sockperf", &[("time_s", int(2))]),
    ours(
        "sockperf-3.7/under-load",
        "sockperf",
        &[("mode", text("under-load")), ("time_s", int(2)), ("messages_per_s", int(500))],
    ),
    ours(
        "sockperf-3.7/throughput",
        "sockperf",
        &[("mode", text("throughput")), ("time_s", int(2))],
    ),
    other("sockperf-3.7/refused", "sockperf", &[]),
    ours("redis-7.0/get", "redis", &[("requests", int(2000)), ("clients", int(5))]),
    ours("redis-7.0/no-server", "redis", &[("requests", int(2000)), ("clients", int(5))]),
    ours("dbench-4.0/tbench-2", "tbench", &[("time_s", int(2))]),
    ours("dbench-4.0/dbench-2", "dbench", &[("time_s", int(2))]),
    ours(
        "fio-3.33/randrw",
        "fio",
        &[
            ("operation", text("randrw")),
            ("size_mib", int(16)),
            ("time_s", int(1)),
            ("ramp_s", int(0)),
        ],
    ),
    other("fio-3.33/missing-folder", "fio", &[]),
    ours("vmlab-probe-0.1/wakeup", "probe-wakeup", &[("time_ms", int(200)), ("repeats", int(2))]),
    ours("ab-2.3/static", "ab", &[("requests", int(200)), ("concurrency", int(10))]),
    other("ab-2.3/not-found", "ab", &[("requests", int(20))]),
    other("ab-2.3/refused", "ab", &[]),
    ours("linux-6.1/boot-4-vcpus", "boot", &[]),
    other("time-1.9/build", "kernbench", &[]),
    other("time-1.9/failed-build", "kernbench", &[]),
];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

impl Golden {
    fn read(&self, extension: &str) -> String {
        std::fs::read_to_string(testdata().join(format!("{}.{extension}", self.path))).unwrap()
    }

    fn parse(&self, stdout: &str, stderr: &str) -> Result<ParsedOutput, ParseError> {
        let entry = find(self.workload).unwrap();
        entry.parse(CommandOutput { stdout, stderr }, &resolve(entry, self.params), &FACTS)
    }
}

fn show(result: &Result<ParsedOutput, ParseError>) -> String {
    let parsed = match result {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}\n"),
    };
    let mut text = String::new();
    for sample in &parsed.samples {
        let _ = writeln!(text, "{} = {:?}", sample.metric, sample.value);
    }
    for histogram in &parsed.histograms {
        let record::Histogram { name, buckets_ns, overflows } = histogram;
        let ends = buckets_ns.first().zip(buckets_ns.last());
        let (first, last) = ends.map_or((0, 0), |(first, last)| (first.0, last.0));
        let _ = writeln!(
            text,
            "histogram {name}: {} values, {} buckets from {first} to {last} ns, {overflows} beyond",
            histogram.count(),
            buckets_ns.len(),
        );
    }
    let _ = writeln!(text, "version: {:?}", parsed.tool_version);
    for warning in &parsed.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

#[test]
fn outputs_of_the_real_tools_are_read_right() {
    for golden in GOLDENS {
        let result = golden.parse(&golden.read("stdout"), &golden.read("stderr"));
        expect_file![testdata().join(format!("{}.parsed", golden.path))].assert_eq(&show(&result));
        let entry = find(golden.workload).unwrap();
        if golden.ours {
            let command = entry.command(&resolve(entry, golden.params), &FACTS);
            assert_eq!(command.join(" "), golden.read("cmd").trim_end());
        }
        if let Ok(parsed) = result {
            assert_eq!(golden.read("status").trim(), "0", "{}: failed, but read", golden.path);
            check_against_table(entry, &resolve(entry, golden.params), &parsed);
        }
    }
}

/// Every metric of these parameters that isn't optional is there, and nothing
/// else.
fn check_against_table(entry: &CatalogueEntry, params: &Params, parsed: &ParsedOutput) {
    for sample in &parsed.samples {
        let known = entry.metrics(params).any(|metric| metric.name == sample.metric);
        assert!(known, "{}: {}", entry.name, sample.metric);
        assert!(sample.value.is_finite() && sample.value >= 0.0);
    }
    for metric in entry.metrics(params).filter(|metric| !metric.optional) {
        let found = parsed.samples.iter().any(|sample| sample.metric == metric.name);
        assert!(found, "{}: no {}", entry.name, metric.name);
    }
}

#[test]
fn every_output_below_testdata_is_in_the_test() {
    let tested: BTreeSet<String> = GOLDENS.iter().map(|golden| golden.path.to_owned()).collect();
    let mut kept = BTreeSet::new();
    for folder in std::fs::read_dir(testdata()).unwrap().map(Result::unwrap) {
        if !folder.file_type().unwrap().is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            if let Some(name) = name.strip_suffix(".cmd") {
                kept.insert(format!("{}/{name}", folder.file_name().to_str().unwrap()));
            }
        }
    }
    assert_eq!(tested, kept);
}

/// Every place near an end; in the middle of a long text, whose lines are much
/// alike, one of 23.
fn cuts(text: &str) -> impl Iterator<Item = usize> {
    const NEAR: usize = 2048;
    (0..text.len()).filter(|at| {
        let is_near = *at < NEAR || at + NEAR > text.len();
        text.is_char_boundary(*at) && (is_near || at % 23 == 0)
    })
}

#[test]
fn an_output_cut_off_anywhere_is_read_whole_or_refused() {
    let same = |golden: &Golden, whole: &ParsedOutput, cut: Option<ParsedOutput>, at: usize| {
        let Some(cut) = cut else { return };
        assert_eq!(whole.samples.len(), cut.samples.len(), "{} at byte {at}", golden.path);
        for (whole, cut) in whole.samples.iter().zip(&cut.samples) {
            assert_eq!(whole.metric, cut.metric, "{} at byte {at}", golden.path);
            // stress-ng repeats its YAML in its log, with two decimals.
            let close = (whole.value - cut.value).abs() <= 1e-3 * whole.value;
            assert!(close, "{} at byte {at}: {whole:?} became {cut:?}", golden.path);
            assert!(whole.value == cut.value || golden.workload == "stress-ng");
        }
    };
    for golden in GOLDENS {
        let (stdout, stderr) = (golden.read("stdout"), golden.read("stderr"));
        let Ok(whole) = golden.parse(&stdout, &stderr) else { continue };
        for at in cuts(&stdout) {
            same(golden, &whole, golden.parse(&stdout[..at], &stderr).ok(), at);
        }
        for at in cuts(&stderr) {
            same(golden, &whole, golden.parse(&stdout, &stderr[..at]).ok(), at);
        }
    }
}

/// What the tools say of their own histograms holds for ours.
#[test]
fn quantiles_that_are_printed_are_those_of_the_histogram() {
    let mut compared = BTreeSet::new();
    for golden in GOLDENS {
        let entry = find(golden.workload).unwrap();
        let parsed = golden.parse(&golden.read("stdout"), &golden.read("stderr"));
        let Ok(parsed) = parsed else { continue };
        // A probe prints those of each repeat, and one histogram of all.
        if golden.workload.starts_with("probe-") {
            assert!(!parsed.histograms.is_empty());
            continue;
        }
        for sample in &parsed.samples {
            let metric = entry.metric(&sample.metric).unwrap().to_metric();
            let Some((family, share)) = metric.quantile().filter(|(_, share)| *share < 1.0) else {
                continue;
            };
            let Some(histogram) = parsed.histograms.iter().find(|h| h.name == family) else {
                continue;
            };
            let rank = (share * histogram.count() as f64 * (1.0 - 1e-9)).ceil() as u64;
            let mut seen = 0;
            let at = histogram.buckets_ns.iter().find(|(_, count)| {
                seen += count;
                seen >= rank
            });
            let ours = at.map(|(ns, _)| *ns as f64 / 1e9).unwrap();
            assert!(
                (ours / sample.value - 1.0).abs() < 1e-12,
                "{}: {sample:?} {ours}",
                golden.path
            );
            compared.insert(golden.workload);
        }
    }
    assert_eq!(compared.into_iter().collect::<Vec<_>>(), ["cyclictest", "fio"]);
}

/// Its last bin ends at 2^34 ns and takes what is greater too.
#[test]
fn what_is_beyond_fios_last_bin_is_an_overflow() {
    let golden = GOLDENS.iter().find(|golden| golden.path == "fio-3.33/randrw").unwrap();
    let stdout = golden.read("stdout").replace("\"11206656\" :", "\"17112760320\" :");
    let check = |max: &str, expected: u64| {
        let stdout = stdout.replace("\"max\" : 11229646,", &format!("\"max\" : {max},"));
        let parsed = golden.parse(&stdout, "").unwrap();
        let [reads, writes] = &parsed.histograms[..] else { panic!("{parsed:?}") };
        assert_eq!((reads.overflows, writes.overflows), (expected, 0), "{max}");
        assert_eq!(reads.count(), 27_937);
    };
    check("17112760320", 0);
    check("20000000000", 7);
}

#[test]
fn a_thread_that_is_missing_is_noticed() {
    let golden = GOLDENS.iter().find(|golden| golden.path.ends_with("4-threads")).unwrap();
    let entry = find("cyclictest").unwrap();
    let (stdout, stderr) = (golden.read("stdout"), golden.read("stderr"));
    let output = CommandOutput { stdout: &stdout, stderr: &stderr };
    let parsed = golden.parse(&stdout, &stderr).unwrap();
    let threads =
        parsed.samples.iter().filter(|sample| sample.metric == "thread-latency-max").count();
    assert_eq!(threads, 4);

    let params = resolve(entry, &[("threads", int(5)), ("loops", int(2000))]);
    let error = entry.parse(output, &params, &FACTS).unwrap_err();
    assert!(error.to_string().contains("expected 5 threads, of which 4 follow"), "{error}");
    // A row of the histogram lost: more wake-ups beyond it than it can have.
    let row = stdout.lines().find(|line| line.trim_start().starts_with("\"70\":")).unwrap();
    let error = golden.parse(&stdout.replacen(&format!("{row}\n"), "", 1), &stderr).unwrap_err();
    assert!(error.to_string().contains("whose histogram fits"), "{error}");
    // The last thread's name lost, it stands where the one before did.
    let three = stdout.replace("    \"3\": {", "    \"2\": {");
    assert!(golden.parse(&three, &stderr).is_err());
}

proptest! {
    // One seed, so that a failure is the same everywhere.
    #![proptest_config(ProptestConfig {
        cases: 1000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_makes_a_parser_panic(stdout in "(?s).{0,300}", stderr in "(?s).{0,100}") {
        for entry in CATALOGUE {
            let output = CommandOutput { stdout: &stdout, stderr: &stderr };
            let _ = entry.parse(output, &resolve(entry, &[]), &FACTS);
        }
    }

    #[test]
    fn no_mutilated_output_makes_a_parser_panic(
        golden in proptest::sample::select((0..GOLDENS.len()).collect::<Vec<_>>()),
        from in any::<proptest::sample::Index>(),
        length in 0_usize..40,
        insert in "[0-9.{}\":,\n -]{0,12}|99999999999999999999|18446744073709551615",
    ) {
        let golden = &GOLDENS[golden];
        for stream in ["stdout", "stderr"] {
            let (stdout, stderr) = (golden.read("stdout"), golden.read("stderr"));
            let text = if stream == "stdout" { &stdout } else { &stderr };
            let chars: Vec<char> = text.chars().collect();
            let from = if chars.is_empty() { 0 } else { from.index(chars.len()) };
            let to = (from + length).min(chars.len());
            let mutilated: String =
                chars[..from].iter().copied().chain(insert.chars()).chain(chars[to..].iter().copied())
                    .collect();
            let result = match stream {
                "stdout" => golden.parse(&mutilated, &stderr),
                _ => golden.parse(&stdout, &mutilated),
            };
            if let Ok(parsed) = result {
                let entry = find(golden.workload).unwrap();
                check_against_table(entry, &resolve(entry, golden.params), &parsed);
            }
        }
    }
}

// ---- The tools of this machine ----

#[test]
fn installed_tools_take_the_command_lines_and_are_read() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let runs: &[(&str, &[(&str, DefaultValue)])] = &[
        ("hackbench", &[("groups", int(1)), ("loops", int(500))]),
        ("hackbench", &[("fds", int(3)), ("transport", text("pipe")), ("tasks", text("thread"))]),
        ("perf-messaging", &[("groups", int(1)), ("loops", int(500))]),
        ("sysbench-cpu", &[("time_s", int(1))]),
        ("sysbench-cpu", &[("events", int(300)), ("threads", int(1))]),
        ("cyclictest", &[("loops", int(2000)), ("interval_us", int(500)), ("priority", int(0))]),
        ("stress-ng", &[("stressor", text("switch")), ("time_s", int(1))]),
        ("stress-ng", &[("method", text("int64")), ("time_s", int(1)), ("instances", int(1))]),
    ];
    for (name, params) in runs {
        let entry = find(name).unwrap();
        let params = resolve(entry, params);
        let argv = entry.command(&params, &FACTS);
        let output = match Command::new(&argv[0]).args(&argv[1..]).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => {
                suite::skip_part(name, format!("cannot run {}: {error}", argv[0]));
                continue;
            }
        };
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // cyclictest locks its memory and sets its policy, whatever that is.
        if stderr.contains("missing capabilities") {
            suite::skip_part(name, "only root may, or whose RLIMIT_RTPRIO allows it");
            continue;
        }
        let output = CommandOutput { stdout: &stdout, stderr: &stderr };
        let parsed = entry.parse(output, &params, &FACTS).unwrap_or_else(|error| {
            panic!("{argv:?}: {error}\n{stdout}\n{stderr}");
        });
        check_against_table(entry, &params, &parsed);
    }
}
