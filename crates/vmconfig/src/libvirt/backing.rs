//! Memory of a VM as libvirt says it: what holds for all of it, and what a guest
//! cell has of its own.

use std::collections::BTreeMap;

use crate::{Loss, MemoryBacking, MemorySource, NumberSet, PageSize, VmSpec};

use super::xml::Element;

/// `<memoryBacking>`, and what it can't say.
pub(super) fn memory_backing(spec: &VmSpec, losses: &mut Vec<Loss>) -> Element {
    let all = spec.backing();
    let mut backing = Element::new("memoryBacking");
    huge_pages(spec, &all, &mut backing);
    if spec.memory.nosharepages == Some(true) {
        backing.push(Element::new("nosharepages"));
    }
    if spec.memory.locked == Some(true) {
        backing.push(Element::new("locked"));
    }
    let source = source(spec, &all, losses);
    if let Some(kind) = source.and_then(kind) {
        backing.push(Element::new("source").attr("type", kind));
    }
    // libvirt shares a memfd unless told otherwise.
    if let Some(shared) = same(&all, |memory| memory.shared == Some(true))
        && (shared || source == Some(MemorySource::Memfd))
    {
        backing.push(Element::new("access").attr("mode", mode(shared)));
    }
    allocation(spec, &all, &mut backing, losses);
    backing
}

/// `memAccess` of a cell, where cells are not alike.
pub(super) fn cell_access(spec: &VmSpec, cell: usize) -> Option<&'static str> {
    let all = spec.backing();
    let memory = all.get(cell)?;
    let shared = memory.shared == Some(true);
    let is_mixed = same(&all, |memory| memory.shared == Some(true)).is_none();
    // A word about access makes libvirt take a file, which is right for these alone.
    let is_file = memory.source == Some(MemorySource::File) && memory.huge_pages.is_none();
    let said = said_source(&all);
    let makes_file = said.is_none() && is_file;
    let has_source = said.is_some() || memory.source.is_some();
    ((is_mixed && (shared || has_source)) || makes_file).then(|| mode(shared))
}

fn mode(shared: bool) -> &'static str {
    if shared { "shared" } else { "private" }
}

fn kind(source: MemorySource) -> Option<&'static str> {
    match source {
        MemorySource::Memfd => Some("memfd"),
        MemorySource::File => Some("file"),
        MemorySource::Anonymous => None,
    }
}

/// What all say, if they say the same.
fn same<T: PartialEq>(all: &[MemoryBacking], of: impl Fn(&MemoryBacking) -> T) -> Option<T> {
    let first = all.first().map(&of)?;
    all.iter().all(|memory| of(memory) == first).then_some(first)
}

fn huge_pages(spec: &VmSpec, all: &[MemoryBacking], backing: &mut Element) {
    let page = |size: PageSize| Element::new("page").attr("size", size.kib()).attr("unit", "KiB");
    let mut cells: BTreeMap<PageSize, NumberSet> = BTreeMap::new();
    for (cell, memory) in (0..).zip(all) {
        if let Some(size) = memory.huge_pages {
            let set = cells.entry(size).or_default();
            *set = set.union(&NumberSet::from_iter([cell]));
        }
    }
    if cells.is_empty() {
        return;
    }
    let mut pages = Element::new("hugepages");
    match same(all, |memory| memory.huge_pages).flatten() {
        Some(size) => pages.push(page(size)),
        None => cells.iter().for_each(|(size, set)| pages.push(page(*size).attr("nodeset", set))),
    }
    debug_assert!(!spec.numa.is_empty() || cells.len() == 1);
    backing.push(pages);
}

/// What `<source>` says: that of all, and a memfd if any has one.
fn said_source(all: &[MemoryBacking]) -> Option<MemorySource> {
    let shared = all.iter().all(|memory| memory.shared == Some(true));
    let is = |source| all.iter().any(|memory| memory.source == Some(source));
    match same(all, |memory| memory.source) {
        // libvirt would take a file on a disk.
        Some(None) if shared => Some(MemorySource::Memfd),
        Some(source) => source,
        None if is(MemorySource::Memfd) => Some(MemorySource::Memfd),
        None if shared => Some(MemorySource::File),
        None => None,
    }
}

fn source(spec: &VmSpec, all: &[MemoryBacking], losses: &mut Vec<Loss>) -> Option<MemorySource> {
    let said = said_source(all);
    let is_mixed = same(all, |memory| memory.shared == Some(true)).is_none();
    let made = |memory: &MemoryBacking| {
        // Sharing needs a file, and so do huge pages.
        let shared = is_mixed && memory.shared == Some(true);
        let file = memory.huge_pages.is_some() || shared || memory.source.is_some();
        said.or(file.then_some(MemorySource::File))
    };
    if all.iter().all(|memory| made(memory) == memory.source) {
        return said;
    }
    let (what, why) = match same(all, |memory| memory.source) {
        Some(None) => {
            let why = "libvirt shares files alone: it gets one without a name (memfd)";
            ("shared memory without a file", why)
        }
        _ => ("files of cells", "libvirt has one kind of file for the memory of all cells"),
    };
    losses.push(of_cells(spec, "source", what, why));
    said
}

/// A loss of something that each cell may say.
fn of_cells(spec: &VmSpec, field: &str, what: &str, why: &str) -> Loss {
    let loss = Loss::new(&format!("memory.{field}"), what, why);
    (0..spec.numa.len()).fold(loss, |loss, cell| loss.also(&format!("numa.{cell}.{field}")))
}

fn allocation(spec: &VmSpec, all: &[MemoryBacking], backing: &mut Element, losses: &mut Vec<Loss>) {
    let is_huge = |memory: &MemoryBacking| memory.huge_pages.is_some();
    let is_early = |memory: &MemoryBacking| memory.prealloc == Some(true);
    // What libvirt does by itself need not be said, but where it holds for all.
    let immediate =
        all.iter().all(is_early) || all.iter().any(|memory| is_early(memory) && !is_huge(memory));
    let made = |memory: &MemoryBacking| immediate || is_huge(memory);
    if all.iter().any(|memory| made(memory) != is_early(memory)) {
        let (what, why) = if all.iter().any(|memory| is_huge(memory) && !is_early(memory)) {
            let why = "libvirt allocates all of them when the VM starts";
            ("huge pages as they are touched", why)
        } else {
            ("memory of cells as it is touched", "libvirt allocates that of all cells, or of none")
        };
        losses.push(of_cells(spec, "prealloc", what, why));
    }
    let threads = spec.memory.prealloc_threads;
    if immediate || threads.is_some() {
        let mode = immediate.then_some("immediate");
        let allocation = Element::new("allocation").maybe_attr("mode", mode);
        backing.push(allocation.maybe_attr("threads", threads));
    }
}
