//! What spreads frames over queues: one flow, one queue; many flows, all queues alike.

use crate::frame::{spread, tag_bytes};
use crate::memory::ByteRange;

/// Flows of each kind.
const FLOWS: usize = 1000;

/// Where a frame goes, whichever part of it is the switch's own copy.
#[track_caller]
fn queue(frame: &[u8], queues: usize) -> usize {
    let whole = spread(frame, &[], queues);
    let (head, rest) = frame.split_at(frame.len().min(20));
    let (second, third) = rest.split_at(rest.len().min(7));
    assert_eq!(spread(head, &[ByteRange::from(rest)], queues), whole);
    let pieces = [ByteRange::from(second), ByteRange::from(third)];
    assert_eq!(spread(head, &pieces, queues), whole);
    whole
}

fn ethernet(kind: u16, hosts: [u8; 2]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, hosts[1], 2, 0, 0, 0, 0, hosts[0]];
    frame.extend(kind.to_be_bytes());
    frame
}

/// `fragment` holds flags and offset.
fn four(protocol: u8, hosts: [u8; 2], ports: [u16; 2], fragment: u16) -> Vec<u8> {
    let mut frame = ethernet(0x0800, [1, 2]);
    let [high, low] = fragment.to_be_bytes();
    frame.extend([0x45, 0, 0, 60, 1, 2, high, low, 64, protocol, 0, 0]);
    frame.extend([10, 0, 0, hosts[0], 10, 0, 0, hosts[1]]);
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame
}

fn six(next: u8, hosts: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = ethernet(0x86dd, [1, 2]);
    frame.extend([0x60, 0, 0, 0, 0, 20, next, 64]);
    for host in hosts {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    frame
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &tag_bytes(vlan), &frame[12..]].concat()
}

/// Each flow, by its number, as frames of which each ends in something else.
type Flow = fn(usize) -> Vec<u8>;

const KINDS: [(&str, Flow); 13] = [
    ("TCP from many ports", |n| four(6, [1, 2], [32_768 + n as u16, 443], 0x4000)),
    ("TCP to many ports", |n| four(6, [1, 2], [443, 32_768 + n as u16], 0x4000)),
    ("UDP from many ports", |n| four(17, [1, 2], [1024 + n as u16, 53], 0)),
    ("UDP to many ports", |n| four(17, [1, 2], [53, 1024 + n as u16], 0)),
    ("every fourth port", |n| four(6, [1, 2], [32_768 + 4 * n as u16, 443], 0)),
    ("every 256th port", |n| four(6, [1, (n / 200) as u8], [256 * (n % 200) as u16, 443], 0)),
    ("many hosts", |n| four(6, [(n % 250) as u8, (n / 250) as u8], [5000, 80], 0)),
    ("TCP over IPv6 from many ports", |n| six(6, [1, 2], [32_768 + n as u16, 443])),
    ("UDP over IPv6 to many ports", |n| six(17, [1, 2], [53, 1024 + n as u16])),
    ("TCP with a tag", |n| tagged(&four(6, [1, 2], [443, 32_768 + n as u16], 0), 10)),
    ("IPv6 with a tag", |n| tagged(&six(6, [1, 2], [443, 32_768 + n as u16]), 10)),
    ("no IP, to many stations", |n| ethernet(0x88b5, [(n % 250) as u8, (n / 250) as u8])),
    ("fragments between many hosts", |n| {
        four(17, [(n / 250) as u8, (n % 250) as u8], [1, 2], 0x2000)
    }),
];

#[test]
fn flows_are_shared_out_evenly() {
    for (what, flow) in KINDS {
        for queues in [2, 3, 4, 7, 8, 64] {
            let mut counts = vec![0_u32; queues];
            for number in 0..FLOWS {
                counts[queue(&flow(number), queues)] += 1;
            }
            // Each is binomial with p = 1 / queues; five deviations are one in 1.7 million.
            let p = 1.0 / queues as f64;
            let mean = FLOWS as f64 * p;
            let most = 5.0 * (mean * (1.0 - p)).sqrt();
            for (number, &count) in counts.iter().enumerate() {
                let far = (f64::from(count) - mean).abs();
                assert!(far <= most, "{what}: queue {number} of {queues}: {counts:?}");
            }
        }
    }
}

#[test]
fn what_does_not_name_a_flow_does_not_choose_its_queue() {
    for (what, flow) in KINDS {
        for number in (0..FLOWS).step_by(37) {
            let frame = flow(number);
            let home = queue(&frame, 64);
            for length in [0, 1, 30, 300, 1400] {
                let mut longer = frame.clone();
                longer.resize(frame.len() + length, length as u8);
                // Of another type than IP, all behind the addresses is payload.
                assert_eq!(queue(&longer, 64), home, "{what} {number} {length}");
            }
        }
    }
    // Length, identification, time to live and checksum of IPv4; TCP's own header.
    let frame = [four(6, [1, 2], [40_000, 443], 0x4000), vec![0; 60]].concat();
    for at in [15, 16, 17, 18, 19, 22, 24, 25].into_iter().chain(38..94) {
        let mut other = frame.clone();
        other[at] ^= 0x5a;
        assert_eq!(queue(&other, 64), queue(&frame, 64), "byte {at}");
    }
    // Class and label of IPv6, its length and hop limit.
    let frame = [six(6, [1, 2], [40_000, 443]), vec![0; 60]].concat();
    for at in [15, 16, 17, 18, 19, 21].into_iter().chain(58..114) {
        let mut other = frame.clone();
        other[at] ^= 0x5a;
        assert_eq!(queue(&other, 64), queue(&frame, 64), "byte {at}");
    }
    // A tag says nothing of the flow: both of a trunk's ends see the same.
    let frame = four(6, [1, 2], [40_000, 443], 0);
    assert_eq!(queue(&tagged(&frame, 10), 64), queue(&frame, 64));
    assert_eq!(queue(&tagged(&frame, 4000), 64), queue(&frame, 64));
}

/// Only a datagram's first fragment has the ports; what stands there in the others is payload.
#[test]
fn all_fragments_of_a_datagram_have_one_queue() {
    for protocol in [6, 17] {
        for number in 0..200_u16 {
            let hosts = [number as u8, 7];
            let first = four(protocol, hosts, [1000 + number, 53], 0x2000);
            let home = queue(&first, 64);
            for (fragment, payload) in [(0x2000 | 185, 0), (0x2000 | 370, 9), (555, 0xffff_u16)] {
                let next = four(protocol, hosts, [payload, payload ^ number], fragment);
                assert_eq!(queue(&next, 64), home, "{protocol} {number} {fragment:x}");
            }
        }
    }
}

#[test]
fn the_shortest_frames_have_a_queue_too() {
    for kind in [0x0800, 0x86dd, 0x8100, 0x88b5] {
        for length in 14..64 {
            let mut frame = ethernet(kind, [1, 2]);
            frame.resize(length, 0x45);
            for queues in 1..=64 {
                assert!(queue(&frame, queues) < queues);
            }
        }
    }
}
