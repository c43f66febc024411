//! mpstat's tables and JSON.
//!
//! Source: sysstat `mpstat.c`, `json_stats.c`. `Average:` rows have the label
//! `time=average`.

use record::{MetricKind, Name};

use super::json::{self, JsonNode};
use super::names::name;
use super::sign::{json as in_json, part};
use super::text::slug;
use super::{Cut, Few, Log, LogText, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "mpstat",
    about: "mpstat of sysstat: tables, -o JSON",
    signs: &[
        in_json("\"sysstat\""),
        part("CPU ").within().when(|line| columns(line).is_some()).anew(),
    ],
    failures: &[],
    read,
};

/// Reads JSON, and any number of tables beside it.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"sysstat\"") {
        let clean = json::unquoted(text);
        if let Some((document, _)) = json::parse(LogText::at(&clean, text.first_line()), |_| false)
        {
            read_json(&document, log);
        }
    }
    let mut names: Option<Vec<MpstatColumn>> = None;
    for line in text.lines() {
        if let Some(found) = columns(line.text) {
            names = Some(found.iter().map(|name| MpstatColumn::of(name)).collect());
        } else if line.text.is_empty() {
            names = None;
        } else if let Some(names) = &names {
            row(names, line, log);
        }
    }
}

/// A column: its metric, and whether that is in percent.
struct MpstatColumn {
    metric: Name,
    percent: bool,
    /// False of what is no statistic of ours.
    wanted: bool,
}

impl MpstatColumn {
    fn of(heading: &str) -> Self {
        match heading.strip_prefix('%') {
            Some(rest) => Self { metric: name(&slug(rest)), percent: true, wanted: true },
            None => Self {
                metric: Name::known("interrupts-per-s"),
                percent: false,
                wanted: heading == "intr/s",
            },
        }
    }
}

/// The names behind `CPU`, of the table of percents.
fn columns(line: &str) -> Option<Few<&str>> {
    if !line.holds("%idle") {
        return None;
    }
    let mut words = line.ascii_words();
    let stamp = words.by_ref().take_while(|word| *word != "CPU").count();
    let names: Few<&str> = words.collect();
    let percents = names.iter().filter(|name| name.starts_with('%')).count();
    (stamp <= 2 && percents >= 4 && names.contains(&"%idle")).then_some(names)
}

/// `15:35:57     all    0.00   92.50 ...`, with AM or PM behind the time, or
/// `Average:`.
fn row(columns: &[MpstatColumn], line: TextLine<'_>, log: &mut Log) {
    let words: Few<&str> = line.words().collect();
    if words.len() < columns.len() + 1 || words.len() > columns.len() + 3 {
        if words.len() > 3 {
            log.unread(line, "not as many numbers as columns");
        }
        return;
    }
    let (head, cells) = words.split_at(words.len() - columns.len());
    let cpu = head[head.len() - 1];
    if cpu != "all" && cpu.parse::<u32>().is_err() {
        return;
    }
    let values: Option<Few<f64>> = cells.iter().map(|cell| line.decimals(cell, 2)).collect();
    let Some(values) = values else { return log.unread(line, "not all are numbers") };
    let time = head[..head.len() - 1].join(" ");
    // `Average:` in the language of whoever ran it.
    let average = time.ends_with(':') && !time.bytes().any(|byte| byte.is_ascii_digit());
    log.label("time", if average { "average" } else { &time });
    log.label("cpu", cpu);
    for (column, value) in columns.iter().zip(values).filter(|(column, _)| column.wanted) {
        let (unit, kind) =
            if column.percent { ("%", MetricKind::Count) } else { ("1/s", MetricKind::Rate) };
        log.push(&column.metric, value, unit, None, kind, line);
    }
    log.clear_labels();
}

fn read_json(document: &JsonNode<'_>, log: &mut Log) {
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early");
    }
    let hosts = document.get("sysstat").and_then(|node| node.get("hosts"));
    let statistics =
        hosts.map_or(&[][..], JsonNode::items).iter().filter_map(|host| host.get("statistics"));
    for sample in statistics.flat_map(|node| node.items()) {
        let time = sample.get("timestamp").and_then(JsonNode::text).unwrap_or_default();
        for (list, place) in [("cpu-load", "cpu"), ("node-load", "node")] {
            let rows = sample.get(list).map_or(&[][..], JsonNode::items);
            for row in rows.iter().filter(|row| row.whole) {
                // Old versions call the sum of all -1.
                let whose = row.get(place).and_then(JsonNode::text).unwrap_or("all");
                log.clear_labels();
                log.label(place, if whose == "-1" { "all" } else { whose });
                log.label("time", time);
                for (name, value) in row.members().iter().filter(|(name, _)| *name != place) {
                    if let Some(number) = value.number() {
                        log.push(slug(name), number, "%", None, MetricKind::Count, value.line);
                    }
                }
            }
        }
    }
    log.clear_labels();
}
