//! turbostat's tables.
//!
//! Source: Linux `tools/power/x86/turbostat/turbostat.c`: counters of threads,
//! then of cores, then of packages; a row leaves out at its end what an
//! earlier row has said for its core or package.

use record::MetricKind;

use super::sections::{opens, part};
use super::text::slug;
use super::{Line, Log, Text, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "turbostat",
    about: "turbostat: the tables of every interval",
    signs: &[
        opens("turbostat version"),
        part("Avg_MHz").within(),
        part("Bzy_MHz").within(),
        part("%Busy").within().when(|line| line.contains("GHz")),
        part("%c0").within().when(|line| is_old_heading(line)),
    ],
    read,
};

/// Reads any number of intervals.
pub(crate) fn read(text: Text<'_>, log: &mut Log) {
    let mut names: Option<Vec<&str>> = None;
    // Before 3.14 (2014) the row of all has blanks where its place would be.
    let mut places_end = None;
    for line in text.lines() {
        if let Some(rest) = line.after("turbostat version ") {
            log.version = rest.word(0).map(str::to_owned);
        } else if is_old_heading(line.text) {
            names = (!line.is_open()).then(|| line.words().collect());
            places_end = line.text.find("CPU").map(|at| line.indent + at + "CPU".len());
        } else if line.text.contains("Bzy_MHz") || line.text.contains("Avg_MHz") {
            names = (!line.is_open()).then(|| line.words().collect());
            places_end = None;
        } else if let Some(names) = &names {
            let of_all = places_end.is_some_and(|end| line.indent >= end);
            let places = names.iter().take_while(|name| is_place(name)).count();
            row(if of_all { &names[places..] } else { names }, line, log);
        }
    }
}

/// `pk cor CPU    %c0  GHz  TSC    %c1`
fn is_old_heading(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace().skip_while(|word| is_place(word));
    words.next() == Some("%c0") && words.next() == Some("GHz")
}

fn is_place(name: &str) -> bool {
    PLACES.iter().any(|(column, _)| *column == name)
}

/// Columns that say whose row it is.
const PLACES: [(&str, &str); 9] = [
    ("pk", "package"),
    ("cor", "core"),
    ("cr", "core"),
    ("Package", "package"),
    ("Die", "die"),
    ("Node", "node"),
    ("Core", "core"),
    ("CPU", "cpu"),
    ("Time_Of_Day_Seconds", "time"),
];

fn row(names: &[&str], line: Line<'_>, log: &mut Log) {
    let words: Vec<&str> = line.words().collect();
    let places = names.iter().take_while(|name| is_place(name) || **name == "usec").count();
    let looks = words.len() > places
        && words.iter().all(|word| *word == "-" || word.starts_with(|c: char| c.is_ascii_digit()));
    if !looks {
        return;
    }
    if words.len() > names.len() {
        return log.unread(line, "more numbers than columns");
    }
    for (name, word) in names.iter().zip(&words) {
        if let Some((_, label)) = PLACES.iter().find(|(column, _)| column == name) {
            log.label(label, if *word == "-" { "all" } else { word });
        }
    }
    // Without a place it is one summary row.
    let mut bad = false;
    for (name, word) in names.iter().zip(&words) {
        if is_place(name) || *name == "usec" || *name == "APIC" || *name == "X2APIC" {
            continue;
        }
        match line.number(word) {
            Some(value) => note(name, value, line, log),
            None => bad |= *word != "-",
        }
    }
    if bad {
        log.unread(line, "not all are numbers");
    }
    log.clear_labels();
}

fn note(name: &str, value: f64, line: Line<'_>, log: &mut Log) {
    let metric = slug(name);
    let kind = MetricKind::Count;
    if name == "GHz" || name == "TSC" {
        log.push(&metric, super::number::scaled(value, 1e9), "Hz", None, kind, line);
        return;
    }
    if name.ends_with("MHz") {
        log.push(&metric, super::number::scaled(value, 1e6), "Hz", None, kind, line);
    } else if name.contains('%') {
        log.push(&metric, value, "%", None, kind, line);
    } else if name.ends_with("Watt") {
        log.push(&metric, value, "W", Some(record::Better::Lower), kind, line);
    } else if name.ends_with("_J") {
        log.push(&metric, value, "J", Some(record::Better::Lower), kind, line);
    } else if name.ends_with("Tmp") {
        log.push(&metric, value, "°C", None, kind, line);
    } else {
        log.count(&metric, value, line);
    }
}
