//! The words of an account.

use record::Unit;

use crate::quantity::{event_count, percent};
use crate::{
    AccountPart, Accounting, CountScope, HostFact, NoPrice, OtherSetting, PricedEvent,
    ReasonSource, Report, ShownEstimate, UnfitPrices, UnpricedEvents, VariantAccount,
};

/// The unit of an account: seconds, or instructions where the clock counts those.
struct AccountUnit {
    unit: Unit,
    scale: f64,
}

impl AccountUnit {
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
    fn width(&self, estimate: &ShownEstimate) -> String {
        let width =
            |span: crate::ShownInterval| format!("±{}", self.plain((span.hi - span.lo) / 2.0));
        estimate.interval.map_or(String::new(), width)
    }
}

/// Columns of an account's table behind the first, which names the events.
pub(crate) const HEADS: [&str; 4] = ["more", "each", "makes", "interval"];

impl VariantAccount {
    /// Heading of its table.
    pub(crate) fn title(&self, report: &Report, baseline: &str) -> String {
        let Self { variant, workload, load, .. } = self;
        let (of, in_what) = (
            match self.of {
                CountScope::Operation => "an operation",
                CountScope::Run | CountScope::End => "a run",
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
        let amounts = AccountUnit::of(report);
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
            let AccountPart { event, amount, .. } = part;
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
        let amounts = AccountUnit::of(report);
        let count = |count: f64| {
            let sign = if count < 0.0 { "-" } else { "+" };
            format!("{sign}{}", event_count(count.abs()))
        };
        let row = |name: &str, count: String, each: String, amount: &ShownEstimate| {
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
            let UnpricedEvents { event, count, operation, why } = unpriced;
            let many = format!("{} {}", event_count(count.abs()), event.plural());
            let more = if *count < 0.0 { "fewer" } else { "more" };
            match why {
                NoPrice::NotMeasured => format!(
                    "Without a price: {many} {more}. `vmlab calibrate --all` measures {operation}."
                ),
                NoPrice::NotTheEvent if *event == PricedEvent::Sleep => format!(
                    "Without a price: {many} {more}. KVM polled as many halts of timer-halt as \
                     of {operation}: it does not where halt_poll_ns is what KVM sets by itself."
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
        let otherwise = self.exits_by_reason_only.map(|place| {
            match place {
                ReasonSource::Trials => {
                    "Exits were counted by reason in the trials, which takes time at each, and not \
                     when the prices were taken: what that takes is unexplained. `vmlab calibrate \
                     --all --as-in-trials` takes prices with it."
                }
                ReasonSource::Prices => {
                    "Exits were counted by reason when the prices were taken, which takes time at \
                     each, and not in the trials: prices are too high. `vmlab calibrate --all` \
                     takes them without."
                }
            }
            .to_owned()
        });
        unpriced.chain(otherwise).chain([at_once.to_owned()]).collect()
    }
}

/// What is to be said of the prices, of the whole report once: why there is no account, or
/// what was not the same when they were taken.
pub(crate) fn of_prices(report: &Report) -> Option<String> {
    match report.accounting.as_ref()? {
        Accounting::Used { other_settings, .. } => {
            let said =
                |one: &OtherSetting| format!("{} {}, not {}", one.setting, one.list, one.study);
            let all: Vec<String> = other_settings.iter().map(said).collect();
            (!all.is_empty()).then(|| {
                format!(
                    "The prices of the account were taken with other settings of the host: {}.",
                    all.join("; ")
                )
            })
        }
        Accounting::Missing => {
            let text = "No account in seconds: there is no price list of this host. `vmlab \
                        calibrate --all --as-in-trials --out prices.json` makes one there, \
                        `vmlab report DIR --prices prices.json` uses it.";
            Some(text.to_owned())
        }
        Accounting::Unfit { why } => {
            let why: Vec<String> = why.iter().map(UnfitPrices::to_string).collect();
            Some(format!("No account in seconds: {}.", why.join("; ")))
        }
    }
}

impl std::fmt::Display for UnfitPrices {
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
                    HostFact::Name => "host",
                    HostFact::Architecture => "guest architecture",
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
    use record::Environment;

    use super::*;

    #[test]
    fn every_reason_is_a_part_of_a_sentence() {
        let check = |why: UnfitPrices, expected: &str| assert_eq!(why.to_string(), expected);
        check(
            UnfitPrices::EmulatedTime { environment: Environment::Tcg },
            "times are emulated time (emulated (TCG)), which is no price and no speed",
        );
        check(
            UnfitPrices::Other {
                what: HostFact::Kernel,
                list: Some("6.1.0".to_owned()),
                study: None,
            },
            "the prices are of another host kernel (\"6.1.0\", not one that is not known)",
        );
        check(
            UnfitPrices::OtherEnvironment { list: Environment::NestedKvm, study: Environment::Kvm },
            "the prices are of another environment (KVM on emulated host, not KVM)",
        );
    }
}
