//! iperf 2 and iperf 3: throughput, retransmissions, jitter, loss.
//!
//! Source: iperf 2 `src/Reports.c`, iperf 3 `src/iperf_locale.c` and
//! `src/iperf_api.c`. Sizes are powers of 1024, bits come in thousands.

use record::{BetterDirection, MetricKind};

use super::failure::failed;
use super::json::{self, JsonNode};
use super::number::{self, scaled};
use super::sign::{hint, json as in_json, opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const IPERF3: Tool = Tool {
    name: "iperf3",
    about: "iperf 3: text of client and server, JSON",
    signs: &[
        in_json("\"iperf 3"),
        opens("Connecting to host "),
        opens("iperf3: error"),
        part(" connected to ").within().when(is_connection),
        part("[ ID]").when(|line| {
            line.holds("Interval")
                && (line.holds("Bitrate") || line.holds("Interval           Transfer"))
        }),
        hint("[SUM]").when(|line| line.ends_with("receiver") || line.ends_with("sender")),
    ],
    failures: &[failed("iperf3: error - "), failed("iperf3: interrupt - ")],
    read: read3,
};

pub(super) const IPERF2: Tool = Tool {
    name: "iperf2",
    about: "iperf 2: text of client and server; -y C",
    signs: &[
        opens("Client connecting to "),
        opens("Server listening on ").when(|line| line.holds(" port ")),
        part(" connected with ").within().when(is_connection),
        part("[ ID] Interval       Transfer     Bandwidth"),
        part("[ ID] Interval").when(|line| line.holds("Write/Err")),
        // A row begins with the time.
        part("20").when(is_csv),
    ],
    failures: &[
        failed("connect failed: "),
        failed("write failed: "),
        failed("read failed: "),
        failed("tcp connect failed: "),
        failed("bind failed: "),
        failed("error: "),
    ],
    read: read2,
};

/// `[  5][TX-C]   0.00-1.00   sec  1.10 GBytes  9.42 Gbits/sec   18    767 KBytes`
struct IntervalRow<'a> {
    /// The stream's number, or `SUM`.
    stream: &'a str,
    role: Option<&'a str>,
    /// Seconds from and to.
    from: f64,
    to: f64,
    bytes_per_s: f64,
    /// What stands behind the rate.
    rest: Vec<&'a str>,
}

impl<'a> IntervalRow<'a> {
    fn of(line: TextLine<'a>) -> Option<Result<Self, &'static str>> {
        let (stream, rest) = line.split("]")?;
        let stream = stream.strip_prefix('[')?.trim();
        if stream != "SUM" && !stream.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let stream = stream.rsplit('-').next().unwrap_or(stream);
        let (role, rest) = match rest.after("[").and_then(|rest| rest.split("]")) {
            Some((role, rest)) => (Some(role), rest),
            None => (None, rest),
        };
        let mut words: ShortList<&'a str> = rest.all_words();
        // Old versions pad: `0.0- 1.0 sec`.
        let (from, to) = match words.first()?.split_once('-') {
            Some((from, "")) if words.len() > 1 => (from, words.remove(1)),
            Some(found) => found,
            None => return None,
        };
        let (from, to) = (number::parse(from)?, number::parse(to)?);
        let [_, "sec", size, _, rate, unit, tail @ ..] = &words[..] else {
            return (words.get(1) == Some(&"sec")).then_some(Err("the line ends early"));
        };
        if line.may_be_cut(unit) || number::parse(size).is_none() {
            return Some(Err("no size and rate"));
        }
        let factor = number::bytes_per_s(unit, 1024.0);
        let (Some(rate), Some(factor)) = (number::parse(rate), factor) else {
            return Some(Err("no rate with a unit"));
        };
        let bytes_per_s = scaled(rate, factor);
        Some(Ok(Self { stream, role, from, to, bytes_per_s, rest: tail.to_vec() }))
    }

    /// Jitter, lost and all datagrams, percent lost.
    fn datagrams(&self) -> Option<(f64, f64, f64)> {
        let [jitter, "ms", tail @ ..] = &self.rest[..] else { return None };
        let joined = tail.concat();
        let (counts, _) = joined.split_once('(')?;
        let (lost, all) = counts.split_once('/')?;
        Some((number::parse(jitter)?, number::parse(lost)?, number::parse(all)?))
    }
}

fn seconds(from: f64, to: f64) -> String {
    format!("{}-{}", from.round(), to.round())
}

/// Reads one run of iperf 3.
pub(crate) fn read3(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"iperf 3") {
        let clean = json::unquoted(text);
        if let Some((document, _)) = json::parse(LogText::at(&clean, text.first_line()), |_| false)
        {
            return read_json(&document, log);
        }
    }
    // A table that a row of dashes and a heading announce holds the results.
    let (mut dashes, mut results, mut streams) = (false, false, 0);
    for line in text.lines() {
        if line.text.starts_with("Connecting to host") {
            log.clear_labels();
            (results, streams) = (false, 0);
        } else if line.text.holds(" connected to ") {
            streams += 1;
        } else if let Some(rest) = line.after("iperf 3") {
            log.version = Some(format!("3{}", rest.word(0).unwrap_or_default()));
        } else if let Some(rest) = line.after("CPU Utilization:") {
            utilisation(rest, line, log);
        } else if line.text.starts_with("- - -") {
            dashes = true;
            continue;
        } else if line.text.starts_with("[ ID]") {
            results = dashes;
        } else {
            match IntervalRow::of(line) {
                Some(Ok(row)) => row3(&row, results, streams == 1, line, log),
                Some(Err(why)) => log.unread(line, why),
                None => {}
            }
        }
        dashes = dashes && (line.text.is_empty() || line.text.starts_with("Test Complete"));
    }
}

fn row3(row: &IntervalRow<'_>, results: bool, single: bool, line: TextLine<'_>, log: &mut Log) {
    let end = match row.rest.last() {
        Some(&"sender") => Some("sender"),
        Some(&"receiver") => Some("receiver"),
        Some(&"(omitted)") => return,
        _ => None,
    };
    if line.is_open() && results && end.is_none() {
        return log.unread(line, "the line ends early");
    }
    let stream = if row.stream == "SUM" || single { "" } else { row.stream };
    log.label("stream", stream);
    log.label("role", row.role.unwrap_or_default().to_ascii_lowercase());
    if !results && end.is_none() {
        log.rate("interval-throughput", row.bytes_per_s, "B/s", line)
            .label("interval", seconds(row.from, row.to));
        return log.clear_labels();
    }
    log.label("end", end.unwrap_or_default());
    log.rate("throughput", row.bytes_per_s, "B/s", line);
    if let Some(datagrams) = row.datagrams() {
        lost(datagrams, line, log);
    } else if let [count, _] = row.rest[..]
        && let Some(count) = number::parse(count)
    {
        log.count("retransmits", count, line).better(Some(BetterDirection::Lower));
    }
    log.clear_labels();
}

fn lost((jitter_ms, lost, all): (f64, f64, f64), line: TextLine<'_>, log: &mut Log) {
    log.time("jitter", jitter_ms / 1e3, line);
    log.count("lost-datagrams", lost, line).better(Some(BetterDirection::Lower));
    log.count("datagrams", all, line);
}

/// `local/sender 18.3% (0.0%u/18.3%s), remote/receiver 17.0% (0.6%u/16.3%s)`
fn utilisation(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    for side in rest.text.split("), ") {
        let mut words = side.ascii_words();
        let (Some(who), Some(percent)) = (words.next(), words.next()) else { return };
        let Some(percent) = percent.strip_suffix('%').and_then(number::parse) else { return };
        let side = who.split('/').next().unwrap_or_default();
        log.push("cpu", percent, "%", None, MetricKind::Count, line).label("side", slug(side));
    }
}

fn read_json(document: &JsonNode<'_>, log: &mut Log) {
    let version =
        document.get("start").and_then(|start| start.get("version")).and_then(JsonNode::text);
    log.version = version.map(|version| version.trim_start_matches("iperf ").to_owned());
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early");
    }
    if let Some(error) = document.get("error") {
        log.failed_at(error.line, error.text().unwrap_or_default(), "iperf3 says so");
    }
    for interval in document.get("intervals").map_or(&[][..], JsonNode::items) {
        for (name, sum) in interval.members() {
            if !name.starts_with("sum") || !sum.whole {
                continue;
            }
            let number = |key: &str| sum.get(key).and_then(JsonNode::number);
            let rate =
                sum.get("bits_per_second").and_then(|node| Some((node.number()?, node.line)));
            let (Some(from), Some(to), Some((rate, line))) = (number("start"), number("end"), rate)
            else {
                continue;
            };
            log.label("direction", reverse(name));
            log.rate("interval-throughput", rate / 8.0, "B/s", line)
                .label("interval", seconds(from, to));
        }
    }
    log.clear_labels();
    let Some(end) = document.get("end") else { return };
    for (name, sum) in end.members() {
        let side = match name.trim_end_matches("_bidir_reverse") {
            "sum_sent" => "sender",
            "sum_received" => "receiver",
            "sum" => "",
            _ => continue,
        };
        log.label("end", side);
        log.label("direction", reverse(name));
        results(sum, log);
    }
    log.clear_labels();
    let streams = end.get("streams").map_or(&[][..], JsonNode::items);
    for (index, stream) in streams.iter().enumerate().filter(|_| streams.len() > 1) {
        for side in ["sender", "receiver", "udp"] {
            if let Some(node) = stream.get(side) {
                log.label("end", if side == "udp" { "" } else { side });
                log.label("stream", index.to_string());
                results(node, log);
            }
        }
    }
    log.clear_labels();
    for (key, side) in [("host_total", "local"), ("remote_total", "remote")] {
        let found = end.get("cpu_utilization_percent").and_then(|cpu| cpu.get(key));
        if let Some((percent, line)) = found.and_then(|node| Some((node.number()?, node.line))) {
            log.push("cpu", percent, "%", None, MetricKind::Count, line).label("side", side);
        }
    }
}

fn reverse(name: &str) -> &'static str {
    if name.ends_with("_bidir_reverse") { "reverse" } else { "" }
}

fn results(node: &JsonNode<'_>, log: &mut Log) {
    let field = |key: &str| node.get(key).and_then(|found| Some((found.number()?, found.line)));
    if let Some((bits, line)) = field("bits_per_second") {
        log.rate("throughput", bits / 8.0, "B/s", line);
    }
    if let Some((count, line)) = field("retransmits") {
        log.count("retransmits", count, line).better(Some(BetterDirection::Lower));
    }
    if let Some((millis, line)) = field("jitter_ms") {
        log.time("jitter", millis / 1e3, line);
        for (key, metric) in [("lost_packets", "lost-datagrams"), ("packets", "datagrams")] {
            if let Some((count, line)) = field(key) {
                let better = (key == "lost_packets").then_some(BetterDirection::Lower);
                log.count(metric, count, line).better(better);
            }
        }
    }
}

/// Reads any number of runs of iperf 2. Nothing tells a run's whole from its
/// first interval, so the seconds are a label.
pub(crate) fn read2(text: LogText<'_>, log: &mut Log) {
    let mut streams = 0;
    for line in text.lines() {
        if line.text.starts_with("Client connecting") || line.text.starts_with("Server listening") {
            streams = 0;
        } else if line.text.holds(" connected with ") {
            streams += 1;
        } else if let Some(fields) = csv(line.text) {
            row_csv(&fields, line, log);
        } else {
            match IntervalRow::of(line) {
                Some(Ok(row)) => row2(&row, streams == 1, line, log),
                Some(Err(why)) => log.unread(line, why),
                None => {}
            }
        }
    }
}

fn row2(row: &IntervalRow<'_>, single: bool, line: TextLine<'_>, log: &mut Log) {
    let datagrams = row.datagrams();
    if line.is_open() && !row.rest.is_empty() && datagrams.is_none() {
        return log.unread(line, "the line ends early");
    }
    log.label("interval", seconds(row.from, row.to));
    log.label("stream", if row.stream == "SUM" || single { "" } else { row.stream });
    // Only who receives knows jitter and loss.
    log.label("end", if datagrams.is_some() { "receiver" } else { "" });
    log.rate("throughput", row.bytes_per_s, "B/s", line);
    if let Some(datagrams) = datagrams {
        lost(datagrams, line, log);
    }
    log.clear_labels();
}

/// `20261120153538,127.0.0.1,54088,127.0.0.1,5302,1,0.0-1.0,1952317500,15618540000`
fn csv(line: &str) -> Option<ShortList<&str>> {
    let (stamp, comma) = line.as_bytes().first_chunk::<15>()?.split_at(14);
    if comma != b"," || !stamp.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fields: ShortList<&str> = fields(line, b',').collect();
    matches!(fields.len(), 9 | 14).then_some(fields)
}

/// `[  3] local 127.0.0.1 port 54088 connected with 127.0.0.1 port 5302`
fn is_connection(line: &str) -> bool {
    line.starts_with('[') && line.holds("] local ")
}

/// Whether a line is a row of `-y C`, by its exact shape.
fn is_csv(line: &str) -> bool {
    let is_address = |field: &str| field.parse::<core::net::IpAddr>().is_ok();
    let is_number =
        |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    csv(line).is_some_and(|fields| {
        is_address(fields[1])
            && is_address(fields[3])
            && is_number(fields[2])
            && is_number(fields[4])
            && is_number(fields[7])
            && is_number(fields[8])
            && fields[6].split_once('-').is_some_and(|(from, to)| {
                number::parse(from).is_some() && number::parse(to).is_some()
            })
    })
}

fn row_csv(fields: &[&str], line: TextLine<'_>, log: &mut Log) {
    let interval = fields[6].split_once('-');
    let interval = interval.and_then(|(from, to)| Some((number::parse(from)?, number::parse(to)?)));
    let (Some((from, to)), Some(bits)) = (interval, line.number(fields[8])) else {
        return log.unread(line, "no interval and rate");
    };
    log.label("interval", seconds(from, to));
    log.label("stream", fields[5]);
    log.rate("throughput", bits / 8.0, "B/s", line);
    log.clear_labels();
}
