//! How the guest ends: by the first that there is of QEMU's debug exit, ACPI's
//! power-off, a reset. What it found was said before.

use core::sync::atomic::{AtomicU64, Ordering};

use thinguest::acpi::PowerOff;

use crate::metal::instruction::{Port, stop};
use crate::metal::memory::Register;

use super::serial;

/// The power-off, packed: what ends the guest may come from anywhere.
static PORT: AtomicU64 = AtomicU64::new(0);
static REGISTER: AtomicU64 = AtomicU64::new(0);

/// Sleep type 5 and the bit that enters it, for hardware-reduced ACPI.
const REDUCED_SLEEP_5: u8 = 5 << 2 | 1 << 5;

/// Remembers how the machine is switched off.
pub(crate) fn set_power_off(how: PowerOff) {
    match how {
        PowerOff::Control { port, value } => {
            PORT.store(u64::from(port) << 16 | u64::from(value), Ordering::Relaxed);
        }
        PowerOff::Reduced { in_memory: true, address } => {
            REGISTER.store(address, Ordering::Relaxed);
        }
        PowerOff::Reduced { in_memory: false, address } => {
            let port = address & 0xffff;
            PORT.store(port << 16 | u64::from(REDUCED_SLEEP_5), Ordering::Relaxed);
        }
    }
}

/// Ends the VM, once all that was written is sent.
pub(crate) fn leave() -> ! {
    serial::drain();
    Port::DEBUG_EXIT.write(0);
    let port = PORT.load(Ordering::Relaxed);
    if port != 0 {
        Port::acpi((port >> 16) as u16).write_u16(port as u16);
    }
    if let Some(register) = Register::at(REGISTER.load(Ordering::Relaxed)) {
        register.write_byte(REDUCED_SLEEP_5);
    }
    Port::RESET.write(6);
    Port::KEYBOARD.write(0xfe);
    stop()
}
