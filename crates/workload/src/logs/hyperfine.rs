//! hyperfine's JSON and its text.
//!
//! Source: hyperfine `src/export/json.rs`, `src/benchmark/mod.rs`.

use super::json::{self, Node};
use super::number;
use super::sections::{json_part, opens};
use super::{Cut, Few, Line, Log, Text, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "hyperfine",
    about: "hyperfine: --export-json, text",
    signs: &[
        json_part("\"exit_codes\""),
        json_part("\"stddev\"").when(|line| line.starts_with("\"stddev\":")),
        opens("Benchmark ").when(|line| {
            line.cut(": ").is_some_and(|(head, _)| {
                head.bytes().skip(10).all(|byte| byte.is_ascii_digit() || byte == b'#')
            })
        }),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: Text<'_>, log: &mut Log) {
    if text.raw().contains("\"results\"") {
        let clean = json::unquoted(text);
        let mut rest = Text::at(&clean, text.first_line());
        while let Some((document, behind)) = json::parse(rest, |_| false) {
            if behind.raw().len() == rest.raw().len() {
                break;
            }
            read_json(&document, log);
            rest = behind;
        }
        return;
    }
    for line in text.lines() {
        if line.text.starts_with("Benchmark ") {
            if let Some((_, command)) = line.split(": ").filter(|_| !line.is_open()) {
                log.label("command", command.text);
            }
        } else if let Some(rest) =
            line.after("Time (mean ± σ):").or_else(|| line.after("Time (abs ≡):"))
        {
            mean(rest, line, log);
        } else if let Some(rest) = line.after("Range (min … max):") {
            let words: Few<&str> = rest.words().collect();
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

fn time(value: &str, unit: &str) -> Option<f64> {
    Some(number::scaled(number::parse(value)?, number::seconds(unit)?))
}

/// `14.7 ms ±   5.5 ms    [User: 1.2 ms, System: 0.0 ms]`
fn mean(rest: Line<'_>, line: Line<'_>, log: &mut Log) {
    let words: Few<&str> = rest.words().collect();
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

fn read_json(document: &Node<'_>, log: &mut Log) {
    let results = document.get("results").map_or(&[][..], Node::items);
    if !document.whole && !results.is_empty() {
        log.unread_at(document.line, "{", "the document ends early");
    }
    for result in results.iter().filter(|result| result.whole) {
        log.clear_labels();
        if let Some(command) = result.get("command").and_then(Node::text) {
            log.label("command", command);
        }
        for (name, value) in result.get("parameters").map_or(&[][..], Node::members) {
            if let Some(value) = value.text() {
                log.label(super::text::slug(&format!("parameter-{name}")), value);
            }
        }
        for (key, metric, extreme) in [
            ("mean", "time-mean", false),
            ("stddev", "time-stddev", false),
            ("median", "time-median", true),
            ("user", "user-time", false),
            ("system", "system-time", false),
            ("min", "time-min", true),
            ("max", "time-max", true),
        ] {
            let Some((value, line)) =
                result.get(key).and_then(|node| Some((node.number()?, node.line)))
            else {
                continue;
            };
            if extreme {
                log.quantile(metric, value, line);
            } else {
                log.time(metric, value, line);
            }
        }
        for time in result.get("times").map_or(&[][..], Node::items) {
            if let Some(value) = time.number() {
                log.time("time", value, time.line);
            }
        }
    }
    log.clear_labels();
}
