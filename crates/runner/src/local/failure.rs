//! What fails in a guest, as records hold it.

use guest::GuestFailure;
use record::{Failure, FailureCause, FailureKind};

/// A guest's failure as records hold it.
pub(super) fn failure(error: GuestFailure) -> Failure {
    let kind = match &error {
        GuestFailure::Refused { .. } => FailureKind::VmRefused,
        GuestFailure::NeverAnswered { .. } => FailureKind::GuestNeverAnswered,
        GuestFailure::Panicked { .. } => FailureKind::GuestPanicked,
        GuestFailure::Shutdown { .. } => FailureKind::GuestShutdown,
        GuestFailure::Hung { .. } | GuestFailure::Agent { .. } => FailureKind::GuestHung,
        GuestFailure::Flooded { .. } => FailureKind::GuestFlooded,
        GuestFailure::Died { .. } => FailureKind::VmDied,
        GuestFailure::Cluster { .. } => FailureKind::ClusterFailed,
        GuestFailure::TimeLimit { .. } => FailureKind::TimeLimit,
        GuestFailure::OutputTooLarge { .. } => FailureKind::OutputTooLarge,
        GuestFailure::ProgramMissing { .. } => FailureKind::WorkloadMissing,
        GuestFailure::Cancelled(_) => FailureKind::Aborted,
    };
    let detail = error.to_string();
    // Shown behind its kind, which is not said twice.
    let detail = detail.strip_prefix(&format!("{kind}: ")).unwrap_or(&detail).to_owned();
    // What QEMU prints is understood here, where it comes in.
    let cause = FailureCause::of_refusal(&detail).filter(|_| kind == FailureKind::VmRefused);
    Failure { cause, ..Failure::new(kind, detail) }
}
