//! The shape of a row of the table of probes.

use crate::args::Args;
use crate::document::Outcome;
pub use crate::error::ProbeError;
pub(crate) use crate::error::Tried;
pub use crate::metric::MetricDef;
pub(crate) use crate::option::{CPUS, REPEAT, SECONDS, THREADS, WARMUP};
pub use crate::option::{Default, Kind, Opt};

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

impl Probe {
    /// What a run of it fills in.
    pub(crate) fn outcome(&self, args: &Args) -> Outcome {
        Outcome::new(self.name, self.metrics, self.histograms, args)
    }
}
