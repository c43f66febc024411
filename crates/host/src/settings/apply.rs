//! Changes settings with a journal, and puts them back.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::journal::{JournalError, JournalFile, SettingEntry, SettingsJournal, SettingsLock};
use super::module_steps;
use super::place;
use super::refusal::SettingRefusal;
use super::step::SettingStep;
use super::tree::SettingsTree;
use super::{SETTINGS, Setting, SettingChange};
use crate::owner::Owner;

/// Settings that are to be changed together: all of them or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingChanges {
    /// The settings with their values.
    pub changes: Vec<SettingChange>,
    /// Whether modules may be taken out and loaded again for parameters that
    /// can't be changed otherwise.
    pub reload: bool,
}

/// Error type for [`AppliedSettings::apply`]. Nothing is changed then, unless the
/// message says so.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A setting is listed twice.
    #[error("Host setting {0} is to become two values at once")]
    Twice(&'static str),
    /// Two settings are two names for one thing.
    #[error("Host settings {first} and {second} both change {target}: choose one")]
    Same {
        /// One setting.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// What both change.
        target: String,
    },
    /// It can't be had on this machine.
    #[error("Host setting {id} can't be {value:?} here")]
    Refused {
        /// The setting.
        id: &'static str,
        /// The value.
        value: String,
        /// Why, and what to do.
        #[source]
        source: SettingRefusal,
    },
    /// Another vmlab holds it.
    #[error("Host setting {id} is held by vmlab process {pid} (run {run_id})")]
    InUse {
        /// The setting.
        id: String,
        /// That process.
        pid: u32,
        /// Its run.
        run_id: String,
    },
    /// A dead vmlab left it changed.
    #[error("Host setting {id} was left changed by run {run_id}; restore it with `vmlab clean`")]
    Stale {
        /// The setting.
        id: String,
        /// The run that is dead.
        run_id: String,
    },
    /// A journal that was left can't be read.
    #[error(
        "What a dead vmlab left changed can't be known: look at its journal, then `vmlab clean --force` sets it aside"
    )]
    Unreadable(#[source] JournalError),
    /// The journal can't be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel refused the value, or took it and has another.
    #[error("Cannot set {id} ({target}) to {value:?}; {}", undone_note(*.undone))]
    Set {
        /// The setting.
        id: &'static str,
        /// What was to be changed for it.
        target: String,
        /// The value.
        value: String,
        /// Whether what was changed before is as it was.
        undone: bool,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn undone_note(undone: bool) -> &'static str {
    match undone {
        true => "all settings are as before",
        false => "others could not be put back, try `vmlab clean`",
    }
}

/// The outcome of restoring a setting.
#[derive(Debug)]
pub struct RestoredSetting {
    /// The setting.
    pub id: String,
    /// What was changed for it: a file, a module, a cgroup.
    pub target: String,
    /// The value from before vmlab, to which it goes back.
    pub old: String,
    /// The outcome.
    pub outcome: RestoreOutcome,
}

/// The outcome of restoring a setting.
#[derive(Debug)]
pub enum RestoreOutcome {
    /// It has its old value again.
    Restored,
    /// It had its old value already.
    AlreadyBack,
    /// It has neither its old value nor the one that vmlab set: somebody else
    /// has changed it, and it stays so.
    ChangedByOthers {
        /// The value that it has.
        present: String,
    },
    /// The machine was rebooted since, which undid the change: nothing that
    /// vmlab sets outlives a boot.
    Rebooted,
    /// It could not be restored; its journal stays for another try.
    Failed(io::Error),
}

/// How [`restore_stale`] treats what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only tells what it would do.
    Look,
    /// Leaves alone what somebody else has changed since.
    Restore,
    /// Overwrites that, too, gives up on what can't be restored, and sets journals
    /// aside that can't be read.
    Force,
}

/// Host settings that are changed; put back on drop at the latest.
#[derive(Debug)]
pub struct AppliedSettings {
    tree: SettingsTree,
    /// None once restored, or when nothing was to be changed.
    file: Option<JournalFile>,
    in_force: BTreeMap<String, String>,
    notes: Vec<String>,
}

/// What [`AppliedSettings::apply`] would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The setting.
    pub id: &'static str,
    /// What is changed for it.
    pub target: String,
    /// The value now.
    pub old: String,
    /// The value then.
    pub new: String,
}

/// What it takes to fulfil `wish`, checked; nothing is changed.
///
/// # Errors
/// Those of [`AppliedSettings::apply`], as far as they can be known beforehand.
pub fn plan(tree: &SettingsTree, wish: &SettingChanges) -> Result<Vec<PlannedChange>, ApplyError> {
    let planned = |(setting, step): (&'static Setting, SettingStep)| PlannedChange {
        id: setting.id,
        target: step.target.to_string(),
        old: step.old,
        new: step.new,
    };
    Ok(prepare(tree, wish)?.into_iter().map(planned).collect())
}

impl AppliedSettings {
    /// Fulfils `wish` on the machine of `tree`, with a journal.
    ///
    /// # Errors
    /// [`ApplyError`]; the first that fails undoes those before it.
    pub fn apply(
        tree: &SettingsTree,
        wish: &SettingChanges,
        owner: &Owner,
    ) -> Result<Self, ApplyError> {
        let (in_force, notes) = (BTreeMap::new(), Vec::new());
        let mut settings = Self { tree: tree.clone(), file: None, in_force, notes };
        if wish.changes.is_empty() {
            return Ok(settings);
        }
        // What can't be had is said without a journal's folder.
        prepare(tree, wish)?;
        let lock = SettingsLock::take(&tree.state_dir)?;
        // Old values are those under the lock: before it they may be what another
        // vmlab has set, and puts back just now.
        let steps = prepare(tree, wish)?;
        check_unclaimed(&lock, &steps)?;
        let entry = |(setting, step): &(&'static Setting, SettingStep)| SettingEntry {
            setting,
            target: step.target.clone(),
            old: step.old.clone(),
            new: step.new.clone(),
        };
        let file =
            lock.write(SettingsJournal::new(owner.clone(), steps.iter().map(entry).collect()))?;
        let made = settings.make(&steps);
        if let Err((setting, step, source)) = made {
            // Whatever value is there now, it comes from this attempt.
            let undone = !any_failed(&restore_all(tree, &file, Mode::Force));
            if undone {
                file.remove()?;
            }
            let (target, value) = (step.target.to_string(), step.new.clone());
            return Err(ApplyError::Set { id: setting.id, target, value, undone, source });
        }
        for change in &wish.changes {
            // What was just written is read once more, as the setting says it.
            if let Ok(present) = place::present(change.setting, tree) {
                settings.in_force.insert(change.setting.id.to_owned(), present.value);
            }
        }
        settings.file = Some(file);
        Ok(settings)
    }

    fn make<'a>(
        &mut self,
        steps: &'a [(&'static Setting, SettingStep)],
    ) -> Result<(), (&'static Setting, &'a SettingStep, io::Error)> {
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        for (setting, step) in steps {
            let SettingStep { target, old, new, may_refuse } = step;
            if old == new {
                continue;
            }
            let Err(error) = target.set(&self.tree, &setting.values, new) else { continue };
            let refused = refused.entry(setting.id).or_default();
            *refused += 1;
            let all = steps.iter().filter(|(other, _)| other == setting).count();
            // Some of many may refuse; when all do, the setting is not made.
            if !may_refuse || *refused == all {
                return Err((setting, step, error));
            }
            self.notes.push(format!("{}: {target} stays {old}: {error}", setting.id));
        }
        Ok(())
    }

    /// The settings as they were read back after they were made, by id.
    #[must_use]
    pub fn in_force(&self) -> &BTreeMap<String, String> {
        &self.in_force
    }

    /// What is no longer as it was made: somebody else has changed it since.
    /// One line each.
    #[must_use]
    pub fn deviations(&self) -> Vec<String> {
        let entries = self.file.iter().flat_map(|file| file.changes());
        let deviation = |SettingEntry { setting, target, new, .. }: &SettingEntry| {
            let id = setting.id;
            // Said when it was refused.
            let refused = |note: &String| note.starts_with(&format!("{id}: {target} stays"));
            if self.notes.iter().any(refused) {
                return None;
            }
            let found = match target.read(&self.tree, &setting.values) {
                Ok(found) if target.agrees(&found, new) => return None,
                Ok(found) => found,
                Err(error) => error.to_string(),
            };
            Some(format!("host setting {id} ({target}) was made {new} and is {found}"))
        };
        entries.filter_map(deviation).collect()
    }

    /// What was refused in part, one line each: interrupts that stay.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Puts everything back and tells what became of each setting.
    ///
    /// # Errors
    /// [`JournalError`] when the journal can't be locked or removed.
    pub fn restore(mut self) -> Result<Vec<RestoredSetting>, JournalError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<Vec<RestoredSetting>, JournalError> {
        let Some(file) = self.file.take() else { return Ok(Vec::new()) };
        let _lock = SettingsLock::take(&self.tree.state_dir)?;
        undo(&self.tree, &file, Mode::Restore)
    }
}

impl Drop for AppliedSettings {
    fn drop(&mut self) {
        // What fails here keeps its journal and is found as stale later.
        let _ = self.put_back();
    }
}

/// A journal that a dead vmlab left, and the outcome of restoring it.
#[derive(Debug)]
pub struct StaleSettings {
    /// The journal's file.
    pub path: PathBuf,
    /// The run that is dead, when the journal can be read.
    pub run_id: Option<String>,
    /// The settings; an error when the journal can't be used.
    pub restored: Result<Vec<RestoredSetting>, JournalError>,
    /// Where a journal that can't be read lies now, out of the way, if that was
    /// forced.
    pub set_aside: Option<PathBuf>,
}

/// Restores what dead vmlabs left changed on the machine of `tree`, by their
/// journals. Those of living ones are left alone.
///
/// # Errors
/// [`JournalError`] when the journals' folder can't be read or locked.
pub fn restore_stale(tree: &SettingsTree, mode: Mode) -> Result<Vec<StaleSettings>, JournalError> {
    if !tree.state_dir.exists() {
        return Ok(Vec::new());
    }
    let lock = SettingsLock::take(&tree.state_dir)?;
    let mut stale = Vec::new();
    for path in lock.journals()? {
        match JournalFile::read(path.clone()) {
            Ok(file) if file.journal.owner.is_alive() => {}
            Ok(file) => stale.push(StaleSettings {
                path,
                run_id: Some(file.journal.owner.run_id.clone()),
                restored: undo(tree, &file, mode),
                set_aside: None,
            }),
            Err(error) => {
                let aside = (mode == Mode::Force).then(|| lock.set_aside(&path)).transpose();
                let (set_aside, error) = match aside {
                    Ok(set_aside) => (set_aside, error),
                    Err(error) => (None, error),
                };
                stale.push(StaleSettings { path, run_id: None, restored: Err(error), set_aside });
            }
        }
    }
    Ok(stale)
}

/// All that has to be changed, when all of it can be.
fn prepare(
    tree: &SettingsTree,
    wish: &SettingChanges,
) -> Result<Vec<(&'static Setting, SettingStep)>, ApplyError> {
    let mut changes: Vec<&SettingChange> = wish.changes.iter().collect();
    // In the table's order: some settings are refused before others are made.
    changes.sort_by_key(|change| SETTINGS.iter().position(|row| row == change.setting));
    if let Some(pair) = changes.windows(2).find(|pair| pair[0].setting == pair[1].setting) {
        return Err(ApplyError::Twice(pair[0].setting.id));
    }
    let mut all: Vec<(&'static Setting, SettingStep)> = Vec::new();
    for SettingChange { setting, value } in changes {
        let refused = |source| ApplyError::Refused { id: setting.id, value: value.clone(), source };
        for step in place::steps(setting, tree, value, wish.reload).map_err(refused)? {
            // Parameters of one module, which is loaded again once for all.
            let loads_same = |known: &SettingStep| module_steps::share(&known.target, &step.target);
            if let Some((owner, known)) = all.iter_mut().find(|(_, known)| loads_same(known)) {
                let merged = module_steps::merge(known, &step);
                if merged.target == step.target {
                    *owner = setting;
                }
                *known = merged;
                continue;
            }
            match all.iter().find(|(_, known)| known.target == step.target) {
                None => all.push((setting, step)),
                Some((first, _)) => {
                    let (first, second) = (first.id, setting.id);
                    let target = step.target.to_string();
                    return Err(ApplyError::Same { first, second, target });
                }
            }
        }
    }
    Ok(module_steps::fold(all))
}

/// Two runs that set the same thing would measure each other's settings.
fn check_unclaimed(
    lock: &SettingsLock,
    steps: &[(&'static Setting, SettingStep)],
) -> Result<(), ApplyError> {
    for path in lock.journals()? {
        let file = JournalFile::read(path).map_err(ApplyError::Unreadable)?;
        let owner = &file.journal.owner;
        let claims =
            |entry: &&SettingEntry| steps.iter().any(|(_, step)| step.target == entry.target);
        let Some(claimed) = file.changes().iter().find(claims) else { continue };
        let (id, run_id) = (claimed.setting.id.to_owned(), owner.run_id.clone());
        return Err(match owner.is_alive() {
            true => ApplyError::InUse { id, pid: owner.pid, run_id },
            false => ApplyError::Stale { id, run_id },
        });
    }
    Ok(())
}

/// Restores what the journal says and removes it when nothing failed. The
/// caller holds the lock.
fn undo(
    tree: &SettingsTree,
    file: &JournalFile,
    mode: Mode,
) -> Result<Vec<RestoredSetting>, JournalError> {
    let restored = restore_all(tree, file, mode);
    if mode == Mode::Force || (mode == Mode::Restore && !any_failed(&restored)) {
        file.remove()?;
    }
    Ok(restored)
}

/// Restores what the journal says, last change first.
fn restore_all(tree: &SettingsTree, file: &JournalFile, mode: Mode) -> Vec<RestoredSetting> {
    let rebooted = file.journal.owner.is_of_earlier_boot();
    let restore = |entry: &SettingEntry| RestoredSetting {
        id: entry.setting.id.to_owned(),
        target: entry.target.to_string(),
        old: entry.old.clone(),
        outcome: match rebooted {
            true => RestoreOutcome::Rebooted,
            false => restore_one(tree, entry, mode),
        },
    };
    file.changes().iter().rev().map(restore).collect()
}

fn any_failed(restored: &[RestoredSetting]) -> bool {
    restored.iter().any(|one| matches!(one.outcome, RestoreOutcome::Failed(_)))
}

fn restore_one(tree: &SettingsTree, entry: &SettingEntry, mode: Mode) -> RestoreOutcome {
    let SettingEntry { setting, target, old, new } = entry;
    let present = match target.read(tree, &setting.values) {
        Ok(present) => present,
        Err(error) => return RestoreOutcome::Failed(error),
    };
    if present == *old {
        return RestoreOutcome::AlreadyBack;
    }
    let ours = target.agrees(&present, new) || target.is_halfway(&present, old, new);
    if !ours && mode != Mode::Force {
        return RestoreOutcome::ChangedByOthers { present };
    }
    if mode == Mode::Look {
        return RestoreOutcome::Restored;
    }
    match target.set(tree, &setting.values, old) {
        Ok(()) => RestoreOutcome::Restored,
        Err(error) => RestoreOutcome::Failed(error),
    }
}
