//! Wakes threads that sleep.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::sleeper::Sleeper;

/// Wakes a thread that sleeps, and costs little while it does not.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    sleeper: Sleeper,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, sleeper: Sleeper::new() })
    }

    /// What was done before this, the thread sees: it is awake, or wakes.
    pub(crate) fn ring(&self) {
        if self.sleeper.must_be_woken() {
            // A full event has not been looked at: it will wake the thread all the same.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Wakes the thread, or makes its next sleep end at once.
    pub(crate) fn ring_always(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// What was rung for is being looked at.
    pub(crate) fn clear(&self) {
        drain(&self.event);
    }

    /// The thread is about to sleep: it looks once more for work after this.
    pub(crate) fn lie_down(&self) {
        self.sleeper.lie_down();
    }

    pub(crate) fn get_up(&self) {
        self.sleeper.get_up();
        self.clear();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Takes what an event holds, and never waits for it: its other owner may have taken
/// it meanwhile, and the flag that says not to block, too.
pub(crate) fn drain(event: &OwnedFd) {
    let _ = read_at_once(event, &mut [0; 8]);
}

/// True if it is an event, as far as it can be told without touching its counter: one
/// that can be read without waiting, though not in parts, and has no type, as of all kinds
/// of files those of the kernel's own (eventfd and its like) alone.
///
/// The file's type is asked for last: of what can be read without waiting, the kernel knows
/// it itself, and a file system in user space is never asked.
pub(crate) fn is_event(event: &OwnedFd) -> bool {
    read_at_once(event, &mut [0; 4]) == Err(Errno::INVAL)
        && fstat(event).map(|stat| FileType::from_raw_mode(stat.st_mode)) == Ok(FileType::Unknown)
}

/// Linux 5.6 and later do so for events, whatever the file's own flags say.
fn read_at_once(event: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    // At the current position, which events do not have.
    let position = u64::MAX;
    preadv2(event, &mut [IoSliceMut::new(bytes)], position, ReadWriteFlags::NOWAIT)
}
