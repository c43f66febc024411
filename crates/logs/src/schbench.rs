//! schbench: wake-up and request latencies, requests a second.
//!
//! Source: schbench `schbench.c`, 2016 to 1.0: since 2023 with several lists,
//! each shown again after every interval.

use std::sync::Arc;

use record::{BetterDirection, LogMetric, MetricKind};

use super::failure::{failed, system_error};
use super::names::metric;
use super::number;
use super::sign::{opens, part};
use super::text::{fields, slug};
use super::{Cut, Log, LogText, TextLine, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "schbench",
    about: "schbench, its lists of percentiles in the old and the new form",
    signs: &[
        part("Wakeup Latencies percentiles").when(is_list).anew(),
        part("Request Latencies percentiles").when(is_list).anew(),
        part("RPS percentiles").when(is_list).anew(),
        opens("Latency percentiles (usec)"),
        part("current rps:"),
        part("average rps:"),
    ],
    failures: &[
        failed("error ").when(|line| line.ends_with(" from pthread_create")),
        system_error("FUTEX_WAKE: "),
        system_error("futex-FUTEX_WAIT: "),
        system_error("malloc: "),
        system_error("strdup: "),
        system_error("lseek: "),
        failed("unable to allocate "),
        // Of a worker schbench says so without the CPU, and goes on.
        failed("unable to set CPU affinity to cpu "),
        failed("unable to open "),
        failed("unable to parse "),
        failed("failed to read /proc/stat"),
        failed("failed to set worker thread name"),
        failed("failed to set message thread name"),
        failed("failed to parse cpuset information"),
        failed("Failed to parse "),
        failed("mutex init failed"),
        failed("sched_getcpu failed"),
        failed("escape_string failed"),
        failed("lat_fs: tvsub shows test time ran backwards"),
        failed("idx ").when(|line| line.ends_with(" is too large")),
        failed("Error Extra arguments"),
        failed("split must be between "),
    ],
    read,
};

/// What a list's heading has, whose unit follows.
const LIST: &str = "percentiles (";

fn is_list(line: &str) -> bool {
    line.holds(LIST)
}

/// What the values of a list measure.
struct LatencyList {
    metric: String,
    /// What its numbers count in: none are requests.
    divisor: Option<f64>,
    percentile: Arc<LogMetric>,
}

impl LatencyList {
    fn of(metric: String, divisor: Option<f64>) -> Self {
        let percentile = measured(&metric, divisor);
        Self { metric, divisor, percentile }
    }
}

fn measured(name: &String, divisor: Option<f64>) -> Arc<LogMetric> {
    let (unit, better) = match divisor {
        Some(_) => ("s", BetterDirection::Lower),
        None => ("1/s", BetterDirection::Higher),
    };
    metric(name, unit, Some(better), MetricKind::Quantile)
}

/// Reads any number of lists.
pub(crate) fn read(text: LogText<'_>, log: &mut Log) {
    let mut list: Option<LatencyList> = None;
    for line in text.lines() {
        let is_row = line.text.starts_with(|first: char| first.is_ascii_digit() || first == '*');
        if is_row {
            if let (Some(list), Some((name, rest))) = (&list, line.split("th:")) {
                row(list, name, rest, line, log);
            }
        } else if let Some((name, rest)) = line.split(LIST) {
            log.clear_labels();
            let latency = rest.text.starts_with("usec)");
            if !latency && !rest.text.starts_with("requests)") {
                list = None;
                continue;
            }
            let name = slug(name.trim_end_matches("Latencies").trim_end());
            let metric = match name.as_str() {
                "latency" => "latency".to_owned(),
                "rps" => "requests-per-s".to_owned(),
                _ => format!("{name}-latency"),
            };
            if let Some((_, rest)) = rest.split("runtime ") {
                log.label("runtime-s", rest.word(0).unwrap_or_default());
            }
            list = Some(LatencyList::of(metric, latency.then_some(1e6)));
        } else if let Some((name, rest)) = line.split("rps:") {
            if name == "current" || name == "average" {
                match rest.decimals(rest.word(0).unwrap_or_default(), 2) {
                    Some(value) => {
                        log.rate(format_args!("requests-per-s-{name}"), value, "1/s", line);
                    }
                    None => log.unread(line, "no number"),
                }
            }
        } else if let Some(list) = &list
            && line.text.starts_with("min=")
        {
            extremes(list, line, log);
        }
    }
}

/// `* 99.0th: 20         (18323 samples)`
fn row(list: &LatencyList, name: &str, rest: TextLine<'_>, line: TextLine<'_>, log: &mut Log) {
    let name = name.trim_start_matches('*').trim_start();
    if number::parse(name).is_none() {
        return;
    }
    let Some(value) = rest.first_number() else { return log.unread(line, "no number") };
    let percentile = name.trim_end_matches('0').trim_end_matches('.');
    let percentile = if name.contains('.') { percentile } else { name };
    let value = list.divisor.map_or(value, |divisor| value / divisor);
    log.push_of(&list.percentile, value, line).label("percentile", percentile);
}

/// `min=0, max=27264`
fn extremes(list: &LatencyList, line: TextLine<'_>, log: &mut Log) {
    for item in fields(line.text, b',') {
        let Some((name @ ("min" | "max"), value)) = item.trim().split_once('=') else { continue };
        let Some(value) = line.number(value.trim()) else { continue };
        let metric = measured(&format!("{}-{name}", list.metric), list.divisor);
        let value = list.divisor.map_or(value, |divisor| value / divisor);
        log.push_of(&metric, value, line);
    }
}
