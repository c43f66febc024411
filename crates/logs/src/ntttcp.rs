//! NTTTCP, of Linux and of Windows.
//!
//! Source: ntttcp-for-linux `src/oscounter.c`, `src/logger.c`; Windows' NTttcp
//! prints tables of a heading, a row of `=` and a row of numbers.

use record::{BetterDirection, MetricKind, Name};

use super::failure::failed;
use super::names::NameText;
use super::number::{self, scaled};
use super::sign::{opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "ntttcp",
    about: "NTTTCP for Linux, and the totals of NTttcp of Windows; both ones' XML",
    signs: &[
        opens("<ntttcps"),
        opens("<ntttcpr"),
        opens("NTTTCP for Linux"),
        part("#####  Totals:  #####").within(),
        part("##### Totals:").within(),
        opens("#####  Totals:"),
    ],
    failures: &[failed("ERR : ").within()],
    read,
};

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut totals = false;
    // Inside the document, and inside what it says of one thread.
    let (mut xml, mut thread) = (false, false);
    // Headings of a Windows table, until its row.
    let mut heading: Option<&str> = None;
    for line in text.lines() {
        if line.text.starts_with("<ntttcp") {
            (xml, thread) = (true, false);
            let version = line.behind(" version=\"").and_then(|rest| rest.text.split('"').next());
            log.version = version.map(str::to_owned);
        } else if line.text.starts_with("</ntttcp") {
            xml = false;
        } else if xml && line.text.starts_with('<') {
            thread = line.text.starts_with("<thread ") || thread && line.text != "</thread>";
            if !thread {
                element(line, log);
            }
        } else if let Some(rest) = line.after("NTTTCP for Linux ") {
            log.version = rest.word(0).map(str::to_owned);
            totals = false;
        } else if line.text.holds("Totals:") && line.text.holds("#####") {
            totals = true;
        } else if totals && line.text.holds("INFO:") {
            if let Some(row) = line.behind("INFO:") {
                linux(row, line, log);
            }
        } else if totals
            && line.text.holds("Throughput(")
            && !line.text.starts_with(|c: char| c.is_ascii_digit())
        {
            heading = Some(line.text);
        } else if let Some(names) =
            heading.filter(|_| !line.text.is_empty() && !line.text.starts_with('='))
        {
            windows(names, line, log);
            heading = None;
        }
    }
}

/// `<throughput metric="mbps">9350.120</throughput>`: its mbps are 10^6 bits a
/// second.
fn element(line: TextLine<'_>, log: &mut Log) {
    let Some((head, rest)) = line.text[1..].split_once('>') else { return };
    let (name, metric) = head.split_once(" metric=\"").unwrap_or((head, ""));
    let Some((digits, end)) = rest.split_once("</") else { return };
    let metric = metric.trim_end_matches('"');
    let known = matches!(
        (name, metric),
        ("throughput", "mbps")
            | ("realtime", "s")
            | ("packets_retransmitted", "")
            | ("cpu", "%")
            | ("cycles", "cycles/byte")
            | ("tcp_average_rtt", "us")
    );
    if !known {
        return;
    }
    let Some(value) = number::parse(digits.trim()).filter(|_| end.trim_end_matches('>') == name)
    else {
        return log.unread(line, "no number");
    };
    match name {
        "throughput" => drop(log.rate("throughput", scaled(value, 125e3), "B/s", line)),
        "realtime" => drop(log.time("test-time", value, line).better(None)),
        "packets_retransmitted" => {
            log.count("retransmits", value, line).better(Some(BetterDirection::Lower));
        }
        "cpu" => drop(log.push("cpu-busy", value, "%", None, MetricKind::Count, line)),
        "tcp_average_rtt" => drop(log.time("round-trip", value / 1e6, line)),
        _ => cycles(value, line, log),
    }
}

fn cycles(value: f64, line: TextLine<'_>, log: &mut Log) {
    let better = Some(BetterDirection::Lower);
    log.push("cycles-per-byte", value, "count", better, MetricKind::Time, line);
}

/// `  throughput     :84.04Gbps`
fn linux(row: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let Some((name, value)) = row.split(":") else { return };
    let (digits, unit) = number::split_unit(value.word(0).unwrap_or_default());
    let cut = row.may_be_cut(value.text);
    let number = number::parse(digits).filter(|_| !cut);
    let percent = |log: &mut Log, metric: Name, value: f64| {
        log.push(metric, value, "%", None, MetricKind::Count, line);
    };
    let Some(value) = number else {
        if matches!(name, "throughput" | "test duration" | "total bytes") {
            log.unread(line, "no number");
        }
        return;
    };
    match name {
        "test duration" => drop(log.time("test-time", value, line).better(None)),
        "total bytes" => drop(log.push("bytes", value, "B", None, MetricKind::Count, line)),
        "throughput" => match number::bytes_per_s(unit, 1000.0) {
            Some(factor) => drop(log.rate("throughput", scaled(value, factor), "B/s", line)),
            None => log.unread(line, "no unit of a rate"),
        },
        "retrans segs" => {
            log.count("retransmits", value, line).better(Some(BetterDirection::Lower));
        }
        "cycles/byte" => cycles(value, line, log),
        "average rtt" if unit == "us" => drop(log.time("round-trip", value / 1e6, line)),
        "user" | "system" | "idle" | "iowait" | "softirq" if unit == "%" => {
            percent(log, format_args!("cpu-{name}").named(), value);
        }
        "cpu busy (all)" if unit == "%" => percent(log, "cpu-busy".named(), value),
        _ => {}
    }
}

/// A row below `Bytes(MEG)    realtime(s) Avg Frame Size Throughput(MB/s)`, of
/// which the last number is the throughput, or below `Throughput(Buffers/s)
/// Cycles/Byte       Buffers`.
fn windows(heading: &str, line: TextLine<'_>, log: &mut Log) {
    let values: Option<ShortList<f64>> = line.words().map(|word| line.decimals(word, 3)).collect();
    let Some(values) = values else { return log.unread(line, "not all are numbers") };
    match (heading, &values[..]) {
        (heading, [_, _, _, rate]) if heading.ends_with("Throughput(MB/s)") => {
            log.rate("throughput", rate * 1024.0 * 1024.0, "B/s", line);
        }
        (heading, [buffers, cycles, _]) if heading.starts_with("Throughput(Buffers/s)") => {
            log.rate("buffers-per-s", *buffers, "1/s", line);
            self::cycles(*cycles, line, log);
        }
        _ => log.unread(line, "not the columns of its heading"),
    }
}
