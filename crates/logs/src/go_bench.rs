//! Go's benchmark format, which many programs write.
//!
//! Source: golang.org/design/14313-benchmark-format: a name, iterations, then
//! pairs of value and unit; lines `Unit UNIT better=higher`.

use std::collections::BTreeMap;

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::names::name;
use super::number;
use super::sign::{hint, opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "go-bench",
    about: "Go's benchmark format, with its Unit lines",
    signs: &[
        hint("Unit ").when(|line| line.holds("better=") || line.holds("assume=")),
        opens("goos:"),
        part("Benchmark").when(is_result),
    ],
    failures: &[
        failed("--- FAIL: "),
        failed("FAIL").when(|line| line == "FAIL" || line.starts_with("FAIL\t")),
        failed("panic: "),
        failed("exit status "),
    ],
    read,
};

/// Reads any number of files.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut better: BTreeMap<&str, BetterDirection> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.after("Unit ") {
            let mut words = rest.words();
            let Some(unit) = words.next() else { continue };
            for setting in words {
                match setting {
                    "better=higher" => drop(better.insert(unit, BetterDirection::Higher)),
                    "better=lower" => drop(better.insert(unit, BetterDirection::Lower)),
                    _ => {}
                }
            }
        } else if is_result(line.text) {
            result(line, &better, log);
        } else if let Some((key @ ("goos" | "goarch" | "pkg" | "cpu"), value)) = line.split(": ")
            && !line.is_open()
        {
            log.label(name(key), value.text);
        }
    }
}

fn is_result(line: &str) -> bool {
    let mut words = line.ascii_words();
    let named = words.next().is_some_and(|name| name.starts_with("Benchmark") && name.len() > 9);
    let iterations = words.next().is_some_and(|count| count.parse::<u64>().is_ok());
    named && iterations && words.next().is_some_and(|value| number::parse(value).is_some())
}

fn result(line: TextLine<'_>, better: &BTreeMap<&str, BetterDirection>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let name = words[0].trim_start_matches("Benchmark");
    for pair in words[2..].chunks(2) {
        let [value, unit] = pair else {
            return log.unread(line, "a value without a unit");
        };
        let Some(value) = number::parse(value).filter(|_| !line.may_be_cut(unit)) else {
            return log.unread(line, "no value with a unit");
        };
        let said = better.get(unit).copied();
        let noted = match *unit {
            "ns/op" => log.time("time-per-op", value / 1e9, line),
            "sec/op" => log.time("time-per-op", value, line),
            "MB/s" => log.rate("rate", number::scaled(value, 1e6), "B/s", line),
            "B/s" => log.rate("rate", value, "B/s", line),
            "B/op" => log.push(
                "bytes-per-op",
                value,
                "B",
                Some(BetterDirection::Lower),
                MetricKind::Count,
                line,
            ),
            "allocs/op" => {
                log.count("allocs-per-op", value, line).better(Some(BetterDirection::Lower))
            }
            _ => log.push(slug(unit), value, "1", said, MetricKind::Count, line),
        };
        let noted = noted.label("name", name);
        if let Some(said) = said {
            noted.better(Some(said));
        }
    }
}
