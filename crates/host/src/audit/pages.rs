//! Every present page of a mapping: how big, on which node.
//!
//! This is the exact answer where `smaps` and `numa_maps` each give one half:
//! `/proc/<pid>/pagemap` names the page frame behind each address,
//! `/proc/kpageflags` tells whether that frame is part of a huge page, and the
//! memory blocks of each node tell where it lies. All three need root.
//!
//! Two small reads a 512 KiB of guest memory; a guest of 64 GiB takes some
//! 250 MB of reading.
//!
//! Source: Linux `Documentation/admin-guide/mm/pagemap.rst`,
//! `Documentation/ABI/testing/sysfs-devices-memory`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::memory::{PageCount, VmMapping};

/// Bytes of one entry in both files.
const ENTRY_BYTES: usize = 8;
/// Entries that are read at once.
const ENTRIES: usize = 64 << 10;

/// pagemap: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// pagemap: the page frame's number; zero for who may not see it.
const FRAME: u64 = (1 << 55) - 1;

/// kpageflags: first frame of a compound page.
const COMPOUND_HEAD: u64 = 1 << 15;
/// kpageflags: another frame of a compound page.
const COMPOUND_TAIL: u64 = 1 << 16;
/// kpageflags: merged with others'.
const KSM: u64 = 1 << 21;
/// kpageflags: the page of zeros that reading untouched memory gives.
const ZERO_PAGE: u64 = 1 << 24;

/// Scans all pages of `regions` of process `pid` and fills in their counts.
///
/// # Errors
/// When a file can't be read: mostly for want of root's rights.
pub(crate) fn scan(root: &Path, pid: u32, regions: &mut [VmMapping]) -> io::Result<()> {
    let pagemap = File::open(root.join(format!("proc/{pid}/pagemap")))?;
    let flags = File::open(root.join("proc/kpageflags"))?;
    let page_bytes = rustix::param::page_size() as u64;
    let nodes = NodeBlocks::read(root);
    for region in regions {
        let mut counter = FrameCounter::new(page_bytes, &nodes);
        let first = region.start / page_bytes;
        let last = (region.start + region.bytes) / page_bytes;
        let mut at = first;
        while at < last {
            let entries = read_entries(&pagemap, at, (last - at).min(ENTRIES as u64))?;
            if entries.is_empty() {
                break;
            }
            at += entries.len() as u64;
            for run in runs(&entries) {
                match run {
                    Run::Absent => counter.gap(),
                    Run::Hidden => {
                        return Err(io::Error::new(
                            io::ErrorKind::PermissionDenied,
                            "Page frames are shown to root only",
                        ));
                    }
                    Run::Frames { first, count } => {
                        for (offset, flags) in (0..).zip(read_entries(&flags, first, count)?) {
                            counter.frame(first + offset, flags);
                        }
                    }
                }
            }
        }
        region.pages = Some(counter.finish());
    }
    Ok(())
}

fn read_entries(file: &File, first: u64, count: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count as usize * ENTRY_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], first * ENTRY_BYTES as u64 + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    let whole = bytes[..filled].chunks_exact(ENTRY_BYTES);
    Ok(whole.filter_map(|entry| entry.try_into().ok()).map(u64::from_ne_bytes).collect())
}

/// Neighbouring entries of a pagemap that go together.
#[derive(Debug, PartialEq, Eq)]
enum Run {
    Absent,
    /// Present, but the number is kept from us.
    Hidden,
    Frames {
        first: u64,
        count: u64,
    },
}

fn runs(entries: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for entry in entries {
        let run = match (entry & PRESENT != 0, entry & FRAME) {
            (false, _) => Run::Absent,
            (true, 0) => Run::Hidden,
            (true, first) => Run::Frames { first, count: 1 },
        };
        match (runs.last_mut(), &run) {
            (Some(Run::Frames { first, count }), Run::Frames { first: next, .. })
                if *first + *count == *next =>
            {
                *count += 1;
            }
            (Some(last), run) if *last == *run => {}
            _ => runs.push(run),
        }
    }
    runs
}

/// Counts frames in the order of their addresses.
///
/// A compound page is one head and its tails, with frame numbers that follow
/// each other; how many of them are mapped in a row is its size here. A part
/// of one that is mapped alone therefore counts as what it is to the guest: a
/// smaller page.
struct FrameCounter<'a> {
    page_bytes: u64,
    nodes: &'a NodeBlocks,
    counts: BTreeMap<(Option<u32>, u64, bool), u64>,
    /// The compound page that is being read: first frame, frames, merged.
    open: Option<(u64, u64)>,
}

impl<'a> FrameCounter<'a> {
    fn new(page_bytes: u64, nodes: &'a NodeBlocks) -> Self {
        Self { page_bytes, nodes, counts: BTreeMap::new(), open: None }
    }

    fn frame(&mut self, frame: u64, flags: u64) {
        if flags & ZERO_PAGE != 0 {
            return self.gap();
        }
        if flags & COMPOUND_TAIL != 0
            && let Some((first, count)) = &mut self.open
            && *first + *count == frame
        {
            *count += 1;
            return;
        }
        self.gap();
        if flags & (COMPOUND_HEAD | COMPOUND_TAIL) != 0 {
            self.open = Some((frame, 1));
        } else {
            self.add(frame, 1, flags & KSM != 0);
        }
    }

    fn gap(&mut self) {
        if let Some((first, count)) = self.open.take() {
            self.add(first, count, false);
        }
    }

    fn add(&mut self, first: u64, frames: u64, merged: bool) {
        let node = self.nodes.node_of(first.saturating_mul(self.page_bytes));
        let bytes = frames * self.page_bytes;
        // A page that is mapped in part is at most the next smaller power of 2.
        let size = 1 << bytes.ilog2();
        *self.counts.entry((node, size, merged)).or_default() += bytes;
    }

    fn finish(mut self) -> Vec<PageCount> {
        self.gap();
        let counts = self.counts.into_iter();
        counts
            .map(|((node, page_bytes, merged), bytes)| PageCount {
                node,
                page_bytes,
                merged,
                bytes,
            })
            .collect()
    }
}

/// Which node each block of physical memory belongs to.
#[derive(Debug, Default)]
struct NodeBlocks {
    block_bytes: u64,
    node_by_block: BTreeMap<u64, u32>,
    /// The node of a machine that has only one.
    only: Option<u32>,
}

impl NodeBlocks {
    fn read(root: &Path) -> Self {
        let mut found = Self::default();
        let size = fs::read_to_string(root.join("sys/devices/system/memory/block_size_bytes"));
        let size = size.ok().and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        found.block_bytes = size.unwrap_or(0);
        let mut nodes = Vec::new();
        let folders = fs::read_dir(root.join("sys/devices/system/node"));
        for folder in folders.into_iter().flatten().flatten() {
            let Some(node) = number_after(&folder.file_name().to_string_lossy(), "node") else {
                continue;
            };
            nodes.push(node as u32);
            for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if let Some(block) = number_after(&entry.file_name().to_string_lossy(), "memory") {
                    found.node_by_block.insert(block, node as u32);
                }
            }
        }
        if let [node] = nodes[..] {
            found.only = Some(node);
        }
        found
    }

    fn node_of(&self, address: u64) -> Option<u32> {
        let block = address.checked_div(self.block_bytes);
        let of_block = block.and_then(|block| self.node_by_block.get(&block).copied());
        of_block.or(self.only)
    }
}

fn number_after(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_together_as_far_as_frames_follow() {
        let entries = [PRESENT | 7, PRESENT | 8, 0, 0, PRESENT | 9, PRESENT | 4, PRESENT];
        let frames = |first, count| Run::Frames { first, count };
        let expected = [frames(7, 2), Run::Absent, frames(9, 1), frames(4, 1), Run::Hidden];
        assert_eq!(runs(&entries), expected);
    }

    #[test]
    fn pages_are_as_big_as_they_are_mapped() {
        // Hand-made: two nodes with blocks of 128 MiB, frames of 4 KiB.
        let nodes = NodeBlocks {
            block_bytes: 128 << 20,
            node_by_block: [(0, 0), (1, 1)].into(),
            only: None,
        };
        let mut counter = FrameCounter::new(4096, &nodes);
        let compound = |counter: &mut FrameCounter<'_>, first: u64, frames: u64| {
            counter.frame(first, COMPOUND_HEAD);
            (1..frames).for_each(|frame| counter.frame(first + frame, COMPOUND_TAIL));
        };
        compound(&mut counter, 512, 512);
        compound(&mut counter, 1024, 512);
        // On the second node: a page of 64 KiB, then one that lost its head.
        compound(&mut counter, 32768, 16);
        (40_001..40_004).for_each(|frame| counter.frame(frame, COMPOUND_TAIL));
        counter.frame(5, KSM);
        counter.frame(6, ZERO_PAGE);
        counter.gap();
        counter.frame(99_999, 0);
        let counts: Vec<_> = counter
            .finish()
            .into_iter()
            .map(|count| (count.node, count.page_bytes, count.merged, count.bytes))
            .collect();
        let expected = [
            (None, 4096, false, 4096),
            (Some(0), 4096, true, 4096),
            (Some(0), 2 << 20, false, 4 << 20),
            (Some(1), 8192, false, 3 * 4096),
            (Some(1), 64 << 10, false, 64 << 10),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn this_process_can_be_scanned_by_root() {
        let block = vec![1_u8; 4 << 20];
        let start = (block.as_ptr() as u64).next_multiple_of(4096);
        let mut regions = [VmMapping { start, bytes: 3 << 20, ..VmMapping::default() }];
        match scan(Path::new("/"), std::process::id(), &mut regions) {
            Ok(()) => {
                let pages = regions[0].pages.as_deref().expect("counted");
                assert_eq!(pages.iter().map(|count| count.bytes).sum::<u64>(), 3 << 20);
                assert!(pages.iter().all(|count| count.node.is_some()), "{pages:?}");
            }
            Err(error) => suite::skip(format!("cannot see page frames: {error}")),
        }
        assert_eq!(block.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 4 << 20);
    }
}
