//! Round trips to a virtio device in QEMU.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, sections 5.1 and 5.2; RFC 826 (ARP).

use core::sync::atomic::Ordering;

use thinguest::{Measurement, Queue, Skip, UsedRingState, VirtioDevice};

use crate::metal::device_memory::{BLOCK, Buffer, NET, QUEUES};
use crate::metal::instruction::{clock, clock_unordered, halt, interrupts_off, ticks};
use crate::metal::vcpu::VCPUS;
use crate::metal::virtio::Device;
use crate::sampler::Sampler;

/// What is given up after.
const PATIENCE_CYCLES: u64 = 1 << 34;
/// Looks between two readings of the clock.
const LOOKS: u32 = 1 << 10;

/// The request that the device itself answers, with its name: no disk is asked.
const GET_ID: u8 = 8;
const ID_BYTES: u32 = 20;
const DONE: u8 = 0;

/// How the guest learns that the device is through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It looks, and has said that it wants no interrupt.
    Poll,
    /// It halts until the device's interrupt.
    Interrupt,
}

/// A device of `kind`, reset and begun with `queues`, the first of which interrupts if
/// that is the ending.
fn begin(kind: VirtioDevice, queues: &[&'static Queue], ending: Ending) -> Result<Device, Skip> {
    interrupts_off();
    let device = Device::find(kind).ok_or(Skip::NoDevice)?;
    if device.begin(queues, ending == Ending::Interrupt) { Ok(device) } else { Err(Skip::Wrong) }
}

/// Looks until the chain is back; how many bytes the device wrote.
///
/// There is no PAUSE: its exits would be counted with the device's.
fn look(queue: &Queue) -> Result<u32, Skip> {
    let begin = clock_unordered();
    loop {
        for _ in 0..LOOKS {
            match queue.used() {
                UsedRingState::NotYet => core::hint::black_box(()),
                UsedRingState::Back(bytes) => return Ok(bytes),
                UsedRingState::Lie => return Err(Skip::Wrong),
            }
        }
        if clock_unordered().wrapping_sub(begin) > ticks(PATIENCE_CYCLES) {
            return Err(Skip::NoAnswer);
        }
    }
}

/// Tells the device of queue `told`, and waits until `queue` is back.
fn round_trip(device: &Device, told: u16, queue: &Queue, ending: Ending) -> Result<u32, Skip> {
    let interrupts = || VCPUS[0].devices.load(Ordering::SeqCst);
    let before = interrupts();
    device.notify(told);
    if ending == Ending::Interrupt {
        while interrupts() == before {
            halt();
            interrupts_off();
        }
        device.acknowledge();
        // Whoever interrupts has answered.
        return match queue.used() {
            UsedRingState::Back(bytes) => Ok(bytes),
            UsedRingState::NotYet | UsedRingState::Lie => Err(Skip::Wrong),
        };
    }
    look(queue)
}

/// A request to the block device, which answers it by itself.
pub(crate) fn block(sampler: Sampler<'_>, ending: Ending) -> Result<Measurement, Skip> {
    let [header, id, status] = &BLOCK;
    header.set(0, &[GET_ID]);
    let pieces = [header.piece(16, false), id.piece(ID_BYTES, true), status.piece(1, true)];
    let queue = &QUEUES[0];
    queue.begin(&pieces, ending == Ending::Interrupt);
    let device = begin(VirtioDevice::Block, &[queue], ending)?;
    let done = sampler.samples(1, || {
        status.set(0, &[0xff]);
        let begin = clock();
        queue.give();
        round_trip(&device, 0, queue, ending)?;
        let cycles = clock() - begin;
        if status.byte(0) == DONE { Ok(cycles) } else { Err(Skip::Wrong) }
    });
    device.reset();
    done
}

/// Bytes of virtio-net's own header before a frame, and of the least frame.
const HEADER_BYTES: usize = 12;
const FRAME_BYTES: usize = 60;
/// The most that comes in one piece.
const MOST_BYTES: u32 = 1526;

/// Who has 10.0.2.2, the host of QEMU's user network?
const QUESTION: [u8; 42] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x06, 0x00, 0x01,
    0x08, 0x00, 6, 4, 0, 1, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10,
    0, 2, 2,
];
/// Where a frame has its kind, and an ARP packet in it what it is.
const KIND_AT: usize = 12;
const ARP: [u8; 2] = [0x08, 0x06];
const OPERATION_AT: usize = 20;
const REPLY: [u8; 2] = [0, 2];

fn is_reply(frame: &Buffer, bytes: u32) -> bool {
    let two = |at: usize| [0, 1].map(|next| frame.byte(HEADER_BYTES + at + next));
    bytes as usize >= HEADER_BYTES + QUESTION.len()
        && two(KIND_AT) == ARP
        && two(OPERATION_AT) == REPLY
}

/// A frame to the network's other end, and the frame that answers it.
pub(crate) fn net(sampler: Sampler<'_>, ending: Ending) -> Result<Measurement, Skip> {
    const RECEIVE: usize = 0;
    const SEND: usize = 1;
    let [came, sent] = &NET;
    sent.set(HEADER_BYTES, &QUESTION);
    let (receive, send) = (&QUEUES[RECEIVE], &QUEUES[SEND]);
    receive.begin(&[came.piece(MOST_BYTES, true)], ending == Ending::Interrupt);
    send.begin(&[sent.piece((HEADER_BYTES + FRAME_BYTES) as u32, false)], false);
    let device = begin(VirtioDevice::Net, &[receive, send], ending)?;
    let done = sampler.samples(1, || {
        came.set(HEADER_BYTES + KIND_AT, &[0; 2]);
        let begin = clock();
        // It is looked for when a frame comes: nobody has to be told.
        receive.give();
        send.give();
        let bytes = round_trip(&device, SEND as u16, receive, ending)?;
        // The answer may be there before the question is given back.
        look(send)?;
        let cycles = clock() - begin;
        if is_reply(came, bytes) { Ok(cycles) } else { Err(Skip::Wrong) }
    });
    device.reset();
    done
}
