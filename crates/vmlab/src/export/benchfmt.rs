//! A study in Go's benchmark format: one line a boot, so that no tool can take
//! samples of one boot for independent ones.
//!
//! Everything that tells values apart stands in the name, nothing in `key:`
//! lines: benchstat makes a table of its own for each distinct one.

use std::collections::BTreeMap;
use std::fmt::Write;

use record::{BetterDirection, Metric};
use runner::results::{self, MetricGroup};
use runner::state::JournalState;
use runner::store::Contents;

/// The study as text.
pub(super) fn text(contents: &Contents) -> String {
    let plan = &contents.plan;
    let state = JournalState::from_events(&contents.events);
    let trials = results::trials(&contents.events, &state);
    let groups = results::groups(plan, &trials);
    let mut out = String::new();
    let mut units: BTreeMap<String, BetterDirection> = BTreeMap::new();
    for group in &groups {
        units.insert(unit(group.metric), group.metric.better);
    }
    for (unit, better) in units {
        let better = match better {
            BetterDirection::Lower => "lower",
            BetterDirection::Higher => "higher",
        };
        writeln!(out, "Unit {unit} better={better}").expect("memory takes all text");
    }
    let same = |a: &MetricGroup<'_>, b: &MetricGroup<'_>| {
        (&a.load.name, &a.workload.label) == (&b.load.name, &b.workload.label)
    };
    for groups in groups.chunk_by(same) {
        let first = &groups[0];
        for (index, variant) in plan.variants.iter().enumerate() {
            // By order of measurement, the metrics of one boot on one line.
            let mut boots: BTreeMap<u32, (usize, String)> = BTreeMap::new();
            for group in groups {
                for boot in group.boots[index].iter().filter(|boot| boot.counted) {
                    let (samples, values) = boots.entry(boot.order).or_default();
                    *samples = boot.samples.len().max(*samples);
                    write!(values, "\t{} {}", boot.statistic.value, unit(group.metric))
                        .expect("memory takes all text");
                }
            }
            let environment = serde_json::to_value(variant.environment).unwrap_or_default();
            let name = format!(
                "Benchmark{}/load={}/variant={}/environment={}",
                capital(&word(&first.workload.label)),
                word(&first.load.name),
                word(&variant.name),
                word(environment.as_str().unwrap_or("unknown")),
            );
            for (samples, values) in boots.into_values() {
                writeln!(out, "{name}\t{samples}{values}").expect("memory takes all text");
            }
        }
    }
    out
}

/// The unit of a metric, which names the metric too: `time-sec`, `rate/s`.
fn unit(metric: &Metric) -> String {
    let name = word(&metric.name);
    match metric.unit.0.as_str() {
        "s" => format!("{name}-sec"),
        "1/s" => format!("{name}/s"),
        "B/s" => format!("{name}-B/s"),
        "count" | "1" => name,
        other => format!("{name}-{}", word(other)),
    }
}

/// `text` without what ends a field or a part of a name.
fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c == '/' { '_' } else { c }).collect()
}

/// Benchmarks' names begin with a capital.
fn capital(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
