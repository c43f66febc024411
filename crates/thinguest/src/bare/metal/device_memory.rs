//! The memory that virtio devices read and write. Devices are told of this memory alone,
//! by `virtio::Device`: all of it is atomic, so a device may change it whenever it likes.

use core::sync::atomic::{AtomicU8, Ordering};

use thinguest::{Piece, Queue};

#[cfg(target_arch = "aarch64")]
use super::aarch64::pages::physical;
#[cfg(target_arch = "x86_64")]
use super::x86_64::pages::physical;

const BUFFER_BYTES: usize = 2048;

/// What one descriptor stands for.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Buffer([AtomicU8; BUFFER_BYTES]);

impl Buffer {
    const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; BUFFER_BYTES])
    }

    /// Its first `bytes`, at most all, as a piece of a chain.
    pub(crate) fn piece(&'static self, bytes: u32, is_written: bool) -> Piece {
        let bytes = bytes.min(BUFFER_BYTES as u32);
        Piece { address: physical(&raw const *self as u64), bytes, is_written }
    }

    /// Writes `bytes` from `at` on, as far as there is room.
    pub(crate) fn set(&self, at: usize, bytes: &[u8]) {
        for (slot, byte) in self.0.iter().skip(at).zip(bytes) {
            slot.store(*byte, Ordering::SeqCst);
        }
    }

    /// The byte at `at`; 0 beyond its end.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.0.get(at).map_or(0, |slot| slot.load(Ordering::SeqCst))
    }
}

/// The queues of the device that is being measured.
pub(crate) static QUEUES: [Queue; 2] = [const { Queue::new() }; 2];
/// A block request's header, data and status.
pub(crate) static BLOCK: [Buffer; 3] = [const { Buffer::new() }; 3];
/// The frame that comes, and the one that is sent.
pub(crate) static NET: [Buffer; 2] = [const { Buffer::new() }; 2];

/// Where a queue's parts lie in physical memory.
pub(super) fn places(queue: &'static Queue) -> [u64; 3] {
    queue.addresses().map(physical)
}
