//! The disks that a host gets beside its root: guest images, and scratch space.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guest::image::GuestImage;

use crate::saved::link_or_copy;
use host::state_dir::FileError;

/// Size of the scratch disk; the file is sparse.
const SCRATCH_BYTES: u64 = 8 << 30;

/// Memory that is plugged in comes in pieces of this size on x86-64, of which the
/// kernel takes whole ones only.
///
/// Source: Linux `include/linux/mmzone.h`, `SUBSECTION_SHIFT`.
const PIECE_BYTES: u64 = 2 << 20;

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
    /// debugfs is missing or failed.
    #[error("debugfs could not read {file} from {image}: {said}; `apt-get install e2fsprogs`?")]
    Debugfs {
        /// The disk.
        image: PathBuf,
        /// The file in it.
        file: String,
        /// Its words.
        said: String,
    },
    /// A file of the image can't be brought onto the disk.
    #[error(transparent)]
    File(#[from] FileError),
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
pub(crate) fn guests(image: &GuestImage) -> Result<PathBuf, DiskError> {
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
            link_or_copy(&entry.path(), &folder.join(entry.file_name()))?;
        }
        let file = unfinished.join("disk");
        make(&file, bytes + bytes / 16 + (8 << 20), Some(&tree))?;
        fs::rename(&file, &disk).map_err(write)
    })();
    // Others' copies in there are hard links; the first error is the one to tell.
    let _ = fs::remove_dir_all(&unfinished);
    made.map(|()| disk)
}

/// A disk as a file that can be plugged in as memory: itself, or a copy of a fitting
/// size from the cache (a second or two to make).
pub(crate) fn in_memory(disk: &Path) -> Result<PathBuf, DiskError> {
    let write = |source| DiskError::Write { path: disk.to_owned(), source };
    let bytes = fs::metadata(disk).map_err(write)?.len();
    if bytes.is_multiple_of(PIECE_BYTES) {
        return Ok(disk.to_owned());
    }
    let cache = guest::image::cache_dir().join("replica-memory");
    // A built image has its own folder, a disk of guests its own name.
    let parts: Vec<_> = disk.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    let copy = cache.join(parts.join("-"));
    if copy.is_file() {
        return Ok(copy);
    }
    let unfinished = cache.join(format!(".unfinished-{}", std::process::id()));
    let made = (|| {
        fs::create_dir_all(&cache)?;
        fs::copy(disk, &unfinished)?;
        File::options()
            .write(true)
            .open(&unfinished)?
            .set_len(bytes.next_multiple_of(PIECE_BYTES))?;
        fs::rename(&unfinished, &copy)
    })();
    if made.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    made.map(|()| copy).map_err(write)
}

/// A module of the only kernel in a root image, by its path below `kernel`.
pub(crate) fn module(image: &Path, path: &str) -> Result<Vec<u8>, DiskError> {
    let failed =
        |said: String| DiskError::Debugfs { image: image.to_owned(), file: path.to_owned(), said };
    let ask = |request: String| {
        let output = debugfs().args(["-R", &request]).arg(image).stdin(Stdio::null()).output();
        output.map_err(|error| failed(error.to_string()))
    };
    // Lines such as `/360/040755/0/0/6.1.0-50-cloud-amd64//`.
    let listed = ask("ls -p /lib/modules".to_owned())?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let kernel = listed
        .lines()
        .filter_map(|line| line.split('/').nth(5))
        .find(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        .ok_or_else(|| failed("there is no kernel's folder in /lib/modules".to_owned()))?;
    let read = ask(format!("cat /lib/modules/{kernel}/kernel/{path}"))?;
    if read.stdout.is_empty() {
        return Err(failed(String::from_utf8_lossy(&read.stderr).trim().to_owned()));
    }
    Ok(read.stdout)
}

/// debugfs, of the same package as mke2fs.
fn debugfs() -> Command {
    let mut command = Command::new("debugfs");
    command.env("PATH", search_path());
    command
}

/// Where programs are that only root has by default.
fn search_path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

/// An empty disk to write to.
pub(crate) fn scratch(path: &Path) -> Result<(), DiskError> {
    make(path, SCRATCH_BYTES, None)
}

/// A disk with nothing on it; the file is sparse.
pub(crate) fn empty(path: &Path, bytes: u64) -> Result<(), DiskError> {
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .map_err(|source| DiskError::Write { path: path.to_owned(), source })
}

fn make(path: &Path, bytes: u64, tree: Option<&Path>) -> Result<(), DiskError> {
    empty(path, bytes)?;
    let mut command = Command::new("mke2fs");
    command.env("PATH", search_path()).args(["-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096"]);
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
