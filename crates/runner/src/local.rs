//! Trials in real VMs on this machine.

mod cast;
mod others;
mod placement;
mod player;
mod trial;

use std::path::PathBuf;

use guest::Cancel;
use host::load::RunningLoad;
use host::owner::{self, Owner, RuntimeDir};
use host::watch::Moment;
use record::journal::TrialKey;
use record::{Failure, FailureKind};
use topology::{Host, PcpuSet};
use vmconfig::qemu::{Capabilities, UnusableVersion};

use crate::execute::{Lab, Progress, TrialRecord};
use crate::freeze::stress_load;
use crate::plan::{Plan, PlanVariant, PlanWorkload};
use crate::study::{Load, Stress};

/// This machine as a laboratory.
#[derive(Debug)]
pub struct LocalLab<'a> {
    plan: &'a Plan,
    host: &'a Host,
    capabilities: Capabilities,
    owner: Owner,
    runtime: RuntimeDir,
    cancel: Cancel,
    load: Option<RunningLoad>,
    others: Vec<others::OtherVm>,
    /// Why an earlier block's load could not be ended.
    lingering: Option<Failure>,
}

/// Error type for [`LocalLab::new`].
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No folder for sockets.
    #[error(transparent)]
    Runtime(#[from] owner::RuntimeDirError),
    /// The plan's QEMU is not one that vmlab takes.
    #[error(transparent)]
    Qemu(#[from] UnusableVersion),
}

impl<'a> LocalLab<'a> {
    /// A laboratory for `plan`; what it starts carries `owner`'s mark.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn new(
        plan: &'a Plan,
        host: &'a Host,
        owner: Owner,
        cancel: Cancel,
    ) -> Result<Self, LabError> {
        let runtime = owner::runtime_dir(&owner)?;
        let capabilities = plan.qemu.capabilities()?;
        let (load, others, lingering) = (None, Vec::new(), None);
        Ok(Self { plan, host, capabilities, owner, runtime, cancel, load, others, lingering })
    }

    fn qemu(&self) -> PathBuf {
        PathBuf::from(&self.plan.qemu.path)
    }

    fn online_pcpus(&self) -> u32 {
        u32::try_from(self.host.online().len()).unwrap_or(u32::MAX)
    }

    fn stress(&self, stress: Stress) -> Result<RunningLoad, Failure> {
        let load = stress_load(self.host, stress, &self.plan.variants);
        load.start(&self.owner).map_err(|error| load_failure(&error))
    }
}

/// A failure of the host load, with its causes.
fn load_failure(error: &dyn std::error::Error) -> Failure {
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        detail = format!("{detail}: {error}");
        cause = error.source();
    }
    Failure { kind: FailureKind::HostLoadFailed, detail }
}

impl Lab for LocalLab<'_> {
    fn begin_block(&mut self, load: &Load) -> Result<(), Failure> {
        if let Some(failure) = &self.lingering {
            let detail = format!("An earlier block's load could not be ended: {}", failure.detail);
            return Err(Failure { kind: FailureKind::HostLoadFailed, detail });
        }
        if let Some(stress) = load.stress {
            self.load = Some(self.stress(stress)?);
        }
        if let Some(vms) = &load.vms {
            for number in 0..vms.count {
                let vm = others::OtherVm::start(self, load, vms, number)?;
                self.others.push(vm);
            }
        }
        Ok(())
    }

    fn trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> TrialRecord {
        trial::run(self, key, variant, workload, observe)
    }

    fn watch(&mut self, variant: &PlanVariant) -> Option<Moment> {
        let pins = &variant.spec.pins.vcpus;
        let pinned = pins.len() == variant.spec.vcpus() as usize;
        let all = || pins.values().fold(PcpuSet::default(), |all, pcpus| all.union(pcpus));
        Some(Moment::before(&if pinned { all() } else { self.host.online() }))
    }

    fn end_block(&mut self) {
        self.others.clear();
        if let Some(load) = self.load.take()
            && let Err(error) = load.stop()
        {
            // It may still run: no later block may be measured beside it.
            self.lingering = Some(load_failure(&error));
        }
    }
}
