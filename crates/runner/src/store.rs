//! The results folder: one frozen plan, one append-only journal, blobs.
//!
//! ```text
//! DIR/plan.json       frozen before the first trial
//!     host.json       the machine, in the host format
//!     journal.jsonl   one event a line (see `record::journal`)
//!     journal.end     number and checksum of the last line that was acknowledged
//!     journal.torn    what a crash left behind the last good line, if it did
//!     blobs/<hash>    benchmark output and consoles
//!     calibration.json  what events cost on the host, if that was given
//!     lock            flock of the one process that writes
//! ```
//!
//! Everything else in the folder is derived and may be deleted at any time.
//! A blob is on disk before the line that names it, and a line is on disk
//! before the next trial begins, so an acknowledged trial survives kill -9.

mod files;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use record::journal::{self, Damage, DamageKind, Journal, JournalEvent, JournalTail, TrialResult};
use rustix::fs::{Access, FlockOperation};
use topology::bounded;

use crate::calibration::{Calibration, NoCalibration};
use crate::plan::{ReadPlanError, StudyPlan};

const PLAN: &str = "plan.json";
const HOST: &str = "host.json";
const JOURNAL: &str = "journal.jsonl";
const END: &str = "journal.end";
const TORN: &str = "journal.torn";
const BLOBS: &str = "blobs";
const LOCK: &str = "lock";
const PRICES: &str = "calibration.json";

/// What is read of a journal: some hundred thousand trials, and as much memory.
const MAX_JOURNAL_BYTES: u64 = 1 << 30;
/// What is read of any other file of the folder.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What to do about a full disk once a study has begun.
const FULL: &str = " (the disk is full: free some room, then go on with --resume)";

/// Error type for everything that touches a results folder.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A file or folder could not be used.
    #[error("Cannot {action} {path}{hint}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What to do next, with a leading separator; may be empty.
        hint: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Another process is writing.
    #[error("{path} is in use by another vmlab ({owner}): wait for it, or choose another folder")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// What the lock file says of its holder.
        owner: String,
    },
    /// The folder holds results already.
    #[error(
        "{0} holds a study already: go on with `vmlab run --resume {0}` or choose another --out"
    )]
    Exists(PathBuf),
    /// The folder holds the results of many nodes.
    #[error("{0} holds the results of a study on many nodes already: choose another --out")]
    HoldsNodes(PathBuf),
    /// The folder holds no study.
    #[error("{0} holds no study: there is no plan.json in it")]
    NoPlan(PathBuf),
    /// The plan can't be read.
    #[error("{path}:{line}: the plan can't be read: {message}")]
    BadPlan {
        /// The plan's file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The description of the machine can't be read.
    #[error("{path}:{line}: the machine's description can't be read: {source}", path = .path.display(), line = .source.line())]
    BadHost {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The journal belongs to another plan.
    #[error(
        "{path} belongs to another plan ({journal} instead of {plan}): plan.json was changed after the study began"
    )]
    OtherPlan {
        /// The journal's file.
        path: PathBuf,
        /// The hash that the journal names.
        journal: String,
        /// The hash of plan.json.
        plan: String,
    },
    /// The journal is damaged as no crash explains it.
    #[error(
        "{path}:{line}: {kind}{more}: the file was changed or its disk is failing. Restore it from a copy, or cut it in front of this line and remove {END} to go on without what follows",
        path = .path.display(), line = .damage.line, kind = .damage.kind
    )]
    Damaged {
        /// The journal's file.
        path: PathBuf,
        /// The first thing that is wrong with it.
        damage: Box<Damage>,
        /// How much more is wrong, with a leading separator; may be empty.
        more: String,
    },
    /// What was acknowledged last can't be read.
    #[error(
        "{path} can't be read ({source}): remove it to go on without knowing whether the end of the journal is there", path = .path.display()
    )]
    BadEnd {
        /// The file.
        path: PathBuf,
        /// Why.
        source: journal::UnknownEnd,
    },
    /// The price list can't be read.
    #[error("{path}: the price list can't be read: {source}", path = .path.display())]
    BadPrices {
        /// The file.
        path: PathBuf,
        /// Why.
        source: NoCalibration,
    },
    /// The folder is on another machine, which does not answer.
    #[error("The machine that keeps the results does not answer: {0}")]
    Elsewhere(String),
}

impl ResultsError {
    /// The same where no study has begun: there is nothing to go on with.
    fn before_a_plan(self) -> Self {
        match self {
            Self::Io { action, path, hint: FULL, source } => {
                let hint = " (the disk is full: free some room, then start again)";
                Self::Io { action, path, hint, source }
            }
            other => other,
        }
    }
}

/// Where a running study's events and texts go.
pub trait TrialSink {
    /// Appends `event` and waits until it is on disk.
    ///
    /// # Errors
    /// [`ResultsError`] when the line can't be written.
    fn append(&mut self, event: &JournalEvent) -> Result<(), ResultsError>;

    /// Keeps `bytes` and returns the hash that names them.
    ///
    /// # Errors
    /// [`ResultsError`] when it can't be written.
    fn keep(&mut self, bytes: &[u8]) -> Result<String, ResultsError>;
}

/// The name of a blob: half of its BLAKE3 hash, 32 hexadecimal digits.
#[must_use]
pub fn blob_name(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> ResultsError + 'a {
    move |source| ResultsError::Io {
        action,
        path: path.to_owned(),
        hint: match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FULL,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                " (no permission: run as its owner, or choose another folder with --out)"
            }
            io::ErrorKind::NotFound => " (was the folder removed?)",
            _ => "",
        },
        source,
    }
}

/// What a results folder holds: read without locking, for reports.
#[derive(Debug)]
pub struct Contents {
    /// The frozen plan.
    pub plan: StudyPlan,
    /// The machine.
    pub host: topology::Host,
    /// The journal's events, as far as they can be trusted.
    pub events: Vec<JournalEvent>,
    /// What is wrong with the journal: whoever uses the events says it.
    pub damage: Vec<Damage>,
    /// What events cost, as somebody said who had it measured.
    pub prices: Option<Calibration>,
    /// The files with fields that this vmlab does not know, and these: whoever uses the
    /// rest says it.
    pub unknown: Vec<UnknownFields>,
}

impl Contents {
    /// Those of a study that has just begun.
    #[must_use]
    pub fn begun(plan: StudyPlan, host: topology::Host, prices: Option<Calibration>) -> Self {
        let (events, damage, unknown) = (Vec::new(), Vec::new(), Vec::new());
        Self { plan, host, events, damage, prices, unknown }
    }

    /// The trials that ended.
    pub fn trials(&self) -> impl Iterator<Item = &TrialResult> {
        self.events.iter().filter_map(|event| match event {
            JournalEvent::TrialEnded(result) => Some(&**result),
            _ => None,
        })
    }

    /// The names of all texts that trials left, each once.
    #[must_use]
    pub fn texts(&self) -> BTreeSet<&String> {
        self.trials().flat_map(texts).collect()
    }
}

/// What was passed over in a file that a later vmlab wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFields {
    /// The file.
    pub path: PathBuf,
    /// The paths of the fields in it; not empty.
    pub fields: Vec<String>,
}

impl fmt::Display for UnknownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let shown = &self.fields[..self.fields.len().min(SHOWN)];
        let path = self.path.display();
        write!(f, "{path}: This vmlab does not know and passes over: {}", shown.join(", "))?;
        match self.fields.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Reads the results in `dir`. Damage is told, and not an error.
///
/// # Errors
/// [`ResultsError`] names the file.
pub fn read(dir: &Path) -> Result<Contents, ResultsError> {
    let plan = read_plan(dir)?;
    let host_path = dir.join(HOST);
    let host = bounded::json(&read_plain(&host_path)?)
        .map_err(|source| ResultsError::BadHost { path: host_path.clone(), source })?;
    let (text, Journal { mut events, mut damage, .. }) = read_journal(dir)?;
    check_belongs(&dir.join(JOURNAL), &plan, &events)?;
    let before = events.len();
    events.retain(|event| event.ended_trial().is_none_or(|trial| plan.has(trial)));
    let line = last_line(&text);
    if events.len() < before {
        let trials = (before - events.len()) as u64;
        damage.push(Damage { line, kind: DamageKind::Unplanned { trials } });
    }
    let prices = match read_if_there(&dir.join(PRICES), MAX_FILE_BYTES)? {
        text if text.is_empty() => None,
        text => Some(prices_of(&dir.join(PRICES), &text)?),
    };
    let unknown = [(dir.join(PLAN), plan.unknown_fields().to_vec()), (host_path, host.unknown)]
        .into_iter()
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(path, fields)| UnknownFields { path, fields });
    let unknown = unknown.collect();
    let mut contents = Contents { plan, host: host.value, events, damage, prices, unknown };
    let texts = missing_texts(dir, &contents);
    if texts > 0 {
        contents.damage.push(Damage { line, kind: DamageKind::TextsMissing { texts } });
    }
    Ok(contents)
}

/// How many of the texts that trials left are not there; what stands in them is not
/// looked at.
fn missing_texts(dir: &Path, contents: &Contents) -> u64 {
    let is_there = files::is_own_folder(&dir.join(BLOBS));
    let lacks = |name: &&String| {
        !is_there
            || !is_blob_name(name)
            || !fs::symlink_metadata(blob_path(dir, name)).is_ok_and(|file| file.is_file())
    };
    contents.texts().into_iter().filter(lacks).count() as u64
}

/// Reads the price list `path`.
///
/// # Errors
/// [`ResultsError`] names the file.
pub fn read_prices(path: &Path) -> Result<Calibration, ResultsError> {
    prices_of(path, &read_plain(path)?)
}

fn prices_of(path: &Path, text: &[u8]) -> Result<Calibration, ResultsError> {
    let bad = |source| ResultsError::BadPrices { path: path.to_owned(), source };
    Calibration::from_json(&String::from_utf8_lossy(text)).map_err(bad)
}

/// One line for each thing that is wrong with the journal in `dir`.
pub fn damage_lines(dir: &Path, damage: &[Damage]) -> impl Iterator<Item = String> {
    let path = dir.join(JOURNAL);
    damage.iter().map(move |Damage { line, kind }| format!("{}:{line}: {kind}", path.display()))
}

/// True if `dir` holds the results of a study, whole or damaged: what is wrong with them
/// is told by whoever reads them.
#[must_use]
pub fn is_results(dir: &Path) -> bool {
    let is_there = |name: &&str| fs::symlink_metadata(dir.join(name)).is_ok();
    is_there(&PLAN) && [JOURNAL, END, HOST].iter().any(is_there)
}

/// Whether a study can begin in `dir`, as far as that is known without writing
/// anything: asked before what takes minutes.
///
/// # Errors
/// [`ResultsError`]: the folder holds a study, or can't be written.
pub fn check_new(dir: &Path) -> Result<(), ResultsError> {
    if dir.join(PLAN).exists() || dir.join(JOURNAL).exists() {
        return Err(ResultsError::Exists(dir.to_owned()));
    }
    let absolute = std::path::absolute(dir).map_err(io_error("use the folder", dir))?;
    let Some(there) = absolute.ancestors().find(|folder| folder.exists()) else { return Ok(()) };
    rustix::fs::access(there, Access::WRITE_OK)
        .map_err(|error| io_error("make the folder", dir)(error.into()))
}

/// The names of all texts that a trial left.
pub fn texts(trial: &TrialResult) -> impl Iterator<Item = &String> {
    trial
        .runs
        .iter()
        .flat_map(|run| run.blobs.values())
        .chain(&trial.console)
        .chain(&trial.device_state)
}

/// The text of the blob `hash`, if it is still there.
#[must_use]
pub fn blob(dir: &Path, hash: &str) -> Option<Vec<u8>> {
    text(dir, hash).ok()
}

/// The same, or why it can't be read.
pub(crate) fn text(dir: &Path, hash: &str) -> io::Result<Vec<u8>> {
    if !is_blob_name(hash) {
        return Err(io::Error::other("its name is none of a text"));
    }
    if !files::is_own_folder(&dir.join(BLOBS)) {
        return Err(io::Error::other("there is no folder blobs"));
    }
    files::read(&blob_path(dir, hash), MAX_FILE_BYTES)
}

/// Whether a journal's word names a blob: nothing else is looked for.
fn is_blob_name(hash: &str) -> bool {
    hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where the blob `hash` lies.
#[must_use]
pub fn blob_path(dir: &Path, hash: &str) -> PathBuf {
    dir.join(BLOBS).join(hash)
}

/// The one writer of a results folder; the lock ends with it.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    journal: File,
    /// The journal's last line, and the file that says so.
    end: JournalTail,
    end_file: File,
    /// Held for its flock.
    _lock: File,
}

impl Store {
    /// Makes a new results folder with a frozen `plan`.
    ///
    /// # Errors
    /// [`ResultsError`]: the folder holds a study, is in use, can't be written.
    pub fn create(
        dir: &Path,
        plan: &StudyPlan,
        host: &topology::Host,
    ) -> Result<Self, ResultsError> {
        Self::begin(dir, plan, host).map_err(ResultsError::before_a_plan)
    }

    fn begin(dir: &Path, plan: &StudyPlan, host: &topology::Host) -> Result<Self, ResultsError> {
        fs::create_dir_all(dir).map_err(io_error("make the folder", dir))?;
        let lock = lock(dir)?;
        if dir.join(PLAN).exists() || dir.join(JOURNAL).exists() {
            return Err(ResultsError::Exists(dir.to_owned()));
        }
        let blobs = dir.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(io_error("make the folder", &blobs))?;
        write_whole(dir, HOST, host.to_json().as_bytes())?;
        // The plan comes last: a folder with a plan is complete.
        write_whole(dir, PLAN, plan.to_json().as_bytes())?;
        Self::open(dir, JournalTail::default(), lock)
    }

    /// Opens a results folder to go on with its study, and cuts a torn tail
    /// off the journal (it is kept in `journal.torn`).
    ///
    /// # Errors
    /// [`ResultsError`]: no plan, in use, damaged in the middle, not writable.
    pub fn resume(dir: &Path) -> Result<(Self, Contents), ResultsError> {
        if !dir.join(PLAN).exists() {
            return Err(ResultsError::NoPlan(dir.to_owned()));
        }
        let lock = lock(dir)?;
        let blobs = dir.join(BLOBS);
        if !files::is_own_folder(&blobs) {
            let elsewhere = io::Error::other("it is no folder, and benchmark output belongs there");
            return Err(io_error("use", &blobs)(elsewhere));
        }
        let contents = read(dir)?;
        let path = dir.join(JOURNAL);
        let (text, journal) = read_journal(dir)?;
        if let Some(damage) = journal.damage.iter().find(|damage| !damage.kind.lets_go_on()) {
            let more = match journal.damage.len() {
                1 => String::new(),
                all => format!(", and {} more", all - 1),
            };
            return Err(ResultsError::Damaged { path, damage: Box::new(damage.clone()), more });
        }
        let torn = &text[journal.sound_bytes..];
        if !torn.is_empty() {
            append(&dir.join(TORN), torn)?;
            let file = files::open_to_change(&path).map_err(io_error("open", &path))?;
            let length = journal.sound_bytes as u64;
            file.set_len(length).map_err(io_error("cut the torn tail of", &path))?;
            file.sync_all().map_err(io_error("write", &path))?;
        }
        Ok((Self::open(dir, journal.end, lock)?, contents))
    }

    /// Opens the journal, whose last line is `end`, to write on.
    fn open(dir: &Path, end: JournalTail, lock: File) -> Result<Self, ResultsError> {
        let path = dir.join(JOURNAL);
        let journal = files::open_to_append(&path).map_err(io_error("open", &path))?;
        let path = dir.join(END);
        let end_file = files::open_to_change(&path).map_err(io_error("open", &path))?;
        let mut store = Self { dir: dir.to_owned(), journal, end, end_file, _lock: lock };
        store.acknowledge(end)?;
        // From here on it is written over, never longer or shorter: no crash empties it.
        store.end_file.sync_all().map_err(io_error("write", &path))?;
        sync_dir(dir)?;
        Ok(store)
    }

    /// Says that the journal reaches to `end`. A crash may lose that, which does
    /// no harm: what it then says is there, too.
    fn acknowledge(&mut self, end: JournalTail) -> Result<(), ResultsError> {
        let path = self.dir.join(END);
        let text = end.to_string();
        self.end_file.write_all_at(text.as_bytes(), 0).map_err(io_error("write", &path))?;
        self.end = end;
        Ok(())
    }

    /// Keeps the price list that the study's differences are told in.
    ///
    /// # Errors
    /// [`ResultsError`] when it can't be written.
    pub fn keep_prices(&self, prices: &Calibration) -> Result<(), ResultsError> {
        write_whole(&self.dir, PRICES, prices.to_json().as_bytes())
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a derived file (a report, an export) into the folder.
    ///
    /// # Errors
    /// [`ResultsError`] when it can't be written.
    pub fn write_derived(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, ResultsError> {
        write_derived(&self.dir, name, bytes)
    }
}

impl TrialSink for Store {
    // A full disk or a removed folder leaves the journal as before, or ends it in
    // a torn line that the next resume cuts off.
    fn append(&mut self, event: &JournalEvent) -> Result<(), ResultsError> {
        let path = self.dir.join(JOURNAL);
        // A removed folder would swallow every write into an unlinked file.
        let here =
            rustix::fs::stat(&path).map_err(|error| io_error("write", &path)(error.into()))?;
        let open = rustix::fs::fstat(&self.journal)
            .map_err(|error| io_error("write", &path)(error.into()))?;
        if (here.st_dev, here.st_ino) != (open.st_dev, open.st_ino) {
            return Err(io_error("write", &path)(io::ErrorKind::NotFound.into()));
        }
        let (line, end) = self
            .end
            .line(event)
            .map_err(|error| io_error("write", &path)(io::Error::other(error)))?;
        self.journal.write_all(line.as_bytes()).map_err(io_error("write", &path))?;
        self.journal.sync_data().map_err(io_error("write", &path))?;
        self.acknowledge(end)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<String, ResultsError> {
        let hash = blob_name(bytes);
        if !blob_path(&self.dir, &hash).exists() {
            write_whole(&self.dir.join(BLOBS), &hash, bytes)?;
        }
        Ok(hash)
    }
}

/// Writes a derived file into the results folder `dir`.
///
/// # Errors
/// [`ResultsError`] when it can't be written.
pub fn write_derived(dir: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, ResultsError> {
    write_whole(dir, name, bytes)?;
    Ok(dir.join(name))
}

/// A file that lies in a results folder, or beside one.
///
/// # Errors
/// [`ResultsError`] names the file.
pub(crate) fn read_plain(path: &Path) -> Result<Vec<u8>, ResultsError> {
    files::read(path, MAX_FILE_BYTES).map_err(io_error("read", path))
}

fn read_plan(dir: &Path) -> Result<StudyPlan, ResultsError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let path = dir.join(PLAN);
    let text = match files::read(&path, MAX_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
            return Err(ResultsError::NoPlan(dir.to_owned()));
        }
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    StudyPlan::from_json(&text).map_err(|error| bad_json(&path, &error))
}

fn bad_json(path: &Path, error: &ReadPlanError) -> ResultsError {
    ResultsError::BadPlan { path: path.to_owned(), line: error.line(), message: error.to_string() }
}

/// The journal's text, and what it says.
fn read_journal(dir: &Path) -> Result<(Vec<u8>, Journal), ResultsError> {
    // First, as whoever writes it writes it last.
    let path = dir.join(END);
    let acknowledged = match String::from_utf8(read_if_there(&path, MAX_FILE_BYTES)?) {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(text.parse::<JournalTail>()),
        Err(_) => Some(Err(journal::UnknownEnd)),
    };
    let acknowledged = acknowledged.transpose();
    let acknowledged = acknowledged.map_err(|source| ResultsError::BadEnd { path, source })?;
    // A crash between plan and journal leaves no journal: nothing happened.
    let text = read_if_there(&dir.join(JOURNAL), MAX_JOURNAL_BYTES)?;
    let mut journal = journal::read(&text, acknowledged);
    if journal.is_numbered && acknowledged.is_none() {
        journal.damage.push(Damage { line: last_line(&text), kind: DamageKind::EndUnknown });
    }
    Ok((text, journal))
}

/// The number of a text's last line, from 1.
fn last_line(text: &[u8]) -> u64 {
    text.split_inclusive(|byte| *byte == b'\n').count().max(1) as u64
}

fn read_if_there(path: &Path, limit: u64) -> Result<Vec<u8>, ResultsError> {
    match files::read(path, limit) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(io_error("read", path)),
    }
}

fn check_belongs(
    path: &Path,
    plan: &StudyPlan,
    events: &[JournalEvent],
) -> Result<(), ResultsError> {
    let wanted = plan.hash();
    for event in events {
        if let JournalEvent::SessionStarted { plan_hash, .. } = event
            && *plan_hash != wanted
        {
            let (path, journal) = (path.to_owned(), plan_hash.clone());
            return Err(ResultsError::OtherPlan { path, journal, plan: wanted });
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, ResultsError> {
    let path = dir.join(LOCK);
    let mut file = files::open_to_change(&path).map_err(io_error("open", &path))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut owner = String::new();
        file.read_to_string(&mut owner).map_err(io_error("read", &path))?;
        let owner = owner.trim().to_owned();
        return Err(ResultsError::Locked { path: dir.to_owned(), owner });
    }
    file.set_len(0).map_err(io_error("write", &path))?;
    let owner = format!("process {}\n", std::process::id());
    file.write_all(owner.as_bytes()).map_err(io_error("write", &path))?;
    Ok(file)
}

/// Writes `name` in `dir` so that it is there wholly or not at all.
fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), ResultsError> {
    files::write_whole(dir, name, bytes).map_err(io_error("write", &dir.join(name)))?;
    sync_dir(dir)
}

fn append(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let mut file = files::open_to_append(path).map_err(io_error("open", path))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.sync_data().map_err(io_error("write", path))
}

fn sync_dir(dir: &Path) -> Result<(), ResultsError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("write", dir))
}

#[cfg(test)]
mod tests;
