//! What a VM is at one moment: its devices, its memory for a debugger, or all of it, to be
//! started again.
//!
//! Memory is taken while the guest runs, as when it migrates: QEMU sends it, sends again
//! what the guest has written meanwhile, and stops the guest for the last of it and the
//! devices. Here nobody takes the guest over; it goes on. A core for gdb and crash is
//! written in the same stop, so it belongs to the same moment.
//!
//! Whatever happens, the guest goes on afterwards: on an error of QEMU's, a full disk,
//! Ctrl-C. All that QEMU writes goes through pipes, so it can be told to stop. What is set
//! for the time is put back.
//!
//! Source: QEMU `qapi/migration.json`, `qapi/dump.json`; `migration/migration.c`.

mod pipe;
mod sparse;
mod virsh;

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vmconfig::Accel;
use vmstate::{MachineState, MigrationStream, Skim, StreamError};

use crate::cancel::CANCEL_CHECK;
use crate::vm::{MonitorError, Qmp};
use crate::{Cancel, Cancellation};
use pipe::{PipeRead, QemuPipe, pipe};
use sparse::SparseFile;
pub use virsh::DomainMonitor;

/// How long QEMU may take to end what it was told to end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Between two questions whether it has.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// How much of memory a second, bytes: a pipe is as fast as both its ends.
const BANDWIDTH: u64 = 1 << 40;

/// Capabilities that must be off: they need an answer from who takes the guest over, or
/// send memory in another form or elsewhere.
const OFF: &[&str] = &[
    "background-snapshot",
    "block",
    "compress",
    "dirty-bitmaps",
    "mapped-ram",
    "multifd",
    "pause-before-switchover",
    "postcopy-ram",
    "rdma-pin-all",
    "release-ram",
    "return-path",
    "switchover-ack",
    "x-colo",
    "x-ignore-shared",
    "xbzrle",
    "zero-copy-send",
];

/// What is wanted of a VM.
#[derive(Debug, Clone, Copy)]
pub struct CaptureOptions<'a> {
    /// Its devices.
    pub devices: bool,
    /// The whole stream goes here: with it the VM can be started again.
    pub stream: Option<&'a File>,
    /// Memory as an ELF core goes here.
    pub core: Option<&'a File>,
    /// How long the guest may run while its memory is sent; then it is stopped.
    pub live_limit: Duration,
    /// How long all of the stream may take, if it may not take as long as it takes.
    pub limit: Option<Duration>,
    /// The VM ends, instead of going on.
    pub end: bool,
}

/// What was captured.
#[derive(Debug)]
pub struct CaptureResult {
    /// The stream without memory's contents, if devices were wanted.
    pub stream: Option<MigrationStream>,
    /// What it says.
    pub state: Option<MachineState>,
    /// Length of the core, bytes, or why there is none.
    pub core: Option<Result<u64, String>>,
    /// For how long the guest stood still, s; `None` if it did not run before.
    pub stopped_s: Option<f64>,
    /// Whether that is by QEMU's own events; by vmlab's clock it is that at most.
    pub by_events: bool,
    /// QEMU's version: `7.2.22`.
    pub qemu: String,
    /// What runs its guest; times of an emulated one say nothing of real hardware.
    pub accel: Accel,
    /// The VM's name, if it has one.
    pub name: Option<String>,
    /// What is as it was not before, a sentence each.
    pub warnings: Vec<String>,
}

/// Error type for [`capture`].
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// QEMU, or the way to it.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// It is being migrated, or dumped, by somebody else.
    #[error("QEMU is already at it: {0}; wait until that has ended")]
    Busy(String),
    /// It can't be migrated.
    #[error("QEMU can't tell its devices' state: {detail}{}", advice(.detail))]
    Migration {
        /// QEMU's words.
        detail: String,
    },
    /// The stream is none.
    #[error("QEMU's stream can't be read: {0}")]
    Stream(#[from] StreamError),
    /// A file can't be written.
    #[error("Cannot write {what}")]
    Write {
        /// Which file.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No pipe.
    #[error("Cannot make a pipe to QEMU")]
    Pipe(#[source] io::Error),
    /// It took longer than it might.
    #[error("QEMU did not tell all of it within {} s", .0.as_secs())]
    Slow(Duration),
    /// Ctrl-C.
    #[error("Interrupted")]
    Cancelled(#[from] Cancellation),
    /// The guest could not be seen to go on.
    #[error("{problem}; the guest was not seen to go on: if its QEMU still runs, tell it `cont`")]
    StillStopped {
        /// What came before.
        problem: String,
    },
}

/// What to do about a refusal, behind a dash.
fn advice(detail: &str) -> &'static str {
    let has = |word: &str| detail.contains(word);
    if has("postmigrate") || has("due to previous migration") {
        " - the guest stands still since it was captured last: let it go on (`cont`) and ask again"
    } else if has("invtsc") || has("non-migratable") || has("VFIO") || has("vhost-user") {
        " - such a VM's memory can be had nevertheless: --no-devices"
    } else {
        ""
    }
}

/// Captures what `options` ask for of the VM that `qmp` asks.
///
/// # Errors
/// [`CaptureError`]; the guest goes on, but for [`CaptureError::StillStopped`], or where
/// its QEMU has ended.
pub fn capture(
    qmp: &mut dyn Qmp,
    options: CaptureOptions<'_>,
    cancel: &Cancel,
) -> Result<CaptureResult, CaptureError> {
    let version = qmp.ask("query-version", Value::Null)?;
    let number = |part: &str| version["qemu"][part].as_u64().unwrap_or_default();
    let qemu = format!("{}.{}.{}", number("major"), number("minor"), number("micro"));
    let has_kvm = qmp.ask("query-kvm", Value::Null)?["enabled"] == true;
    let accel = if has_kvm { Accel::Kvm } else { Accel::Tcg };
    let name = qmp.ask("query-name", Value::Null)?["name"].as_str().map(str::to_owned);
    let before = qmp.ask("query-status", Value::Null)?;
    let was_running = before["running"] == true;
    if is_under_way(qmp)? {
        return Err(CaptureError::Busy("a migration is under way".to_owned()));
    }
    // The events until now are somebody else's.
    let _ = qmp.stood_still_us();
    let mut work = CaptureWork {
        qmp,
        options,
        cancel,
        was_running,
        set_back: Vec::new(),
        warnings: Vec::new(),
        core_under_way: false,
        ended: false,
        stands_since: None,
        downtime: Duration::ZERO,
    };
    let taken = work.take();
    let settled = work.settle();
    let (stands_since, downtime) = (work.stands_since, work.downtime);
    let mut warnings = std::mem::take(&mut work.warnings);
    let (stream, core) = match (taken, settled) {
        (Ok(taken), Ok(())) => taken,
        (Err(problem), Ok(())) => return Err(problem),
        (taken, Err(unsettled)) => {
            let problem = taken.err().unwrap_or(unsettled).to_string();
            return Err(CaptureError::StillStopped { problem });
        }
    };
    let by_events = qmp.stood_still_us();
    let by_clock = stands_since.map(|(since, until)| until - since + downtime);
    let stopped_s = by_events
        .map(|still_us| still_us as f64 / 1e6)
        .or(by_clock.map(|still| still.as_secs_f64()));
    if !was_running && stream.is_some() && !options.end {
        warnings.push(
            "The guest did not run and does not run now; before it is captured again, or \
             migrated, it has to go on (`cont`) for a moment"
                .to_owned(),
        );
    }
    let state = stream.clone().map(MachineState::read).transpose()?;
    Ok(CaptureResult {
        stream,
        state,
        core,
        stopped_s: stopped_s.filter(|_| was_running),
        by_events: by_events.is_some(),
        qemu,
        accel,
        name,
        warnings,
    })
}

/// A capture under way.
struct CaptureWork<'a> {
    qmp: &'a mut dyn Qmp,
    options: CaptureOptions<'a>,
    cancel: &'a Cancel,
    was_running: bool,
    /// Commands that put back what was set, with their arguments.
    set_back: Vec<(&'static str, Value)>,
    /// What could not be put back.
    warnings: Vec<String>,
    /// A core is being written.
    core_under_way: bool,
    /// QEMU was told to end.
    ended: bool,
    /// From when to when the guest stands still for certain.
    stands_since: Option<(Instant, Instant)>,
    /// For how long it stood still before that, as QEMU tells.
    downtime: Duration,
}

type CaptureEnds = (Option<MigrationStream>, Option<Result<u64, String>>);

impl CaptureWork<'_> {
    fn take(&mut self) -> Result<CaptureEnds, CaptureError> {
        let with_stream = self.options.devices || self.options.stream.is_some();
        let stream = match with_stream {
            true => Some(self.stream()?),
            false => None,
        };
        let core = self.options.core.map(|file| self.core(file)).transpose()?;
        if self.options.end {
            self.qmp.ask("quit", Value::Null)?;
            self.ended = true;
        }
        Ok((stream, core))
    }

    /// Lets the guest go on, and puts back what was set.
    fn settle(&mut self) -> Result<(), CaptureError> {
        if self.ended {
            return Ok(());
        }
        if self.core_under_way {
            // Nobody reads it any more, so QEMU gives it up.
            drop(self.ended_core()?);
        }
        let until = Instant::now() + END_LIMIT;
        // What is under way nobody waits for any more.
        if is_under_way(self.qmp)? {
            self.qmp.ask("migrate_cancel", Value::Null)?;
            while is_under_way(self.qmp)? && Instant::now() < until {
                std::thread::sleep(ASK_AGAIN);
            }
        }
        let goes_on = if self.was_running { self.go_on(until) } else { Ok(()) };
        if let Some((since, _)) = self.stands_since {
            self.stands_since = Some((since, Instant::now()));
        }
        for (command, arguments) in std::mem::take(&mut self.set_back) {
            if let Err(error) = self.qmp.ask(command, arguments.clone()) {
                self.warnings.push(format!("{error}: put it back by hand, to {arguments}"));
            }
        }
        goes_on
    }

    fn go_on(&mut self, until: Instant) -> Result<(), CaptureError> {
        loop {
            if self.qmp.ask("query-status", Value::Null)?["running"] == true {
                return Ok(());
            }
            match self.qmp.ask("cont", Value::Null) {
                Ok(_) if Instant::now() < until => {}
                // A dump that was just broken off is still being put away.
                Err(MonitorError::Refused { .. }) if Instant::now() < until => {
                    std::thread::sleep(ASK_AGAIN);
                }
                Ok(_) => {
                    let problem = "QEMU was told to go on and does not".to_owned();
                    return Err(CaptureError::StillStopped { problem });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The migration stream; the guest stands still afterwards.
    fn stream(&mut self) -> Result<MigrationStream, CaptureError> {
        self.prepare()?;
        let (from, to) = pipe().map_err(CaptureError::Pipe)?;
        self.qmp.give("vmlab-state", to)?;
        let refused = |error: MonitorError| match error {
            MonitorError::Refused { detail, .. } => CaptureError::Migration { detail },
            other => other.into(),
        };
        self.qmp.ask("migrate", json!({ "uri": "fd:vmlab-state" })).map_err(refused)?;
        let StreamRead { skim, wrong, last } = self.until_read(from)?;
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        // A stream that is cut may be one that QEMU gave up, which tells more.
        let ended = self.ended_migration()?;
        let status = ended["status"].as_str().unwrap_or("none");
        if status != "completed" {
            let detail = ended["error-desc"].as_str().unwrap_or(status).to_owned();
            return Err(CaptureError::Migration { detail });
        }
        self.stands_since = Some((last, last));
        self.downtime = Duration::from_millis(ended["downtime"].as_u64().unwrap_or_default());
        Ok(skim.finish()?)
    }

    /// Has the stream read to its end by another thread: QEMU may not answer while it
    /// waits for a reader.
    fn until_read(&mut self, from: QemuPipe) -> Result<StreamRead, CaptureError> {
        let until = Instant::now() + self.options.live_limit;
        let slow = self.options.limit.map(|limit| (limit, Instant::now() + limit));
        let mut stopped = !self.was_running;
        let (file, give_up) = (self.options.stream, Cancel::new());
        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let read = read_stream(from, file, &give_up);
                // Whoever waits may have given up.
                let _ = done.send(());
                read
            });
            let mut problem = None;
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(CANCEL_CHECK) {
                if self.cancel.is_cancelled() {
                    give_up.cancel();
                } else if let Some((limit, _)) = slow.filter(|(_, at)| Instant::now() >= *at) {
                    problem.get_or_insert(CaptureError::Slow(limit));
                    give_up.cancel();
                } else if !stopped && Instant::now() >= until {
                    // The guest writes faster than it is read.
                    stopped = true;
                    if let Err(error) = self.qmp.ask("stop", Value::Null) {
                        problem = Some(error.into());
                        give_up.cancel();
                    }
                }
            }
            let read = reader.join().expect("reading does not panic");
            match problem {
                Some(problem) => Err(problem),
                None => read,
            }
        })
    }

    /// What QEMU says of the migration, once that is over.
    fn ended_migration(&mut self) -> Result<Value, CaptureError> {
        let until = Instant::now() + END_LIMIT;
        loop {
            let told = self.qmp.ask("query-migrate", Value::Null)?;
            if !is_status_under_way(&told) || Instant::now() >= until {
                return Ok(told);
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Sets what the stream needs, and notes how it was.
    fn prepare(&mut self) -> Result<(), CaptureError> {
        let all = self.qmp.ask("query-migrate-capabilities", Value::Null)?;
        let is_on = |one: &&Value| {
            let name = one["capability"].as_str().unwrap_or_default();
            one["state"] == true && OFF.contains(&name)
        };
        let on: Vec<Value> = all.as_array().into_iter().flatten().filter(is_on).cloned().collect();
        if !on.is_empty() {
            let mut off = on.clone();
            off.iter_mut().for_each(|one| one["state"] = false.into());
            self.set_back.push(("migrate-set-capabilities", json!({ "capabilities": on })));
            self.qmp.ask("migrate-set-capabilities", json!({ "capabilities": off }))?;
        }
        let all = self.qmp.ask("query-migrate-parameters", Value::Null)?;
        let mut wanted = json!({ "max-bandwidth": BANDWIDTH });
        if all["tls-creds"].as_str().is_some_and(|creds| !creds.is_empty()) {
            wanted["tls-creds"] = "".into();
        }
        let names: Vec<String> =
            wanted.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        let before =
            names.into_iter().filter_map(|name| Some((name.clone(), all.get(&name)?.clone())));
        let before: serde_json::Map<String, Value> = before.collect();
        if !before.is_empty() {
            self.set_back.push(("migrate-set-parameters", before.into()));
        }
        self.qmp.ask("migrate-set-parameters", wanted)?;
        Ok(())
    }

    /// Memory as an ELF core: its length, or why QEMU writes none.
    fn core(&mut self, file: &File) -> Result<Result<u64, String>, CaptureError> {
        let since = Instant::now();
        let (mut from, to) = pipe().map_err(CaptureError::Pipe)?;
        match self.qmp.begin_core(to) {
            Ok(()) => self.core_under_way = true,
            Err(MonitorError::Refused { detail, .. }) => return Ok(Err(detail)),
            Err(error) => return Err(error.into()),
        }
        if self.stands_since.is_none() {
            self.stands_since = Some((since, since));
        }
        let mut sparse = SparseFile::new(file);
        let what = "the core";
        loop {
            self.cancel.check()?;
            match from.next().map_err(CaptureError::Pipe)? {
                PipeRead::Nothing => {}
                PipeRead::End => break,
                PipeRead::Bytes(bytes) => {
                    sparse.write(bytes).map_err(|source| CaptureError::Write { what, source })?;
                }
            }
        }
        if let Err(why) = self.ended_core()? {
            return Ok(Err(why));
        }
        let bytes = sparse.finish().map_err(|source| CaptureError::Write { what, source })?;
        Ok(Ok(bytes))
    }

    /// How the core ended, to whose pipe nobody writes any more, or from which nobody reads.
    fn ended_core(&mut self) -> Result<Result<(), String>, CaptureError> {
        let until = Instant::now() + END_LIMIT;
        loop {
            if let Some(ended) = self.qmp.core_ended()? {
                self.core_under_way = false;
                return Ok(ended);
            }
            if Instant::now() >= until {
                return Ok(Err("QEMU does not end it".to_owned()));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }
}

/// A stream that was read as far as it could be.
struct StreamRead {
    skim: Skim,
    /// What is wrong with it.
    wrong: Option<StreamError>,
    /// When the last of it came.
    last: Instant,
}

fn read_stream(
    mut from: QemuPipe,
    file: Option<&File>,
    give_up: &Cancel,
) -> Result<StreamRead, CaptureError> {
    let mut file = file.map(SparseFile::new);
    let what = "the state";
    let written = |source| CaptureError::Write { what, source };
    let mut read = StreamRead { skim: Skim::new(), wrong: None, last: Instant::now() };
    loop {
        give_up.check()?;
        match from.next().map_err(CaptureError::Pipe)? {
            PipeRead::Nothing => {}
            PipeRead::End => break,
            PipeRead::Bytes(bytes) => {
                if let Some(file) = &mut file {
                    file.write(bytes).map_err(written)?;
                }
                read.last = Instant::now();
                read.wrong = read.skim.push(bytes).err();
            }
        }
        if read.wrong.is_some() {
            return Ok(read);
        }
    }
    if let Some(file) = file {
        file.finish().map_err(written)?;
    }
    Ok(read)
}

fn is_under_way(qmp: &mut dyn Qmp) -> Result<bool, MonitorError> {
    Ok(is_status_under_way(&qmp.ask("query-migrate", Value::Null)?))
}

/// Whether a migration goes on. Source: QEMU `qapi/migration.json`, `MigrationStatus`.
fn is_status_under_way(told: &Value) -> bool {
    let over = ["none", "completed", "failed", "cancelled"];
    told["status"].as_str().is_some_and(|status| !over.contains(&status))
}

#[cfg(test)]
mod tests;
