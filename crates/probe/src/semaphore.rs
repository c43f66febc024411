//! A counting semaphore on a futex, as C libraries have it: who finds it above
//! zero makes no system call, who finds it at zero sleeps at once.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

/// A counting semaphore between the threads of this process.
#[derive(Debug)]
pub(crate) struct Semaphore {
    value: AtomicU32,
    waiters: AtomicU32,
}

impl Semaphore {
    pub(crate) fn new(value: u32) -> Self {
        Self { value: AtomicU32::new(value), waiters: AtomicU32::new(0) }
    }

    /// Adds one; true if a sleeping thread was woken.
    pub(crate) fn post(&self) -> bool {
        self.value.fetch_add(1, Ordering::SeqCst);
        self.waiters.load(Ordering::SeqCst) > 0
            && futex::wake(&self.value, futex::Flags::PRIVATE, 1).is_ok_and(|woken| woken > 0)
    }

    /// Takes one, sleeping until there is one; how often it slept.
    pub(crate) fn wait(&self) -> u32 {
        if self.try_wait() {
            return 0;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut slept = 0;
        while !self.try_wait() {
            match futex::wait(&self.value, futex::Flags::PRIVATE, 0, None) {
                Ok(()) => slept += 1,
                // The value changed before the kernel looked, or a signal came.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(other) => unreachable!("futex wait on a live word: {other}"),
            }
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        slept
    }

    /// How many may be taken now.
    pub(crate) fn value(&self) -> u32 {
        self.value.load(Ordering::SeqCst)
    }

    fn try_wait(&self) -> bool {
        self.value
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |value| value.checked_sub(1))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_many_threads() {
        let (semaphore, taken) = (Semaphore::new(3), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        semaphore.wait();
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        semaphore.post();
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 4000);
        assert_eq!(semaphore.value(), 3);
    }
}
