//! The serial line: records go out, single bytes come in.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use thinguest::{Record, write_record};

use crate::machine::serial;
use crate::metal::instruction::{clock_unordered, relax, ticks};

/// Between two looks whether a byte has come: each is an exit, which would be
/// counted with the operation's own.
const LOOK_CYCLES: u64 = 10_000_000;

/// What the guest sends when the samples are taken, before their record: a record
/// has some hundred exits of its own.
const END_MARK: &str = "!\n";

struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            serial::send(byte);
        }
        Ok(())
    }
}

/// Sends the next record.
pub(crate) fn write(record: &Record) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static BUSY: AtomicBool = AtomicBool::new(false);
    // Another vCPU's exception may come while a record is on its way. One in the
    // middle of a record of the same vCPU must not wait for ever.
    for _ in 0..100_000_000 {
        if !BUSY.swap(true, Ordering::SeqCst) {
            break;
        }
        relax();
    }
    let seq = NEXT.fetch_add(1, Ordering::SeqCst);
    // The line takes everything; a record that is too long for one is none.
    let _ = write_record(&mut Serial, seq, record);
    BUSY.store(false, Ordering::SeqCst);
}

/// Says that the samples are taken.
pub(crate) fn write_end_mark() {
    let _ = fmt::Write::write_str(&mut Serial, END_MARK);
}

/// Waits for a byte.
pub(crate) fn wait_for_byte() -> u8 {
    while !serial::has_byte() {
        let begin = clock_unordered();
        while clock_unordered().wrapping_sub(begin) < ticks(LOOK_CYCLES) {}
    }
    serial::take()
}

/// Waits for a line, without its end; empty if it is too long or no text.
pub(crate) fn wait_for_line(buffer: &mut [u8]) -> &str {
    let (mut length, mut byte) = (0, wait_for_byte());
    while byte != b'\n' {
        if let Some(slot) = buffer.get_mut(length) {
            *slot = byte;
        }
        length += 1;
        // The rest of the line is on its way.
        while !serial::has_byte() {}
        byte = serial::take();
    }
    let line = buffer.get(..length).unwrap_or_default();
    core::str::from_utf8(line).unwrap_or_default()
}
