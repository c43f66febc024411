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
        GuestFailure::Died { .. } | GuestFailure::Crashed { .. } => FailureKind::VmDied,
        GuestFailure::Cluster { .. } => FailureKind::ClusterFailed,
        GuestFailure::TimeLimit { .. } => FailureKind::TimeLimit,
        GuestFailure::OutputTooLarge { .. } => FailureKind::OutputTooLarge,
        GuestFailure::ProgramMissing { .. } => FailureKind::WorkloadMissing,
        GuestFailure::Cancelled(_) => FailureKind::Aborted,
    };
    let (detail, cause) = match error {
        // Shown behind its kind, which is not said twice.
        GuestFailure::Died { detail } => (detail, None),
        GuestFailure::Crashed { detail } => (detail, Some(FailureCause::QemuCrashed)),
        // What QEMU prints is understood here, where it comes in.
        GuestFailure::Refused { .. } => {
            let detail = error.to_string();
            let cause = detail.lines().find_map(FailureCause::said_by_qemu);
            (detail, cause)
        }
        error => (error.to_string(), None),
    };
    Failure { cause, ..Failure::new(kind, detail) }
}
