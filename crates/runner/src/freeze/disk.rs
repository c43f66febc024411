//! How a variant's empty disks are made and attached, and whether this host can.

use std::path::PathBuf;

use host::{kernel_disk, network};
use vmconfig::{Accel, VmSpec, qemu};
use workload::GuestFacts;

use super::Freezer;
use crate::local::STORAGE_DAEMON;
use crate::study::{
    DiskBacking, DiskWish, RunsOn, StudyBus, StudyDisk, StudyProblem, StudyVariant, is_free,
};

impl Freezer<'_> {
    /// How the empty disks of a variant are made and attached, if they can be.
    pub(super) fn disk(
        &mut self,
        written: &str,
        variant: &StudyVariant,
        spec: &VmSpec,
    ) -> Option<StudyDisk> {
        let facts = GuestFacts::alone(spec.vcpus(), spec.accel == Accel::Tcg);
        let wishes: Vec<DiskWish> = self
            .study
            .workloads
            .iter()
            .filter_map(|workload| {
                let params = workload.resolve_with(&variant.params).ok()?;
                DiskWish::of(workload.entry, &params, &facts)
            })
            .collect();
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
                .push(StudyProblem { line, message: format!("{written}: [disk]: {fault}") });
        }
        Some(disk)
    }
}

/// What this machine lacks for such a disk.
fn obstacle_of(disk: &StudyDisk) -> Option<String> {
    let backing = match disk.backing() {
        DiskBacking::File => None,
        DiskBacking::NullBlk => kernel_disk::check_null_blk().err().map(|error| error.to_string()),
        DiskBacking::Brd => kernel_disk::check_brd().err().map(|error| error.to_string()),
        DiskBacking::Devices(devices) => {
            devices.paths.iter().find_map(|path: &PathBuf| is_free(path).err())
        }
    };
    backing.or_else(|| match disk.bus() {
        StudyBus::VhostScsi => {
            kernel_disk::check_scsi_target().err().map(|error| error.to_string())
        }
        StudyBus::VhostUserBlk if network::find(STORAGE_DAEMON).is_none() => Some(format!(
            "bus = \"vhost-user-blk\" needs {STORAGE_DAEMON}: run `apt-get install qemu-utils`"
        )),
        _ => None,
    })
}
