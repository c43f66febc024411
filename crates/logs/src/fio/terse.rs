//! fio's terse lines, versions 2 to 5: fields between semicolons, latencies in
//! us, rates in KiB/s.

use record::MetricKind;

use super::super::text::fields;
use super::super::{Cut, Log, ShortList, TextLine};
use super::{latency, percentile};

/// Fields of one direction: amount, rate, I/Os a second, runtime, two
/// latencies of 4, 20 percentiles, a latency of 4, the rate's 5 statistics.
const FIELDS: usize = 41;
/// Version 5 adds the rate's samples and the I/O rate's 5 statistics.
const FIELDS_5: usize = 47;

/// Whether a line is terse output.
pub(super) fn is_terse(line: &str) -> bool {
    let version = line.as_bytes().first();
    let named = line.get(1..6) == Some(";fio-");
    let known = matches!(version, Some(b'3'..=b'5')) && named
        || version == Some(&b'2') && line.as_bytes().get(1) == Some(&b';');
    known && memchr::memchr_iter(b';', line.as_bytes()).take(12).count() == 12 && line.holds("%=")
}

pub(super) fn read(line: TextLine<'_>, log: &mut Log) {
    let fields: ShortList<&str> = fields(line.text, b';').collect();
    let version = fields[0];
    let named = if version == "2" { 1 } else { 2 };
    if named == 2 {
        log.version = Some(fields[1].trim_start_matches("fio-").to_owned());
    }
    let (width, directions) = match version {
        "5" => (FIELDS_5, &["read", "write", "trim"][..]),
        "4" => (FIELDS, &["read", "write", "trim"][..]),
        _ => (FIELDS, &["read", "write"][..]),
    };
    let begin = named + 3;
    let cpu = begin + width * directions.len();
    if fields.len() < cpu + 5 {
        return log.unread(line, "fewer fields than its version has");
    }
    log.label("job", fields[named]);
    for (index, name) in directions.iter().enumerate() {
        let start = begin + index * width;
        log.label("op", *name);
        if !direction(&fields[start..start + width], line, log) {
            log.unread(line, format!("the {name} fields are not those of its version"));
        }
    }
    log.label("op", "");
    for (field, metric) in [(cpu, "cpu-user"), (cpu + 1, "cpu-system")] {
        let value = fields[field].strip_suffix('%').and_then(|value| line.number(value));
        if let Some(value) = value {
            log.push(metric, value, "%", None, MetricKind::Count, line);
        }
    }
    log.clear_labels();
}

/// Reads one direction; false if its fields are others.
fn direction(fields: &[&str], line: TextLine<'_>, log: &mut Log) -> bool {
    let number = |index: usize| line.number(fields[index]);
    if !fields[12..32].iter().all(|field| field.holds("%=")) {
        return false;
    }
    let (Some(kib), Some(rate), Some(iops), Some(millis)) =
        (number(0), number(1), number(2), number(3))
    else {
        return false;
    };
    if kib == 0.0 && rate == 0.0 && iops == 0.0 {
        return true;
    }
    log.rate("iops", iops, "1/s", line);
    log.rate("rate", rate * 1024.0, "B/s", line);
    log.push("io", kib * 1024.0, "B", None, MetricKind::Count, line);
    log.time("runtime", millis / 1e3, line).better(None);
    for (kind, start) in [("slat", 4), ("clat", 8), ("lat", 32)] {
        let values: Option<ShortList<f64>> = (start..start + 4).map(number).collect();
        let Some(values) = values else { return false };
        // Zeros: nothing was measured.
        if values[1] == 0.0 && values[2] == 0.0 {
            continue;
        }
        for (statistic, value) in ["min", "max", "mean", "stddev"].iter().zip(values) {
            latency(log, kind, statistic, value / 1e6, line);
        }
    }
    for field in &fields[12..32] {
        let Some((name, value)) = field.cut("%=") else { return false };
        let Some(value) = line.number(value) else { return false };
        if let Some(name) = percentile(name) {
            log.quantile("clat", value / 1e6, line).label("percentile", name);
        }
    }
    true
}
