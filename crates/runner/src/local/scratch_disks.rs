//! The empty disks that a workload wants: made for one boot, gone with its VM.

use std::path::{Path, PathBuf};

use host::kernel_disk::KernelDisk;
use host::scratch::{self, Scratch};
use record::{CounterSet, Failure, FailureKind};
use vmconfig::{DiskSource, VmSpec};

use super::role_guest::SeenDisks;
use super::storage_daemon::StorageDaemon;
use super::{LocalLab, load_failure};
use crate::study::{DiskBacking, DiskWish, StudyBus, StudyDisk, block_device, is_free};

/// The disks of one VM. Whoever serves them ends before what they lie in.
#[derive(Debug)]
pub(super) struct ScratchDisks {
    disks: Vec<ScratchDisk>,
    study: StudyDisk,
    raw: u32,
    /// By which the guest finds those that it drives itself.
    passed: Vec<String>,
}

#[derive(Debug)]
struct ScratchDisk {
    server: DiskServer,
    medium: Medium,
}

/// Who reads and writes a disk's sectors.
#[derive(Debug)]
enum DiskServer {
    /// The VM's QEMU.
    Qemu,
    /// A target of the host's kernel.
    Target(KernelDisk),
    /// QEMU's storage daemon.
    Daemon(StorageDaemon),
}

/// What its sectors lie in.
#[derive(Debug)]
enum Medium {
    File(Scratch),
    Kernel(KernelDisk),
    Device(PathBuf),
}

impl Medium {
    fn path(&self) -> PathBuf {
        match self {
            Self::File(scratch) => scratch.path(),
            Self::Kernel(disk) => disk.name().into(),
            Self::Device(path) => path.clone(),
        }
    }

    fn is_device(&self) -> bool {
        !matches!(self, Self::File(_))
    }
}

impl ScratchDisks {
    /// Makes the disks of `wish` as `study` says, for the VM of `spec`, which files call
    /// `name`. Of those that the guest drives itself, which the VM has already, `passed` are
    /// the serial numbers.
    pub(super) fn new(
        lab: &LocalLab<'_>,
        study: &StudyDisk,
        wish: DiskWish,
        passed: &[String],
        (name, spec): (&str, &VmSpec),
    ) -> Result<Self, Failure> {
        let queues = study.queues_in(spec);
        let mut disks = Vec::new();
        if study.bus() == StudyBus::Vfio {
            let passed = passed.iter().take(wish.count as usize).cloned().collect();
            return Ok(Self { disks, study: study.clone(), raw: wish.raw, passed });
        }
        for number in 1..=wish.count {
            let medium = medium(lab, study, wish, number)?;
            let server = server(lab, study, (wish, queues), &medium, (name, number))?;
            disks.push(ScratchDisk { server, medium });
        }
        Ok(Self { disks, study: study.clone(), raw: wish.raw, passed: Vec::new() })
    }

    /// `spec` with the disks.
    pub(super) fn attach(&self, spec: &VmSpec) -> Result<VmSpec, Failure> {
        let sources = self.disks.iter().map(|disk| match &disk.server {
            DiskServer::Target(target) => DiskSource::VhostScsi(target.name().to_owned()),
            DiskServer::Daemon(daemon) => DiskSource::VhostUser(daemon.socket().to_owned()),
            DiskServer::Qemu if disk.medium.is_device() => DiskSource::Block(disk.medium.path()),
            DiskServer::Qemu => DiskSource::File(disk.medium.path()),
        });
        let attached = self.study.attach(spec, sources.collect());
        attached.map_err(|error| refused(format!("[disk]: {error}")))
    }

    /// The first one's file, if it is one.
    pub(super) fn file(&self) -> Option<&Scratch> {
        match &self.disks.first()?.medium {
            Medium::File(scratch) => Some(scratch),
            _ => None,
        }
    }

    /// How the guest finds them.
    pub(super) fn seen(&self) -> SeenDisks {
        if !self.passed.is_empty() {
            return SeenDisks { serials: self.passed.clone(), raw: self.raw > 0 };
        }
        let count = u32::try_from(self.disks.len()).unwrap_or(u32::MAX);
        SeenDisks { serials: self.study.serials(count), raw: self.raw > 0 }
    }

    /// Whether their daemons still serve, if they have some.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        self.disks.iter_mut().try_for_each(|disk| match &mut disk.server {
            DiskServer::Daemon(daemon) => daemon.check_alive(),
            DiskServer::Qemu | DiskServer::Target(_) => Ok(()),
        })
    }

    /// What their daemons used, if they have some.
    pub(super) fn counters(&self) -> CounterSet {
        let mut counters = CounterSet::default();
        for disk in &self.disks {
            if let DiskServer::Daemon(daemon) = &disk.server
                && let Some(run_s) = daemon.run_s()
            {
                counters.add("disk_server.run_s", run_s);
            }
        }
        counters
    }
}

impl Drop for ScratchDisks {
    fn drop(&mut self) {
        // The first loaded the kernel's modules, which it can't unload before.
        while self.disks.pop().is_some() {}
    }
}

fn medium(
    lab: &LocalLab<'_>,
    study: &StudyDisk,
    wish: DiskWish,
    number: u32,
) -> Result<Medium, Failure> {
    let failed = |error: &dyn std::error::Error| refused(load_failure(error).detail);
    let medium = match study.backing() {
        // It comes with its file system.
        DiskBacking::File => {
            return Scratch::new(wish.mib).map(Medium::File).map_err(|error| failed(&error));
        }
        DiskBacking::NullBlk => KernelDisk::null_blk(wish.mib, &lab.owner).map(Medium::Kernel),
        DiskBacking::Brd => KernelDisk::brd(wish.mib, &lab.owner).map(Medium::Kernel),
        DiskBacking::Devices(devices) => {
            let path =
                devices.paths.into_iter().nth(number as usize - 1).filter(|_| devices.overwrite);
            let path =
                path.ok_or_else(|| refused("[disk]: backing.devices may not be used".into()))?;
            let path = block_device(&path).map_err(refused)?;
            is_free(&path).map_err(refused)?;
            Ok(Medium::Device(path))
        }
    };
    let medium = medium.map_err(|error| failed(&error))?;
    if wish.raw == 0 {
        scratch::format(&medium.path()).map_err(|error| failed(&error))?;
    }
    Ok(medium)
}

fn server(
    lab: &LocalLab<'_>,
    study: &StudyDisk,
    (wish, queues): (DiskWish, u32),
    medium: &Medium,
    (name, number): (&str, u32),
) -> Result<DiskServer, Failure> {
    let path: &Path = &medium.path();
    match study.bus() {
        StudyBus::VhostScsi => {
            let serial = crate::study::serial(number);
            KernelDisk::scsi_target(path, wish.mib << 20, &serial, &lab.owner)
                .map(DiskServer::Target)
                .map_err(|error| refused(load_failure(&error).detail))
        }
        StudyBus::VhostUserBlk => {
            let name = format!("{name}-disk{number}");
            let sectors = (path, medium.is_device());
            StorageDaemon::start(lab, study, sectors, queues, &name).map(DiskServer::Daemon)
        }
        _ => Ok(DiskServer::Qemu),
    }
}

fn refused(detail: String) -> Failure {
    Failure::new(FailureKind::VmRefused, detail)
}
