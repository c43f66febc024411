//! Files of VMMs that wait: for a disk, a network, or a program that never answers.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use vswitch::frontend::{Frontend, FrontendOptions};
use vswitch::memory::RegionAddresses;
use vswitch::message::{MAX_FDS, MessageHeader, RingFd, VhostRequest};
use vswitch::{LinkState, SwitchEvent};

use crate::hostile::{Case, HOSTILE, cases};

cases! {
    files_that_are_no_memory_end_their_connection_alone
    a_file_whose_close_waits_holds_up_its_port_alone
}

/// What a message does with its file.
type Message = (&'static str, VhostRequest);

fn files_that_are_no_memory_end_their_connection_alone(threads: usize) {
    let place = RegionAddresses { guest_address: 0, size: 4096, user_address: 0, file_offset: 0 };
    let messages: [Message; 3] = [
        ("a memory table", VhostRequest::SetMemTable(vec![place])),
        (
            "a memory slot",
            VhostRequest::AddMemReg(RegionAddresses {
                guest_address: 1 << 50,
                user_address: 1 << 50,
                ..place
            }),
        ),
        ("a log", VhostRequest::SetLogBase { size: 4096, offset: 0 }),
    ];
    let mut case = Case::new(threads);
    for (what, message) in messages {
        // Of a file system that makes up its bytes when it is asked for them.
        let file = File::open("/proc/self/maps").unwrap();
        let frontend = case.hostile(0);
        let _ = frontend.send(&message, &[file.as_fd()]);
        let error = suite::until(what, || case.lab.port(HOSTILE).last_error);
        for part in ["is no memory", "memory-backend-memfd", "<source type='memfd'/>"] {
            assert!(error.contains(part), "{what}: {error}");
        }
        case.others_are_well(what);
        drop(frontend);
        case.the_port_is_of_use(what);
    }
}

/// A connection whose last `close` waits: its other end takes no more, and it lingers.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65536]).is_ok() {}
    // It would wait longer than this test does, if the other end did not leave.
    let linger = Duration::from_secs(60);
    rustix::net::sockopt::set_socket_linger(&near, Some(linger)).unwrap();
    near.set_nonblocking(false).unwrap();
    (near, far)
}

fn a_file_whose_close_waits_holds_up_its_port_alone(threads: usize) {
    let fd = RingFd { index: 0, without: false };
    // With a message that has no file, too, and as many as come with one.
    let ways = [
        ("as an event", VhostRequest::SetVringKick(fd), 1),
        ("with a question", VhostRequest::GetFeatures, MAX_FDS),
    ];
    let mut case = Case::new(threads);
    for (what, request, count) in ways {
        let (near, far) = slow_to_close();
        let frontend = case.hostile(0);
        let number = request.number();
        let header = MessageHeader { request: number, need_reply: false, reply: false, size: 0 };
        let message = header.write(&request.payload());
        // Files come with the first byte, and are the switch's alone before it has the last.
        let (first, rest) = message.split_at(4);
        frontend.channel().send(first, &vec![near.as_fd(); count]).unwrap();
        drop(near);
        frontend.channel().send(rest, &[]).unwrap();
        let error = suite::until(what, || case.lab.port(HOSTILE).last_error);
        assert!(error.contains("no eventfd"), "{what}: {error}");
        drop(frontend);
        case.others_are_well(what);
        // No other frontend may leave more of them.
        let path = case.lab.path(HOSTILE);
        assert!(Frontend::connect(&path, FrontendOptions::default()).is_err(), "{what}");
        let expected = SwitchEvent::FilesOpen { port: format!("p{HOSTILE}") };
        suite::until("it to be told", || {
            case.lab.switch.events().try_iter().any(|event| event == expected).then_some(())
        });
        assert_eq!(case.lab.port(HOSTILE).state, LinkState::Waiting, "{what}");
        drop(far);
        case.the_port_is_of_use(what);
    }
}
