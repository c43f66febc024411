//! The disks that a host gets beside its root: guest images, and scratch space.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guest::image::Image;

use crate::saved::link_or_copy;

/// Size of the scratch disk; the file is sparse.
const SCRATCH_BYTES: u64 = 8 << 30;

/// Error type for this module.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// mke2fs is missing.
    #[error("mke2fs is not installed: run `apt-get install e2fsprogs`")]
    NoMke2fs,
    /// mke2fs failed.
    #[error("mke2fs could not make {path}: {said}")]
    Mke2fs {
        /// The disk's file.
        path: PathBuf,
        /// Its words.
        said: String,
    },
    /// A file can't be written.
    #[error("Cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A read-only disk with the image's folder in it, under the folder's own name:
/// from the cache, or made now (a second or two).
pub(crate) fn guests(image: &Image) -> Result<PathBuf, DiskError> {
    let cache = guest::image::cache_dir().join("replica-guests");
    let name = image.folder.file_name().unwrap_or_default();
    let disk = cache.join(format!("{}.ext4", name.to_string_lossy()));
    if disk.is_file() {
        return Ok(disk);
    }
    let unfinished = cache.join(format!(".unfinished-{}", std::process::id()));
    let write = |source| DiskError::Write { path: disk.clone(), source };
    let made = (|| {
        let tree = unfinished.join("tree");
        let folder = tree.join(name);
        fs::create_dir_all(&folder).map_err(write)?;
        let mut bytes = 0;
        for entry in fs::read_dir(&image.folder).map_err(write)? {
            let entry = entry.map_err(write)?;
            bytes += entry.metadata().map_err(write)?.len();
            link_or_copy(&entry.path(), &folder.join(entry.file_name())).map_err(write)?;
        }
        let file = unfinished.join("disk");
        make(&file, bytes + bytes / 16 + (8 << 20), Some(&tree))?;
        fs::rename(&file, &disk).map_err(write)
    })();
    // Others' copies in there are hard links; the first error is the one to tell.
    let _ = fs::remove_dir_all(&unfinished);
    made.map(|()| disk)
}

/// An empty disk to write to.
pub(crate) fn scratch(path: &Path) -> Result<(), DiskError> {
    make(path, SCRATCH_BYTES, None)
}

fn make(path: &Path, bytes: u64, tree: Option<&Path>) -> Result<(), DiskError> {
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .map_err(|source| DiskError::Write { path: path.to_owned(), source })?;
    let mut command = Command::new("mke2fs");
    let search = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", search).args(["-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096"]);
    command.args(["-E", "root_owner=0:0,lazy_itable_init=1,nodiscard"]);
    command.args(["-O", "^has_journal,^metadata_csum,^resize_inode"]);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    let output = command.arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => DiskError::NoMke2fs,
        _ => DiskError::Write { path: path.to_owned(), source },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(DiskError::Mke2fs { path: path.to_owned(), said })
}
