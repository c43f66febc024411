//! memtier_benchmark: its table of all operations.
//!
//! Source: memtier_benchmark `run_stats.cpp`, 1.x and 2.x: latencies in ms, KB
//! of 1024 bytes, `---` where a kind has no such number.

use super::number;
use super::sections::{opens, part};
use super::{Few, Line, Log, Text, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "memtier",
    about: "memtier_benchmark: the table ALL STATS, or of the best and worst run",
    signs: &[opens("ALL STATS"), part("Type ").when(|line| columns(line).is_some())],
    read,
};

/// One column.
enum Column {
    OpsPerS,
    HitsPerS,
    MissesPerS,
    LatencyAvg,
    Percentile(String),
    BytesPerS,
    Other,
}

/// Reads any number of tables.
pub(crate) fn read(text: Text<'_>, log: &mut Log) {
    let mut table: Option<Vec<Column>> = None;
    for line in text.lines() {
        if let Some(title) =
            ["BEST RUN RESULTS", "WORST RUN RESULTS", "AGGREGATED AVERAGE RESULTS", "ALL STATS"]
                .iter()
                .find(|title| line.text.starts_with(**title))
        {
            let run = title.split(' ').next().unwrap_or_default().to_ascii_lowercase();
            log.label("run", if run == "all" { "" } else { &run });
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

fn columns(line: &str) -> Option<Vec<Column>> {
    let mut columns = Vec::new();
    let mut words = line.strip_prefix("Type")?.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        let percentile = word.strip_prefix('p').filter(|rest| number::parse(rest).is_some());
        columns.push(match word {
            "Ops/sec" => Column::OpsPerS,
            "Hits/sec" => Column::HitsPerS,
            "Misses/sec" => Column::MissesPerS,
            "KB/sec" => Column::BytesPerS,
            "MOVED/sec" | "ASK/sec" => Column::Other,
            "Latency" => Column::LatencyAvg,
            "Avg." if words.next() == Some("Latency") => Column::LatencyAvg,
            _ if percentile.is_some() && words.next() == Some("Latency") => {
                Column::Percentile(percentile.unwrap_or_default().to_owned())
            }
            _ => return None,
        });
    }
    matches!(columns.first(), Some(Column::OpsPerS)).then_some(columns)
}

fn row(columns: &[Column], line: Line<'_>, log: &mut Log) {
    let words: Few<&str> = line.words().collect();
    let name = words[0].to_ascii_lowercase();
    let cells = &words[1..];
    if cells.len() != columns.len() {
        if cells.first().is_some_and(|cell| number::parse(cell).is_some()) {
            log.unread(line, "not as many numbers as columns");
        }
        return;
    }
    let values: Few<Option<f64>> = cells.iter().map(|cell| line.number(cell)).collect();
    if values.iter().zip(cells).any(|(value, cell)| value.is_none() && *cell != "---") {
        return log.unread(line, "not all are numbers");
    }
    for (column, value) in columns.iter().zip(values) {
        let Some(value) = value else { continue };
        let noted = match column {
            Column::OpsPerS => log.rate("ops-per-s", value, "1/s", line),
            Column::HitsPerS => log.rate("hits-per-s", value, "1/s", line),
            Column::MissesPerS => log.rate("misses-per-s", value, "1/s", line).better(None),
            Column::LatencyAvg => log.time("latency-avg", value / 1e3, line),
            Column::Percentile(name) => {
                log.quantile("latency", value / 1e3, line).label("percentile", name.as_str())
            }
            Column::BytesPerS => log.rate("rate", value * 1024.0, "B/s", line),
            Column::Other => continue,
        };
        noted.label("op", name.as_str());
    }
}
