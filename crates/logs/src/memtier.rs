//! memtier_benchmark: its table of all operations, and its JSON.
//!
//! Source: memtier_benchmark `run_stats.cpp`, 1.x and 2.x: latencies in ms, KB
//! of 1024 bytes, `---` where a kind has no such number.

use super::failure::failed;
use super::json::{self, JsonNode};
use super::number;
use super::sign::{json as in_json, json_part, opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "memtier",
    about: "memtier_benchmark: the table ALL STATS, or of the best and worst run; JSON",
    signs: &[
        opens("[RUN #1] Preparing benchmark client"),
        in_json("\"run information\""),
        json_part("\"ALL STATS\""),
        json_part("\"Misses/sec\""),
        opens("ALL STATS"),
        part("Type ").when(|line| columns(line).is_some()),
    ],
    failures: &[
        failed("connection error: "),
        failed("Connection error: "),
        failed("TLS connection error: "),
        failed("connect failed, error = "),
        failed("connect: resolve error: "),
        failed("connection dropped."),
        failed("prepare: failed to connect, test aborted"),
        failed("error: "),
        failed("server ").when(|line| line.holds(" handle error response: ")),
        failed("Connection timeout after"),
        failed("failed to reconnect."),
        failed("database selection failed."),
        failed("cluster slot failed."),
        failed("Maximum reconnection attempts"),
        failed("Thread ")
            .when(|line| line.holds(" due to connection failures") || line.holds(" caught ")),
    ],
    read,
};

/// One column.
enum MemtierColumn {
    OpsPerS,
    HitsPerS,
    MissesPerS,
    LatencyAvg,
    Percentile(String),
    BytesPerS,
    Other,
}

/// Reads any number of tables.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"ALL STATS\"") {
        let clean = json::unquoted(text);
        // Of every second they are most of it.
        let skip = |key: &str| key == "Time-Serie";
        if let Some((document, rest)) = json::parse(LogText::at(&clean, text.first_line()), skip) {
            read_json(&document, log);
            return tables(rest, log);
        }
    }
    tables(text, log);
}

fn tables(text: LogText<'_>, log: &mut Log) {
    let mut table: Option<Vec<MemtierColumn>> = None;
    for line in text.lines() {
        if let Some(run) = run_of(line.text) {
            log.label("run", run);
        } else if line.text.starts_with("Type ") {
            table = columns(line.text);
        } else if let Some(found) = &table {
            if line.text.starts_with('-') || line.text.starts_with('=') {
                continue;
            }
            if line.text.is_empty() {
                table = None;
            } else {
                row(found, line, log);
            }
        }
    }
}

/// The label of the run that a title is of; none for all of them.
fn run_of(title: &str) -> Option<&'static str> {
    let runs = [
        ("BEST RUN RESULTS", "best"),
        ("WORST RUN RESULTS", "worst"),
        ("AGGREGATED AVERAGE RESULTS", "aggregated"),
        ("ALL STATS", ""),
    ];
    runs.iter().find(|(begin, _)| title.starts_with(begin)).map(|(_, run)| *run)
}

/// An object for each run, with one for each kind of operation in it.
fn read_json(document: &JsonNode<'_>, log: &mut Log) {
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early");
    }
    for (title, stats) in document.members() {
        let Some(run) = run_of(title) else { continue };
        log.label("run", run);
        for (operation, node) in stats.members().iter().filter(|(_, node)| node.whole) {
            let count = node.get("Count").and_then(JsonNode::number);
            if count.is_some_and(|count| count > 0.0) {
                log.label("op", operation.to_ascii_lowercase());
                operation_json(operation, node, log);
            }
        }
        log.label("op", "");
    }
    log.clear_labels();
}

fn operation_json(operation: &str, node: &JsonNode<'_>, log: &mut Log) {
    let field = |key: &str| {
        let found = node.get(key)?;
        Some((found.number()?, found.line))
    };
    if let Some((value, line)) = field("Ops/sec") {
        log.rate("ops-per-s", value, "1/s", line);
    }
    // A write hits nothing.
    if operation != "Sets" {
        if let Some((value, line)) = field("Hits/sec") {
            log.rate("hits-per-s", value, "1/s", line);
        }
        if let Some((value, line)) = field("Misses/sec") {
            log.rate("misses-per-s", value, "1/s", line).better(None);
        }
    }
    if let Some((millis, line)) = field("Average Latency").or_else(|| field("Latency")) {
        log.time("latency-avg", millis / 1e3, line);
    }
    for (key, metric) in [("Min Latency", "latency-min"), ("Max Latency", "latency-max")] {
        if let Some((millis, line)) = field(key) {
            log.quantile(metric, millis / 1e3, line);
        }
    }
    for (key, value) in node.get("Percentile Latencies").map_or(&[][..], JsonNode::members) {
        let percentile = key.strip_prefix('p').filter(|rest| number::parse(rest).is_some());
        if let (Some(percentile), Some(millis)) = (percentile, value.number()) {
            // As the table says it: 50, 99, 99.9.
            let short = percentile.trim_end_matches('0').trim_end_matches('.');
            let percentile = if percentile.contains('.') { short } else { percentile };
            log.quantile("latency", millis / 1e3, value.line).label("percentile", percentile);
        }
    }
    if let Some((kib, line)) = field("KB/sec") {
        log.rate("rate", kib * 1024.0, "B/s", line);
    }
}

fn columns(line: &str) -> Option<Vec<MemtierColumn>> {
    let mut columns = Vec::new();
    let mut words = line.strip_prefix("Type")?.ascii_words().peekable();
    while let Some(word) = words.next() {
        let percentile = word.strip_prefix('p').filter(|rest| number::parse(rest).is_some());
        columns.push(match word {
            "Ops/sec" => MemtierColumn::OpsPerS,
            "Hits/sec" => MemtierColumn::HitsPerS,
            "Misses/sec" => MemtierColumn::MissesPerS,
            "KB/sec" => MemtierColumn::BytesPerS,
            "MOVED/sec" | "ASK/sec" => MemtierColumn::Other,
            "Latency" => MemtierColumn::LatencyAvg,
            "Avg." if words.next() == Some("Latency") => MemtierColumn::LatencyAvg,
            _ if percentile.is_some() && words.next() == Some("Latency") => {
                MemtierColumn::Percentile(percentile.unwrap_or_default().to_owned())
            }
            _ => return None,
        });
    }
    matches!(columns.first(), Some(MemtierColumn::OpsPerS)).then_some(columns)
}

fn row(columns: &[MemtierColumn], line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let name = words[0].to_ascii_lowercase();
    let cells = &words[1..];
    if cells.len() != columns.len() {
        if cells.first().is_some_and(|cell| number::parse(cell).is_some()) {
            log.unread(line, "not as many numbers as columns");
        }
        return;
    }
    let values: ShortList<Option<f64>> = cells.iter().map(|cell| line.number(cell)).collect();
    if values.iter().zip(cells).any(|(value, cell)| value.is_none() && *cell != "---") {
        return log.unread(line, "not all are numbers");
    }
    for (column, value) in columns.iter().zip(values) {
        let Some(value) = value else { continue };
        let noted = match column {
            MemtierColumn::OpsPerS => log.rate("ops-per-s", value, "1/s", line),
            MemtierColumn::HitsPerS => log.rate("hits-per-s", value, "1/s", line),
            MemtierColumn::MissesPerS => log.rate("misses-per-s", value, "1/s", line).better(None),
            MemtierColumn::LatencyAvg => log.time("latency-avg", value / 1e3, line),
            MemtierColumn::Percentile(name) => {
                log.quantile("latency", value / 1e3, line).label("percentile", name.as_str())
            }
            MemtierColumn::BytesPerS => log.rate("rate", value * 1024.0, "B/s", line),
            MemtierColumn::Other => continue,
        };
        noted.label("op", name.as_str());
    }
}
