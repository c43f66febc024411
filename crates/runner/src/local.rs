//! Trials in real VMs on this machine.

mod between;
mod domain;
mod dpdk_switch;
mod exec_target;
mod failure;
mod follow_memory;
mod found;
mod invocation;
mod others;
mod placement;
mod polling;
mod profile;
mod role_guest;
mod scratch_disks;
mod storage_daemon;
mod switch;
mod thin;
mod trial;
mod trial_guests;

pub(crate) use storage_daemon::STORAGE_DAEMON;

use std::path::PathBuf;
use std::time::Duration;

use guest::Cancel;
use host::counters::tracing::Tracing;
use host::ground::{self, StillMergedError};
use host::load::RunningLoad;
use host::owner::{self, Owner, RuntimeDir};
use host::settings::{AppliedSettings, RestoreOutcome, RestoredSetting, SettingsTree};
use host::watch::Moment;
use record::journal::TrialKey;
use record::{Failure, FailureKind, Ground, Outcome};
use topology::{Host, PcpuSet};
use vmconfig::qemu::{Capabilities, UnusableVersion};

use crate::execute::{ExecutionEvent, Lab, TrialRecord};
use crate::freeze::stress_load;
use crate::host_settings::{HostSettings, with_causes};
use crate::hosting::VmHosting;
use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::study::{HostLoad, OtherVms, Stress};

/// This machine as a laboratory.
#[derive(Debug)]
pub struct LocalLab<'a> {
    plan: &'a StudyPlan,
    host: &'a Host,
    capabilities: Capabilities,
    owner: Owner,
    runtime: RuntimeDir,
    cancel: Cancel,
    load: Option<RunningLoad>,
    others: Vec<others::OtherVm>,
    /// What an earlier block left on the host: a load that could not be ended
    /// or a setting that could not be put back.
    lingering: Option<Failure>,
    /// Host settings for the whole study.
    study_settings: Option<AppliedSettings>,
    /// Host settings for the block.
    block_settings: Option<AppliedSettings>,
    /// Who has the VMs run, where they run elsewhere.
    hosting: Option<&'a dyn VmHosting>,
    /// Where the kernel counts exits, or why it can't; made for the first
    /// trial that wants it.
    tracing: Option<Result<Tracing, String>>,
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
        plan: &'a StudyPlan,
        host: &'a Host,
        owner: Owner,
        cancel: Cancel,
    ) -> Result<Self, LabError> {
        let runtime = owner::runtime_dir(&owner)?;
        let capabilities = match &plan.kubevirt {
            None => plan.qemu.capabilities()?,
            // Of no use there: somebody else's QEMU is started by somebody else.
            Some(_) => Capabilities::current(),
        };
        let (load, others, lingering) = (None, Vec::new(), None);
        Ok(Self {
            plan,
            host,
            capabilities,
            owner,
            runtime,
            cancel,
            load,
            others,
            lingering,
            study_settings: None,
            block_settings: None,
            hosting: None,
            tracing: None,
        })
    }

    /// Tells of the host settings that hold for the whole study, which are
    /// verified after each trial.
    pub fn hold(&mut self, settings: AppliedSettings) {
        self.study_settings = Some(settings);
    }

    /// Has the VMs run by `hosting`, elsewhere.
    pub fn host_by(&mut self, hosting: &'a dyn VmHosting) {
        self.hosting = Some(hosting);
    }

    /// Ends what runs; the host settings for the whole study, to be put back.
    #[must_use]
    pub fn release(mut self) -> Option<AppliedSettings> {
        self.study_settings.take()
    }

    /// Makes host settings.
    fn make(&self, settings: &HostSettings) -> Result<AppliedSettings, Failure> {
        let refused = |error: &dyn std::error::Error| {
            Failure::new(FailureKind::HostSettingRefused, with_causes(error))
        };
        let apply = |settings: &HostSettings| {
            let wish = self.plan.wish(settings).map_err(|error| refused(&error))?;
            AppliedSettings::apply(&SettingsTree::live(), &wish, &self.owner)
                .map_err(|error| refused(&error))
        };
        // Merging begins anew, not where an earlier trial left it.
        let begins_to_merge = settings.get(ground::KSM).is_some_and(|value| value == "1");
        if begins_to_merge
            && ground::merged_bytes(&SettingsTree::live()).is_some_and(|bytes| bytes > 0)
        {
            let ksm = (ground::KSM.to_owned(), ground::KSM_UNMERGED.to_owned());
            let unmerged = apply(&HostSettings::from([ksm]))?;
            let is_clean = self.until_unmerged();
            let not_restored = put_back(unmerged).sentences().join("; ");
            match is_clean {
                Ok(()) if not_restored.is_empty() => {}
                Ok(()) => {
                    let kind = FailureKind::HostSettingRefused;
                    return Err(Failure::new(kind, not_restored));
                }
                Err(failure) if not_restored.is_empty() => return Err(failure),
                Err(failure) => {
                    let detail = format!("{}; {not_restored}", failure.detail);
                    return Err(Failure { detail, ..failure });
                }
            }
        }
        apply(settings)
    }

    /// Waits until no pages are merged.
    fn until_unmerged(&self) -> Result<(), Failure> {
        let is_cancelled = || self.cancel.is_cancelled();
        let waited =
            ground::until_unmerged(&SettingsTree::live(), ground::UNMERGED_WITHIN, &is_cancelled);
        waited.map_err(|error| {
            let kind = match error {
                StillMergedError::Merged { .. } => FailureKind::NotAsClaimed,
                StillMergedError::Cancelled => FailureKind::Aborted,
            };
            Failure::new(kind, error.to_string())
        })
    }

    /// Takes away what the plan wants taken away before a trial under `own`, and sees that
    /// all else is as it says; `found` has the levels on which the trial begins.
    fn prepare_ground(
        &self,
        own: &AppliedSettings,
        found: &mut Option<Ground>,
    ) -> Result<(), Failure> {
        let mut all = self.study_settings.iter().chain(&self.block_settings).chain([own]);
        let deviations: Vec<String> = all.clone().flat_map(AppliedSettings::deviations).collect();
        if !deviations.is_empty() {
            let detail = format!("Before the trial: {}", deviations.join("; "));
            return Err(Failure::new(FailureKind::NotAsClaimed, detail));
        }
        let in_force = all.find_map(|settings| settings.in_force().get(ground::KSM));
        if in_force.is_some_and(|value| value == ground::KSM_UNMERGED) {
            self.until_unmerged()?;
        }
        if self.plan.kubevirt.is_some() {
            // Its VMs run on other machines.
            return Ok(());
        }
        let (tree, rules) = (SettingsTree::live(), &self.plan.ground);
        for (key, clearance) in rules.clearances() {
            clearance.clear(&tree).map_err(|error| {
                let detail = format!("Before the trial: ground.{key}: {error}");
                Failure::new(FailureKind::HostSettingRefused, detail)
            })?;
        }
        let beyond = rules.beyond(found.insert(ground::read(&tree)));
        if beyond.is_empty() {
            return Ok(());
        }
        let detail = format!("Before the trial: {}", beyond.join("; "));
        Err(Failure::new(FailureKind::NotAsClaimed, detail))
    }

    /// A trial under settings of its own, beside those of study and block.
    fn under(
        &mut self,
        own: AppliedSettings,
        key: &TrialKey,
        trial: impl FnOnce(&mut Self) -> TrialRecord,
    ) -> TrialRecord {
        let mut found = None;
        let mut record = match self.prepare_ground(&own, &mut found) {
            Ok(()) => trial(self),
            Err(failure) => TrialRecord::failed(key.clone(), failure),
        };
        record.result.ground = found;
        let all = || self.study_settings.iter().chain(&self.block_settings).chain([&own]);
        for settings in all() {
            record.result.host_settings.extend(settings.in_force().clone());
            record.result.warnings.extend(settings.notes().iter().cloned());
        }
        let deviations: Vec<String> = all().flat_map(AppliedSettings::deviations).collect();
        if !deviations.is_empty() && record.result.outcome.is_completed() {
            let kind = FailureKind::NotAsClaimed;
            let detail = deviations.join("; ");
            record.result.outcome = Outcome::Failed(Failure::new(kind, detail));
        }
        record.result.warnings.extend(put_back(own).sentences());
        record
    }

    /// The VMs of a load; what was started of them is among [`Self::others`] either way.
    fn start_others(
        &mut self,
        load: &HostLoad,
        vms: &OtherVms,
        variant: Option<&PlanVariant>,
    ) -> Result<(), Failure> {
        for number in 0..vms.count {
            let vm = others::OtherVm::start(self, load, vms, number, variant)?;
            self.others.push(vm);
        }
        Ok(())
    }

    /// A trial beside the VMs of `load`, if they follow its variant: those are started for
    /// each trial, so that all trials find them alike, and end with it.
    fn beside_others_of(
        &mut self,
        load: Option<&HostLoad>,
        key: &TrialKey,
        variant: &PlanVariant,
        trial: impl FnOnce(&mut Self) -> TrialRecord,
    ) -> TrialRecord {
        let vms = load.and_then(|load| Some((load, load.vms.as_ref()?)));
        let Some((load, vms)) = vms.filter(|(_, vms)| vms.follows.is_some()) else {
            return trial(self);
        };
        let record = match self.start_others(load, vms, Some(variant)) {
            Ok(()) => trial(self),
            Err(failure) => TrialRecord::failed(key.clone(), failure),
        };
        self.others.clear();
        record
    }

    /// Where the kernel counts exits by reason.
    ///
    /// # Errors
    /// Why it can't.
    fn tracing(&mut self) -> Result<&Tracing, String> {
        let make = || Tracing::new(&self.owner).map_err(|error| with_causes(&error));
        self.tracing.get_or_insert_with(make).as_ref().map_err(Clone::clone)
    }

    /// How long a guest's boot may take, from QEMU's start.
    fn boot_limit(&self) -> Duration {
        Duration::from_secs_f64(self.plan.budget.boot_limit_s)
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

/// What of settings is not as it was before them.
#[derive(Debug, Default)]
struct UnrestoredSettings {
    /// Has the value that vmlab gave it, a sentence each.
    still_set: Vec<String>,
    /// Somebody else has changed it since, a sentence each.
    changed_by_others: Vec<String>,
}

impl UnrestoredSettings {
    fn sentences(self) -> Vec<String> {
        [self.still_set, self.changed_by_others].concat()
    }
}

/// Puts settings back; says what did not go as it should.
fn put_back(settings: AppliedSettings) -> UnrestoredSettings {
    let mut not_restored = UnrestoredSettings::default();
    let restored = match settings.restore() {
        Ok(restored) => restored,
        Err(error) => {
            let sentence = format!("{}; `vmlab clean` tries again", with_causes(&error));
            not_restored.still_set.push(sentence);
            return not_restored;
        }
    };
    for RestoredSetting { id, target, old, outcome } in restored {
        match outcome {
            RestoreOutcome::Failed(error) => not_restored.still_set.push(format!(
                "Host setting {id} ({target}) could not be set back to {old}: {error}; `vmlab clean` tries again"
            )),
            RestoreOutcome::ChangedByOthers { present } => {
                not_restored.changed_by_others.push(format!(
                    "Host setting {id} ({target}) is {present}, which vmlab did not set: left alone"
                ));
            }
            RestoreOutcome::Restored | RestoreOutcome::AlreadyBack | RestoreOutcome::Rebooted => {}
        }
    }
    not_restored
}

/// A failure of the host load, with its causes.
fn load_failure(error: &dyn std::error::Error) -> Failure {
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        detail = format!("{detail}: {error}");
        cause = error.source();
    }
    Failure::new(FailureKind::HostLoadFailed, detail)
}

impl Lab for LocalLab<'_> {
    fn begin_block(&mut self, load: &HostLoad) -> Result<(), Failure> {
        if let Some(failure) = &self.lingering {
            let detail = format!("An earlier block left the host changed: {}", failure.detail);
            return Err(Failure::new(failure.kind, detail));
        }
        let settings = self.plan.block_settings(load);
        if !settings.is_empty() {
            self.block_settings = Some(self.make(&settings)?);
        }
        if let Some(stress) = load.stress {
            self.load = Some(self.stress(stress)?);
        }
        match &load.vms {
            Some(vms) if vms.follows.is_none() => self.start_others(load, vms, None),
            _ => Ok(()),
        }
    }

    fn trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
        observe: &mut dyn FnMut(ExecutionEvent<'_>),
    ) -> TrialRecord {
        let load = self.plan.loads.iter().find(|load| load.name == key.load);
        let mut run = |lab: &mut Self| {
            lab.beside_others_of(load, key, variant, |lab| {
                trial::run(lab, key, variant, workload, observe)
            })
        };
        if self.hosting.is_some() {
            // Nothing of this machine is in it.
            return run(self);
        }
        let settings = load.map(|load| self.plan.trial_settings(load, variant));
        match self.make(&settings.unwrap_or_default()) {
            Ok(own) => self.under(own, key, run),
            Err(failure) => TrialRecord::failed(key.clone(), failure),
        }
    }

    fn watch(&mut self, variant: &PlanVariant) -> Option<Moment> {
        if self.hosting.is_some() {
            return None;
        }
        let pinned = variant.specs().all(|spec| spec.pins.vcpus.len() == spec.vcpus() as usize);
        let all = || {
            let pins = variant.specs().flat_map(|spec| spec.pins.vcpus.values());
            pins.fold(PcpuSet::default(), |all, pcpus| all.union(pcpus))
        };
        Some(Moment::before(&if pinned { all() } else { self.host.online() }))
    }

    fn end_block(&mut self) -> Vec<String> {
        self.others.clear();
        let mut sentences = Vec::new();
        if let Some(load) = self.load.take()
            && let Err(error) = load.stop()
        {
            let failure = load_failure(&error);
            sentences.push(format!("The host load could not be ended: {}", failure.detail));
            // It may still run: no later block may be measured beside it.
            self.lingering = Some(failure);
        }
        if let Some(settings) = self.block_settings.take() {
            let not_restored = put_back(settings);
            if let Some(first) = not_restored.still_set.first() {
                // No later block may be measured under another's setting.
                let kind = FailureKind::HostSettingRefused;
                self.lingering = Some(Failure::new(kind, first.clone()));
            }
            sentences.extend(not_restored.sentences());
        }
        sentences
    }
}
