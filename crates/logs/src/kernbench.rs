//! kernbench: means of builds of a kernel.
//!
//! Source: kernbench 0.20 to 0.50, which print a block for each load:
//! `Average Optimal load -j 8 Run (std deviation):` and six rows, with the
//! deviation in parentheses since 0.40.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::sign::opens;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool, time};

pub(super) const TOOL: Tool = Tool {
    name: "kernbench",
    about: "kernbench's report, and GNU time or the shell's time of a build with --as",
    signs: &[
        opens("Average ").when(|line| {
            line.holds("oad ") && line.holds("-j")
                || line.ends_with("Run:")
                || line.ends_with("(std deviation):")
        }),
        opens("Elapsed Time ").when(|line| row(line).is_some()),
    ],
    failures: &[
        failed("make: *** "),
        failed("make[").when(|line| line.holds("]: *** ")),
        failed("ninja: build stopped"),
        failed("Command exited with non-zero status"),
        failed("Command terminated by signal"),
    ],
    read,
};

const ROWS: [(&str, &str); 6] = [
    ("Elapsed Time ", "elapsed-time"),
    ("User Time ", "user-time"),
    ("System Time ", "system-time"),
    ("Percent CPU ", "cpu"),
    ("Context Switches ", "context-switches"),
    ("Sleeps ", "sleeps"),
];

/// Reads any number of blocks.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        if let Some(rest) = line.after("Average ") {
            log.clear_labels();
            load(rest, log);
        } else if let Some((metric, value)) = row_of(line) {
            match value {
                Some(value) => note(metric, value, line, log),
                None => log.unread(line, "not one number"),
            }
        } else {
            time::read_line(line, log);
        }
    }
}

/// `Optimal load -j 8 Run`, `Half Load -j 2 Run:`, `Maximal -j Load Run`.
fn load(rest: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    if let Some(load) = words.first() {
        log.label("load", load.to_ascii_lowercase());
    }
    let jobs = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("-j")? {
        "" => words.get(at + 1).copied(),
        jobs => Some(jobs),
    });
    if let Some(jobs) = jobs.filter(|jobs| jobs.parse::<u32>().is_ok()) {
        log.label("jobs", jobs);
    }
}

/// The row's metric, and its value if it is a number with at most a deviation
/// and a remark in parentheses behind it: people set two runs side by side.
fn row_of(line: TextLine<'_>) -> Option<(&'static str, Option<f64>)> {
    let (name, metric) = ROWS.iter().find(|(name, _)| line.text.starts_with(name))?;
    let rest = line.after(name)?;
    let value = rest.word(0)?;
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let behind = rest.text[value.len()..].trim_start();
    let (deviation, remark) = behind.split_once(')').unwrap_or((behind, ""));
    let remark = remark.trim_start();
    let alone = deviation.is_empty() || deviation.starts_with('(');
    // A line that was cut off may have lost the second run.
    let alone = alone && !line.is_open() && (remark.is_empty() || remark.starts_with('('));
    let beside = remark.starts_with(name.trim_end()) || is_number(remark);
    let number = rest.number(value).filter(|_| alone);
    let plausible = is_number(value) || value.starts_with('.');
    (plausible && (alone || beside || line.is_open())).then_some((metric, number))
}

fn row(line: &str) -> Option<()> {
    let mut lines = LogText::new(line).lines();
    row_of(lines.next()?).map(drop)
}

fn note(metric: &'static str, value: f64, line: TextLine<'_>, log: &mut Log) {
    match metric {
        "cpu" => drop(log.push("cpu", value, "%", None, MetricKind::Count, line)),
        "context-switches" | "sleeps" => {
            log.count(metric, value, line).better(Some(BetterDirection::Lower));
        }
        _ => drop(log.time(metric, value, line)),
    }
}
