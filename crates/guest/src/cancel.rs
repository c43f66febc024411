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
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// Whose part of the work this is.
    whole: Option<Cancel>,
}

/// The work was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Cancelled")]
pub struct Cancellation;

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag; safe in a thread that handles signals.
    pub fn cancel(&self) {
        self.0.is_set.store(true, Ordering::SeqCst);
    }

    /// A flag for a part of the work: it can be cancelled alone, and is with the whole.
    #[must_use]
    pub fn of_part(&self) -> Self {
        Self(Arc::new(Flag { is_set: AtomicBool::new(false), whole: Some(self.clone()) }))
    }

    /// True once [`Cancel::cancel`] was called on any clone, or on the whole.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
            || self.0.whole.as_ref().is_some_and(Self::is_cancelled)
    }

    /// [`Cancellation`] once the flag is set, for use with `?`.
    ///
    /// # Errors
    /// [`Cancellation`], if the flag is set.
    pub fn check(&self) -> Result<(), Cancellation> {
        if self.is_cancelled() { Err(Cancellation) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_alone_or_with_the_whole() {
        let whole = Cancel::new();
        let (one, other) = (whole.of_part(), whole.of_part());
        one.clone().cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !whole.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled());
    }
}
