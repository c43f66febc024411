//! A difference taken apart by what exits, interrupts and wake-ups cost on the
//! host.

use record::Environment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::count_scope::CountScope;
use crate::estimate::ShownEstimate;

/// Whether the differences could be accounted for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "prices", rename_all = "kebab-case")]
pub enum Accounting {
    /// There is no price list of the study's host.
    Missing,
    /// There is one, and it is not of the study's host and environment.
    Unfit {
        /// What is not the same, at least one.
        why: Vec<UnfitPrices>,
    },
    /// There is one of the same host and environment.
    Used {
        /// One for each load x workload x variant whose difference is known.
        accounts: Vec<VariantAccount>,
        /// Settings of the host that were others when the prices were taken.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        other_settings: Vec<OtherSetting>,
    },
}

/// Why a price list says nothing of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "unfit", rename_all = "kebab-case")]
pub enum UnfitPrices {
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

/// A setting of the host that was another one when the prices were taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherSetting {
    /// The setting: `kvm.halt_poll_ns`, `thp_enabled`, `cmdline`.
    pub setting: String,
    /// In the list.
    pub list: String,
    /// In the study.
    pub study: String,
}

/// What tells one host from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostFact {
    /// The processor's model.
    Processor,
    /// The host's kernel.
    Kernel,
    /// QEMU's version.
    Qemu,
    /// The machine's name.
    Name,
    /// The guests' architecture.
    Architecture,
}

/// The difference between a variant and the baseline, taken apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VariantAccount {
    /// The host-load level's name.
    pub load: String,
    /// The workload's name.
    pub workload: String,
    /// The metric's name.
    pub metric: String,
    /// The variant.
    pub variant: String,
    /// What all values are of: a run, or an operation of the benchmark.
    pub of: CountScope,
    /// Blocks that it rests on.
    pub blocks: u32,
    /// Variant less baseline, s; where the clock counts instructions, 1 ns each.
    pub difference: ShownEstimate,
    /// What each kind of event explains of it, the greatest first.
    pub parts: Vec<AccountPart>,
    /// The difference less all parts, s.
    pub unexplained: ShownEstimate,
    /// Events that were more or fewer, and have no price.
    pub unpriced: Vec<UnpricedEvents>,
    /// Where exits were counted by reason, which takes time at each, if not in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exits_by_reason_only: Option<ReasonSource>,
}

/// Where KVM's exits were counted by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonSource {
    /// When the prices were taken.
    Prices,
    /// In the study's trials.
    Trials,
}

/// What one kind of event explains of a difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountPart {
    /// The events.
    pub event: PricedEvent,
    /// How many more the variant has, the mean of the blocks.
    pub count: f64,
    /// What one costs, s.
    pub price: ShownEstimate,
    /// The product, s.
    pub amount: ShownEstimate,
}

/// Events that have no price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnpricedEvents {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoPrice {
    /// It is not in the list.
    NotMeasured,
    /// KVM did not count the event when it was measured: it cost nothing then, as
    /// with memory that huge pages back.
    NotTheEvent,
}

/// A kind of event that has a price. No exit is in two of them. Later versions may tell more
/// kinds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PricedEvent {
    /// An IPI that wakes a halted vCPU: sending, the exit by HLT, waking.
    IpiToHalted,
    /// An IPI to a vCPU that runs.
    IpiToRunning,
    /// A wake-up from HLT by something else than an IPI.
    Wakeup,
    /// A halt whose vCPU's thread slept, and KVM did not poll until it was woken: what
    /// that costs more than a poll.
    Sleep,
    /// An access to a device's memory that QEMU handles.
    DeviceMemory,
    /// An access to an I/O port.
    Port,
    /// A hypercall that is no IPI.
    Hypercall,
    /// A nested page fault.
    PageFault,
    /// A CPUID.
    Cpuid,
    /// A read of a model-specific register that KVM handles, none of the local APIC's.
    MsrRead,
    /// A write to one, none of the local APIC's nor of its timer's.
    MsrWrite,
    /// An access to a device's memory that KVM handles by itself.
    KernelMemory,
    /// An exit that belongs to none of these, at the mean of those that KVM handles by
    /// itself.
    OtherExit,
}

impl PricedEvent {
    /// What many of them are called.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::IpiToHalted => "IPIs to halted vCPUs",
            Self::IpiToRunning => "IPIs to running vCPUs",
            Self::Wakeup => "halts woken by no IPI",
            Self::Sleep => "halts slept instead of polled",
            Self::DeviceMemory => "device memory (MMIO) in QEMU",
            Self::Port => "I/O ports",
            Self::Hypercall => "hypercalls",
            Self::PageFault => "EPT/NPT/stage 2 faults",
            Self::Cpuid => "CPUIDs",
            Self::MsrRead => "MSR reads",
            Self::MsrWrite => "MSR writes",
            Self::KernelMemory => "device memory (MMIO) in KVM",
            Self::OtherExit => "other exits",
        }
    }
}
