//! Sleeping without missing what comes meanwhile: whoever brings work looks whether the
//! thread sleeps after the work can be seen; the thread looks for work after it can be
//! seen to sleep. So one of both sees the other.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether a thread sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Sleeper(AtomicBool);

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// After work was made visible: true if the thread has to be woken.
    pub(crate) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }

    /// The thread is about to sleep: it looks once more for work after this.
    pub(crate) fn lie_down(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake.
    pub(crate) fn get_up(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
