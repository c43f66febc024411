//! netperf: the classic banners, and omni's tables, keys and CSV.
//!
//! Source: netperf 2.x `src/nettest_bsd.c`, `src/nettest_omni.c` and its
//! manual. Its K, M and G are powers of 1024 for bytes, of 1000 for bits.

use record::MetricKind;

use super::failure::failed;
use super::number;
use super::sign::{hint, opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "netperf",
    about: "netperf 2: stream, request/response, UDP; omni's tables, key=value, CSV; -P 0",
    signs: &[
        opens("TEST").within().when(|line| test_name(line).is_some()),
        opens("MIGRATED "),
        part("Interim result:"),
        part("establish control: are you sure there is a netserver"),
        part("Socket Socket  Message  Elapsed"),
        part("THROUGHPUT="),
        part("Throughput,Throughput Units").within(),
        hint("Throughput Throughput"),
    ],
    failures: &[
        failed("establish control: are you sure there is a netserver"),
        failed("establish_control: ").when(says_error),
        failed("netperf: ").when(says_error),
        failed("send_").when(says_error),
        failed("recv_").when(says_error),
        failed("udp_send: ").when(says_error),
        failed("could not create data socket"),
        failed("Could not open requested fill file: "),
        failed("shutdown_control: ").when(says_error),
    ],
    read,
};

/// Whether a function's message is of an error.
fn says_error(line: &str) -> bool {
    ["error", "errno", "failed", "refused"].iter().any(|word| line.contains(word))
}

/// What the rows below the last heading are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Not known: nothing, or `-P 0`.
    Bare,
    Stream,
    Udp,
    UdpReceived,
    RequestResponse,
    RoundTrip,
    Done,
}

struct NetperfParser<'a> {
    rows: Rows,
    /// Bytes a second of the throughput's unit.
    unit: Option<f64>,
    /// Lines of omni's heading, or the names of its CSV.
    heading: Vec<TextLine<'a>>,
    csv: Option<Vec<&'a str>>,
    /// A throughput whose unit comes later.
    throughput: Option<(f64, TextLine<'a>)>,
    units: Option<&'a str>,
    /// Numbers of a row that means what the next row says (`-P 0`).
    bare: Option<TextLine<'a>>,
}

/// Whether a line is one of `-P 0`, by its exact columns: a stream's
/// `%5d  %5d %6d    %-6.2f   %7.2f`, or the second row of UDP and of request and
/// response, which name the same socket twice.
pub(super) fn is_bare(above: Option<TextLine<'_>>, line: TextLine<'_>) -> bool {
    is_stream(line) || above.is_some_and(|above| are_two_rows(above, line))
}

fn is_stream(line: TextLine<'_>) -> bool {
    let words: ShortList<&str> = line.all_words();
    let [receive, send, message, seconds, rate] = words[..] else { return false };
    let (Ok(seconds), Ok(rate)) = (seconds.parse::<f64>(), rate.parse::<f64>()) else {
        return false;
    };
    let (Ok(receive), Ok(send), Ok(message)) =
        (receive.parse::<u32>(), send.parse::<u32>(), message.parse::<u32>())
    else {
        return false;
    };
    let row = format!("{receive:5}  {send:5} {message:6}    {seconds:<6.2}   {rate:7.2}");
    receive >= 1024 && send >= 1024 && message > 0 && row.trim() == line.text
}

fn are_two_rows(above: TextLine<'_>, below: TextLine<'_>) -> bool {
    let columns = |line: TextLine<'_>| -> Option<(usize, u32)> {
        let socket = line.word(0)?.parse().ok()?;
        let numbers = line.words().all(|word| number::parse(word).is_some());
        numbers.then(|| (line.words().count(), socket))
    };
    let two_decimals = |word: Option<&str>| {
        word.and_then(|word| word.split_once('.')).is_some_and(|(_, d)| d.len() == 2)
    };
    let (Some((above_columns, socket)), Some((below_columns, again))) =
        (columns(above), columns(below))
    else {
        return false;
    };
    if socket < 1024 || socket != again {
        return false;
    }
    match (above_columns, below_columns) {
        // Sockets, sizes, seconds and transactions; the other side's sockets.
        (6, 2) => {
            two_decimals(above.word(4))
                && two_decimals(above.word(5))
                && above.words().take(2).eq(below.words())
        }
        // Socket, size, seconds, messages, errors and rate; what was received.
        (6, 4) => {
            two_decimals(above.word(2))
                && two_decimals(above.word(5))
                && above.word(2) == below.word(1)
                && two_decimals(below.word(3))
        }
        _ => false,
    }
}

/// Reads any number of runs.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let fresh = || NetperfParser {
        rows: Rows::Bare,
        unit: None,
        heading: Vec::new(),
        csv: None,
        throughput: None,
        units: None,
        bare: None,
    };
    let mut state = fresh();
    for line in text.lines() {
        let test = test_name(line.text).or_else(|| line.text.strip_prefix("MIGRATED "));
        if let Some(name) = test {
            missing_unit(&mut state, log);
            state = fresh();
            log.clear_labels();
            log.label("test", slug(name));
            continue;
        }
        if let Some(rest) = line.after("Interim result: ") {
            interim(rest, line, log);
            continue;
        }
        if heading(line, &mut state) || keyed(line, &mut state, log) || csv(line, &mut state, log) {
            continue;
        }
        let words: ShortList<&str> = line.all_words();
        let first_is_number = words.first().is_some_and(|word| number::parse(word).is_some());
        if words.is_empty() || !first_is_number {
            if state.rows == Rows::Bare && !words.is_empty() {
                state.heading.push(line);
                if state.heading.len() > 8 {
                    state.heading.remove(0);
                }
            }
            continue;
        }
        row(line, &words, &mut state, log);
    }
    missing_unit(&mut state, log);
}

/// `TCP STREAM` of `MIGRATED TCP STREAM TEST from 0.0.0.0 ...`
fn test_name(line: &str) -> Option<&str> {
    // Most lines say so with their first byte.
    line.starts_with(|first: char| first.is_ascii_uppercase() || first == '"' || first == '\'')
        .then_some(())?;
    let at = line.place(" TEST from ").or_else(|| line.place(" TEST to "))?;
    let name = line[..at].trim_start_matches(['"', '\'']);
    let name = name.strip_prefix("MIGRATED ").unwrap_or(name);
    let upper = name.starts_with(|first: char| first.is_ascii_uppercase());
    (upper && name.len() < 60).then_some(name)
}

/// Notes what a line of a classic heading says of the rows below it.
fn heading<'a>(line: TextLine<'a>, state: &mut NetperfParser<'a>) -> bool {
    let text = line.text;
    if text.holds("RoundTrip") && text.holds("Trans") {
        state.rows = Rows::RoundTrip;
        return true;
    }
    let classic = text.starts_with("Recv   Send")
        || text.starts_with("Recv Send")
        || text.starts_with("Local /Remote")
        || text.starts_with("Socket")
        || text.starts_with("Size ")
        || text.starts_with("Send   Recv ")
        || text.starts_with("Send Recv")
        || text.starts_with("bytes ")
        || text.starts_with("Recv  Send");
    if !classic {
        return false;
    }
    if text.holds("Okay") {
        state.rows = Rows::Udp;
    } else if text.holds("Trans.") {
        state.rows = Rows::RequestResponse;
    } else if text.holds("Throughput") && state.rows != Rows::Udp {
        state.rows = Rows::Stream;
    }
    if text.starts_with("bytes ") {
        state.unit = unit(text);
        if text.holds("per sec") {
            state.rows = Rows::RequestResponse;
        }
    }
    state.heading.clear();
    true
}

/// The unit in a heading's last line: `10^6bits/sec`, `MBytes  /s`, `KBytes/sec`.
fn unit(line: &str) -> Option<f64> {
    let words: ShortList<&str> = line.all_words();
    words.iter().enumerate().find_map(|(at, word)| {
        let joined = match words.get(at + 1) {
            Some(&"/s" | &"/sec") => format!("{word}/s"),
            _ => (*word).to_owned(),
        };
        bytes_per_s(&joined)
    })
}

fn bytes_per_s(unit: &str) -> Option<f64> {
    let size = unit.strip_suffix("/sec").or_else(|| unit.strip_suffix("/s"))?;
    Some(match size {
        "10^3bits" => 125.0,
        "10^6bits" => 125e3,
        "10^9bits" => 125e6,
        "10^12bits" => 125e9,
        "Bytes" => 1.0,
        "KBytes" => 1024.0,
        "MBytes" => 1024.0 * 1024.0,
        "GBytes" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// `Interim result: 9412.34 10^6bits/s over 1.000 seconds ending at 1234.5`
fn interim(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let mut words = rest.words();
    let (Some(value), Some(unit)) = (words.next(), words.next()) else { return };
    match (rest.number(value), bytes_per_s(unit)) {
        _ if rest.may_be_cut(unit) => {}
        (Some(value), Some(factor)) => {
            log.rate("interim-throughput", number::scaled(value, factor), "B/s", line);
        }
        (Some(value), None) if unit.starts_with("Trans/s") => {
            log.rate("interim-transactions-per-s", value, "1/s", line);
        }
        _ => log.unread(line, "no rate"),
    }
}

fn row<'a>(line: TextLine<'a>, words: &[&'a str], state: &mut NetperfParser<'a>, log: &mut Log) {
    if state.rows == Rows::Bare && omni_table(line, words, state, log) {
        return;
    }
    let values: Option<ShortList<f64>> = words.iter().map(|word| line.decimals(word, 2)).collect();
    let Some(values) = values else {
        if matches!(
            state.rows,
            Rows::Stream | Rows::Udp | Rows::UdpReceived | Rows::RequestResponse
        ) && words.len() >= 4
        {
            log.unread(line, "not all are numbers");
        }
        return;
    };
    match (state.rows, values.len()) {
        (Rows::Stream, 5 | 7 | 9) => {
            log.label("message-size", words[2]);
            throughput(values[4], None, line, state, log);
            utilisation(&values[5..], "kb", line, log);
            state.rows = Rows::Done;
        }
        (Rows::Udp, 6 | 8) => {
            log.label("message-size", words[1]);
            udp(&values[3..], "send", line, state, log);
            state.rows = Rows::UdpReceived;
        }
        (Rows::UdpReceived, 4 | 6) => {
            let received = [&values[2..3], &[f64::NAN], &values[3..]].concat();
            udp(&received, "receive", line, state, log);
            state.rows = Rows::Done;
        }
        (Rows::RequestResponse, 6 | 8 | 10) => {
            log.label("request-size", words[2]);
            log.label("response-size", words[3]);
            log.rate("transactions-per-s", values[5], "1/s", line);
            utilisation(&values[6..], "transaction", line, log);
            state.rows = Rows::Done;
        }
        (Rows::RoundTrip, 8) => {
            log.time("round-trip", values[4] / 1e6, line);
            state.rows = Rows::Done;
        }
        (Rows::Bare, _) => bare(line, &values, state, log),
        (Rows::Stream | Rows::Udp | Rows::UdpReceived | Rows::RequestResponse, _) => {
            log.unread(line, "not the columns of this test");
            state.rows = Rows::Done;
        }
        _ => {}
    }
}

fn throughput(
    value: f64,
    direction: Option<&str>,
    line: TextLine<'_>,
    state: &NetperfParser<'_>,
    log: &mut Log,
) {
    // Without a heading it is the default.
    let factor = state.unit.unwrap_or(125e3);
    let noted = log.rate("throughput", number::scaled(value, factor), "B/s", line);
    if let Some(direction) = direction {
        noted.label("direction", direction);
    }
}

/// Messages, errors (not a number where the row has none), throughput, and
/// perhaps CPU and service demand.
fn udp(
    values: &[f64],
    direction: &str,
    line: TextLine<'_>,
    state: &NetperfParser<'_>,
    log: &mut Log,
) {
    log.count("messages", values[0], line).label("direction", direction);
    log.count("errors", values[1], line)
        .label("direction", direction)
        .better(Some(record::BetterDirection::Lower));
    throughput(values[2], Some(direction), line, state, log);
    if let [percent, demand] = values[3..] {
        let side = if direction == "send" { "local" } else { "remote" };
        cpu(percent, side, line, log);
        demand_of(demand, "kb", side, line, log);
    }
}

/// CPU of both sides, then service demand of both sides; negative: not
/// measured.
fn utilisation(values: &[f64], per: &str, line: TextLine<'_>, log: &mut Log) {
    let [local, remote, local_demand, remote_demand] = values[..] else { return };
    cpu(local, "local", line, log);
    cpu(remote, "remote", line, log);
    demand_of(local_demand, per, "local", line, log);
    demand_of(remote_demand, per, "remote", line, log);
}

fn cpu(percent: f64, side: &str, line: TextLine<'_>, log: &mut Log) {
    if percent >= 0.0 {
        log.push("cpu", percent, "%", None, MetricKind::Count, line).label("side", side);
    }
}

fn demand_of(micros: f64, per: &str, side: &str, line: TextLine<'_>, log: &mut Log) {
    if micros >= 0.0 {
        log.time(format_args!("cpu-time-per-{per}"), micros / 1e6, line).label("side", side);
    }
}

/// A row without a heading (`-P 0`): a stream has five numbers; six are UDP or
/// request and response, which the next row tells: 4 or 2 numbers.
fn bare<'a>(line: TextLine<'a>, values: &[f64], state: &mut NetperfParser<'a>, log: &mut Log) {
    if line.is_open() {
        return log.unread(line, "the line may end early");
    }
    let before = state.bare.take();
    match (before, values.len()) {
        (None, 5 | 9) => {
            log.label("message-size", line.word(2).unwrap_or_default());
            throughput(values[4], None, line, state, log);
            utilisation(&values[5..], "kb", line, log);
        }
        (None, 6 | 8 | 10) => state.bare = Some(line),
        (Some(first), 2 | 4 | 6) => {
            log.label("message-size", "");
            state.rows = if values.len() == 2 { Rows::RequestResponse } else { Rows::Udp };
            for line in [first, line] {
                let words: ShortList<&str> = line.all_words();
                if values.len() > 2 || line.number == first.number {
                    row(line, &words, state, log);
                }
            }
            state.rows = Rows::Bare;
        }
        _ => {}
    }
}

/// `THROUGHPUT=9413.45`
fn keyed<'a>(line: TextLine<'a>, state: &mut NetperfParser<'a>, log: &mut Log) -> bool {
    let Some((key, value)) = line.split("=") else { return false };
    let is_key = key.len() > 2
        && key
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_key {
        return false;
    }
    if key == "THROUGHPUT" {
        missing_unit(state, log);
    }
    named(&key.to_ascii_lowercase().replace('_', "-"), value, line, state, log);
    true
}

/// A heading `Throughput,Throughput Units,...` and the row below it.
fn csv<'a>(line: TextLine<'a>, state: &mut NetperfParser<'a>, log: &mut Log) -> bool {
    let text = in_a_string(line.text);
    if fields(text, b',').any(|name| name == "Throughput" || name == "Throughput Units") {
        state.csv = Some(fields(text, b',').collect());
        return true;
    }
    let Some(names) = state.csv.clone() else { return false };
    let cells: ShortList<&'a str> = fields(text, b',').collect();
    if cells.len() != names.len() {
        if cells.len() > 1 && number::parse(cells[0]).is_some() {
            log.unread(line, "not as many cells as names");
        }
        return false;
    }
    for (name, cell) in names.iter().zip(cells) {
        named(&slug(name), line.part(cell), line, state, log);
    }
    missing_unit(state, log);
    true
}

/// What a line says that is a string of a JSON array: `"941.2,10^6bits/s\n",`.
fn in_a_string(line: &str) -> &str {
    let Some(inner) = line.strip_prefix('"') else { return line };
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    let Some(inner) = inner.strip_suffix('"') else { return line };
    let inner = inner.strip_suffix("\\n").unwrap_or(inner);
    inner.strip_suffix("\\r").unwrap_or(inner)
}

/// Omni's table: headings of several lines, each column beginning where its
/// value does.
fn omni_table<'a>(
    line: TextLine<'a>,
    words: &[&'a str],
    state: &mut NetperfParser<'a>,
    log: &mut Log,
) -> bool {
    let heading = std::mem::take(&mut state.heading);
    if !heading.iter().any(|line| line.text.holds("Throughput")) {
        return false;
    }
    let column = |line: &TextLine<'_>, word: &str| {
        line.indent + word.as_ptr() as usize - line.text.as_ptr() as usize
    };
    let starts: Vec<usize> = words.iter().map(|word| column(&line, word)).collect();
    let mut names = vec![String::new(); starts.len()];
    for above in &heading {
        for word in above.words() {
            let at = column(above, word);
            let Some(index) = starts.iter().rposition(|start| *start <= at) else { continue };
            names[index].push(' ');
            names[index].push_str(word);
        }
    }
    for (name, word) in names.iter().zip(words) {
        named(&slug(name), line.part(word), line, state, log);
    }
    missing_unit(state, log);
    state.rows = Rows::Done;
    true
}

/// One of omni's outputs, by its name in any of its three spellings.
fn named<'a>(
    name: &str,
    value: TextLine<'a>,
    line: TextLine<'a>,
    state: &mut NetperfParser<'a>,
    log: &mut Log,
) {
    if name == "throughput-units" {
        if !value.may_be_cut(value.text) {
            state.units = Some(value.text);
        }
        resolve(state, log);
        return;
    }
    let Some(number) = value.number(value.text) else { return };
    let micros = number / 1e6;
    let percentile = match name {
        "p50-latency" | "50th-percentile-latency-microseconds" => Some("50"),
        "p90-latency" | "90th-percentile-latency-microseconds" => Some("90"),
        "p99-latency" | "99th-percentile-latency-microseconds" => Some("99"),
        _ => None,
    };
    if let Some(percentile) = percentile {
        log.quantile("latency", micros, line).label("percentile", percentile);
        return;
    }
    match name {
        "throughput" => {
            state.throughput = Some((number, line));
            if state.csv.is_some() || !state.heading.is_empty() {
                resolve(state, log);
            }
        }
        "transaction-rate" | "transaction-rate-tran/s" => {
            log.rate("transactions-per-s", number, "1/s", line);
        }
        "elapsed-time" | "elapsed-time-sec" => {
            log.time("elapsed-time", number, line).better(None);
        }
        "mean-latency" | "mean-latency-microseconds" => {
            log.time("latency-mean", micros, line);
        }
        "min-latency" | "minimum-latency-microseconds" => {
            log.quantile("latency-min", micros, line);
        }
        "max-latency" | "maximum-latency-microseconds" => {
            log.quantile("latency-max", micros, line);
        }
        "stddev-latency" | "stddev-latency-microseconds" => {
            log.time("latency-stddev", micros, line);
        }
        "rt-latency" | "round-trip-latency-usec/tran" => drop(log.time("round-trip", micros, line)),
        "local-cpu-util" | "local-cpu-util-%" => cpu(number, "local", line, log),
        "remote-cpu-util" | "remote-cpu-util-%" => cpu(number, "remote", line, log),
        "local-transport-retrans" | "local-transport-retransmissions"
            // Below zero: not known.
            if number >= 0.0 =>
        {
            log.count("retransmissions", number, line).label("side", "local");
        }
        _ => {}
    }
}

/// Notes the throughput once its unit is known.
fn resolve(state: &mut NetperfParser<'_>, log: &mut Log) {
    let (Some((value, line)), Some(units)) = (state.throughput, state.units) else { return };
    match bytes_per_s(units) {
        Some(factor) => drop(log.rate("throughput", number::scaled(value, factor), "B/s", line)),
        None if units.starts_with("Trans/s") => {
            log.rate("transactions-per-s", value, "1/s", line);
        }
        None => log.unread(line, "no unit that netperf has"),
    }
    state.throughput = None;
    state.units = None;
}

fn missing_unit(state: &mut NetperfParser<'_>, log: &mut Log) {
    if let Some((_, line)) = state.throughput.take() {
        log.unread(line, "the throughput has no unit");
    }
    state.units = None;
}
