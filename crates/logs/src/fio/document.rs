//! fio's JSON. Version 2 counts latencies in us and has rates in KiB/s only;
//! version 3 counts in ns.

use std::collections::BTreeMap;

use record::{Histogram, MetricKind};

use super::super::Log;
use super::super::json::JsonNode;
use super::super::number;
use super::{latency, percentile};

pub(super) fn read(document: &JsonNode<'_>, log: &mut Log) {
    let version = document.get("fio version").and_then(JsonNode::text);
    log.version = version.map(|version| version.trim_start_matches("fio-").to_owned());
    if !document.whole {
        log.unread_at(document.line, "{", "the document ends early: its whole jobs are read");
    }
    let jobs = document.get("jobs").or_else(|| document.get("client_stats"));
    let Some(jobs) = jobs else {
        return log.unread_at(document.line, "{", "no \"jobs\" in it");
    };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for job in jobs.items().iter().filter(|job| job.whole) {
        let name = job.get("jobname").and_then(JsonNode::text).unwrap_or_default();
        // Without group reporting, the jobs of one name stand one by one.
        let instance = seen.entry(name).and_modify(|count| *count += 1).or_insert(0);
        log.clear_labels();
        log.label("job", name);
        if *instance > 0 {
            log.label("instance", instance.to_string());
        }
        if let Some(error) = job.get("error").filter(|error| error.number() != Some(0.0)) {
            log.failed_at(error.line, name, "the job has an error");
        }
        // Both are there, whatever the job did, unless they are reported as one.
        let has = |direction: &str| job.get(direction).is_some();
        if !(has("mixed") || has("read") && has("write")) {
            log.unread_at(job.line, name, "a job without what it read and wrote");
        }
        for direction in ["read", "write", "trim", "mixed"] {
            if let Some(node) = job.get(direction) {
                log.label("op", direction);
                io(node, log);
            }
        }
        if let Some(sync) = job.get("sync") {
            log.label("op", "sync");
            latencies(sync, "lat", "sync", log);
        }
        log.label("op", "");
        for (key, metric) in [("usr_cpu", "cpu-user"), ("sys_cpu", "cpu-system")] {
            if let Some((value, node)) = job.get(key).and_then(|node| Some((node.number()?, node)))
            {
                log.push(metric, value, "%", None, MetricKind::Count, node.line);
            }
        }
        if let Some((value, node)) = job.get("ctx").and_then(|node| Some((node.number()?, node))) {
            log.count("context-switches", value, node.line);
        }
    }
    log.clear_labels();
}

/// One direction, if it did anything.
fn io(node: &JsonNode<'_>, log: &mut Log) {
    let field = |key: &str| node.get(key).and_then(|found| Some((found.number()?, found.line)));
    let done = field("total_ios").or_else(|| field("io_bytes"));
    if done.is_some_and(|(done, _)| done == 0.0) {
        return;
    }
    if let Some((value, line)) = field("iops") {
        log.rate("iops", value, "1/s", line);
    }
    if let Some((value, line)) = field("bw_bytes") {
        log.rate("rate", value, "B/s", line);
    } else if let Some((value, line)) = field("bw") {
        log.rate("rate", value * 1024.0, "B/s", line);
    }
    // Version 2 counts it in KiB under the same name.
    if let (Some((value, line)), Some(_)) = (field("io_bytes"), field("io_kbytes")) {
        log.push("io", value, "B", None, MetricKind::Count, line);
    }
    if let Some((millis, line)) = field("runtime") {
        log.time("runtime", millis / 1e3, line).better(None);
    }
    for kind in ["slat", "clat", "lat"] {
        latencies(node, kind, kind, log);
    }
}

/// The statistics of one latency, in whichever unit the version has.
fn latencies(node: &JsonNode<'_>, key: &str, metric: &'static str, log: &mut Log) {
    let found = [(format!("{key}_ns"), 1e-9), (format!("{key}_us"), 1e-6), (key.to_owned(), 1e-6)]
        .into_iter()
        .find_map(|(key, unit)| Some((node.get(&key)?, unit)));
    let Some((node, unit)) = found else { return };
    // Nothing was measured: fio writes zeros.
    let all_zero = ["max", "mean"]
        .iter()
        .all(|key| node.get(key).and_then(JsonNode::number).is_none_or(|value| value == 0.0));
    if all_zero {
        return;
    }
    for (name, value) in node.members() {
        if *name == "percentile" {
            for (name, value) in value.members() {
                if let (Some(name), Some(found)) = (percentile(name), value.number()) {
                    log.quantile(metric, number::scaled(found, unit), value.line)
                        .label("percentile", name);
                }
            }
        } else if *name == "bins" {
            if let Some(histogram) = histogram(node, metric) {
                log.distribution(histogram, value.line);
            }
        } else if let Some(found) = value.number() {
            latency(log, metric, name, number::scaled(found, unit), value.line);
        }
    }
}

/// Middle and end of the last bucket, into which fio counts all that is greater too.
const LAST_BIN_NS: u64 = 17_112_760_320;
const LAST_BIN_END_NS: f64 = (1_u64 << 34) as f64;

/// The buckets of JSON+, by the middle of each in ns, if there are any.
fn histogram(latency: &JsonNode<'_>, metric: &str) -> Option<Histogram> {
    let most = latency.get("max").and_then(JsonNode::number)?;
    let (mut buckets, mut overflows) = (Vec::new(), 0_u64);
    for (middle, count) in latency.get("bins")?.members() {
        let (middle, count) = (middle.parse().ok()?, count.text()?.parse().ok()?);
        if middle < LAST_BIN_NS || most < LAST_BIN_END_NS {
            buckets.push((middle, count));
        } else {
            overflows = overflows.saturating_add(count);
        }
    }
    let any = !buckets.is_empty() || overflows > 0;
    any.then(|| Histogram::new(metric, buckets, overflows))
}
