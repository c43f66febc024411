//! Guests and VMMs that lie. Whatever one does, two others' frames arrive whole,
//! once and in order, and another guest can have its port afterwards.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vswitch::channel::ChannelError;
use vswitch::frontend::{
    FrameBytes, Frontend, FrontendError, FrontendOptions, Touch, Traffic, TrafficPlan,
};
use vswitch::memory::RegionAddresses;
use vswitch::message::{
    MAX_FDS, MessageHeader, RingAddresses, RingFd, RingState, VhostRequest, features,
};

use crate::lab::{GRACE, Lab, PATIENCE, pcpus};

/// The number of the hostile port; 0 and 1 are the others.
pub(crate) const HOSTILE: usize = 2;
const FRAMES: u64 = 300;
/// Of a descriptor: goes on, to be written, a table.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const TABLE: u16 = 4;

/// Each of these with one polling thread, and with two.
macro_rules! cases {
    ($($name:ident)*) => {
        mod one_thread {
            $(#[test] fn $name() { super::$name(1); })*
        }
        mod two_threads {
            $(#[test] fn $name() { super::$name(2); })*
        }
    };
}
pub(crate) use cases;

cases! {
    chains_that_make_no_sense_are_given_back_and_counted
    positions_that_make_no_sense_stop_their_ring_alone
    packed_rings_without_an_end_stop_and_others_do_not
    packed_chains_that_make_no_sense_are_given_back_and_counted
    a_used_index_that_a_guest_writes_stops_its_ring_alone
    rings_that_are_disabled_are_left_alone
    headers_that_lie_about_offloads_are_dropped
    descriptors_that_change_while_they_are_read_harm_nobody
    receivers_whose_buffers_make_no_sense_harm_themselves
    a_memory_file_made_shorter_ends_its_port_alone
    a_call_that_would_wait_holds_nobody_up
    a_guest_that_makes_up_stations_takes_no_place_of_others
    what_no_vmm_says_ends_its_connection_alone
    who_connects_and_says_nothing_is_sent_away
}

pub(crate) struct Case {
    pub(crate) lab: Lab,
    others: Traffic,
}

impl Case {
    /// With so many polling threads: the others' ports are served by different ones, where
    /// there are several, and the hostile one by the first.
    pub(crate) fn new(threads: usize) -> Self {
        let lab = Lab::with(&["", "", ""], |config| {
            config.patience = Duration::from_secs(2);
            config.pcpus = pcpus(threads);
        });
        let plan = TrafficPlan {
            flows: TrafficPlan::ring(2),
            bytes: FrameBytes::UpTo(600),
            touch: Touch::All,
            window: 32,
            grace: GRACE,
            pace_per_s: None,
        };
        let others = lab.traffic(2, FrontendOptions::default(), plan);
        Self { lab, others }
    }

    /// The others' frames arrive.
    #[track_caller]
    pub(crate) fn others_are_well(&mut self, what: &str) {
        let before = self.others.tally().sent;
        self.others.run(|tally| tally.sent >= before + FRAMES);
        assert!(self.others.tally().is_whole(), "{what}: {:?}", self.others.tally());
        for port in [0, 1] {
            let port = self.lab.port(port);
            assert!(port.stopped.is_empty(), "{what}: {port:?}");
            // What the hostile one floods may find no room; what they send does.
            let drops: Vec<_> =
                port.counts.drops.keys().filter(|why| *why != "no_buffer").collect();
            assert!(drops.is_empty(), "{what}: {port:?}");
        }
    }

    /// A guest as it should be has the port next, and is heard by all.
    #[track_caller]
    pub(crate) fn the_port_is_of_use(&mut self, what: &str) {
        let good = suite::until(&format!("the port to be free after {what}"), || {
            Frontend::connect(&self.lab.path(HOSTILE), FrontendOptions::default()).ok()
        });
        drop(good);
    }

    pub(crate) fn hostile(&self, extra: u64) -> Frontend {
        let options = FrontendOptions::default();
        let options = FrontendOptions {
            features: options.features | extra | features::CSUM | features::HOST_TSO4,
            ..options
        };
        // The last one may not have left yet.
        suite::until("the port to be free", || {
            Frontend::connect(&self.lab.path(HOSTILE), options).ok()
        })
    }

    /// Waits until the switch has looked at all that `frontend` made available, or has
    /// stopped its ring.
    fn wait_until_seen(&self, frontend: &Frontend, count: u16, what: &str) {
        suite::until(what, || {
            let [_, _, device] = frontend.ring(1).areas();
            let used = device.load_u16(2, Ordering::Acquire);
            let stopped = !self.lab.port(HOSTILE).stopped.is_empty();
            (used == count || stopped).then_some(())
        });
    }
}

/// One chain of a split ring: address, length, flags, next of each descriptor.
type Chain = &'static [(Where, u32, u16, u16)];

/// An address.
#[derive(Debug, Clone, Copy)]
enum Where {
    /// In slot 0's buffer.
    Buffer,
    /// As it is.
    At(u64),
    /// Some bytes before the memory's end.
    BeforeEnd(u64),
    /// The table that [`table`] wrote.
    Table,
}

const CHAINS: &[(&str, Chain)] = &[
    ("address zero", &[(Where::At(0), 100, 0, 0)]),
    ("address behind memory", &[(Where::BeforeEnd(0), 100, 0, 0)]),
    ("a buffer across the end", &[(Where::BeforeEnd(50), 100, 0, 0)]),
    ("address and length that wrap", &[(Where::At(u64::MAX - 50), 100, 0, 0)]),
    ("the highest address", &[(Where::At(u64::MAX), 1, 0, 0)]),
    ("no length", &[(Where::Buffer, 0, 0, 0)]),
    ("the greatest length", &[(Where::Buffer, u32::MAX, 0, 0)]),
    ("a frame of 70000 bytes", &[(Where::Buffer, 70_000, 0, 0)]),
    ("a next that does not exist", &[(Where::Buffer, 100, NEXT, 256)]),
    ("the highest next", &[(Where::Buffer, 100, NEXT, u16::MAX)]),
    ("a chain of itself", &[(Where::Buffer, 100, NEXT, 0)]),
    ("a loop of two", &[(Where::Buffer, 10, NEXT, 1), (Where::Buffer, 10, NEXT, 0)]),
    ("a buffer to write, sent", &[(Where::Buffer, 100, WRITE, 0)]),
    ("a second one to write", &[(Where::Buffer, 100, NEXT, 1), (Where::Buffer, 9, WRITE, 0)]),
    ("a second one nowhere", &[(Where::Buffer, 100, NEXT, 1), (Where::At(1), 9, 0, 0)]),
    ("less than a header", &[(Where::Buffer, 11, 0, 0)]),
    ("less than Ethernet's header", &[(Where::Buffer, 25, 0, 0)]),
    ("a table nowhere", &[(Where::At(4), 32, TABLE, 0)]),
    ("a table across the end", &[(Where::BeforeEnd(16), 32, TABLE, 0)]),
    ("a table of no length", &[(Where::Table, 0, TABLE, 0)]),
    ("a table of odd length", &[(Where::Table, 24, TABLE, 0)]),
    ("the longest table", &[(Where::Table, 0xffff_fff0, TABLE, 0)]),
    ("a table of tables", &[(Where::Table, 16, TABLE, 0)]),
    ("a table and more", &[(Where::Table, 32, TABLE | NEXT, 1), (Where::Buffer, 9, 0, 0)]),
    ("a table that is a loop", &[(Where::Table, 64, TABLE, 0)]),
];

fn chains_that_make_no_sense_are_given_back_and_counted(threads: usize) {
    let mut case = Case::new(threads);
    for (what, chain) in CHAINS {
        let mut frontend = case.hostile(0);
        let end = frontend.memory().regions().next().unwrap().placement();
        let end = end.guest_address + end.size;
        let ring = &mut frontend.pairs()[0].transmit;
        let (buffer, table) = (ring.buffer_address(0), ring.buffer_address(9));
        // Entries 0 and 1: a table in the table, which leads to itself.
        let entry = |flags: u16| {
            let mut bytes = table.to_le_bytes().to_vec();
            bytes.extend(32_u32.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(0_u16.to_le_bytes());
            bytes
        };
        let flags = if what.contains("tables") { TABLE } else { NEXT };
        let entries: Vec<u8> = (0..4).flat_map(|_| entry(flags)).collect();
        ring.buffer(9).write(&entries);
        for (index, (address, length, flags, next)) in chain.iter().enumerate() {
            let address = match *address {
                Where::Buffer => buffer,
                Where::At(address) => address,
                Where::BeforeEnd(bytes) => end - bytes,
                Where::Table => table,
            };
            ring.write_descriptor(index as u16, address, *length, *flags, *next);
        }
        ring.offer(0);
        ring.publish();
        let before = case.lab.port(HOSTILE).counts.drops.values().sum::<u64>();
        case.wait_until_seen(&frontend, 1, what);
        suite::until(what, || {
            let port = case.lab.port(HOSTILE);
            let counted = port.counts.drops.values().sum::<u64>() > before.saturating_sub(1);
            (counted || !port.stopped.is_empty()).then_some(())
        });
        case.others_are_well(what);
        // The ring goes on with what makes sense.
        let stopped = case.lab.port(HOSTILE).stopped;
        assert!(stopped.is_empty(), "{what}: {stopped:?}");
    }
    case.the_port_is_of_use("bad chains");
}

fn positions_that_make_no_sense_stop_their_ring_alone(threads: usize) {
    let mut case = Case::new(threads);
    for (what, index, head) in [
        ("one more than the ring holds", 257_u16, 0_u16),
        ("an index that jumps half around", 32768, 0),
        ("an index that goes back", u16::MAX, 0),
        ("a head that does not exist", 1, 256),
        ("the highest head", 1, u16::MAX),
    ] {
        let frontend = case.hostile(0);
        let [_, driver, _] = frontend.ring(1).areas();
        driver.store_u16(4, head, Ordering::Relaxed);
        driver.store_u16(2, index, Ordering::Release);
        frontend.ring(1).kick();
        suite::until(what, || {
            let stopped = case.lab.port(HOSTILE).stopped;
            stopped.contains_key(&1).then_some(())
        });
        assert!(!case.lab.port(HOSTILE).stopped.contains_key(&0), "{what}: the other ring");
        case.others_are_well(what);
    }
    case.the_port_is_of_use("stopped rings");
}

fn packed_rings_without_an_end_stop_and_others_do_not(threads: usize) {
    let mut case = Case::new(threads);
    let frontend = case.hostile(features::RING_PACKED);
    let [descriptors, _, _] = frontend.ring(1).areas();
    let available = 1_u64 << 7;
    for index in (0..256_usize).rev() {
        let address = frontend.ring(1).buffer_address(0);
        descriptors.store_u64(index * 16, address, Ordering::Relaxed);
        let word = 10 | (available | u64::from(NEXT)) << 48;
        descriptors.store_u64(index * 16 + 8, word, Ordering::Release);
    }
    frontend.ring(1).kick();
    suite::until("the ring to be stopped", || {
        (!case.lab.port(HOSTILE).stopped.is_empty()).then_some(())
    });
    case.others_are_well("an endless packed chain");
    drop(frontend);
    case.the_port_is_of_use("an endless packed chain");
}

fn packed_chains_that_make_no_sense_are_given_back_and_counted(threads: usize) {
    let mut case = Case::new(threads);
    let mut frontend = case.hostile(features::RING_PACKED);
    let end = frontend.memory().regions().next().unwrap().placement();
    let end = end.guest_address + end.size;
    let buffer = frontend.ring(1).buffer_address(0);
    let table = frontend.ring(1).buffer_address(9);
    // A table whose entries are tables.
    let mut entry = table.to_le_bytes().to_vec();
    entry.extend(32_u32.to_le_bytes());
    entry.extend([0, 0]);
    entry.extend(TABLE.to_le_bytes());
    frontend.ring(1).buffer(9).write(&entry.repeat(4));
    type Descriptors<'d> = &'d [(u64, u32)];
    let cases: &[(&str, Descriptors<'_>, u16)] = &[
        ("address zero", &[(0, 100)], 0),
        ("a buffer across the end", &[(end - 50, 100)], 0),
        ("address and length that wrap", &[(u64::MAX - 50, 100)], 0),
        ("no length", &[(buffer, 0)], 0),
        ("the greatest length", &[(buffer, u32::MAX)], 0),
        ("a second one nowhere", &[(buffer, 100), (1, 9)], 0),
        ("a buffer to write, sent", &[(buffer, 100)], WRITE),
        ("a table nowhere", &[(4, 32)], TABLE),
        ("a table across the end", &[(end - 16, 32)], TABLE),
        ("a table of no length", &[(table, 0)], TABLE),
        ("a table of odd length", &[(table, 24)], TABLE),
        ("a table of tables", &[(table, 32)], TABLE),
        ("a table and more", &[(table, 32), (buffer, 9)], TABLE),
    ];
    for (what, descriptors, kind) in cases {
        let before = case.lab.port(HOSTILE).counts.drops.get("malformed").copied().unwrap_or(0);
        let ring = &mut frontend.pairs()[0].transmit;
        ring.put(0, descriptors, *kind);
        ring.publish();
        ring.kick();
        suite::until(what, || {
            let drops = case.lab.port(HOSTILE).counts.drops;
            (drops.get("malformed") == Some(&(before + 1))).then_some(())
        });
        case.others_are_well(what);
        let stopped = case.lab.port(HOSTILE).stopped;
        assert!(stopped.is_empty(), "{what}: {stopped:?}");
    }
}

fn a_used_index_that_a_guest_writes_stops_its_ring_alone(threads: usize) {
    let mut case = Case::new(threads);
    for (what, index) in
        [("a used index ahead", 7_u16), ("half around", 32768), ("behind", u16::MAX - 300)]
    {
        let mut frontend = case.hostile(0);
        let [_, driver, _] = frontend.ring(1).areas();
        driver.store_u16(2, 0, Ordering::Release);
        frontend.stop_ring(1).unwrap();
        // Where the switch goes on once it is started anew.
        device_index(&frontend, index);
        restart_ring(&mut frontend, 1);
        frontend.ring(1).kick();
        suite::until(what, || {
            let port = case.lab.port(HOSTILE);
            port.stopped.contains_key(&1).then_some(())
        });
        assert!(!case.lab.port(HOSTILE).stopped.contains_key(&0), "{what}: the other ring");
        case.others_are_well(what);
    }
    case.the_port_is_of_use("used indices");
}

fn device_index(frontend: &Frontend, index: u16) {
    let [_, _, device] = frontend.ring(1).areas();
    device.store_u16(2, index, Ordering::Release);
}

/// Sets a ring up as it is, and starts it.
fn restart_ring(frontend: &mut Frontend, index: u8) {
    for request in frontend.setup_of(index.into()) {
        frontend.send(&request, &[]).unwrap();
    }
    let (kick, _) = frontend.ring(index.into()).events();
    let fd = RingFd { index, without: false };
    frontend.send(&VhostRequest::SetVringKick(fd), &[kick.as_fd()]).unwrap();
    frontend.ask(&VhostRequest::GetFeatures).unwrap();
}

fn rings_that_are_disabled_are_left_alone(threads: usize) {
    let mut case = Case::new(threads);
    for extra in [0, features::RING_PACKED] {
        let mut frontend = case.hostile(extra);
        let before = case.lab.port(HOSTILE).counts.frames_in;
        frontend.enable(false).unwrap();
        let ring = &mut frontend.pairs()[0].transmit;
        let mut frame = [0; 12 + 60];
        // To itself, so that nobody else gets it.
        frame[12..24].copy_from_slice(&[2, 9, 9, 9, 9, 8, 2, 9, 9, 9, 9, 8]);
        ring.buffer(0).write(&frame);
        ring.put(0, &[(ring.buffer_address(0), frame.len() as u32)], 0);
        ring.publish();
        ring.kick();
        case.others_are_well("a ring that is disabled");
        assert_eq!(case.lab.port(HOSTILE).counts.frames_in, before, "a disabled ring was read");
        frontend.enable(true).unwrap();
        suite::until("the frame once it is enabled", || {
            (case.lab.port(HOSTILE).counts.frames_in == before + 1).then_some(())
        });
        case.others_are_well("a ring that was disabled");
    }
    case.the_port_is_of_use("disabled rings");
}

fn headers_that_lie_about_offloads_are_dropped(threads: usize) {
    let mut case = Case::new(threads);
    // Flags, kind, header length, segment size, checksum's begin, its offset.
    let headers: &[(&str, [u16; 6])] = &[
        ("a checksum behind the frame", [1, 0, 0, 0, 2000, 6]),
        ("a checksum that ends behind it", [1, 0, 0, 0, 34, 30]),
        ("a checksum whose end wraps", [1, 0, 0, 0, 0xffff, 0xffff]),
        ("a checksum in the addresses", [1, 0, 0, 0, 0, 0]),
        ("segments of nothing", [1, 1, 54, 0, 34, 16]),
        ("segments that were not agreed on", [1, 4, 54, 1000, 34, 16]),
        ("segments of no kind", [1, 77, 54, 1000, 34, 16]),
        ("segments without a checksum", [0, 1, 54, 1000, 34, 16]),
        ("segments of one byte, of no TCP", [1, 1, 54, 1, 34, 16]),
        ("headers longer than the frame", [1, 1, 0xffff, 10, 34, 16]),
    ];
    let mut frontend = case.hostile(0);
    for (count, (what, [flags, kind, length, size, start, offset])) in headers.iter().enumerate() {
        let ring = &mut frontend.pairs()[0].transmit;
        let mut bytes = vec![*flags as u8, *kind as u8];
        for word in [length, size, start, offset, &0] {
            bytes.extend(word.to_le_bytes());
        }
        // To a station that is known, with the type of IPv4 and no more sense.
        bytes.extend([0x02, 0x76, 0x6d, 0x6c, 0, 0, 2, 0, 0, 0, 0, 99, 8, 0, 0x45]);
        bytes.resize(12 + 64, 0xff);
        ring.buffer(0).write(&bytes);
        ring.put(0, &[(ring.buffer_address(0), bytes.len() as u32)], 0);
        ring.publish();
        case.wait_until_seen(&frontend, count as u16 + 1, what);
        suite::until(what, || {
            let ports = [0, HOSTILE].map(|port| case.lab.port(port).counts.drops);
            let bad = ports.iter().filter_map(|drops| drops.get("bad_offload")).sum::<u64>();
            (bad == count as u64 + 1).then_some(())
        });
    }
    let before = case.others.tally().sent;
    case.others.run(|tally| tally.sent >= before + FRAMES);
    assert!(case.others.tally().is_whole());
}

fn descriptors_that_change_while_they_are_read_harm_nobody(threads: usize) {
    let mut case = Case::new(threads);
    for extra in [0, features::RING_PACKED] {
        let frontend = case.hostile(extra);
        let buffer = frontend.ring(1).buffer_address(3);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [descriptors, driver, _] = frontend.ring(1).areas();
                let mut seed = 1_u64;
                let mut next = || {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    seed >> 20
                };
                while !done.load(Ordering::Relaxed) {
                    let at = (next() % 256) as usize * 16;
                    let address =
                        if next() % 2 == 0 { buffer + next() % 4096 } else { next() << 20 };
                    descriptors.store_u64(at, address, Ordering::Relaxed);
                    // Lengths, ids and flags of every kind.
                    let word = (next() % 3000) | ((next() % 300) << 32) | (next() << 48);
                    descriptors.store_u64(at + 8, word, Ordering::Relaxed);
                    let word = (next() % 0x10000) as u16;
                    driver.store_u16(
                        4 + (next() % 256) as usize * 2,
                        word % 256,
                        Ordering::Relaxed,
                    );
                    let index = driver.load_u16(2, Ordering::Relaxed);
                    driver.store_u16(2, index.wrapping_add(word % 4), Ordering::Release);
                    if word.is_multiple_of(64) {
                        frontend.ring(1).kick();
                    }
                }
            });
            for _ in 0..10 {
                case.others_are_well("changing descriptors");
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(frontend);
        case.the_port_is_of_use("changing descriptors");
    }
}

fn receivers_whose_buffers_make_no_sense_harm_themselves(threads: usize) {
    let mut case = Case::new(threads);
    for (what, address, flags) in
        [("buffers nowhere", 8_u64, WRITE), ("buffers that are not to be written", u64::MAX, 0)]
    {
        let mut frontend = case.hostile(0);
        let ring = &mut frontend.pairs()[0].receive;
        let good = ring.buffer_address(0);
        let address = if address == u64::MAX { good } else { address };
        for index in 0..256 {
            ring.write_descriptor(index, address, 2048, flags, 0);
            ring.offer(index);
        }
        ring.publish();
        // Frames to all go to the hostile one, too.
        case.others.greet(PATIENCE).unwrap();
        suite::until(what, || {
            let drops = case.lab.port(HOSTILE).counts.drops;
            drops.contains_key("malformed").then_some(())
        });
        case.others_are_well(what);
    }
    case.the_port_is_of_use("bad buffers");
}

fn a_memory_file_made_shorter_ends_its_port_alone(threads: usize) {
    let mut case = Case::new(threads);
    for extra in [0, features::RING_PACKED] {
        let mut frontend = case.hostile(extra);
        let ring = &mut frontend.pairs()[0].transmit;
        for slot in 0..200 {
            ring.post(slot, 500);
        }
        frontend.file().set_len(0).unwrap();
        // Not `publish`: it would touch what is gone, in this process.
        frontend.ring(1).kick();
        suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            port.last_error.filter(|error| error.contains("shorter"))
        });
        case.others_are_well("a shrunk file");
        drop(frontend);
        case.the_port_is_of_use("a shrunk file");
        suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            (port.state == vswitch::LinkState::Waiting && port.last_error.is_none()).then_some(())
        });
    }
}

fn a_call_that_would_wait_holds_nobody_up(threads: usize) {
    let mut case = Case::new(threads);
    for extra in [0, features::EVENT_IDX, features::RING_PACKED] {
        let options = FrontendOptions { interrupts: true, ..FrontendOptions::default() };
        let features = options.features | extra;
        let options = FrontendOptions { features, ..options };
        let mut frontend = suite::until("the port to be free", || {
            Frontend::connect(&case.lab.path(HOSTILE), options).ok()
        });
        // The switch has the same open files: a write to one waits from now on.
        for index in 0..2 {
            let (_, call) = frontend.ring(index).events();
            // Each new event is called once: what came before it may have been lost.
            suite::until("the first call", || rustix::io::read(call, &mut [0; 8]).ok());
            let full = (u64::MAX - 1).to_ne_bytes();
            rustix::io::write(call, &full).unwrap();
            rustix::fs::fcntl_setfl(call, rustix::fs::OFlags::empty()).unwrap();
        }
        let before = case.lab.port(HOSTILE).counts.signals;
        for _ in 0..3 {
            let ring = &mut frontend.pairs()[0].transmit;
            let slot = ring.take_free().unwrap();
            ring.buffer(slot).write(&[0; 12 + 60]);
            ring.post(slot, 12 + 60);
            ring.publish();
            suite::until("the frame to be taken", || ring.take_used());
        }
        suite::until("the port to be called", || {
            (case.lab.port(HOSTILE).counts.signals > before).then_some(())
        });
        case.others_are_well("a call that would wait");
        drop(frontend);
        case.the_port_is_of_use("a call that would wait");
    }
}

fn a_guest_that_makes_up_stations_takes_no_place_of_others(threads: usize) {
    let mut case = Case::new(threads);
    let mut frontend = case.hostile(0);
    let ring = &mut frontend.pairs()[0].transmit;
    for number in 0..20_000_u32 {
        let slot = suite::until("a free slot", || {
            while ring.take_used().is_some() {}
            ring.take_free()
        });
        let mut frame = [0_u8; 12 + 60];
        // To nobody, so that it goes to all, and from all.
        frame[12..18].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        frame[18..20].copy_from_slice(&[2, 1]);
        frame[20..24].copy_from_slice(&number.to_be_bytes());
        ring.buffer(slot).write(&frame);
        ring.post(slot, frame.len() as u32);
        ring.publish();
    }
    drop(frontend);
    case.others.drain();
    case.others.greet(PATIENCE).unwrap();
    let tally = case.others.tally().clone();
    case.others.run(|now| now.sent >= tally.sent + FRAMES);
    let now = case.others.tally();
    assert_eq!((now.lost, now.disordered), (0, 0), "{now:?}");
    assert_eq!(now.sent, now.received);
}

/// What a VMM says over the socket, in place of what it should.
type Talk = (&'static str, fn(&mut Frontend));

fn raw(frontend: &Frontend, number: u32, payload: &[u8], fds: usize) {
    let header = MessageHeader { request: number, need_reply: false, reply: false, size: 0 };
    let fds = vec![frontend.file().as_fd(); fds];
    // The switch may have hung up already.
    let _ = frontend_channel(frontend, &header.write(payload), &fds);
}

fn frontend_channel(
    frontend: &Frontend,
    bytes: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    frontend.channel().send(bytes, fds)
}

fn table(frontend: &Frontend, regions: &[RegionAddresses]) {
    let fds = vec![frontend.file().as_fd(); regions.len()];
    let _ = frontend.send(&VhostRequest::SetMemTable(regions.to_vec()), &fds);
}

const GOOD: RegionAddresses =
    RegionAddresses { guest_address: 0, size: 4096, user_address: 0, file_offset: 0 };

const TALKS: &[Talk] = &[
    ("an unknown message", |f| raw(f, 99, &[], 0)),
    ("message 0", |f| raw(f, 0, &[], 0)),
    ("a message that was not offered", |f| raw(f, 19, &[0; 8], 0)),
    ("too short a payload", |f| raw(f, 2, &[0; 4], 0)),
    ("too long a payload", |f| raw(f, 1, &[0; 8], 0)),
    ("another version", |f| drop(f.channel().send(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], &[]))),
    ("an answer", |f| drop(f.channel().send(&[1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0], &[]))),
    ("an endless message", |f| {
        drop(f.channel().send(&[1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255], &[]));
    }),
    ("half a header, and silence", |f| drop(f.channel().send(&[1, 0, 0], &[]))),
    ("half a header, and the end", |f| {
        drop(f.channel().send(&[1, 0, 0, 0, 1], &[]));
        f.channel().shut_down();
    }),
    ("half a payload, and the end", |f| {
        drop(f.channel().send(&[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 2], &[]));
        f.channel().shut_down();
    }),
    ("features that were not offered", |f| drop(f.send(&VhostRequest::SetFeatures(1 << 60), &[]))),
    ("protocol features that were not", |f| {
        drop(f.send(&VhostRequest::SetProtocolFeatures(1 << 40), &[]));
    }),
    ("a table without files", |f| drop(f.send(&VhostRequest::SetMemTable(vec![GOOD]), &[]))),
    ("a table of none", |f| raw(f, 5, &[0; 8], 0)),
    ("a table of nine", |f| raw(f, 5, &[9, 0, 0, 0, 0, 0, 0, 0], 8)),
    ("a region of no bytes", |f| table(f, &[RegionAddresses { size: 0, ..GOOD }])),
    ("a region that wraps", |f| table(f, &[RegionAddresses { guest_address: u64::MAX, ..GOOD }])),
    ("a region behind its file", |f| table(f, &[RegionAddresses { file_offset: 1 << 60, ..GOOD }])),
    ("a region longer than its file", |f| table(f, &[RegionAddresses { size: 1 << 50, ..GOOD }])),
    ("regions that overlap", |f| table(f, &[GOOD, GOOD])),
    ("a region without its file", |f| drop(f.send(&VhostRequest::AddMemReg(GOOD), &[]))),
    ("a ring that does not exist", |f| {
        drop(f.send(&VhostRequest::SetVringNum(RingState { index: 2, value: 256 }), &[]));
    }),
    ("the highest ring", |f| {
        drop(f.send(&VhostRequest::SetVringEnable(RingState { index: u32::MAX, value: 1 }), &[]));
    }),
    ("another size for a ring that runs", |f| {
        drop(f.send(&VhostRequest::SetVringNum(RingState { index: 0, value: 128 }), &[]));
    }),
    ("another place in a ring that runs", |f| {
        drop(f.send(&VhostRequest::SetVringBase(RingState { index: 0, value: 9 }), &[]));
    }),
    ("a ring of three entries", |f| restart(f, 3, |a| a)),
    ("a ring of no entries", |f| restart(f, 0, |a| a)),
    ("a ring of 65536 entries", |f| restart(f, 65536, |a| a)),
    ("a ring nowhere", |f| restart(f, 256, |a| RingAddresses { descriptors: 16, ..a })),
    ("a ring at odd addresses", |f| {
        restart(f, 256, |a| RingAddresses { descriptors: a.descriptors + 4, ..a });
    }),
    ("a used ring that wraps", |f| {
        restart(f, 256, |a| RingAddresses { device: u64::MAX - 3, ..a });
    }),
    ("a used ring across the end", |f| {
        restart(f, 32768, |a| RingAddresses { device: a.device + 900_000, ..a });
    }),
    ("a kick that is a file", |f| {
        let fd = RingFd { index: 0, without: false };
        let _ = f.send(&VhostRequest::SetVringKick(fd), &[f.file().as_fd()]);
    }),
    ("a call that is a pipe", |f| {
        let (read, write) = std::io::pipe().unwrap();
        let fd = RingFd { index: 1, without: false };
        let _ = f.send(&VhostRequest::SetVringCall(fd), &[write.as_fd()]);
        // Nobody reads it.
        drop(read);
    }),
    ("a kick without its event", |f| {
        drop(f.send(&VhostRequest::SetVringKick(RingFd { index: 0, without: false }), &[]));
    }),
    ("more files than a message has", |f| {
        for _ in 0..50 {
            raw(f, 1, &[], MAX_FDS + 1);
        }
    }),
    ("files with messages that have none", |f| {
        for _ in 0..50 {
            raw(f, 3, &[], MAX_FDS);
        }
        raw(f, 99, &[], 1);
    }),
    ("questions without reading the answers", |f| {
        // Until the switch has had enough of it.
        loop {
            match f.send(&VhostRequest::GetFeatures, &[]) {
                Ok(()) => {}
                Err(FrontendError::Channel(ChannelError::NotRead)) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
    }),
    ("memory that nobody else sees", |f| {
        // What a VMM sends whose guest writes to a private mapping: a file without a page.
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let file = memfd_create("private", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 64 << 20).unwrap();
        let region = RegionAddresses { size: 64 << 20, ..GOOD };
        let _ = f.send(&VhostRequest::SetMemTable(vec![region]), &[file.as_fd()]);
    }),
    ("a log of no file", |f| {
        drop(f.send(&VhostRequest::SetLogBase { size: 8, offset: 0 }, &[]));
    }),
];

/// Sets ring 0 up again, as `change` says, and starts it.
fn restart(frontend: &mut Frontend, size: u32, change: fn(RingAddresses) -> RingAddresses) {
    let _ = frontend.stop_ring(0);
    let [descriptors, driver, device] = frontend.ring(0).addresses();
    let addresses =
        change(RingAddresses { index: 0, flags: 0, descriptors, device, driver, log: 0 });
    let (kick, _) = frontend.ring(0).events();
    for request in [
        VhostRequest::SetVringNum(RingState { index: 0, value: size }),
        VhostRequest::SetVringAddr(addresses),
    ] {
        let _ = frontend.send(&request, &[]);
    }
    let fd = RingFd { index: 0, without: false };
    let _ = frontend.send(&VhostRequest::SetVringKick(fd), &[kick.as_fd()]);
}

/// File descriptors of this process, the switch's included, for the file of a
/// frontend's memory.
fn descriptors_of(frontend: &Frontend) -> usize {
    let identity = |file: std::fs::Metadata| (file.dev(), file.ino());
    let own = identity(frontend.file().metadata().unwrap());
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    // Those of other tests come and go.
    all.filter_map(|fd| std::fs::metadata(fd.path()).ok())
        .filter(|file| identity(file.clone()) == own)
        .count()
}

fn what_no_vmm_says_ends_its_connection_alone(threads: usize) {
    let mut case = Case::new(threads);
    for (what, talk) in TALKS {
        let mut frontend = case.hostile(0);
        talk(&mut frontend);
        suite::until(what, || {
            let port = case.lab.port(HOSTILE);
            (port.state == vswitch::LinkState::Waiting).then_some(())
        });
        let error = case.lab.port(HOSTILE).last_error;
        assert!(error.is_some(), "{what}: nothing is said");
        case.others_are_well(what);
        // No file descriptor stays, however many came: the frontend has its own.
        assert_eq!(descriptors_of(&frontend), 1, "{what}");
    }
    case.the_port_is_of_use("all of it");
}

fn who_connects_and_says_nothing_is_sent_away(threads: usize) {
    let mut case = Case::new(threads);
    let silent = UnixStream::connect(case.lab.path(HOSTILE)).unwrap();
    case.others_are_well("a silent frontend");
    suite::until("it to be sent away", || {
        let error = case.lab.port(HOSTILE).last_error?;
        error.contains("said nothing").then_some(())
    });
    drop(silent);
    // One that has begun a message, byte by byte, has no more time.
    let mut slow = UnixStream::connect(case.lab.path(HOSTILE)).unwrap();
    slow.write_all(&[3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    let connections = case.lab.port(HOSTILE).connections;
    suite::until("it to be sent away", || {
        let port = case.lab.port(HOSTILE);
        let gone = port.state == vswitch::LinkState::Waiting;
        (gone && port.connections >= connections && port.last_error.is_some()).then_some(())
    });
    case.the_port_is_of_use("silence");
}
