//! cyclictest: how late threads woke, as lines, histogram and JSON.
//!
//! Source: rt-tests `src/cyclictest/cyclictest.c`, all versions. Latencies are
//! in us, with `-N` in ns: then `Act:` is eight columns wide, not five.

use std::collections::BTreeMap;

use super::failure::failed;
use super::json::{self, Node};
use super::number;
use super::sign::{json as in_json, opens, part};
use super::{Cut, Few, Log, Text, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "cyclictest",
    about: "cyclictest of rt-tests: thread lines, -h and -H histograms, --json",
    signs: &[
        in_json("\"rt_test_version"),
        opens("# /dev/cpu_dma_latency").weak(),
        part("T:").when(|line| thread_line(line).is_some()),
        opens("# Histogram").when(|line| line == "# Histogram"),
        part("# Min Latencies:"),
        part("# Max Latencies:"),
        opens("Thread ").when(|line| line.holds(" Interval: ")),
    ],
    failures: &[failed("FATAL: ")],
    read,
};

/// A quantile needs so many wake-ups beyond it.
const BEYOND_QUANTILE: f64 = 20.0;
const QUANTILES: [(&str, f64); 4] = [("50", 0.5), ("99", 0.01), ("99.9", 0.001), ("99.99", 0.0001)];

/// Reads one run, or more that follow each other.
pub(crate) fn read(text: Text<'_>, log: &mut Log) {
    if text.raw().holds("\"rt_test_version") {
        let clean = json::unquoted(text);
        if let Some((document, _)) = json::parse(Text::at(&clean, text.first_line()), |_| false) {
            return read_json(&document, log);
        }
    }
    let mut threads: BTreeMap<u32, ThreadLine<'_>> = BTreeMap::new();
    let mut histogram = Histogram::default();
    let mut samples: BTreeMap<&str, [(f64, usize); 2]> = BTreeMap::new();
    for line in text.lines() {
        if line.text.starts_with("T:") {
            match thread_line(line.text) {
                Some(found) if !line.is_open() || found.ends => {
                    // Another process, or one that began anew.
                    let again = threads.get(&found.thread).is_some_and(|before| {
                        let replaced = before.pid != found.pid && before.cycles != 0.0;
                        found.cycles < before.cycles || replaced
                    });
                    if again {
                        emit_threads(&mut threads, log);
                    }
                    threads.insert(found.thread, ThreadLine { line: Some(line), ..found });
                }
                _ => log.unread(line, "not the fields of a thread"),
            }
        } else if let Some(comment) = line.after("#") {
            if comment.text == "Histogram" {
                histogram = Histogram::default();
            }
            summary(comment, &mut histogram, log);
        } else if let Some((thread, latency)) = sample(line) {
            let [least, most] = samples.entry(thread).or_insert([(latency, line.number); 2]);
            if latency < least.0 {
                *least = (latency, line.number);
            }
            if latency > most.0 {
                *most = (latency, line.number);
            }
        } else {
            histogram.row(line);
        }
    }
    emit_threads(&mut threads, log);
    for (thread, [least, most]) in samples {
        log.quantile("latency-min", least.0 / 1e6, least.1).label("thread", thread);
        log.quantile("latency-max", most.0 / 1e6, most.1).label("thread", thread);
    }
}

/// `       0:      12:      76`, of `-v`: thread, wake-up, latency. Of all of them
/// the least and the most are kept.
fn sample(line: TextLine<'_>) -> Option<(&str, f64)> {
    let (thread, rest) = line.split(":")?;
    let (cycle, latency) = rest.split(":")?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(thread) && digits(cycle) && digits(latency.text)).then_some(())?;
    Some((thread, latency.number(latency.text)?))
}

/// `T: 0 ( 4902) P:80 I:500 C: 500 Min: 19 Act: 29 Avg: 24 Max: 109`
struct ThreadLine<'a> {
    thread: u32,
    pid: &'a str,
    priority: &'a str,
    interval: &'a str,
    cycles: f64,
    /// Least, mean, most.
    latencies: [f64; 3],
    /// Seconds of their unit.
    unit: f64,
    /// Whether something stands behind the last number.
    ends: bool,
    line: Option<TextLine<'a>>,
}

fn thread_line(line: &str) -> Option<ThreadLine<'_>> {
    let (head, mut rest) = line.strip_prefix("T:")?.split_once(')')?;
    let (thread, pid) = head.split_once('(')?;
    // Word behind the next name, and its width with the spaces before it.
    let mut field = |name: &str| {
        let at = memchr::memchr(b':', rest.as_bytes())?;
        (rest[..at].trim_start() == name).then_some(())?;
        let value = &rest[at + 1..];
        let word = value.trim_start();
        let padding = value.len() - word.len();
        let end = word.find([' ', '\t']).unwrap_or(word.len());
        rest = &word[end..];
        Some((&word[..end], padding + end))
    };
    let (priority, interval) = (field("P")?.0, field("I")?.0);
    let cycles = number::parse(field("C")?.0)?;
    let min = number::parse(field("Min")?.0)?;
    let (act, width) = field("Act")?;
    number::parse(act)?;
    let avg = number::parse(field("Avg")?.0)?;
    let max = number::parse(field("Max")?.0)?;
    Some(ThreadLine {
        thread: thread.trim().parse().ok()?,
        pid: pid.trim(),
        priority,
        interval,
        cycles,
        latencies: [min, avg, max],
        unit: if width == 8 && act.len() < 8 { 1e-9 } else { 1e-6 },
        ends: !rest.is_empty(),
        line: None,
    })
}

/// The last line of every thread stands for its run: earlier ones are its
/// progress.
fn emit_threads(threads: &mut BTreeMap<u32, ThreadLine<'_>>, log: &mut Log) {
    for (thread, found) in std::mem::take(threads) {
        let Some(line) = found.line else { continue };
        // A thread that never woke has no latency.
        if found.cycles == 0.0 {
            continue;
        }
        log.clear_labels();
        log.label("thread", thread.to_string());
        log.label("priority", found.priority);
        log.label("interval-us", found.interval);
        let [min, avg, max] = found.latencies.map(|latency| number::scaled(latency, found.unit));
        log.count("cycles", found.cycles, line);
        log.quantile("latency-min", min, line);
        log.time("latency-avg", avg, line);
        log.quantile("latency-max", max, line);
    }
    log.clear_labels();
}

/// All threads' wake-ups by lateness.
#[derive(Default)]
struct Histogram {
    /// Lateness in us, wake-ups in all threads, line.
    rows: Vec<(f64, f64, usize)>,
    /// Columns behind the lateness.
    columns: usize,
    threads: usize,
    total: Option<f64>,
    broken: bool,
}

impl Histogram {
    /// `000019 000004  000016`
    fn row(&mut self, line: TextLine<'_>) {
        let mut words = line.words();
        let Some(bucket) = words.next() else { return };
        let digits = |word: &str| word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(bucket) {
            return;
        }
        let counts: Option<Few<f64>> =
            words.map(|word| digits(word).then(|| line.number(word)).flatten()).collect();
        let (Some(counts), Some(bucket)) = (counts, line.number(bucket)) else {
            self.broken = true;
            return;
        };
        if counts.is_empty() {
            return;
        }
        self.broken |= self.columns != 0 && self.columns != counts.len();
        self.columns = counts.len();
        self.rows.push((bucket, counts.iter().sum(), line.number));
    }

    /// Quantiles of all threads together, if the rows hold all wake-ups.
    fn quantiles(&self, overflows: f64, log: &mut Log) {
        let Some(total) = self.total else { return };
        // With -H the last column sums the others up.
        let times = if self.columns == self.threads + 1 { 2.0 } else { 1.0 };
        let inside = self.rows.iter().map(|(_, count, _)| count / times).sum::<f64>();
        if self.broken || self.columns < self.threads || self.threads == 0 || inside != total {
            return;
        }
        let all = inside + overflows;
        for (name, beyond) in QUANTILES {
            if all * beyond < BEYOND_QUANTILE {
                continue;
            }
            let mut left = all;
            let found = self.rows.iter().find(|(_, count, _)| {
                left -= count / times;
                left <= all * beyond
            });
            if let Some((bucket, _, line)) = found {
                log.quantile("latency", bucket / 1e6, *line).label("percentile", name);
            }
        }
    }
}

/// `# Min Latencies: 00019 00019` and its neighbours: a column a thread, with
/// `-H` one more for all.
fn summary(comment: TextLine<'_>, histogram: &mut Histogram, log: &mut Log) {
    let Some((name, rest)) = comment.split(":") else { return };
    if !["Total", "Min Latencies", "Avg Latencies", "Max Latencies", "Histogram Overflows"]
        .contains(&name)
    {
        return;
    }
    let values: Option<Few<f64>> = rest.words().map(|word| rest.decimals(word, 0)).collect();
    let Some(values) = values.filter(|values| !values.is_empty()) else {
        return log.unread(comment, "not a number a thread");
    };
    if name == "Min Latencies" {
        histogram.threads = values.len();
    }
    let threads = if name == "Total" { histogram.columns } else { histogram.threads };
    let is_all = |index: usize| histogram.threads != 0 && index == histogram.threads;
    match name {
        "Total" => {
            // The threads are known one line later.
            histogram.total = Some(values.iter().take(threads).sum());
            for (thread, value) in values.iter().enumerate() {
                log.count("cycles", *value, comment).label("thread", thread.to_string());
            }
            return;
        }
        "Histogram Overflows" => {
            let overflows = values.iter().take(histogram.threads).sum();
            if let Some(total) = histogram.total.as_mut()
                && histogram.columns == histogram.threads + 1
            {
                *total /= 2.0;
            }
            histogram.quantiles(overflows, log);
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let thread = if is_all(index) { "all".to_owned() } else { index.to_string() };
        let noted = match name {
            "Min Latencies" => log.quantile("latency-min", value / 1e6, comment),
            "Avg Latencies" => log.time("latency-avg", value / 1e6, comment),
            "Max Latencies" => log.quantile("latency-max", value / 1e6, comment),
            _ => log.count("overflows", *value, comment).better(Some(record::Better::Lower)),
        };
        noted.label("thread", thread);
    }
}

fn read_json(document: &Node<'_>, log: &mut Log) {
    let named = |name: &str| {
        let found = document.get(name).or_else(|| document.get(&format!("{name}:")));
        found.and_then(Node::text)
    };
    let program = named("cmdline").and_then(|command| command.split_ascii_whitespace().next());
    if program.is_some_and(|program| !program.ends_with("cyclictest")) {
        return log.unread_at(
            document.line,
            program.unwrap_or_default(),
            "another of the rt-tests",
        );
    }
    log.version = named("rt_test_version").map(str::to_owned);
    let unit = match document.get("resolution_in_ns").and_then(Node::number) {
        Some(1.0) => 1e-9,
        _ => 1e-6,
    };
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early");
    }
    let Some(threads) = document.get("thread") else { return };
    for (thread, node) in threads.members().iter().filter(|(_, node)| node.whole) {
        log.clear_labels();
        log.label("thread", *thread);
        let field = |key: &str| {
            let found = node.get(key)?;
            Some((found.number()?, found.line))
        };
        if let Some((value, line)) = field("cycles") {
            if value == 0.0 {
                continue;
            }
            log.count("cycles", value, line);
        }
        if let Some((value, line)) = field("min") {
            log.quantile("latency-min", number::scaled(value, unit), line);
        }
        if let Some((value, line)) = field("avg") {
            log.time("latency-avg", number::scaled(value, unit), line);
        }
        if let Some((value, line)) = field("max") {
            log.quantile("latency-max", number::scaled(value, unit), line);
        }
    }
    log.clear_labels();
    if document.whole && unit == 1e-6 {
        json_quantiles(threads, log);
    }
}

/// Quantiles of all threads together: `cycles` counts every wake-up, those
/// beyond the histogram's end too.
fn json_quantiles(threads: &Node<'_>, log: &mut Log) {
    let mut histogram = Histogram { columns: 1, threads: 1, ..Histogram::default() };
    let mut merged: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    let (mut cycles, mut inside) = (0.0, 0.0);
    for (_, node) in threads.members() {
        cycles += node.get("cycles").and_then(Node::number).unwrap_or(f64::NAN);
        for (bucket, count) in node.get("histogram").map_or(&[][..], Node::members) {
            let (Ok(bucket), Some(value)) = (bucket.parse(), count.number()) else { return };
            let row = merged.entry(bucket).or_insert((0.0, count.line));
            row.0 += value;
            inside += value;
        }
    }
    if cycles.is_nan() || cycles < inside {
        return;
    }
    histogram.rows =
        merged.into_iter().map(|(bucket, (count, line))| (bucket as f64, count, line)).collect();
    histogram.total = Some(inside);
    histogram.quantiles(cycles - inside, log);
}
