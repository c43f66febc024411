//! The trials of a plan on this machine, whoever keeps their results: host
//! settings set, VMs booted, everything put back.

use anyhow::Context;
use guest::Cancel;
use host::owner::Owner;
use host::settings::{AppliedSettings, Mode, RestoreOutcome, SettingsTree};
use record::journal::JournalEvent;
use runner::execute::{ExecutionEnd, ExecutionEvent, execute};
use runner::hosting::VmHosting;
use runner::local::LocalLab;
use runner::plan::StudyPlan;
use runner::simulated::SimulatedLab;
use runner::store::TrialSink;
use topology::Host;

use crate::terminal;

/// Sets what the plan asks for; it is put back on drop at the latest.
pub(crate) fn apply_settings(plan: &StudyPlan) -> anyhow::Result<Option<AppliedSettings>> {
    restore_leftovers();
    let wanted = plan.study_settings();
    if wanted.is_empty() {
        return Ok(None);
    }
    let owner = Owner::current(&plan.run_id())?;
    let settings = AppliedSettings::apply(&SettingsTree::live(), &plan.wish(&wanted)?, &owner)?;
    for note in settings.notes() {
        terminal::note(&format!("vmlab: host setting {note}"));
    }
    Ok(Some(settings))
}

/// What a dead run set must not be taken for the machine's own value.
pub(crate) fn restore_leftovers() {
    for line in crate::clean::restore_leftovers() {
        terminal::note(&format!("vmlab: left by a dead run: {line}"));
    }
}

/// What the killed session of this study left would disturb the blocks to come.
pub(crate) fn end_leftovers(plan: &StudyPlan) {
    let uri = plan.libvirt.as_ref().map(|libvirt| &libvirt.uri);
    for left in crate::clean::end_leftovers_of(&plan.run_id(), uri) {
        terminal::note(&format!("vmlab: {left}"));
    }
}

/// Where the VMs of a plan run.
pub(crate) enum TrialPlace<'a> {
    /// On this machine, with these settings of its own for the whole study.
    Here(Box<Option<AppliedSettings>>),
    /// Elsewhere, where somebody has them run.
    #[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "nobody does"))]
    Hosted(&'a dyn VmHosting),
}

/// Runs what `plan` still asks for, as `events` tell it; what happens goes to
/// `sink` and is told to `observe`.
pub(crate) fn run(
    plan: &StudyPlan,
    host: &Host,
    place: TrialPlace<'_>,
    events: &[JournalEvent],
    sink: &mut dyn TrialSink,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> anyhow::Result<ExecutionEnd> {
    let (hosting, settings) = match place {
        TrialPlace::Here(settings) => (None, *settings),
        TrialPlace::Hosted(hosting) => (Some(hosting), None),
    };
    if hosting.is_none() && crate::clean::anything_running() {
        terminal::note(
            "vmlab: processes of a dead run still run and will disturb this one: `vmlab clean` ends them",
        );
    }
    let lab = Owner::current(&plan.run_id())
        .map_err(anyhow::Error::from)
        .and_then(|owner| Ok(LocalLab::new(plan, host, owner, cancel.clone())?));
    let mut lab = match lab {
        Ok(lab) => lab,
        Err(error) => {
            restore_settings(settings);
            return Err(error);
        }
    };
    if let Some(settings) = settings {
        lab.hold(settings);
    }
    if let Some(hosting) = hosting {
        lab.host_by(hosting);
    }
    let ended = execute(plan, events, sink, &mut lab, cancel, observe);
    restore_settings(lab.release());
    ended.context("The study stopped")
}

/// The same in the simulator, on the host that was described: nothing is booted or
/// set.
pub(crate) fn simulate(
    plan: &StudyPlan,
    host: &Host,
    events: &[JournalEvent],
    sink: &mut dyn TrialSink,
    cancel: &Cancel,
    observe: &mut dyn FnMut(ExecutionEvent<'_>),
) -> anyhow::Result<ExecutionEnd> {
    let mut lab = SimulatedLab::new(plan, host, cancel.clone());
    execute(plan, events, sink, &mut lab, cancel, observe).context("The study stopped")
}

fn restore_settings(settings: Option<AppliedSettings>) {
    let restored = match settings.map(AppliedSettings::restore) {
        None => return,
        Some(Err(error)) => {
            terminal::note(&format!("vmlab: {error}; `vmlab clean` tries again"));
            return;
        }
        Some(Ok(restored)) => restored,
    };
    let odd = |outcome: &RestoreOutcome| !matches!(outcome, RestoreOutcome::Restored);
    let odd: Vec<_> = restored.into_iter().filter(|one| odd(&one.outcome)).collect();
    for line in crate::settings::outcomes(&odd, Mode::Restore) {
        terminal::note(&format!("vmlab: host setting {line}"));
    }
}
