//! A flag that ends whatever waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time that any wait of this crate lasts before it looks at its
/// [`Cancel`] again.
pub(crate) const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Asked for by Ctrl-C: clones share one flag, and every wait of this crate
/// returns within 100 ms after it is set. It can't be taken back.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

/// The work was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Cancelled")]
pub struct Cancelled;

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag; safe in a thread that handles signals.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True once [`Cancel::cancel`] was called on any clone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// [`Cancelled`] once the flag is set, for use with `?`.
    ///
    /// # Errors
    /// [`Cancelled`], if the flag is set.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}
