//! PCI devices that VFIO's driver has, so that guests can have them.
//!
//! A device is bound by its `driver_override`, which names it alone and no other of
//! its kind. What it was bound to before takes it back once that is cleared.
//!
//! Source: Linux `Documentation/ABI/testing/sysfs-bus-pci` (driver_override,
//! drivers_probe), `Documentation/driver-api/vfio.rst` (groups),
//! `drivers/iommu/iommu.c` (`iommu_group_claim_dma_owner`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vmconfig::PciAddress;

use super::refusal::SettingRefusal;
use super::tree::SettingsTree;
use super::value;

/// The driver.
pub(super) const DRIVER: &str = "vfio-pci";

/// What QEMU needs of the kernel, in the order of loading: the driver, and mappings for
/// IOMMUs. The driver goes last, with all that both need.
pub(super) const MODULES: [&str; 2] = ["vfio_pci", "vfio_iommu_type1"];

const DEVICES: &str = "sys/bus/pci/devices";
pub(super) const BLOCKS: &str = "sys/class/block";

/// What a device is bound to if it is bound to nothing.
const NOTHING: &str = "nothing";
/// That it is bound by an override.
pub(super) const BY_OVERRIDE: &str = " by override";

/// How long a driver may take to let go of a device, or to find its disks again.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
/// How often that is looked at: sysfs tells nobody.
const LOOK: Duration = Duration::from_millis(20);

/// The devices that the driver has.
pub(super) fn present(tree: &SettingsTree) -> Result<String, SettingRefusal> {
    check_bus(tree)?;
    let names = tree.list(DEVICES);
    let devices = names.iter().filter_map(|name| name.parse().ok());
    let bound = devices.filter(|address| bound_to(tree, *address).as_deref() == Some(DRIVER));
    Ok(value::show_devices(&bound.collect()))
}

pub(super) fn check_bus(tree: &SettingsTree) -> Result<(), SettingRefusal> {
    if tree.has(DEVICES) {
        return Ok(());
    }
    let hint = "this host has no PCI bus, or a container hides it".to_owned();
    Err(SettingRefusal::Absent { path: DEVICES.to_owned(), hint })
}

pub(super) fn folder(address: PciAddress) -> String {
    format!("{DEVICES}/{address}")
}

pub(super) fn bound_to(tree: &SettingsTree, address: PciAddress) -> Option<String> {
    let link = fs::read_link(tree.path(&format!("{}/driver", folder(address)))).ok()?;
    link.file_name()?.to_str().map(str::to_owned)
}

/// The block devices behind a PCI device, sorted; with `parts` their partitions, too.
/// Of a disk that NVMe reaches by several paths it is the disk.
pub(crate) fn disks(tree: &SettingsTree, address: PciAddress, parts: bool) -> Vec<String> {
    let Ok(device) = fs::canonicalize(tree.path(&folder(address))) else { return Vec::new() };
    let blocks = tree.list(BLOCKS);
    let place = |name: &str| fs::canonicalize(tree.path(&format!("{BLOCKS}/{name}"))).ok();
    let is_part = |place: &PathBuf| place.join("partition").exists();
    let mut heads = BTreeSet::new();
    let mut found = BTreeSet::new();
    for name in &blocks {
        let Some(place) = place(name).filter(|place| place.starts_with(&device)) else { continue };
        match disk_of_path(name) {
            Some(head) => drop(heads.insert(head)),
            None if parts || !is_part(&place) => drop(found.insert(name.clone())),
            None => {}
        }
    }
    for name in &blocks {
        let Some(place) = place(name) else { continue };
        let of_head = |head: &String| place.iter().any(|part| part.to_str() == Some(head));
        if heads.iter().any(of_head) && (parts || !is_part(&place)) {
            found.insert(name.clone());
        }
    }
    found.into_iter().collect()
}

/// The PCI device that a disk is, or is behind.
pub(crate) fn device_of(tree: &SettingsTree, disk: &str) -> Option<PciAddress> {
    let is_it = |name: &&String| *name == disk || disk_of_path(name).as_deref() == Some(disk);
    let names = tree.list(BLOCKS);
    names.iter().filter(is_it).find_map(|name| {
        let place = fs::canonicalize(tree.path(&format!("{BLOCKS}/{name}"))).ok()?;
        let parts = place.ancestors().filter_map(|above| above.file_name()?.to_str());
        parts.filter_map(|part| part.parse().ok()).next()
    })
}

/// The disk that a path leads to: `nvme0n1` of `nvme0c1n1`.
fn disk_of_path(name: &str) -> Option<String> {
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let (_, namespace) = rest.split_once('n')?;
    Some(format!("nvme{subsystem}n{namespace}"))
}

/// What drives the device: `nvme with 1 disk`, `vfio-pci by override`, `nothing`.
pub(super) fn read(tree: &SettingsTree, address: PciAddress) -> io::Result<String> {
    let by = tree.text(&format!("{}/driver_override", folder(address)))?;
    let mut text = bound_to(tree, address).unwrap_or_else(|| NOTHING.to_owned());
    match disks(tree, address, false).len() {
        0 => {}
        1 => text.push_str(" with 1 disk"),
        many => text.push_str(&format!(" with {many} disks")),
    }
    if by == DRIVER {
        text.push_str(BY_OVERRIDE);
    }
    Ok(text)
}

/// Whether a device was left so by a change that was cut off: nobody else overrides.
pub(super) fn is_halfway(found: &str) -> bool {
    found.ends_with(BY_OVERRIDE) || found == NOTHING
}

/// Gives the device to the driver, or to those that take it by themselves, and waits
/// until it is as `wanted` says.
pub(super) fn write(tree: &SettingsTree, address: PciAddress, wanted: &str) -> io::Result<()> {
    let device = folder(address);
    let driver = if wanted.ends_with(BY_OVERRIDE) { DRIVER } else { "\n" };
    tree.kernel.write(&tree.path(&format!("{device}/driver_override")), driver)?;
    let unbind = tree.path(&format!("{device}/driver/unbind"));
    if unbind.exists() {
        wait_for_guest(tree, &device)?;
        tree.kernel.write(&unbind, &address.to_string())?;
    }
    if !wanted.starts_with(NOTHING) {
        let probe = tree.path("sys/bus/pci/drivers_probe");
        tree.kernel.write(&probe, &address.to_string())?;
    }
    let until = Instant::now() + SETTLE_LIMIT;
    while read(tree, address)? != wanted && Instant::now() < until && !is_made_up(tree) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Nothing changes by itself below a folder.
fn is_made_up(tree: &SettingsTree) -> bool {
    tree.root != Path::new("/")
}

/// The kernel would wait for a guest that has the device, however long that runs.
fn wait_for_guest(tree: &SettingsTree, device: &str) -> io::Result<()> {
    let group = fs::read_link(tree.path(&format!("{device}/iommu_group")));
    let Some(group) = group.ok().and_then(|link| link.file_name().map(PathBuf::from)) else {
        return Ok(());
    };
    let group = tree.path("dev/vfio").join(group);
    let is_open = || {
        let opened = fs::OpenOptions::new().read(true).write(true).open(&group);
        opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
    };
    let until = Instant::now() + SETTLE_LIMIT;
    while is_open() {
        if Instant::now() >= until {
            let said = format!("a VM still has it (/{})", group.display());
            return Err(io::Error::other(said.replace("//", "/")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
