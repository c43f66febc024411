//! The first serial port: a 16550.

use crate::metal::instruction::Port;

const DATA: Port = Port::serial(0);
const INTERRUPTS: Port = Port::serial(1);
const FIFO: Port = Port::serial(2);
const LINE_FORMAT: Port = Port::serial(3);
const MODEM: Port = Port::serial(4);
const STATUS: Port = Port::serial(5);
/// Nothing but memory of a byte.
pub(crate) const SCRATCH: Port = Port::serial(7);

/// Sets the line up: 115200 8N1, no interrupts; nor does the old controller send any.
pub(crate) fn begin() {
    for mask in Port::PIC_MASKS {
        mask.write(0xff);
    }
    INTERRUPTS.write(0);
    LINE_FORMAT.write(0x80);
    DATA.write(1);
    INTERRUPTS.write(0);
    LINE_FORMAT.write(3);
    FIFO.write(7);
    MODEM.write(3);
}

/// Sends a byte once there is room for it.
pub(crate) fn send(byte: u8) {
    while STATUS.read() & 0x20 == 0 {}
    DATA.write(byte);
}

/// Waits until all is sent. A byte for which QEMU's socket has no room while nobody reads
/// it is kept by the port, and goes with QEMU.
pub(crate) fn drain() {
    while STATUS.read() & 0x40 == 0 {}
}

/// True if a byte has come.
pub(crate) fn has_byte() -> bool {
    STATUS.read() & 1 != 0
}

/// The byte that has come.
pub(crate) fn take() -> u8 {
    DATA.read()
}
