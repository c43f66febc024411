//! The disk below a probe's files, and what it read and wrote.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, statfs};

use crate::document::ProbeResult;
use crate::error::{ErrorContext as _, ProbeError};

/// Bytes of a sector in the kernel's statistics, whatever the disk's own are
/// (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: u64 = 512;

/// Tells what file system `dir` is on, and refuses a folder that has no room
/// for `needed` bytes.
pub(crate) fn look_at(
    dir: &Path,
    needed: u64,
    outcome: &mut ProbeResult,
) -> Result<(), ProbeError> {
    let space = statfs(dir).tried(format!("look at {}", dir.display()))?;
    let name = filesystem(space.f_type as u64);
    outcome.fact("filesystem", name);
    if ["tmpfs", "ramfs"].contains(&name) {
        outcome.warn("The folder lies in memory: there is no device and every read is a hit");
    }
    if space.f_bavail * (space.f_bsize as u64) < needed {
        let text = format!("{} has no room for {needed} bytes; see --dir", dir.display());
        return Err(ProbeError::Refused(text));
    }
    Ok(())
}

/// Names of some file systems by their magic number (`statfs(2)`).
fn filesystem(magic: u64) -> &'static str {
    match magic {
        0xEF53 => "ext4",
        0x0102_1994 => "tmpfs",
        0x8584_58F6 => "ramfs",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x794C_7630 => "overlayfs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        _ => "other",
    }
}

/// Drops all clean pages of the page cache; false where that is not allowed.
pub(crate) fn drop_page_cache() -> bool {
    fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

/// Bytes that devices read for this process, readahead included (`proc(5)`).
pub(crate) fn device_read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

/// The statistics of the block device below a file.
#[derive(Debug, Clone)]
pub(crate) struct DiskStatistics(PathBuf);

impl DiskStatistics {
    /// That of an open file; `None` where its file system is on no one device.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let number = file.metadata().ok()?.st_dev();
        let stat = format!("/sys/dev/block/{}:{}/stat", major(number), minor(number));
        let device = Self(PathBuf::from(stat));
        device.written_bytes().map(|_| device)
    }

    /// Bytes that were written to it since the guest started, by anybody.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.0).ok()?;
        text.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
    }
}
