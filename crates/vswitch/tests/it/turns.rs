//! Turns: what a port may make its thread do before the next has its turn.

use vswitch::frontend::{Frontend, FrontendOptions};
use vswitch::message::features;

use crate::lab::Lab;
use crate::wire::{HEADER, drops, fill, frame, mac, send, send_plain};

/// Frames that a sender has ready before any of them is looked at.
const FRAMES: u16 = 24;
const PAYLOAD: usize = 60_000;

/// A TCP segment over IPv4 that is to be cut into parts of `size` bytes.
fn large(size: u16) -> ([u8; HEADER], Vec<u8>) {
    let mut bytes = frame(mac(1), mac(0), 54 + PAYLOAD);
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[23] = 6;
    bytes[46] = 5 << 4;
    let mut header = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0];
    header[4..6].copy_from_slice(&size.to_le_bytes());
    (header, bytes)
}

/// A sender at port 0 whose frames are all ready when it is enabled: how many frames the
/// thread took in how many bursts.
fn bursts(lab: &Lab, sender: &mut Frontend, header: [u8; HEADER], bytes: &[u8]) -> (u64, u64) {
    sender.enable(false).unwrap();
    // Frames of ports are counted before those of their thread.
    let before = suite::until("earlier frames to be counted", || {
        let status = lab.status();
        let counts = status.threads[0].counts.clone();
        let came = status.ports.iter().map(|port| port.counts.frames_in).sum::<u64>();
        (counts.frames == came).then_some(counts)
    });
    let ring = &mut sender.pairs()[0].transmit;
    for _ in 0..FRAMES {
        let slot = ring.take_free().unwrap();
        ring.buffer(slot).write(&[&header[..], bytes].concat());
        ring.post(slot, (HEADER + bytes.len()) as u32);
    }
    ring.publish();
    sender.enable(true).unwrap();
    sender.ring(1).kick();
    let counts = suite::until("all to be taken", || {
        let counts = lab.status().threads[0].counts.clone();
        (counts.frames - before.frames == u64::from(FRAMES)).then_some(counts)
    });
    while sender.pairs()[0].transmit.take_used().is_some() {}
    (counts.frames - before.frames, counts.bursts - before.bursts)
}

fn sender(lab: &Lab) -> Frontend {
    let options = FrontendOptions::default();
    let features = options.features | features::CSUM | features::HOST_TSO4;
    let options = FrontendOptions { features, buffer: 65_536, ring_size: 32, ..options };
    lab.connect(0, options)
}

#[test]
fn a_turn_is_over_when_its_work_is_not_its_bytes() {
    let lab = Lab::new(&["", ""]);
    let mut sender = sender(&lab);
    // It takes no segments.
    let mut receiver = lab.connect(1, FrontendOptions::default());
    fill(&mut receiver);
    send_plain(&mut receiver, &frame(mac(0), mac(1), 60));
    suite::until("it to be known", || (lab.port(1).counts.frames_in == 1).then_some(()));
    // By bytes alone, five of each would be a turn; of 1000 pieces each is one of its own.
    let (header, bytes) = large(60);
    let (frames, turns) = bursts(&lab, &mut sender, header, &bytes);
    assert_eq!(frames, turns);
    let (header, bytes) = large(20_000);
    let (frames, turns) = bursts(&lab, &mut sender, header, &bytes);
    assert_eq!(turns, frames.div_ceil(5));
    assert_eq!(drops(&lab, 0, "bad_offload"), 0);
}

#[test]
fn a_frame_to_all_counts_once_for_each_that_it_goes_to() {
    let lab = Lab::new(&[""; 9]);
    let mut sender = sender(&lab);
    let mut others: Vec<Frontend> =
        (1..9).map(|port| lab.connect(port, FrontendOptions::default())).collect();
    others.iter_mut().for_each(fill);
    // Of 16000 bytes, 17 copies are a turn.
    let bytes = frame([0xff; 6], mac(0), 16_000);
    let (frames, turns) = bursts(&lab, &mut sender, [0; HEADER], &bytes);
    assert_eq!(turns, (8 * frames).div_ceil(17));
    // 8 times 56 bytes and what else there is to do: all of them are one.
    let bytes = frame([0xff; 6], mac(0), 56);
    let (frames, turns) = bursts(&lab, &mut sender, [0; HEADER], &bytes);
    assert_eq!((frames, turns), (u64::from(FRAMES), 1));
}

#[test]
fn a_frame_to_all_that_is_more_than_a_turn_goes_on_in_the_next() {
    let lab = Lab::new(&[""; 9]);
    let mut sender = sender(&lab);
    // They take no segments, and each has as many buffers as three frames in three parts
    // need, of 20054 bytes and a header each.
    let options = FrontendOptions { ring_size: 128, ..FrontendOptions::default() };
    let mut others: Vec<Frontend> = (1..9).map(|port| lab.connect(port, options)).collect();
    others.iter_mut().for_each(fill);
    let (header, mut bytes) = large(20_000);
    bytes[..6].copy_from_slice(&[0xff; 6]);
    let before: Vec<_> = (1..9).map(|port| (port, lab.port(port).counts.frames_out)).collect();
    // Of 61078 bytes copied with the three parts, five copies are a turn.
    let (frames, turns) = bursts(&lab, &mut sender, header, &bytes);
    assert_eq!(turns, (8 * frames).div_ceil(5));
    // Nobody gets it twice, and nobody misses it, but for what has no room.
    for (port, before) in before {
        let counts = lab.port(port).counts;
        let came = counts.frames_out - before;
        let full = counts.drops.get("no_buffer").copied().unwrap_or(0);
        assert_eq!((came + full, counts.segmented), (3 * frames, frames), "{port}: {counts:?}");
        assert!(came >= 9, "{port}: {counts:?}");
    }
    let sent = lab.port(0).counts;
    assert_eq!((sent.flooded, sent.frames_in), (frames, frames), "{sent:?}");
}

#[test]
fn segments_smaller_than_any_stack_sends_are_dropped_and_counted() {
    let lab = Lab::new(&["", ""]);
    let mut sender = sender(&lab);
    let mut receiver = lab.connect(1, FrontendOptions::default());
    fill(&mut receiver);
    send_plain(&mut receiver, &frame(mac(0), mac(1), 60));
    suite::until("it to be known", || (lab.port(1).counts.frames_in == 1).then_some(()));
    for (number, size) in [1, 8, 47].into_iter().enumerate() {
        let (header, bytes) = large(size);
        send(&mut sender, header, &bytes);
        suite::until("the drop", || {
            (drops(&lab, 0, "bad_offload") == number as u64 + 1).then_some(())
        });
    }
    assert_eq!(lab.port(1).counts.segmented, 0);
    let (header, bytes) = large(48);
    send(&mut sender, header, &bytes);
    suite::until("what may be", || (lab.port(1).counts.segmented == 1).then_some(()));
}
