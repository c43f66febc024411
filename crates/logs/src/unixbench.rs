//! UnixBench: the tests' rates, their indices and the score.
//!
//! Source: byte-unixbench `UnixBench/Run` (5.x) and the `Run` script of 4.x
//! and 3.x. Its KB are 1024 bytes.

use std::collections::BTreeSet;

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "unixbench",
    about: "UnixBench 3 to 5: results, index tables, any number of copies",
    signs: &[
        opens("BYTE UNIX Benchmarks"),
        opens("Benchmark Run:"),
        part("System Benchmarks "),
        part("samples)").within().when(|line| sampled(line).is_some()),
        opens("TEST").when(|line| line.holds("BASELINE") && line.holds("RESULT")),
    ],
    failures: &[failed("Run: ").when(|line| line.ends_with("; aborting"))],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut table: Option<[usize; 3]> = None;
    let mut rated: BTreeSet<String> = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.after("BYTE UNIX Benchmarks (Version ") {
            log.clear_labels();
            log.version = rest.text.split(')').next().map(str::to_owned);
        } else if let Some((_, rest)) =
            line.split("CPUs in system; running").or_else(|| line.split("CPU in system; running"))
        {
            log.label("copies", rest.word(0).unwrap_or_default());
            rated.clear();
            table = None;
        } else if let Some(order) = columns(line.text) {
            table = Some(order);
        } else if let Some(name) = score(line) {
            table = None;
            let last = line.words().last().unwrap_or_default();
            match line.decimals(last, 1) {
                Some(value) => drop(index(name, value, line, log)),
                // The score of a mail stands on a line of its own.
                None => log.unread(line, "no number"),
            }
        } else if let Some((name, value, unit, _)) = sampled(line.text) {
            if line.is_open() && !line.text.ends_with(')') {
                log.unread(line, "the line ends early");
                continue;
            }
            let test = slug(name);
            rate(&test, value, unit, line, log);
            rated.insert(test);
        } else if let Some(order) = table {
            row(line, order, &rated, log);
        }
    }
}

/// Where baseline, result and index stand among the numbers of the rows below a
/// heading; copies from PDFs have them in other orders.
fn columns(line: &str) -> Option<[usize; 3]> {
    let names: ShortList<&str> =
        line.ascii_words().filter(|word| ["BASELINE", "RESULT", "INDEX"].contains(word)).collect();
    let place = |name: &str| names.iter().position(|word| *word == name);
    match names.len() {
        3 => Some([place("BASELINE")?, place("RESULT")?, place("INDEX")?]),
        // A mailer wrapped the last one.
        2 => (names[..] == ["BASELINE", "RESULT"]).then_some([0, 1, 2]),
        _ => None,
    }
}

/// The metric of a line with the score of all tests.
fn score(line: TextLine<'_>) -> Option<&'static str> {
    let rest = line.text;
    if rest.starts_with("System Benchmarks Index Score") || rest.starts_with("FINAL SCORE") {
        Some("score")
    } else if rest.starts_with("2D Graphics Benchmarks Index Score") {
        Some("score-2d-graphics")
    } else if rest.starts_with("3D Graphics Benchmarks Index Score") {
        Some("score-3d-graphics")
    } else if rest.starts_with("AVERAGE ") {
        Some("score-average")
    } else {
        None
    }
}

fn index<'a>(
    metric: &'static str,
    value: f64,
    line: TextLine<'_>,
    log: &'a mut Log,
) -> super::NotedValue<'a> {
    log.push(metric, value, "1", Some(BetterDirection::Higher), MetricKind::Rate, line)
}

/// `Execl Throughput    1493.0 lps   (29.9 s, 2 samples)`: name, value, unit,
/// and what stands behind them.
fn sampled(line: &str) -> Option<(&str, f64, &str, &str)> {
    let at = line.rfind('(')?;
    let (head, tail) = (line[..at].trim_end(), &line[at..]);
    let seconds = tail[1..].ascii_words().next()?;
    number::parse(seconds.trim_end_matches(','))?;
    if !(tail.holds(" s,") || tail.holds(" secs,")) {
        return None;
    }
    let (rest, last) = head.rsplit_once([' ', '\t'])?;
    // Mails glue the unit to the number.
    let (name, value, unit) = match number::split_unit(last) {
        ("", unit) => {
            let (name, value) = rest.trim_end().rsplit_once([' ', '\t'])?;
            (name, value, unit)
        }
        (value, unit) => (rest, value, unit),
    };
    ["lps", "lpm", "KBps", "MWIPS", "MFLOPS", "fps"].contains(&unit).then_some(())?;
    Some((name.trim(), number::parse(value)?, unit, tail))
}

fn rate(test: &str, value: f64, unit: &str, line: TextLine<'_>, log: &mut Log) {
    let noted = match unit {
        "lps" | "fps" => log.rate("rate", value, "1/s", line),
        "lpm" => log.rate("rate", value / 60.0, "1/s", line),
        "KBps" => log.rate("rate", value * 1024.0, "B/s", line),
        "MFLOPS" => log.rate("rate", number::scaled(value, 1e6), "1/s", line),
        _ => log.rate("rate", number::scaled(value, 1e6), "1/s", line),
    };
    noted.label("test", test);
}

/// `Execl Throughput    43.0   1493.0   347.2`: baseline, result, index. A test
/// without a baseline has dashes.
fn row(line: TextLine<'_>, order: [usize; 3], rated: &BTreeSet<String>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let starts_with_letter = line.text.starts_with(|first: char| first.is_ascii_alphabetic());
    if words.len() < 4 || !starts_with_letter || words[0] == "SUM" {
        return;
    }
    let (name, cells) = words.split_at(words.len() - 3);
    if cells[order[0]] == "---" && cells[order[2]] == "---" {
        return;
    }
    let numbers: Option<ShortList<f64>> = cells.iter().map(|cell| line.decimals(cell, 1)).collect();
    let Some(numbers) = numbers else {
        // Two numbers at the end: the third one was wrapped by a mailer.
        if cells[2].parse::<f64>().is_ok() && cells[1].parse::<f64>().is_ok() {
            log.unread(line, "a row has a baseline, a result and an index");
        }
        return;
    };
    // An index is ten times the result by the baseline: that tells the order
    // where the heading was torn.
    let found = [order, [1, 2, 0]]
        .into_iter()
        .map(|order| order.map(|column| numbers[column]))
        .find(|[baseline, result, value]| {
            let expected = result / baseline * 10.0;
            (value - expected).abs() <= 0.06 + expected * 0.01
        });
    let Some([_, result, value]) = found else {
        return log.unread(line, "the index is not ten times result by baseline");
    };
    let test = slug(&name.join(" "));
    index("index", value, line, log).label("test", &*test);
    if !rated.contains(&test) {
        rate(&test, result, unit_of(&test), line, log);
    }
}

/// The unit of a test's result, which the index table leaves out.
fn unit_of(test: &str) -> &'static str {
    if test.starts_with("file-") {
        "KBps"
    } else if test.holds("whetstone") {
        "MWIPS"
    } else if test.starts_with("shell-scripts")
        || test.starts_with("c-compiler")
        || test.starts_with("dc-")
    {
        "lpm"
    } else {
        "lps"
    }
}
