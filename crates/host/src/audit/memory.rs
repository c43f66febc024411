//! Where a QEMU's memory lies, by node and page size.
//!
//! `smaps` tells page sizes, `numa_maps` tells nodes and policies; both name a
//! mapping by its start. Which mapping is guest memory, they do not say: QEMU
//! keeps all guest memory (and nothing else) out of forks, and the kernel
//! shows that as the flag `dc`. Neither tells on which node the *transparent*
//! huge pages of a mapping lie; the page scan of [`super::pages`] does.
//!
//! Source: Linux `Documentation/filesystems/proc.rst` (smaps), `numa(7)`
//! (numa_maps); QEMU `softmmu/physmem.c` (`ram_block_add`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::MemorySource;

use super::argv::{CommandLineRequest, MemoryBackend};
use super::thread::kib;

/// Bytes by node.
pub type BytesByNode = BTreeMap<u32, u64>;

/// Memory of a running VM. Sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmMemory {
    /// The mappings that hold guest memory, by address. Empty when `smaps` may
    /// not be read.
    pub regions: Vec<VmMapping>,
    /// Present bytes of all other mappings: QEMU itself, TCG's code, files.
    pub other_bytes: u64,
    /// Present bytes of all other mappings, by node.
    pub other_by_node: BytesByNode,
    /// Locked into memory.
    pub locked_bytes: Option<u64>,
    /// Swapped out, of the whole process.
    pub swapped_bytes: Option<u64>,
    /// Pages that same-page merging shares with others.
    pub ksm_merging_pages: Option<u64>,
    /// Nodes from which the process may take memory (`Mems_allowed`).
    pub allowed_nodes: Option<BTreeSet<u32>>,
}

/// One mapping of guest memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmMapping {
    /// First address.
    pub start: u64,
    /// Size, present or not.
    pub bytes: u64,
    /// File behind it; empty for anonymous memory.
    pub path: String,
    /// The memory backend that it belongs to, when that is certain.
    pub backend: Option<String>,
    /// Page size of the mapping: that of its huge page pool, or the base page.
    pub page_bytes: u64,
    /// Present bytes.
    pub present_bytes: u64,
    /// Present bytes that transparent huge pages back.
    pub thp_bytes: u64,
    /// Present bytes from a huge page pool.
    pub hugetlb_bytes: u64,
    /// Swapped-out bytes.
    pub swapped_bytes: u64,
    /// Present bytes by node; `None` where the kernel has no NUMA maps.
    pub by_node: Option<BytesByNode>,
    /// Memory policy as the kernel writes it: `default`, `bind:0-1`...
    pub policy: Option<String>,
    /// Whether transparent huge pages were asked for here (`madvise`).
    pub asks_thp: bool,
    /// Whether same-page merging may look here.
    pub mergeable: bool,
    /// What a scan of every page found; `None` where none was made or allowed.
    pub pages: Option<Vec<PageCount>>,
}

/// Pages of one kind on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCount {
    /// Node; `None` where the kernel does not say.
    pub node: Option<u32>,
    /// Size of the physical pages behind them.
    pub page_bytes: u64,
    /// Whether same-page merging shares them.
    pub merged: bool,
    /// Bytes.
    pub bytes: u64,
}

impl VmMapping {
    /// Nodes that the policy names; `None` for `default`, `local`, `prefer`
    /// without nodes.
    #[must_use]
    pub fn policy_nodes(&self) -> Option<BTreeSet<u32>> {
        // `bind=static:0-1`, `prefer:1`, `interleave:0,2`.
        let (_, nodes) = self.policy.as_deref()?.split_once(':')?;
        Some(super::argv::number_list(nodes)).filter(|nodes| !nodes.is_empty())
    }

    /// Whether the policy lets memory come from its nodes only.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        let policy = self.policy.as_deref().unwrap_or_default();
        policy.starts_with("bind") || policy.starts_with("interleave")
    }
}

impl VmMemory {
    /// Says of each region that has the address of a backend, by its id, that it is that
    /// backend's. Of guest nodes of one size only QEMU knows it.
    pub fn name_backends_at(&mut self, addresses: &BTreeMap<String, u64>) {
        for (backend, address) in addresses {
            let holds = |region: &&mut VmMapping| {
                address.checked_sub(region.start).is_some_and(|offset| offset < region.bytes)
            };
            if let Some(region) = self.regions.iter_mut().find(holds) {
                region.backend = Some(backend.clone());
            }
        }
    }

    /// Present guest memory.
    #[must_use]
    pub fn guest_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.present_bytes).sum()
    }

    /// Present guest memory by node; `None` where the kernel does not say.
    #[must_use]
    pub fn guest_by_node(&self) -> Option<BytesByNode> {
        let mut sum = BytesByNode::new();
        for region in &self.regions {
            for (node, bytes) in region.by_node.as_ref()? {
                *sum.entry(*node).or_default() += bytes;
            }
        }
        (!self.regions.is_empty()).then_some(sum)
    }

    /// Present guest memory by page size; transparent huge pages count as
    /// pages of `thp_page_bytes`.
    #[must_use]
    pub fn guest_by_page_size(&self, thp_page_bytes: u64) -> BTreeMap<u64, u64> {
        let mut sum = BTreeMap::new();
        for region in &self.regions {
            let small = region.present_bytes.saturating_sub(region.thp_bytes);
            for (page, bytes) in [(region.page_bytes, small), (thp_page_bytes, region.thp_bytes)] {
                if bytes > 0 {
                    *sum.entry(page).or_default() += bytes;
                }
            }
        }
        sum
    }
}

impl VmMapping {
    /// Adds the transparent huge pages that `numa_maps` tells of and `smaps` does not: from
    /// Linux 6.1 to 6.4 that passes over those which automatic NUMA balancing has marked, to
    /// see who uses them (mended by commit 8b9c1cc0418a, "smaps: use vm_normal_page_pmd()
    /// instead of follow_trans_huge_pmd()"). What is less than such a page has come or gone
    /// between the two reads.
    fn add_passed_over(&mut self) {
        const HUGE_BYTES: u64 = 2 << 20;
        let told: u64 = self.by_node.iter().flatten().map(|(_, bytes)| bytes).sum();
        let more = told.saturating_sub(self.present_bytes) / HUGE_BYTES * HUGE_BYTES;
        self.present_bytes += more;
        self.thp_bytes += more;
    }
}

/// Joins the texts of `smaps` and `numa_maps` of one process.
pub(crate) fn join(smaps: &str, numa_maps: &str, asked: &CommandLineRequest) -> VmMemory {
    let mut numa = parse_numa_maps(numa_maps);
    let mut memory = VmMemory::default();
    for mapping in parse_smaps(smaps) {
        let numa = numa.remove(&mapping.region.start);
        let by_node = numa.as_ref().map(|numa| numa.by_node.clone());
        if !mapping.guest {
            memory.other_bytes += mapping.region.present_bytes;
            for (node, bytes) in by_node.unwrap_or_default() {
                *memory.other_by_node.entry(node).or_default() += bytes;
            }
            continue;
        }
        let policy = numa.map(|numa| numa.policy);
        let mut region = VmMapping { by_node, policy, ..mapping.region };
        region.add_passed_over();
        memory.regions.push(region);
    }
    name_backends(&mut memory.regions, asked);
    memory
}

/// Finds which region is which backend's: by its file, else by size, then by
/// policy where sizes repeat. What stays open is left open.
fn name_backends(regions: &mut [VmMapping], asked: &CommandLineRequest) {
    for backend in &asked.backends {
        let is_its = |region: &VmMapping| kind_of(&region.path) == backend_kind(&backend.kind);
        if backend.path.is_some()
            && let Some(region) = regions.iter_mut().find(|region| is_file_of(region, backend))
        {
            region.backend = Some(backend.id.clone());
            continue;
        }
        let Some(bytes) = backend.bytes else { continue };
        let alike = |other: &&MemoryBackend| {
            other.bytes == Some(bytes) && backend_kind(&other.kind) == backend_kind(&backend.kind)
        };
        let twins = asked.backends.iter().filter(alike).count();
        let fits = |region: &&mut VmMapping| {
            // Huge pages round a size up.
            let size = region.bytes == bytes
                || region.bytes == bytes.next_multiple_of(region.page_bytes.max(1));
            let same_policy = region.policy_nodes().unwrap_or_default() == backend.nodes;
            is_its(region) && size && (twins == 1 || !backend.nodes.is_empty() && same_policy)
        };
        let mut fitting: Vec<&mut VmMapping> = regions.iter_mut().filter(fits).collect();
        if let [region] = &mut fitting[..] {
            region.backend = Some(backend.id.clone());
        }
    }
}

/// What is behind a mapping of `path`.
fn kind_of(path: &str) -> MemorySource {
    // Shared anonymous memory shows as the kernel's own nameless file.
    if path.is_empty() || path.starts_with("/dev/zero") {
        MemorySource::Anonymous
    } else if path.starts_with("/memfd:") || path.starts_with("/anon_hugepage") {
        MemorySource::Memfd
    } else {
        MemorySource::File
    }
}

fn backend_kind(kind: &str) -> MemorySource {
    match kind {
        "memory-backend-file" => MemorySource::File,
        "memory-backend-memfd" => MemorySource::Memfd,
        _ => MemorySource::Anonymous,
    }
}

/// Whether a mapping is of the backend's file: of that path, or of the file
/// that QEMU made in that folder, `qemu_back_mem.<id>.<six letters>` (older
/// machine types: `qemu_back_mem._objects_<id>...`).
fn is_file_of(region: &VmMapping, backend: &MemoryBackend) -> bool {
    let Some(path) = &backend.path else { return false };
    let found = region.path.strip_suffix(" (deleted)").unwrap_or(&region.path);
    if found == path {
        return true;
    }
    let Some(name) = found.strip_prefix(path.trim_end_matches('/')) else { return false };
    let Some(name) = name.strip_prefix("/qemu_back_mem.") else { return false };
    let name = name.strip_prefix("_objects_").unwrap_or(name);
    name.rsplit_once('.').is_some_and(|(id, _)| id == backend.id)
}

/// One mapping of `smaps`.
struct Mapping {
    region: VmMapping,
    guest: bool,
}

fn parse_smaps(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(region) = head(line) {
            mappings.push(Mapping { region, guest: false });
            continue;
        }
        let (Some(mapping), Some((name, value))) = (mappings.last_mut(), line.split_once(':'))
        else {
            continue;
        };
        let bytes = || kib(value).unwrap_or(0);
        let region = &mut mapping.region;
        match name {
            "KernelPageSize" => region.page_bytes = bytes(),
            // Pages of a pool do not count as resident.
            "Rss" => region.present_bytes += bytes(),
            "Shared_Hugetlb" | "Private_Hugetlb" => {
                region.hugetlb_bytes += bytes();
                region.present_bytes += bytes();
            }
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => region.thp_bytes += bytes(),
            "Swap" => region.swapped_bytes = bytes(),
            "VmFlags" => {
                let has = |flag: &str| value.split_ascii_whitespace().any(|found| found == flag);
                // Devices' memory is kept out of forks as well.
                mapping.guest = has("dc") && !has("io") && !has("pf");
                region.asks_thp = has("hg");
                region.mergeable = has("mg");
            }
            _ => {}
        }
    }
    mappings
}

/// `7f40-7f41 rw-p 00000000 00:00 0   /path`.
fn head(line: &str) -> Option<VmMapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let path = fields.skip(4).collect::<Vec<_>>().join(" ");
    Some(VmMapping { start, bytes: end.checked_sub(start)?, path, ..VmMapping::default() })
}

/// One mapping of `numa_maps`.
#[derive(Debug, PartialEq, Eq)]
struct NumaMapping {
    policy: String,
    by_node: BytesByNode,
}

/// By start address. The counts are in pages of `kernelpagesize_kB`.
fn parse_numa_maps(text: &str) -> BTreeMap<u64, NumaMapping> {
    let mut mappings = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(start), Some(policy)) = (fields.next(), fields.next()) else { continue };
        let Ok(start) = u64::from_str_radix(start, 16) else { continue };
        let mut pages: Vec<(u32, u64)> = Vec::new();
        let mut page_bytes = 4096;
        for field in fields {
            let Some((name, value)) = field.split_once('=') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            if name == "kernelpagesize_kB" {
                page_bytes = value.saturating_mul(1024);
            } else if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse().ok()) {
                pages.push((node, value));
            }
        }
        let by_node = pages.iter().map(|(node, n)| (*node, n.saturating_mul(page_bytes))).collect();
        mappings.insert(start, NumaMapping { policy: policy.to_owned(), by_node });
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::argv::parse;

    const MIB: u64 = 1 << 20;

    #[test]
    fn huge_pages_that_balancing_has_marked_are_counted() {
        // QEMU 7.2 with mem-lock on Linux 6.1 (Debian 12) of two nodes: 384 MiB are there.
        let smaps = "7f5357e00000-7f536fe00000 rw-p 00000000 00:00 0 \n\
            Size:             393216 kB\nKernelPageSize:        4 kB\nRss:              165888 kB\n\
            AnonHugePages:    165888 kB\nVmFlags: rd wr mr mw me lo dc ac sd hg mg \n";
        let numa_maps =
            "7f5357e00000 default anon=98304 dirty=98304 N1=98304 kernelpagesize_kB=4\n";
        let memory = join(smaps, numa_maps, &CommandLineRequest::default());
        assert_eq!(memory.guest_bytes(), 384 * MIB);
        assert_eq!(memory.regions[0].thp_bytes, 384 * MIB);
        // A few pages more are those that came since.
        let few = numa_maps.replace("N1=98304", "N1=41600");
        let memory = join(smaps, &few, &CommandLineRequest::default());
        assert_eq!(memory.regions[0].present_bytes, 165_888 << 10);
    }

    #[test]
    fn a_real_guest_with_transparent_huge_pages() {
        // QEMU 7.2, 64 MiB preallocated, on a kernel with THP for who asks.
        // The mappings of libraries are cut out.
        let smaps = include_str!("../../testdata/linux-6.18-x86_64/qemu/smaps");
        let numa_maps = include_str!("../../testdata/linux-6.18-x86_64/qemu/numa_maps");
        let line = "-object memory-backend-ram,id=ram0,size=64M,prealloc=on";
        let asked = parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let memory = join(smaps, numa_maps, &asked);
        let ram = memory.regions.iter().find(|region| region.bytes == 64 * MIB).expect("the RAM");
        assert_eq!(ram.backend.as_deref(), Some("ram0"));
        assert_eq!((ram.present_bytes, ram.thp_bytes), (64 * MIB, 64 * MIB));
        assert_eq!(ram.by_node, Some([(0, 64 * MIB)].into()));
        assert_eq!((ram.policy.as_deref(), ram.page_bytes), (Some("default"), 4096));
        assert!(ram.asks_thp && ram.mergeable && ram.path.is_empty());
        assert_eq!((ram.policy_nodes(), ram.is_bound()), (None, false));
        // Beside it, the firmware's and the tables' small ones.
        assert!(memory.regions.len() > 1 && memory.guest_bytes() >= 64 * MIB);
        assert!(memory.guest_bytes() < 70 * MIB, "TCG's code is not the guest's");
        assert!(memory.other_bytes > 0);
        assert_eq!(memory.guest_by_page_size(2 * MIB).get(&(2 * MIB)), Some(&(66 * MIB)));
    }

    /// Hand-made in the kernel's format: two nodes, one guest node each from
    /// the pool of 2 MiB pages and one that took ordinary pages elsewhere.
    const SMAPS: &str = "\
7f0000000000-7f0080000000 rw-s 00000000 00:2b 77   /dev/hugepages/libvirt/qemu/1-db/qemu_back_mem._objects_ram-node0.pUNFo4 (deleted)
Size:            2097152 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb: 2097152 kB
VmFlags: rd wr sh mr mw me ms dc de ht
7f0080000000-7f0100000000 rw-p 00000000 00:00 0
Size:            2097152 kB
KernelPageSize:        4 kB
Rss:             1048576 kB
AnonHugePages:    524288 kB
Swap:               4096 kB
VmFlags: rd wr mr mw me dc ac hg
7f0200000000-7f0200003000 rw-s 00000000 00:0e 1    anon_inode:kvm-vcpu:0
Size:                 12 kB
KernelPageSize:        4 kB
Rss:                  12 kB
VmFlags: rd wr sh mr mw me ms dc
7f0300000000-7f0300100000 rw-s 00000000 00:0e 1    /dev/vfio/11
Rss:                   0 kB
VmFlags: rd wr sh mr mw me pf io dc de dd
";
    const NUMA_MAPS: &str = "\
7f0000000000 bind:0 file=/dev/hugepages/libvirt/qemu/1-db/qemu_back_mem._objects_ram-node0.pUNFo4\\040(deleted) huge dirty=1024 N0=1000 N1=24 kernelpagesize_kB=2048
7f0080000000 prefer=static:1 anon=262144 dirty=262144 N0=131072 N1=131072 kernelpagesize_kB=4
7f0200000000 default file=anon_inode:kvm-vcpu:0 N0=3 kernelpagesize_kB=4
";

    #[test]
    fn two_nodes_and_two_page_sizes() {
        let backend = |id: &str, path: Option<&str>| MemoryBackend {
            id: id.to_owned(),
            kind: if path.is_some() { "memory-backend-file" } else { "memory-backend-ram" }
                .to_owned(),
            path: path.map(str::to_owned),
            bytes: Some(2048 * MIB),
            nodes: [1].into(),
            ..MemoryBackend::default()
        };
        let folder = "/dev/hugepages/libvirt/qemu/1-db";
        let backends = vec![backend("ram-node0", Some(folder)), backend("ram-node1", None)];
        let memory = join(
            SMAPS,
            NUMA_MAPS,
            &CommandLineRequest { backends, ..CommandLineRequest::default() },
        );
        let [first, second, kvm_run] = &memory.regions[..] else { panic!("{memory:#?}") };
        assert_eq!(first.backend.as_deref(), Some("ram-node0"));
        assert_eq!(second.backend.as_deref(), Some("ram-node1"));
        assert_eq!(first.by_node, Some([(0, 2000 * MIB), (1, 48 * MIB)].into()));
        assert_eq!((first.present_bytes, first.hugetlb_bytes), (2048 * MIB, 2048 * MIB));
        assert!(first.is_bound() && !second.is_bound());
        assert_eq!(first.policy_nodes(), Some([0].into()));
        assert_eq!(second.policy_nodes(), Some([1].into()));
        assert_eq!((second.thp_bytes, second.swapped_bytes), (512 * MIB, 4 * MIB));
        assert_eq!(kvm_run.bytes, 12 << 10);
        let by_page = memory.guest_by_page_size(2 * MIB);
        assert_eq!(by_page[&(2 * MIB)], 2560 * MIB);
        assert_eq!(memory.guest_by_node().map(|by_node| by_node[&1]), Some(560 * MIB));
    }

    #[test]
    fn addresses_name_regions() {
        let region = |start, bytes| VmMapping { start, bytes, ..VmMapping::default() };
        let regions = vec![region(0x1000, 0x2000), region(0x3000, 0x2000), region(0x9000, 0x1000)];
        let mut memory = VmMemory { regions, ..VmMemory::default() };
        let at = [("mem1", 0x2fff), ("mem0", 0x3000), ("gone", 0xa000), ("low", 0)];
        memory.name_backends_at(&at.map(|(id, address)| (id.to_owned(), address)).into());
        let named: Vec<_> = memory.regions.iter().map(|one| one.backend.as_deref()).collect();
        assert_eq!(named, [Some("mem1"), Some("mem0"), None]);
    }

    #[test]
    fn regions_that_could_be_either_stay_unnamed() {
        let backend = |id: &str| MemoryBackend {
            id: id.to_owned(),
            bytes: Some(2048 * MIB),
            ..MemoryBackend::default()
        };
        let backends = vec![backend("a"), backend("b")];
        let memory =
            join(SMAPS, "", &CommandLineRequest { backends, ..CommandLineRequest::default() });
        assert!(memory.regions.iter().all(|region| region.backend.is_none()));
        assert_eq!(memory.guest_by_node(), None);
    }

    #[test]
    fn broken_texts_are_read_as_far_as_they_go() {
        for text in
            ["", "x", "7f-", "zz-aa rw", "2-1 rw\nRss: 4 kB", "1-2 x\nRss: kB\nRss", "\n:\n"]
        {
            let memory = join(text, text, &CommandLineRequest::default());
            assert_eq!(memory.regions, [], "{text:?}");
        }
    }
}
