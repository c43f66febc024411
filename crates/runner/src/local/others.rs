//! Other VMs that run beside the one under test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use guest::Cancel;
use record::{Failure, FailureKind};
use workload::GuestFacts;

use super::role_guest::RoleGuest;
use super::scratch_disks::ScratchDisks;
use super::{LocalLab, placement, trial, trial_guests};
use crate::plan::PlanVariant;
use crate::study::{DiskWish, HostLoad, LONGEST_LIMIT_S, OtherVms, StudyDisk};

/// A VM that repeats a workload; ended on drop.
#[derive(Debug)]
pub(super) struct OtherVm {
    guest: RoleGuest,
    /// The empty disks that its workload wants, gone after the VM.
    _scratch: Option<ScratchDisks>,
    name: String,
    console_log: PathBuf,
    /// What was noticed when it started.
    warnings: Vec<String>,
}

impl OtherVm {
    /// Boots number `number` of `vms`, beside `variant` where the load follows that, sees
    /// its workload run once, and lets it repeat.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        load: &HostLoad,
        vms: &OtherVms,
        number: u32,
        variant: Option<&PlanVariant>,
    ) -> Result<Self, Failure> {
        let failed = |failure: Failure| match failure.kind {
            FailureKind::Aborted => failure,
            _ => Failure::new(
                FailureKind::HostLoadFailed,
                format!("Other VM {number} of load {}: {failure}", load.name),
            ),
        };
        let missing = |detail: String| Failure::new(FailureKind::HostLoadFailed, detail);
        let (image, spec) = lab
            .plan
            .other_vm(load, variant, number)
            .ok_or_else(|| missing(format!("The plan has no VM for load {}", load.name)))?;
        let entry = workload::find(&vms.workload).map_err(|error| missing(error.to_string()))?;
        let params = entry.resolve(&vms.params).map_err(|error| missing(error.to_string()))?;
        let emulated = lab.plan.environment().is_emulated_time();
        let facts = GuestFacts::alone(spec.vcpus(), emulated);
        let name = format!("other-{number}");
        let wish = DiskWish::of(entry, &params, &facts);
        let made = wish
            .map(|wish| ScratchDisks::new(lab, &StudyDisk::default(), wish, &[], (&name, spec)));
        let scratch = made.transpose().map_err(failed)?;
        let with_disks = scratch.as_ref().map(|disks| disks.attach(spec)).transpose();
        let with_disks = with_disks.map_err(failed)?;
        let spec = with_disks.as_ref().unwrap_or(spec);
        let console_log = trial_guests::console_file(lab, &name);
        let names = slice::from_ref(&name);
        let mut warnings = Vec::new();
        let started = trial::started_or_once_more(lab, spec.accel, names, &mut warnings, || {
            let (place, _) = trial_guests::in_vm(lab, spec, &image, &name, None)?;
            let mut guest = RoleGuest::new(place, facts, None);
            guest.wait_ready(lab.boot_limit(), &lab.cancel)?;
            Ok(guest)
        });
        let mut guest = started.map_err(failed)?;
        // It is what the plan says, or the load is another one.
        let addresses = match placement::asks_of_nodes(spec) {
            true => guest.place.ram_addresses(&lab.cancel),
            false => BTreeMap::new(),
        };
        if let Some(threads) = guest.place.threads() {
            placement::check(threads, spec, &addresses).map_err(failed)?;
        }
        guest.found(spec, &lab.cancel).map_err(failed)?;

        // Both roles, of workloads that have two.
        let limit_s = (entry.duration_s(&params, &facts) * 10.0 + 60.0).min(LONGEST_LIMIT_S);
        let limit = Duration::from_secs_f64(limit_s);
        let disks = scratch.as_ref().map(ScratchDisks::seen);
        let prepared =
            guest.prepare_alone((entry, &params), spec.arch, disks.as_ref(), limit, &lab.cancel);
        prepared.map_err(failed)?;
        let argv = entry.command(&params, &facts);
        guest.must(entry.name, argv.clone(), limit, &lab.cancel).map_err(failed)?;
        guest.repeat(argv, &lab.cancel).map_err(failed)?;
        Ok(Self { guest, _scratch: scratch, name, console_log, warnings })
    }

    /// What was noticed when the VM started.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the VM still runs.
    pub(super) fn check_alive(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        self.guest.place.check_alive(cancel).map_err(|failure| {
            Failure::new(FailureKind::HostLoadFailed, format!("{}: {failure}", self.name))
        })
    }
}

impl Drop for OtherVm {
    fn drop(&mut self) {
        // It lies in the runtime folder, which goes with its run anyway.
        drop(std::fs::remove_file(&self.console_log));
    }
}
