//! The first serial port: a PL011.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::metal::memory::Register;

/// That of QEMU's virt, where nobody says.
static AT: AtomicU64 = AtomicU64::new(0x900_0000);

const DATA: u64 = 0;
const FLAGS: u64 = 0x18;
const LINE_FORMAT: u64 = 0x2c;
const CONTROL: u64 = 0x30;
const INTERRUPTS: u64 = 0x38;
/// Says what it is, and nothing else.
const IDENTITY: u64 = 0xfe0;

const RECEIVER_EMPTY: u32 = 1 << 4;
const SENDER_FULL: u32 = 1 << 5;
const BUSY: u32 = 1 << 3;

/// Says where it is.
pub(crate) fn set(at: u64) {
    if Register::at(at).is_some() {
        AT.store(at, Ordering::Relaxed);
    }
}

/// The register that changes nothing.
pub(crate) fn identity() -> u64 {
    AT.load(Ordering::Relaxed) + IDENTITY
}

fn read(offset: u64) -> u32 {
    Register::at(AT.load(Ordering::Relaxed) + offset).map_or(0, Register::read)
}

fn write(offset: u64, value: u32) {
    if let Some(register) = Register::at(AT.load(Ordering::Relaxed) + offset) {
        register.write(value);
    }
}

/// Sets the line up: 8N1, both ways, no interrupts. Its rate is the loader's.
pub(crate) fn begin() {
    write(INTERRUPTS, 0);
    write(LINE_FORMAT, 0x70);
    write(CONTROL, 0x301);
}

/// Sends a byte once there is room for it.
pub(crate) fn send(byte: u8) {
    while read(FLAGS) & SENDER_FULL != 0 {}
    write(DATA, u32::from(byte));
}

/// Waits until all is sent.
pub(crate) fn drain() {
    while read(FLAGS) & BUSY != 0 {}
}

/// True if a byte has come.
pub(crate) fn has_byte() -> bool {
    read(FLAGS) & RECEIVER_EMPTY == 0
}

/// The byte that has come.
pub(crate) fn take() -> u8 {
    read(DATA) as u8
}
