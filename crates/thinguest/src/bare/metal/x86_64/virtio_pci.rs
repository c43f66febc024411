//! A virtio device on the first PCI bus, which interrupts by MSI-X.
//!
//! Source: VIRTIO 1.2, section 4.1; PCI Local Bus Specification 3.0, chapter 6.

use core::arch::asm;
use core::sync::atomic::Ordering;

use thinguest::{QUEUE_SIZE, VirtioDevice};

use super::pages;
use super::start::DEVICE_VECTOR;
use crate::metal::handshake::Transport;
use crate::metal::vcpu::VCPUS;

const SLOTS: u32 = 32;
const VENDOR: u32 = 0x1af4;
/// The identities of devices since version 1, from this on; those that have a form from
/// before it too.
const MODERN: u32 = 0x1040;
const TRANSITIONAL: u32 = 0x1000;

// A device's configuration.
const COMMAND: u32 = 4;
const MEMORY_AND_MASTER: u32 = 6;
const STATUS_HAS_LIST: u32 = 1 << 20;
const FIRST_BAR: u32 = 0x10;
const LIST: u32 = 0x34;
const VENDOR_CAPABILITY: u32 = 9;
const MSIX_CAPABILITY: u32 = 0x11;
const MSIX_ON: u32 = 1 << 31;
const MSIX_MASKED: u32 = 1 << 30;
/// Longest list of capabilities.
const MAX_CAPABILITIES: u32 = 48;

// The kinds of virtio's capabilities.
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;

// The common structure.
const DRIVER_SELECT: u64 = 8;
const DRIVER_FEATURE: u64 = 12;
const STATUS: u64 = 20;
const QUEUE_SELECT: u64 = 22;
const QUEUE_LENGTH: u64 = 24;
const QUEUE_VECTOR: u64 = 26;
const QUEUE_ENABLE: u64 = 28;
const QUEUE_NOTIFY: u64 = 30;
const QUEUE_PLACES: u64 = 32;
/// Its last byte that is used.
const COMMON_BYTES: u64 = 56;

const NO_VECTOR: u16 = 0xffff;

fn select(slot: u32, offset: u32) {
    let value = 1 << 31 | (slot % SLOTS) << 11 | offset & 0xfc;
    // SAFETY: it says which word of the configuration port 0xcfc is.
    unsafe { asm!("out dx, eax", in("dx") 0xcf8_u16, in("eax") value, options(nostack)) };
}

fn config(slot: u32, offset: u32) -> u32 {
    select(slot, offset);
    let value: u32;
    // SAFETY: reading a device's configuration changes nothing.
    unsafe { asm!("in eax, dx", in("dx") 0xcfc_u16, out("eax") value, options(nostack)) };
    value
}

fn set_config(slot: u32, offset: u32, value: u32) {
    select(slot, offset);
    // SAFETY: `PciDevice` alone writes: that a device may reach the memory it is told of,
    // which is `virtio`'s own, and that it interrupts by MSI-X.
    unsafe { asm!("out dx, eax", in("dx") 0xcfc_u16, in("eax") value, options(nostack)) };
}

/// Where firmware put the part `offset..offset + bytes` of a device's memory `bar`; none
/// if that is no place of devices.
fn place(slot: u32, bar: u32, offset: u32, bytes: u64) -> Option<u64> {
    const IS_PORTS: u32 = 1;
    const IS_WIDE: u32 = 4;
    let at = FIRST_BAR + 4 * bar;
    let low = (bar < 6).then(|| config(slot, at)).filter(|low| low & IS_PORTS == 0)?;
    let high = if low & IS_WIDE != 0 && bar < 5 { config(slot, at + 4) } else { 0 };
    let begin = u64::from(high) << 32 | u64::from(low & !15);
    let begin = begin.checked_add(u64::from(offset))?;
    let fits = pages::reach_device(begin, begin.checked_add(bytes)?);
    (fits && begin.is_multiple_of(4)).then_some(begin)
}

/// The device, and where its structures are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PciDevice {
    common: u64,
    notify: u64,
    /// Bytes between the words by which it is told of its queues.
    step: u64,
    /// MSI-X: where the table is, and in which slot's configuration it is switched on.
    table: u64,
    slot: u32,
    msix: u32,
}

impl PciDevice {
    /// The first of its kind, if firmware gave it its place.
    pub(super) fn find(kind: VirtioDevice) -> Option<Self> {
        let ids = [MODERN + kind as u32, TRANSITIONAL + kind as u32 - 1];
        let is_it = |slot: &u32| {
            let id = config(*slot, 0);
            id & 0xffff == VENDOR && ids.contains(&(id >> 16))
        };
        Self::in_slot((0..SLOTS).find(is_it)?)
    }

    fn in_slot(slot: u32) -> Option<Self> {
        if config(slot, COMMAND) & STATUS_HAS_LIST == 0 {
            return None;
        }
        let (mut common, mut notify, mut table) = (None, None, None);
        let mut at = config(slot, LIST) & 0xfc;
        for _ in 0..MAX_CAPABILITIES {
            if at == 0 {
                break;
            }
            let head = config(slot, at);
            let word = |index: u32| config(slot, at + 4 * index);
            match head & 0xff {
                VENDOR_CAPABILITY => {
                    let (bar, offset, length) = (word(1) & 0xff, word(2), u64::from(word(3)));
                    match head >> 24 {
                        COMMON if common.is_none() => {
                            common = place(slot, bar, offset, COMMON_BYTES);
                        }
                        NOTIFY if notify.is_none() => {
                            let begin = place(slot, bar, offset, length);
                            notify = begin.map(|begin| (begin, u64::from(word(4)), length));
                        }
                        _ => {}
                    }
                }
                MSIX_CAPABILITY => {
                    let (bar, offset) = (word(1) & 7, word(1) & !7);
                    table = place(slot, bar, offset, 16).map(|begin| (begin, at));
                }
                _ => {}
            }
            at = head >> 8 & 0xfc;
        }
        let ((notify, step, length), (table, msix)) = (notify?, table?);
        // Both queues' words lie within.
        (step + 2 <= length).then_some(Self { common: common?, notify, step, table, slot, msix })
    }

    fn write<T>(&self, offset: u64, value: T) {
        // SAFETY: `find` has seen that the common structure lies where devices are; the
        // offsets above are within it and aligned.
        unsafe { ((self.common + offset) as *mut T).write_volatile(value) }
    }

    fn read<T>(&self, offset: u64) -> T {
        // SAFETY: as in `write`; it is an integer.
        unsafe { ((self.common + offset) as *const T).read_volatile() }
    }

    /// Its first message is the first vCPU's interrupt for devices.
    fn set_vector(&self) {
        let id = VCPUS[0].id.load(Ordering::SeqCst) as u32;
        let message = [0xfee0_0000 | (id & 0xff) << 12, 0, u32::from(DEVICE_VECTOR), 0];
        for (at, word) in (self.table..).step_by(4).zip(message) {
            // SAFETY: `find` has seen that the table's first entry lies where devices are.
            unsafe { (at as *mut u32).write_volatile(word) };
        }
        let control = config(self.slot, self.msix);
        set_config(self.slot, self.msix, control & !MSIX_MASKED | MSIX_ON);
    }

    /// Tells it that there is something in a queue.
    pub(super) fn notify(&self, queue: u16) {
        let at = self.notify + self.step * u64::from(queue.min(1));
        // SAFETY: `find` has seen that both queues' words lie where devices are.
        unsafe { (at as *mut u16).write_volatile(queue) };
    }
}

impl Transport for PciDevice {
    fn status(&self) -> u8 {
        self.read(STATUS)
    }

    fn set_status(&self, status: u8) {
        self.write(STATUS, status);
    }

    fn accept(&self, word: u32, features: u32) {
        self.write(DRIVER_SELECT, word);
        self.write(DRIVER_FEATURE, features);
    }

    /// MSI-X is on in any case: a reset takes the vectors away from all queues.
    fn prepare(&self) {
        let old = config(self.slot, COMMAND) & 0xffff;
        set_config(self.slot, COMMAND, old | MEMORY_AND_MASTER);
        self.set_vector();
    }

    fn place(&self, index: u16, places: [u64; 3], interrupts: bool) -> bool {
        self.write(QUEUE_SELECT, index);
        // Each queue is told of by its own word, in order.
        if self.read::<u16>(QUEUE_LENGTH) < QUEUE_SIZE || self.read::<u16>(QUEUE_NOTIFY) != index {
            return false;
        }
        self.write(QUEUE_LENGTH, QUEUE_SIZE);
        let vector = if interrupts { 0 } else { NO_VECTOR };
        self.write(QUEUE_VECTOR, vector);
        if self.read::<u16>(QUEUE_VECTOR) != vector {
            return false;
        }
        for (at, address) in (QUEUE_PLACES..).step_by(8).zip(places) {
            self.write(at, address as u32);
            self.write(at + 4, (address >> 32) as u32);
        }
        self.write(QUEUE_ENABLE, 1_u16);
        true
    }
}
