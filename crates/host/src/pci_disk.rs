//! Disks that are PCI devices of this machine, as NVMe's are, by which a guest can have
//! them for itself.
//!
//! Source: Linux `drivers/nvme/host/sysfs.c` and `drivers/block/virtio_blk.c` (serial).

use std::path::{Path, PathBuf};

use vmconfig::PciAddress;

use crate::settings::SettingsTree;
use crate::settings::vfio;

/// A disk that is a PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDisk {
    /// The device.
    pub address: PciAddress,
    /// Its block device, as long as a driver of the host's has it: `/dev/nvme0n1`.
    pub path: PathBuf,
    /// Its serial number, of letters, digits, `-` and `_` alone.
    pub serial: String,
}

/// Error type for [`PciDisk::find`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PciDiskError {
    /// It is not there.
    #[error("This host has no disk {0}")]
    Absent(String),
    /// It is behind something else.
    #[error("{0} is no PCI device of its own, as NVMe's disks are: no guest can have it alone")]
    NoPci(String),
    /// A guest gets the device as a whole.
    #[error("{address} has {}, and a guest gets all or nothing: it has to be one", counted(disks))]
    Several {
        /// The device.
        address: PciAddress,
        /// Its disks.
        disks: Vec<String>,
    },
    /// The guest could not tell it from others.
    #[error("{0} says no serial number, by which the guest could find it")]
    NoSerial(String),
}

fn counted(disks: &[String]) -> String {
    match disks {
        [] => "no disk that a driver of the host shows".to_owned(),
        _ => format!("{} disks ({})", disks.len(), disks.join(", ")),
    }
}

impl PciDisk {
    /// The disk at a PCI address (`0000:3b:00.0`), or that of a block device's path, on
    /// the machine of `tree`.
    ///
    /// # Errors
    /// [`PciDiskError`].
    pub fn find(tree: &SettingsTree, named: &Path) -> Result<Self, PciDiskError> {
        let shown = named.display().to_string();
        let address = match shown.parse::<PciAddress>() {
            Ok(address) => address,
            Err(_) => {
                let name = tree.block_name(named).ok_or(PciDiskError::Absent(shown.clone()))?;
                vfio::device_of(tree, &name).ok_or(PciDiskError::NoPci(shown.clone()))?
            }
        };
        let disks = vfio::disks(tree, address, false);
        let [disk] = disks.as_slice() else {
            return Err(PciDiskError::Several { address, disks });
        };
        let serial = ["device/serial", "serial"].iter().find_map(|file| {
            let text = tree.text(&format!("sys/class/block/{disk}/{file}")).ok()?;
            let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let serial: String = text.chars().filter(plain).collect();
            (!serial.is_empty()).then_some(serial)
        });
        let serial = serial.ok_or_else(|| PciDiskError::NoSerial(disk.clone()))?;
        Ok(Self { address, path: Path::new("/dev").join(disk), serial })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_disk_is_found_by_its_address_and_by_its_path() {
        let folder = tempfile::tempdir().expect("temp folder");
        let tree = SettingsTree::at(folder.path());
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
            fs::write(path, text).expect("written");
        };
        let link = |name: &str, to: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
            symlink(folder.path().join(to), path).expect("linked");
        };
        // One disk; two; one that two controllers reach, as the kernel shows it; and one
        // that is no PCI device.
        for (address, disks) in [("0000:01:00.0", "1"), ("0000:02:00.0", "1 2")] {
            let device = format!("sys/devices/pci0000:00/0000:00:01.0/{address}");
            let number = &address[6..7];
            for disk in disks.split(' ') {
                let name = format!("nvme{number}n{disk}");
                file(&format!("{device}/nvme/{name}/device/serial"), " S4 EV-1_a  \n");
                link(&format!("sys/class/block/{name}"), &format!("{device}/nvme/{name}"));
                file(&format!("dev/{name}"), "");
            }
            link(&format!("sys/bus/pci/devices/{address}"), &device);
        }
        let device = "sys/devices/pci0000:00/0000:03:00.0";
        file(&format!("{device}/nvme/nvme3c0n1/size"), "8");
        link("sys/class/block/nvme3c0n1", &format!("{device}/nvme/nvme3c0n1"));
        link("sys/bus/pci/devices/0000:03:00.0", device);
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys3/nvme3n1";
        file(&format!("{subsystem}/device/serial"), "twice");
        link("sys/class/block/nvme3n1", subsystem);
        file("dev/nvme3n1", "");
        file("sys/devices/virtual/block/loop0/size", "8");
        link("sys/class/block/loop0", "sys/devices/virtual/block/loop0");
        file("dev/loop0", "");
        for (named, expected) in [
            ("0000:01:00.0", Ok(("0000:01:00.0", "S4EV-1_a"))),
            ("01:00.0", Ok(("0000:01:00.0", "S4EV-1_a"))),
            ("/dev/nvme1n1", Ok(("0000:01:00.0", "S4EV-1_a"))),
            ("/dev/nvme3n1", Ok(("0000:03:00.0", "twice"))),
            ("/dev/nvme2n1", Err("0000:02:00.0 has 2 disks (nvme2n1, nvme2n2)")),
            ("0000:04:00.0", Err("0000:04:00.0 has no disk that a driver of the host shows")),
            ("/dev/loop0", Err("/dev/loop0 is no PCI device of its own")),
            ("/dev/nvme7n1", Err("This host has no disk /dev/nvme7n1")),
        ] {
            match (PciDisk::find(&tree, Path::new(named)), expected) {
                (Ok(found), Ok(wanted)) => {
                    let address = found.address.to_string();
                    assert_eq!((address.as_str(), found.serial.as_str()), wanted, "{named}");
                }
                (Err(error), Err(words)) => {
                    assert!(error.to_string().starts_with(words), "{named}: {error}");
                }
                (found, _) => panic!("{named}: {found:?}"),
            }
        }
    }
}
