//! vmstat's samples.
//!
//! Source: procps `src/vmstat.c`: memory in KiB, swap and blocks in KiB a
//! second. The first row is the mean since boot: it has the label
//! `since=boot`.

use std::sync::Arc;

use record::{LogMetric, MetricKind};

use super::failure::failed;
use super::names;
use super::sign::{opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

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
        part("vmstat: ").when(is_failure),
    ],
    failures: &[failed("vmstat: ").when(is_failure)],
    read,
};

fn is_failure(line: &str) -> bool {
    let said = line.strip_prefix("vmstat: ").unwrap_or_default();
    let begins = [
        "Unable to ",
        "write error",
        "failed to parse argument",
        "invalid option ",
        "delay must be positive integer",
        "too large delay value",
        "-S requires ",
    ];
    begins.iter().any(|begin| said.starts_with(begin))
        || (said.starts_with("Disk/Partition ") && said.ends_with(" not found"))
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut columns: Option<Vec<VmstatColumn>> = None;
    let mut first = true;
    for line in text.lines() {
        if line.text.starts_with("r ") && line.text.holds(" b ") && line.text.holds(" swpd ") {
            columns = Some(line.words().filter_map(VmstatColumn::of).collect());
        } else if let Some(columns) = &columns {
            let before = log.values.len();
            row(columns, first, line, log);
            first = first && log.values.len() == before;
        }
    }
}

/// A column: what its values measure, and what to multiply them with.
struct VmstatColumn {
    metric: Arc<LogMetric>,
    factor: f64,
}

impl VmstatColumn {
    fn of(name: &str) -> Option<Self> {
        let (metric, unit, factor) = column(name)?;
        let kind = if unit.ends_with("/s") { MetricKind::Rate } else { MetricKind::Count };
        Some(Self { metric: names::metric(metric, unit, None, kind), factor })
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

fn row(columns: &[VmstatColumn], first: bool, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    if words.len() < 3 || !words.iter().take(3).all(digits) {
        return;
    }
    // With -t the date and the time follow.
    let fits = words.len() == columns.len() || words.len() == columns.len() + 2;
    let cells = &words[..words.len().min(columns.len())];
    let values: Option<ShortList<f64>> = cells.iter().map(|word| line.number(word)).collect();
    let Some(values) = values.filter(|_| fits) else {
        return log.unread(line, "not as many numbers as columns");
    };
    if first {
        log.label("since", "boot");
    }
    for (column, value) in columns.iter().zip(values) {
        log.push_of(&column.metric, value * column.factor, line);
    }
    log.clear_labels();
}
