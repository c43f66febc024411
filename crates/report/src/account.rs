//! A difference taken apart by what exits, interrupts and wake-ups cost on the
//! host: the data of it, and its words.

use record::{Environment, Unit};
use serde::{Deserialize, Serialize};

use crate::quantity::{event_count, percent};
use crate::{CountOf, Estimate, Report};

/// What became of the differences' accounts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prices", rename_all = "kebab-case")]
pub enum Accounting {
    /// There is no price list of the study's host.
    Missing,
    /// There is one, and it is not of the study's host and environment.
    Unfit {
        /// What is not the same, at least one.
        why: Vec<Unfit>,
    },
    /// There is one of the same host and environment.
    Used {
        /// One for each load x workload x variant whose difference is known.
        accounts: Vec<Account>,
    },
}

/// Why a price list says nothing of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "unfit", rename_all = "kebab-case")]
pub enum Unfit {
    /// Times there are emulated time, in the list or in the study.
    EmulatedTime {
        /// Where.
        environment: Environment,
    },
    /// They are of two environments.
    OtherEnvironment {
        /// The list's.
        list: Environment,
        /// The study's.
        study: Environment,
    },
    /// They are of two hosts, kernels or QEMUs.
    Other {
        /// Which of these.
        what: HostFact,
        /// The list's.
        list: Option<String>,
        /// The study's.
        study: Option<String>,
    },
    /// KVM executed the guest in software when the prices were taken.
    SoftwareKvm,
    /// KVM's counters could not be read then, so that nobody knows what was paid for.
    NotCounted,
    /// The clock's rate was not known then.
    NoClock,
}

/// What tells one host from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFact {
    /// The processor's model.
    Processor,
    /// The host's kernel.
    Kernel,
    /// QEMU's version.
    Qemu,
}

/// The difference between a variant and the baseline, taken apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The metric's name.
    pub metric: String,
    /// The variant.
    pub variant: String,
    /// What all values are of: a run, or an operation of the benchmark.
    pub of: CountOf,
    /// Blocks that it rests on.
    pub blocks: u32,
    /// Variant less baseline, s; where the clock counts instructions, 1 ns each.
    pub difference: Estimate,
    /// What each kind of event explains of it, the greatest first.
    pub parts: Vec<Part>,
    /// The difference less all parts, s.
    pub unexplained: Estimate,
    /// Events that were more or fewer, and have no price.
    pub unpriced: Vec<Unpriced>,
}

/// What one kind of event explains of a difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The events.
    pub event: PricedEvent,
    /// How many more the variant has, the mean of the blocks.
    pub count: f64,
    /// What one costs, s.
    pub price: Estimate,
    /// The product, s.
    pub amount: Estimate,
}

/// Events that have no price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unpriced {
    /// The events.
    pub event: PricedEvent,
    /// How many more the variant has, the mean of the blocks.
    pub count: f64,
    /// The operation of the thin guest that has their price.
    pub operation: String,
    /// Why it has none here.
    pub why: NoPrice,
}

/// Why an operation has no price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoPrice {
    /// It is not in the list.
    NotMeasured,
    /// KVM did not count the event when it was measured: it cost nothing then, as
    /// with memory that huge pages back.
    NotTheEvent,
}

/// A kind of event that has a price. No exit is in two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PricedEvent {
    /// An IPI that wakes a halted vCPU: sending, the exit by HLT, waking.
    IpiToHalted,
    /// An IPI to a vCPU that runs.
    IpiToRunning,
    /// A wake-up from HLT by something else than an IPI.
    Wakeup,
    /// An access to a device's memory that QEMU handles.
    DeviceMemory,
    /// An access to an I/O port.
    Port,
    /// A hypercall that is no IPI.
    Hypercall,
    /// A nested page fault.
    PageFault,
    /// An exit that belongs to none of these, at the price of the cheapest.
    OtherExit,
}

impl PricedEvent {
    /// What many of them are called.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::IpiToHalted => "IPIs to halted vCPUs",
            Self::IpiToRunning => "IPIs to running vCPUs",
            Self::Wakeup => "HLT exits woken by no IPI",
            Self::DeviceMemory => "device memory (MMIO) in QEMU",
            Self::Port => "I/O ports",
            Self::Hypercall => "hypercalls",
            Self::PageFault => "EPT/NPT faults",
            Self::OtherExit => "other exits, at least",
        }
    }
}

/// Seconds, or where the clock counts them instructions.
struct Amounts {
    unit: Unit,
    scale: f64,
}

impl Amounts {
    fn of(report: &Report) -> Self {
        if report.environment.is_deterministic() {
            Self { unit: Unit::from("count"), scale: 1e9 }
        } else {
            Self { unit: Unit::from("s"), scale: 1.0 }
        }
    }

    /// `+0.230 s`
    fn signed(&self, seconds: f64) -> String {
        let sign = if seconds < 0.0 { "-" } else { "+" };
        format!("{sign}{}", self.plain(seconds.abs()))
    }

    fn plain(&self, seconds: f64) -> String {
        self.unit.show(seconds * self.scale)
    }

    /// `±0.05 s`; empty without an interval.
    fn width(&self, estimate: &Estimate) -> String {
        let width = |span: crate::Span| format!("±{}", self.plain((span.hi - span.lo) / 2.0));
        estimate.interval.map_or(String::new(), width)
    }
}

/// Columns of an account's table behind the first, which names the events.
pub(crate) const HEADS: [&str; 4] = ["more", "each", "makes", "interval"];

impl Account {
    /// Heading of its table.
    pub(crate) fn title(&self, report: &Report, baseline: &str) -> String {
        let Self { variant, workload, load, .. } = self;
        let (of, in_what) = (
            match self.of {
                CountOf::Operation => "an operation",
                CountOf::Run | CountOf::End => "a run",
            },
            if report.environment.is_deterministic() { "instructions" } else { "seconds" },
        );
        format!(
            "The account in {in_what}, {of} of {workload} ({load}), {} intervals: {variant} against {baseline}",
            percent(report.method.level)
        )
    }

    /// The whole of it in one sentence.
    pub(crate) fn sentence(&self, report: &Report, baseline: &str) -> String {
        let amounts = Amounts::of(report);
        let total = self.difference.centre;
        let more = if total < 0.0 { "less" } else { "more" };
        let executes = if report.environment.is_deterministic() { "executes" } else { "takes" };
        let what = if report.environment.is_deterministic() { " instructions" } else { "" };
        let mut text = format!(
            "{} {executes} {}{what} {more} than {baseline}",
            self.variant,
            amounts.plain(total.abs())
        );
        let width = amounts.width(&self.difference);
        if !width.is_empty() {
            text += &format!(" ({width})");
        }
        text += ": ";
        for part in &self.parts {
            let Part { event, amount, .. } = part;
            let width = amounts.width(amount);
            let space = if width.is_empty() { "" } else { " " };
            text +=
                &format!("{} {}{space}{width}, ", event.plural(), amounts.signed(amount.centre));
        }
        let width = amounts.width(&self.unexplained);
        let space = if width.is_empty() { "" } else { " " };
        text + &format!("unexplained {}{space}{width}.", amounts.signed(self.unexplained.centre))
    }

    /// The rows of its table: what, and one text for each of [`HEADS`].
    pub(crate) fn rows(&self, report: &Report) -> Vec<[String; 5]> {
        let amounts = Amounts::of(report);
        let count = |count: f64| {
            let sign = if count < 0.0 { "-" } else { "+" };
            format!("{sign}{}", event_count(count.abs()))
        };
        let row = |name: &str, count: String, each: String, amount: &Estimate| {
            let (makes, width) = (amounts.signed(amount.centre), amounts.width(amount));
            [name.to_owned(), count, each, makes, width]
        };
        let parts = self.parts.iter().map(|part| {
            let each = amounts.plain(part.price.centre);
            row(part.event.plural(), count(part.count), each, &part.amount)
        });
        let none = String::new;
        parts
            .chain([
                row("unexplained", none(), none(), &self.unexplained),
                row("difference", none(), none(), &self.difference),
            ])
            .collect()
    }

    /// What a reader of it must know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let unpriced = self.unpriced.iter().map(|unpriced| {
            let Unpriced { event, count, operation, why } = unpriced;
            let many = format!("{} {}", event_count(count.abs()), event.plural());
            let more = if *count < 0.0 { "fewer" } else { "more" };
            match why {
                NoPrice::NotMeasured => format!(
                    "Without a price: {many} {more}. `vmlab calibrate --all` measures {operation}."
                ),
                NoPrice::NotTheEvent => format!(
                    "Without a price: {many} {more}. KVM counted none of them when {operation} was measured."
                ),
            }
        });
        let at_once = "Parts are time of vCPUs. What several vCPUs, or a vCPU and the rest of the \
                       benchmark, spend at the same time counts each, so that what is unexplained \
                       may be less than nothing. A wake-up counts as an IPI's as long as there \
                       are IPIs.";
        unpriced.chain([at_once.to_owned()]).collect()
    }
}

/// What is to be said where there is no account: of the whole report, once.
pub(crate) fn why_none(report: &Report) -> Option<String> {
    match report.accounting.as_ref()? {
        Accounting::Used { .. } => None,
        Accounting::Missing => {
            let text = "No account in seconds: there is no price list of this host. `vmlab \
                        calibrate --all --out prices.json` makes one there, `vmlab report DIR \
                        --prices prices.json` uses it.";
            Some(text.to_owned())
        }
        Accounting::Unfit { why } => {
            let why: Vec<String> = why.iter().map(Unfit::to_string).collect();
            Some(format!("No account in seconds: {}.", why.join("; ")))
        }
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EmulatedTime { environment } => {
                write!(f, "times are emulated time ({environment}), which is no price and no speed")
            }
            Self::OtherEnvironment { list, study } => {
                write!(f, "the prices are of another environment ({list}, not {study})")
            }
            Self::Other { what, list, study } => {
                let what = match what {
                    HostFact::Processor => "processor",
                    HostFact::Kernel => "host kernel",
                    HostFact::Qemu => "QEMU",
                };
                let shown = |fact: &Option<String>| {
                    fact.as_ref()
                        .map_or("one that is not known".to_owned(), |fact| format!("{fact:?}"))
                };
                write!(
                    f,
                    "the prices are of another {what} ({}, not {})",
                    shown(list),
                    shown(study)
                )
            }
            Self::SoftwareKvm => f.write_str(
                "the prices were taken under a KVM that executes guests in software: they are \
                 emulated time",
            ),
            Self::NotCounted => f.write_str(
                "KVM's counters could not be read when the prices were taken, so what they are \
                 of is not known: calibrate as root, or with QEMU 7.1 or later",
            ),
            Self::NoClock => {
                f.write_str("the rate of the clock was not known when the prices were taken")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_a_part_of_a_sentence() {
        let check = |why: Unfit, expected: &str| assert_eq!(why.to_string(), expected);
        check(
            Unfit::EmulatedTime { environment: Environment::Tcg },
            "times are emulated time (emulated (TCG)), which is no price and no speed",
        );
        check(
            Unfit::Other { what: HostFact::Kernel, list: Some("6.1.0".to_owned()), study: None },
            "the prices are of another host kernel (\"6.1.0\", not one that is not known)",
        );
        check(
            Unfit::OtherEnvironment { list: Environment::NestedKvm, study: Environment::Kvm },
            "the prices are of another environment (KVM on emulated host, not KVM)",
        );
    }
}
