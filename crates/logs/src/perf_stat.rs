//! `perf stat` as text, CSV and JSON, and `perf kvm stat`.
//!
//! Source: Linux `tools/perf/util/stat-display.c`, `tools/perf/builtin-kvm.c`,
//! perf-stat(1).

use record::{BetterDirection, MetricKind, Name};

use super::failure::failed;
use super::json::{self, JsonNode};
use super::names;
use super::number::{self, scaled};
use super::sign::{Signature, hint, opens, part};
use super::text::fields;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "perf-stat",
    about: "perf stat: text, -r, -a -A, -I, -x CSV, -j",
    signs: &[
        opens("Performance counter stats for"),
        opens("#           time             counts unit events"),
        part("seconds time elapsed").within(),
        part(" msec task-clock").within().when(|line| line.contains('#')),
        part(" task-clock (msec)").within().when(|line| line.contains('#')),
        // Modifiers may follow.
        of_row(",task-clock"),
        of_row(",cpu-clock"),
        of_row(",context-switches"),
        of_row(",page-faults"),
        of_row(",cycles"),
        of_row(",cpu-cycles"),
        of_row(",instructions"),
        of_row(",cache-misses"),
        of_row(",branch-misses"),
        of_row(",cpu_core/"),
        of_row(";task-clock"),
        of_row(";cycles"),
        of_row(";instructions"),
        part("{\"counter-value\"").within().anew(),
        part("\"counter-value\" :").within(),
        hint("context-switches").within().when(|line| line.holds(" #")),
        part("Workload failed: "),
    ],
    failures: &[failed("Workload failed: "), failed("Error:").when(|line| line == "Error:")],
    read,
};

/// What a row of CSV has, which says all of itself.
const fn of_row(needle: &'static str) -> Signature {
    part(needle).within().when(is_csv).anew()
}

pub(super) const KVM: Tool = Tool {
    name: "perf-kvm-stat",
    about: "perf kvm stat report and live: exits, their share and times",
    signs: &[
        opens("Analyze events for "),
        part("VM-EXIT    Samples"),
        part("VM-EXIT").when(is_exit_heading),
        part("Initializing perf session failed"),
        part("No trace sample to read. Did you call 'perf kvm record'?"),
        part("Failed to add kvm:"),
    ],
    failures: &[
        failed("failed to open "),
        failed("incompatible file format"),
        failed("Initializing perf session failed"),
        failed("No trace sample to read."),
        failed("Invalid vcpu:"),
        failed("Unknown compare key:"),
        failed("Unknown report event:"),
        failed("Unable to setup the kvm tracepoints"),
        failed("Couldn't create the events: "),
        failed("CPU ").when(|line| line.ends_with(" is not supported.")),
        failed("timerfd_create failed"),
        failed("timerfd_settime failed: "),
        failed("Error reading timer fd"),
        failed("Error parsing process id string"),
        failed("Error parsing ").when(|line| line.holds(" tracepoint: ")),
        failed("Failed to ").when(is_kvm_failure),
    ],
    read: read_kvm,
};

fn is_kvm_failure(line: &str) -> bool {
    let what = line.strip_prefix("Failed to ").unwrap_or_default();
    let begins = [
        "look up CPU type",
        "mmap the events: ",
        "parse sample",
        "enqueue sample: ",
        "read timer fd: ",
        "get current flags for fd ",
        "set non-block option on fd ",
    ];
    begins.iter().any(|begin| what.starts_with(begin))
        || (what.starts_with("add ") && what.ends_with(" tracepoint to the list"))
}

/// Reads any number of reports.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut interval = false;
    for line in text.lines() {
        if line.text.starts_with("Performance counter stats for") {
            interval = false;
        } else if line.text.starts_with('#') && line.text.holds("counts unit events") {
            interval = true;
        } else if line.text.starts_with('{') {
            interval = false;
            log.clear_labels();
            of_json(line, log);
        } else if let Some(fields) = csv(line.text) {
            interval = false;
            log.clear_labels();
            of_csv(&fields, line, log);
        } else {
            row(line, interval, log);
        }
    }
}

/// An event as a metric's name: `kvm:kvm_exit`, `cycles:u`, `cpu/event=0x3c/`.
fn event_name(event: &str) -> Name {
    // Most are names as they stand.
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':');
    if event.bytes().all(plain) {
        return names::name(event.trim_matches('-'));
    }
    let allowed = |char: char| char.is_ascii_alphanumeric() || "-._/:%+=,".contains(char);
    let name: String = event
        .chars()
        .map(|char| if allowed(char) { char.to_ascii_lowercase() } else { '-' })
        .collect();
    names::name(name.trim_matches('-'))
}

fn is_event(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || "_{<".contains(first))
        && !word.starts_with('<')
}

/// An event's count, in the unit that perf says.
fn note(log: &mut Log, event: &str, value: f64, unit: &str, line: TextLine<'_>) {
    let name = event_name(event);
    let (value, base, kind) = match unit {
        "msec" => (value / 1e3, "s", MetricKind::Time),
        "ns" => (value / 1e9, "s", MetricKind::Time),
        // Since 6.13 the clocks have no unit and are in ns; in 2.6.31 they had
        // decimals, and were in ms.
        "" if is_clock(event) => {
            (if value.fract() == 0.0 { value / 1e9 } else { value / 1e3 }, "s", MetricKind::Time)
        }
        "Joules" => (value, "J", MetricKind::Count),
        "MiB" => (scaled(value, 1_048_576.0), "B", MetricKind::Count),
        "Bytes" => (value, "B", MetricKind::Count),
        _ => (value, "count", MetricKind::Count),
    };
    log.push(name, value, base, None, kind, line);
}

fn is_clock(event: &str) -> bool {
    let name = event.split([':', '/']).find(|part| !part.is_empty()).unwrap_or(event);
    name == "task-clock" || name == "cpu-clock"
}

const UNITS: [&str; 7] = ["msec", "ns", "Joules", "MiB", "Bytes", "C", "KiB"];

/// A row of the text: `[time] [CPU0] 1,234 [unit] event [# metric] [( +- %)]`
fn row(line: TextLine<'_>, interval: bool, log: &mut Log) {
    let (counts, comment) = match line.text.cut("#") {
        Some((counts, comment)) => (counts.trim_end(), Some(line.part(comment))),
        None => (line.text, None),
    };
    let mut words: ShortList<&str> = counts.all_words();
    if let [seconds, "seconds", what @ ..] = &words[..] {
        return elapsed(line.number(seconds), what, line, log);
    }
    if let [seconds, "+-", _, "seconds", what @ ..] = &words[..] {
        return elapsed(line.number(seconds), what, line, log);
    }
    let mut labels = Vec::new();
    if interval && words.len() > 2 && number::parse(words[0]).is_some() {
        labels.push(("time", words.remove(0)));
    }
    if let Some(place) = words.first().copied().filter(|word| is_place(word)) {
        labels.push(("place", place));
        words.remove(0);
        // Aggregated: how many CPUs follow.
        if words.len() > 2 && !place.starts_with("CPU") && number::parse(words[0]).is_some() {
            words.remove(0);
        }
    }
    let [count, tail @ ..] = &words[..] else { return };
    let (unit, event) = match tail {
        [unit, event, ..] if UNITS.contains(unit) && is_event(event) => (*unit, *event),
        [event, "(msec)", ..] if is_clock(event) => ("msec", *event),
        [event, ..] if event.starts_with("task-clock-msecs") => ("msec", "task-clock"),
        [event, ..] if is_event(event) => ("", *event),
        _ => return,
    };
    // The event must be the row's end, or an end that perf knows.
    let used = if UNITS.contains(&tail[0]) || tail.get(1) == Some(&"(msec)") { 2 } else { 1 };
    let known_end =
        tail.get(used).is_none_or(|word| word.starts_with('(') || word.starts_with('['));
    if !known_end || line.may_be_cut(event) {
        return;
    }
    let value = if unit.is_empty() { number::grouped(count) } else { number::parse(count) };
    let Some(value) = value else {
        if unit.is_empty() && number::parse(count).is_some() && comment.is_some() {
            log.unread(line, "a count with decimals and no unit");
        }
        return;
    };
    // Prose may hold a number and a word, too.
    if comment.is_none() && !looks_like_event(event) {
        return;
    }
    for (key, label) in &labels {
        log.label(*key, *label);
    }
    note(log, event, value, unit, line);
    if let Some(comment) = comment {
        derived(event, comment, line, log);
    }
    log.clear_labels();
}

fn looks_like_event(word: &str) -> bool {
    let stem = word.split(':').next().unwrap_or(word);
    word.contains(':') && !word.ends_with(':')
        || word.contains('/') && word.ends_with('/')
        || ["cycles", "instructions", "branches"].contains(&stem)
        || stem.contains('-')
            && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        || stem.contains('_')
            && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// `CPU0`, `S0`, `S0-D0-C0`, `N0`.
fn is_place(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.is_ascii() && word.strip_prefix("CPU").is_some_and(digits)
        || word.is_ascii()
            && word.split('-').all(|level| {
                level.len() > 1
                    && "SDCNL".contains(&level[..1])
                    && level.is_ascii()
                    && digits(&level[1..])
            })
}

fn elapsed(seconds: Option<f64>, what: &[&str], line: TextLine<'_>, log: &mut Log) {
    let metric = match what {
        ["time", "elapsed", ..] => "elapsed-time",
        ["user", ..] => "user-time",
        ["sys", ..] => "system-time",
        _ => return,
    };
    match seconds {
        Some(seconds) => drop(log.time(metric, seconds, line)),
        None => log.unread(line, "no time"),
    }
}

/// `1.23  insn per cycle`, `3.456 GHz`, `1.053 K/sec`, `0.07% of all branches`
fn derived(event: &str, comment: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = comment.all_words();
    let [value, tail @ ..] = &words[..] else { return };
    let (value, percent) = match value.strip_suffix('%') {
        Some(value) => (value, true),
        None => (*value, false),
    };
    let Some(value) = number::parse(value).filter(|_| !tail.is_empty()) else { return };
    if tail.iter().any(|word| line.may_be_cut(word)) && !tail.contains(&"(") {
        // The name of a metric that was cut off is another's.
        return;
    }
    metric(event, value, percent, tail, line, log);
}

fn metric(
    event: &str,
    value: f64,
    percent: bool,
    words: &[&str],
    line: TextLine<'_>,
    log: &mut Log,
) {
    let event = event_name(event);
    match words {
        ["CPUs", "utilized", ..] | ["CPUs"] => {
            log.push("cpus-utilized", value, "count", None, MetricKind::Count, line);
        }
        ["insn", "per", "cycle", ..] | ["insns", "per", "cycle", ..] | ["IPC"] => {
            log.push(
                "instructions-per-cycle",
                value,
                "1",
                Some(BetterDirection::Higher),
                MetricKind::Rate,
                line,
            );
        }
        ["GHz", ..] => {
            log.push("clock", scaled(value, 1e9), "Hz", None, MetricKind::Rate, line);
        }
        ["of", "all", ..] if percent || line.text.contains(',') => {
            log.push(
                format_args!("{event}-share"),
                value,
                "%",
                Some(BetterDirection::Lower),
                MetricKind::Count,
                line,
            );
        }
        [unit @ ("/sec" | "K/sec" | "M/sec" | "G/sec"), ..] => {
            let factor = match unit.as_bytes()[0] {
                b'K' => 1e3,
                b'M' => 1e6,
                b'G' => 1e9,
                _ => 1.0,
            };
            log.push(
                format_args!("{event}-per-s"),
                scaled(value, factor),
                "1/s",
                None,
                MetricKind::Rate,
                line,
            );
        }
        _ => {}
    }
}

/// The fields of a CSV row, at the count: `[time,][place,[cpus,]]count,unit,event,
/// [deviation%,]run time,percent[,metric,unit]`
fn csv(line: &str) -> Option<ShortList<&str>> {
    let bytes = line.as_bytes();
    let separator = *b",;".iter().find(|byte| memchr::memchr(**byte, bytes).is_some())?;
    let fields: ShortList<&str> = fields(line, separator).collect();
    (fields.len() >= 5 && at_count(&fields).is_some()).then_some(fields)
}

fn is_csv(line: &str) -> bool {
    csv(line).is_some()
}

/// Where the count stands: a unit or nothing, an event and a number follow.
fn at_count(fields: &[&str]) -> Option<usize> {
    (0..fields.len().saturating_sub(3).min(4)).find(|at| {
        let count = fields[*at].trim();
        let counted = number::parse(count).is_some() || count.starts_with("<not ");
        let unit = fields[at + 1].is_empty() || UNITS.contains(&fields[at + 1]);
        let runtime = fields[at + 3];
        let behind = runtime.ends_with('%') || runtime.bytes().all(|byte| byte.is_ascii_digit());
        counted && unit && is_event(fields[at + 2]) && behind && !runtime.is_empty()
    })
}

fn of_csv(fields: &[&str], line: TextLine<'_>, log: &mut Log) {
    let Some(at) = at_count(fields) else { return };
    if let Some(value) = number::parse(fields[at].trim()) {
        match &fields[..at] {
            [] => {}
            [place] if is_place(place.trim()) => log.label("place", place.trim()),
            [time] => log.label("time", time.trim()),
            [place, _] if is_place(place.trim()) => log.label("place", place.trim()),
            [time, place, ..] => {
                log.label("time", time.trim());
                log.label("place", place.trim());
            }
        }
        note(log, fields[at + 2], value, fields[at + 1], line);
        let rest = at + 3 + usize::from(fields[at + 3].ends_with('%'));
        if let Some([value, unit]) = fields.get(rest + 2..rest + 4)
            && !line.may_be_cut(unit)
            && let Some(value) = number::parse(value)
        {
            let words: ShortList<&str> = unit.all_words();
            metric(fields[at + 2], value, false, &words, line, log);
        }
    }
    log.clear_labels();
}

fn of_json(line: TextLine<'_>, log: &mut Log) {
    let Some((node, _)) = json::parse(LogText::at(line.text, line.number), |_| false) else {
        return;
    };
    let Some(event) = node.get("event").and_then(JsonNode::text) else { return };
    if !node.whole {
        return log.unread(line, "the line ends early");
    }
    let count = node.get("counter-value").and_then(JsonNode::text).and_then(number::parse);
    let Some(count) = count else { return };
    if let Some(time) = node.get("interval").and_then(JsonNode::text) {
        log.label("time", time);
    }
    for key in ["cpu", "core", "socket", "node", "die"] {
        if let Some(place) = node.get(key).and_then(JsonNode::text) {
            log.label("place", place);
        }
    }
    note(log, event, count, node.get("unit").and_then(JsonNode::text).unwrap_or_default(), line);
    let unit = node.get("metric-unit").and_then(JsonNode::text);
    if let (Some(value), Some(unit)) = (node.get("metric-value").and_then(JsonNode::number), unit) {
        let words: ShortList<&str> = unit.all_words();
        // `CPUs utilized` in JSON is scaled otherwise in some versions.
        if words.first() != Some(&"CPUs") {
            metric(event, value, false, &words, line, log);
        }
    }
    log.clear_labels();
}

// ---- perf kvm stat ----

fn is_exit_heading(line: &str) -> bool {
    line.holds("Samples") && line.holds("Samples%") && line.holds("Time%")
}

/// Reads any number of tables.
pub(crate) fn read_kvm(text: LogText<'_>, log: &mut Log) {
    let mut table = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.text.starts_with("Total Samples:") || line.text.starts_with("Analyze events") {
            table = false;
        } else if is_exit_heading(line.text) {
            table = true;
        } else if table {
            exit(line, lines.clone().next(), log);
        }
    }
}

/// `HLT  142  55.04%  99.91%  0.85us  4013.12us  1873.44us ( +-   7.59% )`,
/// of which mails wrap the end into the next line.
fn exit(line: TextLine<'_>, next: Option<TextLine<'_>>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let [reason, samples, percent, time, times @ ..] = &words[..] else { return };
    let percent = percent.strip_suffix('%').and_then(number::parse);
    let time = time.strip_suffix('%').and_then(number::parse);
    let (Some(percent), Some(time)) = (percent, time) else { return };
    let micros = |word: &str| number::parse(word.strip_suffix("us")?);
    let wrapped =
        next.into_iter().flat_map(|next| next.text.ascii_words().map(move |word| (word, next)));
    let times: Vec<(f64, TextLine<'_>)> = times
        .iter()
        .map(|word| (*word, line))
        .chain(wrapped)
        .map_while(|(word, line)| Some((micros(word)?, line)))
        .collect();
    let (Some(samples), [min, max, average]) = (number::parse(samples), &times[..]) else {
        return log.unread(line, "not the columns of an exit");
    };
    log.label("exit", *reason);
    log.count("samples", samples, line).better(Some(BetterDirection::Lower));
    log.push("samples-share", percent, "%", None, MetricKind::Count, line);
    log.push("time-share", time, "%", None, MetricKind::Count, line);
    log.quantile("time-min", min.0 / 1e6, min.1);
    log.quantile("time-max", max.0 / 1e6, max.1);
    log.time("time-avg", average.0 / 1e6, average.1);
    log.clear_labels();
}
