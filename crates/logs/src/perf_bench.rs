//! `perf bench`, every suite.
//!
//! Source: Linux `tools/perf/bench/*.c`. Its sizes are powers of 1024.

use record::MetricKind;

use super::failure::failed;
use super::number::{self, grouped};
use super::sign::{opens, part};
use super::text::slug;
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "perf-bench",
    about: "perf bench: sched, syscall, mem, numa, futex, epoll, internals, breakpoint, uprobe",
    signs: &[
        opens("# Running ").when(|line| line.holds("benchmark")),
        // Where the line above is missing, these say what is measured.
        part("# ").when(is_context),
        part("Run summary [PID "),
        part("Total time:").when(|line| line.ends_with("[sec]")),
        part("# Running ").when(|line| line.holds("\"perf bench numa")),
        part("Average ").when(|line| line.holds(" took: ") && line.holds(" (+- ")),
        part("Unknown benchmark: ").when(|line| line.holds(" for collection ")),
    ],
    failures: &[failed("perf: "), failed("Unknown benchmark: "), failed("Unknown collection: ")],
    read,
};

/// Reads any number of benchmarks.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        if let Some(rest) = line.after("# Running ") {
            let name = rest.text.split(" benchmark").next().unwrap_or_default();
            let name = name.trim_matches(['\'', '"', ' ']);
            if rest.text.holds("benchmark") && !name.contains(' ') {
                log.clear_labels();
                log.label("benchmark", name);
            }
        } else if let Some(comment) = line.after("#") {
            context(comment, log);
        } else if let Some(rest) = line.after("Routine ") {
            log.label("function", rest.word(0).unwrap_or_default());
        } else if let Some(rest) = line.after("Run summary [PID ") {
            threads(rest, log);
        } else {
            value(line, log);
        }
    }
}

/// Whether a line is a comment that no other tool prints.
fn is_context(line: &str) -> bool {
    if !line.starts_with('#') {
        return false;
    }
    let words: ShortList<&str> = line.ascii_words().take(9).collect();
    match words[..] {
        ["#", number, "sender", "and", "receiver", "processes" | "threads", ..]
        | ["#", number, "groups", "==", _, "processes" | "threads", "run"]
        | ["#", "Executed", number, "pipe", "operations", "between", "two", _] => {
            number::grouped(number).is_some()
        }
        ["#", "Executed", number, call, "calls"] => {
            call.ends_with("()") && number::grouped(number).is_some()
        }
        ["#", "Copying", _, "bytes", "..."] => true,
        ["#", "function", name, ..] => name.starts_with('\'') && name.ends_with('\''),
        _ => false,
    }
}

/// Comments that say how much is done, by whom.
fn context(comment: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = comment.all_words();
    match words[..] {
        ["function", name, ..] => log.label("function", name.trim_matches(['\'', '"'])),
        [groups, "groups", "==", tasks, mode, "run"] => {
            log.label("groups", groups);
            log.label("tasks", tasks);
            log.label("mode", mode);
        }
        ["Copying", size, ..] => log.label("size", size),
        ["Executed", _, "pipe", "operations", "between", "two", mode] => log.label("mode", mode),
        ["Executed", _, call, "calls"] => log.label("call", call),
        _ => {}
    }
}

fn threads(rest: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = rest.all_words();
    if let Some(at) = words.iter().position(|word| *word == "threads" || *word == "threads,") {
        log.label("threads", words[at.saturating_sub(1)]);
    }
}

fn value(line: TextLine<'_>, log: &mut Log) {
    if line.text.starts_with('[') {
        return of_one(line, log);
    }
    if let Some((name, took)) = line.split(" took:").or_else(|| line.split(" took ")) {
        if let Some(seconds) = time(took, 0) {
            let name = slug(name.trim_start_matches("Average "));
            log.time(format_args!("{name}-time"), seconds, line);
        } else if name.starts_with("Average ") {
            log.unread(line, "no time with a unit");
        }
        return;
    }
    let words: ShortList<&str> = line.all_words();
    match words[..] {
        ["Total", "time:", seconds, "[sec]"] => {
            read_or_tell(line, log, line.number(seconds), |log, v| {
                log.time("time", v, line);
            });
        }
        ["Total", "time:", usecs, "usecs"] => {
            read_or_tell(line, log, grouped(usecs), |log, v| {
                log.time("time", v / 1e6, line);
            });
        }
        ["Averaged", number, "operations/sec", ..] => {
            read_or_tell(line, log, line.number(number), |log, v| {
                log.rate("ops-per-s-mean", v, "1/s", line);
            });
        }
        ["Averaged", number, kind, "operations", ..] => {
            read_or_tell(line, log, line.number(number), |log, v| {
                let name = format!("{}-ops-mean", slug(kind));
                log.count(&name, v, line).better(Some(record::BetterDirection::Higher));
            });
        }
        ["Wokeup" | "Requeued", ..] | ["Avg", "per-thread", "latency", ..] => {
            wakes(line, log, None)
        }
        ["Average", "num.", "events:", number, ..] => {
            read_or_tell(line, log, line.number(number), |log, v| {
                log.count("events", v, line);
            });
        }
        ["Average", "time", "per", ..] => {
            let of = words.iter().position(|word| line.number(word).is_some());
            let seconds = of.and_then(|at| time(line, at));
            let name = of.map(|at| slug(&words[1..at].join(" ")));
            if let (Some(seconds), Some(name)) = (seconds, name) {
                log.time(&name, seconds, line);
            }
        }
        ["Average", "memory", "usage:", kib, "KB", ..] => {
            read_or_tell(line, log, line.number(kib), |log, v| {
                log.push("memory", v * 1024.0, "B", None, MetricKind::Count, line);
            });
        }
        [
            name,
            number,
            unit,
            "NUMA-convergence-latency"
            | "runtime-max/thread"
            | "runtime-min/thread"
            | "runtime-avg/thread"
            | "spread-runtime/thread"
            | "data/thread"
            | "data-total"
            | "runtime/byte/thread"
            | "thread-speed"
            | "total-speed",
        ] => {
            let short = words[3];
            let value = line.number(number.trim_end_matches(','));
            if let Some(value) = value {
                numa(
                    line,
                    log,
                    value,
                    unit.trim_end_matches(','),
                    short,
                    name.trim_end_matches(','),
                );
            }
        }
        [number, unit, ..] => {
            let Some(value) = line.number(number).or_else(|| grouped(number)) else { return };
            if !line.may_be_cut(number) && !line.may_be_cut(unit) {
                rate_or_time(line, log, value, unit, &words[2..]);
            }
        }
        _ => {}
    }
}

fn read_or_tell(
    line: TextLine<'_>,
    log: &mut Log,
    value: Option<f64>,
    note: impl FnOnce(&mut Log, f64),
) {
    match value {
        Some(value) => note(log, value),
        None => log.unread(line, "no number"),
    }
}

/// The time that stands from a word on, with its unit.
fn time(line: TextLine<'_>, at: usize) -> Option<f64> {
    let mut words = line.words().skip(at);
    let (value, unit) = (line.number(words.next()?)?, words.next()?);
    (!line.may_be_cut(unit)).then_some(value * number::seconds(unit)?)
}

/// `     5.370150 usecs/op`, `12.719798 GB/sec (with prefault)`.
fn rate_or_time(line: TextLine<'_>, log: &mut Log, value: f64, unit: &str, rest: &[&str]) {
    let prefault = rest == ["(with", "prefault)"];
    let plain = rest.is_empty();
    match unit {
        "usecs/op" if plain => drop(log.time("time-per-op", value / 1e6, line)),
        "usecs/op/cpu" if plain => drop(log.time("time-per-op-per-cpu", value / 1e6, line)),
        "nsecs/op" if plain => drop(log.time("time-per-op", value / 1e9, line)),
        "ops/sec" if plain => drop(log.rate("ops-per-s", value, "1/s", line)),
        "usecs/op" if rest.len() == 2 && rest[0] == "to" => {
            log.time(format_args!("time-per-op-to-{}", slug(rest[1])), value / 1e6, line)
                .better(Some(record::BetterDirection::Lower));
        }
        _ if plain || prefault => {
            let lower = unit.to_ascii_lowercase();
            if let Some(bytes) = lower.strip_suffix("b/sec") {
                let Some(factor) = number::prefix(&bytes.to_ascii_uppercase(), 1024.0) else {
                    return;
                };
                let noted = log.rate("rate", number::scaled(value, factor), "B/s", line);
                if prefault {
                    noted.label("prefault", "yes");
                }
            } else if lower == "cycles/byte" || lower == "cycle/byte" {
                log.time("cycles-per-byte", value, line).unit("count");
            }
        }
        "secs" => numa(line, log, value, "secs", rest.join(" ").as_str(), ""),
        "%" | "GB" | "nsecs/byte/thread" | "GB/sec/thread" | "GB/sec" => {
            numa(line, log, value, unit, rest.join(" ").as_str(), "");
        }
        _ => {}
    }
}

/// The rows of `perf bench numa`, in its long and its short words.
fn numa(line: TextLine<'_>, log: &mut Log, value: f64, unit: &str, words: &str, name: &str) {
    let gib = 1_000_000_000.0;
    let noted = match words {
        "slowest (max) thread-runtime" | "runtime-max/thread" => {
            log.quantile("thread-time-max", value, line)
        }
        "fastest (min) thread-runtime" | "runtime-min/thread" => {
            log.quantile("thread-time-min", value, line)
        }
        "average thread-runtime" | "runtime-avg/thread" => log.time("thread-time-avg", value, line),
        "difference between max/avg runtime" | "spread-runtime/thread" => log.push(
            "thread-time-spread",
            value,
            "%",
            Some(record::BetterDirection::Lower),
            MetricKind::Count,
            line,
        ),
        "data processed, per thread" | "data/thread" => log.push(
            "data-per-thread",
            number::scaled(value, gib),
            "B",
            None,
            MetricKind::Count,
            line,
        ),
        "data processed, total" | "data-total" => {
            log.push("data-total", number::scaled(value, gib), "B", None, MetricKind::Count, line)
        }
        "runtime" | "runtime/byte/thread" if unit.starts_with("nsecs") => {
            log.time("time-per-byte-per-thread", value / 1e9, line)
        }
        "speed" | "thread-speed"
            if unit.starts_with("GB/sec/thread") || words == "thread-speed" =>
        {
            log.rate("thread-rate", number::scaled(value, gib), "B/s", line)
        }
        "total speed" | "total-speed" => {
            log.rate("total-rate", number::scaled(value, gib), "B/s", line)
        }
        "latency to NUMA-converge" | "NUMA-convergence-latency" => {
            log.time("convergence-time", value, line)
        }
        _ => return,
    };
    if !name.is_empty() && name != "main" {
        noted.label("test", name);
    }
}

/// `[thread  0] ... [ 1220800 ops/sec ]`, `[Run 1]: Wokeup 4 of 4 threads in
/// 0.2040 ms`.
fn of_one(line: TextLine<'_>, log: &mut Log) {
    let Some((head, rest)) = line.split("]") else { return };
    let who: ShortList<&str> = head.trim_start_matches('[').all_words();
    let [kind @ ("thread" | "Run"), index] = who[..] else { return };
    if index.parse::<u32>().is_err() {
        return;
    }
    if kind == "Run" {
        return wakes(rest.part(rest.text.trim_start_matches(':')), log, Some(index));
    }
    let Some(results) = rest.text.rfind('[').map(|at| rest.part(&rest.text[at + 1..])) else {
        return;
    };
    let Some(inner) = results.text.strip_suffix(']') else {
        return log.unread(line, "the line ends early");
    };
    let words: ShortList<&str> = inner.all_words();
    if let [number, "ops/sec"] = words[..] {
        match results.number(number) {
            Some(value) => drop(log.rate("ops-per-s", value, "1/s", line).label("thread", index)),
            None => log.unread(line, "no number of operations"),
        }
        return;
    }
    for of_kind in inner.split(';') {
        let words: ShortList<&str> = of_kind.all_words();
        if let [kind, number, "ops"] = words[..]
            && let Some(value) = results.number(number)
        {
            let name = format!("{}-ops", slug(kind.trim_end_matches(':')));
            log.count(&name, value, line)
                .label("thread", index)
                .better(Some(record::BetterDirection::Higher));
        }
    }
}

/// Times to wake or requeue: of one run, or their mean.
fn wakes(line: TextLine<'_>, log: &mut Log, run: Option<&str>) {
    let Some(rest) = line.behind(" in ") else { return };
    match time(rest, 0) {
        Some(seconds) => {
            match run {
                Some(run) => log.time("latency", seconds, line).label("run", run),
                None => log.time("latency-mean", seconds, line),
            };
        }
        None => log.unread(line, "no time with a unit"),
    }
}
