//! Saved states: a host as it was when it had just come up.
//!
//! A state is only good for the very same QEMU, arguments, images and programs;
//! all of that is in its key. It holds the keys that the host knows, too, and
//! lies in a folder that only this user may enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::args::INITRD;
use crate::store::{HOST_KEY, KEY};
use host::state_dir::FileError;

/// The machine's memory and devices.
const STATE: &str = "state";

/// Only this many states are kept, the newest.
const KEPT: usize = 4;

/// What goes with a state: the host in it knows these.
const WITH: [&str; 5] = [KEY, "key.pub", HOST_KEY, "host_key.pub", INITRD];

/// A state that may be there or may be made.
#[derive(Debug, Clone)]
pub(crate) struct SavedState {
    folder: PathBuf,
}

impl SavedState {
    /// The state of that key, 64 hexadecimal digits.
    pub(crate) fn of(key: &str) -> Self {
        Self { folder: root().join(&key[..16]) }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.state().is_file()
    }

    /// The file with memory and devices.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join(STATE)
    }

    /// Brings to a replica's folder what goes with the state.
    ///
    /// # Errors
    /// The file and why.
    pub(crate) fn bring(&self, to: &Path) -> Result<(), FileError> {
        for name in WITH {
            link_or_copy(&self.folder.join(name), &to.join(name))?;
        }
        Ok(())
    }

    /// Saves a state: `write` writes it to the file that it is given. What
    /// another process saves at the same time is as good.
    ///
    /// # Errors
    /// `write`'s own, or the file that could not be made.
    pub(crate) fn make<E>(
        &self,
        replica: &Path,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<FileError>,
    {
        let unfinished = self.folder.with_extension(format!("unfinished-{}", std::process::id()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&unfinished)
            .map_err(FileError::of("make", &unfinished))?;
        let made = (|| {
            for name in WITH {
                link_or_copy(&replica.join(name), &unfinished.join(name))?;
            }
            write(&unfinished.join(STATE))
        })();
        if made.is_err() || fs::rename(&unfinished, &self.folder).is_err() {
            // The first error is the one to tell.
            let _ = fs::remove_dir_all(&unfinished);
        }
        remove_old();
        made
    }

    /// Removes a state that can't be used.
    pub(crate) fn remove(&self) {
        // If it can't be removed it is not used all the same.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes all saved states; returns the bytes that they took.
///
/// # Errors
/// The first that can't be removed.
pub fn remove_all() -> io::Result<u64> {
    let mut freed = 0;
    for (_, folder) in states() {
        freed += fs::metadata(folder.join(STATE)).map_or(0, |file| file.len());
        fs::remove_dir_all(folder)?;
    }
    Ok(freed)
}

fn root() -> PathBuf {
    guest::image::cache_dir().join("replica-states")
}

/// The folders of states and when they were made, newest first.
fn states() -> Vec<(std::time::SystemTime, PathBuf)> {
    let Ok(entries) = fs::read_dir(root()) else { return Vec::new() };
    let mut states: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    states.sort();
    states.reverse();
    states
}

fn remove_old() {
    for (_, folder) in states().into_iter().skip(KEPT) {
        // Another process may be at it too; QEMU has read a state when it runs.
        let _ = fs::remove_dir_all(folder);
    }
}

/// The same file under another name, or a copy on another file system.
///
/// # Errors
/// Names `from` if that can't be read, else `to`.
pub(crate) fn link_or_copy(from: &Path, to: &Path) -> Result<(), FileError> {
    let linked = match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            fs::copy(from, to).map(|_| ())
        }
        other => other,
    };
    linked.map_err(|error| match fs::metadata(from) {
        Err(source) => FileError::of("read", from)(source),
        Ok(_) => FileError::of("make", to)(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_file_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedState { folder: folder.path().join("state") };
        let to = folder.path().join("replica");
        let lost = saved.bring(&to).unwrap_err();
        assert_eq!((lost.doing, lost.path), ("read", saved.folder.join(WITH[0])));

        fs::create_dir(&saved.folder).unwrap();
        fs::write(saved.folder.join(WITH[0]), "a key").unwrap();
        let unmade = saved.bring(&to).unwrap_err();
        assert_eq!((unmade.doing, unmade.path), ("make", to.join(WITH[0])));
    }

    #[test]
    fn a_state_without_its_keys_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedState { folder: folder.path().join("state") };
        let replica = folder.path().join("replica");
        fs::create_dir(&replica).unwrap();
        let write = |_: &Path| -> Result<(), FileError> { panic!("written without its keys") };
        let lost = saved.make(&replica, write).unwrap_err();
        assert_eq!((lost.doing, lost.path), ("read", replica.join(WITH[0])));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the replica's folder");
    }
}
