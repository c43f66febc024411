//! pgbench: transactions a second and their latency.
//!
//! Source: PostgreSQL `src/bin/pgbench/pgbench.c`, 8.x to 17.

use record::BetterDirection;

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "pgbench",
    about: "pgbench of PostgreSQL 8 to 17, with --progress",
    signs: &[
        opens("pgbench ("),
        part("pgbench: error: "),
        part("pgbench: fatal: "),
        part("progress: ").when(|line| line.holds(" tps, lat ")),
        opens("transaction type:"),
        part("number of transactions actually processed:"),
        part("tps = "),
    ],
    failures: &[
        failed("pgbench: error: "),
        failed("pgbench: fatal: "),
        failed("pgbench:error:"),
        failed("client ").when(is_aborted),
        failed("Client ").when(is_aborted),
        failed("Run was aborted; the above results are incomplete"),
        failed("connection to database ").when(|line| line.holds("failed:")),
    ],
    read,
};

/// `client 3 aborted in command 4 of script 0; ...`
fn is_aborted(line: &str) -> bool {
    line.ascii_words().nth(2) == Some("aborted") || line.holds(" aborted in state ")
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        if let Some(rest) = line.after("pgbench (") {
            log.version = rest.word(0).map(|word| word.trim_end_matches(')').to_owned());
        } else if line.text.starts_with("transaction type:") {
            log.clear_labels();
        } else if let Some(rest) = line.after("progress: ") {
            progress(rest, line, log);
        } else if let Some(rest) = line.after("tps = ") {
            tps(rest, line, log);
        } else if let Some((name, value)) = line.split(" = ").or_else(|| line.split(": ")) {
            row(name, value, line, log);
        }
    }
}

fn row(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let Some(first) = value.word(0) else { return };
    let label = match name {
        "scaling factor" => "scale",
        "query mode" => "mode",
        "number of clients" => "clients",
        "number of threads" => "threads",
        _ => "",
    };
    if !label.is_empty() {
        if !line.is_open() {
            log.label(label, first);
        }
        return;
    }
    match name {
        "latency average" | "latency stddev" | "initial connection time" => {
            let metric = match name {
                "latency average" => "latency-avg",
                "latency stddev" => "latency-stddev",
                _ => "connection-time",
            };
            match (value.number(first), value.word(1)) {
                (Some(millis), Some("ms")) => drop(log.time(metric, millis / 1e3, line)),
                _ => log.unread(line, "no time in ms"),
            }
        }
        "number of transactions actually processed" => {
            // 1000/1000 has what was asked for behind it.
            let done = first.split('/').next().unwrap_or_default();
            match value
                .number(first)
                .or_else(|| number::parse(done).filter(|_| first.contains('/')))
            {
                Some(count) => {
                    log.count("transactions", count, line).better(Some(BetterDirection::Higher));
                }
                None => log.unread(line, "no number"),
            }
        }
        "number of failed transactions" => {
            if let Some(count) = value.number(first) {
                log.count("failed-transactions", count, line).better(Some(BetterDirection::Lower));
            }
        }
        _ => {}
    }
}

/// `896.967014 (without initial connection time)`, or twice, `(including
/// connections establishing)` and `(excluding ...`.
fn tps(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let value = rest.word(0).and_then(|word| rest.decimals(word, 6));
    let Some(value) = value else { return log.unread(line, "no number") };
    if line.is_open() && !line.text.ends_with(')') {
        return log.unread(line, "the line ends early");
    }
    let metric = if rest.text.holds("including") {
        "transactions-per-s-with-connecting"
    } else {
        "transactions-per-s"
    };
    log.rate(metric, value, "1/s", line);
}

/// `5.0 s, 1234.5 tps, lat 8.100 ms stddev 2.100`
fn progress(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    let [second, "s,", tps, "tps,", "lat", millis, "ms", ..] = words[..] else { return };
    if let Some(value) = number::parse(tps) {
        log.rate("interval-transactions-per-s", value, "1/s", line).label("second", second);
    }
    if let Some(value) = number::parse(millis) {
        log.time("interval-latency-avg", value / 1e3, line).label("second", second);
    }
}
