//! mpstat's tables and JSON.
//!
//! Source: sysstat `mpstat.c`, `json_stats.c`, `rd_stats.c`, `common.c`. `Average:`
//! rows have the label `time=average`.

use std::borrow::Cow;
use std::sync::Arc;

use record::{LogMetric, MetricKind};

use super::failure::{failed, system_error};
use super::json::{self, JsonNode};
use super::margin::MPSTAT_COLUMN;
use super::names::metric;
use super::sign::{json as in_json, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "mpstat",
    about: "mpstat of sysstat: tables, -o JSON",
    signs: &[
        in_json("\"sysstat\""),
        part("CPU ").within().when(|line| columns(line).is_some()).anew(),
    ],
    failures: &[
        failed("Cannot open ").when(is_of_system),
        failed("Cannot read ").when(is_of_system),
        system_error("stdout: "),
        system_error("malloc: "),
        system_error("sysconf: "),
    ],
    read,
};

/// Whether it names a file of the kernel, which are all that mpstat reads.
fn is_of_system(line: &str) -> bool {
    line.holds(" /proc/") || line.holds(" /sys/")
}

/// Reads JSON, and any number of tables beside it.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"sysstat\"") {
        let clean = json::unquoted(text);
        if let Some((document, _)) = json::parse(LogText::at(&clean, text.first_line()), |_| false)
        {
            read_json(&document, log);
        }
    }
    // The last heading is said again and again.
    let mut heading: ShortList<&str> = ShortList::new();
    let mut table: Vec<Option<Arc<LogMetric>>> = Vec::new();
    let mut is_in_table = false;
    for line in text.lines() {
        if let Some(found) = columns(line.text) {
            if found != heading {
                table = found.iter().map(|name| measured(name)).collect();
                heading = found;
            }
            is_in_table = true;
        } else if line.text.is_empty() {
            is_in_table = false;
        } else if is_in_table {
            row(&table, line, log);
        }
    }
}

/// What the values of a column measure; none if it is no statistic of ours.
fn measured(heading: &str) -> Option<Arc<LogMetric>> {
    match heading.strip_prefix('%') {
        Some(rest) => Some(metric(slug(rest), "%", None, MetricKind::Count)),
        None if heading == "intr/s" => {
            Some(metric("interrupts-per-s", "1/s", None, MetricKind::Rate))
        }
        None => None,
    }
}

/// The names behind `CPU`, of the table of percents.
fn columns(line: &str) -> Option<ShortList<&str>> {
    if !line.holds(MPSTAT_COLUMN) {
        return None;
    }
    let mut words = line.ascii_words();
    let stamp = words.by_ref().take_while(|word| *word != "CPU").count();
    let names: ShortList<&str> = words.collect();
    let percents = names.iter().filter(|name| name.starts_with('%')).count();
    (stamp <= 2 && percents >= 4 && names.contains(&MPSTAT_COLUMN)).then_some(names)
}

/// `15:35:57     all    0.00   92.50 ...`, with AM or PM behind the time, or
/// `Average:`.
fn row(columns: &[Option<Arc<LogMetric>>], line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
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
    let values: Option<ShortList<f64>> = cells.iter().map(|cell| line.decimals(cell, 2)).collect();
    let Some(values) = values else { return log.unread(line, "not all are numbers") };
    let time = match &head[..head.len() - 1] {
        [time] => Cow::Borrowed(*time),
        words => Cow::Owned(words.join(" ")),
    };
    // `Average:` in the language of whoever ran it.
    let average = time.ends_with(':') && !time.bytes().any(|byte| byte.is_ascii_digit());
    log.label("time", if average { "average" } else { &time });
    log.label("cpu", cpu);
    for (column, value) in columns.iter().zip(values) {
        if let Some(metric) = column {
            log.push_of(metric, value, line);
        }
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
    // Rows have the same names in the same order.
    let mut names: Vec<Option<(&str, Arc<LogMetric>)>> = Vec::new();
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
                for (at, (name, value)) in row.members().iter().enumerate() {
                    let Some(number) = value.number().filter(|_| *name != place) else { continue };
                    names.resize(names.len().max(at + 1), None);
                    if names[at].as_ref().is_none_or(|(known, _)| known != name) {
                        names[at] = Some((name, metric(slug(name), "%", None, MetricKind::Count)));
                    }
                    if let Some((_, metric)) = &names[at] {
                        log.push_of(metric, number, value.line);
                    }
                }
            }
        }
    }
    log.clear_labels();
}
