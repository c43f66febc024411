//! What metrics of probes look like.

/// A metric that a probe yields.
#[derive(Debug, Clone, Copy)]
pub struct ProbeMetric {
    /// Name, unique inside the probe: lower case, digits, `-`.
    pub name: &'static str,
    /// Base unit: `s`, `B`, `1/s`, `B/s`, `count`, `ratio`.
    pub unit: &'static str,
    /// Which direction is better: `lower` or `higher`.
    pub better: &'static str,
    /// What sort of quantity it is: `time`, `rate`, `quantile` or `count`.
    pub kind: &'static str,
    /// What one value covers: `total` or `thread`.
    pub per: &'static str,
    /// What it measures, one sentence without a full stop.
    pub help: &'static str,
}

impl ProbeMetric {
    /// A rate of the whole run, the more the better.
    pub(crate) const fn rate(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, unit, better: "higher", kind: "rate", per: "total", help }
    }

    /// A duration or a mean latency in seconds, the less the better.
    pub(crate) const fn time(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "s", better: "lower", kind: "time", per: "total", help }
    }

    /// A quantile of a latency in seconds, the less the better.
    pub(crate) const fn quantile(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "s", better: "lower", kind: "quantile", per: "total", help }
    }

    /// A number of events, the fewer the better.
    pub(crate) const fn count(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "count", better: "lower", kind: "count", per: "total", help }
    }

    /// Events by what was done, which are compared as parts of a whole are.
    pub(crate) const fn per(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "ratio", better: "lower", kind: "count", per: "total", help }
    }

    /// A part of a whole, the more the better.
    pub(crate) const fn ratio(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "ratio", better: "higher", kind: "count", per: "total", help }
    }

    /// The same metric with one value a thread.
    pub(crate) const fn per_thread(self) -> Self {
        Self { per: "thread", ..self }
    }
}
