//! The shape of a row of the catalogue.

use core::net::Ipv4Addr;

use record::{Better, Metric, MetricKind, Unit};

use crate::roles::{Beside, Step, UnderTest};
use crate::{Output, Params, ParseError, Parsed};

/// One benchmark: its texts, its parameters, its metrics, how it is started
/// and how its output is read.
#[derive(Debug)]
pub struct Entry {
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
    pub beside: Beside,
    /// What a study can set.
    pub params: &'static [Param],
    /// What it yields.
    pub metrics: &'static [MetricDef],
    /// How it repeats inside one boot, and what one sample is.
    pub repeats: &'static str,
    /// Parameters of the example in the documentation.
    pub example: &'static [Example],
    pub(crate) command: fn(&Params, &GuestFacts) -> Vec<String>,
    pub(crate) parse: fn(Output<'_>, &Params, &GuestFacts) -> Result<Parsed, ParseError>,
    pub(crate) duration_s: fn(&Params, &GuestFacts) -> f64,
}

/// What a benchmark's command line depends on, beside its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestFacts {
    /// The guest's vCPUs: as many threads run where a study names no number.
    pub vcpus: u32,
    /// True if the guest's instructions are emulated (TCG), so all takes longer.
    pub emulated: bool,
    /// Address of the guest that plays the other role; the loopback's where
    /// one guest plays both.
    pub peer: Ipv4Addr,
}

/// A parameter that a study can set.
#[derive(Debug)]
pub struct Param {
    /// Its key in the study file: lower case, digits, `_`.
    pub name: &'static str,
    /// Its type and the values that are allowed.
    pub kind: ParamKind,
    /// Its value when the study doesn't name it.
    pub default: DefaultValue,
    /// Unit of the value, if it has one: `B`, `s`, `us`.
    pub unit: Option<&'static str>,
    /// What it does, one sentence without a full stop.
    pub help: &'static str,
}

/// Type and allowed values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// A whole number from the first to the second, both included.
    Int(i64, i64),
    /// True or false.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A name that the tool itself knows: lower case, digits, `-`.
    Name,
}

/// A parameter's default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// This number.
    Int(i64),
    /// This truth value.
    Bool(bool),
    /// This word.
    Text(&'static str),
    /// As many as the guest has vCPUs.
    PerVcpu,
    /// Not said, so the tool decides.
    Tool,
}

/// A parameter of an example: its name and its value in TOML.
pub type Example = (&'static str, DefaultValue);

/// A metric that a benchmark yields.
#[derive(Debug)]
pub struct MetricDef {
    /// Name, unique inside the benchmark: lower case, digits, `.`, `-`.
    pub name: &'static str,
    /// Base unit of every sample: `s`, `B`, `1/s`, `B/s`, `count`.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
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

impl Entry {
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
    /// Samples are in the base units of [`Entry::metrics`]. The exit status is
    /// not looked at; a tool that failed without printing its results is
    /// refused here as well.
    ///
    /// # Errors
    /// [`ParseError`] names the line and its text.
    pub fn parse(
        &self,
        output: Output<'_>,
        params: &Params,
        facts: &GuestFacts,
    ) -> Result<Parsed, ParseError> {
        (self.parse)(output, params, facts)
    }

    /// What is done in the client's guest (the only one of most benchmarks)
    /// before the first invocation.
    #[must_use]
    pub fn setup(&self, params: &Params, facts: &GuestFacts) -> Vec<Step> {
        (self.beside.setup)(params, facts)
    }

    /// What is done in the server's guest before that; nothing where there is
    /// no such role.
    #[must_use]
    pub fn server_setup(&self, params: &Params, facts: &GuestFacts) -> Vec<Step> {
        self.beside.server.as_ref().map_or_else(Vec::new, |server| (server.setup)(params, facts))
    }

    /// Size of the empty disk that the benchmark wants, MiB; 0 for none.
    #[must_use]
    pub fn scratch_mib(&self, params: &Params, facts: &GuestFacts) -> u64 {
        (self.beside.scratch_mib)(params, facts)
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

impl Param {
    /// A whole number from `min` to `max`.
    pub(crate) const fn int(
        name: &'static str,
        (min, max): (i64, i64),
        default: i64,
        help: &'static str,
    ) -> Self {
        let default = DefaultValue::Int(default);
        Self { name, kind: ParamKind::Int(min, max), default, unit: None, help }
    }

    /// As many as the guest has vCPUs, unless a study says how many.
    pub(crate) const fn per_vcpu(name: &'static str, max: i64, help: &'static str) -> Self {
        let default = DefaultValue::PerVcpu;
        Self { name, kind: ParamKind::Int(1, max), default, unit: None, help }
    }

    /// True or false.
    pub(crate) const fn bool(name: &'static str, default: bool, help: &'static str) -> Self {
        let default = DefaultValue::Bool(default);
        Self { name, kind: ParamKind::Bool, default, unit: None, help }
    }

    /// One of `words`.
    pub(crate) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        help: &'static str,
    ) -> Self {
        let default = DefaultValue::Text(default);
        Self { name, kind: ParamKind::Choice(words), default, unit: None, help }
    }

    /// Its value has this unit.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }
}

impl MetricDef {
    /// One sample a run, not the primary metric, never absent.
    pub(crate) const fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
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

/// Instructions of an emulated guest take about this many times longer; a
/// rough figure for plans, not a measurement.
pub(crate) const EMULATION_FACTOR: f64 = 15.0;

impl GuestFacts {
    /// A guest that talks to nobody but itself.
    #[must_use]
    pub const fn alone(vcpus: u32, emulated: bool) -> Self {
        Self { vcpus, emulated, peer: Ipv4Addr::LOCALHOST }
    }

    /// Seconds that `native_s` seconds of computing take in this guest, rough.
    pub(crate) fn computing_s(&self, native_s: f64) -> f64 {
        if self.emulated { native_s * EMULATION_FACTOR } else { native_s }
    }
}
