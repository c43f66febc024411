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
    let cancel = Cancel::new();
    let raised = cancel.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if raised.is_cancelled() {
                terminal::note(
                    "vmlab: still ending what runs; kill -9 and `vmlab clean` if it hangs",
                );
            } else {
                terminal::note("vmlab: interrupted, ending what runs ...");
            }
            raised.cancel();
        }
    });
    Ok(cancel)
}
