//! What `time` says of a command: GNU's in its three forms, and the shells'.
//!
//! Source: GNU time's manual, section "Format"; bash(1) TIMEFORMAT; zshparam(1)
//! TIMEFMT.

use record::MetricKind;

use super::failure::failed;
use super::number;
use super::sign::{opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, ShortList, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "time",
    about: "GNU time (default, -p, -v) and the time of bash, POSIX shells and zsh",
    signs: &[
        // GNU's, which says so before anything else.
        opens("Command exited with non-zero status"),
        opens("Command terminated by signal"),
        opens("Command being timed:"),
        opens("real").when(|line| clock_after(line, "real").is_some()),
        opens("real ").when(|line| posix(line).is_some()),
        opens("elapsed").within().when(|line| gnu(line).is_some()),
        part(" total").within().when(|line| line.holds("s system") && line.holds("% cpu ")),
    ],
    failures: &[
        failed("Command exited with non-zero status"),
        failed("Command terminated by signal"),
    ],
    read,
};

/// Reads any number of reports.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    for line in text.lines() {
        read_line(line, log);
    }
}

/// Reads one line of any report, if it is one.
pub(super) fn read_line(line: TextLine<'_>, log: &mut Log) {
    if line.text.is_empty() {
        return;
    }
    let mut words = line.words();
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    match (first, second) {
        ("real" | "user" | "sys", Some(value)) if words.next().is_none() => {
            let metric = match first {
                "real" => "elapsed-time",
                "user" => "user-time",
                _ => "system-time",
            };
            match clock(line, value).or_else(|| plain(line, value)) {
                Some(seconds) => drop(log.time(metric, seconds, line)),
                None if first == "real" && value.starts_with(|c: char| c.is_ascii_digit()) => {
                    log.unread(line, "no time");
                }
                None => {}
            }
        }
        // Most lines are none: these tell so soonest.
        _ if first.ends_with("user") => default_line(line, log),
        _ if line.text.place(")pagefaults").is_some() => faults(line, log),
        _ if line.text.ends_with(" total") => zsh(line, log),
        _ => verbose(line, log),
    }
}

/// `0m1.234s`, in bash's locale: always three decimals.
fn clock(line: TextLine<'_>, word: &str) -> Option<f64> {
    if line.may_be_cut(word) && !word.ends_with('s') {
        return None;
    }
    minutes_and_seconds(word)
}

fn minutes_and_seconds(word: &str) -> Option<f64> {
    let (minutes, seconds) = word.strip_suffix('s')?.cut("m")?;
    let (hours, minutes) = match minutes.cut("h") {
        Some((hours, minutes)) => (number::parse(hours)?, minutes),
        None => (0.0, minutes),
    };
    let minutes = number::parse(minutes)?;
    Some(hours * 3600.0 + minutes * 60.0 + number::with_decimals(seconds)?)
}

/// `1.23`, as POSIX prints it.
fn plain(line: TextLine<'_>, word: &str) -> Option<f64> {
    let decimals = word.rsplit_once(['.', ',']).map_or(0, |(_, fraction)| fraction.len());
    if decimals == 0 || (line.may_be_cut(word) && decimals != 2) {
        return None;
    }
    number::with_decimals(word)
}

fn clock_after(line: &str, name: &str) -> Option<f64> {
    minutes_and_seconds(line.strip_prefix(name)?.trim())
}

fn posix(line: &str) -> Option<f64> {
    let value = line.strip_prefix("real ")?.trim();
    let (_, fraction) = value.split_once(['.', ','])?;
    (fraction.len() == 2).then(|| number::with_decimals(value)).flatten()
}

/// `1:02:03` or `2:03.45`, in seconds.
fn colons(word: &str) -> Option<f64> {
    let parts: ShortList<&str> = fields(word, b':').collect();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    parts.iter().try_fold(0.0, |sum, part| Some(sum * 60.0 + number::with_decimals(part)?))
}

fn gnu(line: &str) -> Option<()> {
    let mut words = line.ascii_words();
    let user = words.next()?.strip_suffix("user")?;
    words.next()?.strip_suffix("system")?;
    words.next()?.strip_suffix("elapsed")?;
    number::with_decimals(user).map(drop)
}

/// `147.20user 20.92system 0:47.15elapsed 356%CPU (0avgtext+0avgdata
/// 123maxresident)k`
fn default_line(line: TextLine<'_>, log: &mut Log) {
    if gnu(line.text).is_none() {
        return;
    }
    for word in line.words().filter(|word| !line.may_be_cut(word)) {
        let seconds = |text: &str| number::with_decimals(text);
        if let Some(value) = word.strip_suffix("user").and_then(seconds) {
            log.time("user-time", value, line);
        } else if let Some(value) = word.strip_suffix("system").and_then(seconds) {
            log.time("system-time", value, line);
        } else if let Some(value) = word.strip_suffix("elapsed").and_then(colons) {
            log.time("elapsed-time", value, line);
        } else if let Some(value) = word.strip_suffix("%CPU").and_then(number::parse) {
            cpu(value, line, log);
        } else if let Some(kib) = word.strip_suffix("maxresident)k").and_then(number::parse) {
            log.max_resident(kib, line);
        }
    }
}

/// `0inputs+0outputs (1major+73minor)pagefaults 0swaps`
fn faults(line: TextLine<'_>, log: &mut Log) {
    let Some((_, rest)) = line.text.cut("(") else { return };
    let Some((inner, _)) = rest.cut(")pagefaults") else { return };
    let Some((major, minor)) = inner.cut("+") else { return };
    for (word, name) in [(major, "major"), (minor, "minor")] {
        if let Some(value) = word.strip_suffix(name).and_then(number::parse) {
            log.count(format_args!("{name}-faults"), value, line);
        }
    }
}

/// `make -j4  400.2s user 33.1s system 360% cpu 2:00.50 total`
fn zsh(line: TextLine<'_>, log: &mut Log) {
    let words: ShortList<&str> = line.all_words();
    let [.., user, "user", system, "system", percent, "cpu", total, "total"] = words[..] else {
        return;
    };
    let seconds = |word: &str| number::with_decimals(word.strip_suffix('s')?);
    let all = (
        seconds(user),
        seconds(system),
        percent.strip_suffix('%').and_then(number::parse),
        colons(total).or_else(|| number::with_decimals(total)),
    );
    let (Some(user), Some(system), Some(percent), Some(total)) = all else {
        return log.unread(line, "no times");
    };
    log.time("user-time", user, line);
    log.time("system-time", system, line);
    cpu(percent, line, log);
    log.time("elapsed-time", total, line);
}

/// A row of `time -v`.
fn verbose(line: TextLine<'_>, log: &mut Log) {
    if line.text.starts_with("Elapsed (wall clock) time") {
        let Some(value) = line.behind("): ") else { return };
        let whole = !line.may_be_cut(value.text)
            || value.text.rsplit_once('.').is_some_and(|(_, fraction)| fraction.len() == 2);
        match colons(value.text).filter(|_| whole) {
            Some(seconds) => drop(log.time("elapsed-time", seconds, line)),
            None => log.unread(line, "no time"),
        }
        return;
    }
    let Some((name, value)) = line.split(": ") else { return };
    let number = value.number(value.text);
    match (name, number) {
        ("User time (seconds)", Some(seconds)) => drop(log.time("user-time", seconds, line)),
        ("System time (seconds)", Some(seconds)) => drop(log.time("system-time", seconds, line)),
        ("Percent of CPU this job got", _) => {
            if let Some(value) = value.text.strip_suffix('%').and_then(number::parse) {
                cpu(value, line, log);
            }
        }
        ("Maximum resident set size (kbytes)", Some(kib)) => log.max_resident(kib, line),
        (
            "Major (requiring I/O) page faults"
            | "Minor (reclaiming a frame) page faults"
            | "Voluntary context switches"
            | "Involuntary context switches",
            Some(value),
        ) => {
            let name = match name.as_bytes()[..2] {
                [b'M', b'a'] => "major-faults".to_owned(),
                [b'M', _] => "minor-faults".to_owned(),
                _ => slug(name),
            };
            log.count(&name, value, line);
        }
        _ => {}
    }
}

fn cpu(percent: f64, line: TextLine<'_>, log: &mut Log) {
    log.push("cpu", percent, "%", None, MetricKind::Count, line);
}
