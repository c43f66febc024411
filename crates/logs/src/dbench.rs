//! dbench and tbench: throughput, and latencies by operation.
//!
//! Source: dbench 2 to 4 `dbench.c`; tbench prints the same. Their MB are 10^6
//! bytes.

use record::MetricKind;

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "dbench",
    about: "dbench 2 to 4, and tbench, which prints the same",
    signs: &[opens("dbench version"), part("Throughput ").when(is_result)],
    failures: &[failed("Child failed with status")],
    read,
};

/// For `--as tbench`: nothing in its output tells it from dbench.
pub(super) const TBENCH: Tool = Tool {
    name: "tbench",
    about: "tbench, with --as; recognised as dbench",
    signs: &[],
    failures: TOOL.failures,
    read,
};

fn is_result(line: &str) -> bool {
    line.holds(" MB/sec") && (line.holds("proc") || line.holds("client"))
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut table = false;
    for line in text.lines() {
        if let Some(rest) = line.after("dbench version ") {
            log.version = rest.word(0).map(str::to_owned);
        } else if line.text.starts_with("Operation ") && line.text.holds("AvgLat") {
            table = true;
        } else if is_result(line.text) && line.text.starts_with("Throughput ") {
            table = false;
            result(line, log);
        } else if table {
            row(line, log);
        }
    }
}

/// ` NTCreateX      13969     0.006     5.238`: count and ms.
fn row(line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let [operation, count, mean, most] = words[..] else {
        if words.len() > 1 && !line.text.starts_with('-') {
            log.unread(line, "an operation has a count and two latencies");
        }
        return;
    };
    let decimals = |word: &str| line.decimals(word, 3);
    let (Some(count), Some(mean), Some(most)) =
        (line.number(count), decimals(mean), decimals(most))
    else {
        return log.unread(line, "not all are numbers");
    };
    let operation = slug(operation);
    log.count("operations", count, line).label("op", &*operation);
    log.time("latency-avg", mean / 1e3, line).label("op", &*operation);
    log.quantile("latency-max", most / 1e3, line).label("op", &*operation);
}

/// `Throughput 219.572 MB/sec  2 clients  2 procs  max_latency=28.747 ms`; dbench 3
/// ends with the processes, dbench 2 has `(NB=...)` before them.
fn result(line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let Some(megabytes) = words.get(1).and_then(|word| line.number(word)) else {
        return log.unread(line, "no number");
    };
    log.clear_labels();
    for pair in words.windows(2) {
        let count = pair[0].parse::<u64>().is_ok();
        match pair[1].trim_end_matches('s') {
            "client" if count => log.label("clients", pair[0]),
            "proc" if count => log.label("processes", pair[0]),
            _ => {}
        }
    }
    if line.is_open() && !words.iter().any(|word| word.starts_with("proc")) {
        return log.unread(line, "the line ends early");
    }
    log.rate("throughput", number::scaled(megabytes, 1e6), "B/s", line);
    let latency = words.iter().find_map(|word| word.strip_prefix("max_latency="));
    if let Some(millis) = latency.and_then(|word| line.number(word)) {
        log.push(
            "latency-max",
            millis / 1e3,
            "s",
            Some(record::BetterDirection::Lower),
            MetricKind::Quantile,
            line,
        );
    }
    log.clear_labels();
}
