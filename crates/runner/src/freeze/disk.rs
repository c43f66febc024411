//! How a variant's empty disks are made and attached, and whether this host can.

use std::path::PathBuf;

use host::pci_disk::PciDisk;
use host::settings::SettingsTree;
use host::{kernel_disk, program};
use topology::bounded::LineProblem;
use vmconfig::{Accel, HostDevice, VmSettings, VmSpec, qemu};
use workload::GuestFacts;

use super::Freezer;
use crate::local::STORAGE_DAEMON;
use crate::study::{
    DiskBacking, DiskWish, RunsOn, StudyBus, StudyDisk, StudyVariant, block_device, is_free,
};

impl Freezer<'_> {
    /// What the study's workloads want of disks.
    fn wishes(&self, variant: &StudyVariant, facts: &GuestFacts) -> Vec<DiskWish> {
        let workloads = self.study.workloads.iter();
        workloads
            .filter_map(|workload| {
                let params = workload.resolve_with(&variant.params).ok()?;
                DiskWish::of(workload.entry, &params, facts)
            })
            .collect()
    }

    /// How the empty disks of a variant are made and attached, if they can be.
    pub(super) fn disk(
        &mut self,
        written: &str,
        variant: &StudyVariant,
        spec: &VmSpec,
    ) -> Option<StudyDisk> {
        let facts = GuestFacts::alone(spec.vcpus(), spec.accel == Accel::Tcg);
        let wishes = self.wishes(variant, &facts);
        let most = wishes.iter().max_by_key(|wish| wish.count)?;
        let mut disk = self.study.disk.overlay(&variant.disk);
        let fault = if variant.on == RunsOn::Host {
            // Its stand-in is a file, whatever the VMs have.
            disk = StudyDisk { cache: disk.cache, ..StudyDisk::default() };
            let raw = wishes.iter().any(|wish| wish.raw > 0);
            raw.then(|| {
                "on = \"host\" has a file system in the place of a disk: leave out params.disks"
                    .to_owned()
            })
        } else {
            let fault = wishes.iter().find_map(|wish| disk.fault(wish.count, wish.raw));
            fault.or_else(|| match disk.attach(spec, disk.stand_ins(most.count)) {
                Err(error) => Some(error.to_string()),
                // The rest of the VM was looked at without them.
                Ok(attached) => qemu::check(&attached, &self.machine.capabilities)
                    .into_iter()
                    .find(|finding| finding.field == "disks")
                    .map(|finding| finding.message),
            })
        };
        let here = !self.machine.is_simulated;
        if let Some(fault) = fault.or_else(|| obstacle_of(&disk).filter(|_| here)) {
            let line = self.study.line_of_variant(written);
            self.problems
                .push(LineProblem { line, message: format!("{written}: [disk]: {fault}") });
        }
        Some(disk)
    }

    /// `spec` with the disks of the host that a variant's guest drives itself, and their
    /// serial numbers, if it has some.
    pub(super) fn passed(
        &mut self,
        written: &str,
        variant: &StudyVariant,
        disk: &StudyDisk,
        spec: &VmSpec,
    ) -> Option<(VmSpec, Vec<String>)> {
        let DiskBacking::Devices(devices) = disk.backing() else { return None };
        if disk.bus() != StudyBus::Vfio || self.machine.is_simulated {
            return None;
        }
        let facts = GuestFacts::alone(spec.vcpus(), spec.accel == Accel::Tcg);
        let wishes = self.wishes(variant, &facts);
        if wishes.iter().any(|wish| disk.fault(wish.count, wish.raw).is_some()) {
            // It was told.
            return None;
        }
        let most = wishes.iter().map(|wish| wish.count).max()?;
        let mut settings: VmSettings = spec.clone().into();
        let mut serials = Vec::new();
        let tree = SettingsTree::live();
        let found = devices.paths.iter().take(most as usize).try_for_each(|path| {
            let found = PciDisk::find(&tree, path).map_err(|error| error.to_string())?;
            settings.host_devices.push(HostDevice::Pci(found.address));
            serials.push(found.serial);
            Ok::<(), String>(())
        });
        let with_disks =
            found.and_then(|()| VmSpec::new(settings).map_err(|error| error.to_string()));
        match with_disks {
            Ok(spec) => Some((spec, serials)),
            Err(fault) => {
                let line = self.study.line_of_variant(written);
                let message = format!("{written}: [disk]: {fault}");
                self.problems.push(LineProblem { line, message });
                None
            }
        }
    }

    /// A device of the host's has one guest.
    pub(super) fn own_devices(&mut self, written: &str, spec: &VmSpec, further: &[VmSpec]) {
        let is_shared = |device| further.iter().any(|other| other.host_devices.contains(device));
        let is_alone = further.is_empty();
        let passes = !spec.host_devices.is_empty();
        if further.iter().any(|other| !other.host_devices.is_empty()) || (passes && !is_alone) {
            let device = spec.host_devices.iter().find(|device| is_shared(*device));
            let device = device.and_then(HostDevice::pci).map(|address| format!(" {address}"));
            let message = format!(
                "{written}: a device of the host{} goes to one VM, and {} are measured together",
                device.unwrap_or_default(),
                further.len() + 1
            );
            let line = self.study.line_of_variant(written);
            self.problems.push(LineProblem { line, message });
        }
    }

    /// Host settings, of which devices of the host are, are those of the VM under test.
    pub(super) fn no_devices(&mut self, whose: &str, spec: &VmSpec, disk: &StudyDisk) {
        if !spec.host_devices.is_empty() || disk.bus() == StudyBus::Vfio {
            let message = format!("{whose}: devices of the host are for the VM under test alone");
            let line = self.study.line_of("", "host_devices");
            self.problems.push(LineProblem { line, message });
        }
    }
}

/// What this machine lacks for such a disk.
fn obstacle_of(disk: &StudyDisk) -> Option<String> {
    let backing = match disk.backing() {
        DiskBacking::File => None,
        DiskBacking::NullBlk => kernel_disk::check_null_blk().err().map(|error| error.to_string()),
        DiskBacking::Brd => kernel_disk::check_brd().err().map(|error| error.to_string()),
        // Whether it is free is asked where the host's settings are.
        DiskBacking::Devices(_) if disk.bus() == StudyBus::Vfio => None,
        DiskBacking::Devices(devices) => {
            let is_free = |path: &PathBuf| block_device(path).and_then(|path| is_free(&path));
            devices.paths.iter().find_map(|path| is_free(path).err())
        }
    };
    backing.or_else(|| match disk.bus() {
        StudyBus::VhostScsi => {
            kernel_disk::check_scsi_target().err().map(|error| error.to_string())
        }
        StudyBus::VhostUserBlk if program::find(STORAGE_DAEMON).is_none() => Some(format!(
            "bus = \"vhost-user-blk\" needs {STORAGE_DAEMON}: run `apt-get install qemu-utils`"
        )),
        _ => None,
    })
}
