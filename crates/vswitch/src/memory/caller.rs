//! Calls: telling a driver, by an eventfd that its VMM shares with us, without ever
//! waiting.
//!
//! A plain `write(2)` to it waits while its counter is full, unless `O_NONBLOCK` is
//! set; the flag belongs to the open file, and so the VMM can take it away at any
//! time. What the kernel itself adds to an eventfd never waits: so each call is an
//! asynchronous operation that is complete at once, with the eventfd to be told of that.
//!
//! Source: `io_submit(2)`, `aio_resfd`; Linux `include/uapi/linux/aio_abi.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::event::{EventfdFlags, eventfd};

/// Operations that may be complete and not taken back.
const ROOM: usize = 64;
/// `IOCB_CMD_POLL`: done at once if what is waited for is there.
const POLL: u16 = 5;
/// `IOCB_FLAG_RESFD`.
const TELLS: u32 = 1;

/// `struct iocb`, for processors whose low half comes first.
#[repr(C)]
#[derive(Debug, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    told: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Completion([u64; 4]);

/// One thread's context for Linux AIO (`io_setup(2)`).
#[derive(Debug)]
pub struct AioContext {
    context: libc::c_ulong,
    /// Always writable: to wait for that is done at once.
    own: OwnedFd,
    /// Not taken back.
    complete: usize,
}

impl AioContext {
    /// A caller of its own.
    ///
    /// # Errors
    /// What `eventfd(2)` or `io_setup(2)` says: `ENOSYS` where the kernel lacks it,
    /// `EAGAIN` where all of `/proc/sys/fs/aio-max-nr` is taken.
    pub fn new() -> io::Result<Self> {
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one word to `context`, which is ours and lives.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut context) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { context, own, complete: 0 })
    }

    /// Adds one to `event`. What is no eventfd is not told, nor is one that is full: its
    /// owner has not looked yet. False if the kernel refused, which leaves `event` as it
    /// was.
    #[must_use]
    pub fn call(&mut self, event: BorrowedFd<'_>) -> bool {
        let number = |fd: i32| u32::try_from(fd).expect("open files have numbers");
        let mut operation = Iocb {
            opcode: POLL,
            file: number(self.own.as_raw_fd()),
            buffer: libc::POLLOUT.unsigned_abs().into(),
            flags: TELLS,
            told: number(event.as_raw_fd()),
            ..Iocb::default()
        };
        let mut submitted = self.submit(&mut operation);
        if !submitted {
            // Completions may have taken all the room.
            self.take_back();
            submitted = self.submit(&mut operation);
        }
        self.complete += usize::from(submitted);
        if self.complete >= ROOM / 2 {
            self.take_back();
        }
        submitted
    }

    fn submit(&mut self, operation: &mut Iocb) -> bool {
        let mut list: [*mut Iocb; 1] = [&raw mut *operation];
        // SAFETY: one pointer to an operation that lives until the call returns: the
        // kernel copies it. It names no memory of ours, as POLL has no buffer but a mask.
        let submitted =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        submitted == 1
    }

    fn take_back(&mut self) {
        let mut completions = [Completion::default(); ROOM];
        // SAFETY: the kernel writes at most ROOM completions there; without a least
        // number and with no time limit to read it does not wait.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                ROOM,
                completions.as_mut_ptr(),
                ptr::null::<libc::timespec>(),
            )
        };
        self.complete -= usize::try_from(taken).unwrap_or(0).min(self.complete);
    }
}

impl Drop for AioContext {
    fn drop(&mut self) {
        // SAFETY: the context is this value's alone, and all its operations are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn events_are_told_as_often_as_called_and_never_waited_for() {
        let mut caller = AioContext::new().unwrap();
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        for _ in 0..1000 {
            assert!(caller.call(event.as_fd()));
        }
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1000);
        // Full, and a write would wait: this returns.
        let full = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..1000 {
            assert!(caller.call(full.as_fd()));
        }
        // What is no event is left alone.
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!caller.call(writer.as_fd()), "a pipe can't be told");
        drop(writer);
        assert_eq!(rustix::io::read(&reader, &mut count), Ok(0));
    }
}
