//! How a thread is scheduled.
//!
//! Set by `chrt(1)` of util-linux, which every host has: the system call itself
//! is out of reach of safe code. Read back from the kernel.
//!
//! Source: `sched(7)`, `chrt(1)`, `proc_pid_stat(5)`.

use std::fmt;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use crate::audit::thread::SchedulingPolicy;

/// A scheduling policy with its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduling {
    /// The policy.
    pub policy: SchedulingPolicy,
    /// 1 to 99 for real-time policies, else 0.
    pub priority: u32,
}

impl fmt::Display for Scheduling {
    /// `fifo:1`, `other`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.policy {
            SchedulingPolicy::RoundRobin => "rr".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        match self.priority {
            0 => f.write_str(&name),
            priority => write!(f, "{name}:{priority}"),
        }
    }
}

/// Error type for [`set`] and [`check`].
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// `chrt` can't be run.
    #[error("Cannot run chrt: run `apt-get install util-linux`")]
    NoChrt(#[source] io::Error),
    /// No such policy can be asked for.
    #[error("Threads can't be given policy {0}")]
    Policy(Scheduling),
    /// The kernel refuses.
    #[error("This process may not use {wanted}: {why}")]
    Refused {
        /// What was asked for.
        wanted: Scheduling,
        /// Why, and what to do.
        why: String,
    },
    /// The thread has something else afterwards, or has ended.
    #[error("Thread {tid} is {found} after it was made {wanted}")]
    ReadBack {
        /// Thread id.
        tid: u32,
        /// What was asked for.
        wanted: Scheduling,
        /// What it has.
        found: String,
    },
}

/// Schedules thread `tid` as `wanted` says, and proves it.
///
/// # Errors
/// [`SchedulerError`].
pub fn set(tid: u32, wanted: Scheduling) -> Result<(), SchedulerError> {
    let tid_text = tid.to_string();
    chrt(wanted, &["--pid"], &[&tid_text])?;
    match read(tid) {
        Some(found) if found == wanted => Ok(()),
        found => {
            let found = found.map_or("gone".to_owned(), |found| found.to_string());
            Err(SchedulerError::ReadBack { tid, wanted, found })
        }
    }
}

/// Whether this process may schedule its threads as `wanted` says: a program
/// that does nothing is run so.
///
/// # Errors
/// [`SchedulerError`] says why not.
pub fn check(wanted: Scheduling) -> Result<(), SchedulerError> {
    chrt(wanted, &[], &["true"])
}

/// How thread `tid` is scheduled; `None` when it has ended.
#[must_use]
pub fn read(tid: u32) -> Option<Scheduling> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Behind the name, which may hold spaces, begins field 3; the real-time
    // priority is field 40, the policy field 41.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(40 - 3);
    let priority = fields.next()?.parse().ok()?;
    let policy = SchedulingPolicy::from_number(fields.next()?.trim().parse().ok()?);
    Some(Scheduling { policy, priority })
}

fn chrt(wanted: Scheduling, options: &[&str], rest: &[&str]) -> Result<(), SchedulerError> {
    let flag = match wanted.policy {
        SchedulingPolicy::Fifo => "--fifo",
        SchedulingPolicy::RoundRobin => "--rr",
        SchedulingPolicy::Batch => "--batch",
        SchedulingPolicy::Idle => "--idle",
        SchedulingPolicy::Other => "--other",
        _ => return Err(SchedulerError::Policy(wanted)),
    };
    let mut command = Command::new("chrt");
    command.arg(flag).args(options).arg(wanted.priority.to_string()).args(rest);
    let ran = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let ran = ran.map_err(SchedulerError::NoChrt)?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let reason = said.trim().rsplit(": ").next().unwrap_or_default().to_owned();
    Err(SchedulerError::Refused { wanted, why: format!("{reason}; {}", hint()) })
}

/// What forbids real-time scheduling here, as far as it shows.
fn hint() -> String {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    if text("/proc/sys/kernel/sched_rt_runtime_us") == "0" {
        return "real-time threads get no time here: set sched_rt_runtime_us to 950000".to_owned();
    }
    match rustix::process::geteuid().is_root() {
        true => "this container lacks CAP_SYS_NICE, or its cgroup has no real-time budget \
                 (cpu.rt_runtime_us)"
            .to_owned(),
        false => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
            let limit = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
            format!("RLIMIT_RTPRIO is {limit}: run as root, or raise rtprio in limits.conf")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Child;

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_is_set_is_read_back() {
        let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().expect("sleep starts"));
        let tid = sleeper.0.id();
        for (policy, priority, name) in [
            (SchedulingPolicy::Batch, 0, "batch"),
            (SchedulingPolicy::Idle, 0, "idle"),
            (SchedulingPolicy::Fifo, 1, "fifo:1"),
            (SchedulingPolicy::RoundRobin, 5, "rr:5"),
        ] {
            let wanted = Scheduling { policy, priority };
            assert_eq!(wanted.to_string(), name);
            if let Err(error) = check(wanted) {
                suite::skip_part(name, error);
                continue;
            }
            set(tid, wanted).expect(name);
            assert_eq!(read(tid), Some(wanted));
        }
        drop(sleeper);
        assert_eq!(read(tid), None);
        let gone = set(tid, Scheduling { policy: SchedulingPolicy::Batch, priority: 0 })
            .expect_err("gone");
        assert!(gone.to_string().contains("No such process"), "{gone}");
        let wrong = Scheduling { policy: SchedulingPolicy::Fifo, priority: 100 };
        let error = check(wrong).expect_err("no such priority").to_string();
        assert!(error.starts_with("This process may not use fifo:100"), "{error}");
    }
}
