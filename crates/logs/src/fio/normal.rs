//! fio's output for people. Numbers are shortened to a few digits, with a
//! prefix: `IOPS=12.3k`, `max=1.2K`.

use record::MetricKind;

use super::super::number;
use super::super::{Cut, Log, TextLine};
use super::{latency, operation, percentile};

/// Where in the output a line stands.
#[derive(Default)]
pub(super) struct OutputPosition {
    inside_job: bool,
    /// Latency and seconds of the unit of the percentiles that follow.
    percentiles: Option<(String, f64)>,
}

impl OutputPosition {
    pub(super) fn line(&mut self, line: TextLine<'_>, log: &mut Log) {
        let text = line.text;
        if let Some(version) = text.strip_prefix("fio-").filter(|rest| !rest.contains(' ')) {
            log.version = Some(version.to_owned());
        } else if let Some((name, rest)) = text.cut(": (groupid=") {
            log.clear_labels();
            self.percentiles = None;
            self.inside_job = rest.holds("): err=");
            if self.inside_job {
                log.label("job", name.trim());
                failed(rest, line, log);
            }
        } else if let Some(rest) = line.after("Run status group ") {
            log.clear_labels();
            self.inside_job = false;
            self.percentiles = None;
            log.label("group", rest.word(0).unwrap_or_default());
        } else if text.starts_with("Disk stats ") {
            self.inside_job = false;
            log.clear_labels();
        } else if text.starts_with('|') {
            if self.inside_job {
                self.percentile_row(line, log);
            }
        } else if self.inside_job {
            self.percentiles = None;
            self.of_job(line, log);
        } else if let Some((name, rest)) = line.split(": ") {
            group(name, rest, line, log);
        }
    }

    fn of_job(&mut self, line: TextLine<'_>, log: &mut Log) {
        let Some((name, rest)) = line.split(":") else { return };
        if name == "fsync/fdatasync/sync_file_range" {
            log.label("op", "sync");
        } else if let Some(direction) = operation(name) {
            log.label("op", direction);
            io(rest, line, log);
        } else if let Some((kind, unit)) = name.cut(" (").map(|(kind, unit)| (kind.trim(), unit)) {
            if let Some(kind) = kind.strip_suffix(" percentiles") {
                let unit = number::seconds(unit);
                self.percentiles = unit.map(|unit| (kind.trim().to_owned(), unit));
            } else if matches!(kind, "slat" | "clat" | "lat" | "sync") && rest.text.holds("min=") {
                statistics(kind, unit, rest, line, log);
            }
        } else if name == "cpu" {
            cpu(rest, line, log);
        }
    }

    /// `|  1.00th=[    2],  5.00th=[    2], 10.00th=[    3],`
    fn percentile_row(&mut self, line: TextLine<'_>, log: &mut Log) {
        let Some((kind, unit)) = &self.percentiles else { return };
        for item in line.text.trim_start_matches('|').split("],") {
            let Some((name, value)) = item.cut("=[") else {
                if !item.trim().is_empty() {
                    log.unread(line, "a percentile ends early");
                }
                continue;
            };
            let value = value.trim();
            let whole = value.strip_suffix(']').unwrap_or(value);
            if line.may_be_cut(whole) || (line.is_open() && line.text.ends_with(whole)) {
                log.unread(line, "a percentile ends early");
                continue;
            }
            match (percentile(name), short(whole)) {
                (Some(name), Some(value)) => {
                    log.quantile(kind, number::scaled(value, *unit), line)
                        .label("percentile", name);
                }
                _ => log.unread(line, "not a percentile and a number"),
            }
        }
    }
}

/// `0, jobs=1): err= 5 (file:...): pid=...`: the error.
fn failed(rest: &str, line: TextLine<'_>, log: &mut Log) {
    let error = rest.cut("err=").map(|(_, rest)| rest.trim_start());
    let number = error.and_then(|error| error.split([' ', ':', '(']).next());
    if number.is_some_and(|number| number != "0") {
        log.failed(line, "the job has an error");
    }
}

/// A number with a thousands' prefix: `12.3k`, `1.2M`; fio's base here is 1000.
fn short(word: &str) -> Option<f64> {
    let (digits, prefix) = number::split_unit(word.trim());
    Some(number::parse(digits)? * number::prefix(prefix, 1000.0)?)
}

/// `48.1MiB/s`, of version 3, or `63551KB/s`, of version 2 and of 1024 bytes.
fn rate(word: &str) -> Option<f64> {
    let (digits, unit) = number::split_unit(word.trim());
    let thousand = if unit.starts_with('k') { 1000.0 } else { 1024.0 };
    let factor = number::bytes_per_s(unit, thousand)?;
    // Version 3 writes MiB for 1024 and MB for 1000; version 2 knows MB only,
    // and means 1024.
    Some(number::parse(digits)? * factor)
}

/// `IOPS=12.3k, BW=48.1MiB/s (50.4MB/s)(481MiB/10001msec)`, or version 2's
/// `io=10240KB, bw=63551KB/s, iops=15887, runtime= 10001msec`.
fn io(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    for item in rest.text.split(',') {
        let Some((key, value)) = item.split_once('=') else { continue };
        let value = value.trim().split([' ', '(', ';']).find(|word| !word.is_empty());
        let Some(value) = value else { continue };
        if line.may_be_cut(value) {
            log.unread(line, "the line ends early");
            continue;
        }
        match key.trim().to_ascii_lowercase().as_str() {
            "iops" => match short(value) {
                Some(value) => drop(log.rate("iops", value, "1/s", line)),
                None => log.unread(line, "no number of I/Os"),
            },
            "bw" => match rate(value) {
                Some(value) => drop(log.rate("rate", value, "B/s", line)),
                None => log.unread(line, "no rate"),
            },
            "runtime" => {
                let (digits, unit) = number::split_unit(value);
                if let (Some(value), Some(unit)) = (number::parse(digits), number::seconds(unit)) {
                    log.time("runtime", number::scaled(value, unit), line).better(None);
                }
            }
            _ => {}
        }
    }
}

/// `clat (usec): min=1, max=20, avg= 3.45, stdev= 1.20`
fn statistics(kind: &str, unit: &str, rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let Some(unit) = number::seconds(unit) else {
        return log.unread(line, "no unit of time");
    };
    let mut count = 0;
    for item in rest.text.split(',') {
        let Some((key, value)) = item.split_once('=') else { continue };
        let value = value.trim();
        if line.may_be_cut(value)
            && value.rsplit_once('.').is_none_or(|(_, digits)| digits.len() != 2)
        {
            continue;
        }
        let Some(value) = short(value) else { continue };
        count += 1;
        if kind == "sync" {
            log.label("op", "sync");
        }
        latency(log, kind, key.trim(), number::scaled(value, unit), line);
    }
    if count != 4 {
        log.unread(line, "not four numbers");
    }
}

/// `usr=1.00%, sys=2.00%, ctx=3, majf=0, minf=12`
fn cpu(rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    log.label("op", "");
    for item in rest.text.split(',') {
        let Some((key, value)) = item.split_once('=') else { continue };
        let value = value.trim();
        match key.trim() {
            "usr" | "sys" => {
                let percent = value.strip_suffix('%').and_then(number::parse);
                if let Some(percent) = percent {
                    let metric = if key.trim() == "usr" { "cpu-user" } else { "cpu-system" };
                    log.push(metric, percent, "%", None, MetricKind::Count, line);
                }
            }
            "ctx" => {
                if let Some(value) = line.number(value) {
                    log.count("context-switches", value, line);
                }
            }
            _ => {}
        }
    }
}

/// `READ: bw=4939KiB/s (5058kB/s), ...`, or version 2's `READ: io=10240KB,
/// aggrb=63551KB/s, ...`.
fn group(name: &str, rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let Some(direction) = operation(name) else { return };
    for item in rest.text.split(',') {
        let Some((key @ ("bw" | "aggrb"), value)) = item.trim().split_once('=') else { continue };
        let value = value.trim().split([' ', '(']).next().unwrap_or_default();
        if line.may_be_cut(value) {
            return log.unread(line, "the line ends early");
        }
        match rate(value) {
            Some(value) => drop(log.rate("group-rate", value, "B/s", line).label("op", direction)),
            None => log.unread(line, format!("no rate behind {key}")),
        }
        return;
    }
}
