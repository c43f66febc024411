//! hyperfine's JSON and its text.
//!
//! Source: hyperfine `src/export/json.rs`, `src/benchmark/mod.rs`.

use super::failure::failed;
use super::json::{self, JsonNode};
use super::number;
use super::sign::{json_part, opens};
use super::text::fields;
use super::{Cut, Log, LogPosition, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "hyperfine",
    about: "hyperfine: text, --export-json, --export-csv, --export-markdown",
    signs: &[
        json_part("\"exit_codes\""),
        json_part("\"stddev\"").when(|line| line.starts_with("\"stddev\":")),
        opens(CSV),
        opens("Command ").when(|line| table_unit(line).is_some()),
        opens("Benchmark ").when(|line| {
            line.cut(": ").is_some_and(|(head, _)| {
                head.bytes().skip(10).all(|byte| byte.is_ascii_digit() || byte == b'#')
            })
        }),
    ],
    failures: &[
        failed("Error: "),
        failed("Command terminated with non-zero exit code").within(),
        failed("Ignoring non-zero exit code").within(),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"results\"") {
        let clean = json::unquoted(text);
        let mut rest = LogText::at(&clean, text.first_line());
        while let Some((document, behind)) = json::parse(rest, |_| false) {
            if behind.raw().len() == rest.raw().len() {
                break;
            }
            read_json(&document, log);
            rest = behind;
        }
        return;
    }
    // Columns of the CSV, and the unit of the Markdown's.
    let (mut csv, mut unit) = (None, None);
    for line in text.lines() {
        if line.text.starts_with(CSV) {
            (csv, unit) = (Some(fields(line.text, b',').collect::<ShortList<&str>>()), None);
        } else if line.text.starts_with("Command ") {
            (csv, unit) = (None, table_unit(line.text));
        } else if let Some(names) = csv.as_ref().filter(|_| line.text.contains(',')) {
            row_csv(names, line, log);
        } else if let Some(factor) = unit.filter(|_| line.text.starts_with('`')) {
            row_table(factor, line, log);
        } else if line.text.starts_with("Benchmark ") {
            if let Some((_, command)) = line.split(": ").filter(|_| !line.is_open()) {
                log.label("command", command.text);
            }
        } else if let Some(rest) =
            line.after("Time (mean ± σ):").or_else(|| line.after("Time (abs ≡):"))
        {
            mean(rest, line, log);
        } else if let Some(rest) = line.after("Range (min … max):") {
            let words: ShortList<&str> = rest.all_words();
            if let [min, min_unit, "…", max, max_unit, ..] = words[..]
                && let (Some(min), Some(max)) = (time(min, min_unit), time(max, max_unit))
                && !line.may_be_cut(max_unit)
            {
                log.quantile("time-min", min, line);
                log.quantile("time-max", max, line);
            }
        }
    }
    log.clear_labels();
}

const CSV: &str = "command,mean,stddev,median,user,system,min,max";

/// The metric of a column of the CSV or a key of the JSON, and whether it is a
/// quantile.
const METRICS: [(&str, &str, bool); 7] = [
    ("mean", "time-mean", false),
    ("stddev", "time-stddev", false),
    ("median", "time-median", true),
    ("user", "user-time", false),
    ("system", "system-time", false),
    ("min", "time-min", true),
    ("max", "time-max", true),
];

fn note(
    (_, metric, is_quantile): (&str, &'static str, bool),
    seconds: f64,
    at: impl LogPosition,
    log: &mut Log,
) {
    if is_quantile {
        log.quantile(metric, seconds, at);
    } else {
        log.time(metric, seconds, at);
    }
}

/// `sleep 0.1,0.102,0.001,0.102,0.001,0.002,0.101,0.105`, with parameters
/// behind; a command may hold commas.
fn row_csv(names: &[&str], line: TextLine<'_>, log: &mut Log) {
    let mut cells: ShortList<&str> = line.text.rsplitn(names.len(), ',').collect();
    cells.reverse();
    // The least and the most, which are always there, tell whether it is a row.
    let whole = cells.len() == names.len()
        && [1, 4, 5, 6, 7].iter().all(|at| line.number(cells[*at]).is_some());
    if !whole || line.is_open() {
        return log.unread(line, "not the columns of its heading");
    }
    log.clear_labels();
    log.label("command", cells[0].trim_matches('"'));
    for (name, cell) in names.iter().zip(&cells).skip(8) {
        log.label(super::text::slug(&name.replace('_', "-")), *cell);
    }
    for (metric, cell) in METRICS.iter().zip(&cells[1..]) {
        if let Some(seconds) = number::parse(cell) {
            note(*metric, seconds, line, log);
        }
    }
    log.clear_labels();
}

/// The unit in `Command  Mean [ms]  Min [ms]  Max [ms]  Relative`.
fn table_unit(line: &str) -> Option<f64> {
    let words: ShortList<&str> = line.all_words();
    match words[..] {
        ["Command", "Mean", unit, "Min", min, "Max", max, "Relative"]
            if unit == min && unit == max =>
        {
            number::seconds(unit)
        }
        _ => None,
    }
}

/// `` `sleep 0.1`  102.3 ± 1.2  101.0  105.0  1.00 ``, where a single run has no
/// deviation.
fn row_table(factor: f64, line: TextLine<'_>, log: &mut Log) {
    let Some((command, rest)) = line.text[1..].rsplit_once('`') else { return };
    let words: ShortList<&str> = rest.all_words();
    let seconds = |word: &str| Some(number::scaled(line.number(word)?, factor));
    let (mean, deviation, min, max) = match words[..] {
        [mean, "±", deviation, min, max, _, ..] => (mean, Some(deviation), min, max),
        [mean, min, max, _, ..] => (mean, None, min, max),
        _ => return log.unread(line, "not the columns of its heading"),
    };
    let (Some(mean), Some(min), Some(max)) = (seconds(mean), seconds(min), seconds(max)) else {
        return log.unread(line, "not all are numbers");
    };
    log.label("command", command);
    log.time("time-mean", mean, line);
    if let Some(deviation) = deviation.and_then(seconds) {
        log.time("time-stddev", deviation, line);
    }
    log.quantile("time-min", min, line);
    log.quantile("time-max", max, line);
    log.clear_labels();
}

fn time(value: &str, unit: &str) -> Option<f64> {
    Some(number::scaled(number::parse(value)?, number::seconds(unit)?))
}

/// `14.7 ms ±   5.5 ms    [User: 1.2 ms, System: 0.0 ms]`
fn mean(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    let [value, unit, ..] = words[..] else { return log.unread(line, "the line ends early") };
    if rest.may_be_cut(unit) {
        return log.unread(line, "the line ends early");
    }
    match time(value, unit) {
        Some(seconds) => drop(log.time("time-mean", seconds, line)),
        None => log.unread(line, "no time with a unit"),
    }
    if let [_, _, "±", value, unit, tail @ ..] = &words[..]
        && !tail.is_empty()
        && let Some(seconds) = time(value, unit)
    {
        log.time("time-stddev", seconds, line);
    }
}

fn read_json(document: &JsonNode<'_>, log: &mut Log) {
    let results = document.get("results").map_or(&[][..], JsonNode::items);
    if !document.whole && !results.is_empty() {
        log.unread_at(document.line, "{", "the document ends early");
    }
    for result in results.iter().filter(|result| result.whole) {
        log.clear_labels();
        if let Some(command) = result.get("command").and_then(JsonNode::text) {
            log.label("command", command);
        }
        for (name, value) in result.get("parameters").map_or(&[][..], JsonNode::members) {
            if let Some(value) = value.text() {
                log.label(super::text::slug(&format!("parameter-{name}")), value);
            }
        }
        for metric in METRICS {
            if let Some(node) = result.get(metric.0)
                && let Some(seconds) = node.number()
            {
                note(metric, seconds, node.line, log);
            }
        }
        for code in result.get("exit_codes").map_or(&[][..], JsonNode::items) {
            if code.number() != Some(0.0) {
                let said = code.text().unwrap_or("null");
                log.failed_at(code.line, said, "the command ended with this code");
            }
        }
        for time in result.get("times").map_or(&[][..], JsonNode::items) {
            if let Some(value) = time.number() {
                log.time("time", value, time.line);
            }
        }
    }
    log.clear_labels();
}
