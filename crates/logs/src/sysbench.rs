//! sysbench: cpu, memory, threads, mutex, fileio, oltp.
//!
//! Source: sysbench 0.4 to 1.1 `src/sysbench.c`, `src/tests/*`. Its MB (and
//! 0.4's Mb) are 1024 x 1024 bytes.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "sysbench",
    about: "sysbench 0.4 to 1.1: cpu, memory, threads, mutex, fileio, oltp",
    signs: &[
        opens("sysbench ").when(|line| line.as_bytes().get(9).is_some_and(u8::is_ascii_digit)),
        opens("Running the test with following options:"),
        part("CPU speed:"),
        part("SQL statistics:"),
        part("OLTP test statistics:"),
        part("General statistics:"),
        part("Test execution summary:"),
        part("events/s (eps):"),
        part("total time taken by event execution:"),
        part("execution time (avg/stddev):"),
        part("s ] thds: ").within().when(|line| line.starts_with("[ ") && line.holds(" tps: ")),
    ],
    failures: &[failed("FATAL: "), failed("ALERT: "), failed("PANIC: ")],
    read,
};

const MIB: f64 = 1024.0 * 1024.0;

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut summary = false;
    for line in text.lines() {
        if let Some(rest) = line.after("sysbench ") {
            if rest.text.starts_with(|first: char| first.is_ascii_digit()) {
                log.clear_labels();
                summary = false;
                log.version = rest.word(0).map(|word| word.trim_end_matches(':').to_owned());
            }
        } else if line.text.starts_with("Running the test with following") {
            log.clear_labels();
            summary = false;
        } else if line.text.starts_with('[') {
            interval(line, log);
        } else if context(line, log) {
        } else if SUMMARIES.iter().any(|name| line.text.starts_with(name)) {
            summary = true;
        } else {
            result(line, summary, log);
        }
    }
}

/// What the blocks are called behind which `total time:` and so on stand.
const SUMMARIES: [&str; 8] = [
    "General statistics:",
    "Test execution summary:",
    "Latency (ms):",
    "response time:",
    "per-request statistics:",
    "SQL statistics:",
    "OLTP test statistics:",
    "Throughput:",
];

/// Lines that say what is run.
fn context(line: TextLine<'_>, log: &mut Log) -> bool {
    if line.is_open() {
        return false;
    }
    if let Some(rest) = line.after("Number of threads:") {
        log.label("threads", rest.text);
    } else if line.text.starts_with("Prime numbers limit") || line.text.starts_with("Doing CPU") {
        log.label("test", "cpu");
    } else if line.text.starts_with("Running memory speed test")
        || line.text.starts_with("Doing memory operations")
    {
        log.label("test", "memory");
    } else if line.text.starts_with("Doing thread subsystem") {
        log.label("test", "threads");
    } else if line.text.starts_with("Doing mutex performance") {
        log.label("test", "mutex");
    } else if line.text.starts_with("Doing OLTP test")
        || line.text.starts_with("Running mixed OLTP")
    {
        log.label("test", "oltp");
    } else if let Some(rest) = line.after("Doing ").filter(|rest| rest.text.ends_with(" test")) {
        log.label("test", "fileio");
        log.label("mode", slug(rest.text.trim_end_matches(" test")));
    } else if let Some(rest) = line.after("Block size ") {
        log.label("block-size", rest.text);
    } else if let Some(rest) =
        line.after("block size:").or_else(|| line.after("Memory block size:"))
    {
        log.label("block-size", rest.text);
    } else if let Some(rest) = line.after("operation:").or_else(|| line.after("Operations type:")) {
        log.label("op", rest.text);
    } else if let Some(rest) = line.after("scope:").or_else(|| line.after("Memory scope type:")) {
        log.label("scope", rest.text);
    } else {
        return false;
    }
    true
}

fn result(line: TextLine<'_>, summary: bool, log: &mut Log) {
    if transferred(line, log) {
        return;
    }
    let Some((name, value)) = line.split(":") else { return };
    let Some(first) = value.word(0) else { return };
    // 0.4 and 0.5 glue ms to latencies; with it they are whole.
    let (digits, suffix) = number::split_unit(first);
    let number = match suffix {
        "" => value.number(first),
        "ms" | "s" => number::parse(digits),
        _ => None,
    };
    let told = match name {
        "events per second" | "events/s (eps)" => {
            number.map(|v| log.rate("events-per-s", v, "1/s", line))
        }
        "total time" | "time elapsed" if summary => number.map(|v| log.time("total-time", v, line)),
        "total number of events" => {
            number.map(|v| log.count("events", v, line).better(Some(BetterDirection::Higher)))
        }
        "total time taken by event execution" => {
            number.map(|v| log.time("execution-time", v, line))
        }
        "min" | "max" if summary => {
            number.map(|v| log.quantile(format_args!("latency-{name}"), v / 1e3, line))
        }
        "avg" if summary => number.map(|v| log.time("latency-avg", v / 1e3, line)),
        "sum" if summary => number.map(|v| log.time("latency-sum", v / 1e3, line).better(None)),
        _ if summary && name.holds("percentile") => {
            let percentile = name
                .trim_start_matches("approx.")
                .trim()
                .trim_end_matches("percentile")
                .trim()
                .trim_end_matches("th");
            if number::parse(percentile).is_none() {
                return;
            }
            number.map(|v| log.quantile("latency", v / 1e3, line).label("percentile", percentile))
        }
        "reads/s" | "writes/s" | "fsyncs/s" => {
            number.map(|v| log.rate(name.replace("/s", "-per-s"), v, "1/s", line))
        }
        "read, MiB/s" => number.map(|v| log.rate("read-rate", number::scaled(v, MIB), "B/s", line)),
        "written, MiB/s" => {
            number.map(|v| log.rate("write-rate", number::scaled(v, MIB), "B/s", line))
        }
        "read" | "write" | "fsync" if first.starts_with("IOPS=") => {
            return iops(name, value, line, log);
        }
        "read" | "write" | "other" | "total" if summary && value.words().count() == 1 => {
            number.map(|v| log.count(format_args!("queries-{name}"), v, line))
        }
        "transactions"
        | "deadlocks"
        | "read/write requests"
        | "other operations"
        | "queries"
        | "ignored errors"
        | "reconnects" => return per_second(name, value, line, log),
        "Total operations" | "Operations performed" => return operations(value, line, log),
        _ => return,
    };
    if told.is_none() {
        log.unread(line, "no number");
    }
}

/// `1024.00 MiB transferred (3584.41 MiB/sec)`, 0.4's `Read 93.75Mb  Written
/// 62.5Mb  Total transferred 156.25Mb  (7.8079Mb/sec)` and `499.71 Requests/sec
/// executed`, and the memory of preparing files.
fn transferred(line: TextLine<'_>, log: &mut Log) -> bool {
    let text = line.text;
    if text.ends_with("Requests/sec executed") {
        match line.first_number() {
            Some(value) => drop(log.rate("requests-per-s", value, "1/s", line)),
            None => log.unread(line, "no number"),
        }
        return true;
    }
    let Some(at) = text.place("transferred ") else { return false };
    let Some((_, rest)) = text[at..].split_once('(') else { return false };
    let Some(inner) = rest.strip_suffix(')') else {
        log.unread(line, "the line ends early");
        return true;
    };
    let (value, unit) = match inner.split_once(' ') {
        Some((value, unit)) => (value, unit.trim()),
        None => number::split_unit(inner),
    };
    let factor = match unit.trim_end_matches("/sec").trim_end_matches("/s") {
        "MiB" | "MB" | "Mb" => MIB,
        "KiB" | "KB" | "Kb" => 1024.0,
        "GiB" | "GB" | "Gb" => 1024.0 * MIB,
        "B" | "b" => 1.0,
        _ => return false,
    };
    match number::parse(value) {
        Some(value) => drop(log.rate("transfer-rate", value * factor, "B/s", line)),
        None => log.unread(line, "no number"),
    }
    true
}

/// `1048576 (3670433.66 per second)`, `1048576 (1723456.64 ops/sec)`, 0.4's
/// fileio `6000 Read, 4000 Write, 12800 Other = 22800 Total`.
fn operations(value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    if value.text.holds(" Read") {
        let kinds = value.text.split([',', '=']);
        for kind in kinds {
            let mut words = kind.ascii_words();
            if let (Some(count), Some(kind)) = (words.next(), words.next())
                && !line.may_be_cut(kind)
                && let Some(count) = number::parse(count)
            {
                log.count(format_args!("operations-{}", slug(kind)), count, line);
            }
        }
        return;
    }
    let mut words = value.words();
    if let Some(count) = words.next().and_then(|word| value.number(word)) {
        log.count("operations", count, line).better(Some(BetterDirection::Higher));
    }
    // The rate is padded to eight places: `( 3721.85 per second)`.
    let rate = words
        .map(|word| word.trim_start_matches('('))
        .find(|word| !word.is_empty())
        .and_then(|word| value.number(word));
    match rate {
        Some(rate) => drop(log.rate("operations-per-s", rate, "1/s", line)),
        None => log.unread(line, "no rate in parentheses"),
    }
}

/// `10001  (166.45 per sec.)`
fn per_second(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let name = slug(&name.replace('/', "-"));
    let mut words = value.words();
    let count = words.next().and_then(|word| value.number(word));
    let rate =
        words.next().and_then(|word| word.strip_prefix('(')).and_then(|word| value.number(word));
    let (Some(count), Some(rate)) = (count, rate) else {
        return log.unread(line, "no count and no rate");
    };
    let bad = matches!(name.as_str(), "deadlocks" | "ignored-errors" | "reconnects");
    let better = Some(if bad { BetterDirection::Lower } else { BetterDirection::Higher });
    log.count(&name, count, line).better(better);
    log.rate(format_args!("{name}-per-s"), rate, "1/s", line).better(better);
}

/// 1.1's `read:  IOPS=1234.56 19.29 MiB/s (20.23 MB/s)`.
fn iops(name: &str, value: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let mut words = value.words();
    let rate = words.next().and_then(|word| value.number(word.strip_prefix("IOPS=")?));
    match rate {
        Some(rate) => drop(log.rate(format_args!("{name}s-per-s"), rate, "1/s", line)),
        None => return log.unread(line, "no rate"),
    }
    let (Some(bytes), Some("MiB/s")) = (words.next(), words.next()) else { return };
    if let Some(bytes) = value.number(bytes) {
        log.rate(format_args!("{name}-rate"), number::scaled(bytes, MIB), "B/s", line);
    }
}

/// `[ 10s ] thds: 4 tps: 1234.56 qps: 24689.1 (...) lat (ms,95%): 3.55 ...`;
/// 0.5 has commas between.
fn interval(line: TextLine<'_>, log: &mut Log) {
    let Some((second, rest)) = line.split("]") else { return };
    let second = second.trim_start_matches('[').trim().trim_end_matches('s').trim();
    if second.is_empty() || !second.bytes().all(|byte| byte.is_ascii_digit()) {
        return;
    }
    let words: ShortList<&str> = rest.all_words();
    for pair in words.windows(2) {
        let metric = match pair[0] {
            "tps:" => "interval-transactions-per-s",
            "qps:" => "interval-queries-per-s",
            "eps:" => "interval-events-per-s",
            _ => continue,
        };
        if let Some(value) = rest.number(pair[1].trim_end_matches(',')) {
            log.push(metric, value, "1/s", Some(BetterDirection::Higher), MetricKind::Rate, line)
                .label("second", second);
        }
    }
    // `lat (ms,95%): 3.55`
    if let Some((percentile, rest)) = rest.behind("lat (ms,").and_then(|rest| rest.split("%):"))
        && let Some(millis) = rest.word(0).and_then(|word| rest.decimals(word, 2))
    {
        log.quantile("interval-latency", millis / 1e3, line)
            .label("percentile", percentile)
            .label("second", second);
    }
}
