//! The I/O APICs: interrupts of devices that send no messages.
//!
//! Source: Intel 82093AA I/O Advanced Programmable Interrupt Controller, sections 3.1, 3.2.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::metal::memory::Register;
use crate::metal::start::DEVICE_VECTOR;
use crate::metal::vcpu::VCPUS;

const WINDOW: u64 = 0x10;
const VERSION: u32 = 1;
const FIRST_ENTRY: u32 = 0x10;

/// Those that ACPI names: the address, and the first of its interrupts in the lower 16 bits.
static NAMED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Remembers one, and the number of the interrupt at its first pin.
pub(crate) fn remember(at: u64, first: u32) {
    let free = NAMED.iter().find(|slot| slot.load(Ordering::SeqCst) == 0);
    if let Some(slot) = free.filter(|_| at < 1 << 48 && first < 1 << 16) {
        slot.store(at << 16 | u64::from(first), Ordering::SeqCst);
    }
}

fn register(at: u64, index: u32) -> Option<Register> {
    Register::at(at)?.write(index);
    Register::at(at + WINDOW)
}

/// Has a device's interrupt come to the first vCPU, once for each edge; false if it is at no
/// pin.
pub(crate) fn begin_device(interrupt: u32) -> bool {
    let named = NAMED.iter().map(|slot| slot.load(Ordering::SeqCst)).filter(|word| *word != 0);
    let begins = named.map(|word| (word >> 16, (word & 0xffff) as u32));
    let holding = begins.filter(|(_, first)| *first <= interrupt).max_by_key(|(_, first)| *first);
    let Some((at, first)) = holding else { return false };
    let pin = interrupt - first;
    let last = register(at, VERSION).map_or(0, |version| version.read() >> 16 & 0xff);
    if pin > last {
        return false;
    }
    let id = VCPUS[0].id.load(Ordering::SeqCst) as u32;
    // The entry is on as soon as its lower word is there.
    for (word, value) in [(1, id << 24), (0, u32::from(DEVICE_VECTOR))] {
        match register(at, FIRST_ENTRY + 2 * pin + word) {
            Some(register) => register.write(value),
            None => return false,
        }
    }
    true
}
