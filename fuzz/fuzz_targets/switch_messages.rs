//! Any messages of a vhost-user frontend, with files as a VMM sends them: each is dealt
//! with or ends the session, and the device that comes of it can be used.

#![no_main]

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use libfuzzer_sys::fuzz_target;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vswitch::device::VhostDevice;
use vswitch::message::MessageHeader;
use vswitch::ring::{Chains, Direction};
use vswitch::session::{Offer, Plane, VhostSession};

/// Bytes of the file that memory is mapped from.
const FILE: u64 = 64 << 10;

/// What runs of the device is looked at once, as a polling thread would.
#[derive(Default)]
struct Look(Option<VhostDevice>);

impl Plane for Look {
    fn install(&mut self, device: Option<VhostDevice>) {
        self.0 = device;
        let Some(device) = &self.0 else { return };
        for pair in &device.pairs {
            for (part, direction) in
                [(&pair.receive, Direction::Receive), (&pair.transmit, Direction::Transmit)]
            {
                let Some(queue) = part else { continue };
                let mut chains = Chains::new();
                queue.ring.fetch(&device.memory, direction, 32, &mut chains);
                assert!(chains.len() <= 32);
                let written = vec![0; chains.len()];
                queue.ring.complete(&chains.chains, &written);
            }
        }
    }
}

/// What a VMM sends copies of: to make a file costs more than to read a message.
struct FrontendFiles {
    event: OwnedFd,
    memory: OwnedFd,
    /// The memory was sent, and may have been written to.
    used: bool,
}

impl FrontendFiles {
    fn new() -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event");
        let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file");
        Self { event, memory, used: true }
    }

    /// Makes the memory what it was for the input before, if that had any.
    fn begin(&mut self) {
        if std::mem::take(&mut self.used) {
            ftruncate(&self.memory, 0).expect("nothing");
            ftruncate(&self.memory, FILE).expect("a length");
            // A guest that runs has written to its memory.
            rustix::io::pwrite(&self.memory, &[0], 0).expect("a byte");
        }
    }

    fn send(&mut self, kind: u8) -> OwnedFd {
        let file = if kind & 1 == 0 { &self.event } else { &self.memory };
        self.used |= kind & 1 != 0;
        rustix::io::fcntl_dupfd_cloexec(file, 0).expect("a copy")
    }
}

thread_local! {
    static FILES: RefCell<FrontendFiles> = RefCell::new(FrontendFiles::new());
}

// A message: its number, flags, how many files of which kind, its length, its bytes.
fuzz_target!(|bytes: &[u8]| {
    FILES.with_borrow_mut(|all| play(bytes, all));
});

fn play(bytes: &[u8], all: &mut FrontendFiles) {
    all.begin();
    let mut session = VhostSession::new(Offer::all(2));
    let mut plane = Look::default();
    let mut rest = bytes;
    while let [number, flags, files, length, after @ ..] = rest {
        let (payload, next) = after.split_at(usize::from(*length).min(after.len()));
        rest = next;
        let header = MessageHeader {
            request: u32::from(*number),
            need_reply: flags & 1 != 0,
            reply: flags & 2 != 0,
            size: payload.len() as u32,
        };
        let files = (0..files & 7).map(|_| all.send(files >> 3).into()).collect();
        if session.handle(header, payload, files, &mut plane).is_err() {
            break;
        }
    }
    session.end(&mut plane);
    assert!(plane.0.is_none(), "nothing runs after the end");
}
