//! What guest memory is made of and where it lies.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::PcpuSet;

use crate::{InvalidVm, NumberSet};

/// How the guest's memory is backed. Nothing set: ordinary pages, allocated
/// when the guest touches them, anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryBacking {
    /// Huge pages of this size from the host's pool: `"2M"`, `"1G"`. QEMU
    /// `hugetlbsize=`, libvirt `<hugepages><page size=>`, KubeVirt
    /// `memory.hugepages.pageSize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<PageSize>,
    /// What the memory is for the kernel; none is anonymous memory, and with
    /// huge pages `memfd`. QEMU `memory-backend-*`, libvirt `<source type=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<MemorySource>,
    /// Other processes may map it, as vhost-user and virtiofs must. QEMU
    /// `share=on`, libvirt `<access mode='shared'/>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Every page is allocated before the guest starts. QEMU `prealloc=on`,
    /// libvirt `<allocation mode='immediate'/>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prealloc: Option<bool>,
    /// Threads that allocate. QEMU `prealloc-threads=`, libvirt
    /// `<allocation threads=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prealloc_threads: Option<u32>,
    /// Never swapped. QEMU `-overcommit mem-lock=on`, libvirt `<locked/>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
    /// KSM may not merge its pages. QEMU `-machine mem-merge=off`, libvirt
    /// `<nosharepages/>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nosharepages: Option<bool>,
    /// Host nodes that hold it: `"0"`, `"0-1"`. QEMU `host-nodes=`, libvirt
    /// `<numatune><memory nodeset=>`. A VM with guest nodes says it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nodes: Option<PcpuSet>,
    /// How strictly; with `host_nodes` alone it is `bind`. QEMU `policy=`,
    /// libvirt `<numatune><memory mode=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<MemoryPolicy>,
}

/// What guest memory is for the host's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemorySource {
    /// A file without a name.
    Memfd,
    /// A file; with huge pages one in a mounted hugetlbfs.
    File,
    /// No file at all, which is what memory is if nobody says anything: for a
    /// guest node whose memory is not as the others'.
    Anonymous,
}

/// How strictly memory stays on its host nodes.
///
/// Source: Linux `Documentation/admin-guide/mm/numa_memory_policy.rst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPolicy {
    /// There or nowhere; libvirt's `strict`.
    Bind,
    /// There while there is room.
    Preferred,
    /// Page by page in turns.
    Interleave,
}

impl MemoryPolicy {
    /// Each with the names that QEMU and libvirt give it.
    pub(crate) const NAMES: [(Self, &'static str, &'static str); 3] = [
        (Self::Bind, "bind", "strict"),
        (Self::Preferred, "preferred", "preferred"),
        (Self::Interleave, "interleave", "interleave"),
    ];

    /// QEMU's name for it.
    #[must_use]
    pub fn qemu(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("bind", |row| row.1)
    }

    /// libvirt's name for it.
    #[must_use]
    pub fn libvirt(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("strict", |row| row.2)
    }
}

/// Size of a memory page: `2M`, `1G`. Units are powers of 1024.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct PageSize {
    kib: u64,
}

/// Why a text is no page size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not a page size: {0:?}; write \"2M\" or \"1G\"")]
pub struct ParsePageSizeError(String);

impl PageSize {
    /// 2 MiB.
    pub const M2: Self = Self { kib: 2 << 10 };
    /// 1 GiB.
    pub const G1: Self = Self { kib: 1 << 20 };

    /// The page of so many KiB, if that is a power of two.
    #[must_use]
    pub fn from_kib(kib: u64) -> Option<Self> {
        kib.is_power_of_two().then_some(Self { kib })
    }

    /// The page that is not huge, on the architectures that are known.
    pub const ORDINARY: Self = Self { kib: 4 };

    /// Its size.
    #[must_use]
    pub fn kib(self) -> u64 {
        self.kib
    }

    /// True unless it is the size that all memory has.
    #[must_use]
    pub fn is_huge(self) -> bool {
        self > Self::ORDINARY
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kib {
            kib if kib.is_multiple_of(1 << 20) => write!(f, "{}G", kib >> 20),
            kib if kib.is_multiple_of(1 << 10) => write!(f, "{}M", kib >> 10),
            kib => write!(f, "{kib}K"),
        }
    }
}

impl FromStr for PageSize {
    type Err = ParsePageSizeError;

    fn from_str(text: &str) -> Result<Self, ParsePageSizeError> {
        topology::bytes::parse(text, 1)
            .filter(|bytes| bytes.is_multiple_of(1024))
            .and_then(|bytes| Self::from_kib(bytes / 1024))
            .ok_or_else(|| ParsePageSizeError(text.to_owned()))
    }
}

impl TryFrom<String> for PageSize {
    type Error = ParsePageSizeError;

    fn try_from(text: String) -> Result<Self, ParsePageSizeError> {
        text.parse()
    }
}

impl From<PageSize> for String {
    fn from(size: PageSize) -> Self {
        size.to_string()
    }
}

impl MemoryBacking {
    /// Every key, for overlaying: what `over` says holds.
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(
            self,
            over,
            huge_pages,
            source,
            shared,
            prealloc,
            prealloc_threads,
            locked,
            nosharepages,
            host_nodes,
            policy
        )
    }

    /// One way to say each thing: what is off by itself is not said, and what
    /// follows is.
    pub(crate) fn normalise(&mut self) {
        for flag in [&mut self.shared, &mut self.prealloc, &mut self.locked, &mut self.nosharepages]
        {
            *flag = flag.filter(|on| *on);
        }
        self.huge_pages = self.huge_pages.filter(|size| size.is_huge());
        self.source = self.source.filter(|source| *source != MemorySource::Anonymous);
        if self.huge_pages.is_some() && self.source.is_none() {
            self.source = Some(MemorySource::Memfd);
        }
        if self.host_nodes.as_ref().is_some_and(PcpuSet::is_empty) {
            (self.host_nodes, self.policy) = (None, None);
        }
        if self.host_nodes.is_some() && self.policy.is_none() {
            self.policy = Some(MemoryPolicy::Bind);
        }
    }

    /// True if QEMU must be told more about memory than its size.
    pub(crate) fn needs_backend(&self) -> bool {
        self.source.is_some()
            || self.shared.is_some()
            || self.prealloc.is_some()
            || self.host_nodes.is_some()
    }
}

/// Linux knows no node beyond 1023 (`NODES_SHIFT` is at most 10).
pub(crate) const MAX_NODES: u32 = 1024;

/// No host node that no Linux can have.
pub(crate) fn check_host_nodes(
    field: &'static str,
    nodes: Option<&NumberSet>,
) -> Result<(), InvalidVm> {
    match nodes.and_then(|nodes| nodes.iter().max()) {
        Some(node) if node >= MAX_NODES => Err(InvalidVm::Contradiction {
            field,
            message: format!("names host node {node}: Linux has at most {MAX_NODES}"),
        }),
        _ => Ok(()),
    }
}
