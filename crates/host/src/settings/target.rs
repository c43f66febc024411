//! One thing that is changed, with its value as a text: a file of the kernel,
//! a module with its parameters, a cgroup.

use std::fmt;
use std::io;

use topology::PcpuSet;
use vmconfig::PciAddress;

use super::cpuset::PartitionKind;
use super::tree::SettingsTree;
use super::value::{self, ABSENT, SettingValues};
use super::{cpuset, modules, vfio};

/// One thing that is changed. Paths are below the root folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingTarget {
    /// A file of the kernel.
    File(String),
    /// A module: `absent`, or the module and those that hold it, each with its
    /// parameters.
    Module(String),
    /// A partition: `absent`, or its kind and its pCPUs.
    Partition { kind: PartitionKind, folder: String },
    /// What drives the PCI device.
    Driver(PciAddress),
    /// Whether the cpuset controller is on in this `cgroup.subtree_control`.
    Controller(String),
}

impl SettingTarget {
    /// The present value; `values` is how a file is to be understood.
    pub(super) fn read(&self, tree: &SettingsTree, values: &SettingValues) -> io::Result<String> {
        match self {
            Self::File(path) => {
                let text = tree.text(path)?;
                let odd = || io::Error::other(format!("it says {text:?}"));
                if is_mask(path) {
                    return parse_mask(&text).map(|set| value::show_pcpus(&set)).ok_or_else(odd);
                }
                values.read(&text).ok_or_else(odd)
            }
            Self::Module(name) => Ok(modules::read(tree, name)),
            Self::Partition { folder, .. } => cpuset::read(tree, folder),
            Self::Driver(address) => vfio::read(tree, *address),
            Self::Controller(path) => cpuset::read_controller(tree, path),
        }
    }

    /// Makes the value `new`, and reads it back.
    pub(super) fn set(
        &self,
        tree: &SettingsTree,
        values: &SettingValues,
        new: &str,
    ) -> io::Result<()> {
        match self {
            Self::File(path) => {
                let text = match (is_mask(path), new) {
                    (true, list) => show_mask(&value::pcpus(list).unwrap_or_default()),
                    (false, value::NONE) if *values == SettingValues::Pcpus => "\n".to_owned(),
                    (false, value) => value.to_owned(),
                };
                tree.kernel.write(&tree.path(path), &text)?;
            }
            Self::Module(name) => modules::write(tree, name, new)?,
            Self::Partition { folder, .. } => cpuset::write(tree, folder, new)?,
            Self::Driver(address) => vfio::write(tree, *address, new)?,
            Self::Controller(path) => cpuset::write_controller(tree, path, new)?,
        }
        let found = self.read(tree, values)?;
        if self.agrees(&found, new) {
            return Ok(());
        }
        if let Some(pages) = self.pages_given(&found, new) {
            return Err(io::Error::other(pages));
        }
        Err(io::Error::other(format!("it is {found:?} after that")))
    }

    /// Whether `found` is what `wanted` says.
    pub(super) fn agrees(&self, found: &str, wanted: &str) -> bool {
        match self {
            Self::Module(_) if wanted == modules::PRESENT => found != ABSENT,
            _ => found == wanted,
        }
    }

    /// Whether `found` is a state on the way from `old` to `new`, in which a
    /// change can have been cut off.
    pub(super) fn is_halfway(&self, found: &str, old: &str, new: &str) -> bool {
        match self {
            // The kernel gave some of the pages.
            Self::File(path) if is_pool(path) => {
                let pages = |text: &str| text.parse::<u64>().ok();
                let (found, old, new) = (pages(found), pages(old), pages(new));
                old.min(new) <= found && found <= old.max(new)
            }
            Self::File(_) | Self::Controller(_) => false,
            Self::Module(_) => found == ABSENT || new.starts_with(found),
            // Its folder has a name that only vmlab gives.
            Self::Partition { .. } => found != ABSENT,
            // Unbound, or not probed yet; an override is vmlab's.
            Self::Driver(_) => vfio::is_halfway(found),
        }
    }

    fn pages_given(&self, found: &str, wanted: &str) -> Option<String> {
        let Self::File(path) = self else { return None };
        let (given, wanted): (u64, u64) = (found.parse().ok()?, wanted.parse().ok()?);
        if !is_pool(path) {
            return None;
        }
        Some(match given < wanted {
            true => format!(
                "the kernel gave {given} of {wanted} pages: too little memory is free in pieces of that size"
            ),
            false => format!("{given} pages are left: VMs or others use them"),
        })
    }
}

const MODULE: &str = "module:";
const CONTROLLER: &str = "controller:";
const DEVICE: &str = "driver:";

impl fmt::Display for SettingTarget {
    /// As journals and messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "/{path}"),
            Self::Module(name) => write!(f, "{MODULE}{name}"),
            Self::Partition { kind, folder } => write!(f, "{}:/{folder}", cpuset::word(*kind)),
            Self::Driver(address) => write!(f, "{DEVICE}{address}"),
            Self::Controller(path) => write!(f, "{CONTROLLER}/{path}"),
        }
    }
}

impl SettingTarget {
    /// What [`SettingTarget`]'s text says; `None` for anything else, and for paths
    /// that lead out of their folder.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.split('/').any(|part| part == "..") {
            return None;
        }
        if let Some(path) = text.strip_prefix('/') {
            return Some(Self::File(path.to_owned()));
        }
        if let Some(name) = text.strip_prefix(MODULE) {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            return name.chars().all(allowed).then(|| Self::Module(name.to_owned()));
        }
        if let Some(address) = text.strip_prefix(DEVICE) {
            return address.parse().ok().map(Self::Driver);
        }
        if let Some(path) = text.strip_prefix(CONTROLLER) {
            let path = path.strip_prefix('/').filter(|path| cpuset::is_controller_file(path))?;
            return Some(Self::Controller(path.to_owned()));
        }
        [PartitionKind::Root, PartitionKind::Isolated].into_iter().find_map(|kind| {
            let path = text.strip_prefix(cpuset::word(kind))?.strip_prefix(":/")?;
            cpuset::is_our_folder(path).then(|| Self::Partition { kind, folder: path.to_owned() })
        })
    }
}

fn is_pool(path: &str) -> bool {
    path.ends_with("/nr_hugepages")
}

/// Files that say pCPUs as a mask, not as a list.
fn is_mask(path: &str) -> bool {
    path.ends_with("/default_smp_affinity") || path.ends_with("/cpumask")
}

/// Reads `ff,00000003`: hexadecimal words of 32 pCPUs, the last one first.
fn parse_mask(text: &str) -> Option<PcpuSet> {
    let mut pcpus = PcpuSet::new();
    for (index, word) in text.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok()?;
        let first = u32::try_from(index).ok()?.checked_mul(32)?;
        pcpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Some(pcpus)
}

fn show_mask(pcpus: &PcpuSet) -> String {
    let words = pcpus.last().map_or(1, |last| last / 32 + 1);
    let word = |index: u32| {
        let bits = (0..32).filter(|bit| pcpus.contains(index * 32 + bit));
        format!("{:08x}", bits.fold(0_u32, |all, bit| all | 1 << bit))
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn masks_are_read_as_they_are_written(pcpus in prop::collection::btree_set(0_u32..300, 0..20)) {
            let pcpus: PcpuSet = pcpus.into_iter().collect();
            prop_assert_eq!(parse_mask(&show_mask(&pcpus)), Some(pcpus));
        }
    }

    #[test]
    fn targets_are_read_as_they_are_written() {
        let kind = PartitionKind::Isolated;
        let folder = "sys/fs/cgroup/vmlab-isolated".to_owned();
        for target in [
            SettingTarget::File("sys/kernel/mm/ksm/run".to_owned()),
            SettingTarget::Module("kvm_intel".to_owned()),
            SettingTarget::Partition { kind, folder },
            SettingTarget::Driver("0000:01:00.0".parse().expect("an address")),
            SettingTarget::Controller("sys/fs/cgroup/cgroup.subtree_control".to_owned()),
        ] {
            assert_eq!(SettingTarget::parse(&target.to_string()), Some(target));
        }
        for text in [
            "sys/x",
            "/sys/../etc/passwd",
            "module:a b",
            "isolated:/etc",
            "isolated:/sys/fs/cgroup/../vmlab-isolated",
            "controller:/etc/passwd",
            "driver:nvme",
        ] {
            assert_eq!(SettingTarget::parse(text), None, "{text}");
        }
    }
}
