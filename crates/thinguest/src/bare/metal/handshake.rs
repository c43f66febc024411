//! How a driver begins with a virtio device, whatever carries the device's registers.
//!
//! Source: VIRTIO 1.2, section 3.1.1; the bits of the status: section 2.1.

use thinguest::Queue;

use super::device_memory::places;

const ACKNOWLEDGED: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_FINE: u8 = 4;
const FEATURES_FINE: u8 = 8;
/// The bit of VIRTIO_F_VERSION_1 in the second word of features.
const VERSION_1: u32 = 1;
/// Looks for the reset's end.
const RESET_LOOKS: u32 = 1 << 20;

/// A device's registers.
pub(super) trait Transport {
    /// The device's status.
    fn status(&self) -> u8;
    /// Sets the device's status.
    fn set_status(&self, status: u8);
    /// Accepts features: the bits of a word of 32.
    fn accept(&self, word: u32, features: u32);
    /// Lets its registers be reached, and the device reach memory.
    fn prepare(&self) {}
    /// Gives it the queue of a number by the physical addresses of its parts, whose
    /// interrupts go to the first vCPU if they are wanted; false if the device has no such
    /// queue, or does not let it interrupt.
    fn place(&self, index: u16, places: [u64; 3], interrupts: bool) -> bool;
}

/// Resets the device, so that it reads and writes no memory; false if it does not say so.
pub(super) fn reset(device: &impl Transport) -> bool {
    device.set_status(0);
    (0..RESET_LOOKS).any(|_| device.status() == 0)
}

/// Begins with `queues`, at most two, of which the first interrupts if that is wanted;
/// false if the device does not do what it must.
pub(super) fn begin(device: &impl Transport, queues: &[&'static Queue], interrupts: bool) -> bool {
    device.prepare();
    if !reset(device) {
        return false;
    }
    let status = ACKNOWLEDGED | DRIVER;
    device.set_status(status);
    for (word, features) in [(0, 0), (1, VERSION_1)] {
        device.accept(word, features);
    }
    device.set_status(status | FEATURES_FINE);
    if device.status() & FEATURES_FINE == 0 {
        return false;
    }
    for (index, queue) in (0..2).zip(queues) {
        if !device.place(index, places(queue), interrupts && index == 0) {
            return false;
        }
    }
    device.set_status(status | FEATURES_FINE | DRIVER_FINE);
    true
}
