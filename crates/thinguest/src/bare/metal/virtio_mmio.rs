//! A virtio device with registers in memory, which firmware names: arm64's device tree, or
//! ACPI on machines without PCI.
//!
//! Source: VIRTIO 1.2, section 4.2.

use core::sync::atomic::{AtomicU64, Ordering};

use thinguest::{QUEUE_SIZE, Queue, VirtioDevice};

#[cfg(target_arch = "aarch64")]
use crate::aarch64::interrupts::begin_device;
use crate::metal::handshake::{self, Transport};
use crate::metal::memory::Register;
#[cfg(target_arch = "x86_64")]
use crate::x86_64::io_apic::begin_device;

// The registers.
const MAGIC: u64 = 0;
const VERSION: u64 = 4;
const DEVICE: u64 = 8;
const DRIVER_FEATURE: u64 = 0x20;
const DRIVER_SELECT: u64 = 0x24;
const QUEUE_SELECT: u64 = 0x30;
const QUEUE_MOST: u64 = 0x34;
const QUEUE_LENGTH: u64 = 0x38;
const QUEUE_READY: u64 = 0x44;
const QUEUE_NOTIFY: u64 = 0x50;
const INTERRUPT_STATUS: u64 = 0x60;
const INTERRUPT_ANSWER: u64 = 0x64;
const STATUS: u64 = 0x70;
const QUEUE_PLACES: [u64; 3] = [0x80, 0x90, 0xa0];

const VIRT: u32 = 0x7472_6976;

/// What firmware names: the address, and the interrupt in the lower 16 bits.
static NAMED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Remembers a device at a page of its own, or a part of one.
pub(crate) fn remember(at: u64, interrupt: u32) {
    const PART: u64 = 0x200;
    let free = NAMED.iter().find(|slot| slot.load(Ordering::SeqCst) == 0);
    if let Some(slot) = free.filter(|_| at.is_multiple_of(PART) && at < 1 << 48) {
        slot.store(at << 16 | u64::from(interrupt & 0xffff), Ordering::SeqCst);
    }
}

/// The device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    at: u64,
    interrupt: u32,
}

impl Device {
    /// The first of its kind.
    pub(crate) fn find(kind: VirtioDevice) -> Option<Self> {
        let named = NAMED.iter().map(|slot| slot.load(Ordering::SeqCst));
        let devices = named.filter(|word| *word != 0);
        let mut devices =
            devices.map(|word| Self { at: word >> 16, interrupt: (word & 0xffff) as u32 });
        devices.find(|one| {
            one.read(MAGIC) == VIRT && one.read(VERSION) == 2 && one.read(DEVICE) == kind as u32
        })
    }

    fn read(&self, offset: u64) -> u32 {
        Register::at(self.at + offset).map_or(0, Register::read)
    }

    fn write(&self, offset: u64, value: u32) {
        if let Some(register) = Register::at(self.at + offset) {
            register.write(value);
        }
    }

    /// As [`handshake::reset`].
    pub(crate) fn reset(&self) -> bool {
        handshake::reset(self)
    }

    /// As [`handshake::begin`].
    pub(crate) fn begin(&self, queues: &[&'static Queue], interrupts: bool) -> bool {
        handshake::begin(self, queues, interrupts)
    }

    /// Tells it that there is something in a queue.
    pub(crate) fn notify(&self, queue: u16) {
        self.write(QUEUE_NOTIFY, u32::from(queue));
    }

    /// Answers its interrupt: what it said it was for.
    pub(crate) fn acknowledge(&self) {
        self.write(INTERRUPT_ANSWER, self.read(INTERRUPT_STATUS));
    }
}

impl Transport for Device {
    fn status(&self) -> u8 {
        self.read(STATUS) as u8
    }

    fn set_status(&self, status: u8) {
        self.write(STATUS, u32::from(status));
    }

    fn accept(&self, word: u32, features: u32) {
        self.write(DRIVER_SELECT, word);
        self.write(DRIVER_FEATURE, features);
    }

    /// All of a device's queues have one interrupt: which of them uses it stands in them.
    fn place(&self, index: u16, places: [u64; 3], interrupts: bool) -> bool {
        if interrupts && !begin_device(self.interrupt) {
            return false;
        }
        self.write(QUEUE_SELECT, u32::from(index));
        if self.read(QUEUE_MOST) < u32::from(QUEUE_SIZE) {
            return false;
        }
        self.write(QUEUE_LENGTH, u32::from(QUEUE_SIZE));
        for (at, address) in QUEUE_PLACES.into_iter().zip(places) {
            self.write(at, address as u32);
            self.write(at + 4, (address >> 32) as u32);
        }
        self.write(QUEUE_READY, 1);
        true
    }
}
