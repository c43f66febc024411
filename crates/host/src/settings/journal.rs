//! The file that remembers old values while settings are changed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::target::SettingTarget;
use super::{Setting, setting};
use crate::owner::Owner;

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

/// How long another vmlab may be at changing settings.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

const PREFIX: &str = "settings-";
const SUFFIX: &str = ".json";

/// One change, as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingEntry {
    pub(super) setting: &'static Setting,
    pub(super) target: SettingTarget,
    pub(super) old: String,
    pub(super) new: String,
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsJournal {
    version: u32,
    pub(super) owner: Owner,
    changes: Vec<WrittenEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    setting: String,
    target: String,
    old: String,
    new: String,
}

const VERSION: u32 = 2;

/// No value of the kernel's is longer.
const LONGEST_VALUE: usize = 64 << 10;

impl SettingsJournal {
    pub(super) fn new(owner: Owner, entries: Vec<SettingEntry>) -> Self {
        let changes = entries
            .into_iter()
            .map(|SettingEntry { setting, target, old, new }| WrittenEntry {
                setting: setting.id.to_owned(),
                target: target.to_string(),
                old,
                new,
            })
            .collect();
        Self { version: VERSION, owner, changes }
    }

    /// The changes, checked against the table: a journal names what belongs to
    /// a setting, so it can't be made to write elsewhere.
    fn entries(&self) -> io::Result<Vec<SettingEntry>> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        if self.version != VERSION {
            return Err(invalid(format!("It has version {}, not {VERSION}", self.version)));
        }
        let sane = |value: &str| value.len() <= LONGEST_VALUE && !value.contains(char::is_control);
        let entry = |written: &WrittenEntry| {
            let WrittenEntry { setting: id, target: text, old, new } = written;
            let setting =
                setting(id).ok_or_else(|| invalid(format!("It names a setting {id:?}")))?;
            let target = SettingTarget::parse(text)
                .filter(|target| setting.place.owns(target))
                .ok_or_else(|| invalid(format!("It changes {text:?} for {id}")))?;
            if !sane(old) || !sane(new) {
                return Err(invalid(format!("It has odd values for {text:?}")));
            }
            Ok(SettingEntry { setting, target, old: old.clone(), new: new.clone() })
        };
        self.changes.iter().map(entry).collect()
    }
}

/// A journal on disk.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    pub(super) journal: SettingsJournal,
    entries: Vec<SettingEntry>,
}

impl JournalFile {
    pub(super) fn read(path: PathBuf) -> Result<Self, JournalError> {
        let parse = || {
            let journal: SettingsJournal = serde_json::from_slice(&fs::read(&path)?)?;
            let entries = journal.entries()?;
            Ok((journal, entries))
        };
        match parse() {
            Ok((journal, entries)) => Ok(Self { path, journal, entries }),
            Err(source) => Err(JournalError { path, source }),
        }
    }

    pub(super) fn changes(&self) -> &[SettingEntry] {
        &self.entries
    }

    pub(super) fn remove(&self) -> Result<(), JournalError> {
        fs::remove_file(&self.path)
            .map_err(|source| JournalError { path: self.path.clone(), source })
    }
}

/// The right to change settings and their journals. Ends with the process at
/// the latest.
#[derive(Debug)]
pub(super) struct SettingsLock {
    state_dir: PathBuf,
    _file: File,
}

impl SettingsLock {
    /// Takes the lock of `state_dir`, which is created if it is missing.
    pub(super) fn take(state_dir: &Path) -> Result<Self, JournalError> {
        let path = state_dir.join("settings.lock");
        let error = |source| JournalError { path: path.clone(), source };
        fs::create_dir_all(state_dir)
            .map_err(|source| JournalError { path: state_dir.to_owned(), source })?;
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(error)?;
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { state_dir: state_dir.to_owned(), _file: file }),
                Err(fs::TryLockError::Error(source)) => return Err(error(source)),
                Err(fs::TryLockError::WouldBlock) if Instant::now() > deadline => {
                    let text = "Another vmlab holds it";
                    return Err(error(io::Error::new(io::ErrorKind::WouldBlock, text)));
                }
                Err(fs::TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// The journals there are, in order of their names.
    pub(super) fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let error = |source| JournalError { path: self.state_dir.clone(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.state_dir).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
            {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// Gives a journal that can't be read a name that no journal has, and returns
    /// it: nothing of it is lost, and nothing waits for it any more.
    pub(super) fn set_aside(&self, path: &Path) -> Result<PathBuf, JournalError> {
        let error = |source| JournalError { path: path.to_owned(), source };
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let free = (0_u32..)
            .map(|number| self.state_dir.join(format!("{name}.unreadable.{number}")))
            .find(|path| path.symlink_metadata().is_err());
        let free = free.ok_or_else(|| error(io::ErrorKind::AlreadyExists.into()))?;
        fs::rename(path, &free).map_err(error)?;
        Ok(free)
    }

    /// Writes a new journal; it is on disk when this returns.
    pub(super) fn write(&self, journal: SettingsJournal) -> Result<JournalFile, JournalError> {
        let mut number = 0_u32;
        let path = loop {
            let name = format!("{PREFIX}{}-{number}{SUFFIX}", journal.owner.pid);
            let path = self.state_dir.join(name);
            if !path.exists() {
                break path;
            }
            number += 1;
        };
        // Renamed when complete: no crash leaves half a journal. Under the
        // lock one name is enough for all, and a leftover is overwritten.
        let unfinished = self.state_dir.join("settings.new");
        let write = || {
            let entries = journal.entries()?;
            let mut file = File::create(&unfinished)?;
            file.write_all(&serde_json::to_vec_pretty(&journal)?)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.state_dir)?.sync_all()?;
            Ok(entries)
        };
        match write() {
            Ok(entries) => Ok(JournalFile { path, journal, entries }),
            Err(source) => {
                // Neither half of it may look like a change that was made.
                let _ = fs::remove_file(&unfinished);
                let _ = fs::remove_file(&path);
                Err(JournalError { path, source })
            }
        }
    }
}
