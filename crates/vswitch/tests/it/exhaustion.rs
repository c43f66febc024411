//! Frontends that ask for more than there is: addresses, time of a pCPU, attention.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vswitch::frontend::{Frontend, FrontendOptions};
use vswitch::memory::RegionAddresses;
use vswitch::message::{RingFd, VhostRequest};
use vswitch::session::MAX_MAPPED_BYTES;
use vswitch::{LinkState, SwitchEvent};

use crate::hostile::{Case, HOSTILE};
use crate::lab::Lab;

/// A file of memory that takes none: it has holes only.
fn sparse(bytes: u64) -> std::os::fd::OwnedFd {
    let file = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    file
}

#[test]
fn nobody_maps_more_than_its_share_of_addresses() {
    let mut case = Case::new(1);
    let bytes = MAX_MAPPED_BYTES / 4;
    let file = sparse(bytes);
    let region = |number: u64| RegionAddresses {
        guest_address: number * bytes,
        size: bytes,
        user_address: number * bytes,
        file_offset: 0,
    };
    // All at once, and one by one.
    for at_once in [true, false] {
        // It starts no ring: none has to lie in that memory.
        let stream = UnixStream::connect(case.lab.path(HOSTILE)).unwrap();
        let hostile = Frontend::new(stream, FrontendOptions::default()).unwrap();
        if at_once {
            let table = (0..5).map(region).collect();
            hostile.send(&VhostRequest::SetMemTable(table), &[file.as_fd(); 5]).unwrap();
        } else {
            for number in 0..5 {
                hostile.send(&VhostRequest::AddMemReg(region(number)), &[file.as_fd()]).unwrap();
            }
        }
        let error = suite::until("the frontend to be sent away", || {
            case.lab.port(HOSTILE).last_error.filter(|error| error.contains("at most"))
        });
        assert!(error.contains("shares 0x14000000000 bytes"), "{error}");
        case.others_are_well("much memory");
        case.the_port_is_of_use("much memory");
        suite::until("the port to be left", || {
            let port = case.lab.port(HOSTILE);
            (port.state == LinkState::Waiting && port.last_error.is_none()).then_some(())
        });
    }
}

/// Waits for a time in which the switch's thread hardly did anything but sleep.
fn sleeps(lab: &Lab, what: &str) {
    let counts = || lab.status().threads.remove(0).counts;
    let mut first = counts();
    suite::until(&format!("the thread to sleep beside {what}"), || {
        let now = counts();
        let asleep_ns = now.asleep_ns - first.asleep_ns;
        let awake_ns = now.busy_ns + now.idle_ns - first.busy_ns - first.idle_ns;
        if asleep_ns + awake_ns < 200_000_000 {
            return None;
        }
        first = now;
        (asleep_ns > 9 * awake_ns).then_some(())
    });
}

#[test]
fn a_frontend_that_kicks_for_ever_or_never_keeps_nobody_awake() {
    let mut case = Case::new(1);
    // Each reading takes one of it.
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    let endless = eventfd(u32::MAX, flags).unwrap();
    let kick = |without| VhostRequest::SetVringKick(RingFd { index: 1, without });
    for (what, without) in [("an event that stays", false), ("no event", true)] {
        let mut hostile = case.hostile(0);
        let events = [endless.as_fd()];
        hostile.send(&kick(without), if without { &[] } else { &events }).unwrap();
        // Once this is answered, that is done.
        hostile.ask(&VhostRequest::GetFeatures).unwrap();
        sleeps(&case.lab, what);
        case.others_are_well(what);
        sleeps(&case.lab, what);
        drop(hostile);
        case.the_port_is_of_use(what);
    }
}

#[test]
fn a_storm_of_connections_is_told_in_a_few_events() {
    let mut case = Case::new(1);
    let _first = Frontend::connect(&case.lab.path(HOSTILE), FrontendOptions::default()).unwrap();
    let before = case.lab.status().up_s;
    for _ in 0..2000 {
        drop(UnixStream::connect(case.lab.path(HOSTILE)).unwrap());
    }
    let (mut told, mut counted) = (0_u64, 0_u64);
    suite::until("all of them to be told of", || {
        for event in case.lab.switch.events().try_iter() {
            match event {
                SwitchEvent::Refused { .. } => told += 1,
                SwitchEvent::Repeated { last, times } => {
                    assert!(matches!(*last, SwitchEvent::Refused { .. }), "{last:?}");
                    counted += times;
                }
                _ => {}
            }
        }
        (told + counted == 2000).then_some(())
    });
    // Sixteen in each of the switch's own seconds at most, the first and the last among them.
    let seconds = case.lab.status().up_s - before + 1;
    assert!(told <= 16 * seconds, "{told} of {counted} in {seconds} s");
    case.others_are_well("a storm");
}
