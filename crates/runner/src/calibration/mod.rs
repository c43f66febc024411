//! What exits, interrupts and wake-ups cost on a host: the price list that the thin
//! guest measures, with KVM's own counts beside the guest's.
//!
//! `calibration.json` is a format of its own, with a version that is read. A price is
//! one number a boot (the median of its samples, less what an empty sample takes),
//! and its interval is that between boots.

mod account;
mod agreement;
mod identity;
mod measure;

use std::collections::BTreeMap;

use record::{BetterDirection, Environment, ImportedValue, Labels, MetricKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::{BootStatistic, Estimate, Interval, SampleKind, describe};
use thinguest::Operation;
use vmconfig::Arch;

pub use agreement::{Agreement, Disagreement};
pub use identity::{ListDifference, settings_of};
pub(crate) use measure::skipped;
pub use measure::{CalibrateError, CalibrationRequest, Progress, calibrate};

/// The format's name.
const FORMAT: &str = "vmlab-calibration";
/// The format's version.
pub const FORMAT_VERSION: u32 = 1;
/// Level of the intervals.
const LEVEL: f64 = 0.95;

/// In what prices are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Cycles of the TSC.
    Cycles,
    /// Instructions: the emulator's clock is their count, 1 ns each.
    Instructions,
}

impl Count {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
        }
    }
}

/// A price list, and all that it depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// `vmlab-calibration`.
    pub format: String,
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Where it was measured.
    pub environment: Environment,
    /// In what it is counted.
    pub count: Count,
    /// The host's kernel; absent where the count does not depend on it.
    pub kernel: Option<String>,
    /// The host's processor; absent where the count does not depend on it.
    pub cpu_model: Option<String>,
    /// The host's name; absent as the kernel is, and in earlier lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Settings of the host that prices depend on, see [`settings_of`]; none as the kernel
    /// is, and in earlier lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_settings: BTreeMap<String, String>,
    /// QEMU, as it names itself.
    pub qemu: String,
    /// The guest's architecture.
    #[serde(default = "first_arch")]
    pub arch: String,
    /// The machine type, the CPU model and the vCPUs of the VM.
    pub machine: String,
    /// See [`Self::machine`].
    #[serde(rename = "cpu")]
    pub vcpu_model: String,
    /// See [`Self::machine`].
    pub vcpus: u32,
    /// The interrupt controller's mode: that of the local APIC, or the GIC's version.
    pub apic: String,
    /// The rate of the TSC, or of arm64's counter, kHz, as the guest knows it; 0 if it does
    /// not.
    pub tsc_khz: u64,
    /// Whether KVM's exits were counted by reason meanwhile, as in a study's trials, which
    /// takes time at each. Earlier lists were taken without.
    #[serde(default)]
    pub exits_by_reason: bool,
    /// What whoever reads the numbers must know.
    pub notes: Vec<String>,
    /// One for each operation, in the order in which they were measured.
    pub prices: Vec<Price>,
}

/// That of lists that name none: there was no other.
fn first_arch() -> String {
    "x86_64".to_owned()
}

/// What an operation costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// The operation.
    pub operation: String,
    /// What it is.
    pub summary: String,
    /// Samples a boot.
    pub n: u32,
    /// Operations a sample.
    pub batch: u32,
    /// One for each boot in which it was measured.
    pub boots: Vec<BootPrice>,
    /// Why it was not measured, or not in all boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The vCPUs' registers where the guest hung in it, as QEMU's monitor printed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<String>,
    /// What follows from all the list, for whoever reads the file: vmlab itself works it out
    /// anew. See [`Calibration::with_findings`].
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub found: Option<PriceFindings>,
}

/// What a price list says of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PriceFindings {
    /// Whether KVM counted what the guest did.
    pub agreement: Agreement,
    /// In units of [`Calibration::count`]; absent without a boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<NetPrice>,
    /// In nanoseconds; absent where instructions are counted or the clock's rate is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_ns: Option<NetPrice>,
}

/// What an operation costs, less the reading of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct NetPrice {
    /// The least sample of all boots.
    pub min: f64,
    /// The geometric mean of the boots' medians.
    pub centre: f64,
    /// Its interval between boots, 95 %; absent with one boot and where instructions are
    /// counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lo: Option<f64>,
    /// See [`Self::lo`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hi: Option<f64>,
    /// The greatest 99th percentile of the boots.
    pub p99: f64,
}

impl NetPrice {
    fn scaled(self, by: f64) -> Self {
        let Self { min, centre, lo, hi, p99 } = self;
        let scaled = |end: Option<f64>| end.map(|end| end * by);
        Self { min: min * by, centre: centre * by, lo: scaled(lo), hi: scaled(hi), p99: p99 * by }
    }
}

/// What it cost in one boot, in units of [`Calibration::count`] an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootPrice {
    /// The least.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The mean, which many of them together cost; earlier lists and those of
    /// emulated guests have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// IPIs that the guest sent and HLTs that it executed during the samples.
    pub ipis: u64,
    /// See [`Self::ipis`].
    pub hlts: u64,
    /// What KVM counted during the samples, by its own names, without what is 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kvm: BTreeMap<String, f64>,
}

/// Error type for [`Calibration::from_json`].
#[derive(Debug, thiserror::Error)]
pub enum NoCalibration {
    /// No JSON, or fields are missing.
    #[error("It is no calibration: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format.
    #[error("It is a {0:?}, not a \"vmlab-calibration\"")]
    Format(String),
    /// A version that this vmlab doesn't know.
    #[error("It has version {0}, and this vmlab reads version {FORMAT_VERSION}: use a newer vmlab")]
    Version(u32),
    /// A price that is no number above 0, or none at all.
    #[error("Its price of {0:?} is no number")]
    Number(String),
    /// Two prices of one operation.
    #[error("It has two prices of {0:?}")]
    Twice(String),
}

#[derive(Deserialize, JsonSchema)]
struct Head {
    format: String,
    version: u32,
}

impl Calibration {
    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let shown = self.clone().with_findings();
        serde_json::to_string_pretty(&shown).expect("names and numbers have a text") + "\n"
    }

    /// The list with what follows from it.
    #[must_use]
    pub fn with_findings(mut self) -> Self {
        let found: Vec<PriceFindings> = self.prices.iter().map(|one| self.findings(one)).collect();
        let prices = self.prices.iter_mut().zip(found);
        prices.for_each(|(price, found)| price.found = Some(found));
        self
    }

    fn findings(&self, price: &Price) -> PriceFindings {
        let net = self.estimate(price).map(|found| {
            let interval = found.interval.filter(|_| self.count == Count::Cycles);
            NetPrice {
                min: self.net_min(price),
                centre: found.centre,
                lo: interval.map(|interval| interval.lo),
                hi: interval.map(|interval| interval.hi),
                p99: self.net_p99(price),
            }
        });
        let price_ns = net.zip(self.ns_of_count()).map(|(net, ns)| net.scaled(ns));
        PriceFindings { agreement: self.agreement(price), price: net, price_ns }
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// [`NoCalibration`].
    pub fn from_json(text: &str) -> Result<Self, NoCalibration> {
        let head: Head = serde_json::from_str(text)?;
        if head.format != FORMAT {
            return Err(NoCalibration::Format(head.format));
        }
        if head.version != FORMAT_VERSION {
            return Err(NoCalibration::Version(head.version));
        }
        let calibration: Self = serde_json::from_str(text)?;
        for price in &calibration.prices {
            let numbers = price.boots.iter().flat_map(|boot| {
                [boot.min, boot.median, boot.p99, boot.mean.unwrap_or(boot.median)]
            });
            if numbers.into_iter().any(|number| !number.is_finite() || number < 0.0) {
                return Err(NoCalibration::Number(price.operation.clone()));
            }
        }
        let mut names: Vec<&str> =
            calibration.prices.iter().map(|price| price.operation.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NoCalibration::Twice(twice[0].to_owned()));
        }
        Ok(calibration)
    }

    /// The price of the operation of this name.
    #[must_use]
    pub fn price(&self, operation: &str) -> Option<&Price> {
        self.prices.iter().find(|price| price.operation == operation)
    }

    /// What an empty sample takes: the reading of the clock.
    fn empty_sample(&self) -> f64 {
        let empty = self
            .price(measure::EMPTY)
            .and_then(|price| price.boots.iter().map(|b| b.median).reduce(f64::min));
        empty.unwrap_or(0.0)
    }

    /// The prices of an operation boot by boot, less the reading of the clock.
    #[must_use]
    pub fn net(&self, price: &Price) -> Vec<f64> {
        let share = self.reading_in(price);
        price.boots.iter().map(|boot| (boot.median - share).max(0.0)).collect()
    }

    /// The greatest 99th percentile of the boots, less the reading of the clock.
    #[must_use]
    pub fn net_p99(&self, price: &Price) -> f64 {
        let greatest = price.boots.iter().map(|boot| boot.p99).fold(0.0, f64::max);
        (greatest - self.reading_in(price)).max(0.0)
    }

    /// The least sample of all boots, less the reading of the clock.
    #[must_use]
    pub fn net_min(&self, price: &Price) -> f64 {
        let least = price.boots.iter().map(|boot| boot.min).reduce(f64::min).unwrap_or(0.0);
        (least - self.reading_in(price)).max(0.0)
    }

    /// How much of the clock's reading is in one operation.
    fn reading_in(&self, price: &Price) -> f64 {
        let empty = if price.operation == measure::EMPTY { 0.0 } else { self.empty_sample() };
        empty / f64::from(price.batch.max(1))
    }

    /// True if KVM counted next to no exits for [`always_exits`]: this one executes guests in
    /// software, and its times are no prices of hardware.
    #[must_use]
    pub fn is_software_kvm(&self) -> bool {
        let trapped = Arch::from_name(&self.arch).map(always_exits);
        let trapped = trapped
            .and_then(|operation| self.price(operation.name()))
            .filter(|price| !price.boots.is_empty());
        trapped.is_some_and(|price| {
            price.boots.iter().all(|boot| {
                let exits = boot.kvm.get("kvm.exits").copied().unwrap_or(0.0);
                !boot.kvm.is_empty() && exits < f64::from(price.n) / 2.0
            })
        })
    }

    /// Where it was measured, one sentence.
    #[must_use]
    pub fn environment_sentence(&self) -> &'static str {
        if self.is_software_kvm() {
            "Under a KVM that executes guests in software (it counts no exit for what always has one): \
             times are emulated time and say nothing about the speed of real hardware."
        } else {
            self.environment.sentence()
        }
    }

    /// Centre and interval of an operation's price, in [`Self::count`].
    #[must_use]
    pub fn estimate(&self, price: &Price) -> Option<Estimate> {
        estimate_of(&self.net(price))
    }

    /// The same of the mean, by which many operations are paid; of the median where the
    /// list has no mean.
    fn estimate_of_many(&self, price: &Price) -> Option<Estimate> {
        estimate_of(&self.means(price))
    }

    /// The means of which [`Self::estimate_of_many`] is, boot by boot.
    fn means(&self, price: &Price) -> Vec<f64> {
        let share = self.empty_sample() / f64::from(price.batch.max(1));
        let mean = |boot: &BootPrice| (boot.mean.unwrap_or(boot.median) - share).max(0.0);
        price.boots.iter().map(mean).collect()
    }

    /// Nanoseconds in a unit of [`Self::count`], where that is known and is time.
    #[must_use]
    pub fn ns_of_count(&self) -> Option<f64> {
        match self.count {
            Count::Cycles if self.tsc_khz > 0 => Some(1e6 / self.tsc_khz as f64),
            Count::Cycles | Count::Instructions => None,
        }
    }

    /// Centre and interval in nanoseconds.
    #[must_use]
    pub fn estimate_ns(&self, price: &Price) -> Option<(f64, Option<Interval>)> {
        let (ns, found) = (self.ns_of_count()?, self.estimate(price)?);
        Some((found.centre * ns, found.interval.map(|interval| interval.map(|x| x * ns))))
    }

    /// Takes in the boots of another list of the same host, VM and operations.
    pub fn add_boots(&mut self, other: Self) {
        for added in other.prices {
            let mut prices = self.prices.iter_mut();
            match prices.find(|price| price.operation == added.operation) {
                Some(price) => {
                    price.boots.extend(added.boots);
                    price.missing = price.missing.take().or(added.missing);
                }
                None => self.prices.push(added),
            }
        }
        other.notes.into_iter().for_each(|note| {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        });
    }

    /// Whether KVM counted what the guest did.
    #[must_use]
    pub fn agreement(&self, price: &Price) -> Agreement {
        let empty = self.price(measure::EMPTY);
        agreement::of(&self.arch, price, empty)
    }

    /// The prices as values that can be compared: seconds where the clock's rate is
    /// known, else counts. Each boot is one.
    #[must_use]
    pub fn values(&self) -> Vec<ImportedValue> {
        let (scale, unit) = match self.ns_of_count() {
            Some(ns) => (ns / 1e9, "s"),
            None => (1.0, self.count.name()),
        };
        let mut values = Vec::new();
        for price in self.prices.iter().filter(|price| price.operation != measure::EMPTY) {
            for (boot, net) in self.net(price).into_iter().enumerate() {
                let boot = boot.to_string();
                let labels = [("operation", price.operation.as_str()), ("boot", boot.as_str())];
                values.push(ImportedValue {
                    metric: "price".into(),
                    value: net * scale,
                    unit: unit.into(),
                    better: Some(BetterDirection::Lower),
                    kind: MetricKind::Time,
                    labels: labels.into_iter().collect::<Labels>(),
                    line: 0,
                });
            }
        }
        values
    }
}

/// The operation that exits under each KVM which lets a processor run its guests.
#[must_use]
pub fn always_exits(arch: Arch) -> Operation {
    match arch {
        Arch::X86_64 => Operation::Cpuid,
        Arch::Aarch64 => Operation::SysregTrap,
    }
}

/// Centre and interval of counts, one a boot.
fn estimate_of(counts: &[f64]) -> Option<Estimate> {
    let logs = |value: &f64| BootStatistic { value: *value, log: value.ln_1p() };
    let boots: Vec<BootStatistic> = counts.iter().map(logs).collect();
    describe(SampleKind::Count, &boots, LEVEL)
}

#[cfg(test)]
pub(crate) mod tests;
