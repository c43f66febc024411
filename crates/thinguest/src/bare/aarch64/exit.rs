//! How the guest ends: by PSCI's power-off, or its reset. What it found was said before.

use crate::metal::instruction::{Function, call, stop};

use super::serial;

/// Ends the VM, once all that was written is sent.
pub(crate) fn leave() -> ! {
    serial::drain();
    let _ = call(Function::SystemOff);
    let _ = call(Function::SystemReset);
    stop()
}
