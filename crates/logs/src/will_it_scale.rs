//! will-it-scale: operations by number of tasks.
//!
//! Source: will-it-scale `runtest.py` (CSV) and `main.c` (a test's own lines).

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, ShortList, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "will-it-scale",
    about: "will-it-scale: the CSV of runtest.py and the lines of a test",
    signs: &[
        opens("tasks,processes,processes_idle,threads,threads_idle,linear"),
        opens("testcase:"),
        part("min:").when(|line| line.holds(" max:") && line.holds(" total:")),
    ],
    failures: &[failed("Traceback (most recent call last)"), failed("Assertion `").within()],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut csv = false;
    for line in text.lines() {
        if line.text.starts_with("tasks,processes,") {
            csv = true;
            log.clear_labels();
        } else if let Some(rest) = line.after("testcase:") {
            csv = false;
            log.clear_labels();
            log.label("test", slug(rest.text));
        } else if let Some(rest) = line.after("average:") {
            match rest.number(rest.text) {
                Some(value) => drop(log.rate("ops-per-s", value, "1/s", line)),
                None => log.unread(line, "no number"),
            }
        } else if csv {
            let cells: ShortList<&str> = fields(line.text, b',').collect();
            let values: Option<ShortList<f64>> =
                cells.iter().map(|cell| number::parse(cell)).collect();
            let Some(values) = values else {
                csv = line.text.is_empty();
                continue;
            };
            if values.len() != 6 || line.is_open() {
                log.unread(line, "a row has six numbers");
                continue;
            }
            // Zero: not run in this mode.
            if values[0] == 0.0 {
                continue;
            }
            for (column, mode) in [(1, "processes"), (3, "threads")] {
                if values[column] != 0.0 {
                    log.rate("ops-per-s", values[column], "1/s", line)
                        .label("mode", mode)
                        .label("tasks", cells[0]);
                    log.push(
                        "idle",
                        values[column + 1],
                        "%",
                        None,
                        record::MetricKind::Count,
                        line,
                    )
                    .label("mode", mode)
                    .label("tasks", cells[0]);
                }
            }
        }
    }
}
