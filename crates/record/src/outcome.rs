//! How a run or a trial ended. A failure is recorded with its reason; it is
//! never a zero and never dropped.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run (one benchmark invocation) or a trial (one boot) ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ended as it should and its output was understood.
    Completed,
    /// It did not; the reason stands in the failure.
    Failed(Failure),
}

impl Outcome {
    /// Shorthand for a failure.
    #[must_use]
    pub fn failed(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self::Failed(Failure::new(kind, detail.into()))
    }

    /// True for [`Outcome::Completed`].
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed)
    }
}

/// Why a run or a trial failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The class of failure.
    pub kind: FailureKind,
    /// What exactly was seen, with the offending values; may span lines.
    pub detail: String,
    /// Which setting of the VM it is about, or what else is to blame, where that is known:
    /// what a later reader asks for. Folders of earlier versions say it in words alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCause>,
}

impl Failure {
    /// A failure of which no more is known than its class and what was seen.
    #[must_use]
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), cause: None }
    }

    /// This, seen in or at `place`, which is said before it.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        Self { detail: format!("{place}: {}", self.detail), ..self }
    }

    /// Which setting of the VM it is about, or what else is to blame, where that is known.
    #[must_use]
    pub fn cause(&self) -> Option<FailureCause> {
        self.cause.or_else(|| FailureCause::of_earlier(self.kind, &self.detail))
    }
}

/// The setting of a VM that a failure is about, and how it failed; or what else failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCause {
    /// QEMU does not start with `cpu_pm`.
    CpuPmRefusedByQemu,
    /// KVM refused `cpu_pm`, of which QEMU told and went on.
    CpuPmRefusedByKvm,
    /// The guest had no `cpu_pm`, and nobody said so.
    CpuPmIgnored,
    /// QEMU crashed by itself (SIGSEGV, SIGABRT).
    QemuCrashed,
    /// One that a later version knows.
    #[serde(other)]
    Other,
}

impl FailureCause {
    /// The cause that a line tells which QEMU printed: of why it ended, or of what it went
    /// on without.
    ///
    /// Source: QEMU `target/i386/kvm/kvm.c`, `system/vl.c`.
    #[must_use]
    pub fn said_by_qemu(line: &str) -> Option<Self> {
        if line.contains("guest stopping CPU not supported") {
            return Some(Self::CpuPmRefusedByKvm);
        }
        let option = ["cpu-pm", "overcommit"];
        option.iter().any(|name| line.contains(name)).then_some(Self::CpuPmRefusedByQemu)
    }

    /// What journals without a cause say in words: written by versions before there was one.
    fn of_earlier(kind: FailureKind, detail: &str) -> Option<Self> {
        match kind {
            FailureKind::VmRefused => {
                let own_words = || detail.contains("cpu_pm").then_some(Self::CpuPmRefusedByQemu);
                detail.lines().find_map(Self::said_by_qemu).or_else(own_words)
            }
            FailureKind::NotAsClaimed => {
                let (_, evidence) = detail.split_once("cpu_pm is not in force: ")?;
                let refused = evidence.starts_with("QEMU said ");
                Some(if refused { Self::CpuPmRefusedByKvm } else { Self::CpuPmIgnored })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

/// The classes of failure, each with its own word in reports.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// QEMU did not start: refused arguments, missing file, no memory.
    VmRefused,
    /// Pins or memory of the running VM are not what its variant says.
    NotAsClaimed,
    /// The guest agent never answered within the boot's time limit.
    GuestNeverAnswered,
    /// The guest's kernel panicked.
    GuestPanicked,
    /// The guest powered off or rebooted by itself.
    GuestShutdown,
    /// The guest stopped answering in the middle.
    GuestHung,
    /// The guest wrote more to one of its ports than can be meant.
    GuestFlooded,
    /// QEMU died or was killed.
    VmDied,
    /// The cluster in which the VM was to run did not do its part: no node took it, its
    /// image could not be had, its server was gone.
    ClusterFailed,
    /// The benchmark (or a program it needs) is not in the guest.
    WorkloadMissing,
    /// The benchmark ran out of its time limit.
    TimeLimit,
    /// The benchmark ended with an error of its own.
    WorkloadFailed,
    /// The benchmark printed more than is kept.
    OutputTooLarge,
    /// The benchmark ended well, but its output was not understood.
    OutputNotUnderstood,
    /// A host setting that the trial needs could not be had.
    HostSettingRefused,
    /// The host load did not start or died during the trial.
    HostLoadFailed,
    /// What the trial is about is not in the simulator's model.
    NotModelled,
    /// The run was interrupted (Ctrl-C, kill) during this trial.
    Aborted,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VmRefused => "QEMU refused the VM",
            Self::NotAsClaimed => "VM is not what it claims",
            Self::GuestNeverAnswered => "guest never answered",
            Self::GuestPanicked => "guest panicked",
            Self::GuestShutdown => "guest shut down",
            Self::GuestHung => "guest hung",
            Self::GuestFlooded => "guest flooded a port",
            Self::VmDied => "QEMU died",
            Self::ClusterFailed => "cluster failed",
            Self::WorkloadMissing => "workload not in the guest",
            Self::TimeLimit => "time limit",
            Self::WorkloadFailed => "workload failed",
            Self::OutputTooLarge => "output too large",
            Self::OutputNotUnderstood => "output not understood",
            Self::HostSettingRefused => "host setting refused",
            Self::HostLoadFailed => "host load failed",
            Self::NotModelled => "not in the simulator's model",
            Self::Aborted => "aborted",
        })
    }
}
