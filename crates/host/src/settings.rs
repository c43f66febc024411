//! Host settings that a study changes and that are put back afterwards.
//!
//! The order is: read every old value, write them all into a journal that is
//! safely on disk, only then change the first setting; read back what the
//! kernel made of it. Whoever finds the journal of a dead vmlab can undo what
//! it did. A setting that somebody else has changed meanwhile is left as it is
//! and reported.
//!
//! All of them need root. Source of the table: Linux
//! `Documentation/admin-guide/mm/{transhuge,ksm}.rst`,
//! `Documentation/admin-guide/sysctl/kernel.rst`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::owner::Owner;

mod journal;
use journal::{Entry, Journal, JournalFile, Lock};

/// A host setting that vmlab knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Name in studies and reports.
    pub id: &'static str,
    /// File, relative to the root folder.
    pub path: &'static str,
    /// What it does, one sentence.
    pub help: &'static str,
    /// Values that it takes; a kernel may offer fewer.
    pub values: &'static [&'static str],
}

/// All settings that vmlab changes.
pub const SETTINGS: &[Setting] = &[
    Setting {
        id: "thp",
        path: "sys/kernel/mm/transparent_hugepage/enabled",
        help: "Which memory the kernel backs with transparent huge pages",
        values: &["always", "madvise", "never"],
    },
    Setting {
        id: "thp_defrag",
        path: "sys/kernel/mm/transparent_hugepage/defrag",
        help: "Whether a page fault compacts memory to get a huge page",
        values: &["always", "defer", "defer+madvise", "madvise", "never"],
    },
    Setting {
        id: "ksm",
        path: "sys/kernel/mm/ksm/run",
        help: "Same-page merging: 0 stopped, 1 running, 2 stopped and unmerged",
        values: &["0", "1", "2"],
    },
    Setting {
        id: "numa_balancing",
        path: "proc/sys/kernel/numa_balancing",
        help: "Automatic moving of pages to the node that uses them: 0 off, 1 on, 2 memory tiers, 3 both",
        values: &["0", "1", "2", "3"],
    },
];

/// The table's row for `id`, if it has one.
#[must_use]
pub fn setting(id: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.id == id)
}

/// A setting and the value that it shall get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    setting: &'static Setting,
    value: String,
}

/// Error type for [`Change::new`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChangeError {
    /// No such setting.
    #[error("Unknown host setting {id:?}; there are {}", ids())]
    Unknown {
        /// The name.
        id: String,
    },
    /// No such value.
    #[error("Host setting {id} cannot be {value:?}; it takes {}", .values.join(", "))]
    Value {
        /// The setting.
        id: &'static str,
        /// The value.
        value: String,
        /// What it takes.
        values: &'static [&'static str],
    },
}

fn ids() -> String {
    let ids: Vec<&str> = SETTINGS.iter().map(|setting| setting.id).collect();
    ids.join(", ")
}

impl Change {
    /// `id` shall become `value`.
    ///
    /// # Errors
    /// [`ChangeError`] names what there is.
    pub fn new(id: &str, value: &str) -> Result<Self, ChangeError> {
        let setting = setting(id).ok_or_else(|| ChangeError::Unknown { id: id.to_owned() })?;
        let Setting { id, values, .. } = *setting;
        if !values.contains(&value) {
            return Err(ChangeError::Value { id, value: value.to_owned(), values });
        }
        Ok(Self { setting, value: value.to_owned() })
    }

    /// The setting.
    #[must_use]
    pub fn setting(&self) -> &'static Setting {
        self.setting
    }

    /// The value that it shall get.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Error type for [`Settings::apply`]. Nothing is changed then, unless the
/// message says so.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A setting is listed twice.
    #[error("Host setting {0} is to become two values at once")]
    Twice(&'static str),
    /// The file is not there.
    #[error("Cannot read {}; this kernel lacks it, or this container hides it", .path.display())]
    Read {
        /// File of the setting.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is read-only.
    #[error("Cannot write {}; changing host settings takes root", .path.display())]
    NotWritable {
        /// File of the setting.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This kernel offers other values.
    #[error("{} cannot be {value:?} on this kernel, which offers {}", .path.display(), .offered.join(", "))]
    NotOffered {
        /// File of the setting.
        path: PathBuf,
        /// The value.
        value: String,
        /// What the kernel offers.
        offered: Vec<String>,
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
    /// The journal can't be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel refused the value, or took it and has another.
    #[error("Cannot set {} to {value:?}; {}", .path.display(), undone_note(*.undone))]
    Set {
        /// File of the setting.
        path: PathBuf,
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

/// The journal of host settings can't be used.
#[derive(Debug, thiserror::Error)]
#[error("Cannot use the journal of host settings {}", .path.display())]
pub struct JournalError {
    /// File or folder.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What became of a setting that was to be restored.
#[derive(Debug)]
pub struct Restored {
    /// The setting.
    pub id: String,
    /// The value from before vmlab, to which it goes back.
    pub old: String,
    /// What became of it.
    pub outcome: RestoreOutcome,
}

/// What became of a setting that was to be restored.
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
    /// The machine was rebooted since, which undid the change.
    Rebooted,
    /// It could not be restored; its journal stays for another try.
    Failed(io::Error),
}

/// Host settings that are changed; put back on drop at the latest.
#[derive(Debug)]
pub struct Settings {
    root: PathBuf,
    state_dir: PathBuf,
    /// None once restored, or when nothing was to be changed.
    file: Option<JournalFile>,
}

impl Settings {
    /// Makes `changes` below `root` (`/`), with a journal in `state_dir`.
    ///
    /// # Errors
    /// [`ApplyError`]; the first that fails undoes those before it.
    pub fn apply(
        root: &Path,
        changes: &[Change],
        state_dir: &Path,
        owner: &Owner,
    ) -> Result<Self, ApplyError> {
        apply_with(root, changes, state_dir, owner, &write_value)
    }

    /// Puts everything back and tells what became of each setting.
    ///
    /// # Errors
    /// [`JournalError`] when the journal can't be locked or removed.
    pub fn restore(mut self) -> Result<Vec<Restored>, JournalError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<Vec<Restored>, JournalError> {
        let Some(file) = self.file.take() else { return Ok(Vec::new()) };
        let _lock = Lock::take(&self.state_dir)?;
        undo(&self.root, &file)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // What fails here keeps its journal and is found as stale later.
        let _ = self.put_back();
    }
}

/// A journal that a dead vmlab left, and what became of it.
#[derive(Debug)]
pub struct StaleSettings {
    /// The journal's file.
    pub path: PathBuf,
    /// The run that is dead, when the journal can be read.
    pub run_id: Option<String>,
    /// The settings; an error when the journal can't be used.
    pub restored: Result<Vec<Restored>, JournalError>,
}

/// Restores what dead vmlabs left changed below `root`, by the journals in
/// `state_dir`. Those of living ones are left alone.
///
/// # Errors
/// [`JournalError`] when `state_dir` can't be read or locked.
pub fn restore_stale(root: &Path, state_dir: &Path) -> Result<Vec<StaleSettings>, JournalError> {
    if !state_dir.exists() {
        return Ok(Vec::new());
    }
    let lock = Lock::take(state_dir)?;
    let mut stale = Vec::new();
    for path in lock.journals()? {
        match JournalFile::read(path.clone()) {
            Ok(file) if file.journal.owner.is_alive() => {}
            Ok(file) => stale.push(StaleSettings {
                path,
                run_id: Some(file.journal.owner.run_id.clone()),
                restored: undo(root, &file),
            }),
            Err(error) => stale.push(StaleSettings { path, run_id: None, restored: Err(error) }),
        }
    }
    Ok(stale)
}

/// The journals in `state_dir` that dead vmlabs left, for [`restore_stale`].
///
/// # Errors
/// [`JournalError`] when `state_dir` can't be read or locked.
pub fn stale(state_dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    if !state_dir.exists() {
        return Ok(Vec::new());
    }
    let journals = Lock::take(state_dir)?.journals()?;
    let is_stale = |path: &PathBuf| {
        JournalFile::read(path.clone()).map_or(true, |file| !file.journal.owner.is_alive())
    };
    Ok(journals.into_iter().filter(is_stale).collect())
}

/// Writes one value into the file of a setting.
type WriteValue<'a> = &'a dyn Fn(&Path, &str) -> io::Result<()>;

fn apply_with(
    root: &Path,
    changes: &[Change],
    state_dir: &Path,
    owner: &Owner,
    write: WriteValue<'_>,
) -> Result<Settings, ApplyError> {
    let mut settings =
        Settings { root: root.to_owned(), state_dir: state_dir.to_owned(), file: None };
    if changes.is_empty() {
        return Ok(settings);
    }
    let entries = prepare(root, changes)?;
    let lock = Lock::take(state_dir)?;
    check_unclaimed(&lock, &entries)?;
    let file = lock.write(Journal::new(owner.clone(), entries))?;
    for Entry { setting, old, new } in file.changes() {
        let path = root.join(setting.path);
        if let Err(source) = set(&path, old, new, write) {
            // The file's writer is not trusted to undo what it did not do.
            let undone = undo(root, &file).is_ok_and(|all| {
                !all.iter().any(|one| matches!(one.outcome, RestoreOutcome::Failed(_)))
            });
            return Err(ApplyError::Set { path, value: new.clone(), undone, source });
        }
    }
    settings.file = Some(file);
    Ok(settings)
}

/// The old and new values, when all can be changed.
fn prepare(root: &Path, changes: &[Change]) -> Result<Vec<Entry>, ApplyError> {
    let mut entries: Vec<Entry> = Vec::new();
    for Change { setting, value } in changes {
        if entries.iter().any(|entry| entry.setting == *setting) {
            return Err(ApplyError::Twice(setting.id));
        }
        let path = root.join(setting.path);
        let present =
            read_value(&path).map_err(|source| ApplyError::Read { path: path.clone(), source })?;
        if !present.offered.is_empty() && !present.offered.contains(value) {
            let offered = present.offered;
            return Err(ApplyError::NotOffered { path, value: value.clone(), offered });
        }
        // Opening for writing changes nothing yet.
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|source| ApplyError::NotWritable { path, source })?;
        entries.push(Entry { setting, old: present.value, new: value.clone() });
    }
    Ok(entries)
}

/// Two runs that set the same thing would measure each other's settings.
fn check_unclaimed(lock: &Lock, entries: &[Entry]) -> Result<(), ApplyError> {
    for path in lock.journals()? {
        let file = JournalFile::read(path)?;
        let owner = &file.journal.owner;
        let claimed = file
            .changes()
            .iter()
            .find(|theirs| entries.iter().any(|ours| ours.setting == theirs.setting));
        let Some(claimed) = claimed else { continue };
        let (id, run_id) = (claimed.setting.id.to_owned(), owner.run_id.clone());
        return Err(match owner.is_alive() {
            true => ApplyError::InUse { id, pid: owner.pid, run_id },
            false => ApplyError::Stale { id, run_id },
        });
    }
    Ok(())
}

/// Sets and reads back.
fn set(path: &Path, old: &str, new: &str, write: WriteValue<'_>) -> io::Result<()> {
    if old != new {
        write(path, new)?;
    }
    let found = read_value(path)?.value;
    match found == new {
        true => Ok(()),
        false => Err(io::Error::other(format!("It is {found:?} after that"))),
    }
}

/// Restores what the journal says, last change first, and removes it when
/// nothing failed. The caller holds the lock.
fn undo(root: &Path, file: &JournalFile) -> Result<Vec<Restored>, JournalError> {
    let rebooted = file.journal.owner.is_of_earlier_boot();
    let restore = |entry: &Entry| {
        let path = root.join(entry.setting.path);
        let outcome = match rebooted {
            true => RestoreOutcome::Rebooted,
            false => restore_one(&path, &entry.old, &entry.new),
        };
        Restored { id: entry.setting.id.to_owned(), old: entry.old.clone(), outcome }
    };
    let restored: Vec<Restored> = file.changes().iter().rev().map(restore).collect();
    if !restored.iter().any(|one| matches!(one.outcome, RestoreOutcome::Failed(_))) {
        file.remove()?;
    }
    Ok(restored)
}

fn restore_one(path: &Path, old: &str, new: &str) -> RestoreOutcome {
    let present = match read_value(path) {
        Ok(present) => present.value,
        Err(error) => return RestoreOutcome::Failed(error),
    };
    if present == old {
        return RestoreOutcome::AlreadyBack;
    }
    if present != new {
        return RestoreOutcome::ChangedByOthers { present };
    }
    match set(path, new, old, &write_value) {
        Ok(()) => RestoreOutcome::Restored,
        Err(error) => RestoreOutcome::Failed(error),
    }
}

/// What the file of a setting says.
#[derive(Debug, PartialEq, Eq)]
struct Present {
    value: String,
    /// What the kernel offers, when the file lists it.
    offered: Vec<String>,
}

fn read_value(path: &Path) -> io::Result<Present> {
    let text = fs::read_to_string(path)?;
    parse_value(&text).ok_or_else(|| io::Error::other(format!("It says {:?}", text.trim())))
}

/// Reads `[always] madvise never`, or a single word.
fn parse_value(text: &str) -> Option<Present> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if let [word] = words.as_slice()
        && !word.starts_with('[')
    {
        return Some(Present { value: (*word).to_owned(), offered: Vec::new() });
    }
    let chosen = |word: &str| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned());
    let mut all_chosen = words.iter().filter_map(|word| chosen(word));
    let value = all_chosen.next()?;
    if all_chosen.next().is_some() {
        return None;
    }
    let offered =
        words.iter().map(|word| chosen(word).unwrap_or_else(|| (*word).to_owned())).collect();
    Some(Present { value, offered })
}

fn write_value(path: &Path, value: &str) -> io::Result<()> {
    // Not fs::write, which would create a file where the kernel has none.
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
