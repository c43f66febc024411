//! What earlier trials may have left on the host, and how to get rid of what
//! can be got rid of.
//!
//! Source: Linux `Documentation/admin-guide/mm/ksm.rst` (`run`, `pages_shared`),
//! `Documentation/filesystems/proc.rst` (`meminfo`, `buddyinfo`),
//! `Documentation/admin-guide/blockdev/zram.rst` (`mm_stat`),
//! `Documentation/admin-guide/sysctl/vm.rst` (`drop_caches`, `compact_memory`).

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use record::Ground;
use rustix::fs::{Access, access};
use topology::sysfs::kib_line;

use crate::audit::cgroup::Hierarchies;
use crate::settings::SettingsTree;

/// The setting that starts and stops same-page merging.
pub const KSM: &str = "ksm";

/// Its value for "stopped, and nothing is merged". 0 only stops: what was merged
/// before stays so.
pub const KSM_UNMERGED: &str = "2";

/// Time that the kernel gets to take merged pages apart. It does so before the
/// write of [`KSM_UNMERGED`] returns, but for processes that are about to end.
pub const UNMERGED_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Error type for [`until_unmerged`].
#[derive(Debug, thiserror::Error)]
pub enum StillMergedError {
    /// Pages stay merged.
    #[error(
        "{bytes} B of memory are still merged {} s after merging was stopped (ksm = {KSM_UNMERGED}): a process that can't be given pages of its own keeps them",
        .within.as_secs()
    )]
    Merged {
        /// Bytes of merged pages.
        bytes: u64,
        /// How long was waited.
        within: Duration,
    },
    /// The wait was cancelled.
    #[error("Cancelled while merged pages were taken apart")]
    Cancelled,
}

/// A way to take from a machine what earlier trials left in its memory. Nothing is to be
/// put back after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearance {
    /// What is cached of files is written where it must be, and dropped.
    DropCaches,
    /// Free memory is moved together.
    Compact,
}

impl Clearance {
    fn file(self) -> &'static str {
        match self {
            Self::DropCaches => "proc/sys/vm/drop_caches",
            Self::Compact => "proc/sys/vm/compact_memory",
        }
    }

    /// Why it can't be done on the machine of `tree`, if so. Nothing is changed.
    #[must_use]
    pub fn refusal(self, tree: &SettingsTree) -> Option<String> {
        let name = self.file();
        let error = access(tree.root().join(name), Access::WRITE_OK).err()?;
        Some(format!("/{name} can't be written: {}", io::Error::from(error)))
    }

    /// Does it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn clear(self, tree: &SettingsTree) -> io::Result<()> {
        // 3: the page cache, and what is known of files and folders.
        let text = match self {
            Self::DropCaches => {
                rustix::fs::sync();
                "3"
            }
            Self::Compact => "1",
        };
        let said = |error: io::Error| {
            let path = Path::new("/").join(self.file());
            io::Error::new(error.kind(), format!("cannot write {text} to {path:?}: {error}"))
        };
        tree.write(self.file(), text).map_err(said)
    }
}

/// What the machine of `tree` has now.
#[must_use]
pub fn read(tree: &SettingsTree) -> Ground {
    let meminfo = tree.text("proc/meminfo").unwrap_or_default();
    let line = |label: &str| kib_line(&meminfo, label);
    let swap_used = || Some(line("SwapTotal:")?.saturating_sub(line("SwapFree:")?));
    Ground {
        merged_bytes: merged_bytes(tree),
        page_cache_bytes: line("Cached:"),
        dirty_bytes: line("Dirty:"),
        swap_used_bytes: swap_used(),
        thp_bytes: line("AnonHugePages:"),
        free_huge_bytes: line("Hugepagesize:").and_then(|huge| free_from(tree, huge)),
        zram_bytes: zram_bytes(tree),
        cgroup_bytes: cgroup_bytes(tree),
    }
}

/// Free memory in blocks of at least `bytes`, B.
fn free_from(tree: &SettingsTree, bytes: u64) -> Option<u64> {
    let page = rustix::param::page_size() as u64;
    let text = tree.text("proc/buddyinfo").ok()?;
    let mut free = 0_u64;
    for line in text.lines() {
        // Behind the node's and the zone's name, free blocks by size, from one page on.
        let blocks = line.split_once("zone")?.1.split_whitespace().skip(1);
        for (count, order) in blocks.zip(0_u32..) {
            let block = page.checked_shl(order).filter(|block| *block >= bytes);
            let count: u64 = count.parse().ok()?;
            free = free.saturating_add(count.saturating_mul(block.unwrap_or(0)));
        }
    }
    (!text.is_empty()).then_some(free)
}

/// What zram's devices hold, B; none where there is no such device.
fn zram_bytes(tree: &SettingsTree) -> Option<u64> {
    let devices = tree.list("sys/block").into_iter().filter(|name| name.starts_with("zram"));
    let used = |device: String| -> Option<u64> {
        // Sizes before, after and with what keeps them.
        let stat = tree.text(&format!("sys/block/{device}/mm_stat")).ok()?;
        stat.split_whitespace().nth(2)?.parse().ok()
    };
    devices.filter_map(used).reduce(u64::saturating_add)
}

/// What is charged to this process's control group, B; none where its memory is not
/// counted.
fn cgroup_bytes(tree: &SettingsTree) -> Option<u64> {
    Hierarchies::find(tree.root()).charged_bytes(&tree.text("proc/self/cgroup").ok()?)
}

/// Pages that are merged now, B; none where the kernel merges none.
#[must_use]
pub fn merged_bytes(tree: &SettingsTree) -> Option<u64> {
    let pages: u64 = tree.text("sys/kernel/mm/ksm/pages_shared").ok()?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Waits until nothing is merged any more.
///
/// # Errors
/// [`StillMergedError`]: something still is, `within` later, or `is_cancelled`
/// says so.
pub fn until_unmerged(
    tree: &SettingsTree,
    within: Duration,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), StillMergedError> {
    let begun = Instant::now();
    loop {
        let bytes = match merged_bytes(tree) {
            None | Some(0) => return Ok(()),
            Some(bytes) => bytes,
        };
        if is_cancelled() {
            return Err(StillMergedError::Cancelled);
        }
        if begun.elapsed() >= within {
            return Err(StillMergedError::Merged { bytes, within });
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(merged: &str) -> (tempfile::TempDir, SettingsTree) {
        let folder = tempfile::tempdir().expect("temp folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
            fs::write(path, text).expect("written");
        };
        file("sys/kernel/mm/ksm/pages_shared", merged);
        file(
            "proc/meminfo",
            "MemTotal: 8 kB\nCached:  12 kB\nSwapCached: 1 kB\nDirty: 4 kB\n\
             SwapTotal: 100 kB\nSwapFree: 60 kB\nAnonHugePages: 2048 kB\nHugepagesize: 2048 kB\n",
        );
        let huge = (2 << 20) / rustix::param::page_size();
        let below = "7 ".repeat(huge.trailing_zeros() as usize);
        file(
            "proc/buddyinfo",
            &format!("Node 0, zone  DMA32 {below}1 0\nNode 1, zone Normal {below}0 1\n"),
        );
        file("sys/block/zram0/mm_stat", " 9 5 4096 0 0 0 0 0 0\n");
        file("sys/block/zram1/mm_stat", " 9 5 8192 0 0 0 0 0 0\n");
        file("sys/block/vda/size", "1\n");
        file("proc/self/cgroup", "0::/user.slice/vmlab.scope\n");
        file(
            "proc/self/mountinfo",
            "35 24 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        file("sys/fs/cgroup/user.slice/memory.current", "999\n");
        file("sys/fs/cgroup/user.slice/vmlab.scope/memory.current", "777\n");
        let tree = SettingsTree::at(folder.path());
        (folder, tree)
    }

    #[test]
    fn what_is_cleared_is_written_where_the_kernel_takes_it() {
        let (folder, tree) = tree("0");
        for clearance in [Clearance::DropCaches, Clearance::Compact] {
            let why = clearance.refusal(&tree).expect("not there");
            assert!(why.contains(clearance.file()) && why.contains("No such file"), "{why}");
            let error = clearance.clear(&tree).expect_err("not there");
            assert!(error.to_string().contains(clearance.file()), "{error}");
        }
        fs::create_dir_all(folder.path().join("proc/sys/vm")).expect("mkdir");
        for (clearance, text) in [(Clearance::DropCaches, "3"), (Clearance::Compact, "1")] {
            let path = folder.path().join(clearance.file());
            fs::write(&path, "").expect("written");
            assert_eq!(clearance.refusal(&tree), None);
            clearance.clear(&tree).expect("cleared");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
        }
    }

    #[test]
    fn what_is_left_is_read() {
        let (_folder, with) = tree("3\n");
        let page = rustix::param::page_size() as u64;
        let ground = Ground {
            merged_bytes: Some(3 * page),
            page_cache_bytes: Some(12 << 10),
            dirty_bytes: Some(4 << 10),
            swap_used_bytes: Some(40 << 10),
            thp_bytes: Some(2 << 20),
            // One block of 2 MiB and one of 4, whatever the pages.
            free_huge_bytes: Some(6 << 20),
            zram_bytes: Some(12288),
            cgroup_bytes: Some(777),
        };
        assert_eq!(read(&with), ground);
        let empty = tempfile::tempdir().expect("temp folder");
        assert_eq!(read(&SettingsTree::at(empty.path())), Ground::default(), "nothing is no zero");
    }

    #[test]
    fn what_stays_merged_is_an_error_with_its_size() {
        let never = || false;
        let (_folder, none) = tree("0\n");
        assert!(until_unmerged(&none, Duration::ZERO, &never).is_ok());
        let empty = tempfile::tempdir().expect("temp folder");
        assert!(until_unmerged(&SettingsTree::at(empty.path()), Duration::ZERO, &never).is_ok());
        let (_folder, some) = tree("2\n");
        let error = until_unmerged(&some, Duration::ZERO, &never).expect_err("two pages");
        let bytes = 2 * rustix::param::page_size();
        assert!(error.to_string().starts_with(&format!("{bytes} B of memory are still merged")));
        let error = until_unmerged(&some, UNMERGED_WITHIN, &|| true).expect_err("cancelled");
        assert!(matches!(error, StillMergedError::Cancelled));
    }
}
