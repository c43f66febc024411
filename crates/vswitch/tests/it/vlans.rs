//! VLANs: what each kind of port gets of what each kind sends, byte by byte.

use vswitch::frontend::{Frontend, FrontendOptions};
use vswitch::message::features;
use vswitch::{ControlReply, Question};

use crate::lab::Lab;
use crate::packets::{self, Headers, Packet, offload_header};
use crate::wire::{HEADER, drops, fill, frame, mac, send, send_plain, try_receive};

const ALL: [u8; 6] = [0xff; 6];
/// Access ports of VLAN 10, 10 and 20, two trunks of both, one of 20 and 30.
const PORTS: [&str; 6] =
    [",vlan=10", ",vlan=10", ",vlan=20", ",trunk=10+20", ",trunk=10+20", ",trunk=20+30"];
/// Of a header that asks for nothing, as it arrives.
const PLAIN: [u8; HEADER] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// A frame that arrived at a port.
type ReceivedFrame = (usize, [u8; HEADER], Vec<u8>);

struct Vlans {
    lab: Lab,
    ends: Vec<Frontend>,
}

impl Vlans {
    fn new(settings: &[&str], options: &[FrontendOptions]) -> Self {
        let lab = Lab::new(settings);
        let ends = options.iter().enumerate();
        let mut ends: Vec<Frontend> = ends.map(|(port, &own)| lab.connect(port, own)).collect();
        ends.iter_mut().for_each(fill);
        Self { lab, ends }
    }

    fn plain() -> Self {
        Self::new(&PORTS, &[FrontendOptions::default(); PORTS.len()])
    }

    /// Waits until the switch is through with what `port` sent: it counts a frame once it is
    /// where it goes.
    fn wait_for(&self, port: usize, frames_in: u64) {
        suite::until("the frame to be forwarded", || {
            (self.lab.port(port).counts.frames_in == frames_in).then_some(())
        });
    }

    /// All that has arrived anywhere of what `from` sends.
    fn sent(&mut self, from: usize, header: [u8; HEADER], frame: &[u8]) -> Vec<ReceivedFrame> {
        let before = self.lab.port(from).counts.frames_in;
        send(&mut self.ends[from], header, frame);
        self.wait_for(from, before + 1);
        self.arrived()
    }

    fn arrived(&mut self) -> Vec<ReceivedFrame> {
        let mut arrived = Vec::new();
        for (port, end) in self.ends.iter_mut().enumerate() {
            while let Some((header, frame)) = try_receive(end) {
                arrived.push((port, header, frame));
            }
        }
        arrived
    }

    /// `frame` without offloads from `from` arrives as these, and nowhere else.
    #[track_caller]
    fn check(&mut self, from: usize, frame: &[u8], expected: &[(usize, &[u8])]) {
        let arrived = self.sent(from, [0; HEADER], frame);
        let expected: Vec<ReceivedFrame> =
            expected.iter().map(|&(port, frame)| (port, PLAIN, frame.to_vec())).collect();
        assert_eq!(arrived, expected, "from {from}: {frame:02x?}");
    }

    /// Nobody gets `frame`, which is counted at its sender.
    #[track_caller]
    fn check_dropped(&mut self, from: usize, header: [u8; HEADER], frame: &[u8], reason: &str) {
        let before = drops(&self.lab, from, reason);
        let arrived = self.sent(from, header, frame);
        assert_eq!(arrived, [], "from {from}: {frame:02x?}");
        assert_eq!(drops(&self.lab, from, reason), before + 1, "from {from}: {frame:02x?}");
    }

    fn flooded(&self) -> u64 {
        self.lab.status().ports.iter().map(|port| port.counts.flooded).sum()
    }
}

/// `frame` with a tag of this kind before its type.
fn with_tag(frame: &[u8], kind: u16, control: u16) -> Vec<u8> {
    let tag = [kind.to_be_bytes(), control.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn tagged(frame: &[u8], vlan: u16, priority: u16) -> Vec<u8> {
    with_tag(frame, 0x8100, priority << 13 | vlan)
}

/// Lengths on both sides of each path's limits: what is looked at, what is short, buffers.
const LENGTHS: [usize; 11] = [14, 16, 19, 20, 56, 60, 112, 113, 116, 117, 1500];

#[test]
fn access_ports_know_of_no_tags_and_trunks_of_all() {
    let mut vlans = Vlans::plain();
    for length in LENGTHS {
        let plain = frame(ALL, mac(0), length);
        let of_ten = tagged(&plain, 10, 0);
        vlans.check(0, &plain, &[(1, &plain), (3, &of_ten), (4, &of_ten)]);
        let plain = frame(ALL, mac(2), length);
        let of_twenty = tagged(&plain, 20, 0);
        vlans.check(2, &plain, &[(3, &of_twenty), (4, &of_twenty), (5, &of_twenty)]);
        // From a trunk, whatever priority and drop eligibility stand beside the VLAN.
        let plain = frame(ALL, mac(3), length);
        for priority in [0, 5, 7] {
            let sent = tagged(&plain, 10, priority);
            vlans.check(3, &sent, &[(0, &plain), (1, &plain), (4, &sent)]);
            let mut sent = tagged(&plain, 20, priority);
            sent[14] |= 0x10;
            vlans.check(3, &sent, &[(2, &plain), (4, &sent), (5, &sent)]);
        }
        // To ports that are known, too.
        let before = vlans.flooded();
        let plain = frame(mac(3), mac(0), length);
        vlans.check(0, &plain, &[(3, &tagged(&plain, 10, 0))]);
        let plain = frame(mac(0), mac(3), length);
        vlans.check(3, &tagged(&plain, 10, 6), &[(0, &plain)]);
        let sent = tagged(&frame(mac(3), mac(4), length), 20, 3);
        vlans.check(4, &sent, &[(3, &sent)]);
        assert_eq!(vlans.flooded(), before, "{length}");
    }
    for port in 0..PORTS.len() {
        assert!(vlans.lab.port(port).counts.drops.is_empty(), "{:?}", vlans.lab.port(port));
    }
}

#[test]
fn tags_that_a_port_does_not_carry_are_dropped_and_counted() {
    let mut vlans = Vlans::plain();
    let plain = frame(ALL, mac(9), 60);
    for vlan in [0, 1, 11, 30, 4094, 4095] {
        for priority in [0, 7] {
            vlans.check_dropped(3, [0; HEADER], &tagged(&plain, vlan, priority), "vlan");
        }
    }
    for length in LENGTHS {
        vlans.check_dropped(3, [0; HEADER], &frame(ALL, mac(9), length), "vlan");
    }
    // A tag that its frame ends in is none.
    vlans.check_dropped(3, [0; HEADER], &tagged(&plain, 10, 0)[..17], "vlan");
    // One of another kind is not the trunk's.
    vlans.check_dropped(3, [0; HEADER], &with_tag(&plain, 0x88a8, 10), "vlan");
    // Not even its own, nor one that asks for a priority alone.
    for vlan in [0, 10, 20] {
        for length in LENGTHS {
            let sent = tagged(&frame(ALL, mac(9), length), vlan, 0);
            vlans.check_dropped(0, [0; HEADER], &sent, "vlan");
        }
    }
    // Nobody was learned by any of these.
    let ControlReply::Stations(stations) = vlans.lab.switch.ask(Question::Stations) else {
        panic!();
    };
    assert_eq!(stations, []);
}

/// What holds for one frame of a burst need not hold for the next with the same beginning.
#[test]
fn a_frame_that_ends_in_its_tag_lets_no_other_tag_pass() {
    for short_first in [true, false] {
        let mut vlans = Vlans::plain();
        let long = tagged(&frame(ALL, mac(0), 600), 20, 0);
        let cut = &long[..16];
        let mut burst = vec![cut, &long, cut, &long];
        if !short_first {
            burst.reverse();
        }
        let ring = &mut vlans.ends[0].pairs()[0].transmit;
        for frame in &burst {
            let slot = ring.take_free().unwrap();
            ring.buffer(slot).write(&[&[0; HEADER][..], frame].concat());
            ring.post(slot, (HEADER + frame.len()) as u32);
        }
        ring.publish();
        ring.kick();
        vlans.wait_for(0, burst.len() as u64);
        let arrived = vlans.arrived();
        assert!(arrived.iter().all(|(_, _, frame)| frame.len() <= cut.len() + 4), "{arrived:02x?}");
        assert_eq!(arrived.len(), 2 * 3);
        assert_eq!(drops(&vlans.lab, 0, "vlan"), 2);
    }
}

#[test]
fn a_second_tag_is_payload() {
    let mut vlans = Vlans::plain();
    let plain = frame(ALL, mac(3), 60);
    // The outer one is judged, and no other: VLAN 20 gets nothing.
    let inner = tagged(&plain, 20, 2);
    let both = tagged(&inner, 10, 1);
    vlans.check(3, &both, &[(0, &inner), (1, &inner), (4, &both)]);
    // A service tag of an access port's guest is payload, too.
    let service = with_tag(&frame(ALL, mac(0), 60), 0x88a8, 20);
    let outer = tagged(&service, 10, 0);
    vlans.check(0, &service, &[(1, &service), (3, &outer), (4, &outer)]);
    // Where no port has a VLAN, all are.
    let mut unaware = Vlans::new(&["", "", ""], &[FrontendOptions::default(); 3]);
    for sent in [&both, &inner, &service, &tagged(&plain, 4095, 7), &both[..17].to_vec()] {
        unaware.check(0, sent, &[(1, sent), (2, sent)]);
    }
}

#[test]
fn one_address_in_two_vlans_is_two_stations() {
    let mut vlans = Vlans::plain();
    let both = mac(7);
    let hello = frame(ALL, both, 60);
    for round in 0..3 {
        let of_ten = tagged(&hello, 10, 0);
        vlans.check(0, &hello, &[(1, &hello), (3, &of_ten), (4, &of_ten)]);
        let of_twenty = tagged(&hello, 20, 0);
        vlans.check(2, &hello, &[(3, &of_twenty), (4, &of_twenty), (5, &of_twenty)]);
        let to = frame(both, mac(3), 60 + round);
        vlans.check(3, &tagged(&to, 10, 0), &[(0, &to)]);
        vlans.check(3, &tagged(&to, 20, 0), &[(2, &to)]);
    }
    let ControlReply::Stations(stations) = vlans.lab.switch.ask(Question::Stations) else {
        panic!();
    };
    let mut known: Vec<_> = stations.into_iter().map(|one| (one.mac, one.vlan, one.port)).collect();
    known.sort();
    let expected = [("03", 10, "p3"), ("03", 20, "p3"), ("07", 10, "p0"), ("07", 20, "p2")];
    let expected =
        expected.map(|(mac, vlan, port)| (format!("02:00:00:00:00:{mac}"), vlan, port.to_owned()));
    assert_eq!(known, expected);
}

/// A driver that leaves checksums and segments to its card, and takes none that are left.
fn leaves() -> FrontendOptions {
    let options = FrontendOptions::default();
    let own = features::CSUM | features::HOST_TSO4 | features::HOST_TSO6 | features::HOST_USO;
    FrontendOptions { features: options.features | own, ..options }
}

/// One that takes them.
fn takes() -> FrontendOptions {
    let options = leaves();
    let own = features::GUEST_CSUM
        | features::GUEST_TSO4
        | features::GUEST_TSO6
        | features::GUEST_USO4
        | features::GUEST_USO6;
    FrontendOptions { features: options.features | own, ..options }
}

#[test]
fn offloads_move_with_the_tag() {
    // To an access port and a trunk that take offloads, and to one each that do not.
    let settings =
        [",vlan=10", ",trunk=10+20", ",vlan=10", ",trunk=10+20", ",vlan=10", ",trunk=10"];
    let options = [leaves(), leaves(), takes(), takes(), leaves(), leaves()];
    let mut vlans = Vlans::new(&settings, &options);
    for packet in Packet::all() {
        let plain = packet.frame(ALL, mac(9), 1000);
        for from in [0, 1] {
            let (sent, own) =
                if from == 1 { (tagged(&plain, 10, 4), 4) } else { (plain.clone(), 0) };
            let size = 300;
            for segments in [None, Some(size)] {
                let header = offload_header(&packet, own, segments);
                let arrived = vlans.sent(from, header, &sent);
                let tag_of = |port: usize| -> Option<u16> {
                    (port % 2 == 1).then_some(10 | if from == 1 { 4 << 13 } else { 0 })
                };
                for port in (0..6).filter(|&port| port != from) {
                    let what = format!("{packet:?} {segments:?} from {from} to {port}");
                    let here = arrived.iter().filter(|(at, _, _)| *at == port);
                    let here: Vec<_> = here.map(|(_, header, frame)| (*header, frame)).collect();
                    let bytes = if tag_of(port).is_some() { 4 } else { 0 };
                    if port == 2 || port == 3 {
                        // As it was sent, elsewhere by the tag.
                        let mut expected = offload_header(&packet, bytes, segments);
                        expected[10] = 1;
                        let [(header, frame)] = here[..] else { panic!("{what}: {here:02x?}") };
                        assert_eq!(header, expected, "{what}");
                        let whole =
                            tag_of(port).map_or(plain.clone(), |tag| with_tag(&plain, 0x8100, tag));
                        assert_eq!(*frame, whole, "{what}");
                        continue;
                    }
                    let count = segments.map_or(1, |size| 1000_usize.div_ceil(size.into()));
                    assert_eq!(here.len(), count, "{what}");
                    let mut payload = Vec::new();
                    for (header, frame) in here {
                        assert_eq!(header, PLAIN, "{what}");
                        let mut frame = frame.clone();
                        if let Some(tag) = tag_of(port) {
                            let [a, b] = tag.to_be_bytes();
                            assert_eq!(frame[12..16], [0x81, 0, a, b], "{what}");
                            frame.drain(12..16);
                        }
                        let Headers { transport, data } = packet.headers();
                        assert_eq!(frame[..14], plain[..14], "{what}");
                        assert!(packets::is_summed(&packet, &frame), "{what}: {frame:02x?}");
                        assert!(transport < data);
                        payload.extend_from_slice(&frame[data..]);
                    }
                    assert_eq!(payload, plain[packet.headers().data..], "{what}");
                }
            }
        }
    }
    for port in 0..6 {
        let port = vlans.lab.port(port);
        assert!(port.counts.drops.is_empty(), "{port:?}");
    }
}

/// Where the checksum of a frame goes is the sender's word: in its tag, it would put the frame
/// into another VLAN after it was judged; before what follows the tag, into its addresses.
#[test]
fn a_checksum_in_the_tag_changes_no_vlan_and_no_address() {
    let options = [leaves(), leaves(), leaves(), takes(), leaves(), takes()];
    let mut vlans = Vlans::new(&PORTS, &options);
    let sent = tagged(&frame(ALL, mac(3), 200), 10, 0);
    for start in [0_u16, 12, 13, 14, 15, 16, 17] {
        for offset in [0_u16, 1, 2, 3] {
            let mut header = [0; HEADER];
            header[0] = 1;
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&offset.to_le_bytes());
            let arrived = vlans.sent(3, header, &sent);
            assert_eq!(arrived, [], "{start} {offset}");
        }
    }
    // A frame to several ports is one drop.
    assert_eq!(drops(&vlans.lab, 3, "bad_offload"), 28);
    // The first place that is none of the link's.
    let mut header = [0; HEADER];
    header[0] = 1;
    header[6..8].copy_from_slice(&18_u16.to_le_bytes());
    let arrived = vlans.sent(3, header, &sent);
    let ports: Vec<usize> = arrived.iter().map(|(port, _, _)| *port).collect();
    assert_eq!(ports, [0, 1, 4]);
    for (port, _, frame) in arrived {
        let link = if port == 4 { &sent[..18] } else { &[&sent[..12], &sent[16..18]].concat()[..] };
        assert_eq!(frame[..link.len()], *link, "{port}");
    }
    send_plain(&mut vlans.ends[3], &sent);
}
