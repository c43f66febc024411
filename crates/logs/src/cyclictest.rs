//! cyclictest: how late threads woke, as lines, histogram and JSON.
//!
//! Source: rt-tests `src/cyclictest/cyclictest.c`, all versions. Latencies are
//! in us, with `-N` in ns: then `Act:` is eight columns wide, not five.

use std::collections::{BTreeMap, BTreeSet};

use record::Histogram;

use super::failure::failed;
use super::json::{self, JsonNode};
use super::near;
use super::number;
use super::sign::{json as in_json, opens, part};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

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
        part(NOT_ALLOWED),
    ],
    failures: &[failed("FATAL: "), failed(NOT_ALLOWED)],
    read,
};

/// Source: rt-tests `src/lib/rt-utils.c`.
const NOT_ALLOWED: &str = "Unable to change scheduling policy!";

/// A quantile needs so many wake-ups beyond it.
const BEYOND_QUANTILE: u64 = 20;
/// The quantiles: percentile, and how many wake-ups of [`ALL`] are later.
const QUANTILES: [(&str, u64); 4] = [("50", 5000), ("99", 100), ("99.9", 10), ("99.99", 1)];
const ALL: u64 = 10_000;

/// How many of so many wake-ups may be later than a quantile.
fn beyond(wakeups: u64, later_of_all: u64) -> u64 {
    let later = u128::from(wakeups) * u128::from(later_of_all) / u128::from(ALL);
    u64::try_from(later).unwrap_or(u64::MAX)
}

/// Reads one run, or more that follow each other.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    if text.raw().holds("\"rt_test_version") {
        let clean = json::unquoted(text);
        if let Some((document, _)) = json::parse(LogText::at(&clean, text.first_line()), |_| false)
        {
            return read_json(&document, log);
        }
    }
    let mut threads: BTreeMap<u32, ThreadLine<'_>> = BTreeMap::new();
    let mut histogram = WakeUps::default();
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
                histogram = WakeUps::default();
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
    let (head, mut rest) = line.strip_prefix("T:")?.cut(")")?;
    let (thread, pid) = head.cut("(")?;
    // Word behind the next name, and its width with the spaces before it.
    let mut field = |name: &str| {
        let at = near::find(b':', rest.as_bytes())?;
        (rest[..at].trim_ascii_start() == name).then_some(())?;
        let value = &rest[at + 1..];
        let word = value.trim_ascii_start();
        let padding = value.len() - word.len();
        let is_blank = |byte| byte == b' ' || byte == b'\t';
        let end = word.bytes().position(is_blank).unwrap_or(word.len());
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
struct WakeUps {
    /// Lateness in us, wake-ups in all threads, line.
    rows: Vec<(u64, u64, usize)>,
    /// Columns behind the lateness.
    columns: usize,
    threads: usize,
    total: Option<u64>,
    broken: bool,
}

impl WakeUps {
    /// `000019 000004  000016`
    fn row(&mut self, line: TextLine<'_>) {
        let mut words = line.words();
        let Some(bucket) = words.next() else { return };
        let digits = |word: &str| word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(bucket) {
            return;
        }
        let whole = |word: &str| line.number(word).map(|value| value as u64);
        let counts: Option<ShortList<u64>> =
            words.map(|word| digits(word).then(|| whole(word)).flatten()).collect();
        let (Some(counts), Some(bucket)) = (counts, whole(bucket)) else {
            self.broken = true;
            return;
        };
        if counts.is_empty() {
            return;
        }
        self.broken |= self.columns != 0 && self.columns != counts.len();
        self.columns = counts.len();
        let all = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        self.rows.push((bucket, all, line.number));
    }

    /// Quantiles of all threads together, if the rows hold all wake-ups.
    fn quantiles(&self, overflows: u64, log: &mut Log) {
        let Some(total) = self.total else { return };
        // With -H the last column sums the others up.
        let times = if self.columns == self.threads + 1 { 2 } else { 1 };
        let inside =
            self.rows.iter().fold(0, |sum: u64, (_, count, _)| sum.saturating_add(count / times));
        if self.broken || self.columns < self.threads || self.threads == 0 || inside != total {
            return;
        }
        let all = inside.saturating_add(overflows);
        for (name, later) in QUANTILES {
            let later = beyond(all, later);
            if later < BEYOND_QUANTILE {
                continue;
            }
            let mut left = all;
            let found = self.rows.iter().find(|(_, count, _)| {
                left -= count / times;
                left <= later
            });
            if let Some((bucket, _, line)) = found {
                log.quantile("latency", *bucket as f64 / 1e6, *line).label("percentile", name);
            }
        }
    }
}

/// `# Min Latencies: 00019 00019` and its neighbours: a column a thread, with
/// `-H` one more for all.
fn summary(comment: TextLine<'_>, histogram: &mut WakeUps, log: &mut Log) {
    let Some((name, rest)) = comment.split(":") else { return };
    if !["Total", "Min Latencies", "Avg Latencies", "Max Latencies", "Histogram Overflows"]
        .contains(&name)
    {
        return;
    }
    let values: Option<ShortList<f64>> = rest.words().map(|word| rest.decimals(word, 0)).collect();
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
            histogram.total = Some(values.iter().take(threads).sum::<f64>() as u64);
            for (thread, value) in values.iter().enumerate() {
                log.count("cycles", *value, comment).label("thread", thread.to_string());
            }
            return;
        }
        "Histogram Overflows" => {
            let overflows = values.iter().take(histogram.threads).sum::<f64>() as u64;
            if let Some(total) = histogram.total.as_mut()
                && histogram.columns == histogram.threads + 1
            {
                *total /= 2;
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
            _ => {
                log.count("overflows", *value, comment).better(Some(record::BetterDirection::Lower))
            }
        };
        noted.label("thread", thread);
    }
}

fn read_json(document: &JsonNode<'_>, log: &mut Log) {
    let named = |name: &str| {
        let found = document.get(name).or_else(|| document.get(&format!("{name}:")));
        found.and_then(JsonNode::text)
    };
    let program = named("cmdline").and_then(|command| command.ascii_words().next());
    if program.is_some_and(|program| !program.ends_with("cyclictest")) {
        return log.unread_at(
            document.line,
            program.unwrap_or_default(),
            "another of the rt-tests",
        );
    }
    log.version = named("rt_test_version").map(str::to_owned);
    let unit = match document.get("resolution_in_ns").and_then(JsonNode::number) {
        Some(1.0) => 1e-9,
        _ => 1e-6,
    };
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early");
    }
    if let Some(node) = document.get("return_code").filter(|node| node.number() != Some(0.0)) {
        log.failed_at(node.line, "\"return_code\"", "it is not 0");
    }
    let Some(threads) = document.get("thread") else { return };
    let names: BTreeSet<&str> = threads.members().iter().map(|(name, _)| *name).collect();
    if let Some(node) = document.get("num_threads").filter(|_| threads.whole)
        && node.number() != Some(names.len() as f64)
    {
        let why = format!("not the {} threads that follow", names.len());
        log.unread_at(node.line, "\"num_threads\"", why);
    }
    let mut all = Vec::new();
    for (name, node) in threads.members().iter().filter(|(_, node)| node.whole) {
        log.clear_labels();
        log.label("thread", *name);
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
        if unit != 1e-6 {
            continue;
        }
        match ThreadWakeUps::read(node) {
            Some(thread) => {
                thread.tell(node.line, log);
                all.push(thread);
            }
            None => {
                log.unread_at(node.line, name, "no thread whose histogram fits its cycles and max")
            }
        }
    }
    log.clear_labels();
    if document.whole && all.len() == names.len() {
        quantiles_of_all(&all, log);
    }
}

/// One thread's wake-ups in JSON, in us.
struct ThreadWakeUps {
    /// Lateness, wake-ups, line.
    rows: Vec<(u64, u64, usize)>,
    /// Wake-ups beyond the histogram's end: `cycles` counts them too.
    overflows: u64,
}

impl ThreadWakeUps {
    /// Nothing if its numbers contradict each other, or aren't all there.
    fn read(node: &JsonNode<'_>) -> Option<Self> {
        let whole = |node: &JsonNode<'_>| node.text()?.parse::<u64>().ok();
        let (cycles, max) = (whole(node.get("cycles")?)?, whole(node.get("max")?)?);
        let mut rows = Vec::new();
        for (lateness, count) in node.get("histogram")?.members() {
            rows.push((lateness.parse().ok()?, whole(count)?, count.line));
        }
        let inside = rows.iter().try_fold(0_u64, |sum, (_, count, _)| sum.checked_add(*count))?;
        let overflows = cycles.checked_sub(inside)?;
        let latest = rows.iter().map(|(lateness, ..)| *lateness).max();
        let fits = latest.is_none_or(|latest| max > latest || (overflows == 0 && max == latest));
        fits.then_some(Self { rows, overflows })
    }

    fn tell(&self, line: usize, log: &mut Log) {
        const NS_PER_US: u64 = 1000;
        if log.keeps_distributions() {
            let rows = self.rows.iter();
            let buckets = rows.map(|(us, count, _)| (us.saturating_mul(NS_PER_US), *count));
            log.distribution(Histogram::new("latency", buckets, self.overflows), line);
        }
    }
}

/// Quantiles of all threads together.
fn quantiles_of_all(threads: &[ThreadWakeUps], log: &mut Log) {
    let mut merged: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let (mut inside, mut overflows) = (0_u64, 0_u64);
    for thread in threads {
        overflows = overflows.saturating_add(thread.overflows);
        for (lateness, count, line) in &thread.rows {
            let row = merged.entry(*lateness).or_insert((0, *line));
            row.0 = row.0.saturating_add(*count);
            inside = inside.saturating_add(*count);
        }
    }
    let rows = merged.into_iter().map(|(lateness, (count, line))| (lateness, count, line));
    let total = Some(inside);
    let all = WakeUps { rows: rows.collect(), columns: 1, threads: 1, total, broken: false };
    all.quantiles(overflows, log);
}
