//! The shape of a row of the table of probes.

use crate::args::Args;
use crate::document::ProbeResult;
pub(crate) use crate::error::ErrorContext;
pub use crate::error::ProbeError;
pub use crate::metric::ProbeMetric;
pub(crate) use crate::option::{CPUS, REPEAT, SECONDS, THREADS, WARMUP};
pub use crate::option::{Opt, OptionDefault, OptionType};

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
    pub metrics: &'static [ProbeMetric],
    /// Histograms it yields, each with what it holds.
    pub histograms: &'static [(&'static str, &'static str)],
    /// Options of the example in the documentation.
    pub example: &'static str,
    pub(crate) run: fn(&Args, &mut ProbeResult) -> Result<(), ProbeError>,
}

impl Probe {
    /// What a run of it fills in.
    pub(crate) fn outcome(&self, args: &Args) -> ProbeResult {
        ProbeResult::new(self.name, self.metrics, self.histograms, args)
    }
}
