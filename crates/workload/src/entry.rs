//! The shape of a row of the catalogue.

use std::collections::BTreeMap;

use record::{BetterDirection, Metric, MetricKind, Unit};

pub use crate::guest_facts::GuestFacts;
use crate::param::ParamValue;
pub use crate::param::{DefaultValue, ExampleParam, Param, ParamKind};
use crate::roles::{GuestStep, RoleCommands, UnderTest};
use crate::{CommandOutput, ParamError, Params, ParseError, ParsedOutput};

/// One benchmark: its texts, its parameters, its metrics, how it is started
/// and how its output is read.
#[derive(Debug)]
pub struct CatalogueEntry {
    /// Name in study files and reports: lower case, digits, `-`.
    pub name: &'static str,
    /// One line, without a full stop.
    pub summary: &'static str,
    /// What it does and what to know about it, as Markdown.
    pub about: &'static str,
    /// What its numbers say about a VM, one sentence.
    pub measures: &'static str,
    /// Programs that must be in the guest that runs the command.
    pub needs: &'static [&'static str],
    /// What stands beside the command.
    pub beside: RoleCommands,
    /// What a study can set.
    pub params: &'static [Param],
    /// What it yields.
    pub metrics: &'static [MetricDef],
    /// How it repeats inside one boot, and what one sample is.
    pub repeats: &'static str,
    /// Parameters of the example in the documentation.
    pub example: &'static [ExampleParam],
    pub(crate) command: fn(&Params, &GuestFacts) -> Vec<String>,
    pub(crate) parse:
        fn(CommandOutput<'_>, &Params, &GuestFacts) -> Result<ParsedOutput, ParseError>,
    pub(crate) duration_s: fn(&Params, &GuestFacts) -> f64,
}

/// A metric that a benchmark yields.
#[derive(Debug)]
pub struct MetricDef {
    /// Name, unique inside the benchmark: lower case, digits, `.`, `-`.
    pub name: &'static str,
    /// Base unit of every sample: `s`, `B`, `1/s`, `B/s`, `count`.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: BetterDirection,
    /// What sort of quantity it is.
    pub kind: MetricKind,
    /// True for the metric that a study compares by default; of several, the
    /// first that exists with the study's parameters.
    pub primary: bool,
    /// What one sample covers.
    pub scope: Scope,
    /// True if a run may end well without a sample of it; the help says when.
    pub optional: bool,
    /// The parameter and its words with which alone the metric exists.
    pub only_with: Option<(&'static str, &'static [&'static str])>,
    /// What it measures, one sentence without a full stop.
    pub help: &'static str,
}

/// What one sample of a metric covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole run: one sample a run.
    Total,
    /// One thread of the benchmark: as many samples a run as it has threads.
    Thread,
}

impl CatalogueEntry {
    /// Checks what a study gives and fills in the defaults.
    ///
    /// # Errors
    /// [`ParamError`] names the key, the value, what is allowed, and the
    /// nearest match.
    pub fn resolve(&self, given: &BTreeMap<String, ParamValue>) -> Result<Params, ParamError> {
        Params::resolve(self.name, self.params, given)
    }

    /// The command to run in the guest: program and arguments, no shell.
    ///
    /// Its standard output must be captured by a pipe: tools that can only
    /// write machine-readable results to a file are pointed at `/dev/stdout`,
    /// and opening that truncates a regular file.
    #[must_use]
    pub fn command(&self, params: &Params, facts: &GuestFacts) -> Vec<String> {
        (self.command)(params, facts)
    }

    /// Reads what the command printed, all of it or nothing.
    ///
    /// Samples are in the base units of [`CatalogueEntry::metrics`]. The exit status is
    /// not looked at; a tool that failed without printing its results is
    /// refused here as well.
    ///
    /// # Errors
    /// [`ParseError`] names the line and its text.
    pub fn parse(
        &self,
        output: CommandOutput<'_>,
        params: &Params,
        facts: &GuestFacts,
    ) -> Result<ParsedOutput, ParseError> {
        (self.parse)(output, params, facts)
    }

    /// What is done in the client's guest (the only one of most benchmarks)
    /// before the first invocation.
    #[must_use]
    pub fn setup(&self, params: &Params, facts: &GuestFacts) -> Vec<GuestStep> {
        (self.beside.setup)(params, facts)
    }

    /// What is done in the server's guest before that; nothing where there is
    /// no such role.
    #[must_use]
    pub fn server_setup(&self, params: &Params, facts: &GuestFacts) -> Vec<GuestStep> {
        self.beside.server.as_ref().map_or_else(Vec::new, |server| (server.setup)(params, facts))
    }

    /// Size of the empty disk that the benchmark wants, MiB; 0 for none.
    #[must_use]
    pub fn scratch_mib(&self, params: &Params, facts: &GuestFacts) -> u64 {
        (self.beside.scratch_mib)(params, facts)
    }

    /// Disks that it wants themselves, without a file system; 0 for none.
    #[must_use]
    pub fn raw_disks(&self, params: &Params) -> u32 {
        (self.beside.raw_disks)(params)
    }

    /// The role of the VM under test where a study names none.
    #[must_use]
    pub fn under_test(&self) -> UnderTest {
        self.beside.server.as_ref().map_or(UnderTest::Both, |server| server.under_test)
    }

    /// Rough duration of one run in seconds, for plans and time limits; above 0.
    #[must_use]
    pub fn duration_s(&self, params: &Params, facts: &GuestFacts) -> f64 {
        (self.duration_s)(params, facts)
    }

    /// The metric that a study compares by default, if all exist.
    #[must_use]
    pub fn primary(&self) -> &'static MetricDef {
        self.metrics.iter().find(|metric| metric.primary).expect("the table's tests ask for one")
    }

    /// The metrics that exist with these parameters.
    pub fn metrics(&self, params: &Params) -> impl Iterator<Item = &'static MetricDef> {
        self.metrics.iter().filter(|metric| {
            metric.only_with.is_none_or(|(param, words)| {
                params.text_if_given(param).is_some_and(|word| words.contains(&word))
            })
        })
    }

    /// The metric called `name`.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&'static MetricDef> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// A rate of events: more is better.
pub(crate) const fn rate(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "1/s", BetterDirection::Higher, MetricKind::Rate, help)
}

/// A bandwidth: more is better.
pub(crate) const fn bytes(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "B/s", BetterDirection::Higher, MetricKind::Rate, help)
}

/// A time: less is better.
pub(crate) const fn time(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", BetterDirection::Lower, MetricKind::Time, help)
}

/// A quantile of times: less is better.
pub(crate) const fn quantile(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", BetterDirection::Lower, MetricKind::Quantile, help)
}

/// Events: fewer are better.
pub(crate) const fn count(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "count", BetterDirection::Lower, MetricKind::Count, help)
}

/// Events by what was done: a number of hundredths, not one of whole events, is compared.
pub(crate) const fn per(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "ratio", BetterDirection::Lower, MetricKind::Count, help)
}

impl MetricDef {
    /// One sample a run, not the primary metric, never absent.
    pub(crate) const fn new(
        name: &'static str,
        unit: &'static str,
        better: BetterDirection,
        kind: MetricKind,
        help: &'static str,
    ) -> Self {
        let (primary, scope, optional, only_with) = (false, Scope::Total, false, None);
        Self { name, unit, better, kind, primary, scope, optional, only_with, help }
    }

    /// The metric that a study compares by default.
    pub(crate) const fn primary(mut self) -> Self {
        self.primary = true;
        self
    }

    /// It exists only where `param` is one of `words`.
    pub(crate) const fn only_with(
        mut self,
        param: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        self.only_with = Some((param, words));
        self
    }

    /// One sample a thread.
    pub(crate) const fn per_thread(mut self) -> Self {
        self.scope = Scope::Thread;
        self
    }

    /// A run may end well without it.
    pub(crate) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// As records hold it.
    #[must_use]
    pub fn to_metric(&self) -> Metric {
        Metric {
            name: self.name.to_owned(),
            unit: Unit::from(self.unit),
            better: self.better,
            kind: self.kind,
        }
    }
}
