//! Flows over a receiver's queues: each has one, in order, and all queues have their share.

use std::collections::BTreeMap;

use vswitch::frontend::{Frontend, FrontendOptions};

use crate::lab::Lab;
use crate::packets::Packet;
use crate::wire::{self, HEADER, fill, mac};

const QUEUES: u16 = 4;
const FLOWS: u32 = 1000;
/// Frames of each flow.
const EACH: u32 = 3;

/// What has arrived at each queue of a receiver.
fn take(receiver: &mut Frontend, arrived: &mut [Vec<Vec<u8>>]) {
    for (pair, arrived) in receiver.pairs().iter_mut().zip(arrived) {
        while let Some((slot, bytes)) = pair.receive.take_used() {
            let mut all = vec![0; bytes as usize];
            pair.receive.buffer(slot).bytes().copy_out(&mut all);
            arrived.push(all.split_off(HEADER));
            pair.receive.post(slot, 0);
        }
        pair.receive.publish();
    }
}

#[test]
fn each_flow_has_one_queue_and_each_queue_its_share() {
    let options = FrontendOptions { pairs: QUEUES, ..FrontendOptions::default() };
    let lab = Lab::new(&["", ",queues=4"]);
    let mut sender = lab.connect(0, FrontendOptions::default());
    let mut receiver = lab.connect(1, options);
    for pair in receiver.pairs() {
        while let Some(slot) = pair.receive.take_free() {
            pair.receive.post(slot, 0);
        }
        pair.receive.publish();
    }
    fill(&mut sender);
    // The frames of a client's connections to one server, and the server's answers.
    for answers in [false, true] {
        let mut arrived = vec![Vec::new(); usize::from(QUEUES)];
        let before = lab.port(1).counts.frames_out;
        let mut sent = 0;
        for round in 0..EACH {
            for flow in 0..FLOWS {
                let own = 32_768 + flow as u16;
                let ports = if answers { [443, own] } else { [own, 443] };
                let packet = Packet { ports, ..Packet::PLAIN };
                // Of both lengths that are read in different ways.
                let bytes = if flow % 2 == 0 { 30 } else { 500 };
                let mut frame = packet.frame(mac(1), mac(0), bytes);
                let at = frame.len() - 8;
                frame[at..at + 4].copy_from_slice(&flow.to_be_bytes());
                frame[at + 4..].copy_from_slice(&round.to_be_bytes());
                wire::send_plain(&mut sender, &frame);
                sent += 1;
                // As many as any queue has buffers for.
                if sent % 128 == 0 || sent == EACH * FLOWS {
                    suite::until("the frames to arrive", || {
                        take(&mut receiver, &mut arrived);
                        let all = arrived.iter().map(Vec::len).sum::<usize>();
                        (all == sent as usize).then_some(())
                    });
                }
            }
        }
        assert_eq!(lab.port(1).counts.frames_out - before, u64::from(sent));
        assert!(lab.port(1).counts.drops.is_empty(), "{:?}", lab.port(1));
        // By flow: its queue, and the frames that came.
        let mut flows: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
        for (queue, frames) in arrived.iter().enumerate() {
            for frame in frames {
                let number = |from_end: usize| {
                    let at = frame.len() - from_end;
                    u32::from_be_bytes(*frame[at..].first_chunk().unwrap())
                };
                let (flow, round) = (number(8), number(4));
                let (known, next) = flows.entry(flow).or_insert((queue, 0));
                assert_eq!((*known, *next), (queue, round), "flow {flow}");
                *next += 1;
            }
        }
        assert_eq!(flows.len() as u32, FLOWS);
        // A flow goes to a queue with a chance of 1/4: 250 of 1000 with a deviation of
        // sqrt(1000 * 1/4 * 3/4) = 13.7; five of these are 69.
        for queue in 0..usize::from(QUEUES) {
            let share = flows.values().filter(|(known, _)| *known == queue).count();
            assert!((181..=319).contains(&share), "answers {answers}: queue {queue}: {share}");
        }
    }
}
