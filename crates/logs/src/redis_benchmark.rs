//! redis-benchmark: text, -q and --csv.
//!
//! Source: redis `src/redis-benchmark.c`, 2.x to 7.x. Latencies are in ms.

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "redis-benchmark",
    about: "redis-benchmark: text, -q, --csv; every version",
    signs: &[
        opens("\"test\",\"rps\""),
        part("requests per second").within(),
        part("====== ").anew(),
        // Before 6.2 there was no heading.
        part("\"PING_INLINE\",").when(is_old_csv).anew(),
        part("\"SET\",").when(is_old_csv).anew(),
        part("\"GET\",").when(is_old_csv).anew(),
    ],
    failures: &[
        failed("Could not connect to Redis"),
        failed("Could not negotiate a TLS connection: "),
        // Of a cluster's node the address follows.
        failed("Error from server"),
        failed("Error writing to the server: "),
        failed("Error: "),
        failed("Unexpected error reply, exiting"),
    ],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut columns: Option<ShortList<&str>> = None;
    for line in text.lines() {
        if let Some(rest) = line.after("====== ") {
            log.clear_labels();
            columns = None;
            log.label("test", slug(rest.text.trim_end_matches(['=', ' '])));
        } else if line.text.starts_with("\"test\",\"rps\"") {
            columns = Some(cells(line));
        } else if let Some((test, rate)) = old_csv(line.text) {
            log.clear_labels();
            columns = None;
            log.rate("requests-per-s", rate, "1/s", line).label("test", slug(test));
        } else if let Some(names) = columns.as_ref().filter(|_| line.text.starts_with('"')) {
            csv(names, line, log);
        } else if let Some(rest) = line.after("throughput summary:") {
            rate(rest, line, log);
        } else if line.text.starts_with("avg") && line.text.holds("p50") {
            columns = Some(line.words().collect());
        } else if let Some(names) = columns.take().filter(|_| !line.text.starts_with('"')) {
            latencies(&names, line, log);
        } else if line.text.holds("requests per second") {
            one_line(line, log);
        } else if line.text.ends_with("parallel clients") && !line.is_open() {
            log.label("clients", line.word(0).unwrap_or_default());
        } else if let Some((percent, rest)) = line.split("<=").filter(|_| line.text.contains('%')) {
            percentile(percent, rest, line, log);
        }
    }
}

fn is_old_csv(line: &str) -> bool {
    old_csv(line).is_some()
}

/// `"SET","83402.84"`
fn old_csv(line: &str) -> Option<(&str, f64)> {
    let inner = line.strip_prefix('"')?.strip_suffix('"')?;
    // The newer form has more cells, and many lines.
    let comma = memchr::memchr(b',', inner.as_bytes())?;
    if memchr::memchr(b',', &inner.as_bytes()[comma + 1..]).is_some() {
        return None;
    }
    let (test, rate) = (inner[..comma].strip_suffix('"')?, inner[comma + 1..].strip_prefix('"')?);
    let decimals = rate.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    (decimals == 2).then_some((test, number::parse(rate)?))
}

fn cells(line: TextLine<'_>) -> ShortList<&str> {
    fields(line.text, b',').map(|cell| cell.trim_matches('"')).collect()
}

/// `"SET","38461.54","0.072",...`
fn csv(names: &[&str], line: TextLine<'_>, log: &mut Log) {
    let cells = cells(line);
    let quoted = line.text.ends_with('"');
    if cells.len() != names.len() || !quoted {
        return log.unread(line, "not as many cells as names");
    }
    log.clear_labels();
    log.label("test", slug(cells[0]));
    for (name, cell) in names.iter().zip(&cells).skip(1) {
        let Some(value) = number::parse(cell) else {
            log.unread(line, "not all are numbers");
            continue;
        };
        match name.strip_suffix("_latency_ms") {
            Some(statistic) => latency(statistic, value, line, log),
            None if *name == "rps" => drop(log.rate("requests-per-s", value, "1/s", line)),
            None => {}
        }
    }
    log.clear_labels();
}

fn latency(statistic: &str, millis: f64, line: TextLine<'_>, log: &mut Log) {
    let seconds = millis / 1e3;
    match statistic {
        "avg" => drop(log.time("latency-avg", seconds, line)),
        "min" => drop(log.quantile("latency-min", seconds, line)),
        "max" => drop(log.quantile("latency-max", seconds, line)),
        _ => {
            if let Some(percentile) = statistic.strip_prefix('p') {
                log.quantile("latency", seconds, line).label("percentile", percentile);
            }
        }
    }
}

/// The row below `avg min p50 p95 p99 max`.
fn latencies(names: &[&str], line: TextLine<'_>, log: &mut Log) {
    let values: Option<ShortList<f64>> = line.words().map(|word| line.decimals(word, 3)).collect();
    match values.filter(|values| values.len() == names.len()) {
        Some(values) => {
            for (name, value) in names.iter().zip(values) {
                latency(name, value, line, log);
            }
        }
        None => log.unread(line, "not as many numbers as names"),
    }
}

fn rate(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    match rest.first_number() {
        Some(value) => drop(log.rate("requests-per-s", value, "1/s", line)),
        None => log.unread(line, "no rate"),
    }
}

/// `98911.97 requests per second`, or -q's `SET: 86956.52 requests per second,
/// p50=0.031 msec`
fn one_line(line: TextLine<'_>, log: &mut Log) {
    let Some((head, tail)) = line.split("requests per second") else { return };
    let (test, value) =
        head.rsplit_once(": ").map_or((None, head), |(test, value)| (Some(test), value));
    let Some(value) = number::parse(value.trim()) else { return };
    if let Some(test) = test {
        log.clear_labels();
        log.label("test", slug(test));
    }
    log.rate("requests-per-s", value, "1/s", line);
    let median = tail.after(", p50=").and_then(|rest| Some((rest.word(0)?, rest.word(1)?)));
    if let Some((median, "msec")) = median
        && let Some(millis) = number::parse(median)
    {
        log.quantile("latency", millis / 1e3, line).label("percentile", "50");
    }
    if test.is_some() {
        log.clear_labels();
    }
}

/// `99.000% <= 1.103 milliseconds (cumulative count 98)`: the share of what was
/// at most so late. Newer versions list quantiles first, then shares at steps.
fn percentile(percent: &str, rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let Some(percent) = percent.strip_suffix('%').filter(|word| number::parse(word).is_some())
    else {
        return;
    };
    let (Some(millis), Some("milliseconds")) = (rest.first_number(), rest.word(1)) else {
        return log.unread(line, "no latency");
    };
    if line.is_open() && !line.text.ends_with(')') && line.text.contains('(') {
        return log.unread(line, "the line ends early");
    }
    log.quantile("latency-share", millis / 1e3, line).label("percent", percent);
}
