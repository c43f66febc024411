//! STREAM: bandwidth of memory.
//!
//! Source: McCalpin's `stream.c` 4.x to 5.10 and `stream.f`: a table of
//! functions with a rate and three times. Its MB are 10^6 bytes.

use super::failure::failed;
use super::number;
use super::sign::{hint, opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "stream",
    about: "McCalpin's STREAM, C and Fortran, every version, and hpcc's",
    signs: &[
        opens("STREAM version"),
        opens("STREAM Version"),
        part("Function ").when(|line| columns(line).is_some()),
        hint("Copy:").when(is_row),
    ],
    failures: &[
        failed("Failed Validation on array"),
        // hpcc's, which says so of runs without an error too.
        failed("Node(s) with error ").when(|line| !line.ends_with(" 0")),
    ],
    read,
};

/// The columns behind the name: rate in so many bytes a second, and metrics.
struct StreamColumns {
    rate: f64,
    times: Vec<String>,
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    // The columns of 5.10, for a table without its head.
    let mut table =
        StreamColumns { rate: 1e6, times: ["avg", "min", "max"].map(time_metric).into() };
    let mut run_begin = 0;
    // Below its head, a table of Markdown may have names without a colon.
    let mut headed = false;
    for line in text.lines() {
        if line.text.starts_with("STREAM version") || line.text.starts_with("STREAM Version") {
            log.clear_labels();
            run_begin = log.values.len();
            if let Some(version) = line.behind("Revision:") {
                log.version = version.word(0).map(str::to_owned);
            }
        } else if let Some(found) = columns(line.text) {
            table = found;
            headed = true;
            run_begin = log.values.len();
        } else if let Some(rest) = line
            .after("Number of Threads requested =")
            .or_else(|| line.after("Number of Threads counted ="))
            .or_else(|| line.after("Number of Threads ="))
        {
            if !line.is_open() {
                log.label("threads", rest.text);
            }
        } else if let Some(rest) = line.after("Array size =") {
            if !line.is_open() {
                log.label("elements", rest.word(0).unwrap_or_default().trim_end_matches(','));
            }
        } else if line.text.starts_with("Failed Validation") {
            log.values.truncate(run_begin);
            log.failed(line, "the run is not valid: its values are not taken");
        } else {
            row(line, &table, headed, log);
        }
    }
}

fn time_metric(name: &str) -> String {
    format!("time-{name}")
}

/// `Function    Best Rate MB/s  Avg time     Min time     Max time`
fn columns(line: &str) -> Option<StreamColumns> {
    let rest = line.strip_prefix("Function")?.trim();
    let (rate, times) = rest.cut("B/s")?;
    let rate =
        rate.trim_start_matches("Best ").strip_prefix("Rate")?.trim_start_matches([' ', '(']);
    let rate = number::bytes(&format!("{}B", rate.trim()), 1000.0)?;
    let words: ShortList<&str> = times.ascii_words().filter(|word| *word != ")").collect();
    let times = words
        .chunks(2)
        .map(|pair| (pair.len() == 2 && pair[1] == "time").then(|| time_metric(&slug(pair[0]))))
        .collect::<Option<Vec<String>>>()?;
    (times.len() == 3).then_some(StreamColumns { rate, times })
}

/// Whether the line is a row: a name, a rate and three times, which have at
/// least four decimals: four rates side by side have not.
fn is_row(line: &str) -> bool {
    let words: ShortList<&str> = line.ascii_words().skip(1).collect();
    let decimals = |word: &str| word.rsplit_once('.').map_or(0, |(_, decimals)| decimals.len());
    words.len() == 4
        && words.iter().all(|word| number::parse(word).is_some())
        && words[1..].iter().all(|word| decimals(word) >= 4)
}

fn row(line: TextLine<'_>, table: &StreamColumns, headed: bool, log: &mut Log) {
    let (name, rest) = match line.split(":") {
        Some(sides) => sides,
        None if headed => match line.split(" ") {
            Some(sides) => sides,
            None => return,
        },
        None => return,
    };
    let marks = ['*', '_', '`', ' '];
    let rest = line.part(rest.text.trim_start_matches(marks));
    let operation = name.trim_matches(marks).to_ascii_lowercase();
    if !["copy", "scale", "add", "triad"].contains(&operation.as_str()) {
        return;
    }
    let words: ShortList<&str> = rest.all_words();
    if words.len() != 4 {
        // hpcc and others print prose that begins so.
        if words.first().is_some_and(|word| number::parse(word).is_some()) {
            log.unread(line, "a row has a rate and three times");
        }
        return;
    }
    let decimals = |word: &str| rest.number(word).or_else(|| rest.decimals(word, 6));
    let values: Option<ShortList<f64>> = words.iter().map(|word| decimals(word)).collect();
    let Some(values) = values else { return log.unread(line, "not all are numbers") };
    log.rate("rate", number::scaled(values[0], table.rate), "B/s", line).label("op", &*operation);
    for (metric, seconds) in table.times.iter().zip(&values[1..]) {
        log.time(metric, *seconds, line).label("op", &*operation);
    }
}
