//! An empty disk for one VM: a file without a name, so that it is gone with
//! the last process that has it open, however that ends.
//!
//! It lies in `$TMPDIR`, else in `/var/tmp`, which is on a disk where `/tmp`
//! may be in memory. Its blocks are allocated beforehand, as those of a disk
//! that is compared should be.
//!
//! Source: `open(2)`, `O_TMPFILE`; `fallocate(2)`; `mke2fs(8)`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

use crate::program::find;

/// An empty disk with a file system.
#[derive(Debug)]
pub struct Scratch {
    file: File,
}

/// Error type for [`Scratch::new`].
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// No file could be made.
    #[error("Cannot make a scratch disk in {folder}: set TMPDIR to a folder on a disk")]
    Create {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no room for it.
    #[error(
        "No room for a scratch disk of {mib} MiB in {folder}: free some, or set TMPDIR to a folder on a larger disk"
    )]
    Full {
        /// The folder.
        folder: PathBuf,
        /// What was asked for.
        mib: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// mke2fs is missing.
    #[error("Cannot run mke2fs: run `apt-get install e2fsprogs`")]
    NoMke2fs {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// mke2fs failed.
    #[error("mke2fs failed: {said}")]
    Mke2fs {
        /// What it said.
        said: String,
    },
}

impl Scratch {
    /// A disk of `mib` MiB with an empty ext4.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub fn new(mib: u64) -> Result<Self, ScratchError> {
        let set = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = set.unwrap_or_else(|| PathBuf::from("/var/tmp"));
        // Where a file system has no files without names (overlayfs before Linux 6.3),
        // this one loses its name at once.
        let file = tempfile::tempfile_in(&folder)
            .map_err(|source| ScratchError::Create { folder: folder.clone(), source })?;
        let bytes = mib << 20;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // A file system that can't allocate has to take it as it comes.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
            other => other.map_err(io::Error::from),
        }
        .map_err(|source| ScratchError::Full { folder, mib, source })?;
        let scratch = Self { file };
        format(&scratch.path())?;
        Ok(scratch)
    }

    /// The size, bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The path by which this machine's processes open it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

/// Puts an empty ext4 onto a file or a block device; what was there is lost.
///
/// # Errors
/// [`ScratchError`].
pub fn format(path: &Path) -> Result<(), ScratchError> {
    let output = Command::new(find("mke2fs").unwrap_or_else(|| "mke2fs".into()))
        // What is left for later would be done while something is measured;
        // the guest mounts it so that nothing is.
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-L", "scratch"])
        .args(["-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"])
        .arg(path)
        .output()
        .map_err(|source| ScratchError::NoMke2fs { source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ScratchError::Mke2fs { said })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_disk_has_a_file_system_and_no_name() {
        let scratch = match Scratch::new(64) {
            Ok(scratch) => scratch,
            Err(error @ (ScratchError::NoMke2fs { .. } | ScratchError::Create { .. })) => {
                suite::skip(error);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let metadata = scratch.file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.nlink()), (64 << 20, 0));
        let mut magic = [0; 2];
        let by_path = File::open(scratch.path()).unwrap();
        by_path.read_exact_at(&mut magic, 1024 + 0x38).unwrap();
        assert_eq!(magic, [0x53, 0xef], "the superblock of ext4");
    }

    #[test]
    fn more_than_there_is_room_for_is_said() {
        let error = match Scratch::new(1 << 33) {
            Err(ScratchError::Create { .. }) => return,
            other => other.expect_err("8 EiB"),
        };
        assert!(error.to_string().contains("TMPDIR"), "{error}");
    }
}
