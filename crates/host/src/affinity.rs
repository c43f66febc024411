//! On which pCPUs a thread may run.
//!
//! The kernel silently takes away pCPUs that are offline or outside the
//! thread's cpuset, and only fails when none is left. An experiment that
//! asked for pCPUs 0-3 and got 0-1 is another experiment, so what the kernel
//! gave is read back and anything less than asked is an error.
//!
//! Source: `sched_setaffinity(2)`, `cpuset(7)`.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use topology::PcpuSet;

/// Error type for [`set_thread_affinity`].
#[derive(Debug, thiserror::Error)]
pub enum SetAffinityError {
    /// No pCPU was given.
    #[error("Cannot pin thread {tid} to no pCPU at all")]
    Empty {
        /// Thread id.
        tid: u32,
    },
    /// The system call's set ends before this number.
    #[error("Cannot pin thread {tid} to pCPU {pcpu}: the highest is {}", CpuSet::MAX_CPU - 1)]
    TooHigh {
        /// Thread id.
        tid: u32,
        /// Highest pCPU that was asked for.
        pcpu: u32,
    },
    /// Some or all of the pCPUs are offline or outside the thread's cpuset.
    #[error(
        "Cannot pin thread {tid} to pCPUs {asked}: {missing} offline or not allowed here ({available} are)"
    )]
    Unavailable {
        /// Thread id.
        tid: u32,
        /// What was asked for.
        asked: PcpuSet,
        /// Those of `asked` that it can't have.
        missing: PcpuSet,
        /// What the thread could have.
        available: PcpuSet,
    },
    /// Another error: ESRCH when the thread has ended, EPERM when it is
    /// another user's.
    #[error("Cannot pin thread {tid} to pCPUs {asked}")]
    Os {
        /// Thread id.
        tid: u32,
        /// What was asked for.
        asked: PcpuSet,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was set but can't be read back.
    #[error(transparent)]
    ReadBack(#[from] ThreadAffinityError),
}

/// Error type for [`thread_affinity`].
#[derive(Debug, thiserror::Error)]
#[error("Cannot read the affinity of thread {tid}")]
pub struct ThreadAffinityError {
    /// Thread id.
    pub tid: u32,
    /// Why; ESRCH when the thread has ended.
    #[source]
    pub source: io::Error,
}

/// Lets thread `tid` run on `pcpus` and nowhere else, and proves it.
///
/// # Errors
/// [`SetAffinityError`]; on `Unavailable` the thread is put back to where it
/// could run before.
pub fn set_thread_affinity(tid: u32, pcpus: &PcpuSet) -> Result<(), SetAffinityError> {
    let Some(last) = pcpus.last() else { return Err(SetAffinityError::Empty { tid }) };
    if last as usize >= CpuSet::MAX_CPU {
        return Err(SetAffinityError::TooHigh { tid, pcpu: last });
    }
    let os_error = |source: io::Error| SetAffinityError::Os { tid, asked: pcpus.clone(), source };
    let pid = raw_tid(tid).map_err(os_error)?;
    let before = thread_affinity(tid)?;
    let given = match sched_setaffinity(Some(pid), &to_cpu_set(pcpus)) {
        Ok(()) => thread_affinity(tid)?,
        // None of them is there.
        Err(Errno::INVAL) => PcpuSet::new(),
        Err(source) => return Err(os_error(source.into())),
    };
    if given == *pcpus {
        return Ok(());
    }
    // Asked for all, the kernel gives what the cpuset and the hotplug state leave.
    let everything: PcpuSet = (0..=1023).collect();
    let available = match sched_setaffinity(Some(pid), &to_cpu_set(&everything)) {
        Ok(()) => thread_affinity(tid)?,
        Err(source) => return Err(os_error(source.into())),
    };
    // Half of what was asked for helps nobody.
    sched_setaffinity(Some(pid), &to_cpu_set(&before)).map_err(|e| os_error(e.into()))?;
    Err(SetAffinityError::Unavailable {
        tid,
        asked: pcpus.clone(),
        missing: pcpus.difference(&given),
        available,
    })
}

/// The online pCPUs on which thread `tid` may run.
///
/// # Errors
/// [`ThreadAffinityError`] when the thread has ended.
pub fn thread_affinity(tid: u32) -> Result<PcpuSet, ThreadAffinityError> {
    let error = |source: io::Error| ThreadAffinityError { tid, source };
    match sched_getaffinity(Some(raw_tid(tid).map_err(error)?)) {
        Ok(set) => {
            let numbers = (0..CpuSet::MAX_CPU).filter(|pcpu| set.is_set(*pcpu));
            Ok(numbers.filter_map(|pcpu| u32::try_from(pcpu).ok()).collect())
        }
        // The kernel has more pCPUs than the set holds.
        Err(Errno::INVAL) => {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).map_err(error)?;
            allowed_in_status(&status)
                .ok_or_else(|| error(io::Error::other("No Cpus_allowed_list in its status")))
        }
        Err(source) => Err(error(source.into())),
    }
}

/// `Cpus_allowed_list` of a `/proc/<tid>/status`.
pub(crate) fn allowed_in_status(status: &str) -> Option<PcpuSet> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().parse().ok()
}

fn raw_tid(tid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(tid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| Errno::SRCH.into())
}

fn to_cpu_set(pcpus: &PcpuSet) -> CpuSet {
    let mut set = CpuSet::new();
    for pcpu in pcpus.iter() {
        // Numbers beyond the set were refused before, or never read.
        set.set(pcpu as usize);
    }
    set
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn set(text: &str) -> PcpuSet {
        text.parse().expect("a pCPU list")
    }

    /// Runs `body` with the id of a process that may be pinned.
    fn with_sleeper(body: impl FnOnce(u32)) {
        struct Guard(Child);
        impl Drop for Guard {
            fn drop(&mut self) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
        let guard = Guard(Command::new("sleep").arg("1000").spawn().expect("sleep starts"));
        body(guard.0.id());
    }

    #[test]
    fn what_is_set_is_read_back() {
        with_sleeper(|tid| {
            let all = thread_affinity(tid).expect("affinity");
            for one in all.iter() {
                let one = PcpuSet::from_iter([one]);
                set_thread_affinity(tid, &one).expect("pinned");
                assert_eq!(thread_affinity(tid).expect("affinity"), one);
            }
            set_thread_affinity(tid, &all).expect("everywhere again");
            assert_eq!(thread_affinity(tid).expect("affinity"), all);
        });
    }

    #[test]
    fn pcpus_that_are_not_there_are_named() {
        with_sleeper(|tid| {
            let all = thread_affinity(tid).expect("affinity");
            let first = all.first().expect("a pCPU");
            let check = |asked: &PcpuSet, message: &str| {
                let error = set_thread_affinity(tid, asked).expect_err(message);
                let text = error.to_string();
                assert!(text.contains(message), "{text} lacks {message}");
                assert_eq!(thread_affinity(tid).expect("affinity"), all, "unchanged");
            };
            let are = format!("({all} are)");
            check(&set("1022-1023"), &are);
            check(&PcpuSet::new(), "to no pCPU");
            check(&set("1024"), "pCPU 1024: the highest is 1023");
            check(&set("1022-1023"), "1022-1023 offline or not allowed here");
            check(&set(&format!("{first},1023")), ": 1023 offline or not allowed here");
        });
    }

    #[test]
    fn ended_threads_are_errors() {
        for tid in [0, 4_194_305, u32::MAX] {
            assert!(thread_affinity(tid).is_err(), "{tid}");
            assert!(set_thread_affinity(tid, &set("0")).is_err(), "{tid}");
        }
    }

    #[test]
    fn status_names_any_pcpu_number() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7,1500-2047\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_in_status(status), Some(set("0-7,1500-2047")));
        assert_eq!(allowed_in_status("Name:\tx\n"), None);
    }
}
