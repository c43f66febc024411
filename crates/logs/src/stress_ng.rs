//! stress-ng: its log's tables and its YAML.
//!
//! Source: stress-ng `stress-ng.c` and `core-*.c`, 0.01 to 0.19: the table of
//! `--metrics` is logged as `info:` before 0.15 and as `metrc:` since; its MB
//! are 1024 x 1024 bytes, its KB 1024.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::names::{NameText, name};
use super::number;
use super::sign::{hint, opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "stress-ng",
    about: "stress-ng: info and metrc lines, --metrics-brief, --times, --perf, YAML",
    signs: &[
        opens("stress-ng-version:"),
        opens("dispatching hogs").within(),
        part("stress-ng: metrc:"),
        part("stress-ng: fail:"),
        part("stress-ng: error:"),
        part("stress-ng: info:"),
        part("stressor ").within().when(|line| line.holds("bogo ops") && line.holds("real time")),
        hint("- stressor:"),
    ],
    failures: &[
        failed("unsuccessful run completed").within(),
        failed("metrics are untrustworthy").within(),
        failed("fail:").within().when(is_failure),
        failed("error:").within().when(is_failure),
    ],
    read,
};

const MIB: f64 = 1024.0 * 1024.0;

/// What YAML ends with.
const YAML_END: &str = "...";

/// What the lines below belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputSection {
    None,
    /// The table, and the metrics that a stressor has beside.
    Table {
        columns: usize,
    },
    Perf,
    YamlMetrics,
    YamlTimes,
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut part = OutputSection::None;
    for line in text.lines() {
        let (body, level) = message(line);
        let logged = level.is_some();
        log.ended |= match logged {
            true => body.text.starts_with("successful run completed"),
            false => line.text == YAML_END,
        };
        if body.text.starts_with("stressor ") && body.text.holds("bogo ops") {
            let columns = if body.text.holds("CPU used") { 9 } else { 7 };
            part = OutputSection::Table { columns };
            log.clear_labels();
        } else if (!logged && yaml(line, &mut part, log)) || times(body, line, log) {
            continue;
        } else if let Some(rest) = body.after("stress-ng-version:") {
            log.version = rest.word(0).map(str::to_owned);
        } else if let Some(version) =
            body.after("stress-ng ").and_then(|rest| rest.word(0)).filter(|_| logged)
        {
            if version.starts_with(|first: char| first.is_ascii_digit()) {
                log.version = Some(version.to_owned());
            }
        } else if let Some(name) =
            body.text.strip_suffix(':').filter(|name| logged && is_stressor(name))
        {
            part = OutputSection::Perf;
            log.label("stressor", name);
        } else {
            match part {
                OutputSection::Table { columns } => table(body, columns, line, log),
                OutputSection::Perf => perf(body, line, log),
                _ => {}
            }
        }
    }
}

/// Whether a line of the log is of the levels `fail` and `error`.
fn is_failure(line: &str) -> bool {
    let head =
        line.strip_prefix("stress-ng: ").and_then(|rest| rest.cut("[")).map(|(head, _)| head);
    head.and_then(|head| head.ascii_words().last())
        .is_some_and(|level| level == "fail:" || level == "error:")
}

/// What stress-ng warns of in `text`, line by line.
pub fn warnings(text: &str) -> impl Iterator<Item = &str> {
    let messages = LogText::new(text).lines().map(message);
    messages.filter(|(_, level)| *level == Some("warn:")).map(|(body, _)| body.text)
}

/// The message of `stress-ng: 12:34:56.78 info:  [1234] message`, and its level if
/// it was one.
fn message(line: TextLine<'_>) -> (TextLine<'_>, Option<&str>) {
    let inner = line.after("stress-ng: ").unwrap_or(line);
    let Some((head, rest)) = inner.split("]") else { return (line, None) };
    let Some((level, pid)) = head.split_once('[') else { return (line, None) };
    let level = level.trim().rsplit(' ').next().unwrap_or_default();
    let known = matches!(level, "info:" | "metrc:" | "debug:" | "warn:" | "fail:" | "error:");
    if known && pid.bytes().all(|byte| byte.is_ascii_digit()) {
        (rest, Some(level))
    } else {
        (line, None)
    }
}

fn is_stressor(name: &str) -> bool {
    !name.is_empty()
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

/// `cpu  440  1.01  0.26  0.00  436.42  1671.04 [ 28.01  6468 ]`, or
/// `pipe  102.19 MB per sec pipe write rate (geometric mean of 1 instances)`
fn table(body: TextLine<'_>, columns: usize, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = body.all_words();
    let Some((name, cells)) = words.split_first().filter(|(name, _)| is_stressor(name)) else {
        return;
    };
    let numbers: Option<ShortList<f64>> = cells.iter().map(|word| body.number(word)).collect();
    match numbers {
        // 0.14 has the CPU's use and no memory.
        Some(values) if values.len() == 6 || (columns == 9 && (7..=8).contains(&values.len())) => {
            row(name, &values, line, log);
        }
        Some(_) => log.unread(line, "not the columns of the table"),
        None => {
            let first = cells.first().and_then(|word| body.number(word));
            let second_is_word = cells.get(1).is_some_and(|word| number::parse(word).is_none());
            match first {
                Some(value) if second_is_word => misc(name, value, &cells[1..], line, log),
                Some(_) => log.unread(line, "not all are numbers"),
                None => {}
            }
        }
    }
}

fn row(stressor: &str, values: &[f64], line: TextLine<'_>, log: &mut Log) {
    log.label("stressor", stressor);
    log.count("bogo-ops", values[0], line).better(Some(BetterDirection::Higher));
    for (metric, seconds) in
        ["real-time", "user-time", "system-time"].into_iter().zip(&values[1..4])
    {
        log.time(metric, *seconds, line).better(None);
    }
    log.rate("bogo-ops-per-s", values[4], "1/s", line);
    log.rate("bogo-ops-per-cpu-s", values[5], "1/s", line);
    if let Some(percent) = values.get(6) {
        log.push("cpu-per-instance", *percent, "%", None, MetricKind::Count, line);
    }
    if let Some(kib) = values.get(7) {
        log.max_resident(*kib, line);
    }
    log.clear_labels();
}

/// A stressor's own metric, by its words.
fn misc(stressor: &str, value: f64, words: &[&str], line: TextLine<'_>, log: &mut Log) {
    if !words.last().is_some_and(|word| word.ends_with(')')) && line.is_open() {
        return log.unread(line, "the line ends early");
    }
    let mut words = words.join(" ");
    for end in ["(average per stressor)", "(geo", "(harmonic mean"] {
        if let Some(at) = words.find(end) {
            words.truncate(at);
        }
    }
    described(&slug(&words), value, line, log, stressor);
}

/// A value whose name says its unit: `nanosecs-per-mutex`, `write128-mb/sec`.
fn described(name: &str, value: f64, line: TextLine<'_>, log: &mut Log, stressor: &str) {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    let times = [
        ("nanosecs-per-", 1e-9),
        ("nanoseconds-per-", 1e-9),
        ("microsecs-per-", 1e-6),
        ("microseconds-per-", 1e-6),
        ("millisecs-per-", 1e-3),
        ("milliseconds-per-", 1e-3),
        ("secs-per-", 1.0),
        ("seconds-per-", 1.0),
    ];
    let time = times.iter().find_map(|(unit, factor)| Some((lower.strip_prefix(unit)?, factor)));
    let rate = ["mb-per-sec", "mb/sec", "mb-per-second"].iter().find_map(|unit| {
        let at = lower.find(unit)?;
        let rest = format!("{}{}", &lower[..at], &lower[at + unit.len()..]);
        Some(rest.trim_matches('-').to_owned())
    });
    let noted = if let Some((what, factor)) = time {
        log.time(format_args!("time-per-{what}"), number::scaled(value, *factor), line)
    } else if let Some(what) = rate {
        let metric = if what.is_empty() { "rate".named() } else { what.named() };
        log.rate(metric, number::scaled(value, MIB), "B/s", line)
    } else if lower.ends_with("-per-sec") || lower.ends_with("-per-second") || lower.holds("/sec") {
        log.rate(&lower, value, "1/s", line)
    } else if lower.starts_with('%') || lower.holds("-%") {
        log.push(&lower, value, "%", None, MetricKind::Count, line)
    } else if lower.is_empty() {
        return log.unread(line, "no name");
    } else {
        log.push(&lower, value, "1", None, MetricKind::Count, line)
    };
    if !stressor.is_empty() {
        noted.label("stressor", stressor);
    }
}

/// `116.98s user time   (  4.06%)`
fn times(body: TextLine<'_>, line: TextLine<'_>, log: &mut Log) -> bool {
    let mut words = body.words();
    let (Some(seconds), Some(kind)) = (words.next(), words.next()) else { return false };
    let metric = match (kind, words.next(), words.next()) {
        ("available", Some("CPU"), Some("time")) => "available-cpu-time",
        ("user", Some("time"), _) => "total-user-time",
        ("system", Some("time"), _) => "total-system-time",
        ("total", Some("time"), _) => "total-cpu-time",
        _ => return false,
    };
    let Some(value) = seconds.strip_suffix('s').and_then(number::parse) else { return false };
    log.clear_labels();
    log.time(metric, value, line).better(None);
    true
}

/// `472049260 CPU Clock   0.467 B/sec`
fn perf(body: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = body.all_words();
    let [count, name @ .., rate, unit] = words.as_slice() else { return };
    let counted = number::grouped(count).or_else(|| number::parse(count));
    let (Some(count), Some(_)) = (counted, number::parse(rate)) else { return };
    if name.is_empty() || !unit.holds("/sec") {
        return;
    }
    log.count(format_args!("perf-{}", slug(&name.join(" "))), count, line);
}

/// A line of the YAML; false if it is none.
fn yaml(line: TextLine<'_>, part: &mut OutputSection, log: &mut Log) -> bool {
    if line.text.ends_with(':') && !line.text.contains(' ') {
        let top = match line.text {
            "metrics:" => OutputSection::YamlMetrics,
            "times:" => OutputSection::YamlTimes,
            "system-info:" | "perfstats:" | "thermal-zones:" | "rapl-power-domains:" => {
                OutputSection::None
            }
            _ => return false,
        };
        *part = top;
        log.clear_labels();
        return true;
    }
    if !matches!(part, OutputSection::YamlMetrics | OutputSection::YamlTimes) {
        return false;
    }
    if line.text == YAML_END || line.text == "---" {
        *part = OutputSection::None;
        return true;
    }
    let Some((key, value)) = line.split(":") else { return false };
    let key = key.trim_start_matches("- ").trim_matches('"');
    if key == "stressor" {
        log.label("stressor", value.text.trim_matches(['"', '\'']));
        return true;
    }
    let whole = if *part == OutputSection::YamlMetrics && key != "max-rss" && key != "bogo-ops" {
        value.decimals(value.text, 6)
    } else {
        value.number(value.text)
    };
    let Some(number) = whole else {
        if !value.text.is_empty() {
            log.unread(line, "no number");
        }
        return true;
    };
    if *part == OutputSection::YamlTimes {
        log.time(format_args!("total-{}", slug(key)), number, line).better(None);
        return true;
    }
    match key {
        "bogo-ops" => {
            log.count("bogo-ops", number, line).better(Some(BetterDirection::Higher));
        }
        "bogo-ops-per-second-usr-sys-time" => {
            log.rate("bogo-ops-per-cpu-s", number, "1/s", line);
        }
        "bogo-ops-per-second-real-time" => drop(log.rate("bogo-ops-per-s", number, "1/s", line)),
        "wall-clock-time" => drop(log.time("real-time", number, line).better(None)),
        "user-time" | "system-time" => drop(log.time(name(key), number, line).better(None)),
        "cpu-usage-per-instance" => {
            log.push("cpu-per-instance", number, "%", None, MetricKind::Count, line);
        }
        "max-rss" => log.max_resident(number, line),
        _ => described(&slug(key), number, line, log, ""),
    }
    true
}
