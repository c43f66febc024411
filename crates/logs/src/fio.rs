//! fio: JSON, terse and normal output.
//!
//! Source: fio 2.0 to 3.x `stat.c` and its manual page. Names of metrics are
//! the same in all three: `iops`, `rate`, and of each latency (`slat`, `clat`,
//! `lat`, `sync`) its least, mean, deviation, most and percentiles.

mod document;
mod normal;
mod terse;

use record::Name;

use super::failure::failed;
use super::json;
use super::sign::{json as in_json, opens, part};
use super::{Cut, Log, LogPosition, LogText, NameText as _, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fio",
    about: "fio 2 and 3: JSON, JSON+, terse 2 to 5, normal output",
    signs: &[
        part("fio: ").when(is_failure),
        opens("fio-").when(|line| line.len() < 40 && !line.contains([' ', ';'])),
        in_json("\"fio version\""),
        part("(g=").within().when(|line| line.holds("): rw=")),
        part("(groupid=").within().when(|line| line.holds("): err=")),
        part("Run status group "),
        part("2;").when(terse::is_terse).anew(),
        part("3;fio-").when(terse::is_terse).anew(),
        part("4;fio-").when(terse::is_terse).anew(),
        part("5;fio-").when(terse::is_terse).anew(),
    ],
    failures: &[failed("fio: ").when(is_failure), failed("verify: bad ")],
    read,
};

/// Whether a message of fio's says that a job failed, or was ended by somebody.
fn is_failure(line: &str) -> bool {
    let said = ["error", "failed", ", got signal=", " disappeared ", "terminating on signal"];
    let number = line.cut(", err=").map(|(_, rest)| rest);
    said.iter().any(|said| line.contains(said)) || number.is_some_and(|rest| !rest.starts_with('0'))
}

/// Reads one run in any format.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"fio version\"") {
        let clean = json::unquoted(text);
        let text = LogText::at(&clean, text.first_line());
        // The bins of JSON+ are most of it.
        let skip: fn(&str) -> bool =
            if log.keeps_distributions() { |_| false } else { |key| key == "bins" };
        if let Some((document, rest)) = json::parse(text, skip) {
            document::read(&document, log);
            return lines(rest, log);
        }
    }
    lines(text, log);
}

fn lines(text: LogText<'_>, log: &mut Log) {
    let mut normal = normal::OutputPosition::default();
    for line in text.lines() {
        if terse::is_terse(line.text) {
            normal = normal::OutputPosition::default();
            log.clear_labels();
            terse::read(line, log);
        } else {
            normal.line(line, log);
        }
    }
}

/// One number of a latency: its least, mean, deviation or most.
fn latency(log: &mut Log, kind: &str, statistic: &str, seconds: f64, at: impl LogPosition) {
    let (statistic, is_extreme) = match statistic {
        "min" => ("min", true),
        "max" => ("max", true),
        "mean" | "avg" => ("mean", false),
        "stddev" | "stdev" | "dev" => ("stddev", false),
        _ => return,
    };
    let metric = match (kind, statistic) {
        ("slat", "min") => Name::known("slat-min"),
        ("slat", "max") => Name::known("slat-max"),
        ("slat", "mean") => Name::known("slat-mean"),
        ("slat", _) => Name::known("slat-stddev"),
        ("clat", "min") => Name::known("clat-min"),
        ("clat", "max") => Name::known("clat-max"),
        ("clat", "mean") => Name::known("clat-mean"),
        ("clat", _) => Name::known("clat-stddev"),
        ("lat", "min") => Name::known("lat-min"),
        ("lat", "max") => Name::known("lat-max"),
        ("lat", "mean") => Name::known("lat-mean"),
        ("lat", _) => Name::known("lat-stddev"),
        _ => format_args!("{kind}-{statistic}").named(),
    };
    if is_extreme {
        log.quantile(&metric, seconds, at);
    } else {
        log.time(&metric, seconds, at);
    }
}

/// `99.000000` and `99.00th` are percentile 99.
fn percentile(name: &str) -> Option<&str> {
    let name = name.trim().trim_end_matches("th");
    let (whole, fraction) = name.split_once('.').unwrap_or((name, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let short =
        if name.contains('.') { name.trim_end_matches('0').trim_end_matches('.') } else { name };
    // Old versions fill their list up with it.
    (short != "0" && !short.is_empty()).then_some(short)
}

/// The label of the direction of an I/O.
fn operation(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "read" => "read",
        "write" => "write",
        "trim" => "trim",
        "mixed" => "mixed",
        _ => return None,
    })
}
