//! A guest that changes what it sent while it is read: headers, addresses, offloads. What
//! arrives was judged as it is.

use std::sync::atomic::{AtomicBool, Ordering};

use vswitch::frontend::{DescriptorLayout, FrontendOptions};
use vswitch::message::features;

use crate::lab::Lab;
use crate::packets::{Packet, offload_header};
use crate::wire::{HEADER, fill, mac, try_receive};

/// Frames that have to arrive at each of both.
const FRAMES: u64 = 2000;
/// Slots of which all are sent again and again.
const SLOTS: u16 = 64;

/// Numbers that look like chance.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Ends the other thread, also where this one's assertions fail.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_arrives_was_judged_whatever_changes_meanwhile() {
    for (layout, payload) in [
        (DescriptorLayout::Single, 30),
        (DescriptorLayout::Single, 600),
        (DescriptorLayout::Two, 30),
        (DescriptorLayout::Two, 600),
    ] {
        check(layout, payload);
    }
}

#[track_caller]
fn check(layout: DescriptorLayout, payload: usize) {
    // Two receivers that take no offloads, and a sender that may have one address.
    let lab = Lab::new(&["", "", ",mac=02:00:00:00:00:02"]);
    let mut ends = [0, 1].map(|port| lab.connect(port, FrontendOptions::default()));
    let options = FrontendOptions::default();
    let options = FrontendOptions {
        shape: layout,
        features: options.features | features::CSUM | features::HOST_TSO4,
        ..options
    };
    let mut hostile = lab.connect(2, options);
    for (port, end) in (0..).zip(&mut ends) {
        fill(end);
        let hello = crate::wire::frame(mac(2), mac(port), 60);
        crate::wire::send_plain(end, &hello);
    }
    suite::until("both to be known", || {
        (0..2).all(|port| lab.port(port).counts.frames_in == 1).then_some(())
    });
    for end in &mut ends {
        while try_receive(end).is_some() {}
    }

    let packet = Packet { udp: false, ..Packet::PLAIN };
    let frame = packet.frame(mac(0), mac(2), payload);
    let headers =
        [[0; HEADER], offload_header(&packet, 0, None), offload_header(&packet, 0, Some(50))];
    let whole = (HEADER + frame.len()) as u32;
    for slot in 0..SLOTS {
        hostile.ring(1).buffer(slot).write(&[&headers[0][..], &frame].concat());
    }
    // The same memory, as another vCPU of the guest has it.
    let memory = hostile.memory().clone();
    let buffers: Vec<u64> = (0..SLOTS).map(|slot| hostile.ring(1).buffer_address(slot)).collect();
    let done = AtomicBool::new(false);
    let mut received = [0_u64; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
            let at = |address: u64, bytes: &[u8]| {
                memory.at(address, bytes.len()).unwrap().write(bytes);
            };
            while !done.load(Ordering::Relaxed) {
                let chance = numbers.next();
                let begin = buffers[chance as usize % buffers.len()];
                // Addresses that differ in their last byte, so that none is half another.
                let to = begin + HEADER as u64 + 5;
                let from = begin + HEADER as u64 + 11;
                match chance >> 32 & 7 {
                    0 => at(to, &[0]),
                    1 | 2 => at(to, &[1]),
                    3 => at(from, &[2]),
                    4 => at(from, &[chance as u8 & 3]),
                    5 => at(begin, &headers[(chance >> 40) as usize % headers.len()]),
                    // Into the addresses, behind the frame, anywhere.
                    6 => at(begin + 6, &(chance >> 48).to_le_bytes()[..2]),
                    _ => at(begin + 1, &[(chance >> 40) as u8 % 6]),
                }
            }
        });
        let _ending = Ending(&done);
        suite::until("frames to arrive at both, and drops of both kinds", || {
            let ring = &mut hostile.pairs()[0].transmit;
            ring.reclaim();
            while let Some(slot) = ring.take_free() {
                // Free slots are those of all buffers; only the first ones are used.
                if slot < SLOTS {
                    ring.post(slot, whole);
                }
            }
            ring.publish();
            ring.kick();
            for (port, end) in (0..).zip(&mut ends) {
                while let Some((header, frame)) = try_receive(end) {
                    received[usize::from(port)] += 1;
                    assert_eq!(header, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], "{frame:02x?}");
                    assert_eq!(frame[..6], mac(port), "at {port}");
                    assert_eq!(frame[6..12], mac(2), "at {port}");
                }
            }
            let drops = lab.port(2).counts.drops;
            let both = ["bad_offload", "spoofed"].iter().all(|&why| {
                // Of a header that asks for segments, some come to light at the receiver.
                drops.contains_key(why)
            });
            (both && received.iter().all(|&count| count >= FRAMES)).then_some(())
        });
    });
    for port in 0..3 {
        let port = lab.port(port);
        assert!(port.stopped.is_empty() && port.last_error.is_none(), "{port:?}");
    }
    let drops = lab.port(2).counts.drops;
    assert!(!drops.contains_key("malformed"), "{drops:?}");
}
