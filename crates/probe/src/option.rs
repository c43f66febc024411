//! What options of probes look like, and those that many have.

/// An option of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// Its name without the dashes: lower case, `-`.
    pub name: &'static str,
    /// Its type and allowed values.
    pub kind: OptionType,
    /// Its value when it is not given.
    pub default: OptionDefault,
    /// Unit of the value, or nothing.
    pub unit: &'static str,
    /// What it does, one sentence without a full stop.
    pub help: &'static str,
}

/// Type and allowed values of an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionType {
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
pub enum OptionDefault {
    /// This whole number.
    Int(i64),
    /// This number.
    Float(f64),
    /// This word, text or list of vCPUs.
    Text(&'static str),
    /// As many as the process may use vCPUs.
    PerVcpu,
}

impl Opt {
    const fn new(
        name: &'static str,
        kind: OptionType,
        default: OptionDefault,
        help: &'static str,
    ) -> Self {
        Self { name, kind, default, unit: "", help }
    }

    /// A whole number from `min` to `max`.
    pub(crate) const fn int(
        name: &'static str,
        (min, max): (i64, i64),
        default: i64,
        help: &'static str,
    ) -> Self {
        Self::new(name, OptionType::Int(min, max), OptionDefault::Int(default), help)
    }

    /// A number from `min` to `max`.
    pub(crate) const fn float(
        name: &'static str,
        (min, max): (f64, f64),
        default: f64,
        help: &'static str,
    ) -> Self {
        Self::new(name, OptionType::Float(min, max), OptionDefault::Float(default), help)
    }

    /// As many as the process may use vCPUs, unless it is told how many.
    pub(crate) const fn per_vcpu(name: &'static str, max: i64, help: &'static str) -> Self {
        Self::new(name, OptionType::Int(1, max), OptionDefault::PerVcpu, help)
    }

    /// One of `words`.
    pub(crate) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self::new(name, OptionType::Choice(words), OptionDefault::Text(default), help)
    }

    /// Any text.
    pub(crate) const fn text(
        name: &'static str,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self::new(name, OptionType::Text, OptionDefault::Text(default), help)
    }

    /// A list of vCPUs, empty unless it is given.
    pub(crate) const fn vcpus(name: &'static str, help: &'static str) -> Self {
        Self::new(name, OptionType::Vcpus, OptionDefault::Text(""), help)
    }

    /// Its value has this unit.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

impl std::fmt::Display for OptionType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(low, high) => write!(f, "a whole number from {low} to {high}"),
            Self::Float(low, high) => write!(f, "a number from {low} to {high}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Vcpus => write!(f, "a list of vCPUs such as 0,2-3"),
            Self::Text => write!(f, "text"),
        }
    }
}

impl std::fmt::Display for OptionDefault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text}"),
            Self::PerVcpu => write!(f, "one a vCPU"),
        }
    }
}

/// How long one repeat measures.
pub(crate) const SECONDS: Opt =
    Opt::float("seconds", (0.001, 86_400.0), 0.5, "How long one repeat measures").unit("s");

/// How often the measurement is repeated.
pub(crate) const REPEAT: Opt =
    Opt::int("repeat", (1, 100_000), 3, "How often it measures; every repeat's values are printed");

/// How long the probe runs before it measures.
pub(crate) const WARMUP: Opt =
    Opt::float("warmup", (0.0, 86_400.0), 0.1, "How long it runs before the first repeat")
        .unit("s");

/// How many threads work.
pub(crate) const THREADS: Opt = Opt::per_vcpu("threads", 1024, "Threads that work");

/// Where threads run.
pub(crate) const CPUS: Opt = Opt::vcpus(
    "cpus",
    "vCPUs that the threads are pinned to, one after the other; empty leaves them free",
);
