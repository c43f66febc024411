//! How a VM, or a command in its guest, fails.

use std::fmt;
use std::time::Duration;

use super::output::ExecOutput;
use crate::Cancellation;

/// Why a VM or a command in its guest failed. A failure of the VM itself is
/// final: every later call returns the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestFailure {
    /// QEMU did not start: refused arguments, missing file, no memory.
    #[error("QEMU did not start: {detail}")]
    Refused {
        /// What QEMU printed, or why it could not be run.
        detail: String,
    },
    /// The guest agent did not answer after the boot.
    #[error("The guest agent did not answer within {}", DisplaySeconds(*.limit))]
    NeverAnswered {
        /// The time limit.
        limit: Duration,
    },
    /// The guest's kernel panicked.
    #[error("The guest's kernel panicked: {detail}")]
    Panicked {
        /// The console's line that says so, or QEMU's event.
        detail: String,
    },
    /// The guest powered off or rebooted by itself.
    #[error("The guest shut down by itself: {detail}")]
    Shutdown {
        /// QEMU's reason: `guest-shutdown`, `guest-reset`, ...
        detail: String,
    },
    /// The guest agent stopped answering.
    #[error("The guest agent did not answer {command} within {}", DisplaySeconds(*.limit))]
    Hung {
        /// What it was asked.
        command: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The guest wrote more to one of its ports than can be meant.
    #[error("The guest wrote more than {limit_bytes} bytes to {port}, which nobody asked for")]
    Flooded {
        /// The virtio-serial port's name.
        port: String,
        /// The budget.
        limit_bytes: u64,
    },
    /// QEMU ended or was killed.
    #[error("QEMU died: {detail}")]
    Died {
        /// Exit status or signal, and what QEMU printed last.
        detail: String,
    },
    /// QEMU reached for memory that is not its own, or found itself in a state that can't
    /// be (SIGSEGV, SIGABRT): a fault of its own, as nobody's kill is.
    #[error("QEMU died: {detail}")]
    Crashed {
        /// What QEMU printed last, and how it ended.
        detail: String,
    },
    /// The cluster in which it was to run did not do its part.
    #[error("{detail}")]
    Cluster {
        /// What it said, or did not.
        detail: String,
    },
    /// A command ran out of its time limit and was killed.
    #[error("{program} ran longer than {} and was killed", DisplaySeconds(*.limit))]
    TimeLimit {
        /// The program.
        program: String,
        /// The time limit.
        limit: Duration,
        /// What it had printed until then, if the guest still told.
        output: Box<Option<ExecOutput>>,
    },
    /// A command printed more than is kept.
    #[error("{program} printed more than {limit_bytes} bytes")]
    OutputTooLarge {
        /// The program.
        program: String,
        /// How much is kept.
        limit_bytes: usize,
    },
    /// There is no such program in the guest.
    #[error("{program} is not in the guest")]
    ProgramMissing {
        /// The program.
        program: String,
    },
    /// The guest agent refused a request, or its answer was not understood.
    #[error("The guest agent failed at {command}: {detail}")]
    Agent {
        /// What it was asked.
        command: String,
        /// What it said.
        detail: String,
    },
    /// It was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

impl GuestFailure {
    /// True if the VM can't be used any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::NeverAnswered { .. }
            | Self::Panicked { .. }
            | Self::Shutdown { .. }
            | Self::Hung { .. }
            | Self::Flooded { .. }
            | Self::Died { .. }
            | Self::Crashed { .. }
            | Self::Cluster { .. } => true,
            Self::TimeLimit { .. }
            | Self::OutputTooLarge { .. }
            | Self::ProgramMissing { .. }
            | Self::Agent { .. }
            | Self::Cancelled(_) => false,
        }
    }
}

/// A duration as seconds, without digits that say nothing.
pub(super) struct DisplaySeconds(pub(super) Duration);

impl fmt::Display for DisplaySeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds.fract() == 0.0 { write!(f, "{seconds} s") } else { write!(f, "{seconds:.1} s") }
    }
}
