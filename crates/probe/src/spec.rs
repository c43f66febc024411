//! The shape of a row of the table of probes.

use std::io;

use crate::args::Args;
use crate::document::Outcome;

/// One probe: its texts, options and metrics, and how it runs.
#[derive(Debug)]
pub struct Probe {
    /// Its name on the command line: lower case, digits, `-`.
    pub name: &'static str,
    /// One line, without a full stop.
    pub summary: &'static str,
    /// What it does and what to know about it, as Markdown.
    pub about: &'static str,
    /// How it checks its own result, one sentence.
    pub verifies: &'static str,
    /// What can be set.
    pub options: &'static [Opt],
    /// What it yields.
    pub metrics: &'static [MetricDef],
    /// Histograms it yields, each with what it holds.
    pub histograms: &'static [(&'static str, &'static str)],
    /// Options of the example in the documentation.
    pub example: &'static str,
    pub(crate) run: fn(&Args, &mut Outcome) -> Result<(), ProbeError>,
}

/// An option of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// Its name without the dashes: lower case, `-`.
    pub name: &'static str,
    /// Its type and allowed values.
    pub kind: Kind,
    /// Its value when it is not given.
    pub default: Default,
    /// Unit of the value, or nothing.
    pub unit: &'static str,
    /// What it does, one sentence without a full stop.
    pub help: &'static str,
}

/// Type and allowed values of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number from the first to the second, both included.
    Int(i64, i64),
    /// A number from the first to the second, both included.
    Float(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of vCPUs such as `0,2-3`; empty leaves threads free.
    Vcpus,
    /// Any text, such as an address or a folder.
    Text,
}

/// An option's default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    /// This whole number.
    Int(i64),
    /// This number.
    Float(f64),
    /// This word, text or list of vCPUs.
    Text(&'static str),
    /// As many as the process may use vCPUs.
    PerVcpu,
}

/// A metric that a probe yields.
#[derive(Debug, Clone, Copy)]
pub struct MetricDef {
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

impl MetricDef {
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

    /// A part of a whole, the more the better.
    pub(crate) const fn ratio(name: &'static str, help: &'static str) -> Self {
        Self { name, unit: "ratio", better: "higher", kind: "count", per: "total", help }
    }

    /// The same metric with one value a thread.
    pub(crate) const fn per_thread(self) -> Self {
        Self { per: "thread", ..self }
    }
}

/// How long one repeat measures.
pub(crate) const SECONDS: Opt = Opt {
    name: "seconds",
    kind: Kind::Float(0.001, 86_400.0),
    default: Default::Float(0.5),
    unit: "s",
    help: "How long one repeat measures",
};

/// How often the measurement is repeated.
pub(crate) const REPEAT: Opt = Opt {
    name: "repeat",
    kind: Kind::Int(1, 100_000),
    default: Default::Int(3),
    unit: "",
    help: "How often it measures; every repeat's values are printed",
};

/// How long the probe runs before it measures.
pub(crate) const WARMUP: Opt = Opt {
    name: "warmup",
    kind: Kind::Float(0.0, 86_400.0),
    default: Default::Float(0.1),
    unit: "s",
    help: "How long it runs before the first repeat",
};

/// How many threads work.
pub(crate) const THREADS: Opt = Opt {
    name: "threads",
    kind: Kind::Int(1, 1024),
    default: Default::PerVcpu,
    unit: "",
    help: "Threads that work",
};

/// Where threads run.
pub(crate) const CPUS: Opt = Opt {
    name: "cpus",
    kind: Kind::Vcpus,
    default: Default::Text(""),
    unit: "",
    help: "vCPUs that the threads are pinned to, one after the other; empty leaves them free",
};

/// Error type for a probe's run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The operating system refused.
    #[error("Cannot {what}")]
    Os {
        /// What was tried: `open /dev/null`.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Options that are each allowed but not together, or not on this machine.
    #[error("{0}")]
    Refused(String),
}

/// Names what was tried when the operating system refuses it.
pub(crate) trait Tried<T> {
    /// `what` completes "Cannot ...".
    fn tried(self, what: impl Into<String>) -> Result<T, ProbeError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, ProbeError> {
        self.map_err(|source| ProbeError::Os { what: what.into(), source: source.into() })
    }
}
