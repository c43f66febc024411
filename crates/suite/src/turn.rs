//! Turns: tests of all programs of the suite, in whatever processes they run,
//! divide this machine's pCPUs among themselves by locked files, which the kernel
//! frees when their process ends, however it ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Something of which this machine has one, and that tests would take from each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedThing {
    /// The host's settings.
    Settings,
    /// What dead runs leave behind: `vmlab clean` takes everybody's.
    Leftovers,
    /// What tests fetch into vmlab's cache: packages, another QEMU.
    Cache,
}

/// A test's share of this machine, until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it is over"]
pub struct Turn {
    _held: Vec<File>,
}

/// How long to wait before looking again whether a pCPU was given back.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Turn {
    pub(crate) fn wait(pcpus: usize, mut alone_with: Vec<SharedThing>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("vmlab-tests-{user}"));
        alone_with.sort();
        alone_with.dedup();
        // First what there is one of: who has pCPUs waits for nothing more.
        let mut held: Vec<File> =
            alone_with.iter().map(|shared| lock(&folder.join(format!("{shared:?}")))).collect();
        held.extend(take(&folder, pcpus.min(pool()), pool()));
        Self { _held: held }
    }
}

/// How many pCPUs are given out: half as many again as this process may use, since VMs
/// that boot and answer wait as often as they run; a gibibyte of this machine's memory
/// for each.
fn pool() -> usize {
    let pcpus = (thread::available_parallelism().map_or(1, usize::from) * 3).div_ceil(2);
    let info = rustix::system::sysinfo();
    let memory = info.totalram as u64 * u64::from(info.mem_unit);
    pcpus.min(usize::try_from(memory >> 30).unwrap_or(usize::MAX)).max(1)
}

fn open(path: &Path) -> File {
    let folder = path.parent().expect("a file in a folder");
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Waits for a file's lock.
fn lock(path: &Path) -> File {
    let file = open(path);
    while let Err(error) = flock(&file, FlockOperation::LockExclusive) {
        assert_eq!(error, Errno::INTR, "{}", path.display());
    }
    file
}

/// Takes `wanted` of `all` locks, whichever are given back first. Only one at a time
/// gathers, so that who needs many gets them and nobody waits with some in hand.
fn take(folder: &Path, wanted: usize, all: usize) -> Vec<File> {
    let mut held = Vec::new();
    if wanted == 0 {
        return held;
    }
    let _gathers = lock(&folder.join("queue"));
    let paths: Vec<PathBuf> =
        (0..all).map(|number| folder.join(format!("pcpu-{number}"))).collect();
    loop {
        for path in &paths {
            if held.len() == wanted {
                return held;
            }
            let file = open(path);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => held.push(file),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_taken_is_nobody_elses_until_it_is_given_back() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().to_owned();
        let two = take(&folder, 2, 3);
        let one = take(&folder, 1, 3);
        assert_eq!((two.len(), one.len()), (2, 1));
        let (tell, heard) = mpsc::channel();
        let waits_in = folder.clone();
        let waiting = thread::spawn(move || {
            let all = take(&waits_in, 3, 3);
            tell.send(()).expect("somebody listens");
            all.len()
        });
        drop(one);
        assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(two);
        assert_eq!(waiting.join().expect("no panic"), 3);
    }
}
