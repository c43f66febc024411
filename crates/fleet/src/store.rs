//! Readings in one SQLite file that stays small.
//!
//! A reading is one transaction, written through to the disk before the next; what a process
//! that was killed began, the next one takes back. One file, no log beside it between two
//! readings, so that it can be copied. Counters are kept as they were read, so an older hour
//! loses nothing but its detail when all but its last reading are dropped ([`DETAILED_S`]).
//!
//! The format is told by SQLite's `application_id` and `user_version`; what an older vmlab
//! wrote is read by every later one. The tables are meant to be read by others, too:
//! docs/rollout.md.
//!
//! Source: SQLite, "Atomic Commit In SQLite", "PRAGMA Statements".

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use record::Environment;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, params};

use crate::hours::{CountedValue, HostHours};
use crate::reading::{CounterSubject, Reading};
use crate::stored::{FORMAT, StoredReadings, StoredVm, VERSION};

/// SQLite's `application_id` of a store: "vmlw".
const APPLICATION_ID: i32 = 0x766d_6c77;

/// How long every reading is kept, s; of older hours the last one is.
pub const DETAILED_S: i64 = 2 * 86_400;

/// Readings that one reading ends at most because they are too old.
const MOST_OLD: i64 = 4;

/// How long to wait for another process that writes or reads.
const PATIENCE: Duration = Duration::from_secs(10);

const TABLES: &str = "
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE boot (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL UNIQUE);
CREATE TABLE vm (
    id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, pid INTEGER NOT NULL,
    starttime_ticks INTEGER NOT NULL, name TEXT NOT NULL, vcpus INTEGER NOT NULL,
    environment TEXT NOT NULL, first_reading INTEGER NOT NULL, UNIQUE (boot, pid, starttime_ticks, vcpus));
CREATE TABLE counter (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE reading (
    id INTEGER PRIMARY KEY AUTOINCREMENT, boot INTEGER NOT NULL, unix_s INTEGER NOT NULL,
    since_boot_ms INTEGER NOT NULL, vms INTEGER NOT NULL);
CREATE TABLE value (
    reading INTEGER NOT NULL, vm INTEGER NOT NULL, counter INTEGER NOT NULL,
    value REAL NOT NULL, PRIMARY KEY (reading, vm, counter)) WITHOUT ROWID;
";

/// Error type of a store.
#[derive(Debug, thiserror::Error)]
pub enum FleetStoreError {
    /// There is no such file, or none can be made.
    #[error("Cannot open the store {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// It is another file.
    #[error("{path} is no store of `vmlab watch`")]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// It is of a later vmlab.
    #[error(
        "{path} is of version {found}, and this vmlab reads versions up to {VERSION}: use a newer vmlab"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The disk is full. What was stored before is still there.
    #[error("No space for a reading in {path}: what was stored before is still there; make room")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error(
        "{path} is damaged: copy it again while nobody writes (`vmlab watch copy`), or move it away"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process holds it.
    #[error("{path} is in use by another process")]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("Cannot use the store {path}")]
    Other {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
}

fn failed(path: &Path, source: rusqlite::Error) -> FleetStoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => FleetStoreError::Full { path },
        Some(ErrorCode::DatabaseCorrupt) => FleetStoreError::Damaged { path, source },
        Some(ErrorCode::NotADatabase) => FleetStoreError::NotAStore { path },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FleetStoreError::Busy { path },
        Some(ErrorCode::CannotOpen) => FleetStoreError::Open { path, source },
        _ => FleetStoreError::Other { path, source },
    }
}

/// How much a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How long, s.
    pub keep_s: i64,
    /// How much the file may hold, B. The oldest readings go when it is reached.
    pub max_bytes: u64,
}

/// A store that readings are added to.
#[derive(Debug)]
pub struct WatchStore {
    path: PathBuf,
    connection: Connection,
}

impl WatchStore {
    /// Opens the store at `path`, which is made where there is none.
    ///
    /// # Errors
    /// [`FleetStoreError`].
    pub fn open(path: &Path) -> Result<Self, FleetStoreError> {
        let failed = |source| failed(path, source);
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        let mut new = Self { path: path.to_owned(), connection };
        new.prepare().map_err(failed)?;
        check(path, &new.connection)?;
        Ok(new)
    }

    /// Makes the tables of an empty file.
    fn prepare(&mut self) -> Result<(), rusqlite::Error> {
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let is_empty = |connection: &Connection| -> Result<bool, rusqlite::Error> {
            connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
        };
        if !is_empty(&self.connection)? {
            return Ok(());
        }
        // Before the first table, or never.
        self.connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // Another process may have been first.
        if is_empty(&transaction)? {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()
    }

    /// Adds a reading, and drops what is beyond `bounds`. After an error the store is as it
    /// was before.
    ///
    /// # Errors
    /// [`FleetStoreError`].
    pub fn add(&mut self, reading: &Reading, bounds: &Bounds) -> Result<(), FleetStoreError> {
        self.try_add(reading, bounds).map_err(|source| failed(&self.path, source))
    }

    fn try_add(&mut self, reading: &Reading, bounds: &Bounds) -> Result<(), rusqlite::Error> {
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // First, so that the space is there for what is new.
        forget(&transaction, reading.at.unix_s, bounds)?;
        insert(&transaction, reading)?;
        transaction.commit()?;
        // The reading is stored. Where this fails, the space is given back next time.
        let _ = self.connection.execute_batch("PRAGMA incremental_vacuum");
        Ok(())
    }

    /// Writes a copy of the store, whole whoever writes meanwhile, to `path`, where nothing
    /// may be yet.
    ///
    /// # Errors
    /// [`FleetStoreError`].
    pub fn copy(source: &Path, path: &Path) -> Result<(), FleetStoreError> {
        let connection = open_to_read(source)?;
        let text = path.to_string_lossy();
        connection.execute("VACUUM INTO ?1", [&text]).map_err(|error| failed(path, error))?;
        Ok(())
    }
}

/// Ends the readings that are too old, too many for the file, or details of old hours.
fn forget(
    transaction: &Transaction<'_>,
    now_s: i64,
    bounds: &Bounds,
) -> Result<(), rusqlite::Error> {
    let oldest_s = now_s.saturating_sub(bounds.keep_s);
    // In the order in which they were read: a clock that was set back makes nothing that came
    // later old, and one that is far ahead for an hour ends little.
    let last_old: Option<i64> = transaction.query_row(
        "SELECT max(id) FROM (SELECT id FROM reading ORDER BY id LIMIT ?2) WHERE id < ifnull(
             (SELECT min(id) FROM reading WHERE unix_s >= ?1), (SELECT max(id) FROM reading))",
        [oldest_s, MOST_OLD],
        |row| row.get(0),
    )?;
    if let Some(id) = last_old {
        remove_until(transaction, id)?;
    }
    drop_details(transaction, now_s)?;
    while used_bytes(transaction)? > bounds.max_bytes {
        // A twentieth at a time: not at every reading again.
        let id: Option<i64> = transaction.query_row(
            "SELECT min(id) + (max(id) - min(id)) / 20 FROM reading",
            [],
            |row| row.get(0),
        )?;
        let Some(id) = id else { break };
        remove_until(transaction, id)?;
        // Of a boot that still lasts, too.
        transaction.execute("DELETE FROM vm WHERE id NOT IN (SELECT vm FROM value)", [])?;
    }
    Ok(())
}

fn used_bytes(connection: &Connection) -> Result<u64, rusqlite::Error> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(u64::try_from(pages * pragma("page_size")?).unwrap_or(0))
}

fn remove_until(transaction: &Transaction<'_>, id: i64) -> Result<(), rusqlite::Error> {
    transaction.execute("DELETE FROM value WHERE reading <= ?1", [id])?;
    transaction.execute("DELETE FROM reading WHERE id <= ?1", [id])?;
    transaction.execute("DELETE FROM boot WHERE id NOT IN (SELECT boot FROM reading)", [])?;
    transaction.execute("DELETE FROM vm WHERE boot NOT IN (SELECT id FROM boot)", [])?;
    Ok(())
}

/// Of each hour that ended [`DETAILED_S`] ago, leaves the last reading of a boot, and of earlier
/// ones the first and the last of VMs that began or ended in that hour. Counters being what
/// they are, nothing is lost but when in an hour something was counted.
fn drop_details(transaction: &Transaction<'_>, now_s: i64) -> Result<(), rusqlite::Error> {
    let about = |key: &str| {
        transaction
            .query_row("SELECT value FROM about WHERE key = ?1", [key], |row| {
                row.get::<_, String>(0)
            })
            .optional()
    };
    // Up to which reading this was done before.
    let done: i64 = about("detailed_after")?.and_then(|id| id.parse().ok()).unwrap_or(0);
    let until_hour = now_s.saturating_sub(DETAILED_S).div_euclid(3600);
    let mut statement =
        transaction.prepare("SELECT id, boot, unix_s FROM reading WHERE id > ?1 ORDER BY id")?;
    let mut rows = statement.query([done])?;
    let mut last: Option<(i64, i64, i64)> = None;
    let mut dropped: Vec<(i64, i64)> = Vec::new();
    let mut reached = done;
    while let Some(row) = rows.next()? {
        let (id, boot, unix_s): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let hour = unix_s.div_euclid(3600);
        if unix_s > now_s {
            // The clock was ahead then.
            continue;
        }
        if hour >= until_hour {
            break;
        }
        if let Some((earlier, of_boot, of_hour)) = last {
            if (of_boot, of_hour) == (boot, hour) {
                dropped.push((earlier, id));
            } else {
                reached = earlier;
            }
        }
        last = Some((id, boot, hour));
    }
    drop(rows);
    drop(statement);
    for (earlier, later) in &dropped {
        transaction.execute(
            "DELETE FROM value WHERE reading = ?1
             AND vm IN (SELECT vm FROM value WHERE reading = ?2)
             AND vm NOT IN (SELECT id FROM vm WHERE first_reading = ?1)",
            params![earlier, later],
        )?;
        transaction.execute(
            "DELETE FROM reading WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM value WHERE reading = ?1)",
            [earlier],
        )?;
    }
    if reached != done {
        set_about(transaction, "detailed_after", &reached.to_string())?;
    }
    Ok(())
}

fn set_about(connection: &Connection, key: &str, value: &str) -> Result<(), rusqlite::Error> {
    connection.execute(
        "INSERT INTO about (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [key, value],
    )?;
    Ok(())
}

fn insert(transaction: &Transaction<'_>, reading: &Reading) -> Result<(), rusqlite::Error> {
    let at = &reading.at;
    if let Some((host, _)) = reading.counted.iter().find(|(counted, _)| counted.pid == 0) {
        set_about(transaction, "host", &host.name)?;
    }
    transaction.execute("INSERT OR IGNORE INTO boot (boot_id) VALUES (?1)", [&at.boot_id])?;
    let boot: i64 =
        transaction
            .query_row("SELECT id FROM boot WHERE boot_id = ?1", [&at.boot_id], |row| row.get(0))?;
    let vms = reading.counted.iter().filter(|(counted, _)| counted.pid != 0).count();
    transaction.execute(
        "INSERT INTO reading (boot, unix_s, since_boot_ms, vms) VALUES (?1, ?2, ?3, ?4)",
        params![boot, at.unix_s, at.since_boot_ms, vms as i64],
    )?;
    let id = transaction.last_insert_rowid();
    let mut counters = HashMap::new();
    {
        let mut known = transaction.prepare("SELECT name, id FROM counter")?;
        let mut rows = known.query([])?;
        while let Some(row) = rows.next()? {
            counters.insert(row.get::<_, String>(0)?, row.get::<_, i64>(1)?);
        }
    }
    let mut add = transaction.prepare("INSERT INTO value VALUES (?1, ?2, ?3, ?4)")?;
    for (counted, set) in &reading.counted {
        let vm = vm_id(transaction, boot, id, counted)?;
        for (name, value) in set.0.iter().filter(|(_, value)| value.is_finite()) {
            let counter = match counters.get(name) {
                Some(id) => *id,
                None => {
                    transaction.execute("INSERT INTO counter (name) VALUES (?1)", [name])?;
                    let id = transaction.last_insert_rowid();
                    counters.insert(name.clone(), id);
                    id
                }
            };
            add.execute(params![id, vm, counter, value])?;
        }
    }
    Ok(())
}

/// The row of a VM. A VM whose number of vCPUs changed has another: an interval is of one
/// number.
fn vm_id(
    transaction: &Transaction<'_>,
    boot: i64,
    reading: i64,
    counted: &CounterSubject,
) -> Result<i64, rusqlite::Error> {
    let CounterSubject { pid, starttime_ticks, name, vcpus, environment } = counted;
    let starttime_ticks = i64::try_from(*starttime_ticks).unwrap_or(i64::MAX);
    let environment = environment_word(*environment);
    transaction
        .prepare(
            "INSERT OR IGNORE INTO vm (boot, pid, starttime_ticks, name, vcpus, environment, first_reading)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![boot, pid, starttime_ticks, name, vcpus, environment, reading])?;
    transaction
        .prepare(
            "SELECT id FROM vm
             WHERE boot = ?1 AND pid = ?2 AND starttime_ticks = ?3 AND vcpus = ?4",
        )?
        .query_row(params![boot, pid, starttime_ticks, vcpus], |row| row.get(0))
}

/// As journals and reports have it.
fn environment_word(environment: Environment) -> String {
    let value = serde_json::to_value(environment).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn environment_of(word: &str) -> Option<Environment> {
    serde_json::from_value(word.into()).ok()
}

/// Whether it is a store that this vmlab reads.
fn check(path: &Path, connection: &Connection) -> Result<(), FleetStoreError> {
    let pragma = |name| {
        let value = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        value.map_err(|source| failed(path, source))
    };
    if pragma("application_id")? != i64::from(APPLICATION_ID) {
        return Err(FleetStoreError::NotAStore { path: path.to_owned() });
    }
    let found = u32::try_from(pragma("user_version")?).unwrap_or(u32::MAX);
    if found > VERSION {
        return Err(FleetStoreError::Newer { path: path.to_owned(), found });
    }
    Ok(())
}

fn open_to_read(path: &Path) -> Result<Connection, FleetStoreError> {
    let failed = |source| failed(path, source);
    // To write where that is allowed: what a killed writer began must be taken back first.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(PATIENCE).map_err(failed)?;
    check(path, &connection)?;
    Ok(connection)
}

/// What the store at `path` holds.
///
/// # Errors
/// [`FleetStoreError`].
pub fn contents(path: &Path) -> Result<StoredReadings, FleetStoreError> {
    let connection = open_to_read(path)?;
    try_contents(&connection).map_err(|source| failed(path, source))
}

fn try_contents(connection: &Connection) -> Result<StoredReadings, rusqlite::Error> {
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let host = host_name(connection)?;
    let (readings, first, last): (i64, Option<i64>, Option<i64>) = connection.query_row(
        "SELECT count(*), (SELECT unix_s FROM reading ORDER BY id LIMIT 1),
                (SELECT unix_s FROM reading ORDER BY id DESC LIMIT 1) FROM reading",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let count = |query| connection.query_row(query, [], |row| row.get::<_, i64>(0));
    let mut vms = Vec::new();
    let mut of_last = connection.prepare(
        "SELECT vm.id, vm.name, vm.pid, vm.vcpus, vm.environment FROM vm
         WHERE id IN (SELECT vm FROM value WHERE reading = (SELECT max(id) FROM reading))
         ORDER BY vm.pid",
    )?;
    let mut counters = connection.prepare(
        "SELECT counter.name, value.value FROM value JOIN counter ON counter.id = value.counter
         WHERE reading = (SELECT max(id) FROM reading) AND vm = ?1",
    )?;
    let mut span = connection.prepare(
        "SELECT unix_s FROM reading
         WHERE id >= (SELECT first_reading FROM vm WHERE id = ?1) ORDER BY id LIMIT 1",
    )?;
    let mut rows = of_last.query([])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let mut set = record::CounterSet::default();
        let mut values = counters.query([id])?;
        while let Some(row) = values.next()? {
            set.set(row.get::<_, String>(0)?, row.get(1)?);
        }
        let environment: String = row.get(4)?;
        vms.push(StoredVm {
            name: row.get(1)?,
            pid: row.get(2)?,
            vcpus: row.get(3)?,
            environment: environment_of(&environment),
            read_unix_s: [span.query_row([id], |row| row.get(0))?, last.unwrap_or(0)],
            counters: set,
        });
    }
    Ok(StoredReadings {
        format: FORMAT.to_owned(),
        version,
        host,
        bytes: used_bytes(connection)?,
        readings: readings.unsigned_abs(),
        read_unix_s: first.zip(last).map(|(first, last)| [first, last]),
        boots: count("SELECT count(*) FROM boot")?.unsigned_abs(),
        vms_seen: count("SELECT count(*) FROM vm WHERE pid != 0")?.unsigned_abs(),
        vms,
    })
}

fn host_name(connection: &Connection) -> Result<String, rusqlite::Error> {
    let found = connection
        .query_row("SELECT value FROM about WHERE key = 'host'", [], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// A metric in a store: a counter, and the counter that it is divided by, if any.
pub type StoredMetric<'a> = (&'a str, Option<&'a str>);

/// What each hour had of each of `metrics`, by the other counter or by vCPU seconds, of all
/// VMs of the store's host together.
///
/// Costs a pass over the file, however many metrics there are.
///
/// # Errors
/// [`FleetStoreError`].
pub fn hours(path: &Path, metrics: &[StoredMetric<'_>]) -> Result<Vec<HostHours>, FleetStoreError> {
    let connection = open_to_read(path)?;
    try_hours(&connection, metrics).map_err(|source| failed(path, source))
}

/// One VM's values of one reading.
struct VmReadings {
    vm: i64,
    unix_s: i64,
    since_boot_ms: i64,
    /// By the counters' ids.
    values: HashMap<i64, f64>,
}

fn try_hours(
    connection: &Connection,
    metrics: &[StoredMetric<'_>],
) -> Result<Vec<HostHours>, rusqlite::Error> {
    let id_of = |name: &str| {
        connection
            .query_row("SELECT id FROM counter WHERE name = ?1", [name], |row| row.get::<_, i64>(0))
            .optional()
    };
    let host = host_name(connection)?;
    let mut all = vec![HostHours { host, ..HostHours::default() }; metrics.len()];
    // The ids of each metric that has all of its counters here.
    let mut known: Vec<(usize, i64, Option<i64>)> = Vec::new();
    for (at, (counter, per)) in metrics.iter().enumerate() {
        let per_id = per.map(id_of).transpose()?.flatten();
        if let Some(counter) = id_of(counter)?
            && per.is_some() == per_id.is_some()
        {
            known.push((at, counter, per_id));
        }
    }
    let ids = known.iter().flat_map(|(_, counter, per)| [Some(*counter), *per]).flatten();
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let mut vms: HashMap<i64, (u32, Option<Environment>)> = HashMap::new();
    let mut of_vms = connection.prepare("SELECT id, vcpus, environment FROM vm")?;
    let mut rows = of_vms.query([])?;
    while let Some(row) = rows.next()? {
        let environment: String = row.get(2)?;
        vms.insert(row.get(0)?, (row.get(1)?, environment_of(&environment)));
    }
    // A VM is of one boot, so its readings are.
    let mut earlier: HashMap<(usize, i64), CountedValue> = HashMap::new();
    let mut add = |row: &VmReadings| {
        let (vcpus, environment) = vms.get(&row.vm).copied().unwrap_or((1, None));
        for (at, counter, per) in &known {
            let Some(value) = row.values.get(counter) else { continue };
            let now = CountedValue {
                unix_s: row.unix_s,
                since_boot_ms: row.since_boot_ms,
                value: *value,
                per: per.and_then(|per| row.values.get(&per).copied()),
            };
            if let Some(before) = earlier.insert((*at, row.vm), now) {
                all[*at].add(&before, &now, vcpus);
                all[*at].environments.extend(environment);
            }
        }
    };
    let mut values = connection.prepare(&format!(
        "SELECT reading.id, value.vm, reading.unix_s, reading.since_boot_ms, value.counter,
                value.value
         FROM reading JOIN value ON value.reading = reading.id
         WHERE value.counter IN ({}) ORDER BY reading.id, value.vm",
        ids.join(", ")
    ))?;
    let mut rows = values.query([])?;
    let mut current: Option<(i64, VmReadings)> = None;
    while let Some(row) = rows.next()? {
        let (reading, vm): (i64, i64) = (row.get(0)?, row.get(1)?);
        let is_next = current.as_ref().is_none_or(|now| (now.0, now.1.vm) != (reading, vm));
        if is_next {
            let new = VmReadings {
                vm,
                unix_s: row.get(2)?,
                since_boot_ms: row.get(3)?,
                values: HashMap::new(),
            };
            if let Some((_, done)) = current.replace((reading, new)) {
                add(&done);
            }
        }
        if let Some((_, now)) = &mut current {
            now.values.insert(row.get(4)?, row.get(5)?);
        }
    }
    if let Some((_, done)) = current {
        add(&done);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
