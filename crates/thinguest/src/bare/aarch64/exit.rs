//! How the guest ends: by PSCI's power-off, or its reset. What it found was said before.

use crate::metal::instruction::{Function, call, stop};

/// Ends the VM.
pub(crate) fn leave() -> ! {
    let _ = call(Function::SystemOff);
    let _ = call(Function::SystemReset);
    stop()
}
