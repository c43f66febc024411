//! turbostat's tables.
//!
//! Source: Linux `tools/power/x86/turbostat/turbostat.c`: counters of threads,
//! then of cores, then of packages; a row leaves out at its end what an
//! earlier row has said for its core or package.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use record::{BetterDirection, LogMetric, MetricKind};

use super::failure::failed;
use super::names;
use super::number::scaled;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "turbostat",
    about: "turbostat: the tables of every interval",
    signs: &[
        opens("turbostat version"),
        part("Avg_MHz").within().anew(),
        part("Bzy_MHz").within().anew(),
        part("%Busy").within().when(|line| line.holds("GHz")),
        part("%c0").within().when(is_old_heading).anew(),
    ],
    failures: &[failed("turbostat: ").when(|line| line.holds("failed"))],
    read,
};

/// Reads any number of intervals.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut names: Option<Rc<[TurbostatColumn]>> = None;
    // Before 3.14 (2014) the row of all has blanks where its place would be.
    let mut places_end = None;
    for line in text.lines() {
        let is_row = line.text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        if let Some(rest) = line.after("turbostat version ") {
            log.version = rest.word(0).map(str::to_owned);
        } else if !is_row && is_old_heading(line.text) {
            names = (!line.is_open()).then(|| columns(line));
            places_end = line.text.place("CPU").map(|at| line.indent + at + "CPU".len());
        } else if !is_row && is_heading(line.text) {
            names = (!line.is_open()).then(|| columns(line));
            places_end = None;
        } else if let Some(names) = &names {
            let of_all = places_end.is_some_and(|end| line.indent >= end);
            let places = names.iter().take_while(|column| column.label.is_some()).count();
            row(if of_all { &names[places..] } else { names }, line, log);
        }
    }
}

/// `Package Core CPU Avg_MHz Busy% Bzy_MHz ...`
fn is_heading(line: &str) -> bool {
    line.holds("Bzy_MHz") || line.holds("Avg_MHz")
}

/// `pk cor CPU    %c0  GHz  TSC    %c1`
fn is_old_heading(line: &str) -> bool {
    let mut words = line.ascii_words().skip_while(|word| is_place(word));
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

/// A column, by its heading.
struct TurbostatColumn {
    /// Whether it says whose row it is, or when it was.
    is_place: bool,
    /// The label that it is.
    label: Option<&'static str>,
    /// What its values measure, and what to multiply them with; none of those that are no
    /// result.
    result: Option<(Arc<LogMetric>, f64)>,
}

impl TurbostatColumn {
    fn of(name: &str) -> Self {
        let (unit, factor, better) = if name == "GHz" || name == "TSC" {
            ("Hz", 1e9, None)
        } else if name.ends_with("MHz") {
            ("Hz", 1e6, None)
        } else if name.contains('%') {
            ("%", 1.0, None)
        } else if name.ends_with("Watt") {
            ("W", 1.0, Some(BetterDirection::Lower))
        } else if name.ends_with("_J") {
            ("J", 1.0, Some(BetterDirection::Lower))
        } else if name.ends_with("Tmp") {
            ("°C", 1.0, None)
        } else {
            ("count", 1.0, None)
        };
        let label = PLACES.iter().find(|(column, _)| *column == name).map(|(_, label)| *label);
        let is_result = label.is_none() && !["usec", "APIC", "X2APIC"].contains(&name);
        let metric = || names::metric(slug(name), unit, better, MetricKind::Count);
        Self {
            is_place: label.is_some() || name == "usec",
            label,
            result: is_result.then(|| (metric(), factor)),
        }
    }
}

thread_local! {
    /// The last heading: every interval has one, and few logs have two.
    static HEADING: RefCell<(String, Rc<[TurbostatColumn]>)> = RefCell::default();
}

/// The columns of a heading.
fn columns(heading: TextLine<'_>) -> Rc<[TurbostatColumn]> {
    HEADING.with_borrow_mut(|(text, columns)| {
        if text != heading.text {
            *columns = heading.words().map(TurbostatColumn::of).collect();
            heading.text.clone_into(text);
        }
        Rc::clone(columns)
    })
}

fn row(columns: &[TurbostatColumn], line: TextLine<'_>, log: &mut Log) {
    let words = line.all_words();
    let places = columns.iter().take_while(|column| column.is_place).count();
    let looks = words.len() > places
        && words.iter().all(|word| *word == "-" || word.starts_with(|c: char| c.is_ascii_digit()));
    if !looks {
        return;
    }
    if words.len() > columns.len() {
        return log.unread(line, "more numbers than columns");
    }
    for (column, word) in columns.iter().zip(&words) {
        if let Some(label) = column.label {
            log.label(label, if *word == "-" { "all" } else { word });
        }
    }
    // Without a place it is one summary row.
    let mut bad = false;
    for (column, word) in columns.iter().zip(&words) {
        let Some((metric, factor)) = &column.result else { continue };
        match line.number(word) {
            Some(value) => drop(log.push_of(metric, scaled(value, *factor), line)),
            None => bad |= *word != "-",
        }
    }
    if bad {
        log.unread(line, "not all are numbers");
    }
    log.clear_labels();
}
