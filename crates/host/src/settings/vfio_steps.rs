//! The changes that give guests PCI devices, each checked before anything is.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vmconfig::PciAddress;

use super::module_steps::presence_step;
use super::modules::PRESENT;
use super::refusal::{SettingRefusal, check_writable};
use super::step::SettingStep;
use super::target::SettingTarget;
use super::tree::SettingsTree;
use super::vfio::{BLOCKS, BY_OVERRIDE, DRIVER, MODULES, bound_to, check_bus, disks, folder, read};

/// Drivers in a device's group that do no harm: they do no DMA of their own.
const HARMLESS: [&str; 3] = [DRIVER, "pci-stub", "pcieport"];

const GROUPS: &str = "sys/kernel/iommu_groups";

/// What binds these devices; those that the driver has already stay.
pub(super) fn steps(
    tree: &SettingsTree,
    wanted: &BTreeSet<PciAddress>,
) -> Result<Vec<SettingStep>, SettingRefusal> {
    check_bus(tree)?;
    if tree.list(GROUPS).is_empty() {
        let hint = "this host has no IOMMU that is on: switch it on in the firmware (VT-d, \
                    AMD-Vi, SMMU), and boot with intel_iommu=on where it is Intel's";
        return Err(SettingRefusal::Absent { path: format!("{GROUPS}/0"), hint: hint.to_owned() });
    }
    let mut steps = Vec::new();
    for address in wanted {
        check(tree, *address, wanted)?;
        let target = SettingTarget::Driver(*address);
        let unreadable = |error: io::Error| SettingRefusal::Unreadable {
            path: folder(*address),
            why: error.to_string(),
        };
        let old = read(tree, *address).map_err(unreadable)?;
        let new = match bound_to(tree, *address).as_deref() {
            Some(DRIVER) => old.clone(),
            _ => format!("{DRIVER}{BY_OVERRIDE}"),
        };
        steps.push(SettingStep::new(target, old, new));
    }
    if steps.is_empty() {
        return Ok(steps);
    }
    let modules = MODULES.iter().map(|module| presence_step(tree, module, PRESENT));
    let mut all = modules.collect::<Result<Vec<_>, _>>()?;
    all.extend(steps);
    Ok(all)
}

/// Whether a guest may have the device: it is there, its group is no larger than what
/// the guest gets, and nobody on the host uses it.
fn check(
    tree: &SettingsTree,
    address: PciAddress,
    wanted: &BTreeSet<PciAddress>,
) -> Result<(), SettingRefusal> {
    let device = folder(address);
    let refuse = |why: String| Err(SettingRefusal::Device { address: address.to_string(), why });
    if !tree.has(&device) {
        return Err(SettingRefusal::NoSuch { what: format!("PCI device {address}") });
    }
    let override_file = format!("{device}/driver_override");
    check_writable(&tree.path(&override_file), &override_file)?;
    let group = format!("{device}/iommu_group");
    if !tree.has(&group) {
        return refuse("it is behind no IOMMU".to_owned());
    }
    let others = tree.list(&format!("{group}/devices"));
    for other in others.iter().filter_map(|name| name.parse::<PciAddress>().ok()) {
        let Some(driver) = bound_to(tree, other).filter(|_| !wanted.contains(&other)) else {
            continue;
        };
        if !HARMLESS.contains(&&*driver) {
            return refuse(format!(
                "its IOMMU group holds {other} too, which {driver} drives: a group goes to one \
                 guest as a whole. Name that device as well, or put one of the two elsewhere"
            ));
        }
    }
    if bound_to(tree, address).as_deref() == Some(DRIVER) {
        return Ok(());
    }
    let by = tree.text(&override_file).unwrap_or_default();
    if !matches!(by.as_str(), "" | "(null)") {
        return refuse(format!("somebody has given it the driver {by} (driver_override)"));
    }
    match in_use(tree, address) {
        Some(why) => refuse(why),
        None => Ok(()),
    }
}

/// Who on the host uses the device's disks or interfaces.
fn in_use(tree: &SettingsTree, address: PciAddress) -> Option<String> {
    for name in disks(tree, address, true) {
        let folder = format!("{BLOCKS}/{name}");
        let holders = tree.list(&format!("{folder}/holders"));
        if !holders.is_empty() {
            return Some(format!("its disk {name} is part of {}", holders.join(", ")));
        }
        let number = tree.text(&format!("{folder}/dev")).unwrap_or_default();
        let path = format!("/dev/{name}");
        let mounts = tree.text("proc/self/mountinfo").unwrap_or_default();
        let is_of = |line: &&str| {
            let (of_mount, of_source) = line.split_once(" - ").unwrap_or((line, ""));
            of_mount.split(' ').nth(2) == Some(number.as_str())
                || of_source.split(' ').nth(1) == Some(path.as_str())
        };
        if let Some(line) = mounts.lines().find(is_of) {
            let place = line.split(' ').nth(4).unwrap_or_default();
            return Some(format!("its disk {name} is mounted at {place}"));
        }
        let swaps = tree.text("proc/swaps").unwrap_or_default();
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(path.as_str())) {
            return Some(format!("its disk {name} is swap"));
        }
        if is_claimed(&tree.path(&path[1..])) {
            return Some(format!("its disk {name} is in use"));
        }
    }
    for name in tree.list(&format!("{}/net", folder(address))) {
        let flags = tree.text(&format!("{}/net/{name}/flags", folder(address)));
        let flags =
            flags.ok().and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        // IFF_UP
        if flags.is_some_and(|flags| flags & 1 == 1) {
            return Some(format!("its interface {name} is up: `ip link set {name} down` first"));
        }
    }
    None
}

/// Whether somebody in the kernel has this block device for himself: a file system of
/// several devices, a volume, a RAID.
fn is_claimed(path: &Path) -> bool {
    if !fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device()) {
        return false;
    }
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
    let opened = fs::OpenOptions::new().read(true).custom_flags(exclusive).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
}
