//! The one JSON document that a probe prints.

use std::collections::BTreeMap;

use hdrhistogram::Histogram as Hdr;
use serde::Serialize;

use crate::args::{Args, OptionValue};
use crate::costs::GuestCosts;
use crate::metric::ProbeMetric;

/// Everything that one run of a probe prints.
#[derive(Debug, Serialize)]
pub struct RunDocument {
    /// The probe's name.
    pub probe: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Machine that it was built for: `x86_64`, `aarch64`.
    pub arch: &'static str,
    /// Every option with the value that was used.
    pub params: BTreeMap<String, OptionValue>,
    /// What the probe found out about the guest, such as the clock source.
    pub facts: BTreeMap<&'static str, String>,
    /// True if all checks of the result were right, and there was one at least.
    pub verified: bool,
    /// The checks, each with what was seen.
    pub checks: Vec<ResultCheck>,
    /// The values, in the order in which they were measured.
    pub metrics: Vec<MetricValue>,
    /// Distributions.
    pub histograms: Vec<DurationHistogram>,
    /// What a reader of the values must know.
    pub warnings: Vec<String>,
    /// What the whole run cost the guest, warm-up included.
    pub costs: GuestCosts,
}

/// A check that a probe made of its own result.
#[derive(Debug, Serialize)]
pub struct ResultCheck {
    /// What was checked.
    pub name: String,
    /// True if it was right.
    pub ok: bool,
    /// What was seen, and what was expected.
    pub detail: String,
}

/// One value of a metric.
#[derive(Debug, Serialize)]
pub struct MetricValue {
    /// The metric, as the probe's table names it.
    pub name: &'static str,
    /// The value in `unit`.
    pub value: f64,
    /// Base unit: `s`, `B`, `1/s`, `B/s`, `count`.
    pub unit: &'static str,
    /// `lower` or `higher`.
    pub better: &'static str,
    /// `time`, `rate`, `quantile` or `count`.
    pub kind: &'static str,
    /// `total` or `thread`.
    pub per: &'static str,
    /// Number of the repeat, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<usize>,
    /// Number of the thread, from 0, where a value covers one thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<usize>,
    /// What tells this value from others of its metric: a clock, a node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<&'static str, String>,
}

/// A distribution of times.
#[derive(Debug, Serialize)]
pub struct DurationHistogram {
    /// Its name, as the probe's table has it.
    pub name: &'static str,
    /// Unit of all values in it: `s`.
    pub unit: &'static str,
    /// How many values it holds.
    pub count: u64,
    /// The least value.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest value.
    pub max: f64,
    /// Quantiles by name: `p50`, `p99.9`.
    pub quantiles: BTreeMap<&'static str, f64>,
    /// Upper end of each bucket that holds something, and how many it holds.
    pub buckets: Vec<(f64, u64)>,
}

/// Quantiles that every histogram says.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// A histogram of nanoseconds up to a minute, two digits exact.
pub(crate) fn nanoseconds() -> Hdr<u64> {
    Hdr::new_with_bounds(1, 60_000_000_000, 2).expect("these bounds are allowed")
}

impl DurationHistogram {
    /// As seconds, from nanoseconds.
    pub(crate) fn of_ns(name: &'static str, hdr: &Hdr<u64>) -> Self {
        let s = |ns: u64| ns as f64 / 1e9;
        Self {
            name,
            unit: "s",
            count: hdr.len(),
            min: s(hdr.min()),
            mean: hdr.mean() / 1e9,
            max: s(hdr.max()),
            quantiles: QUANTILES.map(|(name, q)| (name, s(hdr.value_at_quantile(q)))).into(),
            buckets: hdr
                .iter_recorded()
                .map(|step| (s(step.value_iterated_to()), step.count_since_last_iteration()))
                .collect(),
        }
    }
}

/// What a probe fills in while it runs.
#[derive(Debug)]
pub struct ProbeResult {
    /// The probe's name.
    probe: &'static str,
    /// Its metrics, as its table has them.
    known_metrics: &'static [ProbeMetric],
    /// Its histograms, as its table has them.
    known_histograms: &'static [(&'static str, &'static str)],
    params: BTreeMap<String, OptionValue>,
    facts: BTreeMap<&'static str, String>,
    checks: Vec<ResultCheck>,
    metrics: Vec<MetricValue>,
    histograms: Vec<DurationHistogram>,
    warnings: Vec<String>,
}

impl ProbeResult {
    pub(crate) fn new(
        probe: &'static str,
        known_metrics: &'static [ProbeMetric],
        known_histograms: &'static [(&'static str, &'static str)],
        args: &Args,
    ) -> Self {
        Self {
            probe,
            known_metrics,
            known_histograms,
            params: args.values(),
            facts: BTreeMap::new(),
            checks: Vec::new(),
            metrics: Vec::new(),
            histograms: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a value of the metric `name` of the probe's table; the row can be
    /// given a repeat, a thread and labels.
    pub(crate) fn push(&mut self, name: &str, value: f64) -> &mut MetricValue {
        let def = self.known_metrics.iter().find(|def| def.name == name);
        let def = def.unwrap_or_else(|| unreachable!("the table has no metric {name}"));
        if !value.is_finite() {
            self.check(name.to_owned(), false, format!("{value} is no number"));
        }
        self.metrics.push(MetricValue {
            name: def.name,
            value: if value.is_finite() { value } else { 0.0 },
            unit: def.unit,
            better: def.better,
            kind: def.kind,
            per: def.per,
            repeat: None,
            thread: None,
            labels: BTreeMap::new(),
        });
        self.metrics.last_mut().expect("a row was just pushed")
    }

    /// Adds a check of the result.
    pub(crate) fn check(&mut self, name: impl Into<String>, ok: bool, detail: impl Into<String>) {
        self.checks.push(ResultCheck { name: name.into(), ok, detail: detail.into() });
    }

    /// Adds something that a reader of the values must know, once.
    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds something found out about the guest.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.facts.insert(name, value.into());
    }

    /// Says the value that an option left to the probe took.
    pub(crate) fn param(&mut self, name: &str, value: OptionValue) {
        self.params.insert(name.to_owned(), value);
    }

    /// Adds the histogram `name` of the probe's table.
    pub(crate) fn histogram(&mut self, name: &str, hdr: &Hdr<u64>) {
        let known = self.known_histograms.iter().find(|(known, _)| *known == name);
        let (name, _) = known.unwrap_or_else(|| unreachable!("the table has no histogram {name}"));
        self.histograms.push(DurationHistogram::of_ns(name, hdr));
    }

    pub(crate) fn finish(self, costs: GuestCosts) -> RunDocument {
        RunDocument {
            probe: self.probe,
            version: env!("CARGO_PKG_VERSION"),
            arch: std::env::consts::ARCH,
            params: self.params,
            facts: self.facts,
            verified: !self.checks.is_empty() && self.checks.iter().all(|check| check.ok),
            checks: self.checks,
            metrics: self.metrics,
            histograms: self.histograms,
            warnings: self.warnings,
            costs,
        }
    }
}

impl MetricValue {
    /// Says in which repeat the value was measured.
    pub(crate) fn repeat(&mut self, repeat: usize) -> &mut Self {
        self.repeat = Some(repeat);
        self
    }

    /// Says which thread the value covers.
    pub(crate) fn thread(&mut self, thread: usize) -> &mut Self {
        self.thread = Some(thread);
        self
    }

    /// Says what tells the value from others of its metric.
    pub(crate) fn label(&mut self, name: &'static str, value: impl Into<String>) -> &mut Self {
        self.labels.insert(name, value.into());
        self
    }
}
