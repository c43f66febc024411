//! What holds for every reader, on outputs of the real tools.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use expect_test::expect_file;
use proptest::prelude::*;
use record::LogValue;

mod whole;

use super::pieces::tests::whole_and_in_pieces;
use super::{Log, TOOLS, Tool, read, recognise, tool};

/// Every kept output, `testdata/<tool>-<version>/NAME.log`, or
/// `NAME.as-TOOL.log` where nothing in it says whose it is.
static GOLDENS: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut goldens = Vec::new();
    for folder in std::fs::read_dir(testdata).unwrap().map(|entry| entry.unwrap().path()) {
        if !folder.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read_to_string(&file).unwrap();
                goldens.push((file, text));
            }
        }
    }
    goldens.sort();
    goldens
});

fn show(logs: &[Log]) -> String {
    let mut text = String::new();
    for log in logs {
        let _ = writeln!(text, "{} {}", log.tool, log.version.as_deref().unwrap_or("-"));
        for value in &log.values {
            let _ = writeln!(text, "{}", show_value(value));
        }
        for failed in &log.failed {
            let _ = writeln!(text, "  {}: failed, {}: {}", failed.line, failed.why, failed.text);
        }
        for unread in &log.unread {
            let _ = writeln!(text, "  {}: unread, {}: {}", unread.line, unread.why, unread.text);
        }
    }
    text
}

fn show_value(value: &LogValue) -> String {
    let mut text = format!("  {}: {} = {:?} {}", value.line, value.metric, value.value, value.unit);
    if let Some(better) = value.better {
        let _ = write!(text, ", {better}");
    }
    let _ = write!(text, ", {:?}", value.kind);
    for (key, label) in value.labels.iter() {
        let _ = write!(text, " {key}={label}");
    }
    text
}

/// The tool that an output's name says.
fn named(path: &Path) -> Option<&'static Tool> {
    let stem = path.file_stem()?.to_str()?;
    stem.rsplit_once(".as-").map(|(_, name)| tool(name).expect("the name of a tool"))
}

fn values(path: &Path, text: &str) -> Vec<LogValue> {
    read(text, named(path)).into_iter().flat_map(|log| log.values).collect()
}

// ---- The table ----

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), TOOLS.len());
    for name in names {
        assert_eq!(tool(name).unwrap().name, name);
    }
    assert!(tool("nonsense").is_none());
}

#[test]
fn the_documentation_lists_every_tool() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/import.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<String> =
        TOOLS.iter().map(|tool| format!("| `{}` | {} |", tool.name, tool.about)).collect();
    assert!(page.contains(&rows.join("\n")), "docs/import.md lists:\n{}", rows.join("\n"));
}

// ---- Outputs of the real tools ----

#[test]
fn outputs_are_read_right() {
    for (path, text) in GOLDENS.iter() {
        let logs = read(text, named(path));
        expect_file![path.with_extension("records")].assert_eq(&show(&logs));
        for value in logs.iter().flat_map(|log| &log.values) {
            check_value(value, text, path);
        }
    }
}

/// What holds for every value: a base unit, and a number of its line.
fn check_value(value: &LogValue, text: &str, path: &Path) {
    let shown = || format!("{}: {}", path.display(), show_value(value));
    assert!(value.value.is_finite(), "{}", shown());
    let units = ["s", "B", "1/s", "B/s", "count", "%", "1", "Hz", "W", "J", "K", "flop/s", "°C"];
    assert!(units.contains(&&*value.unit), "{}", shown());
    assert!(is_name(&value.metric), "{}", shown());
    assert!(value.labels.iter().all(|(key, _)| is_name(key)), "{}", shown());
    assert!(value.labels.iter().all(|(_, label)| !label.trim().is_empty()), "{}", shown());
    assert!((1..=text.lines().count()).contains(&value.line), "{}", shown());
    let line = text.lines().nth(value.line - 1).unwrap();
    assert!(says(line, value.value), "{} is not in its line {line:?}", shown());
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|char| {
            char.is_ascii_lowercase() || char.is_ascii_digit() || "-._/%+:=,".contains(char)
        })
}

/// Whether a number of `line`, in some unit, is `value`.
fn says(line: &str, value: f64) -> bool {
    let powers = [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9, 1024.0, 1_048_576.0, 1_073_741_824.0];
    let mut numbers: Vec<f64> = line
        .split(|char: char| !(char.is_ascii_digit() || ".,eE+-'".contains(char)))
        .flat_map(|word| [word, word.trim_matches(['.', ',', '-', '+', '\'', 'e', 'E'])])
        .chain(line.split(|char: char| !(char.is_ascii_digit() || char == '.')))
        .chain(line.split(|char: char| !char.is_ascii_digit()))
        .flat_map(|word| [super::number::parse(word), super::number::grouped(word)])
        .flatten()
        .collect();
    // Minutes and seconds: 1:02.5, 1m2.5s.
    if line.contains([':', 'm']) {
        let clock: Vec<f64> = numbers.iter().take(40).copied().collect();
        for (index, big) in clock.iter().enumerate() {
            numbers.extend(clock[index + 1..].iter().map(|small| big * 60.0 + small));
        }
    }
    let scales = powers.iter().flat_map(|power| [*power, power / 8.0, power * 128.0, power / 60.0]);
    let close = |found: f64| (found - value).abs() <= 1e-9 * value.abs().max(1e-300);
    let mut all = scales.flat_map(|scale| numbers.iter().map(move |number| number * scale));
    value == 0.0 && numbers.contains(&0.0) || all.any(close)
}

#[test]
fn what_surrounds_an_output_changes_no_value() {
    let strip = |path: &Path, text: &str| {
        let mut values = values(path, text);
        values.iter_mut().for_each(|value| value.line = 0);
        values.iter().map(show_value).collect::<Vec<_>>()
    };
    for (path, text) in GOLDENS.iter() {
        let whole = strip(path, text);
        let with = |prefix: &str, end: &str| -> String {
            text.lines().map(|line| format!("{prefix}{line}{end}\n")).collect()
        };
        for (name, surrounded) in [
            ("CRLF", with("", "\r\n").replace("\n\n", "\n")),
            ("mail", with("> ", "")),
            ("two mails", with("> > ", "")),
            ("two mails of the web", with("&gt; &gt; ", "")),
            ("Markdown", format!("# Results\n\n```\n{text}```\n")),
            ("indent", with("    ", "")),
            ("colour", with("\u{1b}[0m", "\u{1b}[0m")),
            ("kernel", with("[   12.345678] ", "")),
            ("syslog", with("Jan  2 12:34:56 host tool[12]: ", "")),
            ("time stamps", with("2024-01-02T12:34:56.789Z ", "")),
            ("ts", with("Jan 02 12:34:56 ", "")),
            ("precise journal", with("Jan 02 12:34:56.123456 host tool[12]: ", "")),
            ("clock", with("12:34:56 ", "")),
            ("seconds since 1970", with("1700000000.123456 ", "")),
            ("a stream's name", with("[STDOUT] ", "")),
            ("pdsh", with("10.0.0.11: ", "")),
            ("Docker Compose", with("bench-1  | ", "")),
            ("GitHub", with("build\tRun it\t2024-01-02T12:34:56.1234567Z ", "")),
            ("typescript", {
                let head = "Script started on 2024-01-02 12:34:56+00:00 [TERM=\"xterm\"]\n";
                let start = "\u{1b}]0;root@vm: ~\u{7}\u{1b}[01;32mroot@vm\u{1b}[00m:~# ./run\r\n";
                format!("{head}{start}{}\u{1b}[?2004h$ exit\r\n", with("", "\r"))
            }),
            ("prompt", format!("root@vm:~# ./run\n{text}root@vm:~# exit\n")),
        ] {
            // One line shows no margin.
            if ["clock", "seconds since 1970", "GitHub"].contains(&name) && text.lines().count() < 2
            {
                continue;
            }
            assert_eq!(strip(path, &surrounded), whole, "{} in {name}", path.display());
        }
    }
}

#[test]
fn a_page_of_the_web_ends_lines_with_tags() {
    let text = "Running with 1*40 (== 40) tasks.<br>\nTime: 1.250<br />\n";
    assert_eq!(read(text, None)[0].values[0].value, 1.25);
}

#[test]
fn an_output_that_is_cut_off_gives_a_subset() {
    for (path, text) in GOLDENS.iter() {
        // A run that says at its end that it failed loses its values there.
        if path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("failed")) {
            continue;
        }
        // They show their state again and again, of which the last one counts.
        if ["cyclictest-updates.log", "cyclictest-verbose.log"]
            .iter()
            .any(|end| path.ends_with(end))
        {
            continue;
        }
        let whole: BTreeSet<String> = values(path, text).iter().map(show_value).collect();
        // Long outputs at every line and at some bytes, short ones anywhere.
        let step = text.len() / 400 + 1;
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            if at % step != 0 {
                continue;
            }
            for value in values(path, &text[..at]) {
                let shown = show_value(&value);
                assert!(whole.contains(&shown), "{} at byte {at}: {shown}", path.display());
            }
        }
    }
}

#[test]
fn runs_in_one_file_are_told_apart() {
    for (path, text) in GOLDENS.iter() {
        let once = values(path, text);
        let twice = values(path, &format!("{text}\n{text}"));
        assert_eq!(twice.len(), 2 * once.len(), "{} twice", path.display());
    }
}

#[test]
fn a_text_of_no_tool_is_no_log() {
    for text in ["", "\n", "Dear all,\nTime: soon\n", "a b c\n1 2 3\n", "{\"a\": 1}\n"] {
        assert!(read(text, None).is_empty(), "{text:?}");
        assert!(recognise(text).is_empty(), "{text:?}");
    }
    // As oslat begins, too.
    let latency = "# /dev/cpu_dma_latency set to 0us\n";
    assert!(read(latency, None).is_empty() && recognise(latency)[0].1 < super::SURE);
}

/// The tools of folders that are not called after their one tool.
const TOOLS_OF: [(&str, &[&str]); 11] = [
    ("perf", &["perf-bench", "perf-stat", "perf-kvm-stat"]),
    ("rt-tests", &["cyclictest", "hackbench"]),
    ("iperf", &["iperf2", "iperf3"]),
    ("iperf3", &["iperf3"]),
    ("redis", &["redis-benchmark"]),
    ("procps", &["vmstat"]),
    ("sysstat", &["mpstat"]),
    ("linux", &["interrupts"]),
    ("go-bench", &["go-bench"]),
    ("will-it-scale", &["will-it-scale"]),
    ("stress-ng", &["stress-ng"]),
];

#[test]
fn outputs_are_recognised_as_their_own_tools_and_no_others() {
    for (path, text) in GOLDENS.iter().filter(|(path, _)| named(path).is_none()) {
        let folder = path.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        let (of_folder, _) = folder.rsplit_once('-').unwrap();
        let own = TOOLS_OF.iter().find(|(prefix, _)| *prefix == of_folder);
        let found: Vec<&str> = recognise(text).iter().map(|(tool, _)| tool.name).collect();
        let is_own = |name: &&str| own.map_or(*name == of_folder, |(_, own)| own.contains(name));
        assert!(!found.is_empty() && found.iter().all(is_own), "{}: {found:?}", path.display());
    }
}

// ---- What logs went through ----

#[test]
fn returns_without_end_take_no_longer_than_other_bytes() {
    let returns = "\r".repeat(2 << 20);
    for text in [
        returns.clone(),
        format!("Running with 1*40 (== 40) tasks.\n{returns}\nTime: 1.250\n"),
        format!("Running with 1*40 (== 40) tasks.\n5 %{returns}Time: 1.250\n"),
        format!("Running with 1*40 (== 40) tasks.{returns}Time: 1.250\r"),
    ] {
        let values: Vec<f64> =
            read(&text, None).iter().flat_map(|log| &log.values).map(|value| value.value).collect();
        assert_eq!(values, if text.len() == returns.len() { vec![] } else { vec![1.25] });
    }
}

#[test]
fn lines_may_end_with_returns_alone() {
    let run = "Running with 1*40 (== 40) tasks.\nTime: 1.250\n\n";
    let text = run.repeat(8);
    let with_newlines = read(&text, None);
    assert_eq!(with_newlines.len(), 8);
    assert!(read(&text.replace('\n', "\r"), None) == with_newlines);
}

#[test]
fn what_is_below_zero_is_no_value() {
    let check = |text: &str, line: usize| {
        let logs = read(text, None);
        assert!(logs.iter().all(|log| log.values.is_empty()), "{logs:?}");
        let unread: Vec<usize> =
            logs.iter().flat_map(|log| &log.unread).map(|unread| unread.line).collect();
        assert_eq!(unread, [line]);
    };
    check("Running with 1*40 (== 40) tasks.\nTime: -5.000\n", 2);
    check(
        "{\n\"fio version\": \"fio-3.33\",\n\"jobs\": [{\"jobname\": \"a\", \"error\": 0,\n\
         \"write\": {}, \"read\": {\"io_bytes\": 4096,\n\"iops\": -1}}]}\n",
        5,
    );
}

/// Values of the one log of `tool` in `text`.
fn check_forms(text: &str, as_tool: Option<&str>, expected: &[(&str, f64, &str)]) {
    let logs = read(text, as_tool.and_then(tool));
    let found: Vec<(String, f64, String)> = logs
        .iter()
        .flat_map(|log| &log.values)
        .map(|value| {
            let labels: Vec<String> =
                value.labels.iter().map(|(key, label)| format!("{key}={label}")).collect();
            (value.metric.to_string(), value.value, labels.join(" "))
        })
        .collect();
    let found: Vec<(&str, f64, &str)> =
        found.iter().map(|(metric, value, labels)| (&**metric, *value, &**labels)).collect();
    assert_eq!(found, expected, "{logs:#?}");
}

#[test]
fn sockperf_says_whether_its_times_are_of_round_trips() {
    let text = "sockperf: == version #3.10-no.git ==\n\
                sockperf: ====> avg-rtt=42.940 (std-dev=2.500)\n\
                sockperf: Summary: Round trip is 42.940 usec\n\
                sockperf: ---> <MAX> observation =  100.500\n\
                sockperf: ---> percentile 99.000 =   50.250\n";
    check_forms(
        text,
        None,
        &[
            ("round-trip-stddev", 2.5e-6, ""),
            ("round-trip-mean", 4.294e-5, ""),
            ("round-trip-max", 1.005e-4, ""),
            ("round-trip", 5.025e-5, "percentile=99"),
        ],
    );
    let burst = "sockperf: == version #3.10-no.git ==\n\
                 sockperf: Summary: Latency of burst of 10 messages is 42.940 usec\n";
    check_forms(burst, None, &[("latency-mean", 4.294e-5, "burst=10")]);
    let giga = "sockperf: == version #3.10-no.git ==\n\
                sockperf: Summary: BandWidth is 1.500 GBps (12.000 Gbps)\n";
    check_forms(giga, None, &[("throughput", 1.5 * 1000.0 * 1_048_576.0, "")]);
}

#[test]
fn bandwidths_of_lmbench_need_no_title() {
    let expected =
        [("rate", 5_270_620_000.0, "size-mb=8.39"), ("rate", 12_345_670_000.0, "size-mb=0.001024")];
    check_forms("8.39 5270.62\n0.001024 12345.67\n", Some("lmbench"), &expected);
    check_forms("8.39 5270.62\n0.001024 12345.67", Some("lmbench"), &expected[..1]);
}

#[test]
fn tables_of_stream_may_be_marked_up() {
    let text = "| Function | Best Rate MB/s | Avg time | Min time | Max time |\n\
                |---|---:|---:|---:|---:|\n\
                | **Copy** | 70322.3 | 0.018249 | 0.018202 | 0.018312 |\n";
    check_forms(
        text,
        None,
        &[
            ("rate", 70_322_300_000.0, "op=copy"),
            ("time-avg", 0.018249, "op=copy"),
            ("time-min", 0.018202, "op=copy"),
            ("time-max", 0.018312, "op=copy"),
        ],
    );
}

#[test]
fn netperfs_csv_is_read_in_strings_of_json() {
    let text = "{\"out\": [\n\
                \"OMNI Send TEST from 0.0.0.0 port 0 AF_INET to 10.0.0.2 () port 0 AF_INET\",\n\
                \"Throughput,Throughput Units,Elapsed Time (sec)\",\n\
                \"941.20,10^6bits/s,10.00\"\n]}\n";
    check_forms(
        text,
        None,
        &[
            ("throughput", 117_650_000.0, "test=omni-send"),
            ("elapsed-time", 10.0, "test=omni-send"),
        ],
    );
}

#[test]
fn perf_bench_may_have_lost_its_first_line() {
    let text = "# 20 sender and receiver processes per group\n\
                # 2 groups == 80 processes run\n\n     Total time: 0.133 [sec]\n";
    check_forms(text, None, &[("time", 0.133, "groups=2 mode=processes tasks=80")]);
    let suites = ["internals.log", "numa.log", "evlist-open-close.log", "sched-messaging.log"];
    for (path, text) in
        GOLDENS.iter().filter(|(path, _)| suites.iter().any(|name| path.ends_with(name)))
    {
        let (_, behind) = text.split_once('\n').unwrap();
        assert_eq!(values(path, behind).len(), values(path, text).len(), "{}", path.display());
    }
}

// ---- Threads ----

#[test]
fn mpstats_tables_beside_its_json_are_read_too() {
    let golden = |name: &str| {
        let (_, text) = GOLDENS.iter().find(|(path, _)| path.ends_with(name)).unwrap();
        text.as_str()
    };
    let (json, table) = (golden("sysstat-12.6/mpstat-json.log"), golden("sysstat-12.6/mpstat.log"));
    let count = |text: &str| -> usize {
        read(text, tool("mpstat")).iter().map(|log| log.values.len()).sum()
    };
    let each = [count(json), count(table)];
    assert!(each.iter().all(|count| *count > 0), "{each:?}");
    assert_eq!(count(&format!("{json}\n{table}")), each[0] + each[1]);
    assert_eq!(count(&format!("{table}\n{json}")), each[0] + each[1]);
}

#[test]
fn values_of_a_table_share_what_is_measured_and_the_labels_of_their_row() {
    let heading = "  CPU    %usr   %nice    %sys   %idle\n";
    let rows = |second: usize| {
        let cpu = |cpu| format!("10:00:{second:02}  {cpu}    1.00    2.00    3.00   94.00\n");
        format!("\n10:00:{second:02}{heading}{}{}", cpu(0), cpu(1))
    };
    // Without a line that has none, the times would be a margin.
    let text = "Linux 6.1.0 (vm)\n".to_owned() + &(0..30).map(rows).collect::<String>();
    let logs = read(&text, None);
    let [log] = &logs[..] else { panic!("{logs:?}") };
    assert_eq!(log.values.len(), 30 * 2 * 4);
    for (at, value) in log.values.iter().enumerate() {
        let (above, before) = (&log.values[at % 4], &log.values[at / 4 * 4]);
        assert!(std::sync::Arc::ptr_eq(&value.measured, &above.measured), "{value:?}");
        assert_eq!(value.labels.address(), before.labels.address(), "{value:?}");
        assert_eq!(value.labels.get("time"), Some(&*format!("10:00:{:02}", at / 8)));
    }
}

#[test]
fn threads_change_nothing() {
    let all: String = of_lines().map(|text| format!("{text}\n")).collect();
    // A colour: what is read is then a copy of what was given.
    let all = format!("\u{1b}[0m{all}");
    let long = all.repeat(3 * super::BATCH_BYTES / all.len() + 1);
    let short = &all[..super::BATCH_BYTES.min(all.len())];
    let read_by = |threads: usize, text: &str, tool: Option<&Tool>| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| show(&read(text, tool)))
    };
    for (text, tool) in [(&*long, None), (short, None), (&*long, tool("netperf"))] {
        let expected = read_by(1, text, tool);
        assert!(!expected.is_empty());
        for threads in [2, 5] {
            assert!(read_by(threads, text, tool) == expected, "{threads} threads");
        }
    }
    // Runs are given one after the other until one is refused.
    let whole = read(&long, None);
    let mut taken = Vec::new();
    let refused = super::visit(
        &long,
        None,
        |log| log,
        |log| {
            if taken.len() == whole.len() / 2 {
                return Err(Box::new(log));
            }
            taken.push(log);
            Ok(())
        },
    );
    assert!(taken == whole[..whole.len() / 2]);
    assert!(refused == Err(Box::new(whole[whole.len() / 2].clone())));
}

/// Outputs of lines: a document is read whole, wherever it is cut.
fn of_lines() -> impl Iterator<Item = &'static str> {
    let of_lines = GOLDENS.iter().filter(|(path, _)| !path.to_string_lossy().contains("json"));
    of_lines.map(|(_, text)| text.as_str())
}

#[test]
fn pieces_of_a_run_are_what_it_is_whole() {
    let all: String = of_lines().map(|text| format!("{text}\n")).collect();
    for (piece_bytes, room) in [(1, super::MAX_VALUES), (5000, super::MAX_VALUES), (1, 100)] {
        let found = whole_and_in_pieces(&all, piece_bytes, room);
        assert!(!found.is_empty());
        for (whole, pieces) in found {
            assert!(!whole.values.is_empty() && pieces == whole, "{}, {room}", whole.tool);
        }
    }
    // As users get there: of more than a piece.
    let text = "SET: 86956.52 requests per second\n====== GET ======\n".repeat(1 << 16);
    let mut log = Log::new("redis-benchmark");
    super::pieces::read(tool("redis-benchmark").unwrap(), super::LogText::new(&text), &mut log);
    let lines: Vec<usize> = log.values.iter().map(|value| value.line).collect();
    assert!(lines.into_iter().eq((1..=1 << 17).step_by(2)));
}

/// What is read of `text`, of which so many lines are given at a time.
fn read_in_parts(text: &str, lines: usize, tool: Option<&Tool>) -> Vec<Log> {
    let mut all = text.split_inclusive('\n').peekable();
    let mut logs = Vec::new();
    let Ok(()) = super::visit_parts(
        |part| {
            part.extend(all.by_ref().take(lines));
            Ok::<bool, std::convert::Infallible>(all.peek().is_some())
        },
        tool,
        |log| log,
        |log| {
            logs.push(log);
            Ok(())
        },
    );
    logs
}

/// Tells only the first line that differs: there are thousands.
fn check_same(found: &[Log], expected: &[Log], of: &str) {
    let (found, expected) = (show(found), show(expected));
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{of}: line {line}");
    }
    assert_eq!(found.len(), expected.len(), "{of}");
}

#[test]
fn parts_of_a_log_are_what_it_is_whole() {
    // Runs end where others begin, in any part.
    let all: String = of_lines().map(|text| format!("{text}\n")).collect();
    for lines in [100, 1000] {
        check_same(&read_in_parts(&all, lines, None), &read(&all, None), &format!("{lines} lines"));
    }
    for (path, text) in GOLDENS.iter() {
        for times in [1, 40] {
            let text = text.repeat(times);
            let parts = read_in_parts(&text, 50, named(path));
            check_same(&parts, &read(&text, named(path)), &path.display().to_string());
        }
    }
}

#[test]
fn no_more_of_a_log_is_held_than_its_last_part_whatever_surrounds_it() {
    const PARTS: usize = 20;
    const RUNS: usize = 50;
    let run = "Running with 1*40 (== 40) tasks.\nTime: 1.250\n";
    let all = run.repeat(PARTS * RUNS);
    let lines = || all.lines().enumerate();
    let mail = "Content-Transfer-Encoding: quoted-printable\nvmlab=3D1\n";
    let forms = [
        ("nothing", all.clone()),
        ("a clock", lines().map(|(_, line)| format!("12:34:56 {line}\n")).collect()),
        ("an epoch", lines().map(|(_, line)| format!("1700000000.123456 {line}\n")).collect()),
        ("numbers", lines().map(|(at, line)| format!("{:6}\t{line}\n", at + 1)).collect()),
        (
            "a job",
            lines().map(|(_, line)| format!("a\tb\t2024-01-02T12:34:56Z {line}\n")).collect(),
        ),
        ("colours", lines().map(|(_, line)| format!("\u{1b}[0m12:34:56 {line}\r\n")).collect()),
        ("a mail", mail.to_owned() + &all.replace("(== 40)", "(=3D=\n=3D 40)")),
    ];
    for (form, text) in forms {
        let expected = read(&text, None);
        assert_eq!(expected.len(), PARTS * RUNS, "{form}");
        let part_lines = text.lines().count() / PARTS;
        let mut rest = text.split_inclusive('\n').peekable();
        let taken = std::cell::RefCell::new(Vec::new());
        let mut parts = 0;
        let Ok(()) = super::visit_parts(
            |part| {
                // All runs but the one that the part before ends in were given.
                let runs = (parts * part_lines * expected.len()) / text.lines().count();
                let given = taken.borrow().len();
                assert!(given + 3 >= runs, "{form}: {given} of {runs}");
                parts += 1;
                part.extend(rest.by_ref().take(part_lines));
                Ok::<bool, std::convert::Infallible>(rest.peek().is_some())
            },
            None,
            |log| log,
            |log| {
                taken.borrow_mut().push(log);
                Ok(())
            },
        );
        assert!(parts >= PARTS, "{form}");
        check_same(&taken.into_inner(), &expected, form);
    }
}

// ---- Mutilated outputs ----

/// Every number of `text`, in all units.
fn stands_in(text: &str, value: &LogValue) -> bool {
    text.lines().nth(value.line - 1).is_some_and(|line| says(line, value.value))
}

/// `text`, whose lines are left out where `keep` is 0 and doubled where it is 1.
fn lost_or_doubled(text: &str, keep: &[u8]) -> String {
    let times = |keep: &u8| match keep {
        0 => 0,
        1 => 2,
        _ => 1,
    };
    let lines = text.lines().zip(keep.iter().cycle());
    lines
        .flat_map(|(line, keep)| std::iter::repeat_n([line, "\n"], times(keep)))
        .flatten()
        .collect()
}

proptest! {
    // One seed, so that a failure is the same everywhere.
    #![proptest_config(ProptestConfig {
        cases: 600,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_makes_a_reader_panic(text in "(?s).{0,300}") {
        for tool in TOOLS {
            let _ = read(&text, Some(tool));
        }
        let _ = read(&text, None);
    }

    #[test]
    fn a_mutilated_output_gives_only_numbers_that_it_holds(
        golden in any::<proptest::sample::Index>(),
        from in any::<proptest::sample::Index>(),
        length in 0_usize..60,
        insert in "[0-9.,{}\\[\\]\":%/\n\t a-z-]{0,12}|99999999999999999999|nan|1e999|\r\n",
    ) {
        let (path, text) = golden.get(&GOLDENS);
        let chars: Vec<char> = text.chars().collect();
        let from = from.index(chars.len().max(1));
        let to = (from + length).min(chars.len());
        let mutilated: String =
            chars[..from].iter().copied().chain(insert.chars()).chain(chars[to..].iter().copied())
                .collect();
        for value in values(path, &mutilated) {
            prop_assert!(value.value.is_finite());
            prop_assert!(stands_in(&mutilated, &value), "{}: {}", path.display(), show_value(&value));
        }
    }

    #[test]
    fn pieces_of_a_mutilated_run_are_what_it_is_whole(
        goldens in proptest::collection::vec(any::<proptest::sample::Index>(), 3),
        keep in proptest::collection::vec(0_u8..8, 1..64),
        cut in any::<proptest::sample::Index>(),
    ) {
        let texts: Vec<&str> = of_lines().collect();
        let begin = |golden: &proptest::sample::Index| golden.get(&texts).chars().take(2000);
        let joined: Vec<char> = goldens.iter().flat_map(begin).collect();
        let joined: String = joined[..cut.index(joined.len())].iter().collect();
        let text = lost_or_doubled(&joined, &keep);
        for (whole, pieces) in whole_and_in_pieces(&text, 1, 50) {
            prop_assert!(pieces == whole, "{}\n{text}", whole.tool);
        }
    }

    #[test]
    fn lines_that_are_lost_or_doubled_make_no_reader_panic(
        golden in any::<proptest::sample::Index>(),
        keep in proptest::collection::vec(0_u8..8, 1..64),
    ) {
        let (path, text) = golden.get(&GOLDENS);
        let mutilated = lost_or_doubled(text, &keep);
        for value in values(path, &mutilated) {
            prop_assert!(stands_in(&mutilated, &value), "{}: {}", path.display(), show_value(&value));
        }
    }
}
