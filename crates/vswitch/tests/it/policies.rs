//! What a port is held to, and what the protocol's rarer parts do: rates, MTUs,
//! isolation, mirrors, memory that comes and goes, the log of written pages.

use std::os::fd::AsFd;
use std::time::Duration;

use vswitch::MirrorConfig;
use vswitch::frontend::{FrameBytes, Frontend, FrontendOptions, Touch, TrafficPlan};
use vswitch::memory::{Region, RegionAddresses};
use vswitch::message::{VhostRequest, features, protocol};

use crate::lab::{GRACE, Lab, pcpus};
use crate::wire::{self, HEADER, drops, fill, frame, mac, receive, send, send_plain};

fn ends(lab: &Lab, count: usize, options: FrontendOptions) -> Vec<Frontend> {
    let mut ends: Vec<Frontend> = (0..count).map(|port| lab.connect(port, options)).collect();
    ends.iter_mut().for_each(fill);
    ends
}

#[test]
fn a_port_over_its_rate_waits_and_loses_nothing() {
    // That a rate is kept is a property of `rate.rs`, by a clock of its own.
    for rate in ["2kpps", "1mbit"] {
        let setting = format!(",rate={rate}");
        let lab = Lab::new(&[&setting, ""]);
        let plan = TrafficPlan {
            flows: vec![vswitch::frontend::TrafficFlow { from: 0, to: 1 }],
            bytes: FrameBytes::Fixed(64),
            touch: Touch::All,
            window: 64,
            grace: GRACE,
            pace_per_s: None,
        };
        let mut traffic = lab.traffic(2, FrontendOptions::default(), plan);
        let before = lab.port(1).counts.frames_out;
        traffic.run(|tally| tally.sent >= 264);
        let tally = traffic.tally();
        assert!(tally.is_whole(), "{tally:?}");
        let (sender, receiver) = (lab.port(0), lab.port(1));
        assert!(receiver.counts.frames_out - before >= 264);
        assert!(sender.counts.rate_waits > 0 && sender.counts.drops.is_empty(), "{sender:?}");
    }
}

#[test]
fn frames_beyond_the_mtu_are_dropped_and_counted_both_ways() {
    let lab = Lab::new(&[",mtu=1000", "", ",mtu=1000"]);
    let mut ends = ends(&lab, 3, FrontendOptions::default());
    for port in 0..3 {
        let hello = frame([0xff; 6], mac(port), 60);
        send_plain(&mut ends[usize::from(port)], &hello);
    }
    suite::until("all to be heard", || {
        (0..3).all(|port| lab.port(port).counts.frames_in == 1).then_some(())
    });
    ends.iter_mut().for_each(|end| while wire::try_receive(end).is_some() {});
    // From the port, to the port; as long as may be, and a byte more.
    for (from, to, guilty) in [(0_u8, 1_u8, 0), (1, 0, 0), (1, 2, 2)] {
        let before = drops(&lab, guilty, "mtu");
        let (sender, receiver) = (usize::from(from), usize::from(to));
        send_plain(&mut ends[sender], &frame(mac(to), mac(from), 1015));
        send_plain(&mut ends[sender], &frame(mac(to), mac(from), 1014));
        let (_, arrived) = receive(&mut ends[receiver], "a frame of the MTU");
        assert_eq!(arrived, frame(mac(to), mac(from), 1014));
        assert_eq!(drops(&lab, guilty, "mtu"), before + 1, "{from} to {to}");
    }
}

#[test]
fn an_mtu_that_is_asked_for_is_taken_or_refused() {
    let lab = Lab::new(&[",mtu=2000", ""]);
    for (port, mtu, answer) in [(0, 1500_u64, 0), (0, 2000, 0), (0, 2001, 1), (1, 9000, 0)] {
        let mut end = lab.connect(port, FrontendOptions::default());
        let known = protocol::REPLY_ACK | protocol::NET_MTU;
        assert_eq!(end.ask(&VhostRequest::GetProtocolFeatures).unwrap() & known, known);
        end.send(&VhostRequest::SetProtocolFeatures(known), &[]).unwrap();
        end.send_for_reply(&VhostRequest::SetMtu(mtu)).unwrap();
        assert_eq!(end.answer_to(20).unwrap(), answer, "{mtu}");
        drop(end);
        suite::until("the port to be free", || {
            (lab.port(port).state == vswitch::LinkState::Waiting).then_some(())
        });
    }
}

#[test]
fn isolated_ports_talk_to_the_uplink_alone() {
    // 0 and 1 are isolated, 2 is the uplink, 3 is neither.
    for (settings, reached) in [
        (
            [",isolated=on", ",isolated=on", ",uplink=on", ""],
            [vec![2], vec![2], vec![0, 1, 3], vec![2]],
        ),
        // Without an uplink, all that are not isolated are.
        (
            [",isolated=on", ",isolated=on", "", ""],
            [vec![2, 3], vec![2, 3], vec![0, 1, 3], vec![0, 1, 2]],
        ),
    ] {
        let lab = Lab::new(&settings);
        let mut ends = ends(&lab, 4, FrontendOptions::default());
        for (from, reached) in reached.iter().enumerate() {
            let before: Vec<u64> = (0..4).map(|port| lab.port(port).counts.frames_out).collect();
            send_plain(&mut ends[from], &frame([0xff; 6], mac(from as u8), 60));
            suite::until("the frame to be sent", || {
                (lab.port(from).counts.flooded == 1).then_some(())
            });
            suite::until("it to arrive", || {
                let after = (0..4).map(|port| lab.port(port).counts.frames_out);
                let gone: Vec<usize> = after
                    .zip(&before)
                    .enumerate()
                    .filter(|(_, (after, before))| after > before)
                    .map(|(port, _)| port)
                    .collect();
                assert!(gone.iter().all(|port| reached.contains(port)), "{from}: {gone:?}");
                (gone == *reached).then_some(())
            });
        }
        // To a known address behind the other isolated port: dropped, and said so.
        send_plain(&mut ends[0], &frame(mac(1), mac(0), 60));
        suite::until("the drop", || (drops(&lab, 0, "isolated") == 1).then_some(()));
        // And never back to where it came from.
        send_plain(&mut ends[0], &frame(mac(0), mac(0), 60));
        suite::until("the drop", || (drops(&lab, 0, "same_port") == 1).then_some(()));
    }
}

/// What Linux leaves to its card for a segment that is larger than the MTU: the header,
/// and the sum of the pseudo header in the checksum's place.
fn large(udp: bool, four: bool, payload: usize) -> ([u8; HEADER], Vec<u8>) {
    let network = if four { 20 } else { 40 };
    let transport = if udp { 8 } else { 20 };
    let mut bytes = frame(mac(1), mac(0), 14 + network + transport + payload);
    let at = 14;
    bytes[12..14].copy_from_slice(if four { &[8, 0] } else { &[0x86, 0xdd] });
    let (inner, protocol) = ((transport + payload) as u16, if udp { 17 } else { 6 });
    let addresses = if four {
        bytes[at] = 0x45;
        bytes[at + 2..at + 4].copy_from_slice(&(20 + inner).to_be_bytes());
        bytes[at + 9] = protocol;
        at + 12..at + 20
    } else {
        bytes[at] = 0x60;
        bytes[at + 4..at + 6].copy_from_slice(&inner.to_be_bytes());
        bytes[at + 6] = protocol;
        at + 8..at + 40
    };
    let start = at + network;
    let sum = bytes[addresses].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let mut sum = sum.sum::<u32>() + u32::from(protocol) + u32::from(inner);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let offset = if udp { 6 } else { 16 };
    if udp {
        bytes[start + 4..start + 6].copy_from_slice(&inner.to_be_bytes());
    } else {
        bytes[start + 12] = 5 << 4;
        bytes[start + 13] = 0x18;
    }
    bytes[start + offset..start + offset + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    let kind = if udp {
        5
    } else if four {
        1
    } else {
        4
    };
    let mut header = [1, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&((start + transport) as u16).to_le_bytes());
    header[4..6].copy_from_slice(&500_u16.to_le_bytes());
    header[6..8].copy_from_slice(&(start as u16).to_le_bytes());
    header[8..10].copy_from_slice(&(offset as u16).to_le_bytes());
    (header, bytes)
}

/// True if a frame's checksum over the transport is right.
fn is_summed(bytes: &[u8], four: bool) -> bool {
    let (network, at) = if four { (20, 14) } else { (40, 14) };
    let addresses = if four { at + 12..at + 20 } else { at + 8..at + 40 };
    let protocol = if four { bytes[at + 9] } else { bytes[at + 6] };
    let inner = &bytes[at + network..];
    let word = |two: &[u8]| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0));
    let mut sum = bytes[addresses].chunks(2).map(word).sum::<u32>()
        + inner.chunks(2).map(word).sum::<u32>()
        + u32::from(protocol)
        + inner.len() as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

#[test]
fn large_segments_pass_whole_or_are_made_here() {
    let sends = features::CSUM | features::HOST_TSO4 | features::HOST_TSO6 | features::HOST_USO;
    let takes = features::GUEST_CSUM
        | features::GUEST_TSO4
        | features::GUEST_TSO6
        | features::GUEST_USO4
        | features::GUEST_USO6;
    let defaults = FrontendOptions { buffer: 4096, ..FrontendOptions::default() };
    for (receiver, whole) in [(takes, true), (features::GUEST_CSUM, false), (0, false)] {
        let lab = Lab::new(&["", ""]);
        let with = |more| FrontendOptions { features: defaults.features | more, ..defaults };
        let mut one = lab.connect(0, with(sends));
        let mut two = lab.connect(1, with(receiver));
        fill(&mut one);
        fill(&mut two);
        for (udp, four) in [(false, true), (false, false), (true, true), (true, false)] {
            let what = format!("udp {udp}, IPv4 {four}, whole {whole}");
            let (header, bytes) = large(udp, four, 1234);
            send(&mut one, header, &bytes);
            if whole {
                let (arrived, frame) = receive(&mut two, &what);
                assert_eq!((&arrived[..10], &frame), (&header[..10], &bytes), "{what}");
                continue;
            }
            let headers = bytes.len() - 1234;
            let mut payload = Vec::new();
            for (number, length) in [500, 500, 234].into_iter().enumerate() {
                let (header, frame) = receive(&mut two, &what);
                assert_eq!(header[..10], [0; 10], "{what}");
                assert_eq!(frame.len(), headers + length, "{what} {number}");
                assert!(is_summed(&frame, four), "{what} {number}: {frame:x?}");
                payload.extend_from_slice(&frame[headers..]);
            }
            assert_eq!(payload, bytes[headers..], "{what}");
        }
        let status = lab.status();
        assert!(status.ports.iter().all(|port| port.counts.drops.is_empty()));
        let cut: Vec<u64> = status.ports.iter().map(|port| port.counts.segmented).collect();
        assert_eq!(cut, [0, if whole { 0 } else { 4 }], "{receiver:#x}");
    }
}

#[test]
fn frames_are_written_down_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.pcapng");
    let lab = Lab::with(&["", ""], |config| {
        let text = format!("{},ports=p0,snap=100", file.display());
        config.mirrors.push(MirrorConfig::parse(&text).unwrap());
    });
    let mut ends = ends(&lab, 2, FrontendOptions::default());
    let there = [frame([0xff; 6], mac(0), 60), frame(mac(1), mac(0), 700)];
    let back = [frame(mac(0), mac(1), 61), frame(mac(0), mac(1), 1500)];
    for (from, frames) in [(0, &there), (1, &back)] {
        for frame in frames {
            send_plain(&mut ends[from], frame);
            receive(&mut ends[1 - from], "the frame");
        }
    }
    suite::until("all to be written", || (lab.status().mirrors[0].written == 4).then_some(()));
    assert_eq!(lab.status().mirrors[0].dropped, 0);
    drop(lab);
    let bytes = std::fs::read(&file).unwrap();
    let mut frames = Vec::new();
    let mut kinds = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (kind, length) = (word(0), word(4) as usize);
        assert_eq!(word(length - 4) as usize, length, "both lengths are the same");
        kinds.push(kind);
        if kind == 6 {
            let (captured, whole) = (word(20) as usize, word(24));
            let flags = word(28 + captured.next_multiple_of(4) + 4);
            frames.push((flags, whole, rest[28..28 + captured].to_vec()));
        }
        rest = &rest[length..];
    }
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6, 5]);
    let expected = there.iter().map(|frame| (1, frame)).chain(back.iter().map(|frame| (2, frame)));
    let expected: Vec<_> = expected
        .map(|(way, frame)| (way, frame.len() as u32, frame[..frame.len().min(100)].to_vec()))
        .collect();
    assert_eq!(frames, expected);
}

#[test]
fn a_mirror_that_nobody_reads_or_that_is_full_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for text in [
        format!("{}", fifo.display()),
        format!("{},limit=64KiB", folder.path().join("file").display()),
    ] {
        let lab = Lab::with(&["", ""], |config| {
            config.mirrors.push(MirrorConfig::parse(&text).unwrap());
        });
        let plan = TrafficPlan {
            flows: TrafficPlan::ring(2),
            bytes: FrameBytes::Fixed(1500),
            touch: Touch::All,
            window: 64,
            grace: GRACE,
            pace_per_s: None,
        };
        let mut traffic = lab.traffic(2, FrontendOptions::default(), plan);
        traffic.run(|tally| tally.sent >= 30_000);
        assert!(traffic.tally().is_whole(), "{:?}", traffic.tally());
        suite::until("frames to be dropped", || {
            (lab.status().mirrors[0].dropped > 0).then_some(())
        });
    }
    assert!(std::fs::metadata(folder.path().join("file")).unwrap().len() <= 64 << 10);
}

#[test]
fn memory_comes_and_goes_while_rings_run() {
    let lab = Lab::new(&["", ""]);
    let mut ends = ends(&lab, 2, FrontendOptions::default());
    send_plain(&mut ends[1], &frame([0xff; 6], mac(1), 60));
    receive(&mut ends[0], "the hello");
    // A DIMM for each guest, the sender's holding frames, the receiver's buffers.
    let place = |guest_address| RegionAddresses {
        guest_address,
        size: 1 << 20,
        user_address: guest_address,
        file_offset: 0,
    };
    let dimm = place(1 << 40);
    let (mine, file) = Region::create(dimm.size, dimm.guest_address).unwrap();
    for round in 0..20_u8 {
        let sender = &mut ends[0];
        sender.send(&VhostRequest::AddMemReg(dimm), &[file.as_fd()]).unwrap();
        // Once this is answered, all before is done.
        sender.ask(&VhostRequest::GetFeatures).unwrap();
        let bytes = frame(mac(1), mac(0), 100 + usize::from(round));
        mine.at(4096, 2000).unwrap().write(&[&[0; HEADER][..], &bytes].concat());
        let ring = &mut sender.pairs()[0].transmit;
        let slot = ring.take_free().unwrap();
        ring.put(slot, &[(dimm.guest_address + 4096, (HEADER + bytes.len()) as u32)], 0);
        ring.publish();
        ring.kick();
        let (_, arrived) = receive(&mut ends[1], "a frame from the DIMM");
        assert_eq!(arrived, bytes, "{round}");
        let sender = &mut ends[0];
        sender.send(&VhostRequest::RemMemReg(dimm), &[]).unwrap();
        sender.ask(&VhostRequest::GetFeatures).unwrap();
        // What is gone can't be used any more.
        let before = drops(&lab, 0, "malformed");
        let ring = &mut sender.pairs()[0].transmit;
        let slot = ring.take_free().unwrap();
        ring.put(slot, &[(dimm.guest_address + 4096, 100)], 0);
        ring.publish();
        ring.kick();
        suite::until("the drop", || (drops(&lab, 0, "malformed") == before + 1).then_some(()));
        while ends[0].pairs()[0].transmit.take_used().is_some() {}
    }
}

#[test]
fn a_log_names_the_pages_that_were_written_and_no_others() {
    for packed in [0, features::RING_PACKED] {
        let lab = Lab::new(&["", ""]);
        let options = FrontendOptions::default();
        let options = FrontendOptions {
            features: options.features | features::LOG_ALL | packed,
            buffer: 4096,
            ..options
        };
        let mut ends = ends(&lab, 2, options);
        send_plain(&mut ends[1], &frame([0xff; 6], mac(1), 60));
        receive(&mut ends[0], "the hello");
        let memory = ends[1].memory().regions().next().unwrap().placement();
        let pages = (memory.guest_address + memory.size) / 4096;
        let (log, file) = Region::create((pages / 8).next_multiple_of(4096), 0).unwrap();
        let size = log.placement().size;
        ends[1].send(&VhostRequest::SetLogBase { size, offset: 0 }, &[file.as_fd()]).unwrap();
        assert_eq!(ends[1].answer_to(6).unwrap(), 0);
        let marked = || {
            let mut bits = vec![0; size as usize];
            log.at(0, size as usize).unwrap().bytes().copy_out(&mut bits);
            let set = |page: u64| bits[page as usize / 8] >> (page % 8) & 1 == 1;
            (0..pages).filter(|&page| set(page)).collect::<Vec<_>>()
        };
        assert!(marked().is_empty());
        let (slot, bytes) = (ends[1].pairs()[0].receive.next_slot(), frame(mac(1), mac(0), 300));
        send_plain(&mut ends[0], &bytes);
        suite::until("the frame to be counted", || {
            (lab.port(1).counts.frames_out == 1).then_some(())
        });
        let ring = &ends[1].pairs()[0].receive;
        let page = |address: u64| address / 4096;
        // The buffer, across pages as it may lie, and the ring's own part.
        let begin = ring.buffer_address(slot);
        let mut expected: Vec<u64> = (page(begin)..=page(begin + 311)).collect();
        let [descriptors, _, device] = ring.addresses();
        let (at, length) =
            if packed == 0 { (device, 4 + 256 * 8) } else { (descriptors, 256 * 16) };
        expected.extend(page(at)..=page(at + length - 1));
        expected.sort_unstable();
        assert_eq!(marked(), expected, "packed {}", packed != 0);
    }
}

#[test]
fn queues_go_to_the_thread_that_has_less_to_do() {
    let lab = Lab::with(&[""; 4], |config| config.pcpus = pcpus(2));
    // Ports 0 and 2 begin at one thread, and only they have work.
    let plan = TrafficPlan {
        flows: vec![
            vswitch::frontend::TrafficFlow { from: 0, to: 2 },
            vswitch::frontend::TrafficFlow { from: 2, to: 0 },
        ],
        bytes: FrameBytes::UpTo(500),
        touch: Touch::All,
        window: 32,
        // Some may be lost while a queue is between two threads.
        grace: Duration::from_secs(10),
        pace_per_s: None,
    };
    let mut traffic = lab.traffic(4, FrontendOptions::default(), plan);
    suite::until("a queue to be moved", || {
        let before = traffic.tally().sent;
        traffic.run(|tally| tally.sent > before + 500);
        (lab.status().moves > 0).then_some(())
    });
    let before = traffic.tally().sent;
    traffic.run(|tally| tally.sent > before + 5000);
    let tally = traffic.tally();
    assert_eq!((tally.disordered, tally.corrupt), (0, 0), "{tally:?}");
}
