//! Whose process is this? Every process that vmlab spawns carries a mark in
//! its environment, so that what a dead run left behind is found without any
//! register that could be stale.
//!
//! - `VMLAB_OWNER=<pid>:<start in clock ticks>:<boot id>` names the vmlab
//!   process that spawned it; no other process ever gets the same three.
//! - `VMLAB_RUN=<run id>` names the run.
//!
//! The kernel copies the environment at `exec`, before the program's first
//! instruction: no program of vmlab's ever runs unmarked. Programs may overwrite
//! their environment later (stress-ng writes its workers' titles there).
//! Therefore each spawned process leads a process group of its own, and the
//! members of a group whose leader is marked count as marked.
//!
//! What is not proven to be vmlab's is never touched: the owner must be dead
//! (or be a zombie), processes in other PID namespaces are left alone because
//! their owner's pid means nothing here, and a process is ended through a
//! pidfd that was opened before its identity was checked once more.
//!
//! Source: `proc_pid_environ(5)`, `proc_pid_stat(5)`, `pidfd_open(2)`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, test_kill_process, waitid,
};
use rustix::time::Timespec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proc;

/// Environment variable that names the owner.
pub const OWNER_VARIABLE: &str = "VMLAB_OWNER";
/// Environment variable that names the run.
pub const RUN_VARIABLE: &str = "VMLAB_RUN";

/// How long a process may take to vanish after SIGKILL. Only one that hangs
/// in the kernel needs longer than a moment.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How long a process may take from its new memory to its new environment.
const EXEC_LIMIT: Duration = Duration::from_millis(50);

/// A vmlab process and the run that it works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// Start of that process, in clock ticks since boot.
    pub starttime_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of the PID namespace in which `pid` has a meaning.
    pub pid_namespace: Option<u64>,
    /// The run's id.
    pub run_id: String,
}

/// Error type for [`Owner::current`].
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// `/proc` does not tell who this process is.
    #[error("Cannot read {path}; vmlab needs a mounted /proc")]
    Proc {
        /// File that could not be read.
        path: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The run id can't be put into an environment variable.
    #[error("Run id {0:?} holds a NUL character")]
    RunId(String),
}

impl Owner {
    /// This process, working on `run_id`.
    ///
    /// # Errors
    /// [`OwnerError`] when `/proc` is not mounted or `run_id` holds a NUL.
    pub fn current(run_id: &str) -> Result<Self, OwnerError> {
        Self::of(std::process::id(), run_id)
    }

    /// The process `pid`, working on `run_id`: to know it again later.
    ///
    /// # Errors
    /// [`OwnerError`] when there is no such process or `run_id` holds a NUL.
    pub fn of(pid: u32, run_id: &str) -> Result<Self, OwnerError> {
        if run_id.contains('\0') {
            return Err(OwnerError::RunId(run_id.to_owned()));
        }
        let stat = proc::stat(pid).ok_or_else(|| OwnerError::Proc {
            path: "/proc/<pid>/stat",
            source: io::Error::from(io::ErrorKind::NotFound),
        })?;
        Ok(Self {
            pid,
            starttime_ticks: stat.starttime_ticks,
            boot_id: boot_id().map_err(|source| OwnerError::Proc { path: BOOT_ID_PATH, source })?,
            pid_namespace: pid_namespace("self"),
            run_id: run_id.to_owned(),
        })
    }

    /// The variables that mark a child as this owner's.
    #[must_use]
    pub fn env(&self) -> [(String, String); 2] {
        [
            (OWNER_VARIABLE.to_owned(), self.to_string()),
            (RUN_VARIABLE.to_owned(), self.run_id.clone()),
        ]
    }

    /// Marks `command` as this owner's and makes it lead a process group.
    ///
    /// The group keeps the terminal's Ctrl-C away from it: vmlab ends its
    /// children in its own order.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.env()).process_group(0);
    }

    /// Whether the owner still runs, or can't be proven not to.
    ///
    /// An owner in another PID namespace counts as alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        if self.is_of_earlier_boot() {
            return false;
        }
        if self.pid_namespace != pid_namespace("self") {
            return true;
        }
        match proc::stat(self.pid) {
            Some(stat) => stat.starttime_ticks == self.starttime_ticks && !stat.is_dead(),
            // Hidden from us (hidepid) is not the same as gone.
            None => exists(self.pid),
        }
    }

    /// Whether the machine was provably rebooted since the owner started.
    pub(crate) fn is_of_earlier_boot(&self) -> bool {
        boot_id().is_ok_and(|boot_id| boot_id != self.boot_id)
    }
}

impl fmt::Display for Owner {
    /// The value of [`OWNER_VARIABLE`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.pid, self.starttime_ticks, self.boot_id)
    }
}

/// A process that a dead vmlab left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Process id.
    pub pid: u32,
    /// Start of the process, in clock ticks since boot.
    pub starttime_ticks: u64,
    /// Its process group.
    pub process_group: u32,
    /// Its command line, as it shows it.
    pub command_line: String,
    /// Who spawned it, for which run.
    pub owner: Owner,
}

/// All processes whose owner is dead, as far as this user may see: root sees
/// everybody's, others their own.
///
/// This process and those above it are never among them.
#[must_use]
pub fn orphans() -> Vec<Orphan> {
    let Ok(boot_id) = boot_id() else { return Vec::new() };
    let namespace = pid_namespace("self");
    let above = self_and_ancestors();
    let mut seen = Vec::new();
    // Process groups that a marked process leads.
    let mut groups = BTreeMap::new();
    for pid in proc::pids() {
        let Some(stat) = proc::stat(pid).filter(|stat| !stat.is_dead()) else { continue };
        let mark = read_mark(pid);
        // The mark belongs to the process of that start only if it still is the same.
        if proc::stat(pid).map(|now| now.starttime_ticks) != Some(stat.starttime_ticks) {
            continue;
        }
        if let Some(mark) = &mark
            && pid == stat.pgrp
        {
            groups.insert(pid, mark.clone());
        }
        seen.push((pid, stat, mark));
    }
    let mut alive: BTreeMap<String, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for (pid, stat, mark) in seen {
        let Some(owner) = mark.or_else(|| groups.get(&stat.pgrp).cloned()) else { continue };
        let owner_alive = *alive.entry(owner.to_string()).or_insert_with(|| owner.is_alive());
        let here = owner.pid_namespace == namespace && owner.boot_id == boot_id;
        if owner_alive || !here || above.contains(&pid) {
            continue;
        }
        found.push(Orphan {
            pid,
            starttime_ticks: stat.starttime_ticks,
            process_group: stat.pgrp,
            command_line: command_line(pid),
            owner,
        });
    }
    found
}

/// How an orphan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanEnd {
    /// It was gone before it was touched.
    AlreadyGone,
    /// It ended itself on SIGTERM.
    Terminated,
    /// It had to be killed.
    Killed,
}

/// Error type for [`end_orphan`].
#[derive(Debug, thiserror::Error)]
pub enum EndOrphanError {
    /// The kernel refused.
    #[error("Cannot end process {pid} ({command_line})")]
    Refused {
        /// Process id.
        pid: u32,
        /// Its command line.
        command_line: String,
        /// Why; EPERM: it runs as another user, ENOSYS: the kernel is older
        /// than Linux 5.3 and has no pidfd.
        #[source]
        source: io::Error,
    },
    /// It survived SIGKILL, as only a process that hangs in the kernel does.
    #[error("Process {pid} ({command_line}) did not end after SIGKILL; it hangs in the kernel")]
    StillThere {
        /// Process id.
        pid: u32,
        /// Its command line.
        command_line: String,
    },
}

/// Ends one orphan: SIGTERM, and SIGKILL when it still runs after `grace`.
/// A stopped process is continued so that it can act on SIGTERM.
///
/// # Errors
/// [`EndOrphanError`] when it belongs to another user or can't be killed.
pub fn end_orphan(orphan: &Orphan, grace: Duration) -> Result<OrphanEnd, EndOrphanError> {
    let deadline = Instant::now() + grace;
    match begin_end(orphan)? {
        Some(pidfd) => finish_end(orphan, &pidfd, deadline),
        None => Ok(OrphanEnd::AlreadyGone),
    }
}

/// Ends all `wanted` orphans, and those that they spawn meanwhile; each is
/// listed once.
///
/// All get `grace` together between SIGTERM and SIGKILL.
pub fn end_orphans(
    wanted: impl Fn(&Orphan) -> bool,
    grace: Duration,
) -> Vec<(Orphan, Result<OrphanEnd, EndOrphanError>)> {
    let mut done = Vec::new();
    let mut known = BTreeSet::new();
    loop {
        let mut fresh = orphans();
        fresh.retain(|orphan| wanted(orphan) && known.insert((orphan.pid, orphan.starttime_ticks)));
        if fresh.is_empty() {
            return done;
        }
        let deadline = Instant::now() + grace;
        let begun: Vec<_> = fresh.iter().map(begin_end).collect();
        for (orphan, begun) in fresh.into_iter().zip(begun) {
            let ended = begun.and_then(|pidfd| match pidfd {
                Some(pidfd) => finish_end(&orphan, &pidfd, deadline),
                None => Ok(OrphanEnd::AlreadyGone),
            });
            done.push((orphan, ended));
        }
    }
}

/// Ends a process that was left running on purpose and is known by its
/// identity: SIGTERM, and SIGKILL when it still runs after `grace`.
///
/// # Errors
/// [`EndOrphanError`] when it belongs to another user or can't be killed.
pub fn end_kept(process: &Owner, grace: Duration) -> Result<OrphanEnd, EndOrphanError> {
    let deadline = Instant::now() + grace;
    let kept = Orphan {
        pid: process.pid,
        starttime_ticks: process.starttime_ticks,
        process_group: process.pid,
        command_line: command_line(process.pid),
        owner: process.clone(),
    };
    let Some(pid) = raw_pid(process.pid) else { return Ok(OrphanEnd::AlreadyGone) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(OrphanEnd::AlreadyGone),
        Err(source) => return Err(refused(&kept, source)),
    };
    // Checked after the opening, for the reason that begin_end names.
    if process.pid_namespace != pid_namespace("self") || !process.is_alive() {
        return Ok(OrphanEnd::AlreadyGone);
    }
    send(&kept, &pidfd, Signal::TERM)?;
    send(&kept, &pidfd, Signal::CONT)?;
    finish_end(&kept, &pidfd, deadline)
}

/// Opens the orphan, proves that it still is the one, and sends SIGTERM; none
/// if it is gone.
fn begin_end(orphan: &Orphan) -> Result<Option<OwnedFd>, EndOrphanError> {
    let Some(pid) = raw_pid(orphan.pid) else { return Ok(None) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(source) => return Err(refused(orphan, source)),
    };
    // Checked after the opening: when the pid has a new user by now, either
    // the pidfd is the new one's, and the start differs, or it is the dead
    // orphan's, and signals go nowhere.
    let same = proc::stat(orphan.pid).is_some_and(|now| {
        now.starttime_ticks == orphan.starttime_ticks && now.pgrp == orphan.process_group
    });
    if !same || orphan.owner.is_alive() {
        return Ok(None);
    }
    send(orphan, &pidfd, Signal::TERM)?;
    send(orphan, &pidfd, Signal::CONT)?;
    Ok(Some(pidfd))
}

fn finish_end(
    orphan: &Orphan,
    pidfd: &OwnedFd,
    deadline: Instant,
) -> Result<OrphanEnd, EndOrphanError> {
    if wait_exit(pidfd, deadline) {
        return Ok(OrphanEnd::Terminated);
    }
    send(orphan, pidfd, Signal::KILL)?;
    if wait_exit(pidfd, Instant::now() + KILL_LIMIT) {
        return Ok(OrphanEnd::Killed);
    }
    Err(EndOrphanError::StillThere { pid: orphan.pid, command_line: orphan.command_line.clone() })
}

fn send(orphan: &Orphan, pidfd: &OwnedFd, signal: Signal) -> Result<(), EndOrphanError> {
    match pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(source) => Err(refused(orphan, source)),
    }
}

fn refused(orphan: &Orphan, source: rustix::io::Errno) -> EndOrphanError {
    EndOrphanError::Refused {
        pid: orphan.pid,
        command_line: orphan.command_line.clone(),
        source: source.into(),
    }
}

/// Ends a child that [`Owner::apply`] made the leader of a group, and its
/// whole group: SIGTERM, after `grace` SIGKILL, until no member is left.
///
/// The child is reaped last: as long as it is not, no other group can get its
/// number.
///
/// # Errors
/// The kernel's error; `TimedOut` when a member survives SIGKILL.
pub fn stop_group(child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
    let Some(group) = raw_pid(child.id()) else { return child.wait() };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Err(rustix::io::Errno::CHILD) = waitid(WaitId::Pid(group), look) {
        // Reaped before: the group's number is proven ours only as long as
        // members hold it, and they can't be told from a newer group's.
        return child.wait();
    }
    let leader = pidfd_open(group, PidfdFlags::empty())?;
    signal_group(group, Signal::TERM)?;
    signal_group(group, Signal::CONT)?;
    wait_exit(&leader, Instant::now() + grace);
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        signal_group(group, Signal::KILL)?;
        let members = group_members(child.id());
        if members.is_empty() {
            return child.wait();
        }
        for member in members {
            if !wait_exit(&member, deadline) {
                let text = format!("A process of group {} survived SIGKILL", child.id());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

fn signal_group(group: Pid, signal: Signal) -> io::Result<()> {
    match kill_process_group(group, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(source) => Err(source.into()),
    }
}

/// The members of process group `group` that still run.
fn group_members(group: u32) -> Vec<OwnedFd> {
    let member = |pid: u32| {
        let pidfd = pidfd_open(raw_pid(pid)?, PidfdFlags::empty()).ok()?;
        let stat = proc::stat(pid)?;
        (stat.pgrp == group && !stat.is_dead()).then_some(pidfd)
    };
    proc::pids().into_iter().filter_map(member).collect()
}

/// Waits until the process of `pidfd` has exited; false when `deadline` came first.
pub(crate) fn wait_exit(pidfd: impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn raw_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.try_into().ok()?)
}

/// Whether any process has this id, also one that may not be looked at.
pub(crate) fn exists(pid: u32) -> bool {
    raw_pid(pid).is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID_PATH)?.trim().to_owned())
}

/// Inode of the PID namespace of `process` ("self" or a pid).
fn pid_namespace(process: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{process}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ").trim_end().to_owned()
}

/// The mark in the environment of `pid`.
fn read_mark(pid: u32) -> Option<Owner> {
    let path = format!("/proc/{pid}/environ");
    let deadline = Instant::now() + EXEC_LIMIT;
    let mut environ = fs::read(&path).ok()?;
    while environ.is_empty() && Instant::now() < deadline {
        // In the middle of `exec` this text and the command line are empty
        // for a moment. A command line means that it is over, and that the
        // environment, read after it, is complete.
        let in_exec = fs::read(format!("/proc/{pid}/cmdline")).ok()?.is_empty()
            && proc::stat(pid).is_some_and(|stat| !stat.kernel_thread && !stat.is_dead());
        environ = fs::read(&path).ok()?;
        if !in_exec {
            break;
        }
        std::thread::yield_now();
    }
    let mark = parse_mark(&environ)?;
    Some(Owner { pid_namespace: pid_namespace(&pid.to_string()), ..mark })
}

/// The mark in the text of an `environ` file; the namespace is not in it.
fn parse_mark(environ: &[u8]) -> Option<Owner> {
    let value = |name: &str| {
        environ.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()
        })
    };
    let mut fields = value(OWNER_VARIABLE)?.splitn(3, ':');
    let pid = fields.next()?.parse().ok()?;
    let starttime_ticks = fields.next()?.parse().ok()?;
    let boot_id = fields.next().filter(|boot_id| !boot_id.is_empty())?.to_owned();
    let run_id = value(RUN_VARIABLE)?.to_owned();
    Some(Owner { pid, starttime_ticks, boot_id, pid_namespace: None, run_id })
}

/// This process and all above it, up to init.
fn self_and_ancestors() -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    let mut pid = std::process::id();
    while pid != 0 && above.insert(pid) {
        pid = proc::stat(pid).map_or(0, |stat| stat.ppid);
    }
    above
}

mod runtime_dir;
pub use runtime_dir::{
    RuntimeDir, RuntimeDirError, StaleRuntimeDir, runtime_dir, stale_runtime_dirs,
};

#[cfg(test)]
mod tests;
