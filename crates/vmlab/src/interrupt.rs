//! Ctrl-C and SIGTERM end everything in order.

use guest::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal;

/// A flag that the first SIGINT, SIGTERM or SIGHUP raises.
///
/// # Errors
/// When the handlers can't be installed.
pub(crate) fn cancel_on_signals() -> std::io::Result<Cancel> {
    let interrupts = Interrupts::listen(
        "ending what runs ...",
        "still ending what runs; kill -9 and `vmlab clean` if it hangs",
    )?;
    Ok(interrupts.end)
}

/// What the first signal asks for, and what the second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupts {
    /// End in order.
    pub(crate) end: Cancel,
    /// End at once.
    pub(crate) quit: Cancel,
}

impl Interrupts {
    /// Raises the flags on SIGINT, SIGTERM and SIGHUP, and says `first` and
    /// `then`.
    ///
    /// # Errors
    /// When the handlers can't be installed.
    pub(crate) fn listen(first: &'static str, then: &'static str) -> std::io::Result<Self> {
        let interrupts = Self::default();
        let raised = interrupts.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if raised.end.is_cancelled() {
                    terminal::note(&format!("vmlab: {then}"));
                    raised.quit.cancel();
                } else {
                    terminal::note(&format!("vmlab: interrupted, {first}"));
                }
                raised.end.cancel();
            }
        });
        Ok(interrupts)
    }
}
