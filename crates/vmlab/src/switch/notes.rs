//! Lines for standard error from a thread of their own: a switch goes on, and ends, while
//! nobody reads them.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use crate::terminal;

/// Lines that wait to be written.
const WAITING: usize = 256;
/// How long the last lines may take to be written when the switch ends.
const LAST: Duration = Duration::from_millis(200);

/// The writer of lines.
#[derive(Debug)]
pub(super) struct NoteWriter {
    lines: Option<SyncSender<String>>,
    written: Receiver<()>,
    /// Lines for which there was no room.
    lost: u64,
}

impl NoteWriter {
    /// Starts its thread, which has to be there before the sandbox is.
    pub(super) fn start() -> Self {
        let (lines, taken) = mpsc::sync_channel::<String>(WAITING);
        let (done, written) = mpsc::channel();
        thread::spawn(move || {
            taken.iter().for_each(|line| terminal::note(&line));
            // Whoever waited for it may be gone.
            let _ = done.send(());
        });
        Self { lines: Some(lines), written, lost: 0 }
    }

    /// Has a line written, or counts it while nobody reads.
    pub(super) fn note(&mut self, line: &str) {
        let Some(lines) = &self.lines else { return };
        if self.lost > 0 {
            let told = format!("vmlab: {} lines were not written, as nobody read them", self.lost);
            if lines.try_send(told).is_ok() {
                self.lost = 0;
            }
        }
        if lines.try_send(line.to_owned()).is_err() {
            self.lost += 1;
        }
    }
}

impl Drop for NoteWriter {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.written.recv_timeout(LAST);
    }
}
