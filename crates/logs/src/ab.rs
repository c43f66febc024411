//! ApacheBench.
//!
//! Source: httpd `support/ab.c`, 1.3 to 2.4. Its Kbytes are 1024 bytes.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::sign::{opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "ab",
    about: "ApacheBench, 1.3 to 2.4",
    signs: &[
        opens("This is ApacheBench"),
        opens("Server Software:"),
        part("Concurrency Level:"),
        part("Time taken for tests:"),
        opens("Requests per second:").when(|line| line.holds("[#/sec]")),
        opens("Connection Times (ms)"),
        opens("Percentage of the requests served within"),
    ],
    failures: &[
        failed("apr_").when(|line| line.ends_with(')')),
        failed("Test aborted after"),
        failed("Total of ").when(|line| line.ends_with("requests completed")),
        failed("SSL handshake failed"),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut percentages = false;
    for line in text.lines() {
        if let Some(rest) = line.after("This is ApacheBench, Version ") {
            log.clear_labels();
            log.version = rest.word(0).map(str::to_owned);
        } else if line.text.starts_with("Server Software:") {
            log.clear_labels();
        } else if line.text.starts_with("Percentage of the requests served within") {
            percentages = true;
        } else if percentages && line.text.contains('%') {
            percentages = percentage(line, log);
        } else if let Some((name, value)) = line.split(":") {
            percentages = false;
            row(name, value, line, log);
        } else if percentages && !line.text.is_empty() && !line.text.starts_with("```") {
            percentages = false;
        }
    }
}

fn row(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let mut words = value.words();
    let Some(first) = words.next() else { return };
    let rest: ShortList<&str> = words.collect();
    let number = value.number(first);
    match (name, number) {
        ("Concurrency Level", Some(_)) => log.label("concurrency", first),
        ("Document Length", Some(_)) => log.label("document-length", first),
        ("Connect" | "Processing" | "Waiting" | "Total", Some(_)) if rest.len() >= 2 => {
            connection(name, value, line, log);
        }
        ("Time taken for tests", Some(seconds)) if rest.first() == Some(&"seconds") => {
            log.time("elapsed-time", seconds, line);
        }
        ("Complete requests", Some(count)) => {
            log.count("requests", count, line).better(Some(BetterDirection::Higher));
        }
        ("Failed requests" | "Write errors" | "Non-2xx responses", Some(count)) => {
            let metric = match name {
                "Failed requests" => "failed-requests",
                "Write errors" => "write-errors",
                _ => "non-2xx-responses",
            };
            log.count(metric, count, line).better(Some(BetterDirection::Lower));
        }
        ("Keep-Alive requests", Some(count)) => drop(log.count("keep-alive-requests", count, line)),
        ("Total transferred" | "HTML transferred", Some(bytes))
            if rest.first() == Some(&"bytes") =>
        {
            let metric = if name.starts_with('T') { "transferred" } else { "html-transferred" };
            log.push(metric, bytes, "B", None, MetricKind::Count, line);
        }
        ("Requests per second", Some(rate)) => {
            log.rate("requests-per-s", rate, "1/s", line);
        }
        ("Time per request", Some(millis)) if rest.first() == Some(&"[ms]") => {
            let all = value.text.holds("across all");
            // The two lines of this name differ in their ends only.
            if line.is_open() && !value.text.ends_with(')') {
                return log.unread(line, "the line ends early");
            }
            log.time(
                if all { "time-per-request-all" } else { "time-per-request" },
                millis / 1e3,
                line,
            );
        }
        ("Transfer rate", Some(kib))
            if value.text.holds("[Kbytes/sec]")
                && (value.text.ends_with("received") || rest.len() < 2) =>
        {
            log.rate("transfer-rate", kib * 1024.0, "B/s", line);
        }
        (
            "Time taken for tests"
            | "Requests per second"
            | "Time per request"
            | "Complete requests",
            None,
        ) => log.unread(line, "no number"),
        _ => {}
    }
}

/// `Connect:        1   12  41.8      3    1053`: least, mean, deviation,
/// median, most; old versions leave deviation and median out.
fn connection(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = value.all_words();
    let names: &[&str] = match words.len() {
        5 => &["min", "mean", "stddev", "median", "max"],
        3 => &["min", "mean", "max"],
        _ => return log.unread(line, "not the columns of connection times"),
    };
    let values: Option<ShortList<f64>> = words.iter().map(|word| value.number(word)).collect();
    let Some(values) = values else { return log.unread(line, "not all are numbers") };
    let phase = name.to_ascii_lowercase();
    for (column, millis) in names.iter().zip(values) {
        let metric = format!("{phase}-{column}");
        match *column {
            "mean" | "stddev" => log.time(&metric, millis / 1e3, line),
            _ => log.quantile(&metric, millis / 1e3, line),
        };
    }
}

/// `  50%    742`, the last with `(longest request)` behind it. False where
/// the list is over.
fn percentage(line: TextLine<'_>, log: &mut Log) -> bool {
    let mut words = line.words();
    let (Some(percent), Some(millis)) = (words.next(), words.next()) else { return false };
    let rest: ShortList<&str> = words.collect();
    if !(rest.is_empty() || rest[..] == ["(longest", "request)"]) {
        return false;
    }
    let Some(percent) = percent.strip_suffix('%').filter(|word| word.parse::<u8>().is_ok()) else {
        return false;
    };
    match line.number(millis) {
        Some(value) => {
            log.quantile("request-time", value / 1e3, line).label("percentile", percent);
        }
        None => log.unread(line, "no time in ms"),
    }
    percent != "100"
}
