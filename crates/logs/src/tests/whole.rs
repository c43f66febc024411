//! Nothing is lost in silence: of every kept output, whatever it went through, all values
//! are read, or it is told what is not.

use super::*;
use crate::failure::example_of;

/// What failed, by line: the tools, the lines and the reasons.
fn failed(logs: &[Log]) -> Vec<(&'static str, usize, &str)> {
    logs.iter()
        .flat_map(|log| log.failed.iter().map(|failed| (log.tool, failed.line, &*failed.why)))
        .collect()
}

/// Outputs of one tool that has words of failure, with one of its lines of failure for each
/// of these.
fn outputs_and_failures()
-> impl Iterator<Item = (&'static Path, &'static str, &'static Tool, String)> {
    GOLDENS.iter().flat_map(|(path, text)| {
        let found: BTreeSet<&str> = read(text, named(path)).iter().map(|log| log.tool).collect();
        let one = found.first().filter(|_| found.len() == 1).and_then(|name| tool(name));
        let failures = one.into_iter().flat_map(|tool| {
            (0..tool.failures.len()).map(move |at| (tool, example_of(&tool.failures[at])))
        });
        failures.map(move |(tool, line)| (path.as_path(), text.as_str(), tool, line))
    })
}

#[test]
fn words_before_the_first_heading_fail_the_run() {
    let mut tried = 0;
    for (path, text, tool, words) in outputs_and_failures() {
        let logs = read(&format!("some line\n{words}\n{text}"), named(path));
        let told = failed(&logs).iter().any(|(name, line, _)| *name == tool.name && *line == 2);
        assert!(told, "{}: {words}\n{}", path.display(), show(&logs));
        tried += 1;
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn words_between_two_runs_fail_the_second_at_least() {
    for (path, text, tool, words) in outputs_and_failures() {
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        let line = text.lines().count() + 1;
        let logs = read(&format!("{text}{newline}{words}\n{text}"), named(path));
        let runs = failed(&logs);
        let told: Vec<_> =
            runs.iter().filter(|told| told.0 == tool.name && told.1 == line).collect();
        assert!(!told.is_empty(), "{}: {words}\n{}", path.display(), show(&logs));
        // Both have failed only where it is said that it may be one of them.
        assert!(
            told.len() == 1 || told.iter().all(|told| told.2.contains("may be the run")),
            "{}: {words}\n{told:?}",
            path.display()
        );
    }
}

#[test]
fn words_of_one_tool_behind_the_output_of_another_are_told() {
    let first = GOLDENS.iter().find(|(path, _)| path.ends_with("hackbench-forms/tasks.log"));
    let ((_, first), first_tool) = (first.unwrap(), "hackbench");
    let line = first.lines().count() + 1;
    for (path, text, tool, words) in outputs_and_failures() {
        if named(path).is_some() || tool.name == first_tool {
            continue;
        }
        let logs = read(&format!("{first}{words}\n{text}"), None);
        // Rows without any sign of their tool are not read beside another's output.
        if logs.iter().all(|log| log.tool == first_tool) {
            assert!(logs.iter().any(|log| !log.unread.is_empty()), "{}", path.display());
            continue;
        }
        let told: Vec<&str> =
            failed(&logs).iter().filter(|told| told.1 == line).map(|told| told.0).collect();
        let is_told = told.contains(&tool.name) && !told.contains(&first_tool);
        assert!(is_told, "{}: {words}\n{}", path.display(), show(&logs));
    }
}

#[test]
fn a_run_that_said_its_last_words_did_not_fail_behind_them() {
    let run = "sysbench 1.0.20 (using system LuaJIT 2.1)\nGeneral statistics:\n    \
               total time:                          1.0001s\n    \
               total number of events:              2000\n\nThreads fairness:\n    \
               execution time (avg/stddev):   0.9990/0.00\n\n";
    let fatal = "FATAL: no such host\n";
    let failed = |text: &str| -> Vec<bool> {
        read(text, None).iter().map(|log| !log.failed.is_empty()).collect()
    };
    assert_eq!(failed(&format!("{run}{fatal}{run}")), [false, true]);
    assert_eq!(failed(&format!("{fatal}{run}{run}")), [true, false]);
    // One that was killed before them may have said it itself.
    let (killed, _) = run.split_once("Threads").unwrap();
    assert_eq!(failed(&format!("{killed}{fatal}{run}")), [true, true]);
    // Without any result it failed, and the next did not.
    let heading = "sysbench 1.0.20 (using system LuaJIT 2.1)\n";
    assert_eq!(failed(&format!("{heading}{fatal}{run}")), [true, false]);
}

#[test]
fn ends_of_lines_of_returns_alone_lose_nothing() {
    for (path, text) in GOLDENS.iter().filter(|(_, text)| !text.contains('\r')) {
        if text.lines().count() < 2 || !text.ends_with('\n') {
            continue;
        }
        let with_newlines = show(&read(text, named(path)));
        for end in ["", "\n"] {
            let text = text.replace('\n', "\r") + end;
            assert_eq!(show(&read(&text, named(path))), with_newlines, "{}", path.display());
        }
    }
}

#[test]
fn without_the_last_newline_no_value_is_lost_in_silence() {
    for (path, text) in GOLDENS.iter() {
        let Some(text) = text.strip_suffix('\n') else { continue };
        let whole: Vec<String> =
            values(path, &format!("{text}\n")).iter().map(show_value).collect();
        let logs = read(text, named(path));
        let found: Vec<String> = logs.iter().flat_map(|log| &log.values).map(show_value).collect();
        let last = text.lines().count();
        let told = logs.iter().flat_map(|log| &log.unread).any(|unread| unread.line == last);
        assert!(found == whole || told, "{}:\n{}", path.display(), show(&logs));
    }
}

/// The lines that are told not to be read.
fn unread(logs: &[Log]) -> Vec<usize> {
    logs.iter().flat_map(|log| &log.unread).map(|unread| unread.line).collect()
}

#[test]
fn bare_rows_beside_another_output_are_told_or_read() {
    let other = "Running with 1*40 (== 40) tasks.\nTime: 1.250\n";
    let stream = " 87380  16384  16384    10.00    9412.35   \n";
    let requests = "16384  87380  1        1       10.00    23456.78   \n16384  87380  \n";
    assert_eq!(read(stream, None)[0].values.len(), 1);
    assert!(!read(requests, None)[0].values.is_empty());
    let netperf = "MIGRATED TCP STREAM TEST from 0.0.0.0 port 0 AF_INET to db () port 0 AF_INET\n\
                   Recv   Send    Send                          \n\
                   Socket Socket  Message  Elapsed              \n\
                   Size   Size    Size     Time     Throughput  \n\
                   bytes  bytes   bytes    secs.    10^6bits/sec  \n\n \
                   87380  16384  16384    10.00    9412.35   \n";
    let lines = |text: &str| text.lines().count();
    for (bare, at) in [(stream, 1), (requests, 2)] {
        let behind = format!("{other}{bare}");
        assert_eq!(unread(&read(&behind, None)), [2 + at], "{behind}");
        let before = format!("{bare}{other}");
        assert_eq!(unread(&read(&before, None)), [at], "{before}");
        let own = format!("{netperf}\n{bare}");
        let logs = read(&own, None);
        let found: usize = logs.iter().map(|log| log.values.len()).sum();
        let told = unread(&logs) == [lines(netperf) + 1 + at];
        assert!(told || found > read(netperf, None)[0].values.len(), "{own}\n{}", show(&logs));
    }
    let csv = "20261120153538,127.0.0.1,54088,127.0.0.1,5302,1,0.0-1.0,1952317500,15618540000\n";
    for text in [format!("{other}{csv}"), format!("{csv}{other}")] {
        let tools: BTreeSet<&str> = read(&text, None).iter().map(|log| log.tool).collect();
        assert_eq!(tools, BTreeSet::from(["hackbench", "iperf2"]));
    }
}

#[test]
fn zero_bytes_in_a_heading_are_told() {
    let run = "Running with 1*40 (== 40) tasks.\nTime: 1.250\n";
    for text in [
        format!("\0\0\0{run}"),
        run.replace("with", "w\0th"),
        run.replacen("Running", "\0\0\0ning", 1),
        run.replace("(== 40)", "(== \0\0)"),
    ] {
        let logs = read(&text, None);
        assert!(unread(&logs).contains(&1), "{text:?}\n{}", show(&logs));
        let second = format!("{run}{text}");
        assert!(unread(&read(&second, None)).contains(&3), "{second:?}");
    }
    // A crash leaves them behind what it kept.
    let crashed = format!("{run}{}", "\0".repeat(100));
    assert_eq!(read(&crashed, None)[0].unread, []);
}
