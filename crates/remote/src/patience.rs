//! How long a wait may take, and who may end it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest time that a wait lasts before it asks again whether it was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// What every wait of this crate is given: a limit that begins with the operation,
/// and a question that is asked 20 times a second.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    limit: Option<Duration>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Patience<'a> {
    /// Waits for `limit` at most, and no longer once `cancelled` says so.
    #[must_use]
    pub fn new(limit: Duration, cancelled: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { limit: Some(limit), cancelled }
    }

    /// Waits until `cancelled` says so.
    #[must_use]
    pub fn unlimited(cancelled: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { limit: None, cancelled }
    }

    /// The operation begins.
    pub(crate) fn start(self) -> Deadline<'a> {
        Deadline {
            patience: self,
            end: self.limit.and_then(|limit| Instant::now().checked_add(limit)),
        }
    }
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Why a wait ended before what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitFailure {
    /// It was cancelled.
    #[error("Cancelled")]
    Cancelled,
    /// The limit was over.
    #[error("Not within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// An operation's patience, counted from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    patience: Patience<'a>,
    end: Option<Instant>,
}

impl Deadline<'_> {
    /// Waits until one of `wanted` is ready; says of each whether it is.
    pub(crate) fn ready<const N: usize>(
        &self,
        wanted: [(BorrowedFd<'_>, PollFlags); N],
    ) -> Result<[bool; N], WaitFailure> {
        loop {
            if (self.patience.cancelled)() {
                return Err(WaitFailure::Cancelled);
            }
            let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
            let turn = left.map_or(CANCEL_CHECK, |left| left.min(CANCEL_CHECK));
            let mut polled = wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
            let turn = Timespec::try_from(turn).expect("a turn is far below 2^63 s");
            // Interrupted by a signal, it is asked again.
            if poll(&mut polled, Some(&turn)).is_ok_and(|count| count > 0) {
                return Ok(polled.map(|fd| !fd.revents().is_empty()));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Err(WaitFailure::TimedOut(self.patience.limit.unwrap_or_default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_wait_ends_by_itself_or_when_it_is_told() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let wanted = || [(reader.as_fd(), PollFlags::IN)];
        let limit = Duration::from_millis(1);
        let timed_out = Patience::new(limit, &|| false).start().ready(wanted());
        assert_eq!(timed_out, Err(WaitFailure::TimedOut(limit)));
        let cancelled = Patience::unlimited(&|| true).start().ready(wanted());
        assert_eq!(cancelled, Err(WaitFailure::Cancelled));
        writer.write_all(b"x").unwrap();
        let ready = Patience::new(Duration::from_secs(60), &|| false).start().ready(wanted());
        assert_eq!(ready, Ok([true]));
    }
}
