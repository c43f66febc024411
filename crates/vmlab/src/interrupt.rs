//! Ctrl-C, SIGTERM and SIGHUP end everything in order.

use std::fs;
use std::io;

use guest::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal;

/// The signals that end vmlab in order. SIGHUP is none of them where whoever started it has
/// it ignored, as `nohup` does for what is to outlive its terminal.
///
/// # Errors
/// When the kernel does not tell what is ignored.
pub(crate) fn ending_signals() -> io::Result<Vec<i32>> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP, &fs::read_to_string("/proc/self/status")?) {
        signals.push(SIGHUP);
    }
    Ok(signals)
}

/// Whether a process ignores a signal, by its `/proc/PID/status` (proc(5), `SigIgn`).
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A flag that the first signal of [`ending_signals`] raises.
///
/// # Errors
/// When the handlers can't be installed.
pub(crate) fn cancel_on_signals() -> io::Result<Cancel> {
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
    /// Raises the flags on the [`ending_signals`], and says `first` and `then`.
    ///
    /// # Errors
    /// When the handlers can't be installed.
    pub(crate) fn listen(first: &'static str, then: &'static str) -> io::Result<Self> {
        let interrupts = Self::default();
        let raised = interrupts.clone();
        let mut signals = Signals::new(ending_signals()?)?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                // Raised before anything is said: nobody may read it.
                if raised.end.is_cancelled() {
                    raised.quit.cancel();
                    terminal::note(&format!("vmlab: {then}"));
                } else {
                    raised.end.cancel();
                    terminal::note(&format!("vmlab: interrupted, {first}"));
                }
            }
        });
        Ok(interrupts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_by_their_bits() {
        // As `nohup cat /proc/self/status` prints it.
        let of = |mask: &str| format!("SigBlk:\t0000000000000000\nSigIgn:\t{mask}\n");
        let hangup = of("0000000000000001");
        assert!(is_ignored(SIGHUP, &hangup));
        assert!(!is_ignored(SIGINT, &hangup));
        assert!(is_ignored(SIGINT, &of("0000000000000006")));
        assert!(!is_ignored(SIGHUP, &of("0000000000000006")));
        assert!(!is_ignored(SIGHUP, ""));
    }
}
