//! vmstat's samples.
//!
//! Source: procps `src/vmstat.c`: memory in KiB, swap and blocks in KiB a
//! second. The first row is the mean since boot: it has the label
//! `since=boot`.

use record::MetricKind;

use super::sign::{opens, part};
use super::{Cut, Few, Log, LogText, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "vmstat",
    about: "vmstat of procps: default, -a, -w, -t",
    signs: &[
        opens("procs ---"),
        opens("--procs--"),
        opens("procs  "),
        part("r  b   swpd"),
        part("r    b         swpd"),
        part("r  b  swpd"),
    ],
    failures: &[],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut names: Option<Few<&str>> = None;
    let mut first = true;
    for line in text.lines() {
        if line.text.starts_with("r ") && line.text.holds(" b ") && line.text.holds(" swpd ") {
            names = Some(line.words().filter(|name| column(name).is_some()).collect());
        } else if let Some(names) = &names {
            let before = log.values.len();
            row(names, first, line, log);
            first = first && log.values.len() == before;
        }
    }
}

/// Metric, unit, and what to multiply with.
fn column(name: &str) -> Option<(&'static str, &'static str, f64)> {
    Some(match name {
        "r" => ("runnable", "count", 1.0),
        "b" => ("blocked", "count", 1.0),
        // Before Linux 2.6.
        "w" => ("swapped-out", "count", 1.0),
        "swpd" => ("swapped", "B", 1024.0),
        "free" => ("free", "B", 1024.0),
        "buff" => ("buffers", "B", 1024.0),
        "cache" => ("cache", "B", 1024.0),
        "inact" => ("inactive", "B", 1024.0),
        "active" => ("active", "B", 1024.0),
        "si" => ("swap-in", "B/s", 1024.0),
        "so" => ("swap-out", "B/s", 1024.0),
        "bi" => ("block-in", "B/s", 1024.0),
        "bo" => ("block-out", "B/s", 1024.0),
        "in" => ("interrupts-per-s", "1/s", 1.0),
        "cs" => ("context-switches-per-s", "1/s", 1.0),
        "us" => ("cpu-user", "%", 1.0),
        "sy" => ("cpu-system", "%", 1.0),
        "id" => ("cpu-idle", "%", 1.0),
        "wa" => ("cpu-wait", "%", 1.0),
        "st" => ("cpu-steal", "%", 1.0),
        "gu" => ("cpu-guest", "%", 1.0),
        _ => return None,
    })
}

fn row(names: &[&str], first: bool, line: TextLine<'_>, log: &mut Log) {
    let words: Few<&str> = line.words().collect();
    let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    if words.len() < 3 || !words.iter().take(3).all(digits) {
        return;
    }
    // With -t the date and the time follow.
    let fits = words.len() == names.len() || words.len() == names.len() + 2;
    let cells = &words[..words.len().min(names.len())];
    let values: Option<Few<f64>> = cells.iter().map(|word| line.number(word)).collect();
    let Some(values) = values.filter(|_| fits) else {
        return log.unread(line, "not as many numbers as columns");
    };
    if first {
        log.label("since", "boot");
    }
    for (name, value) in names.iter().zip(values) {
        if let Some((metric, unit, factor)) = column(name) {
            let kind = if unit.ends_with("/s") { MetricKind::Rate } else { MetricKind::Count };
            log.push(metric, value * factor, unit, None, kind, line);
        }
    }
    log.clear_labels();
}
