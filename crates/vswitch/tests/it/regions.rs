//! Memory that is taken from under rings that run, and logs that do not hold what they
//! have to: their port's connection ends, or goes on as it should, and no other's does.

use std::os::fd::AsFd;

use vswitch::LinkState;
use vswitch::channel::VhostChannel;
use vswitch::frontend::{
    FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficFlow, TrafficPlan,
};
use vswitch::memory::{Region, RegionAddresses};
use vswitch::message::{MessageHeader, VhostRequest, features};

use crate::hostile::{Case, HOSTILE};
use crate::lab::{GRACE, Lab};
use crate::wire::{HEADER, fill, frame, mac, send_plain};

/// The hostile one's station, to which it sends, so that nobody else's buffers are taken.
const OWN: [u8; 6] = [2, 9, 9, 9, 9, 8];

/// Sends frames to itself, as many as there is room for.
fn keep_sending(frontend: &mut Frontend) {
    let bytes = [&[0; HEADER][..], &frame(OWN, OWN, 200)].concat();
    let ring = &mut frontend.pairs()[0].transmit;
    ring.reclaim();
    while let Some(slot) = ring.take_free() {
        ring.buffer(slot).write(&bytes);
        ring.post(slot, bytes.len() as u32);
    }
    ring.publish();
    ring.kick();
}

fn place_of(frontend: &Frontend) -> RegionAddresses {
    frontend.memory().regions().next().unwrap().placement()
}

#[test]
fn memory_that_is_taken_from_a_running_ring_ends_its_port_alone() {
    // Removed, replaced by a table without it, replaced by memory elsewhere.
    type Take = (&'static str, fn(&Frontend));
    let takes: [Take; 3] = [
        ("removed", |frontend| {
            frontend.send(&VhostRequest::RemMemReg(place_of(frontend)), &[]).unwrap();
        }),
        ("a smaller table", |frontend| {
            let table = vec![RegionAddresses { size: 4096, ..place_of(frontend) }];
            let file = frontend.file().as_fd();
            frontend.send(&VhostRequest::SetMemTable(table), &[file]).unwrap();
        }),
        ("a table elsewhere", |frontend| {
            let place = place_of(frontend);
            let address = place.guest_address + (1 << 40);
            let table =
                vec![RegionAddresses { guest_address: address, user_address: address, ..place }];
            let file = frontend.file().as_fd();
            frontend.send(&VhostRequest::SetMemTable(table), &[file]).unwrap();
        }),
    ];
    let mut case = Case::new(1);
    for extra in [0, features::RING_PACKED] {
        for (what, take) in takes {
            let mut frontend = case.hostile(extra);
            let before = case.lab.port(HOSTILE).counts.frames_in;
            suite::until("frames to flow", || {
                keep_sending(&mut frontend);
                (case.lab.port(HOSTILE).counts.frames_in > before + 500).then_some(())
            });
            keep_sending(&mut frontend);
            take(&frontend);
            // Memory that nothing is known of stops the rings; a ring that is not in it ends
            // the connection.
            suite::until(what, || {
                let port = case.lab.port(HOSTILE);
                let waits = port.state == LinkState::Waiting && port.last_error.is_some();
                let stands = port.state == LinkState::Connected && port.rings == 0;
                (waits || (stands && what == "removed")).then_some(())
            });
            case.others_are_well(what);
            drop(frontend);
            case.the_port_is_of_use(what);
        }
    }
}

#[test]
fn buffers_whose_memory_comes_and_goes_under_traffic_harm_nobody() {
    let mut case = Case::new(1);
    for extra in [0, features::RING_PACKED] {
        let mut frontend = case.hostile(extra);
        let dimm = RegionAddresses {
            guest_address: 1 << 40,
            size: 1 << 20,
            user_address: 1 << 40,
            file_offset: 0,
        };
        let (mine, file) = Region::create(dimm.size, dimm.guest_address).unwrap();
        let bytes = [&[0; HEADER][..], &frame(OWN, OWN, 200)].concat();
        mine.at(0, 2000).unwrap().write(&bytes);
        for _ in 0..10 {
            frontend.send(&VhostRequest::AddMemReg(dimm), &[file.as_fd()]).unwrap();
            frontend.send(&VhostRequest::RemMemReg(dimm), &[]).unwrap();
            frontend.send(&VhostRequest::AddMemReg(dimm), &[file.as_fd()]).unwrap();
            for _ in 0..10 {
                let ring = &mut frontend.pairs()[0].transmit;
                ring.reclaim();
                while let Some(slot) = ring.take_free() {
                    ring.put(slot, &[(dimm.guest_address, bytes.len() as u32)], 0);
                }
                ring.publish();
                ring.kick();
            }
            frontend.send(&VhostRequest::RemMemReg(dimm), &[]).unwrap();
            case.others_are_well("buffers that come and go");
        }
        let port = case.lab.port(HOSTILE);
        assert!(port.stopped.is_empty() && port.state == LinkState::Running, "{port:?}");
        drop(frontend);
        case.the_port_is_of_use("buffers that come and go");
    }
}

/// QEMU says its whole table anew when a part of it changes, rings running: what a sender has
/// in them meanwhile waits there. (Who receives then has no ring for a moment.)
#[test]
fn a_sender_that_says_its_table_again_under_traffic_loses_no_frame() {
    for packed in [0, features::RING_PACKED] {
        let lab = Lab::new(&["", ""]);
        let options = FrontendOptions::default();
        let options = FrontendOptions { features: options.features | packed, ..options };
        let ends: Vec<Frontend> = (0..2).map(|port| lab.connect(port, options)).collect();
        // Said over the sender's connection while its frames flow.
        let socket = rustix::io::fcntl_dupfd_cloexec(ends[0].channel(), 3).unwrap();
        let channel = VhostChannel::new(socket.into()).unwrap();
        let request = VhostRequest::SetMemTable(vec![place_of(&ends[0])]);
        let (number, file) = (request.number(), ends[0].file().try_clone().unwrap());
        let plan = TrafficPlan {
            flows: vec![TrafficFlow { from: 0, to: 1 }],
            bytes: FrameBytes::UpTo(600),
            touch: Touch::All,
            window: 32,
            grace: GRACE,
            pace_per_s: None,
        };
        let mut traffic = Traffic::new(ends, plan);
        traffic.greet(crate::lab::PATIENCE).unwrap();
        for _ in 0..50 {
            let header =
                MessageHeader { request: number, need_reply: false, reply: false, size: 0 };
            let before = traffic.tally().sent;
            let mut told = false;
            traffic.run(|tally| {
                if !told && tally.sent > before + 20 {
                    channel.send(&header.write(&request.payload()), &[file.as_fd()]).unwrap();
                    told = true;
                }
                tally.sent >= before + 200
            });
        }
        let tally = traffic.tally();
        assert!(tally.is_whole() && tally.foreign == 0, "{tally:?} {:#?}", lab.status());
        for port in lab.status().ports {
            assert!(port.stopped.is_empty() && port.last_error.is_none(), "{port:?}");
            assert!(port.counts.drops.is_empty(), "{port:?}");
        }
    }
}

/// A log of `bytes` for a frontend, which is told of it.
fn log(frontend: &mut Frontend, bytes: u64) -> (Region, std::fs::File) {
    let (log, file) = Region::create(bytes.next_multiple_of(4096), 0).unwrap();
    let request = VhostRequest::SetLogBase { size: bytes, offset: 0 };
    frontend.send(&request, &[file.as_fd()]).unwrap();
    (log, file)
}

/// Bytes of a log for all of a frontend's memory.
fn needed(frontend: &Frontend) -> u64 {
    let place = place_of(frontend);
    (place.guest_address + place.size).div_ceil(4096).div_ceil(8)
}

#[test]
fn a_log_that_is_made_shorter_ends_its_port_alone() {
    let mut case = Case::new(1);
    for extra in [0, features::RING_PACKED] {
        let mut frontend = case.hostile(extra | features::LOG_ALL);
        fill(&mut frontend);
        let bytes = needed(&frontend);
        let (_log, file) = log(&mut frontend, bytes);
        assert_eq!(frontend.answer_to(6).unwrap(), 0);
        file.set_len(0).unwrap();
        // What is written to it from now on is in no log.
        let sent = frame(OWN, OWN, 100);
        send_plain(&mut frontend, &sent);
        let error = suite::until("the port to be left", || case.lab.port(HOSTILE).last_error);
        assert!(error.contains("shorter"), "{error}");
        case.others_are_well("a shrunk log");
        drop(frontend);
        case.the_port_is_of_use("a shrunk log");
        suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            (port.state == LinkState::Waiting && port.last_error.is_none()).then_some(())
        });
    }
}

#[test]
fn a_log_without_room_for_all_memory_is_refused() {
    let mut case = Case::new(1);
    for extra in [0, features::RING_PACKED] {
        // One byte less, and a file that is shorter than it is said to be.
        let mut frontend = case.hostile(extra | features::LOG_ALL);
        let bytes = needed(&frontend);
        let logged = log(&mut frontend, bytes - 1);
        let error = suite::until("the port to be left", || case.lab.port(HOSTILE).last_error);
        assert!(error.contains("log") && error.contains(&format!("{:#x}", bytes - 1)), "{error}");
        drop((logged, frontend));

        let frontend = case.hostile(extra | features::LOG_ALL);
        let (_, file) = Region::create(4096, 0).unwrap();
        let request = VhostRequest::SetLogBase { size: bytes, offset: 0 };
        frontend.send(&request, &[file.as_fd()]).unwrap();
        let error = suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            port.last_error.filter(|_| port.state == LinkState::Waiting)
        });
        assert!(error.contains("0x1000"), "{error}");
        drop(frontend);

        // Memory that grows behind the log.
        let mut frontend = case.hostile(extra | features::LOG_ALL);
        let logged = log(&mut frontend, bytes);
        assert_eq!(frontend.answer_to(6).unwrap(), 0);
        let dimm = RegionAddresses {
            guest_address: 1 << 40,
            size: 1 << 20,
            user_address: 1 << 40,
            file_offset: 0,
        };
        let (_mine, file) = Region::create(dimm.size, dimm.guest_address).unwrap();
        frontend.send(&VhostRequest::AddMemReg(dimm), &[file.as_fd()]).unwrap();
        let error = suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            port.last_error.filter(|_| port.state == LinkState::Waiting)
        });
        assert!(error.contains("log"), "{error}");
        drop((logged, frontend));
        case.others_are_well("short logs");
        case.the_port_is_of_use("short logs");
    }
}

/// A log of a migration that was given up is no measure for the next one, and none for memory
/// that came since.
#[test]
fn a_log_ends_with_its_migration() {
    let lab = Lab::new(&["", ""]);
    let options = FrontendOptions::default();
    let options = FrontendOptions { features: options.features | features::LOG_ALL, ..options };
    let mut frontend = lab.connect(0, options);
    let agreed = frontend.agreed();
    let bytes = needed(&frontend);
    let logged = log(&mut frontend, bytes);
    assert_eq!(frontend.answer_to(6).unwrap(), 0);
    frontend.send(&VhostRequest::SetFeatures(agreed & !features::LOG_ALL), &[]).unwrap();
    // The file goes, which is no loss any more.
    frontend.ask(&VhostRequest::GetFeatures).unwrap();
    logged.1.set_len(0).unwrap();
    let dimm = RegionAddresses {
        guest_address: 1 << 40,
        size: 1 << 20,
        user_address: 1 << 40,
        file_offset: 0,
    };
    let (_mine, file) = Region::create(dimm.size, dimm.guest_address).unwrap();
    frontend.send(&VhostRequest::AddMemReg(dimm), &[file.as_fd()]).unwrap();
    // Features come before the log where a device starts while its guest moves.
    frontend.send(&VhostRequest::SetFeatures(agreed), &[]).unwrap();
    frontend.ask(&VhostRequest::GetFeatures).unwrap();
    fill(&mut frontend);
    send_plain(&mut frontend, &frame(mac(9), mac(0), 60));
    suite::until("the frame", || (lab.port(0).counts.frames_in == 1).then_some(()));
    assert_eq!(lab.port(0).last_error, None);
    assert_eq!(lab.port(0).state, LinkState::Running);
}
