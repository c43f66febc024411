//! QEMU's storage daemon, which serves one disk over vhost-user: in a process of its
//! own, ended with its VM.
//!
//! Source: `qemu-storage-daemon(1)`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::counters::process_run_s;
use record::{Failure, FailureKind};
use serde_json::json;
use vmconfig::CacheMode;

use super::role_guest::last_words;
use super::{LocalLab, load_failure};
use crate::study::StudyDisk;

/// The program, part of Debian's `qemu-utils`.
pub(crate) const STORAGE_DAEMON: &str = "qemu-storage-daemon";

/// How long it may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A daemon that serves a disk; it ends on drop.
#[derive(Debug)]
pub(super) struct StorageDaemon {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl StorageDaemon {
    /// Serves `sectors`, a block device or a file, by so many `queues` at the socket
    /// `<name>.sock`.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        disk: &StudyDisk,
        (sectors, is_device): (&Path, bool),
        queues: u32,
        name: &str,
    ) -> Result<Self, Failure> {
        let refused = |detail: String| {
            Failure::new(FailureKind::VmRefused, format!("{STORAGE_DAEMON}: {detail}"))
        };
        let folder = lab.runtime.path();
        let [socket, pidfile, log] =
            ["sock", "pid", "log"].map(|kind| folder.join(format!("{name}.{kind}")));
        let cache = disk.cache.unwrap_or(CacheMode::Writeback);
        let sectors = json!({
            "driver": if is_device { "host_device" } else { "file" },
            "node-name": "sectors",
            "filename": sectors,
            "aio": disk.io.map_or("threads", vmconfig::DiskIo::name),
            "cache": { "direct": cache.is_direct(), "no-flush": cache == CacheMode::Unsafe },
        });
        let export = json!({
            "type": "vhost-user-blk",
            "id": "export",
            "node-name": "sectors",
            "writable": true,
            "num-queues": queues,
            "addr": { "type": "unix", "path": socket },
        });
        let said = File::create(&log).map_err(|error| refused(error.to_string()))?;
        let mut command = Command::new(STORAGE_DAEMON);
        command.args(["--blockdev", &sectors.to_string(), "--export", &export.to_string()]);
        command.arg("--pidfile").arg(&pidfile);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        lab.owner.apply(&mut command);
        let child = command.spawn().map_err(|error| refused(load_failure(&error).detail))?;
        let mut daemon = Self { child, socket, log };
        // It writes that file once all is there.
        let until = Instant::now() + START_LIMIT;
        while fs::metadata(&pidfile).map_or(0, |file| file.len()) == 0 {
            let ended = daemon.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() >= until {
                return Err(refused(format!("it does not serve; it said: {}", daemon.said())));
            }
            lab.cancel.check().map_err(|cancelled| super::failure::failure(cancelled.into()))?;
            std::thread::sleep(LOOK);
        }
        // The next of this name writes it anew.
        fs::remove_file(&pidfile).map_err(|error| refused(error.to_string()))?;
        Ok(daemon)
    }

    /// Where it serves.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn said(&self) -> String {
        last_words(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Whether it still serves.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        let failed = |detail: String| {
            Failure::new(
                FailureKind::WorkloadFailed,
                format!("{STORAGE_DAEMON}, which served a disk: {detail}"),
            )
        };
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(failed(format!("it ended with {status}; it said: {}", self.said())))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// pCPU time that it has used, s; absent once it is gone.
    pub(super) fn run_s(&self) -> Option<f64> {
        process_run_s(self.child.id())
    }
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        // It may be gone already; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
