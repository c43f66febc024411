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
pub(crate) const SECONDS: Opt = Opt {
    name: "seconds",
    kind: OptionType::Float(0.001, 86_400.0),
    default: OptionDefault::Float(0.5),
    unit: "s",
    help: "How long one repeat measures",
};

/// How often the measurement is repeated.
pub(crate) const REPEAT: Opt = Opt {
    name: "repeat",
    kind: OptionType::Int(1, 100_000),
    default: OptionDefault::Int(3),
    unit: "",
    help: "How often it measures; every repeat's values are printed",
};

/// How long the probe runs before it measures.
pub(crate) const WARMUP: Opt = Opt {
    name: "warmup",
    kind: OptionType::Float(0.0, 86_400.0),
    default: OptionDefault::Float(0.1),
    unit: "s",
    help: "How long it runs before the first repeat",
};

/// How many threads work.
pub(crate) const THREADS: Opt = Opt {
    name: "threads",
    kind: OptionType::Int(1, 1024),
    default: OptionDefault::PerVcpu,
    unit: "",
    help: "Threads that work",
};

/// Where threads run.
pub(crate) const CPUS: Opt = Opt {
    name: "cpus",
    kind: OptionType::Vcpus,
    default: OptionDefault::Text(""),
    unit: "",
    help: "vCPUs that the threads are pinned to, one after the other; empty leaves them free",
};
